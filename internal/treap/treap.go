// Package treap is an ordered map that never changes: a change makes a new map, which shares all but the paths to what
// changed with the old one. So a snapshot is one pointer, and readers take no lock.
package treap

import (
	"bytes"
	"hash/maphash"

	"github.com/holdfastdb/holdfast"
)

// Node is a map: ordered by key from left to right, and by priority, the hash of the key, from top to bottom, which
// keeps it balanced (Seidel and Aragon, 1996). A nil Node is an empty map. Key and Value must not be changed.
type Node[V any] struct {
	Key         []byte
	Value       V
	priority    uint64
	own         int64 // what Set was told of this key alone
	size        int64 // the sum of own in the whole map
	count       int64
	left, right *Node[V]
}

var seed = maphash.MakeSeed()

func newNode[V any](key []byte, value V, own int64, priority uint64, left, right *Node[V]) *Node[V] {
	return &Node[V]{key, value, priority, own, own + left.Size() + right.Size(), 1 + left.Count() + right.Count(),
		left, right}
}

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
func (n *Node[V]) with(left, right *Node[V]) *Node[V] {
	return newNode(n.Key, n.Value, n.own, n.priority, left, right)
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

// Set returns n with another value for key. The map keeps key.
func (n *Node[V]) Set(key []byte, value V, size int64) *Node[V] {
	return n.insert(newNode(key, value, size, maphash.Bytes(seed, key), nil, nil))
}

func (n *Node[V]) insert(x *Node[V]) *Node[V] {
	if n == nil {
		return x
	}

	c := bytes.Compare(x.Key, n.Key)
	switch {
	case c == 0:
		return x.with(n.left, n.right)
	case x.priority > n.priority:
		// The key cannot be below n: there it would have its own, lower priority.
		return x.with(n.split(x.Key))
	case c < 0:
		return n.with(n.left.insert(x), n.right)
	default:
		return n.with(n.left, n.right.insert(x))
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
			return n.with(left, n.right)
		}
	case c > 0:
		if right := n.right.Delete(key); right != n.right {
			return n.with(n.left, right)
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
	below, rest := n.split(lo)
	if len(hi) == 0 {
		return below
	}
	_, above := rest.split(hi)

	return join(below, above)
}

// split returns the keys below key, and the others.
func (n *Node[V]) split(key []byte) (below, rest *Node[V]) {
	if n == nil {
		return nil, nil
	}
	if bytes.Compare(n.Key, key) < 0 {
		below, rest = n.right.split(key)
		return n.with(n.left, below), rest
	}
	below, rest = n.left.split(key)

	return below, n.with(rest, n.right)
}

// join makes one map of two, all keys of a being below all of b.
func join[V any](a, b *Node[V]) *Node[V] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		return a.with(a.left, join(a.right, b))
	default:
		return b.with(join(a, b.left), b.right)
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
