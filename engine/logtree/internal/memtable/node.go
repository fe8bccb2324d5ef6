package memtable

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// fan is how many entries a node has at most: as many as a perm can order.
const fan = 15

// perm is the order of a node's entries, in one word so that one store publishes it: the count in
// the low 4 bits, then 4 bits for each position that name the slot of the entry there.
type perm uint64

// identity orders slots 0, 1, 2, ... and has no count.
const identity perm = 0xedcba98765432100

// count is how many entries there are, and slot where the entry of a position is.
func (p perm) count() int     { return int(p & 15) }
func (p perm) slot(i int) int { return int(p>>(4*uint(i)+4)) & 15 }

// insert puts slot at position i and moves those from there on by one.
func (p perm) insert(i, slot int) perm {
	at := 4*uint(i) + 4

	// The new entry is shifted in between the positions below and those above, and the 1 counts it.
	low := p & (1<<at - 1)

	return (low | perm(slot)<<at | p>>at<<(at+4)) + 1
}

// node is what leaves and inner nodes have in common: entries in slots, in order of arrival, and
// their order in perm. A slot is written once, before the perm that first names it is stored, and
// never again; so a reader that has loaded a perm has a consistent node. Entries never leave a node: when
// it is full, new nodes take its place, and it stays as it is for those that still read it.
//
// The first skip bytes of all keys in a node are the same, and prefix has the 8 bytes that follow.
type node struct {
	perm   atomic.Uint64
	skip   uint16
	prefix [fan]uint64
	rec    [fan]Addr
	seq    [fan]uint64
}

// leaf is a node whose entries are versions. Leaves are linked in order; 0 is no leaf.
type leaf struct {
	next, prev atomic.Uint32
	node
}

// memory is that of the leaf.
func (l *leaf) memory() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(l)), unsafe.Sizeof(*l)) }

// inner is a node whose entries are the lower bounds of its children; that of the first child is
// not looked at.
type inner struct {
	node
	child [fan]atomic.Uint32
}

// Nodes are allocated in slabs and named by number: slab<<shift | index.
const (
	leafShift  = 8
	innerShift = 6

	leafSlabSize  = int64(unsafe.Sizeof(leafSlab{}))
	innerSlabSize = int64(unsafe.Sizeof(innerSlab{}))
)

type (
	leafSlab  [1 << leafShift]leaf
	innerSlab [1 << innerShift]inner
)

// item is one entry that is moved from one node to another.
type item struct {
	prefix uint64
	rec    Addr
	seq    uint64
	child  uint32
}

// item is the entry in a slot, without the child of an inner node.
func (n *node) item(slot int) item {
	return item{prefix: n.prefix[slot], rec: n.rec[slot], seq: n.seq[slot]}
}

// set writes a slot that no perm names yet: see node.
func (n *node) set(slot int, it item) {
	n.prefix[slot], n.rec[slot], n.seq[slot] = it.prefix, it.rec, it.seq
}

// window is the 8 bytes of key after the first skip, as a number that orders like them; where the
// key is shorter, zeros stand.
func window(key []byte, skip int) uint64 {
	if len(key) >= skip+8 {
		return binary.BigEndian.Uint64(key[skip:])
	}

	var w uint64
	for i := skip; i < len(key); i++ {
		w |= uint64(key[i]) << (56 - 8*uint(i-skip))
	}

	return w
}

// common is the number of bytes that two windows have in common.
func common(a, b uint64) int { return bits.LeadingZeros64(a^b) / 8 }

// lcp is the number of bytes that two keys have in common.
func lcp(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+8 <= n {
		if x := binary.BigEndian.Uint64(a[i:]) ^ binary.BigEndian.Uint64(b[i:]); x != 0 {
			return i + bits.LeadingZeros64(x)/8
		}
		i += 8
	}

	for i < n && a[i] == b[i] {
		i++
	}

	return i
}

// shares reports whether key begins with the first n bytes of other.
func shares(key, other []byte, n int) bool {
	return len(key) >= n && bytes.Equal(key[:n], other[:n])
}
