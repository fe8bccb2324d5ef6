// Package query shows what stores keep in an engine as tables of SQL that can only be read.
//
//	db, err := query.Open(engine, query.Options{})
//	columns, rows, err := db.Query(ctx, "select type, count(*) from messages where stream like 'order-%' group by 1")
//	for row, err := range rows { ... }
//
// [Served] lets a server answer queries: it is an option of package server, which does not import this package, because
// SQLite makes a program larger by some 11 MB.
//
// The tables are virtual ones of SQLite: nothing is copied, and conditions on streams, positions and the like go down
// to the stores' own reads. All queries of a DB see the state that the engine had when it was opened, while others
// write to it; what they wrote last may not be durable yet.
package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/ncruces/go-sqlite3"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/scratch"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

const maxStatement = 1 << 19 // bytes

// DefaultMemory is for Options.Memory.
const DefaultMemory = 256 << 20

// Options are how a DB is opened.
type Options struct {
	Namespace string // "" means message.Default
	Database  string // whose buckets are shown

	// Memory is how many bytes SQLite takes for a query at most: to sort, group and join. 0 means DefaultMemory; it is at
	// least 1 MiB and at most 4 GiB. A value has at most a quarter of that. What stores and the engine need is not
	// counted.
	Memory int64

	// Served leaves out what is not the business of who may ask a server about the namespace: keys of buckets, in which
	// the server has its tokens, and logs whose names a server gives to those of other namespaces.
	Served bool
}

// DB is one state of an engine. Its methods may be called by many goroutines; queries run one after another.
type DB struct {
	namespace string
	database  string
	memory    int64
	longest   int // value, in bytes
	served    bool
	now       time.Time
	snapshot  holdfast.Snapshot
	state     holdfast.Engine // has the snapshot, and takes what stores write when they are opened
	tables    []shown

	mu     sync.Mutex // covers what follows: who has it runs a query
	closed bool
	conn   *sqlite3.Conn   // nil after one was abandoned
	ctx    context.Context // of the query
	failed error           // why a table ended the query

	// What is open of state.
	store      *message.Store
	messages   *message.Namespace
	categories []string
	events     map[string]*event.Store
	logs       []log
	tasks      *task.Store
	closers    []func() error

	cursors   map[io.Closer]bool // that are open
	abandoned int                // connections whose memory was given back so
}

// Open takes the state that an engine has now. The engine stays the caller's, and is closed after the DB.
func Open(engine holdfast.Engine, o Options) (db *DB, err error) {
	snapshot, err := engine.Snapshot()
	if err != nil {
		return nil, err
	}
	db = &DB{namespace: cmp.Or(o.Namespace, message.Default), database: o.Database,
		memory: cmp.Or(o.Memory, DefaultMemory), now: time.Now(), snapshot: snapshot,
		state: scratch.Over(snapshot, engine.Capabilities().Engine), ctx: context.Background(),
		events: map[string]*event.Store{}, served: o.Served, cursors: map[io.Closer]bool{}}
	db.memory = min(max(db.memory, 1<<20), 4<<30)
	db.longest = int(min(db.memory/4, 1e9)) // which is SQLite's own limit
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()

	return db, db.connect()
}

// connect opens a connection of SQLite.
func (db *DB) connect() (err error) {
	ctx := sqlite3.WithMaxMemory(context.Background(), db.memory)
	if db.conn, err = sqlite3.OpenContext(ctx, ":memory:"); err != nil {
		return err
	}
	tables := []func(*DB) error{addMessages, addStreams, addEvents, addSubscriptions, addTasks, addQueues, addKeys}
	if db.served {
		tables = tables[:len(tables)-1]
	}
	for _, add := range append(tables, (*DB).addFunctions) {
		if err := add(db); err != nil {
			return err
		}
	}
	// What is sorted stays in memory, too: nothing is written anywhere.
	if err := db.conn.Exec("pragma temp_store = memory"); err != nil {
		return err
	}
	db.conn.Limit(sqlite3.LIMIT_ATTACHED, 0)
	db.conn.Limit(sqlite3.LIMIT_LENGTH, db.longest)
	db.conn.Limit(sqlite3.LIMIT_FUNCTION_ARG, maxArguments)

	return db.conn.SetAuthorizer(authorize)
}

// abandon gives back the memory of a connection whose code has panicked. It cannot be closed: SQLite's stack is not as
// its code has to find it.
func (db *DB) abandon() {
	for c := range maps.Clone(db.cursors) {
		_ = c.Close()
	}
	memory := reflect.ValueOf(db.conn).Elem().FieldByName("wrp")
	db.conn = nil
	if !memory.IsValid() {
		return // another version of the library: a test tells
	}
	// The library offers no way to it but Close, which runs SQLite.
	if m, ok := reflect.NewAt(memory.Type(), unsafe.Pointer(memory.UnsafeAddr())).Elem().Interface().(io.Closer); ok {
		_ = m.Close()
		db.abandoned++
	}
}

// authorize lets a statement read tables, and call functions that SQLite has built in. None of these reaches files.
func authorize(action sqlite3.AuthorizerActionCode, _, name, _, _ string) sqlite3.AuthorizerReturnCode {
	switch action {
	case sqlite3.AUTH_FUNCTION:
		if endless[strings.ToLower(name)] {
			return sqlite3.AUTH_DENY
		}
		return sqlite3.AUTH_OK
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_READ, sqlite3.AUTH_RECURSIVE:
		return sqlite3.AUTH_OK
	}

	return sqlite3.AUTH_DENY
}

// Close ends the DB, and gives back what it held of the engine.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	errs := []error{}
	if db.conn != nil {
		errs = append(errs, db.conn.Close())
	}
	db.conn, db.closed = nil, true
	for _, closeIt := range slices.Backward(db.closers) {
		errs = append(errs, closeIt())
	}

	return errors.Join(append(errs, db.state.Close(), db.snapshot.Close())...)
}

// fail makes an error of what a user has asked for.
func fail(detail, remedy string) error {
	return &holdfast.Error{Op: "query", Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
}

// Named is an argument for the parameter of that name, which begins as it does in the statement: ":stream".
type Named struct {
	Name  string
	Value any
}

// Query runs one statement. Rows come as they are found; their values are nil, int64, float64, string, which is UTF-8,
// or []byte. The loop over rows ends after an error, ctx's among them. It is to be run once, or not at all: it begins
// the query. Args are values of the same types for the statement's parameters: one for each, in order, or all [Named].
//
// Errors: ErrBadOption for what is no SQL that reads, and for args that do not fit; ErrTooLarge if it needs more memory
// than Options has.
func (db *DB) Query(ctx context.Context, sql string, args ...any) (columns []string, rows iter.Seq2[[]any, error],
	err error) {
	return db.query(ctx, sql, func(s *sqlite3.Stmt) error { return db.bind(s, args) })
}

// Explain is Query for how a statement would be run: which conditions go down to the store. Parameters need no values.
func (db *DB) Explain(ctx context.Context, sql string) (columns []string, rows iter.Seq2[[]any, error], err error) {
	const numbers = 3 // of steps, before what is said of them
	columns, all, err := db.query(ctx, "explain query plan "+sql, func(*sqlite3.Stmt) error { return nil })
	if err != nil {
		return nil, nil, err
	}

	return columns[numbers:], func(yield func([]any, error) bool) {
		for row, err := range all {
			if err == nil {
				row = row[numbers:]
			}
			if !yield(row, err) {
				return
			}
		}
	}, nil
}

// query is Query of a statement whose parameters bind gives values.
func (db *DB) query(ctx context.Context, sql string, bind func(*sqlite3.Stmt) error) (columns []string,
	rows iter.Seq2[[]any, error], err error) {
	switch {
	case !utf8.ValidString(sql):
		return nil, nil, fail("the statement is not UTF-8", "")
	case strings.ContainsRune(sql, 0):
		return nil, nil, fail("the statement has a zero byte", "")
	case len(sql) > maxStatement:
		return nil, nil, fail(fmt.Sprintf("the statement is longer than %d bytes", maxStatement), "")
	}
	err = db.prepared(ctx, sql, func(s *sqlite3.Stmt) error {
		for i := range s.ColumnCount() {
			columns = append(columns, s.ColumnName(i))
		}
		return bind(s)
	})
	if err != nil {
		return nil, nil, err
	}

	return columns, func(yield func([]any, error) bool) {
		stopped := false
		err := db.prepared(ctx, sql, func(s *sqlite3.Stmt) error {
			if err := bind(s); err != nil {
				return err
			}
			for s.Step() {
				row := make([]any, s.ColumnCount())
				for i := range row {
					switch s.ColumnType(i) {
					case sqlite3.INTEGER:
						row[i] = s.ColumnInt64(i)
					case sqlite3.FLOAT:
						row[i] = s.ColumnFloat(i)
					case sqlite3.TEXT: // what was cast from a blob need not be one
						if row[i] = s.ColumnText(i); !utf8.ValidString(row[i].(string)) {
							row[i] = []byte(row[i].(string))
						}
					case sqlite3.BLOB:
						row[i] = s.ColumnBlob(i, []byte{})
					}
				}
				if stopped = !yield(row, nil); stopped {
					return nil
				}
			}
			return s.Err()
		})
		if err != nil && !stopped {
			yield(nil, err)
		}
	}, nil
}

// prepared calls use with the statement, and says what is wrong.
func (db *DB) prepared(ctx context.Context, sql string, use func(*sqlite3.Stmt) error) (err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	if db.closed {
		return holdfast.ErrClosed
	}
	if db.conn == nil {
		if err := db.connect(); err != nil {
			return err
		}
	}
	db.ctx, db.failed = ctx, nil
	defer func() {
		if r := recover(); r != nil {
			db.abandon()
			if !overflow(r) {
				panic(r)
			}
			err = &holdfast.Error{Op: "query", Class: holdfast.ErrTooLarge, Detail: "the statement is nested too deep",
				Remedy: "nest less: a chain of OR can be an IN"}
		}
	}()
	defer db.conn.SetInterrupt(db.conn.SetInterrupt(ctx))
	var s, more *sqlite3.Stmt
	defer func() { guarded(s.Close); guarded(more.Close) }()
	err = guarded(func() (err error) {
		var rest string
		if s, rest, err = db.conn.Prepare(sql); err == nil && rest != "" {
			more, _, err = db.conn.Prepare(rest)
		}
		return err
	})
	switch {
	case err != nil:
		return db.explained(err)
	case s == nil:
		return fail("there is no statement", "")
	case more != nil:
		return fail("there is more than one statement", "give them one after another")
	case !s.ReadOnly():
		return db.explained(sqlite3.AUTH)
	}

	return db.explained(guarded(func() error { return use(s) }))
}

// overflow reports whether a panic is that of SQLite's code when its stack of 64 KiB, which is below all else that it
// has, has no room left. Its limit for the depth of expressions is for a larger one.
func overflow(r any) bool {
	err, ok := r.(runtime.Error)
	if !ok {
		return false
	}
	_, rest, _ := strings.Cut(err.Error(), "out of range [")
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, _ := strconv.ParseInt(digits, 10, 64)

	return n >= 1<<32-1<<20 && n < 1<<32+1<<20 // addresses below 0
}

// guarded returns what do returns, and NOMEM where the library panics because SQLite has no memory, which leaves all as
// after any other error.
func guarded(do func() error) (err error) {
	defer func() {
		switch r := recover(); {
		case r == nil:
		case fmt.Sprint(r) == "sqlite3: out of memory":
			err = sqlite3.NOMEM
		default:
			panic(r)
		}
	}()

	return do()
}

// explained tells why a statement has failed.
func (db *DB) explained(err error) error {
	switch {
	case err == nil:
		return nil
	case db.ctx.Err() != nil:
		return db.ctx.Err()
	case db.failed != nil:
		return db.failed
	case errors.As(err, new(*holdfast.Error)): // of arguments
		return err
	case errors.Is(err, sqlite3.NOMEM), errors.Is(err, sqlite3.TOOBIG):
		return &holdfast.Error{Op: "query", Class: holdfast.ErrTooLarge,
			Detail: fmt.Sprintf("it needs more than %d MiB of memory", db.memory>>20),
			Remedy: "sort, group or join less, or allow it more"}
	case errors.Is(err, sqlite3.AUTH), errors.Is(err, sqlite3.READONLY):
		return fail("only statements that read are allowed", "use select")
	}

	return fail(strings.TrimPrefix(err.Error(), "sqlite3: "), "")
}

// bind gives a statement the values of its parameters.
func (db *DB) bind(s *sqlite3.Stmt, args []any) error {
	if n := s.BindCount(); n != len(args) {
		return fail(fmt.Sprintf("parameters of the statement: %d, arguments: %d", n, len(args)), "give one for each")
	}
	bound := map[int]bool{}
	for i, a := range args {
		at := i + 1
		if named, ok := a.(Named); ok {
			if at = s.BindIndex(named.Name); at == 0 {
				return fail(fmt.Sprintf("the statement has no parameter %.80q", named.Name), "name one that it has")
			}
			a = named.Value
		}
		if bound[at] {
			return fail("arguments by position and by name are for the same parameter", "name all of them, or none")
		}
		bound[at] = true
		if err := bind(s, at, a); err != nil {
			return err
		}
	}

	return nil
}

// Export writes all tables to a database of SQLite: to a new file, which is on the device when it returns, and is not
// there after an error.
func (db *DB) Export(ctx context.Context, file string) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(file))
		}
	}()
	to, err := sqlite3.Open(file)
	if err != nil {
		return err
	}
	err = db.export(ctx, to)
	if err = errors.Join(err, to.Close()); err == nil {
		err = f.Sync()
	}

	// SQLite says neither which file it is nor, of a full disk, that it is full.
	if errors.Is(err, sqlite3.IOERR) || errors.Is(err, sqlite3.FULL) {
		err = &holdfast.Error{Op: "export", Path: file, Detail: "it cannot be written", Cause: err,
			Remedy: "is there room on the disk?"}
	}

	return err
}

func (db *DB) export(ctx context.Context, to *sqlite3.Conn) error {
	// A file that is not whole is removed, and is synced at the end.
	if err := to.Exec("pragma journal_mode = off; pragma synchronous = off; begin"); err != nil {
		return err
	}
	for _, t := range db.tables {
		if err := to.Exec(t.schema); err != nil {
			return err
		}
		columns, rows, err := db.Query(ctx, "select * from "+t.name)
		if err != nil {
			return err
		}
		values := "?" + strings.Repeat(", ?", len(columns)-1)
		insert, _, err := to.Prepare("insert into " + t.name + " values (" + values + ")")
		if err != nil {
			return err
		}
		for row, err := range rows {
			for i, v := range row {
				if err == nil {
					err = bind(insert, i+1, v)
				}
			}
			if err == nil {
				err = insert.Exec()
			}
			if err != nil {
				return errors.Join(err, insert.Close())
			}
		}
		if err := insert.Close(); err != nil {
			return err
		}
	}

	return to.Exec("create index messages_stream on messages(stream, position); commit")
}

func bind(s *sqlite3.Stmt, i int, v any) error {
	switch v := v.(type) {
	case int64:
		return s.BindInt64(i, v)
	case float64:
		return s.BindFloat(i, v)
	case string:
		return s.BindText(i, v)
	case []byte:
		return s.BindBlob(i, v)
	}

	return s.BindNull(i)
}

// kv is the database of the stores, in which nothing has to be durable.
func (db *DB) kv() *kv.DB { return kv.On(db.state).At(holdfast.Memory) }

// namespaces is the store of messages.
func (db *DB) namespaces() (*message.Store, error) {
	if db.store == nil {
		s, err := message.Open(db.kv(), message.Options{RetainEvery: -1, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return nil, err
		}
		db.store = s
		db.closers = append(db.closers, s.Close)
	}

	return db.store, nil
}

// openMessages returns the namespace whose messages are shown.
func (db *DB) openMessages() (*message.Namespace, error) {
	if db.messages == nil {
		s, err := db.namespaces()
		if err != nil {
			return nil, err
		}
		if db.messages, err = s.Namespace(db.ctx, db.namespace); err != nil {
			return nil, err
		}
	}

	return db.messages, nil
}

// openTasks returns the tasks of the namespace, nil if it has none: as they are at the time that the DB was opened, at
// which leases may have run out and tasks become due since anybody has looked.
func (db *DB) openTasks() (*task.Store, error) {
	name := db.namespace
	if name == message.Default {
		name = ""
	}
	if there, err := task.Exists(db.state, name); db.tasks != nil || err != nil || !there {
		return db.tasks, err
	}
	s, err := task.Open(db.kv(), task.Options{Name: name, Now: func() time.Time { return db.now },
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	db.closers = append(db.closers, s.Close)
	if err := s.Tick(db.ctx); err != nil {
		return nil, err
	}
	db.tasks = s

	return s, nil
}

// log is a log of events.
type log struct{ shown, name string }

// openLogs lists the logs of the namespace. Names of those of others begin with that and a slash. On a server, no log
// of the default namespace has one: the namespace of a log may be about to be made or removed.
func (db *DB) openLogs() ([]log, error) {
	if db.logs != nil {
		return db.logs, nil
	}
	list := event.Logs
	if db.namespace != message.Default {
		list = func(ctx context.Context, r holdfast.Reader) ([]event.LogInfo, error) {
			return event.LogsWith(ctx, r, db.namespace+"/") // however many others have
		}
	}
	found, err := list(db.ctx, db.state)
	if err != nil {
		return nil, err
	}
	s, err := db.namespaces()
	if err != nil {
		return nil, err
	}
	logs := []log{}
	for _, l := range found {
		namespace, rest, ok := strings.Cut(l.Name, "/")
		switch {
		case l.Owner != "":
		case db.namespace != message.Default:
			if ok && namespace == db.namespace {
				logs = append(logs, log{rest, l.Name})
			}
		default:
			if ok && !db.served {
				_, err := s.Info(db.ctx, namespace)
				ok = err == nil
			}
			if !ok {
				logs = append(logs, log{l.Name, l.Name})
			}
		}
	}
	db.logs = logs

	return logs, nil
}

// openLog returns the log of that name in the engine.
func (db *DB) openLog(name string) (*event.Store, error) {
	if s := db.events[name]; s != nil {
		return s, nil
	}
	s, err := event.Open(db.kv(), event.Options{Name: name, Upgrade: true})
	if err != nil {
		return nil, err
	}
	db.closers = append(db.closers, s.Close)
	db.events[name] = s

	return s, nil
}
