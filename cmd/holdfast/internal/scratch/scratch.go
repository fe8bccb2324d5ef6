// Package scratch lets stores be opened on what can only be read: what they write is kept in memory, and lost.
package scratch

import (
	"bytes"
	"errors"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// New makes an engine that has the keys of base, which must not change, and stays the caller's. Commits reach Memory.
//
// Invariant: a key of changes takes the place of base's. Its value is one byte, deleted or there, and behind that the
// key's own value.
func New(base holdfast.Engine) holdfast.Engine { return &engine{Engine: mem.New(), base: base} }

const (
	deleted = 0
	there   = 1
)

type engine struct {
	holdfast.Engine // the changes
	base            holdfast.Engine

	mu sync.Mutex // covers Apply
}

// Capabilities implements holdfast.Engine. They are those of the changes, under the name of base, which errors tell.
func (e *engine) Capabilities() holdfast.Capabilities {
	caps := e.Engine.Capabilities()
	caps.Engine = e.base.Capabilities().Engine

	return caps
}

// Apply implements holdfast.Engine.
func (e *engine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b == nil || b.Err() != nil {
		return e.Engine.Apply(b, level) // which refuses it
	}

	var to holdfast.Batch
	for op := range b.Ops() {
		switch op.Kind {
		case holdfast.KindSet:
			to.Set(op.Key, append([]byte{there}, op.Value...))
		case holdfast.KindDelete:
			to.Set(op.Key, []byte{deleted})
		case holdfast.KindDeleteRange:
			to.DeleteRange(op.Key, op.Value)
			it := e.base.Scan(holdfast.Range{Lo: op.Key, Hi: op.Value})
			for it.Next() {
				to.Set(it.Key(), []byte{deleted})
			}
			if err := it.Close(); err != nil {
				return holdfast.Receipt{}, err
			}
		}
	}

	return e.Engine.Apply(&to, level)
}

// Get implements holdfast.Reader.
func (e *engine) Get(dst, key []byte) ([]byte, error) { return view{e.Engine, e.base}.Get(dst, key) }

// Scan implements holdfast.Reader.
func (e *engine) Scan(r holdfast.Range) holdfast.Iterator { return view{e.Engine, e.base}.Scan(r) }

// Snapshot implements holdfast.Engine.
func (e *engine) Snapshot() (holdfast.Snapshot, error) {
	s, err := e.Engine.Snapshot()
	if err != nil {
		return nil, err
	}

	return snapshot{view{s, e.base}, s}, nil
}

type snapshot struct {
	view
	of holdfast.Snapshot
}

// Close implements holdfast.Snapshot.
func (s snapshot) Close() error { return s.of.Close() }

// view reads changes in front of a base.
type view struct{ changes, base holdfast.Reader }

// Get implements holdfast.Reader.
func (v view) Get(dst, key []byte) ([]byte, error) {
	n := len(dst)
	got, err := v.changes.Get(dst, key)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		return v.base.Get(dst, key)
	case err != nil:
		return got, err
	case got[n] == deleted:
		return got[:n], holdfast.ErrNotFound
	}

	return append(got[:n], got[n+1:]...), nil
}

// Scan implements holdfast.Reader.
func (v view) Scan(r holdfast.Range) holdfast.Iterator {
	m := &merged{changes: v.changes.Scan(r), base: v.base.Scan(r), reverse: r.Reverse}
	m.stepChanges()
	m.stepBase()

	return m
}

// merged is an iterator over changes and base. Each is one step ahead of what is shown; the one that is shown is
// stepped when the walk goes on, so that its key is valid until then.
type merged struct {
	changes, base         holdfast.Iterator
	moreChanges, moreBase bool
	reverse, closed       bool
	fromChanges, fromBase bool // the sources that are at the key shown
}

func (m *merged) stepChanges() { m.moreChanges = m.changes.Next() }
func (m *merged) stepBase()    { m.moreBase = m.base.Next() }

// Next implements holdfast.Iterator.
func (m *merged) Next() bool {
	for {
		if m.fromChanges {
			m.stepChanges()
		}
		if m.fromBase {
			m.stepBase()
		}
		m.fromChanges, m.fromBase = false, false
		if m.closed || m.Err() != nil || !m.moreChanges && !m.moreBase {
			return false
		}

		order := -1
		switch {
		case !m.moreChanges:
			order = 1
		case m.moreBase:
			if order = bytes.Compare(m.changes.Key(), m.base.Key()); m.reverse {
				order = -order
			}
		}
		m.fromChanges, m.fromBase = order <= 0, order >= 0
		if !m.fromChanges || m.changes.Value()[0] == there {
			return true
		}
	}
}

// Key implements holdfast.Iterator.
func (m *merged) Key() []byte {
	switch {
	case m.fromChanges:
		return m.changes.Key()
	case m.fromBase:
		return m.base.Key()
	}

	return nil
}

// Value implements holdfast.Iterator.
func (m *merged) Value() []byte {
	switch {
	case m.fromChanges:
		return m.changes.Value()[1:]
	case m.fromBase:
		return m.base.Value()
	}

	return nil
}

// Err implements holdfast.Iterator.
func (m *merged) Err() error { return errors.Join(m.changes.Err(), m.base.Err()) }

// Close implements holdfast.Iterator.
func (m *merged) Close() error {
	m.closed, m.fromChanges, m.fromBase = true, false, false
	return errors.Join(m.changes.Close(), m.base.Close())
}
