// Package kv is a database over any engine that has atomic batches: buckets of keys, and transactions, of which the
// stores of this module can be a part.
//
//	db := kv.On(engine)
//	err := db.Update(ctx, func(tx *kv.Tx) error {
//		users := tx.Bucket("users")
//		if _, err := users.Get(id); err == nil {
//			return errTaken
//		}
//		return users.Put(id, user)
//	})
//	err = db.View(ctx, func(tx *kv.Tx) error {
//		user, err := tx.Bucket("users").Get(id)
//		...
//	})
//
// # Transactions
//
// [DB.Update] calls a function that reads the latest state, whether that is durable or not, and its own changes. The
// functions of one database run one after another, so that none sees half of what another does: transactions are
// serializable. Their order is fixed when the function returns. Waiting for the device comes after that, outside, and
// so many that wait share one sync. If the function returns an error or panics, or the engine refuses what it has
// written, nothing of it is there, in the engine or in the memory of any store.
//
// What an Update survives is what its context names ([holdfast.WithLevel]), but at least the level of the database, and
// of each store that has a part in it.
//
// [DB.View] calls a function that reads one fixed state, which no crash can take back: all that was acknowledged
// before, and perhaps what was being written. It blocks no writer. Where writes are under way it waits for these first,
// for one sync at most; [DB.Latest] does not wait, and shows what a crash can take back.
// A store's own readers see a transaction when it has returned, and perhaps a moment later than a View that runs
// meanwhile.
//
// # Stores in a transaction
//
// Stores are opened in a database. The methods of what their In returns are parts of a transaction:
//
//	orders, err := message.Open(db, message.Options{})
//	mails, err := task.Open(db, task.Options{})
//	err = db.Update(ctx, func(tx *kv.Tx) error {
//		if _, err := shop.In(tx).WriteAfter("order-17", 3, placed); err != nil {
//			return err
//		}
//		_, err := mails.In(tx).Enqueue(task.Spec{Kind: "mail", Payload: mail})
//		return err
//	})
//
// A function that uses a store keeps other writers of that store waiting until it returns, as it does other functions
// of the database. So it does nothing slow: what it needs from elsewhere is fetched before. Those who wait do so until
// their context ends.
//
// On an engine over a network, a function that reads what is not in the engine's cache holds its turn for a round trip
// each. A View that reads the same keys before brings them there, without a turn, also those that are not there:
//
//	read := func(tx *kv.Tx) error { _, err := tx.Bucket("users").Get(id); ... }
//	err := db.View(ctx, read) // waits for the server
//	err = db.Update(ctx, func(tx *kv.Tx) error {
//		err := read(tx) // does not, and sees what has been changed since
//		...
//	})
//
// It is for speed alone: the function reads again what it decides by. Cursors always ask the server, for a page each
// time.
//
// What a function writes to a store without In would be no part of the transaction, and stay when the function fails.
// It is refused, as Update is in a function: ErrNested. So are reads of a task store, whose state is as the transaction
// has made it, and Close of a store that has a part in it. Stores can be opened there: that stays. In a View or Latest
// stores have no part, not to read either: ErrReadOnly.
//
// A function may write to another database, or to a store of one: that stays when the function fails, and may be
// ErrNested while a function of that database runs. To have one commit, or none, take [UpdateAll].
//
// # Buckets
//
// A bucket holds keys of at least one byte, in their order, and other buckets. Names of buckets are any bytes, 1 to
// [MaxNameSize]. A bucket is there from the first write on, and is deleted with all that is in it by one range delete.
// No key of a bucket can be a key of another, or of a store.
//
// A key with what leads to it takes 2 bytes, and for each bucket 3 bytes and its name, one more for each zero byte in
// that. Together these are not longer than the engine's keys. A value takes 1 byte more, and one that expires 9.
package kv

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/layers"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/internal/txn"
)

// MaxNameSize is how many bytes the name of a bucket has at most.
const MaxNameSize = 1024

// MaxDatabaseName is how many bytes the name of a database has at most.
const MaxDatabaseName = 31

var (
	// ErrNested: in the function of a transaction, another one was begun, or a store was written to without this one.
	ErrNested = txn.ErrNested
	// ErrTxDone: a transaction, or something of it, was used after its function had returned.
	ErrTxDone = errors.New("holdfast: the transaction has ended")
	// ErrReadOnly: a write, or a store's part, in a View or Latest.
	ErrReadOnly = errors.New("holdfast: the transaction only reads")
	// ErrNoBucket: there is no bucket of that name.
	ErrNoBucket = errors.New("holdfast: no such bucket")
)

// Options are how a database is opened. The zero value is a safe choice.
type Options struct {
	// Name distinguishes several databases in one engine, at most MaxDatabaseName bytes; it may be empty. Functions of
	// different databases do not wait for each other.
	Name string

	// Level is what every Update survives once it has returned, unless its context names a stronger one, and what stores
	// have in it that name none; 0 means Power.
	Level holdfast.Level

	// Now is the clock by which keys expire; nil means time.Now.
	Now func() time.Time
}

// DB is a database in an engine. All methods may be called from many goroutines at once. It ends with its engine, and
// has nothing of its own to close.
type DB struct {
	*core
	level holdfast.Level
	now   func() time.Time
	err   error // of On
}

// core is what all DBs of one name in an engine share.
type core struct {
	engine holdfast.Engine
	caps   holdfast.Capabilities
	number uint64 // the order in which several are taken
	name   string
	prefix keyspace.Prefix
	turn   txn.Turn

	// What belongs to whose turn it is.
	known   map[string]bool // buckets that are there, by their keys' prefixes
	expires bool            // there may be keys that do

	// mu covers what is applied: that changes together with what the engine shows.
	mu      sync.Mutex
	commits uint64
	tail    receipts.Tail
	pending layers.Pending
}

// dbs are the databases of engines that are open.
var dbs struct {
	sync.Mutex
	cores map[holdfast.Engine]map[string]*core
	last  uint64
}

// Open returns the database of that name in engine, which it does not write to before the first Update. The engine
// stays the caller's.
//
// Errors: ErrBadOption for an engine without atomic batches, or a name that is too long, ErrLevel if the engine does
// not give the level, ErrVersion if a newer program has written the database, ErrCorrupt also for an engine with
// [holdfast.Capabilities].Lost.
func Open(engine holdfast.Engine, o Options) (*DB, error) {
	c, err := open(engine, o.Name)
	if err != nil {
		return nil, err
	}
	db := &DB{core: c, level: cmp.Or(o.Level, holdfast.Power), now: o.Now}
	if db.now == nil {
		db.now = time.Now
	}
	if err := c.caps.CheckLevel(db.level); err != nil && !c.caps.ReadOnly {
		return nil, err
	}
	return db, nil
}

func open(engine holdfast.Engine, name string) (*core, error) {
	if engine == nil || !reflect.ValueOf(engine).Comparable() {
		return nil, &holdfast.Error{
			Op:     "kv open",
			Class:  holdfast.ErrBadOption,
			Remedy: "pass an open engine, by its pointer",
			Detail: fmt.Sprintf("the engine is %T", engine),
		}
	}
	dbs.Lock()
	c := dbs.cores[engine][name]
	dbs.Unlock()
	if c != nil {
		return c, nil
	}
	prefix := keyspace.New(keyspace.Databases, name[:min(len(name), 255)])
	lease, err := registry.Check(engine, registry.Request{
		Kind: "database", Thing: "database", Name: name, MaxName: MaxDatabaseName, Reads: true,
		Prefix: string(prefix), KeySize: len(prefix) + 64,
	})
	if err != nil {
		return nil, err
	}

	dbs.Lock()
	defer dbs.Unlock()
	if c := dbs.cores[engine][name]; c != nil { // another goroutine was faster
		return c, nil
	}
	for other := range dbs.cores {
		if other.Err() != nil { // those who have its databases may still read
			delete(dbs.cores, other)
		}
	}
	dbs.last++
	c = &core{engine: engine, caps: lease.Caps, number: dbs.last, name: name, prefix: prefix}
	if err := c.load(); err != nil {
		return nil, err
	}
	if engine.Err() != nil { // it only reads by now, and is not kept here
		return c, nil
	}
	if dbs.cores == nil {
		dbs.cores = map[holdfast.Engine]map[string]*core{}
	}
	if dbs.cores[engine] == nil {
		dbs.cores[engine] = map[string]*core{}
	}
	dbs.cores[engine][name] = c
	return c, nil
}

// Databases lists the names of the databases in r, an engine or a snapshot of one, in the order of their lengths and
// then bytes. One that has never been written to is not there. It takes a seek for each.
func Databases(r holdfast.Reader) (names []string, err error) {
	return keyspace.Names(r, keyspace.Databases)
}

// On is Open without options, for those who open stores in it. An error is that of the first use of the database, or of
// a store in it.
func On(engine holdfast.Engine) *DB {
	c, err := open(engine, "")
	if err != nil {
		c = &core{engine: engine}
	}

	return &DB{core: c, level: holdfast.Power, now: time.Now, err: err}
}

// At returns the same database, with another level. An error is that of the first use of it.
func (db *DB) At(level holdfast.Level) *DB {
	at := *db
	at.level = cmp.Or(level, db.level)
	return &at
}

// Engine is the engine that the database is in; nil if there is none.
func (db *DB) Engine() holdfast.Engine {
	if db == nil {
		return nil
	}
	return db.engine
}

// Turn is whose turn it is to change the database, for the stores in it.
func (db *DB) Turn() *txn.Turn { return &db.turn }

// Name is that of the database in its engine.
func (db *DB) Name() string { return db.name }

// Level is what an Update survives whose context names no stronger level.
func (db *DB) Level() holdfast.Level {
	if db == nil {
		return 0
	}
	return db.level
}

// Err is why the database cannot be used: what Open would have returned, of a database that On has made.
func (db *DB) Err() error { return db.err }

func (c *core) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return failure.New("kv "+op, c.caps.Engine, class, cause, remedy, format, args...)
}
