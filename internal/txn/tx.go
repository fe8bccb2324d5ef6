package txn

import (
	"errors"
	"fmt"
	"sync"

	"github.com/holdfastdb/holdfast"
)

// Part is a store's share of a transaction. It has the store's turn. All methods are called by the goroutine of the
// transaction, and those after Prepare once.
type Part interface {
	// Prepare adds to b what is to be written. It is the last that may refuse the transaction.
	Prepare(b *holdfast.Batch) error
	// Commit is called when the transaction has its place, with its receipt, and Rollback when nothing of it is there.
	// Both give the store's turn back, and return what waits until all that the transaction has written or seen in the
	// store is durable; nil is nothing to wait for.
	Commit(receipt holdfast.Receipt, level holdfast.Level) (wait func() error)
	Rollback() (wait func() error)
}

// Tx is a transaction over one engine. It is used by one goroutine at a time.
type Tx struct {
	engine holdfast.Engine
	most   int64 // bytes of a batch that the engine takes
	level  holdfast.Level
	parts  []part
	waits  Wait

	partRoom [6]part // memory for parts and waits, mostly
	waitRoom [6]func() error
}

type part struct {
	store any
	Part
}

// Begin begins a transaction, the zero Tx, over an engine of these capabilities. It has no parts yet.
func (x *Tx) Begin(engine holdfast.Engine, c *holdfast.Capabilities) {
	x.engine, x.most = engine, c.MaxBatchSize
	x.parts, x.waits = x.partRoom[:0], x.waitRoom[:0]
}

// Raise makes the transaction survive at least what level names.
func (x *Tx) Raise(level holdfast.Level) { x.level = max(x.level, level) }

// Level is what the transaction survives, as far as is known.
func (x *Tx) Level() holdfast.Level { return x.level }

// Part returns the part of a store, nil if it has none yet.
func (x *Tx) Part(store any) Part {
	for i := range x.parts {
		if x.parts[i].store == store {
			return x.parts[i].Part
		}
	}
	return nil
}

// Join gives a store a part, which has the store's turn.
func (x *Tx) Join(store any, p Part) { x.parts = append(x.parts, part{store, p}) }

// Wait waits for a transaction's parts.
type Wait []func() error

// Wait returns when all that the transaction has written or seen is durable, or why it is not.
func (w Wait) Wait() error {
	for _, f := range w {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// Run calls f, and then commits: all that its parts write is one batch. A transaction that writes nothing, or fails, or
// whose f panics, leaves nothing behind; one in which the engine panics, no turn and no lock. wait is for what it has
// written, or seen: it can be waited for after an error, too.
func (x *Tx) Run(f func() error) (wait Wait, err error) {
	returned := false
	defer func() {
		if !returned {
			x.rollback()
		}
	}()
	err = Call(f)

	b := batches.Get().(*holdfast.Batch)
	defer func() {
		if b.Size() <= maxKept {
			b.Reset()
			batches.Put(b)
		}
	}()
	for i := 0; err == nil && i < len(x.parts); i++ { // a part may join another one
		err = x.parts[i].Prepare(b)
	}
	var receipt holdfast.Receipt
	applied := err == nil && (b.Len() > 0 || b.Err() != nil)
	if applied {
		receipt, err = x.apply(b)
	}
	returned = true

	if err != nil || !applied {
		return x.rollback(), err
	}
	for _, p := range x.parts {
		x.add(p.Commit(receipt, x.level))
	}
	return x.waits, nil
}

// batches are those that Run has used: an engine keeps nothing of a batch that it has applied.
var batches = sync.Pool{New: func() any { return new(holdfast.Batch) }}

// maxKept is how large a batch may have become that is used again, in bytes.
const maxKept = 1 << 20

func (x *Tx) apply(b *holdfast.Batch) (holdfast.Receipt, error) {
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	if size := int64(b.Size()); size > x.most {
		return holdfast.Receipt{}, &holdfast.Error{Op: "transaction", Engine: x.engine.Capabilities().Engine,
			Class: holdfast.ErrTooLarge, Detail: fmt.Sprintf("it writes %d bytes, the limit is %d", size, x.most),
			Remedy: "divide it into several"}
	}
	return x.engine.Apply(b, x.level)
}

func (x *Tx) rollback() Wait {
	for i := len(x.parts) - 1; i >= 0; i-- {
		x.add(x.parts[i].Rollback())
	}
	return x.waits
}

func (x *Tx) add(wait func() error) {
	if wait != nil {
		x.waits = append(x.waits, wait)
	}
}

// Seen joins err, of a function that has decided by what it has seen, with what keeps that from being durable.
func Seen(err error, wait Wait) error {
	if unsafe := wait.Wait(); unsafe != nil {
		return errors.Join(err, unsafe)
	}
	return err
}
