// Package layers is for those who decide on the latest state of an engine that may not show it yet: what has been
// written above the engine's state is kept in layers, and read through them. A layer is never changed, but replaced:
// a copy of one is as it was, whatever is written later, and costs nothing.
package layers

import (
	"bytes"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/intervals"
	"github.com/holdfastdb/holdfast/internal/treap"
)

// Layer is what has been written above a state: first the ranges are deleted, then the keys are set. A value that is
// nil means that the key is deleted. The zero Layer is empty.
type Layer struct {
	keys *treap.Node[[]byte]
	gone intervals.Union
}

// AppendTo appends to b what makes the layer: each key once.
func (l *Layer) AppendTo(b *holdfast.Batch) {
	for _, gone := range l.gone {
		b.DeleteRange(gone.Lo, gone.Hi)
	}
	keys := l.keys.Walk(holdfast.Range{})
	for at := keys.Next(); at != nil; at = keys.Next() {
		if at.Value == nil {
			b.Delete(at.Key)
		} else {
			b.Set(at.Key, at.Value)
		}
	}
}

func (l *Layer) empty() bool { return l.keys == nil && len(l.gone) == 0 }

// Take puts a batch on top, which is not Reset any more: the layer keeps its slices.
func (l *Layer) Take(b *holdfast.Batch) { l.TakeFrom(NewEdit(), b, 0) }

// Edit is what a layer takes while nobody copies it: that costs less than to replace it each time.
type Edit = treap.Edit

// NewEdit begins an edit of a layer that may have been copied.
func NewEdit() Edit { return treap.NewEdit() }

// TakeFrom is Take, in an edit, of what a batch has got since its Size was size.
func (l *Layer) TakeFrom(edit Edit, b *holdfast.Batch, size int) {
	for op := range b.OpsFrom(size) {
		switch op.Kind {
		case holdfast.KindSet, holdfast.KindDelete:
			l.keys = l.keys.SetIn(edit, op.Key, op.Value, int64(len(op.Key)+len(op.Value)))
		case holdfast.KindDeleteRange:
			l.keys = l.keys.DeleteRange(op.Key, op.Value)
			gone := slices.Clone(l.gone) // others may read it
			gone.Add(op.Key, op.Value)
			l.gone = gone
		}
	}
}

// get looks a key up. known means that the layer decides it; a nil value then means that it is not there.
func (l *Layer) get(key []byte) (value []byte, known bool) {
	if value, ok := l.keys.Get(key); ok {
		return value, true
	}
	return nil, l.gone.Has(key)
}

// Pending is what has been applied and the engine may not show yet, in two layers: new takes what is applied, and old
// is complete. When the engine shows all of old, it is dropped and new takes its place. So what is kept was applied
// during two waits at most, and dropping costs nothing.
type Pending struct {
	old, new         Layer
	oldLast, newLast uint64 // the last commit in old, and in either
}

// Add adds what a commit has written, in a batch that is not Reset any more.
func (p *Pending) Add(commit uint64, b *holdfast.Batch) {
	p.new.Take(b)
	p.newLast = commit
}

// Settled drops what the engine shows, which is everything up to a commit.
func (p *Pending) Settled(commit uint64) {
	switch {
	case commit >= p.newLast:
		*p = Pending{}
	case commit >= p.oldLast:
		*p = Pending{old: p.new, oldLast: p.newLast, newLast: p.newLast}
	}
}

// most is how many bytes may be applied that the engine does not show yet.
const most = 16 << 20

// Full reports whether the engine has to show some before more is applied.
func (p *Pending) Full() bool { return p.size() >= most }

func (p *Pending) size() int64 { return p.old.keys.Size() + p.new.keys.Size() }

// Above appends the layers of p as they are now, the topmost first.
func (p *Pending) Above(layers []Layer) []Layer { return append(layers, p.new, p.old) }

// State is a state of a database: that of an engine or snapshot, with layers above it, the topmost first.
type State struct {
	Below  holdfast.Reader
	Layers []Layer
}

// Get returns the value of a key, which is the caller's; nil if it is not there.
func (s *State) Get(key []byte) ([]byte, error) {
	for i := range s.Layers {
		if value, known := s.Layers[i].get(key); known {
			return bytes.Clone(value), nil
		}
	}
	value, err := s.Below.Get(nil, key)
	if err == holdfast.ErrNotFound {
		return nil, nil
	}
	if err == nil && value == nil {
		value = []byte{}
	}
	return value, err
}

// Scan returns an iterator over the keys in r.
func (s *State) Scan(r holdfast.Range) holdfast.Iterator {
	// What is above was taken first: what has left it since, the engine shows.
	it := &merged{reverse: r.Reverse, below: s.Below.Scan(r)}
	for i := range s.Layers {
		if l := &s.Layers[i]; !l.empty() {
			it.above = append(it.above, above{l, l.keys.Walk(r), nil})
		}
	}
	if len(it.above) == 0 {
		return it.below
	}
	for i := range it.above {
		it.above[i].next()
	}
	it.more = it.below.Next()
	return it
}

// above is a layer's place in an iterator.
type above struct {
	*Layer
	cursor treap.Cursor[[]byte]
	at     *treap.Node[[]byte] // nil at the end
}

func (a *above) next() { a.at = a.cursor.Next() }

// merged iterates over layers and what is below them.
type merged struct {
	above   []above
	below   holdfast.Iterator
	more    bool // below is at a key
	reverse bool

	key, value []byte
	used       bool // key and value are those of below, which has not moved on
}

// Next implements [holdfast.Iterator].
func (m *merged) Next() bool {
	for {
		// The iterator below moves on only when the next key is wanted: until then its key and value are still the caller's.
		if m.used {
			m.more, m.used = m.below.Next(), false
		}
		if !m.more && m.below.Err() != nil {
			return false
		}

		// The first key of all; of the same key in several places, the topmost counts.
		place := -1
		var key []byte
		for i := range m.above {
			if at := m.above[i].at; at != nil && (key == nil || m.before(at.Key, key)) {
				place, key = i, at.Key
			}
		}
		if m.more && (key == nil || m.before(m.below.Key(), key)) {
			place, key = len(m.above), m.below.Key()
		}
		if key == nil {
			return false
		}

		// A range that was deleted in a layer hides the key in all that lies below that layer, and not in it: in a layer,
		// ranges are deleted before keys are set.
		hidden := false
		for i := range min(place, len(m.above)) {
			hidden = hidden || m.above[i].gone.Has(key)
		}
		var value []byte
		if place < len(m.above) {
			// Older values of the key, in deeper layers and below, are passed over together with it.
			value = m.above[place].at.Value
			for i := range m.above {
				if at := m.above[i].at; at != nil && bytes.Equal(at.Key, key) {
					m.above[i].next()
				}
			}
			if m.more && bytes.Equal(m.below.Key(), key) {
				m.more = m.below.Next()
			}
			if hidden || value == nil {
				continue
			}
		} else {
			m.used = true
			if hidden {
				continue
			}
			value = m.below.Value()
		}
		m.key, m.value = key, value
		return true
	}
}

func (m *merged) before(a, b []byte) bool {
	if c := bytes.Compare(a, b); m.reverse {
		return c > 0
	} else {
		return c < 0
	}
}

// Key implements [holdfast.Iterator].
func (m *merged) Key() []byte { return m.key }

// Value implements [holdfast.Iterator].
func (m *merged) Value() []byte { return m.value }

// Err implements [holdfast.Iterator].
func (m *merged) Err() error { return m.below.Err() }

// Close implements [holdfast.Iterator].
func (m *merged) Close() error { return m.below.Close() }
