package badger

import (
	"fmt"
	"slices"

	lib "github.com/dgraph-io/badger/v4"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/intervals"
)

// pointerSize is what is left in a log of a value that lives in the value log.
const pointerSize = 12

// fits returns ErrTooLarge if b does not fit into one transaction of the library. expanded says
// that its deletions are those of ranges.
func fits(b *holdfast.Batch, expanded bool) error {
	if b.Size() <= maxGroupBytes && b.Len() <= maxGroupOps {
		return nil
	}

	tooLarge := func(detail string) error {
		remedy := "split it"
		if expanded {
			detail += ", counting each key in its ranges"
			remedy = "split the ranges over several batches"
		}

		return &holdfast.Error{Op: "apply", Engine: Name, Class: holdfast.ErrTooLarge, Detail: detail, Remedy: remedy}
	}

	// Only a batch that is over what is merged comes here, so most batches are not walked.
	for op := range b.Ops() {
		if len(op.Value) > maxValueBytes {
			return tooLarge(fmt.Sprintf("a value has %d bytes, the limit is %d", len(op.Value), maxValueBytes))
		}
	}

	switch {
	case b.Size() > maxBatchBytes:
		return tooLarge(fmt.Sprintf("the batch has %d bytes, the limit is %d", b.Size(), maxBatchBytes))

	// The library adds the mark of a transaction's end, and refuses a transaction that reaches the limit.
	case int64(b.Len())+1 >= maxTxnOps:
		return tooLarge(fmt.Sprintf("the batch has %d operations, the limit is %d", b.Len(), maxTxnOps-2))
	}

	return nil
}

// commit implements [groupcommit.Commit].
func (e *engine) commit(b *holdfast.Batch, level holdfast.Level) error {
	if b.Len() > 0 {
		// The order is that of the levels: there is room, then the log that is left is synced, then the transaction is
		// written, and last what it needs is synced.
		if err := e.room.take(b.Size()); err != nil {
			return failed("write", e.logs.dir, err)
		}
		if err := e.logs.before(); err != nil {
			return failed("sync", e.logs.dir, err)
		}
		u, err := e.write(b)
		if err != nil {
			return failed("write", e.logs.dir, e.data.err(err))
		}
		if err := e.logs.after(u, level); err != nil {
			return failed("sync", e.logs.dir, err)
		}
	}

	// An empty batch at a lower level has nothing to wait for: what came before it is in the log's pages already.
	if level < holdfast.Power {
		return nil
	}

	// The path is checked between the sync and the answer: what was synced in a directory that is no longer at its path
	// would not be found.
	if err := e.logs.sync(); err != nil {
		return failed("sync", e.logs.dir, err)
	}

	return e.datadir.Check()
}

// write makes one transaction of b, which has no DeleteRange.
func (e *engine) write(b *holdfast.Batch) (usage, error) {
	txn := e.db.NewTransaction(true)
	defer txn.Discard()

	var u usage

	// Entries and keys of a group are allocated together. Each in an allocation of its own would be two more per
	// operation.
	entries, keys := e.arena.take(b)
	for op := range b.Ops() {
		// The library keeps pointers to entry and key until the transaction is committed; both lie in the arena until
		// then. The third index keeps the library from appending into the next key. If keys grows, earlier keys stay where
		// they were, in the old array.
		start := len(keys)
		keys = append(append(keys, keyspace), op.Key...)
		key := keys[start:len(keys):len(keys)]
		var err error
		if op.Kind == holdfast.KindDelete {
			err = txn.Delete(key)
		} else {
			entries = append(entries, lib.Entry{Key: key, Value: op.Value})
			err = txn.SetEntry(&entries[len(entries)-1])
		}
		if err != nil {
			return u, err
		}

		// Counted the way the library lays it out, to know when the memtable is full.
		u.add(len(key), len(op.Value))
	}
	u.end()
	if err := txn.Commit(); err != nil {
		return u, err
	}
	e.txns.Add(1)

	return u, nil
}

// arena is the memory of one transaction's entries and keys. The library copies them while it
// commits, so the next transaction can have it.
type arena struct {
	entries []lib.Entry
	keys    []byte
}

// take returns empty slices for b; the entries must not grow, because the library keeps
// pointers to them.
func (a *arena) take(b *holdfast.Batch) ([]lib.Entry, []byte) {
	// A batch this large is rare: it gets memory that is not kept.
	if b.Len() > maxGroupOps {
		return make([]lib.Entry, 0, b.Len()), nil
	}

	// The values of the last transaction must not stay alive with the arena.
	clear(a.entries)
	a.entries = slices.Grow(a.entries[:0], b.Len())[:b.Len()]
	a.keys = slices.Grow(a.keys[:0], min(b.Size(), 64<<10))

	return a.entries[:0], a.keys
}

// expansion turns a batch into one without DeleteRange: the keys that may be in its ranges are deleted first, and
// then what none of its later ranges covers is done in order.
type expansion struct {
	covered intervals.Union
	ops     []holdfast.Op
	queued  map[string]bool // keys in covered that batches set which were not committed yet
	plain   holdfast.Batch
}

// pending notes an operation of a batch before this one that may not be visible yet. Deleting a key that is not
// there does no harm, so it does not matter what becomes of it.
func (x *expansion) pending(op holdfast.Op) {
	if op.Kind == holdfast.KindSet && x.covered.Has(op.Key) {
		if x.queued == nil {
			x.queued = map[string]bool{}
		}
		x.queued[string(op.Key)] = true
	}
}

// expand completes x on the state now visible. It stops when the batch is sure to be too large.
func (e *engine) expand(x *expansion) {
	txn := e.db.NewTransaction(false)
	defer txn.Discard()

	// The keys that are visible in the ranges are deleted, then those that earlier batches set and nobody can see yet.
	for _, r := range x.covered {
		it := openCursor(txn, holdfast.Range{Lo: r.Lo, Hi: r.Hi})
		for it.next() && int64(x.plain.Len()) < maxTxnOps {
			x.plain.Delete(it.key())

			// What is visible has been deleted, and is not deleted a second time below.
			delete(x.queued, string(it.key()))
		}
		it.close()
	}

	for key := range x.queued {
		x.plain.Delete([]byte(key))
	}

	// These are what no later range of the batch covers, in the batch's order. A transaction keeps the last operation on
	// a key, so what is set here overrides a deletion above.
	for _, op := range x.ops {
		switch op.Kind {
		case holdfast.KindSet:
			x.plain.Set(op.Key, op.Value)
		case holdfast.KindDelete:
			x.plain.Delete(op.Key)
		}
	}
}
