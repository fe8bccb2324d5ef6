// Package scratch lets stores be opened on what can only be read: what they write is kept in memory, and lost.
package scratch

import (
	"errors"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/layers"
)

// New makes an engine that has the keys of base, which must not change, and stays the caller's. Commits reach Memory.
func New(base holdfast.Engine) holdfast.Engine { return Over(base, base.Capabilities().Engine) }

// Over is New over a state of an engine of that name, such as a snapshot.
func Over(state holdfast.Reader, name string) holdfast.Engine {
	return &engine{Engine: mem.New(), base: state, name: name}
}

// engine is one in memory, which has what was written: it says what is wrong with a call, and is closed. Keys are read
// from written, a layer over base.
type engine struct {
	holdfast.Engine
	base holdfast.Reader
	name string // of base's engine

	mu      sync.RWMutex // covers Apply, and what follows
	written layers.Layer
}

// Capabilities implements holdfast.Engine. They are those of the changes, under the name of base, which errors tell.
func (e *engine) Capabilities() holdfast.Capabilities {
	caps := e.Engine.Capabilities()
	caps.Engine = e.name

	return caps
}

// Apply implements holdfast.Engine.
func (e *engine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, err := e.Engine.Apply(b, level)
	if err == nil {
		var kept holdfast.Batch // the caller may change b
		kept.Append(b)
		e.written.Take(&kept)
	}

	return r, err
}

// view is the state now, of which own has what was written.
func (e *engine) view(own holdfast.Reader) view {
	return view{own, layers.State{Below: e.base, Layers: []layers.Layer{e.written}}}
}

// Get implements holdfast.Reader.
func (e *engine) Get(dst, key []byte) ([]byte, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()

	return e.view(e.Engine).Get(dst, key)
}

// Scan implements holdfast.Reader.
func (e *engine) Scan(r holdfast.Range) holdfast.Iterator {
	e.mu.RLock()
	defer e.mu.RUnlock()

	return e.view(e.Engine).Scan(r)
}

// Snapshot implements holdfast.Engine.
func (e *engine) Snapshot() (holdfast.Snapshot, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	s, err := e.Engine.Snapshot()
	if err != nil {
		return nil, err
	}

	return snapshot{e.view(s), s}, nil
}

type snapshot struct {
	view
	of holdfast.Snapshot
}

// Close implements holdfast.Snapshot.
func (s snapshot) Close() error { return s.of.Close() }

// view reads a state. What is wrong with a call, own says.
type view struct {
	own   holdfast.Reader
	state layers.State
}

// Get implements holdfast.Reader.
func (v view) Get(dst, key []byte) ([]byte, error) {
	if got, err := v.own.Get(dst, key); !errors.Is(err, holdfast.ErrNotFound) {
		return got, err
	}
	value, err := v.state.Get(key)
	if err == nil && value == nil {
		err = holdfast.ErrNotFound
	}

	return append(dst, value...), err
}

// Scan implements holdfast.Reader.
func (v view) Scan(r holdfast.Range) holdfast.Iterator {
	if it := v.own.Scan(r); it.Err() != nil {
		return it
	} else if err := it.Close(); err != nil {
		return holdfast.FailedIterator(err)
	}

	return v.state.Scan(r)
}
