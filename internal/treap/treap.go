// Package treap is an ordered map that never changes: a change makes a new map, which shares all but the paths to what
// changed with the old one. So a snapshot is one pointer, and readers take no lock.
package treap

import (
	"bytes"
	"hash/maphash"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// Node is a map: ordered by key from left to right, and by priority, the hash of the key, from top to bottom, which
// keeps it balanced (Seidel and Aragon, 1996). A nil Node is an empty map. Key and Value must not be changed.
type Node[V any] struct {
	Key         []byte
	Value       V
	priority    uint32
	own         uint32 // what Set was told of this key alone
	edit        Edit
	size        int64 // the sum of own in the whole map
	count       int64
	left, right *Node[V]
}

var seed = maphash.MakeSeed()

// Edit is a number of changes that are made one after another, as if they were one: of the maps between them nobody
// keeps any, and so nodes that were made in the same edit are changed in place.
type Edit uint64

var edits atomic.Uint64

// NewEdit begins an edit.
func NewEdit() Edit { return Edit(edits.Add(1)) }

// Size is the sum of the sizes that Set was given.
func (n *Node[V]) Size() int64 {
	if n == nil {
		return 0
	}

	return n.size
}

// Count is the number of keys.
func (n *Node[V]) Count() int64 {
	if n == nil {
		return 0
	}

	return n.count
}

// with returns n with other children.
func (n *Node[V]) with(edit Edit, left, right *Node[V]) *Node[V] {
	if edit == 0 || n.edit != edit {
		n = &Node[V]{Key: n.Key, Value: n.Value, priority: n.priority, own: n.own, edit: edit}
	}
	n.size, n.count = int64(n.own)+left.Size()+right.Size(), 1+left.Count()+right.Count()
	n.left, n.right = left, right
	return n
}

// Get returns the value of key.
func (n *Node[V]) Get(key []byte) (value V, ok bool) {
	for n != nil {
		switch c := bytes.Compare(key, n.Key); {
		case c < 0:
			n = n.left
		case c > 0:
			n = n.right
		default:
			return n.Value, true
		}
	}

	return value, false
}

// Set returns n with another value for key, whose size is below 4 GiB. The map keeps key.
func (n *Node[V]) Set(key []byte, value V, size int64) *Node[V] { return n.SetIn(0, key, value, size) }

// SetIn is Set in an edit.
func (n *Node[V]) SetIn(edit Edit, key []byte, value V, size int64) *Node[V] {
	return n.insert(&Node[V]{Key: key, Value: value, priority: uint32(maphash.Bytes(seed, key)), own: uint32(size),
		edit: edit, size: size, count: 1})
}

func (n *Node[V]) insert(x *Node[V]) *Node[V] {
	if n == nil {
		return x
	}

	c := bytes.Compare(x.Key, n.Key)
	switch {
	case c == 0:
		return x.with(x.edit, n.left, n.right)
	case x.priority > n.priority:
		// The key cannot be below n: there it would have its own, lower priority.
		below, rest := n.split(x.edit, x.Key)
		return x.with(x.edit, below, rest)
	case c < 0:
		return n.with(x.edit, n.left.insert(x), n.right)
	default:
		return n.with(x.edit, n.left, n.right.insert(x))
	}
}

// Delete returns n without key.
func (n *Node[V]) Delete(key []byte) *Node[V] {
	if n == nil {
		return nil
	}

	switch c := bytes.Compare(key, n.Key); {
	case c < 0:
		if left := n.left.Delete(key); left != n.left {
			return n.with(0, left, n.right)
		}
	case c > 0:
		if right := n.right.Delete(key); right != n.right {
			return n.with(0, n.left, right)
		}
	default:
		return join(n.left, n.right)
	}

	return n
}

// DeleteRange returns n without the keys in [lo, hi), and an empty hi is the end.
func (n *Node[V]) DeleteRange(lo, hi []byte) *Node[V] {
	if len(hi) > 0 && bytes.Compare(lo, hi) >= 0 {
		return n
	}
	below, rest := n.split(0, lo)
	if len(hi) == 0 {
		return below
	}
	_, above := rest.split(0, hi)

	return join(below, above)
}

// split returns the keys below key, and the others.
func (n *Node[V]) split(edit Edit, key []byte) (below, rest *Node[V]) {
	if n == nil {
		return nil, nil
	}
	if bytes.Compare(n.Key, key) < 0 {
		below, rest = n.right.split(edit, key)
		return n.with(edit, n.left, below), rest
	}
	below, rest = n.left.split(edit, key)

	return below, n.with(edit, rest, n.right)
}

// join makes one map of two, all keys of a being below all of b.
func join[V any](a, b *Node[V]) *Node[V] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		return a.with(0, a.left, join(a.right, b))
	default:
		return b.with(0, join(a, b.left), b.right)
	}
}

// Cursor walks over a range of a map, with a stack of the nodes still to be visited; all of a node's side that lies
// before it, in the direction of the walk, has been visited or is above it. The zero Cursor is at the end.
type Cursor[V any] struct {
	r     holdfast.Range
	stack []*Node[V]
}

// Walk returns a cursor before the first key in r, whose bounds it keeps.
func (n *Node[V]) Walk(r holdfast.Range) Cursor[V] {
	c := Cursor[V]{r: r}
	c.descend(n)

	return c
}

// descend pushes what comes first in n, skipping what lies outside the range on the side where the walk begins.
func (c *Cursor[V]) descend(n *Node[V]) {
	for n != nil {
		switch {
		case c.r.Reverse && len(c.r.Hi) > 0 && bytes.Compare(n.Key, c.r.Hi) >= 0:
			n = n.left
		case c.r.Reverse:
			c.stack = append(c.stack, n)
			n = n.right
		case bytes.Compare(n.Key, c.r.Lo) < 0:
			n = n.right
		default:
			c.stack = append(c.stack, n)
			n = n.left
		}
	}
}

// Next returns the next node, nil at the end.
func (c *Cursor[V]) Next() *Node[V] {
	if len(c.stack) == 0 {
		return nil
	}
	n := c.stack[len(c.stack)-1]
	c.stack = c.stack[:len(c.stack)-1]
	if c.r.Reverse && bytes.Compare(n.Key, c.r.Lo) < 0 ||
		!c.r.Reverse && len(c.r.Hi) > 0 && bytes.Compare(n.Key, c.r.Hi) >= 0 {
		c.stack = nil
		return nil
	}
	if c.r.Reverse {
		c.descend(n.left)
	} else {
		c.descend(n.right)
	}

	return n
}
