// Package data is what a server keeps in one engine: namespaces with their tokens, and in each of them messages, logs
// of events, and tasks.
//
//	d, err := data.Open(engine, data.Options{}) // at Power
//	shop, err := d.Messages().Namespace(ctx, message.Default)
//	tasks, err := d.Tasks(ctx, message.Default)
//	s, err := server.New(d, server.Options{}) // serves the same
package data

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/fanout"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// The defaults of Options.
const (
	DefaultMaxLogs          = 1024
	DefaultMaxTasks         = 256
	DefaultMaxSubscriptions = 1024
)

// idleSubscription is how long a subscription stays open that nobody uses: it keeps its namespace open.
const idleSubscription = 5 * time.Minute

// Options are how data is opened.
type Options struct {
	Level  holdfast.Level // 0 means Power
	Logger *slog.Logger   // nil means slog.Default

	// MaxLogs and MaxTasks are how many logs and task stores are open at once; 0 means the default. Those that are in use
	// are open even if there are more. Of the others the one that was used first is closed; opening it again takes a
	// commit, and for tasks the reading of their index. MaxTasks counts namespaces that have tasks. In one that is closed
	// nothing is due until it is opened again: leases run out, and finished tasks are removed, then.
	MaxLogs, MaxTasks int
	// MaxSubscriptions is the same for subscriptions of messages; but those are open too of which consumers have messages,
	// and those that nobody uses are closed after some minutes in any case.
	MaxSubscriptions int

	// Spaces are the others, if this is the first of several; nil if all namespaces are here.
	Spaces Spaces
}

// Data is the open data. All methods may be called from many goroutines at once.
type Data struct {
	engine   holdfast.Engine
	db       *kv.DB
	o        Options
	messages *message.Store
	tokens   *auth.Tokens
	logs     *pool[*event.Store]
	tasks    *pool[*task.Store]

	subscriptions *pool[*Subscription]
	stopClosing   context.CancelFunc
	closing       sync.WaitGroup

	mu       sync.Mutex
	deleting map[string]bool // namespaces

	directory directory
}

// Open opens what is kept in an engine, and makes what is not there. The engine stays the caller's, and is closed
// after the data. Errors are those of [kv.Open] and [message.Open]: ErrLocked if another Data of the engine is open,
// ErrLevel if the engine does not give the level, ErrCorrupt if something was lost, ErrVersion if a newer program made
// it.
func Open(engine holdfast.Engine, o Options) (*Data, error) {
	db, err := kv.Open(engine, kv.Options{Level: o.Level})
	if err != nil {
		return nil, err
	}
	messages, err := message.Open(db, message.Options{Level: o.Level, Logger: o.Logger,
		Database: func(namespace string) (*kv.DB, error) { return database(db, namespace) }})
	if err != nil {
		return nil, err
	}
	tokens, err := openTokens(db, messages)
	if err != nil {
		return nil, errors.Join(err, messages.Close())
	}
	d := &Data{engine: engine, db: db, o: o, messages: messages, tokens: tokens,
		deleting: map[string]bool{}}
	d.logs = newPool[*event.Store](cmp.Or(o.MaxLogs, DefaultMaxLogs), d.outside(ofLog))
	d.tasks = newPool[*task.Store](cmp.Or(o.MaxTasks, DefaultMaxTasks), d.outside(ofTasks))
	d.subscriptions = newPool[*Subscription](cmp.Or(o.MaxSubscriptions, DefaultMaxSubscriptions), d.outside(ofLog))
	if err := d.load(); err != nil {
		return nil, errors.Join(err, messages.Close())
	}
	if o.Spaces != nil {
		tokens.Revoked = o.Spaces.Revoked
	}
	d.subscriptions.quiet, d.subscriptions.closable = idleSubscription, (*Subscription).closable
	ctx, stop := context.WithCancel(context.Background())
	d.stopClosing = stop
	d.closing.Go(func() {
		tick := time.NewTicker(idleSubscription / 4)
		defer tick.Stop()

		for {
			select {
			case <-tick.C:
				d.subscriptions.closeQuiet()
			case <-ctx.Done():
				return
			}
		}
	})

	return d, nil
}

// Engine is where all of it is.
func (d *Data) Engine() holdfast.Engine { return d.engine }

// DB is the database that the default namespace is in, and the lists of namespaces and tokens. It has no name.
func (d *Data) DB() *kv.DB { return d.db }

// Database is the database that a namespace is in: its messages, logs and tasks are parts of transactions of it, by
// what their In returns. Each namespace has its own, so that none waits while a transaction of another is decided;
// [kv.UpdateAll] takes several. The server keeps nothing in buckets of it: those that a program makes there belong to
// the namespace, and Delete deletes them, too. Move leaves them where they are.
func (d *Data) Database(namespace string) (*kv.DB, error) { return database(d.db, namespace) }

func database(db *kv.DB, namespace string) (*kv.DB, error) {
	if namespace == message.Default {
		return db, nil
	}
	sum := sha256.Sum256([]byte(namespace)) // names of databases are shorter than those of namespaces

	return kv.Open(db.Engine(), kv.Options{Name: fmt.Sprintf("ns/%x", sum[:14]), Level: db.Level()})
}

// Messages is the store of messages, whose namespaces are those of the server. They are made by Create and deleted by
// Delete of Data, not by the store's own. Those that a program has made or deleted there without a server are the
// server's, or are not, from the next Open on.
func (d *Data) Messages() *message.Store { return d.messages }

// Tokens are the tokens of the namespaces, and those for all of them.
func (d *Data) Tokens() *auth.Tokens { return d.tokens }

// Level is that of writes which name none.
func (d *Data) Level() holdfast.Level { return d.messages.Level() }

// name is what a log or a task store of a namespace is called in the engine: those of the default namespace have the
// names that a program gives them which has the engine for itself.
func name(namespace, of string) string {
	if namespace == message.Default {
		return of
	}

	return strings.TrimSuffix(namespace+"/"+of, "/")
}

// ofLog tells whose log has a name in the engine.
func ofLog(n string) (namespace, log string) {
	if namespace, log, ok := strings.Cut(n, "/"); ok {
		return namespace, log
	}

	return message.Default, n
}

// ofTasks tells whose task store has a name in the engine.
func ofTasks(n string) (namespace, none string) { return cmp.Or(n, message.Default), "" }

// outside returns a function for the pool of stores whose names in the engine tell that.
func (d *Data) outside(of func(n string) (namespace, name string)) func(n string) error {
	return func(n string) error {
		namespace, _ := of(n)
		db, err := d.Database(namespace)
		if err != nil {
			return err
		}

		return db.Turn().Outside()
	}
}

// outsideOf is ErrNested in the function of a transaction of a namespace's Database, or of DB.
func (d *Data) outsideOf(namespace string) error {
	own, err := d.Database(namespace)
	if err != nil {
		return err
	}

	return cmp.Or(own.Turn().Outside(), d.db.Turn().Outside())
}

// EngineLog is what a log of a namespace is called in the engine, for who looks there without a Data.
func EngineLog(namespace, log string) string { return name(namespace, log) }

// checkLog returns ErrBadOption if a log cannot have a name: it is UTF-8, so that JSON tells it as it is, and has 1
// byte or more, of which none is a slash or zero, since those tell namespaces and other packages' logs apart.
func checkLog(namespace, log string) error {
	long := len(name(namespace, log)) > event.MaxNameSize
	if log == "" || long || !utf8.ValidString(log) || strings.ContainsAny(log, "/\x00") {
		return &holdfast.Error{Op: "log", Class: holdfast.ErrBadOption, Detail: fmt.Sprintf("a log called %.80q", log),
			Remedy: fmt.Sprintf("use a name in UTF-8 without slashes, of at most %d bytes with its namespace",
				event.MaxNameSize-1)}
	}

	return nil
}

// Check returns ErrNoNamespace if there is no such namespace, or it is being deleted.
func (d *Data) Check(ctx context.Context, namespace string) error {
	d.mu.Lock()
	deleting := d.deleting[namespace]
	d.mu.Unlock()
	if deleting {
		return &holdfast.Error{
			Op:     "namespace",
			Class:  message.ErrNoNamespace,
			Detail: fmt.Sprintf("%q is being deleted", namespace),
		}
	}
	if d.IsMoving(namespace) {
		return moving(namespace)
	}
	_, err := d.messages.Info(ctx, namespace)

	return err
}

// moving is the error of who asks for a namespace that is being moved.
func moving(namespace string) error {
	return &holdfast.Error{Op: "namespace", Class: holdfast.ErrClosed, Detail: fmt.Sprintf("%q is being moved", namespace),
		Remedy: "come again in a second"}
}

// Log returns a log of a namespace, and makes it if it is not there. It stays open as long as ctx lives, unless the log
// or the namespace is deleted. ErrBadOption: no log can be called that. [kv.ErrNested]: it is being closed or deleted,
// which waits for the function that asks.
func (d *Data) Log(ctx context.Context, namespace, log string) (*event.Store, error) {
	return d.log(ctx, namespace, log, true)
}

// FindLog is Log of one that is there. ErrNotFound: it is not.
func (d *Data) FindLog(ctx context.Context, namespace, log string) (*event.Store, error) {
	return d.log(ctx, namespace, log, false)
}

func (d *Data) log(ctx context.Context, namespace, log string, anew bool) (*event.Store, error) {
	if err := checkLog(namespace, log); err != nil {
		return nil, err
	}
	// One that was made before can be read and removed.
	if what := names.Wrong(log, event.MaxNameSize); what != "" && anew {
		return nil, &holdfast.Error{Op: "log", Class: holdfast.ErrBadOption, Detail: "the name " + what,
			Remedy: "use one without control characters"}
	}
	n := name(namespace, log)

	return d.logs.get(ctx, n, func() (*event.Store, error) {
		err := d.Check(ctx, namespace)
		if err == nil && !anew {
			_, err = event.Describe(d.engine, n)
		}
		if err != nil {
			return nil, missing(err, "log", log)
		}
		db, err := d.Database(namespace)
		if err != nil {
			return nil, err
		}

		return event.Open(db, event.Options{Name: n, Level: d.o.Level, Logger: d.o.Logger})
	})
}

func missing(err error, what, name string) error {
	if err == holdfast.ErrNotFound {
		return &holdfast.Error{Op: what, Class: holdfast.ErrNotFound, Detail: fmt.Sprintf("there is no %s %.80q", what, name)}
	}

	return err
}

// Logs describes the logs of a namespace, but for those that no Log can name.
func (d *Data) Logs(ctx context.Context, namespace string) ([]event.LogInfo, error) {
	if err := d.Check(ctx, namespace); err != nil {
		return nil, err
	}
	var list []event.LogInfo
	var err error
	prefix := ""
	if namespace == message.Default {
		list, err = event.Logs(ctx, d.engine)
	} else {
		prefix = namespace + "/"
		list, err = event.LogsWith(ctx, d.engine, prefix)
	}

	return slices.DeleteFunc(list, func(l event.LogInfo) bool {
		return checkLog(namespace, strings.TrimPrefix(l.Name, prefix)) != nil
	}), err
}

// LogName is what a log that Logs describes is called in its namespace.
func LogName(namespace string, l event.LogInfo) string {
	if namespace == message.Default {
		return l.Name
	}

	return strings.TrimPrefix(l.Name, namespace+"/")
}

// DeleteLog removes a log of a namespace, with all that is kept of it. Those who use it get ErrClosed. ErrNotFound: it
// is not there. [kv.ErrNested]: the function of a transaction of the namespace's Database calls it.
func (d *Data) DeleteLog(ctx context.Context, namespace, log string) error {
	if err := cmp.Or(checkLog(namespace, log), d.Check(ctx, namespace)); err != nil {
		return err
	}
	n := name(namespace, log)

	return d.logs.remove(ctx, n, func() error {
		if _, err := event.Describe(d.engine, n); errors.Is(err, holdfast.ErrNotFound) {
			return missing(holdfast.ErrNotFound, "log", log)
		} // a description that cannot be read keeps nothing from being removed

		return event.Delete(ctx, d.engine, n, d.Level())
	})
}

// Tasks returns the tasks of a namespace. They stay open as long as ctx lives, unless the namespace is deleted.
func (d *Data) Tasks(ctx context.Context, namespace string) (*task.Store, error) {
	return d.taskStore(ctx, namespace, true)
}

// FindTasks is Tasks of a namespace that has had some. ErrNotFound: it has not.
func (d *Data) FindTasks(ctx context.Context, namespace string) (*task.Store, error) {
	return d.taskStore(ctx, namespace, false)
}

func (d *Data) taskStore(ctx context.Context, namespace string, anew bool) (*task.Store, error) {
	n := name(namespace, "")

	return d.tasks.get(ctx, n, func() (*task.Store, error) {
		err := d.Check(ctx, namespace)
		if err != nil {
			return nil, err
		}
		if !anew {
			if there, err := task.Exists(d.engine, n); err != nil || !there {
				return nil, cmp.Or(err, missing(holdfast.ErrNotFound, "task in namespace", namespace))
			}
		}
		db, err := d.Database(namespace)
		if err != nil {
			return nil, err
		}

		return task.Open(db, task.Options{Name: n, Level: d.o.Level, Logger: d.o.Logger})
	})
}

// Store is a store that is open: a log, or, without a name, the tasks of a namespace. It may be closed meanwhile.
type Store[S any] struct {
	Namespace, Name string
	Store           S
}

// OpenLogs returns the logs that are open.
func (d *Data) OpenLogs() []Store[*event.Store] {
	return opened(d.logs, ofLog)
}

// OpenTasks returns the stores of tasks that are open.
func (d *Data) OpenTasks() []Store[*task.Store] {
	return opened(d.tasks, ofTasks)
}

func opened[S io.Closer](p *pool[S], names func(string) (namespace, name string)) (list []Store[S]) {
	for n, s := range p.open() {
		o := Store[S]{Store: s}
		o.Namespace, o.Name = names(n)
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b Store[S]) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return list
}

// Delete deletes a namespace with its messages, logs, tasks, tokens, and the buckets of its Database, and returns how
// many messages there were. Those who use it get ErrClosed or ErrNoNamespace; a program that writes to the buckets ends
// that before. The namespace itself goes last, together with its own token: after a crash or an error, ctx's too, it is
// there, perhaps with less in it, and Delete is to be called again. ErrBadOption: it is the default namespace. In the
// function of a transaction of its Database or of DB, Delete is [kv.ErrNested], and nothing is deleted.
func (d *Data) Delete(ctx context.Context, namespace string) (messages int64, err error) {
	if namespace == message.Default {
		return 0, &holdfast.Error{Op: "delete namespace", Class: holdfast.ErrBadOption,
			Detail: "the default namespace cannot be deleted"}
	}

	// What takes the turns of its databases would be refused in the middle.
	if err := d.outsideOf(namespace); err != nil {
		return 0, err
	}
	if d.o.Spaces != nil {
		defer d.o.Spaces.Revoked(ctx)
		done, err := d.alone(ctx, namespace)
		if err != nil {
			return 0, err
		}
		defer done()
		d.directory.mu.Lock()
		at := d.directory.elsewhere[namespace]
		d.directory.mu.Unlock()
		if at.space > 0 {
			return d.deleteIn(ctx, namespace, at)
		}
	}

	return d.deleteHere(ctx, namespace)
}

// deleteHere is Delete of a namespace that lies here.
func (d *Data) deleteHere(ctx context.Context, namespace string) (messages int64, err error) {
	if err := d.Check(ctx, namespace); err != nil {
		return 0, err
	}
	d.mu.Lock()
	if d.deleting[namespace] {
		d.mu.Unlock()
		return 0, d.Check(ctx, namespace)
	}
	d.deleting[namespace] = true
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.deleting, namespace)
		d.mu.Unlock()
	}()
	if err := d.empty(ctx, namespace); err != nil {
		return 0, err
	}
	if err := d.removeBuckets(ctx, namespace); err != nil {
		return 0, err
	}
	if err := d.removeFurther(ctx, namespace); err != nil {
		return 0, err
	}

	return d.deleteLast(ctx, namespace)
}

// removeBuckets removes what a program keeps in the database of a namespace. Otherwise the next namespace of that id
// would begin with it.
func (d *Data) removeBuckets(ctx context.Context, namespace string) error {
	db, err := d.Database(namespace)
	if err != nil {
		return err
	}

	return db.Update(ctx, func(tx *kv.Tx) error {
		for _, name := range slices.Collect(tx.Buckets()) {
			if err := tx.DeleteBucket(name); err != nil {
				return err
			}
		}

		return nil
	})
}

// removeFurther removes further tokens of a namespace, if there are many.
func (d *Data) removeFurther(ctx context.Context, namespace string) error {
	for after, more := "", true; more; more = after != "" {
		err := d.db.Update(ctx, func(tx *kv.Tx) (err error) {
			after, err = auth.RemoveFurther(tx, namespace, after)
			return err
		})
		d.tokens.Changed()
		if err != nil {
			return err
		}
	}

	return nil
}

// Close closes all stores, in use or not; later calls return ErrClosed. The engine stays open. In the function of a
// transaction of DB, or of the Database of a namespace that is in use, Close is [kv.ErrNested], and closes nothing.
func (d *Data) Close() error {
	err := cmp.Or(d.db.Turn().Outside(), d.logs.nested(), d.tasks.nested(), d.subscriptions.nested())
	for _, n := range d.messages.Used() {
		err = cmp.Or(err, n.DB().Turn().Outside())
	}
	if err != nil {
		return err
	}
	d.stopClosing()
	d.closing.Wait()

	return errors.Join(d.subscriptions.close(), d.logs.close(), d.tasks.close(), d.messages.Close())
}

// Next returns the position behind the last message that readers see: of a stream, or the global one if that is "".
func Next(ctx context.Context, n *message.Namespace, stream string) (int64, error) {
	if stream == "" {
		return n.Last() + 1, nil
	}
	version, ok, err := n.Version(ctx, stream)
	if !ok {
		return 0, err
	}

	return version + 1, nil
}

// Source is the messages of a query as encode writes them, for many to follow. encode returns a message's position in
// the query's order, too.
func Source(n *message.Namespace, q message.Query,
	encode func(b []byte, m *message.Message) ([]byte, int64, error)) fanout.Source {
	return fanout.Source{
		Next: func(ctx context.Context) (int64, error) { return Next(ctx, n, q.Stream) },
		Follow: func(ctx context.Context, from int64) iter.Seq2[fanout.Item, error] {
			q := q
			q.From, q.Limit = from, 0

			return fanout.Items(n.Follow(ctx, q), encode)
		},
		Read: func(ctx context.Context, from int64, limit int) iter.Seq2[fanout.Item, error] {
			q := q
			q.From, q.Limit = from, limit

			return fanout.Items(n.Read(ctx, q), encode)
		},
	}
}
