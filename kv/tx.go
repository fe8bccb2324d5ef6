package kv

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/layers"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/internal/txn"
)

// Tx is a transaction. It is used by the function that it is passed to, by one goroutine at a time, until that returns;
// later use is ErrTxDone. Keys and values that are passed to it are copied.
//
// An error of a write, or of a read in a loop, is remembered, and that of the transaction if the function returns nil.
// So functions need not look at each of them.
type Tx struct {
	db     *DB
	core   *core
	shared *txn.Tx // nil in a View
	ctx    context.Context
	now    time.Time

	root   Bucket          // what the buckets of the database are in, and no bucket itself
	state  layers.State    // what it reads; in an Update, the first layer is what it has written
	layers [3]layers.Layer // memory for those of an Update
	*memory
	indexed int         // how much of its batch it had when it last read: so much is in the first layer
	edit    layers.Edit // of the first layer, 0 if that may have been copied
	durable durable
	err     error

	made     map[string]bool       // buckets that are there, because the transaction has looked or made them
	applying bool                  // it has the lock of what is applied
	deleted  bool                  // it has deleted buckets
	expires  bool                  // it has written keys that expire
	removed  int                   // how many expired keys it has removed
	misused  atomic.Pointer[error] // by another goroutine, which could not write

	using atomic.Int32 // 1 while a call is in it, 2 after the end
	open  []*Cursor    // that are at a key
}

// memory is what a transaction needs until it ends, and others after it.
type memory struct {
	batch holdfast.Batch // what it has written
	key   []byte
	val   []byte
}

var memories = sync.Pool{New: func() any { return new(memory) }}

// maxKept is how many bytes the parts of a memory have at most that is kept.
const maxKept = 1 << 20

// ended is the memory of those that have ended.
var ended memory

// free gives the memory back, now that the transaction has ended.
func (tx *Tx) free() {
	m := tx.memory
	tx.memory = &ended

	// A batch that was indexed has its keys and values in a layer, of which somebody may still have slices. One that grew
	// large would keep its memory for transactions that do not need it.
	if tx.indexed > 0 || m.batch.Size() > maxKept {
		m.batch = holdfast.Batch{}
	}
	if cap(m.key)+cap(m.val) <= maxKept {
		m.batch.Reset()
		memories.Put(m)
	}
}

// durable is what a database waits for: everything up to a commit.
type durable struct {
	tail   receipts.Tail
	commit uint64
}

// DB is the database of the transaction.
func (tx *Tx) DB() *DB { return tx.db }

// Context is that of the Update or View, for what the function calls.
func (tx *Tx) Context() context.Context { return tx.ctx }

// Now is when the transaction began, by which keys expire.
func (tx *Tx) Now() time.Time { return tx.now }

// Level is what the transaction survives, as far as is known: a store that takes part may need more.
func (tx *Tx) Level() holdfast.Level {
	if tx.shared == nil {
		return 0
	}
	return tx.shared.Level()
}

// Size is how many bytes the transaction has written so far, to buckets. With what stores add, it must not exceed
// [holdfast.Capabilities].MaxBatchSize.
func (tx *Tx) Size() int64 { return int64(tx.batch.Size()) }

// Err is the error that the transaction ends with if its function returns nil: the first one of a write or a loop.
func (tx *Tx) Err() error { return tx.err }

// Enter returns the transaction that stores take part in; only those of this module can use it. db is what the store
// was opened in. If Enter returns nil, the store calls Leave at the end of its call. An error of Enter is the
// transaction's, too.
func (tx *Tx) Enter(db *DB) (*txn.Tx, error) {
	if err := tx.enter(true); err != nil {
		if errors.Is(err, ErrReadOnly) { // also of a call that reads
			err = tx.core.fail("join", ErrReadOnly, nil, "use the store's own methods, or an Update",
				"stores have a part in an Update only")
		}
		return nil, tx.lost(err)
	}
	if db.core != tx.core {
		err := tx.core.fail("join", holdfast.ErrBadOption, nil, "use the database that the store was opened in, or UpdateAll",
			"the store is of another database")
		if ended := tx.core.engine.Err(); ended != nil { // then the same database may have been opened anew, to read
			err = ended
		}
		tx.note(err)
		tx.leave()
		return nil, err
	}
	return tx.shared, nil
}

// Leave ends what Enter began.
func (tx *Tx) Leave() { tx.leave() }

// enter begins a call.
func (tx *Tx) enter(write bool) error {
	if !tx.using.CompareAndSwap(0, 1) {
		if tx.using.Load() == 2 {
			return tx.core.fail("transaction", ErrTxDone, nil, "use it before its function returns", "")
		}
		return tx.core.fail("transaction", holdfast.ErrBadOption, nil, "let one goroutine use it at a time",
			"two goroutines use it at once")
	}
	if write && tx.shared == nil {
		tx.leave()
		return tx.core.fail("transaction", ErrReadOnly, nil, "write in an Update", "")
	}
	return nil
}

func (tx *Tx) leave() { tx.using.Store(0) }

// note remembers the first error.
func (tx *Tx) note(err error) error {
	if tx.err == nil {
		tx.err = err
	}
	return err
}

// end ends the transaction. A call of another goroutine that is under way ends first.
func (tx *Tx) end() {
	// A call of another goroutine that has begun goes on to use the batch, which is written next. Its end is awaited, and
	// later calls get ErrTxDone.
	for !tx.using.CompareAndSwap(0, 2) {
		time.Sleep(time.Millisecond) // the function has let another goroutine use it, and not waited
	}
	for _, c := range tx.open {
		c.close()
	}
}

// index lets reads see what was written.
func (tx *Tx) index() {
	if tx.indexed == tx.batch.Size() {
		return
	}

	// Nothing is indexed before the first read: most transactions write what they never read, and a batch costs less than
	// a layer.
	if tx.edit == 0 {
		tx.edit = layers.NewEdit()
	}
	tx.state.Layers[0].TakeFrom(tx.edit, &tx.batch, tx.indexed)
	tx.indexed = tx.batch.Size()
}

// get returns the value of a key of the engine, nil if there is none.
func (tx *Tx) get(key []byte) ([]byte, error) {
	if tx.shared != nil {
		tx.index()
	}
	return tx.state.Get(key)
}

// scan returns an iterator over keys of the engine.
func (tx *Tx) scan(r holdfast.Range) holdfast.Iterator {
	state := tx.fixed()
	return state.Scan(r)
}

// fixed returns the present state, which does not change when more is written.
func (tx *Tx) fixed() layers.State {
	if tx.shared == nil {
		return tx.state
	}

	// From here on somebody has a copy of the layer, so the next write begins another edit, which leaves the copy as it
	// is.
	tx.index()
	tx.edit = 0
	return layers.State{Below: tx.state.Below, Layers: slices.Clone(tx.state.Layers)}
}

// write returns the batch that takes what is written next.
func (tx *Tx) write() *holdfast.Batch { return &tx.batch }

// check is the error of what was written: a limit that it breaks.
func (tx *Tx) check() error {
	if err := tx.batch.Err(); err != nil {
		return tx.note(err)
	}
	if tx.Size() > tx.core.caps.MaxBatchSize {
		return tx.note(tx.core.fail("update", holdfast.ErrTooLarge, nil, "divide it into several transactions",
			"the transaction writes over %d bytes", tx.core.caps.MaxBatchSize))
	}
	return nil
}

// Bucket returns the bucket of that path: of the first name in the database, of the second name in that, and so on. It
// need not be there: it is made by the first write. What is wrong with the names shows in its methods.
func (tx *Tx) Bucket(path ...string) *Bucket {
	b := &tx.root
	if len(path) == 0 {
		b = &Bucket{tx: tx}
		b.err = tx.core.fail("bucket", holdfast.ErrBadOption, nil, "name one bucket or more", "no name is given")
	}
	for _, name := range path {
		b = b.Bucket(name)
	}
	return b
}

// Buckets yields the names of the buckets of the database, in the order of their bytes.
func (tx *Tx) Buckets() iter.Seq[string] {
	return tx.root.Buckets()
}

// DeleteBucket deletes a bucket of the database, with all that is in it. ErrNoBucket: it is not there.
func (tx *Tx) DeleteBucket(name string) error {
	return tx.root.DeleteBucket(name)
}
