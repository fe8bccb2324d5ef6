// Package driver is what an engine is built on: everything of the contract that is the same for all of them, so that
// what is left is the storage.
//
//	type engine struct {
//		driver.Engine[*view] // it is a holdfast.Engine, if *engine is a driver.Core
//	}
//
//	e := &engine{}
//	e.Init(e, capabilities, dir)
//
// An engine embeds an [Engine] and implements its [Core]. The Engine checks calls in the order that the contract says,
// keeps a state alive for the snapshots and iterators that read it, tells who waits for the end, and closes. What an
// engine must say itself is that it is poisoned: it calls Life.Poison, where the failure happens, with the error that
// its Write returns from then on. Below this package are what most
// engines need besides: driver/datadir for the directory, driver/groupcommit where a library has one writer at a time,
// and driver/losswindow, which syncs what nobody waits for. enginetest has the laws that the result must keep.
package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
)

// Core is the part that each engine implements. A V is a readable view of one state. All methods but Measure are called
// before Release; all but Release may be called from many goroutines at once.
type Core[V any] interface {
	// View returns the state that is visible now, for one Get, for one iterator, or for a snapshot.
	View(op Op) (V, error)
	// Read appends the value of key to dst, or returns dst and ErrNotFound. Many goroutines read a snapshot's view.
	Read(v V, dst, key []byte) ([]byte, error)
	// Walk returns an iterator over h.View, which calls h.End when it is first closed; see [NewIterator]. The bounds of
	// r are the caller's, and r is not empty. If Walk fails, it does not call End.
	Walk(h Hold[V], r holdfast.Range) (holdfast.Iterator, error)
	// Drop releases a view.
	Drop(v V) error

	// Write is Apply of a sound batch at a level that is given.
	Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error)
	// Settle makes everything applied durable at the strongest level that the engine gives.
	Settle() error
	// Measure sets the metrics that the engine knows; the others are Unknown.
	Measure(m *holdfast.Metrics)
	// Release frees the engine's resources, and returns the error of Close. settled is the error of the last Settle.
	Release(settled error) error
}

// Op is what a view is for, as errors name it.
type Op string

// The operations that read.
const (
	Get      Op = "get"
	Scan     Op = "scan"
	Snapshot Op = "snapshot"
)

// Engine implements [holdfast.Engine] over a Core. It is embedded in an engine, which calls Init before it is used.
type Engine[V any] struct {
	Life lifecycle.Engine
	Caps holdfast.Capabilities // what Capabilities returns; constant once the engine is used

	// The fields below are set by Init and not changed afterwards, so that calls read them without a lock.
	core       Core[V]
	given      [holdfast.Quorum + 1]bool // the levels that commits may ask for
	strongest  holdfast.Level
	viewClosed error
}

// Init gives the engine its core, what it gives, and the directory it is in, "" if none.
func (e *Engine[V]) Init(core Core[V], caps holdfast.Capabilities, dir string) {
	e.core, e.Caps, e.strongest = core, caps, caps.Strongest()
	for _, l := range caps.Levels() {
		e.given[l] = true
	}
	e.Life.Name(caps.Engine, dir)
	e.viewClosed = &holdfast.Error{Engine: caps.Engine, Path: dir, Class: holdfast.ErrClosed, Detail: "the snapshot"}
}

// NoReadOnly is what Open returns if an engine cannot be opened for reading only.
func NoReadOnly(engine, path string) error {
	return &holdfast.Error{Op: "open", Engine: engine, Path: path, Class: holdfast.ErrUnavailable,
		Detail: engine + " cannot be opened for reading only", Remedy: "open it for writing, or a copy of the directory"}
}

// CheckLevel is what Open returns if an engine is opened for a level that it does not give. caps describe the engine.
func CheckLevel(caps holdfast.Capabilities, path string, level holdfast.Level) error {
	err := caps.CheckLevel(level)
	if e, ok := err.(*holdfast.Error); ok {
		e.Op, e.Path = "open", path
	}

	return err
}

// Get implements [holdfast.Reader].
func (e *Engine[V]) Get(dst, key []byte) ([]byte, error) {
	// Closed comes before every other error, and a bad key before a view: the contract fixes the order.
	if err := e.Life.Enter(); err != nil {
		return dst, err
	}
	defer e.Life.Leave()
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	v, err := e.core.View(Get)
	if err != nil {
		return dst, err
	}

	// The view goes before Leave, which lets Close go on: deferred calls run last first.
	defer e.core.Drop(v)
	return e.core.Read(v, dst, key)
}

// Scan implements [holdfast.Reader].
func (e *Engine[V]) Scan(r holdfast.Range) holdfast.Iterator {
	if err := e.Life.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer e.Life.Leave()
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}

	// Cores need not know of empty ranges, which libraries treat in different ways.
	if empty(r) {
		return e.nothing()
	}
	v, err := e.core.View(Scan)
	if err != nil {
		return holdfast.FailedIterator(err)
	}

	return e.walk(Hold[V]{View: v, engine: e}, r)
}

// empty reports whether no key can be in r. An empty Hi is no bound.
func empty(r holdfast.Range) bool { return len(r.Hi) > 0 && bytes.Compare(r.Lo, r.Hi) >= 0 }

// nothing returns an iterator over an empty range.
func (e *Engine[V]) nothing() holdfast.Iterator {
	e.Life.AddIterator(1)
	return &emptyIterator{Iterator: holdfast.FailedIterator(nil), life: &e.Life}
}

// emptyIterator needs no view, but like any other iterator it is open until it is closed.
type emptyIterator struct {
	holdfast.Iterator
	life *lifecycle.Engine // nil once it is closed
}

// Close implements [holdfast.Iterator].
func (i *emptyIterator) Close() error {
	if i.life != nil {
		i.life.AddIterator(-1)
		i.life = nil
	}

	return nil
}

// walk returns the core's iterator over h. The call is inside while the iterator is counted, so Close sees either the
// call or the iterator.
func (e *Engine[V]) walk(h Hold[V], r holdfast.Range) holdfast.Iterator {
	e.Life.AddIterator(1)
	it, err := e.core.Walk(h, r)
	if err != nil {
		h.End()
		return holdfast.FailedIterator(err)
	}

	return it
}

// Hold is an iterator's reference to its view, and to the engine, which does not close while there is one.
type Hold[V any] struct {
	View     V
	engine   *Engine[V]
	snapshot *snapshot[V] // that has the view; nil if it is the iterator's alone
}

// End releases the hold.
func (h *Hold[V]) End() {
	// The view is given back before the count falls: once it is 0, Close may release the engine.
	if h.snapshot != nil {
		_ = h.snapshot.release() // Snapshot.Close has returned
	} else {
		_ = h.engine.core.Drop(h.View)
	}
	h.engine.Life.AddIterator(-1)
}

// Snapshot implements [holdfast.Engine].
func (e *Engine[V]) Snapshot() (holdfast.Snapshot, error) {
	if err := e.Life.Enter(); err != nil {
		return nil, err
	}
	defer e.Life.Leave()
	v, err := e.core.View(Snapshot)
	if err != nil {
		return nil, err
	}

	// One use is the snapshot's own; see release.
	s := &snapshot[V]{engine: e, view: v}
	s.life.Err = e.viewClosed
	s.users.Store(1)
	e.Life.AddSnapshot(1)

	return s, nil
}

// snapshot implements [holdfast.Snapshot]. It need not enter the engine's life, which does not end while it is open.
type snapshot[V any] struct {
	life   lifecycle.Life
	engine *Engine[V]
	view   V
	users  atomic.Int64 // the snapshot, and each of its iterators; the last one gives the view back
}

// Get implements [holdfast.Reader].
func (s *snapshot[V]) Get(dst, key []byte) ([]byte, error) {
	if err := s.life.Enter(); err != nil {
		return dst, err
	}
	defer s.life.Leave()
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}

	return s.engine.core.Read(s.view, dst, key)
}

// Scan implements [holdfast.Reader].
func (s *snapshot[V]) Scan(r holdfast.Range) holdfast.Iterator {
	if err := s.life.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer s.life.Leave()
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}
	if empty(r) {
		return s.engine.nothing()
	}

	// The iterator may be closed after the snapshot, so it has a use of the view for itself.
	s.users.Add(1)

	return s.engine.walk(Hold[V]{View: s.view, engine: s.engine, snapshot: s}, r)
}

// Close implements [holdfast.Snapshot]. Iterators of the snapshot go on. A second Close returns nil.
func (s *snapshot[V]) Close() error {
	if !s.life.Shut() {
		return nil
	}

	// Calls that had entered still read the view.
	s.life.Wait()
	err := s.release()
	s.engine.Life.AddSnapshot(-1)

	return err
}

// release ends one use of the view; the last one gives it back.
func (s *snapshot[V]) release() error {
	if s.users.Add(-1) > 0 {
		return nil
	}
	return s.engine.core.Drop(s.view)
}

// Apply implements [holdfast.Engine].
func (e *Engine[V]) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := e.Life.Enter(); err != nil {
		return holdfast.Receipt{}, err
	}
	defer e.Life.Leave()

	// The table spares a map or a switch on the way of every commit; the error is made only where it is needed.
	if int(level) >= len(e.given) || !e.given[level] {
		return holdfast.Receipt{}, e.Caps.CheckLevel(level)
	}
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	if err := e.checkSizes(b); err != nil {
		return holdfast.Receipt{}, err
	}

	return e.core.Write(b, level)
}

// checkSizes returns ErrBadKey or ErrTooLarge for a batch over a limit of the engine.
func (e *Engine[V]) checkSizes(b *holdfast.Batch) error {
	refuse := func(class error, remedy, detail string, args ...any) error {
		return &holdfast.Error{Op: "apply", Engine: e.Caps.Engine, Class: class, Detail: fmt.Sprintf(detail, args...),
			Remedy: remedy}
	}
	var tooLarge error
	size, i := int64(b.Size()), 0

	// Most engines have the contract's limits, and most batches are smaller than a value may be: those are not walked.
	if e.Caps.MaxKeySize < holdfast.MaxKeySize || size > e.Caps.MaxValueSize {
		for op := range b.Ops() {
			n := int64(len(op.Key))
			switch {
			case op.Kind == holdfast.KindDeleteRange: // any bound will do
			case n > e.Caps.MaxKeySize:
				return refuse(holdfast.ErrBadKey, "use shorter keys, or another engine",
					"at index %d of the batch: it has %d bytes, the engine's limit is %d", i, n, e.Caps.MaxKeySize)
			case int64(len(op.Value)) > e.Caps.MaxValueSize && tooLarge == nil:
				tooLarge = refuse(holdfast.ErrTooLarge, "split it over several keys",
					"at index %d of the batch: the value has %d bytes, the engine's limit is %d", i, len(op.Value),
					e.Caps.MaxValueSize)
			}
			i++
		}
	}
	if tooLarge == nil && size > e.Caps.MaxBatchSize {
		return refuse(holdfast.ErrTooLarge, "split it", "the batch has %d bytes, the limit is %d", size,
			e.Caps.MaxBatchSize)
	}

	return tooLarge
}

// Sync implements [holdfast.Engine].
func (e *Engine[V]) Sync() error {
	if err := e.Life.Enter(); err != nil {
		return err
	}
	defer e.Life.Leave()
	if e.strongest < holdfast.Process {
		return e.Caps.CheckLevel(holdfast.Power)
	}

	return e.core.Settle()
}

// Compacting makes f the Compact of a [holdfast.Compactor]; see [lifecycle.Engine.Long]. f is called for ranges that
// are not empty.
func (e *Engine[V]) Compacting(ctx context.Context, r holdfast.Range, f func(context.Context) error) error {
	return e.Life.Long(ctx, func(ctx context.Context) error {
		if e.strongest == 0 { // it only reads
			return e.Caps.CheckLevel(holdfast.Power)
		}
		if err := holdfast.CheckRange(r); err != nil || empty(r) {
			return err
		}

		return f(ctx)
	})
}

// CompactingAll is Compacting for an engine that cannot compact a part.
func (e *Engine[V]) CompactingAll(ctx context.Context, r holdfast.Range, f func(context.Context) error) error {
	return e.Compacting(ctx, r, func(ctx context.Context) error {
		if len(r.Lo)+len(r.Hi) > 0 {
			return &holdfast.Error{Op: "compact", Engine: e.Caps.Engine, Class: holdfast.ErrUnavailable,
				Detail: "it can only compact everything, not a range of keys",
				Remedy: "pass the empty Range, if writers can wait until the whole file is rewritten"}
		}

		return f(ctx)
	})
}

// Capabilities implements [holdfast.Engine].
func (e *Engine[V]) Capabilities() holdfast.Capabilities {
	// The caller may change what it gets, and the engine's own must stay.
	c := e.Caps
	c.Settings = slices.Clone(c.Settings)

	return c
}

// Metrics implements [holdfast.Engine].
func (e *Engine[V]) Metrics() holdfast.Metrics {
	m := holdfast.UnknownMetrics()
	e.Life.Fill(&m)
	e.core.Measure(&m)

	return m
}

// Done implements [holdfast.Engine].
func (e *Engine[V]) Done() <-chan struct{} { return e.Life.Ending.Done() }

// Err implements [holdfast.Engine].
func (e *Engine[V]) Err() error { return e.Life.Ending.Err() }

// Close implements [holdfast.Engine].
func (e *Engine[V]) Close() error {
	settle := e.core.Settle
	if e.strongest == 0 { // it only reads
		settle = func() error { return nil }
	}
	closed, err := e.Life.Close(settle)
	if !closed {
		return err
	}

	// Only the one call that has shut the life comes here, so that the engine is released once.
	err = e.core.Release(err)
	if used := e.Life.StillUsed(); used != nil {
		err = errors.Join(err, used)
	}

	return err
}

// StoreOpened is called by stores, which look for it in the engine that they are opened in: Close names those that are
// open. They call closed when they are closed.
func (e *Engine[V]) StoreOpened(what string) (closed func()) { return e.Life.Opened(what) }
