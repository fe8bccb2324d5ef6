package message

import (
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/ndjson"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// Options are how a store is opened. The zero value is a safe choice.
type Options struct {
	// Name distinguishes several stores in one engine, at most MaxNameSize bytes, UTF-8 without control characters; it may
	// be empty.
	Name string

	// Level is what every write survives once it is acknowledged, unless its context names a stronger one
	// ([holdfast.WithLevel]); 0 means that of the database. A store may be opened at another level the next time.
	Level holdfast.Level

	// RetainEvery is how often the store removes what the retention of streams does not keep; 0 means every minute, and
	// less than 0 never: then the program calls Retain.
	RetainEvery time.Duration

	// Logger takes warnings about that removal; nil means slog.Default.
	Logger *slog.Logger

	// MaxOpen is how many namespaces have their logs open; 0 means 2,048. If more are used, the logs of idle ones, which
	// nobody reads, writes or follows, are closed, the least recently used first. Opening one again takes a commit.
	MaxOpen int

	// Database returns the database that a namespace is part of transactions of, in the same engine; nil means that all
	// are in that of the store. It may be another one each time that the store is opened.
	Database func(namespace string) (*kv.DB, error)

	// Opaque lets data and metadata be any bytes. Without it they must be JSON objects.
	Opaque bool
}

// Store is an open message store. All methods may be called from many goroutines at once.
type Store struct {
	db    *kv.DB // nil in a rebuild
	eng   holdfast.Engine
	keys  format.Store
	lease registry.Lease
	o     Options
	life  lifecycle.Life // entered by calls that use the engine

	turn   txn.Turn          // of transactions that change the list of namespaces, which are in the turn of the database
	next   uint64            // the number that the next namespace gets; covered by turn
	listed *holdfast.Receipt // of the last change of the list of namespaces; covered by turn

	mu   sync.Mutex
	open map[string]*Namespace // by id
	gone map[uint64]*Namespace // those that are deleted, until Finish, by number; nil if it was not open

	using  sync.Mutex   // covers which namespaces are in use
	idle   list.List    // of the *Namespace whose log is open and that nobody uses, from the one used first
	loaded atomic.Int64 // namespaces whose log is open

	long ndjson.Gate // shared by imports

	stop      context.CancelFunc
	retaining sync.WaitGroup
}

// description is what is kept of a namespace.
type description struct {
	Number      uint64          `json:"number"`
	Description string          `json:"description"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Created     time.Time       `json:"created"`
}

// Open opens the message store of that name in the engine of db, and makes it if it is not there. Its list of
// namespaces is part of transactions of that database, and so is each namespace, unless o names another for it. The
// engine stays the caller's, and must not be closed before the store is. Namespaces are opened when they are first
// used.
//
// Errors: ErrLevel if the engine does not give the level, ErrLocked if the store is open in this engine, ErrVersion
// if a newer program made it, ErrBadOption also for an engine without atomic batches, ErrCorrupt also for an engine
// with [holdfast.Capabilities].Lost. When a loss was accepted since the store was last open, Open makes it whole, as
// [Rebuild] does: that takes the reading of all of it.
func Open(db *kv.DB, o Options) (*Store, error) {
	o.Level = cmp.Or(o.Level, db.Level())
	s, err := claim(db.Engine(), o)
	if err != nil {
		return nil, err
	}
	s.db = db.At(o.Level)
	err = s.accepted()
	if err == nil {
		err = s.load()
	}
	if err != nil {
		s.lease.Release()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop

	// Retention runs beside the calls, and is stopped and awaited by Close.
	if o.RetainEvery >= 0 {
		s.retaining.Go(func() { s.retain(ctx, cmp.Or(o.RetainEvery, time.Minute)) })
	}
	return s, nil
}

// accepted makes the store whole when a loss was accepted: its indexes may have lost what leads to messages that are
// there, and a reader cannot step over one that is not.
func (s *Store) accepted() error {
	stale, err := s.lease.Stale(s.keys.Prefix)
	if err == nil && !stale && s.lease.Caps.Accepted != "" {
		// A store of which only logs are left.
		_, err = s.eng.Get(nil, s.keys.Meta())
		if stale = errors.Is(err, holdfast.ErrNotFound); stale {
			err = nil
		}
	}
	if err == nil && stale {
		_, err = s.rebuildAll(context.Background())
	}
	return err
}

// claim returns a store that has a lease but has not read anything.
func claim(eng holdfast.Engine, o Options) (*Store, error) {
	keys := format.New(o.Name)
	lease, err := registry.Claim(eng, registry.Request{
		Kind: "message", Thing: "store", Name: o.Name, MaxName: MaxNameSize, Level: o.Level, Prefix: string(keys.Prefix),
		KeySize: keyspace.Overhead + len(o.Name) + MaxStreamSize + 1 + 8,
	})
	if err != nil {
		return nil, err
	}
	o.Level, o.MaxOpen = lease.Level, cmp.Or(max(o.MaxOpen, 0), 2048)
	return &Store{eng: eng, keys: keys, lease: lease, o: o, open: map[string]*Namespace{},
		gone: map[uint64]*Namespace{}, long: ndjson.NewGate()}, nil
}

// retain removes from time to time what streams do not keep. What fails is tried again the next time.
func (s *Store) retain(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		list, err := s.Namespaces(ctx, "", 0)
		for _, info := range list { // what is wrong with one does not keep the others
			err = errors.Join(err, s.retainIn(ctx, info.ID))
		}
		if err != nil && ctx.Err() == nil {
			cmp.Or(s.o.Logger, slog.Default()).Warn("message: removing what streams do not keep has failed, and is tried again",
				"error", err)
		}
	}
}

// retainIn is retain in one namespace, which may have been deleted.
func (s *Store) retainIn(ctx context.Context, id string) error {
	d, err := s.describe(id)
	if err == nil && s.retains(s.keys.Of(d.Number)) {
		var n *Namespace
		if n, err = s.Namespace(ctx, id); err == nil {
			_, err = n.Retain(ctx)
		}
	}
	if errors.Is(err, ErrNoNamespace) {
		return nil
	}
	return err
}

// retains reports whether a namespace has streams with something special, without opening it.
func (s *Store) retains(keys format.Namespace) bool {
	lo, hi := keys.Bounds(format.TableHeads)
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	return it.Next()
}

// load reads the store's description, or makes it and the default namespace.
func (s *Store) load() error {
	value, err := s.eng.Get(nil, s.keys.Meta())
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		it := s.eng.Scan(holdfast.Prefix(s.keys.Prefix))
		some := it.Next()
		if err := it.Close(); err != nil {
			return err
		}
		if some {
			return s.fail("open", holdfast.ErrCorrupt, nil, "restore a backup, or rebuild it: holdfast accept --rebuild",
				"there are namespaces but no description of the store")
		}
		s.next = 1
		_, err := s.Create(context.Background(), NamespaceOptions{ID: Default, Description: "Default namespace"})
		return err
	case err != nil:
		return err
	case len(value) > 0 && value[0] > format.Version:
		return s.newer(value[0])
	}
	number, ok := format.Number(value[min(1, len(value)):])
	if !ok || value[0] != format.Version {
		return s.fail("open", holdfast.ErrCorrupt, nil, "", "the store's description cannot be read")
	}
	s.next = number
	// What an earlier process left reaches the store's level before it is read.
	var b holdfast.Batch
	b.Set(s.keys.Meta(), value)
	if _, err := s.lease.Settle(&b); err != nil { // without room it stays as it is
		return err
	}
	lo, hi := s.keys.Table(format.TableDeleted)
	var left []uint64
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	for it.Next() {
		if number, ok := s.keys.Number(it.Key()); ok {
			left = append(left, number)
		}
	}
	if err := it.Close(); err != nil {
		return err
	}
	for _, number := range left {
		if err := s.clear(context.Background(), number); errors.Is(err, holdfast.ErrFull) {
			return nil // nobody sees it; the next opening removes it
		} else if err != nil {
			return err
		}
	}
	return nil
}

// newer is the error of a store of a format that this program does not know.
func (s *Store) newer(version byte) error {
	return s.fail("open", holdfast.ErrVersion, nil, "use a newer holdfast",
		"the store has format %d, this program knows %d", version, format.Version)
}

// enter begins a call that uses the engine; Leave of life ends it.
func (s *Store) enter(ctx context.Context) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	return s.life.Enter()
}

// DB is the database that the store is in, at the store's level.
func (s *Store) DB() *kv.DB { return s.db }

// Level is the level of writes whose context names none.
func (s *Store) Level() holdfast.Level { return s.o.Level }

// NamespaceOptions describe a new namespace.
type NamespaceOptions struct {
	// ID names the namespace: 1 to MaxNameSize letters, digits, '-' and '_', beginning with a letter or digit.
	ID          string
	Description string
	// Metadata is a JSON object at most MaxDepth deep, or nil. White space between its tokens is not kept.
	Metadata json.RawMessage
}

// Info describes a namespace.
type Info struct {
	ID, Description string
	Metadata        json.RawMessage
	Created         time.Time
}

// Create makes a namespace. ErrNamespaceExists: there is one of that id. ErrBadName: the id is malformed.
// ErrBadOption: the metadata are no JSON object.
func (s *Store) Create(ctx context.Context, o NamespaceOptions) (info Info, err error) {
	err = s.change(ctx, func(t ListTx) error {
		info, err = t.Create(o)
		return err
	})
	if err != nil {
		return Info{}, err
	}
	return info, nil
}

// Check says what is wrong with the description or metadata of a namespace: ErrBadOption.
func (s *Store) Check(o NamespaceOptions) error {
	if len(o.Metadata) > 0 && !isObject(o.Metadata, MaxDepth) || !utf8.ValidString(o.Description) {
		return s.fail("create namespace", holdfast.ErrBadOption, nil, "",
			"the metadata of %q are no JSON object at most %d deep, or its description is not UTF-8", o.ID, MaxDepth)
	}
	if len(o.Metadata) > MaxTypeSize || len(o.Description) > MaxTypeSize {
		return s.fail("create namespace", holdfast.ErrBadOption, nil, "",
			"the metadata of %q have %d bytes, its description %d, the limit is %d", o.ID, len(o.Metadata), len(o.Description),
			MaxTypeSize)
	}
	return nil
}

func (s *Store) addDescription(b *holdfast.Batch, id string, d description) error {
	value, err := json.Marshal(d)
	if err != nil {
		return s.fail("describe namespace", holdfast.ErrBadOption, err, "", "%q", id)
	}
	b.Set(s.keys.Namespace(id), value)
	return nil
}

func (d description) info(id string) Info {
	return Info{ID: id, Description: d.Description, Metadata: d.Metadata, Created: d.Created}
}

// describe reads the description of a namespace.
func (s *Store) describe(id string) (d description, err error) {
	if what := checkNamespace(id); what != "" {
		return d, s.fail("namespace", ErrBadName, nil, "", "%.80q: %s", id, what)
	}
	value, err := s.eng.Get(nil, s.keys.Namespace(id))
	if errors.Is(err, holdfast.ErrNotFound) {
		return d, s.fail("namespace", ErrNoNamespace, nil, "", "%q", id)
	}
	if err != nil {
		return d, err
	}
	return d, s.parse(id, value, &d)
}

func (s *Store) parse(id string, value []byte, d *description) error {
	if err := json.Unmarshal(value, d); err != nil {
		return s.fail("namespace", holdfast.ErrCorrupt, err, "", "the description of %q cannot be read", id)
	}
	return nil
}

// Info describes a namespace. ErrNoNamespace: there is none of that id.
func (s *Store) Info(ctx context.Context, id string) (Info, error) {
	if err := s.enter(ctx); err != nil {
		return Info{}, err
	}
	defer s.life.Leave()
	d, err := s.describe(id)
	if err != nil {
		return Info{}, err
	}
	return d.info(id), nil
}

// Namespaces describes up to limit namespaces, in the order of their ids, from the first that comes after the id
// after on. A limit of 0 means all; one below is ErrBadOption. An error that is ErrCorrupt names those whose
// description is damaged; the others are listed all the same.
func (s *Store) Namespaces(ctx context.Context, after string, limit int) (list []Info, err error) {
	if err := s.checkLimit("namespaces", limit); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	_, hi := s.keys.Table(format.TableNamespaces)
	it := s.eng.Scan(holdfast.Range{Lo: append(s.keys.Namespace(after), 0), Hi: hi})
	defer it.Close()
	var damaged []error
	for (limit == 0 || len(list) < limit) && it.Next() {
		id := string(s.keys.Rest(it.Key()))
		var d description
		if err := s.parse(id, it.Value(), &d); err != nil {
			damaged = append(damaged, err)
			continue
		}
		list = append(list, d.info(id))
	}
	return list, errors.Join(append(damaged, it.Err())...)
}

// Used returns the namespaces that were used since the store was opened, in the order of their ids.
func (s *Store) Used() []*Namespace {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Collect(maps.Values(s.open))
	slices.SortFunc(list, func(a, b *Namespace) int { return strings.Compare(a.id, b.id) })
	return list
}

// Namespace returns the namespace of that id, which is opened if it is not: the first time it takes a commit and the
// reading of up to some thousand messages. ErrNoNamespace: there is none of that id.
func (s *Store) Namespace(ctx context.Context, id string) (*Namespace, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	n, err := s.used(id)
	if err != nil {
		return nil, err
	}

	// It stays in the list if this fails: others may have it open already, or be about to open it.
	if err := n.enter(ctx); err != nil {
		return nil, err
	}
	n.leave()
	return n, nil
}

// used returns the namespace of that id, which may not be open yet.
func (s *Store) used(id string) (*Namespace, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.open[id]; n != nil {
		return n, nil
	}
	d, err := s.describe(id)
	if err != nil {
		return nil, err
	}
	if _, gone := s.gone[d.Number]; gone { // though the engine shows it
		return nil, s.fail("namespace", ErrNoNamespace, nil, "", "%q has been deleted", id)
	}
	n := s.namespace(id, d)
	if s.o.Database != nil {
		db, err := s.o.Database(id)
		if err != nil {
			return nil, err
		}
		n.db = db.At(s.o.Level)
	}
	s.open[id] = n
	return n, nil
}

// Totals returns the counts of a namespace and its highest global position, as Count and Last do. It opens the
// namespace only if its counts are not stored, as after a crash. ErrNoNamespace: there is none of that id.
func (s *Store) Totals(ctx context.Context, id string) (c Counts, last int64, err error) {
	if err := s.enter(ctx); err != nil {
		return c, 0, err
	}
	defer s.life.Leave()
	s.mu.Lock()
	n := s.open[id]
	s.mu.Unlock()
	if n == nil || n.opened.Load() == nil {
		c, last, stored, err := s.storedTotals(id)
		if err != nil || stored {
			return c, last, err
		}
		if n, err = s.Namespace(ctx, id); err != nil {
			return c, 0, err
		}
	}
	c, err = n.Count(ctx, "")
	return c, n.Last(), err
}

// storedTotals is Totals of a namespace that is not open, as far as it is stored.
func (s *Store) storedTotals(id string) (c Counts, last int64, stored bool, err error) {
	d, err := s.describe(id)
	if err != nil {
		return c, 0, false, err
	}
	n := s.namespace(id, d)
	// Read in this order: if nothing came after what is counted, the counts are of that moment.
	counted, err := n.storedCounted()
	if err != nil {
		return c, 0, false, err
	}
	all, err := n.storedCounts("")
	if err != nil {
		return c, 0, false, err
	}
	log, err := event.Describe(s.eng, format.LogName(s.o.Name, d.Number))
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		return c, 0, false, err
	}
	return Counts{all.messages, all.streams}, int64(log.Last), log.Last <= counted, nil
}

// Delete deletes a namespace and everything in it, and returns the number of messages. Its users get ErrNoNamespace
// from then on. While the deletion is not durable yet, a crash can still take it back; if ctx ends then, it is
// deleted all the same. What a crash leaves of it is removed when the store is next opened. In the function of a
// transaction of the namespace's database, Delete is [kv.ErrNested].
func (s *Store) Delete(ctx context.Context, id string) (messages int64, err error) {
	return s.remove(ctx, id, ListTx.Delete)
}

// Clear deletes everything in a namespace, its counters too, and returns the number of messages. Its description
// stays. After a crash either everything is there, or nothing. Otherwise it is like Delete: users of the namespace get
// ErrNoNamespace, and have to open it again.
func (s *Store) Clear(ctx context.Context, id string) (messages int64, err error) {
	return s.remove(ctx, id, ListTx.clear)
}

func (s *Store) remove(ctx context.Context, id string, f func(t ListTx, id string) (*Deletion, error)) (messages int64,
	err error) {
	s.mu.Lock()
	n := s.open[id]
	s.mu.Unlock()
	if n != nil { // what Finish refuses is not to be begun
		if err := n.db.Turn().Outside(); err != nil {
			return 0, err
		}
	}
	var d *Deletion
	err = s.change(ctx, func(t ListTx) error {
		d, err = f(t, id)
		return err
	})
	if err != nil {
		return 0, err
	}
	return d.Finish(ctx)
}

// clear removes what is left of a namespace that is being deleted.
func (s *Store) clear(ctx context.Context, number uint64) error {
	level := holdfast.LevelFrom(ctx, s.o.Level)
	if err := event.Delete(ctx, s.eng, format.LogName(s.o.Name, number), level); err != nil {
		return err
	}
	var all []holdfast.Range
	for _, table := range format.Tables {
		lo, hi := s.keys.Of(number).Bounds(table)
		all = append(all, holdfast.Range{Lo: lo, Hi: hi})
	}
	if err := chunks.Remove(ctx, s.eng, level, all...); err != nil {
		return err
	}
	var b holdfast.Batch
	b.Delete(s.keys.Deleted(number))
	return holdfast.Commit(s.eng, &b, level)
}

// Close closes all namespaces, ends all followers with ErrClosed, and releases the store's name. The engine stays
// open. It returns the error of what could not be made durable; closing twice returns ErrClosed. In the function of a
// transaction of its database, or of that of an open namespace, Close is [kv.ErrNested], and the store stays open.
func (s *Store) Close() error {
	// It would wait for the parts of that transaction, which waits for its function.
	dbs := []*kv.DB{s.db}
	s.mu.Lock()
	for _, n := range s.open {
		dbs = append(dbs, n.db)
	}
	for _, n := range s.gone {
		if n != nil {
			dbs = append(dbs, n.db)
		}
	}
	s.mu.Unlock()
	for _, db := range dbs {
		if err := db.Turn().Outside(); err != nil {
			return err
		}
	}
	if !s.life.Shut() {
		return holdfast.ErrClosed
	}
	s.stop()
	s.retaining.Wait()
	s.life.Wait()
	var errs []error
	for _, n := range s.open {
		if n.opened.Load() != nil {
			n.counting.Lock()
			_ = n.storeCountsLocked(context.Background(), false) // opening counts again what is not stored
			n.counting.Unlock()
		}
		errs = append(errs, n.close())
	}
	for _, n := range s.gone { // the next opening removes what is in them
		if n != nil {
			errs = append(errs, n.close())
		}
	}
	s.lease.Release()
	return errors.Join(errs...)
}

// fail builds an error of the operation op on s.
func (s *Store) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return failure.New("message "+op, s.lease.Caps.Engine, class, cause, remedy, format, args...)
}
