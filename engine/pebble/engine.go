package pebble

import (
	"context"
	"encoding/binary"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"

	lib "github.com/cockroachdb/pebble/v2"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/driver/losswindow"
)

// engine implements [driver.Core]. Pebble does its own locking, so calls come from any number of goroutines at once.
type engine struct {
	driver.Engine[reader]
	db      *lib.DB
	disk    *disk
	datadir *datadir.Handle // nil in tests that have no directory
	window  *losswindow.Window
	tickets sync.Pool // of *ticket
	commits atomic.Int64
	torn    int64 // bytes that opening cut off the log
}

// Write implements [driver.Core]. The batch is visible when it returns.
func (e *engine) Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := e.disk.poison(); err != nil {
		return holdfast.Receipt{}, err
	}
	pb, err := e.encode(b)
	if err != nil {
		return holdfast.Receipt{}, err
	}

	// A commit at Memory does not ask for a sync, so it has no receipt to wait for.
	if level == holdfast.Memory {
		return e.applyMemory(pb)
	}
	r, err := e.applyLogged(pb, level)
	if err == nil {
		e.commits.Add(1)
	}

	return r, err
}

// applyMemory commits pb to the log's buffer and the memtable, and closes it.
func (e *engine) applyMemory(pb *lib.Batch) (holdfast.Receipt, error) {
	// Pebble has nothing to do for it, but it counts as a commit.
	if pb.Empty() {
		e.commits.Add(1)
		return holdfast.Receipt{}, pb.Close()
	}
	if err := e.db.Apply(pb, lib.NoSync); err != nil {
		return holdfast.Receipt{}, refused(err)
	}
	_ = pb.Close()
	e.commits.Add(1)

	// The window syncs it within Options.SyncEvery.
	e.window.Dirty()

	// The disk may have frozen since Write looked. The batch is in memory, and its receipt must not say that it is good.
	if e.disk.frozen() {
		return holdfast.NewReceipt(e.disk, 0), nil
	}

	return holdfast.Receipt{}, nil
}

// applyLogged commits pb so that a sync of the log is asked for. The receipt that it returns owns pb until it is
// waited for.
func (e *engine) applyLogged(pb *lib.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	barrier := pb.Empty()
	if barrier {
		// Pebble skips an empty batch; one that is only in the log waits for all before.
		_ = pb.LogData(nil, nil)
	}
	count := uint64(pb.Count())

	// The real sync is asked for before Pebble gets the commit: see demand.
	power := level == holdfast.Power
	if power {
		e.disk.demand.begin()
	}

	// A sync that begins while the call runs may be the one that covers the commit, and must already know that it has to
	// be real.
	err := e.db.ApplyNoSyncWait(pb, lib.Sync)
	if power {
		e.disk.demand.queued()
	} else {
		e.window.Dirty()
	}
	if err != nil {
		// Nobody will wait for this commit, so its demand is taken back here and not in settle.
		if power {
			e.disk.demand.settled()
		}

		return holdfast.Receipt{}, refused(err)
	}

	// The receipt waits for the sync with the batch, which Pebble needs until then.
	t := e.tickets.Get().(*ticket)
	t.batch, t.power, t.end = pb, power, 0
	// Pebble keeps the content of a large batch for itself, and the number with it.
	if first := uint64(pb.SeqNum()); first > 0 && !barrier {
		t.end = first + count
	}

	return holdfast.NewReceipt(t, t.generation.Load()), nil
}

// refused wraps an error that Pebble returns before it commits anything.
func refused(err error) error {
	return &holdfast.Error{Op: "apply", Engine: Name, Cause: err}
}

// The header of Pebble's batch is a sequence number of 8 bytes, which the
// commit fills in, and the number of operations.
const (
	batchHeader = 12
	batchCount  = 8
)

// encode copies b into one of Pebble's batches. The operations of both are encoded alike,
// but for the bounds of ranges.
func (e *engine) encode(b *holdfast.Batch) (*lib.Batch, error) {
	pb := e.db.NewBatchWithSize(batchHeader + b.Size())
	if b.Len() == 0 {
		return pb, nil
	}
	if b.HasRange() {
		for op := range b.Ops() {
			if err := addOp(pb, op); err != nil {
				return nil, refused(err)
			}
		}

		return pb, nil
	}

	// Without ranges the encodings are the same, so that the bytes are copied as they are. SetRepr takes the count from
	// the header.
	repr := append(pb.Repr()[:batchHeader], b.Bytes()...)
	binary.LittleEndian.PutUint32(repr[batchCount:], uint32(b.Len()))
	if err := pb.SetRepr(repr); err != nil {
		return nil, refused(err)
	}

	return pb, nil
}

// firstKey is the smallest key; lastKey is above every key. Keys are not empty, so the first is one zero byte. A key
// of more bytes than any may have, all 0xff, is above all.
var firstKey = []byte{0}

var lastKey = func() []byte {
	k := make([]byte, holdfast.MaxKeySize+1)
	for i := range k {
		k[i] = 0xff
	}

	return k
}()

// addOp adds an operation to pb. An empty bound of a range stands for no bound.
func addOp(pb *lib.Batch, op holdfast.Op) error {
	switch op.Kind {
	case holdfast.KindSet:
		return pb.Set(op.Key, op.Value, nil)
	case holdfast.KindDelete:
		return pb.Delete(op.Key, nil)
	}
	lo, hi := op.Key, op.Value
	if len(lo) == 0 {
		lo = firstKey // Pebble takes an empty bound for a missing one in places
	}
	if len(hi) == 0 {
		hi = lastKey
	}

	// An empty range deletes nothing, and Pebble does not take one whose bounds are the wrong way round.
	if string(lo) >= string(hi) {
		return nil
	}

	return pb.DeleteRange(lo, hi, nil)
}

// ticket is the state behind the receipt of a commit at Process or Power. It is reused once a Wait for it has
// succeeded. The generation, which is the receipt's token, tells receipts of earlier uses, which have succeeded, from
// the current one. A ticket whose receipt is dropped is garbage, with its batch.
type ticket struct {
	e          *engine
	generation atomic.Uint64

	mu    sync.Mutex // guards the fields below while the receipt is out
	batch *lib.Batch // nil once the commit is known to have failed
	power bool
	end   uint64 // see disk.settle
}

// Wait implements [holdfast.Waiter].
func (t *ticket) Wait(token uint64) error {
	// The fast way for a receipt that was waited for already; settle looks again under the lock.
	if t.generation.Load() != token {
		return nil
	}

	// Put comes after settle has given the lock back: from then on another commit may use the ticket.
	if err, done := t.settle(token); !done {
		return err
	}
	t.e.tickets.Put(t)

	return nil
}

// settle waits for the commit and reports whether the ticket has become free.
func (t *ticket) settle(token uint64) (err error, free bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation.Load() != token {
		return nil, false
	}
	if t.batch == nil {
		return t.e.disk.poison(), false
	}

	// Waiting with the lock held keeps a second Wait for the same receipt out of the batch.
	err = t.batch.SyncWait()
	if t.power {
		t.e.disk.demand.settled()
	}

	// A failed sync of a log freezes the disk by itself. Any other error of the commit does here, and settle then
	// decides what the caller is told.
	if err != nil {
		t.e.disk.fail("commit", t.e.disk.dir, err)
	}
	if err := t.e.disk.settle(t.end); err != nil {
		t.batch = nil
		return err, false
	}
	_ = t.batch.Close()

	// The generation goes on before the ticket is used again: a Wait with the old token then knows that it has succeeded.
	t.batch = nil
	t.generation.Add(1)

	return nil, true
}

// Settle implements [driver.Core].
func (e *engine) Settle() error {
	// The empty batch goes through the log's queue behind all others, so that its sync covers them.
	if err := e.disk.poison(); err != nil {
		return err
	}
	r, err := e.applyLogged(e.db.NewBatch(), holdfast.Power)
	if err != nil {
		return err
	}

	return r.Wait()
}

// Compact implements [holdfast.Compactor]. Writers continue; what they write meanwhile is not compacted. Of a range,
// the tables are merged that overlap it, level by level. Room is needed for the tables that are being merged.
func (e *engine) Compact(ctx context.Context, r holdfast.Range) error {
	return e.Compacting(ctx, r, func(ctx context.Context) error {
		if err := e.disk.poison(); err != nil {
			return err
		}
		lo, hi := r.Lo, r.Hi
		if len(lo) == 0 {
			lo = firstKey
		}
		if len(hi) == 0 {
			hi = lastKey
		}
		if string(lo) >= string(hi) { // [firstKey, firstKey): no key can be in it
			return nil
		}

		// Once the disk has frozen the compaction may wait for ever, so freezing ends its context too.
		thawed, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-e.disk.froze: // and what Compact waits for may never run
				cancel()
			case <-thawed.Done():
			}
		}()

		// The last argument lets Pebble merge disjoint parts at the same time.
		err := e.db.Compact(thawed, lo, hi, true)

		// A poison hides Pebble's error, which would only be that the context has ended.
		switch poison := e.disk.poison(); {
		case err == nil || poison != nil:
			return poison

		// The caller's context has ended; Pebble may say so in words of its own.
		case ctx.Err() != nil:
			return ctx.Err()
		}

		return &holdfast.Error{Op: "compact", Engine: Name, Path: e.disk.dir, Cause: err}
	})
}

// Checkpoint implements [holdfast.Checkpointer] with Pebble's own: tables are shared, unless the file system has too
// many links of one, which is copied; the log and the manifest are copied, and flushed before. The end of ctx is looked
// at before and after that.
func (e *engine) Checkpoint(ctx context.Context, dir string) error {
	return e.Life.Long(ctx, func(ctx context.Context) error {
		return e.datadir.Checkpoint(ctx, dir, func(partial string) error { return e.checkpoint(dir, partial) })
	})
}

// checkpoint fills partial for a checkpoint in dir.
func (e *engine) checkpoint(dir, partial string) error {
	if err := e.disk.poison(); err != nil {
		return err
	}

	// The log is flushed first, so that what Memory commits have left in its buffer is in the copy too.
	err := e.db.Checkpoint(filepath.Join(partial, "data"), lib.WithFlushedWAL())
	if poison := e.disk.poison(); poison != nil {
		return poison // and the copy lacks what went to memory
	}
	if err != nil {
		return datadir.Full(&holdfast.Error{Op: "checkpoint", Engine: Name, Path: dir, Cause: oneLine(err)})
	}

	return datadir.SyncDir(partial)
}

// Measure implements [driver.Core].
func (e *engine) Measure(m *holdfast.Metrics) {
	m.Commits = e.commits.Load()
	m.Groups = m.Commits
	m.Syncs = e.disk.syncs.Load()
	m.BytesWritten = e.disk.written.Load()
	m.TornBytes = e.torn
	m.Stalls = e.disk.stalls.Load()
	m.Poison = e.disk.poison()
	if e.datadir != nil {
		m.Files, m.DiskBytes = datadir.Usage(e.datadir.Dir)
	}

	// The library must not be closed while Metrics reads; Enter keeps Close waiting until Leave.
	if e.Life.Enter() == nil {
		defer e.Life.Leave()
		p := e.db.Metrics()
		m.MemoryBytes = p.BlockCache.Size + int64(p.MemTable.Size+p.MemTable.ZombieSize)
	}
}

// Release implements [driver.Core]. It leaves nothing in the log: what is in tables is
// checked when it is read, while damage at the end of a log, or of the manifest, looks like
// a torn tail.
func (e *engine) Release(err error) error {
	// Stopped before the database is closed: its sync would run into a closed one.
	e.window.Stop()
	if err == nil {
		// The second flush is of nothing, and puts a record behind the first one's in the
		// manifest.
		err = errors.Join(e.db.Flush(), e.db.Flush())
	}

	// On a frozen disk a compaction that waits in merge now fails; Close waits for it.
	e.disk.enter(closing)
	err = errors.Join(err, e.db.Close())

	// The poison says what happened first. What Close reports after it is a consequence.
	if poison := e.disk.poison(); poison != nil {
		err = poison
	}
	if e.datadir != nil {
		err = errors.Join(err, e.datadir.Close())
	}

	return err
}
