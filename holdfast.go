// Package holdfast is the contract between a program and an embedded storage
// engine, in which every write names what it survives.
//
//	engine, err := logtree.Open("/var/lib/orders", holdfast.Options{}) // or another package under engine
//	var batch holdfast.Batch
//	batch.Set([]byte("order/17"), data)
//	err = holdfast.Commit(engine, &batch, holdfast.Power) // returns once it survives power loss
//	value, err := engine.Get(nil, []byte("order/17"))
//	err = engine.Close()
//
// An [Engine] keeps an ordered map from byte keys to byte values. It is written
// in atomic batches and read at its latest state or through a [Snapshot]. What
// sets it apart is the [Level] that every commit names:
//
//	Memory   the program can read it back; it dies with the process
//	Process  the operating system has it: survives kill -9, a panic, the OOM killer
//	Power    the device has it: survives a kernel crash and power loss
//	Quorum   several machines have it: survives the loss of any one of them, and power loss
//
// An engine may give more than was asked, never less, and says what it gives
// in its [Capabilities]. What a weaker level can lose to a power cut is bounded
// by the loss window ([Options.SyncEvery]).
//
// Order is separate from durability. [Engine.Apply] fixes a batch's place among all others and returns at once;
// [Receipt.Wait] returns when the batch, and every batch before it, is visible and survives what its level names. So
// many writers can share one sync: take your own lock around Apply if you need one, and wait outside it.
//
// # Laws
//
// Every engine keeps these nine laws; package enginetest checks them.
//
//  1. Atomic: a batch is there whole or not at all, even after a crash.
//  2. Ordered: batches take effect, are seen, and survive a crash only as a
//     prefix of Apply order.
//  3. Durable: once Wait returns nil, the batch and all before it are visible
//     and survive what the level names, and no later batch, at whatever level,
//     can put that at risk.
//  4. Never weaker than asked.
//  5. Snapshots and iterators see one fixed state and never block a writer; one
//     that is never closed shows in [Metrics].
//  6. The first failed write or sync of a batch that has its place poisons the engine: later Applies fail with that
//     cause ([ErrPoisoned]), Done tells of it, and reads continue. Nothing is acknowledged after a failed sync.
//  7. A full disk is an ordinary error: nothing acknowledged is lost, and the
//     engine works again once there is room: at once if Apply has refused the
//     batch ([ErrFull]), at the latest when it is reopened.
//  8. Bad input is an error that names it, never a panic.
//  9. Corruption is distinguished from a torn tail: a torn tail is cut off
//     without an error and reported in Metrics; damage to anything that had been
//     synced is [ErrCorrupt], never a wrong answer.
//
// # What there is besides
//
// Engines live in the folders under engine; package engine/all opens them by name. Stores on any engine:
//
//	store/event               one log of events
//	store/message             streams of messages
//	store/message/aggregate   aggregates in such streams
//	store/projection          read models of events or messages
//	store/task                a queue of tasks, which store/task/worker runs
//	store/raftlog             the log and votes of hashicorp/raft
//	store/etcdraft            the same for etcd's Raft
//
// Package server serves them over HTTP, and package client uses such a server. The pages in docs/start have a program
// for each.
//
// This package imports nothing but the standard library.
//
// # For engines
//
// Programs do not need [NewReceipt], [CheckKey], [CheckRange], [FailedIterator], [Options.WithDefaults],
// [Capabilities.ForReading] and [UnknownMetrics]: they are for implementations of engines, which package enginetest
// checks.
package holdfast

import (
	"bytes"
	"context"
)

// Limits of the contract. Sizes are in bytes. An engine may allow less, and says so in [Capabilities].
const (
	// MaxKeySize is the longest key, and the longest bound of a range.
	MaxKeySize = 16 << 10
	// MaxValueSize is the longest value.
	MaxValueSize = 64 << 20
	// MaxBatchSize is the largest encoded batch ([Batch.Size]).
	MaxBatchSize = 1 << 30
)

// Engine is an open store of ordered keys. All methods may be called from many
// goroutines at once.
//
// An engine owns its directory until Close returns: a second opener, in this process or another, gets [ErrLocked].
// The error of a failed Open names the directory, and nothing is left in a directory that another program made. If
// the directory is removed, renamed or replaced while it is open, the engine acknowledges nothing more at Power, does
// not touch whatever now has the directory's name, and is poisoned with [ErrReplaced], at the latest by the next
// sync.
type Engine interface {
	// Reader reads the latest visible state. A batch is visible at the latest
	// when its receipt's Wait returns nil; some engines show it earlier, and those of
	// [Capabilities].ShownAtApply always when Apply returns.
	Reader

	// Apply fixes b's place after every batch applied before it. It returns without waiting for the device, and copies
	// what it needs: b may be reset and reused at once. An empty batch is a barrier: its receipt waits for everything
	// applied before it.
	//
	// A batch whose receipt is never waited for still takes its place, and
	// reaches its level with the next batch that is waited for, the next Sync,
	// the loss window, or Close, whichever is first.
	//
	// An error from Apply means that the batch took no place and has no effect: ErrClosed, ErrLevel when the engine
	// cannot give level, what is wrong with the batch (ErrBadOption, ErrBadKey, ErrTooLarge), ErrPoisoned or ErrFull. If
	// several apply, it is the first in this order. An error from Wait poisons the engine.
	Apply(b *Batch, level Level) (Receipt, error)

	// Snapshot returns a view of everything visible now. It costs no copy and
	// blocks no writer, but keeps what it sees from being reclaimed: close it.
	Snapshot() (Snapshot, error)

	// Sync returns when everything applied before the call is visible and
	// survives what the strongest level survives that the engine gives: power loss,
	// whatever level it was applied at. It returns ErrLevel where the engine keeps
	// nothing on a device.
	Sync() error

	// Capabilities describes, as data, what this engine gives with the options it was opened with. It works after Close
	// too.
	Capabilities() Capabilities

	// Metrics returns counters since Open and gauges of this moment. It works after
	// Close too.
	Metrics() Metrics

	// Done returns a channel, the same each time, that is closed when the engine ends: it is poisoned, or Close has
	// closed it. Nobody need call anything for that: a failure in the background ends the engine as it happens. The
	// channel stays open while the engine works, also after a Close that found it in use. Who waits for what others
	// write waits for it too, instead of asking from time to time.
	//
	// A poisoned engine has ended, though reads go on, and it is to be closed all the same. Of one that was closed, the
	// directory may not be released yet: Close does that, and then returns.
	//
	// Done and Err may be called from many goroutines, at any time. They take no lock that a writer or the device holds.
	Done() <-chan struct{}

	// Err says why the channel of Done is closed; it is nil until then. It is the ErrPoisoned, with its cause, that Apply
	// returns from then on, or ErrClosed. It does not change any more: after Close of an engine that was poisoned it is
	// still the poison. It works after Close too.
	//
	// A commit does not tell it sooner: once Apply or Wait has returned ErrPoisoned, or Apply ErrClosed, Done is closed.
	// And once Done is closed, Apply fails.
	Err() error

	// Close brings everything applied to the strongest level the engine gives,
	// and releases the directory. While iterators or snapshots are open it returns
	// ErrBusy and leaves the engine open (but synced). Closing twice returns
	// ErrClosed.
	//
	// Stores are closed before their engine. If some are open, Close closes the engine, loses nothing that was applied,
	// and returns ErrStoresOpen with their names: their calls return ErrClosed from then on, and what they run in the
	// background ends when they are closed, too.
	//
	// Close ends calls of Compact, Verify and Checkpoint that are under way, as the end of their context does; they return
	// ErrClosed, or what they return if they had come to their end. It waits for them, and for what goes on in the
	// background, up to the next place where they can stop. A Close that finds iterators or snapshots open does not end
	// them, unless these were opened while it was under way.
	Close() error
}

// Compactor is implemented by an [Engine] that can reclaim the space of deleted and overwritten data on request. The
// others reclaim what they can by themselves.
type Compactor interface {
	// Compact returns when the space is reclaimed that deleted and overwritten keys in r take; the zero Range is every
	// key. It takes time, and often space, in proportion to what is stored, there or altogether: see the engine. Keys
	// next to r may be compacted with it, and r.Reverse means nothing. Readers continue; writers may have to wait.
	// Snapshots and iterators keep what they see. Nothing that can be read changes.
	//
	// ErrUnavailable: r is not every key, and the engine can only compact everything (bbolt and SQLite rewrite the whole
	// file, and writers wait for that: it is not done for a part unasked). An empty range is compacted by doing nothing,
	// on every engine. ErrBadKey: a bound is too long.
	//
	// If it ends early, by ctx, Close or an error, the engine is unchanged or partly compacted. ErrFull: there is not
	// enough space. ErrLevel: the engine is open for reading only.
	Compact(ctx context.Context, r Range) error
}

// Compact calls e's Compact. ErrUnavailable: e is no [Compactor], or cannot compact a part.
func Compact(ctx context.Context, e Engine, r Range) error {
	c, ok := e.(Compactor)
	if !ok {
		return &Error{Op: "compact", Engine: e.Capabilities().Engine, Class: ErrUnavailable,
			Detail: "this engine gives back space by itself, or never"}
	}

	return c.Compact(ctx, r)
}

// Verifier is implemented by an [Engine] that can check its own files while it is open.
type Verifier interface {
	// Verify checks everything stored at one moment against its checksums, including data that no reader would see, and
	// returns the damage, each an ErrCorrupt. Readers and writers continue; what is written meanwhile is not checked. An
	// error means that the check did not finish; the end of ctx, and Close, are such.
	Verify(ctx context.Context) (damage []error, err error)
}

// Verify calls e's Verify. ErrUnavailable: e is no [Verifier].
func Verify(ctx context.Context, e Engine) (damage []error, err error) {
	v, ok := e.(Verifier)
	if !ok {
		return nil, &Error{Op: "verify", Engine: e.Capabilities().Engine, Class: ErrUnavailable,
			Detail: "this engine cannot check its files while it is open"}
	}

	return v.Verify(ctx)
}

// Checkpointer is what an [Engine] also is if it can copy itself cheaply: the copy shares files with it.
type Checkpointer interface {
	// Checkpoint makes the directory dir: a database of the same engine with all that was visible when it was called, in
	// one consistent state. It shares files with this one, by hard links, and so takes little time and room at first, and
	// no more than what has been replaced or deleted here since. Each can be written to, closed or removed, and the other
	// does not change. Readers and writers go on.
	//
	// When it returns, the copy survives power loss, at whatever level it was written. But damage to a shared file is
	// damage to both: it is no backup against a failing disk. Copies of copies are made likewise.
	//
	// dir must not exist, or be empty, and must not lie in a directory that an engine made: ErrBadOption. After an error,
	// and the end of ctx and Close are such, it does not exist. ErrUnavailable: it lies on another file system, or on one
	// that has no hard links, or not as many; a backup can be made there. ErrFull: there is no room. ErrBadOption also
	// where the engine keeps nothing in a directory of the system. An engine that is poisoned makes none.
	Checkpoint(ctx context.Context, dir string) error
}

// Checkpoint calls e's Checkpoint. ErrUnavailable: e is no [Checkpointer].
func Checkpoint(ctx context.Context, e Engine, dir string) error {
	c, ok := e.(Checkpointer)
	if !ok {
		return &Error{Op: "checkpoint", Engine: e.Capabilities().Engine, Class: ErrUnavailable,
			Detail: "this engine changes its files in place, and cannot share them", Remedy: "make a backup"}
	}

	return c.Checkpoint(ctx, dir)
}

// Reader reads one state of an engine: the latest, or a snapshot's. After Close of the engine or the snapshot, the
// error is ErrClosed, whatever else is wrong.
type Reader interface {
	// Get appends the value of key to dst and returns the longer slice, or dst
	// itself and ErrNotFound. The result is the caller's.
	Get(dst, key []byte) ([]byte, error)

	// Scan returns an iterator over the keys in r, positioned before the first.
	// It sees one state, fixed now. Errors, including bad bounds, show in
	// [Iterator.Err].
	Scan(r Range) Iterator
}

// Snapshot is a Reader of one fixed state. It may be used from many goroutines;
// its iterators must be closed before it is.
type Snapshot interface {
	Reader
	// Close releases what the snapshot keeps from being reclaimed. Closing
	// again does nothing.
	Close() error
}

// Range is the half-open interval of keys [Lo, Hi). An empty Lo means from the
// first key, an empty Hi to the last one. A range with Lo >= Hi is empty.
type Range struct {
	Lo, Hi  []byte
	Reverse bool // from the last key to the first
}

// Prefix returns the range of all keys that begin with p. An empty p means every key.
func Prefix(p []byte) Range {
	r := Range{Lo: bytes.Clone(p)}
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] < 0xff {
			r.Hi = bytes.Clone(p[:i+1])
			r.Hi[i]++
			break
		}
	}

	return r
}

// Iterator iterates over a range. It is used by one goroutine at a time:
//
//	it := engine.Scan(holdfast.Range{Lo: lo, Hi: hi})
//	defer it.Close()
//	for it.Next() {
//		use(it.Key(), it.Value())
//	}
//	if err := it.Err(); err != nil { ... }
type Iterator interface {
	// Next moves to the next key and reports whether there is one. After Close there is none, and
	// that is no error: Err stays as it was.
	Next() bool
	// Key and Value are valid until the next call of Next or Close and must not
	// be written to.
	Key() []byte
	Value() []byte
	// Err returns the error that ended the iteration early, nil at the end of the range.
	Err() error
	// Close releases the iterator and returns Err. Closing again does nothing.
	Close() error
}

// Receipt identifies an applied batch. The zero Receipt is already settled. It
// may be copied, waited for many times and from many goroutines, or dropped.
type Receipt struct {
	waiter Waiter
	token  uint64
}

// Waiter is the engine's side of a [Receipt]: Wait blocks until the batch that token identifies is settled and returns
// the same result each time.
type Waiter interface {
	Wait(token uint64) error
}

// NewReceipt returns a receipt that calls w.Wait(token). It is for engines.
func NewReceipt(w Waiter, token uint64) Receipt { return Receipt{w, token} }

// Wait returns nil once the batch, and every batch applied before it, is visible and survives what its level names;
// after a Close without error it returns nil too. An error is ErrPoisoned with the cause: the outcome of the batch is
// unknown until the engine is opened again.
func (r Receipt) Wait() error {
	if r.waiter == nil {
		return nil
	}

	return r.waiter.Wait(r.token)
}

// WaitContext is Wait, but returns ctx's error when ctx ends. That takes nothing back: the batch keeps its place, and
// a later Wait returns its outcome. ErrBadOption: ctx is nil.
func (r Receipt) WaitContext(ctx context.Context) error {
	if ctx != nil && ctx.Done() == nil || r.waiter == nil {
		return r.Wait()
	}
	if err := CheckContext(ctx); err != nil {
		return err
	}

	settled := make(chan error, 1)
	go func() { settled <- r.Wait() }() // the goroutine ends when the batch is settled, at the latest by Close

	select {
	case err := <-settled:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Commit applies b and waits for it.
func Commit(e Engine, b *Batch, level Level) error {
	r, err := e.Apply(b, level)
	if err != nil {
		return err
	}

	return r.Wait()
}
