// Package gate guards an engine's life: nothing enters after Close, Close waits for
// what is inside, and refuses while iterators or snapshots are open.
package gate

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// Gate is embedded in an engine. The zero Gate is open, and its errors name no engine.
type Gate struct {
	mu        sync.RWMutex
	closed    bool
	who       holdfast.Error // with Engine and Path; the others are made of it when the gate is named
	isClosed  *holdfast.Error
	viewOver  *holdfast.Error
	iterators atomic.Int64
	snapshots atomic.Int64
}

// Name makes errors name the engine and its directory, or "" if it has none. It is called before any other method.
func (g *Gate) Name(engine, path string) {
	g.who = holdfast.Error{Engine: engine, Path: path}
	g.isClosed, g.viewOver = new(holdfast.Error), new(holdfast.Error)
	*g.isClosed, *g.viewOver = g.who, g.who
	g.isClosed.Class = holdfast.ErrClosed
	g.viewOver.Class, g.viewOver.Detail = holdfast.ErrClosed, "the snapshot"
}

// NoReadOnly is what Open of an engine returns that cannot be opened for reading only.
func NoReadOnly(engine, path string) error {
	return &holdfast.Error{Op: "open", Engine: engine, Path: path, Class: holdfast.ErrUnavailable,
		Detail: engine + " cannot be opened for reading only", Remedy: "open it for writing, or a copy of the directory"}
}

// ErrClosed is what those get who come after Close. It is always the same, so that it costs nothing.
func (g *Gate) ErrClosed() error {
	if g.isClosed == nil {
		return holdfast.ErrClosed
	}
	return g.isClosed
}

// ErrSnapshotClosed is what those get who use a closed snapshot. It is always the same.
func (g *Gate) ErrSnapshotClosed() error {
	if g.viewOver == nil {
		return holdfast.ErrClosed
	}
	return g.viewOver
}

// Enter returns ErrClosed after Close. Otherwise Close waits until Leave is called.
// Whoever is inside must not Enter again.
func (g *Gate) Enter() error {
	g.mu.RLock()
	if g.closed {
		g.mu.RUnlock()
		return g.ErrClosed()
	}
	return nil
}

// Leave ends what Enter began.
func (g *Gate) Leave() { g.mu.RUnlock() }

// AddIterator counts an iterator opened (1) or closed (-1). Opening is done inside.
func (g *Gate) AddIterator(n int64) { g.iterators.Add(n) }

// AddSnapshot counts a snapshot opened (1) or closed (-1). Opening is done inside.
func (g *Gate) AddSnapshot(n int64) { g.snapshots.Add(n) }

// Fill sets the gauges that the gate knows.
func (g *Gate) Fill(m *holdfast.Metrics) {
	m.OpenIterators, m.OpenSnapshots = g.iterators.Load(), g.snapshots.Load()
}

// Close lets settle bring everything to the device while others go in and out, waits until nobody is
// inside, lets it bring what came meanwhile, and closes the gate, unless iterators or snapshots are
// open: then it returns ErrBusy and the gate stays open, and nobody has had to wait for the device. It
// returns ErrClosed if the gate was closed before. settle's error is returned with the gate closed: an
// engine that cannot settle must still be released.
func (g *Gate) Close(settle func() error) error {
	if err := g.Enter(); err != nil {
		return err
	}
	err := settle()
	g.Leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return g.ErrClosed()
	}
	if busy := g.busy(err); busy != nil {
		return busy
	}
	g.closed = true
	return settle()
}

// busy is ErrBusy with that cause while iterators or snapshots are open.
func (g *Gate) busy(cause error) error {
	it, sn := g.iterators.Load(), g.snapshots.Load()
	if it+sn == 0 {
		return nil
	}
	return &holdfast.Error{Op: "close", Engine: g.who.Engine, Path: g.who.Path, Class: holdfast.ErrBusy, Cause: cause,
		Detail: fmt.Sprintf("%d iterators and %d snapshots are open", it, sn), Remedy: "close them first"}
}

// Closed reports whether Close has succeeded.
func (g *Gate) Closed() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.closed
}
