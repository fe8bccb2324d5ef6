package memtable

// The designs that the table was compared with, kept so that the comparison can be made again: a skip
// list in an arena, with readers that take no lock, and a B+ tree with wide sorted nodes behind a
// read-write lock. TestRivals checks that both are right, so that the figures mean something.

import (
	"bytes"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// skipList is a skip list whose nodes lie in an arena and name each other by offset: by key, then by
// sequence number descending.
type skipList struct {
	image  *Image
	arena  atomic.Pointer[[][]uint64]
	free   uint32 // offset in words
	height atomic.Uint32
	head   uint32
	tail   [skipHeight]uint32 // the writer's: the last node of each level
	end    atomic.Uint32      // tail[0], for readers
	maxKey []byte
	random uint64
}

const (
	skipHeight = 16
	skipShift  = 16 // words of an arena chunk
)

// skipNode is the fixed part of a node; the links of levels 1 and up lie behind it.
type skipNode struct {
	prefix     uint64
	rec        Addr
	seq        uint64
	prev, next uint32
}

func newSkipList(im *Image) *skipList {
	s := &skipList{image: im, free: 1, random: 88172645463325252}
	s.arena.Store(new([][]uint64))
	s.head, _ = s.alloc(skipHeight)
	s.height.Store(1)
	for i := range s.tail {
		s.tail[i] = s.head
	}
	s.end.Store(s.head)
	return s
}

func (s *skipList) alloc(height int) (uint32, *skipNode) {
	words := uint32(4 + height/2)
	if s.free>>skipShift != (s.free+words)>>skipShift || len(*s.arena.Load()) == 0 {
		chunks := append(*s.arena.Load(), make([]uint64, 1<<skipShift))
		s.arena.Store(&chunks)
		s.free = max(1, uint32(len(chunks)-1)<<skipShift)
	}
	ref := s.free
	s.free += words
	return ref, s.node(ref)
}

func (s *skipList) node(ref uint32) *skipNode {
	return (*skipNode)(unsafe.Pointer(&(*s.arena.Load())[ref>>skipShift][ref&(1<<skipShift-1)]))
}

func (n *skipNode) link(level int) *uint32 {
	return (*uint32)(unsafe.Add(unsafe.Pointer(n), 28+4*level))
}

func (s *skipList) Bytes() int64 { return int64(len(*s.arena.Load())) << (skipShift + 3) }

func (s *skipList) Add(rec Addr, key []byte, seq uint64) {
	s.random ^= s.random << 13
	s.random ^= s.random >> 7
	s.random ^= s.random << 17
	height := min(skipHeight, 1+bits.TrailingZeros64(s.random|1<<63)/2)
	if h := s.height.Load(); height > int(h) {
		s.height.Store(uint32(height))
	}
	var before [skipHeight]uint32
	var after [skipHeight]uint32
	if bytes.Compare(key, s.maxKey) > 0 {
		s.maxKey = key
		copy(before[:height], s.tail[:height])
	} else {
		s.find(key, window(key, 0), seq, &before, &after)
	}
	ref, n := s.alloc(height)
	n.prefix, n.rec, n.seq, n.prev = window(key, 0), rec, seq, before[0]
	for i := range height {
		*n.link(i) = after[i]
		if after[i] == 0 {
			s.tail[i] = ref
		}
	}
	for i := range height {
		atomic.StoreUint32(s.node(before[i]).link(i), ref)
	}
	if after[0] == 0 {
		s.end.Store(ref)
	} else {
		atomic.StoreUint32(&s.node(after[0]).prev, ref)
	}
}

// find returns the first node not before (key, seq), or 0, and its neighbours on all levels.
func (s *skipList) find(key []byte, w, seq uint64, before, after *[skipHeight]uint32) uint32 {
	at := s.head
	next := uint32(0)
	for level := int(s.height.Load()) - 1; level >= 0; level-- {
		stop := next // already known not to be before
		for {
			next = atomic.LoadUint32(s.node(at).link(level))
			if next == 0 || next == stop {
				break
			}
			n := s.node(next)
			if n.prefix > w || n.prefix == w && !s.less(n, key, seq) {
				break
			}
			at = next
		}
		if before != nil {
			before[level], after[level] = at, next
		}
	}
	if before != nil {
		for level := int(s.height.Load()); level < skipHeight; level++ {
			before[level] = s.head
		}
	}
	return next
}

func (s *skipList) less(n *skipNode, key []byte, seq uint64) bool {
	c := bytes.Compare(s.image.key(n.rec), key)
	return c < 0 || c == 0 && n.seq > seq
}

func (s *skipList) Get(key []byte, maxSeq uint64) (v Version, ok bool) {
	ref := s.find(key, window(key, 0), maxSeq, nil, nil)
	if ref == 0 {
		return Version{}, false
	}
	n := s.node(ref)
	v = s.image.version(n.rec, n.seq)
	return v, bytes.Equal(v.Key, key)
}

// scan calls f for every version, in order or backwards.
func (s *skipList) scan(reverse bool, f func(Version)) {
	if reverse {
		for ref := s.end.Load(); ref != s.head; {
			n := s.node(ref)
			f(s.image.version(n.rec, n.seq))
			ref = atomic.LoadUint32(&n.prev)
		}
		return
	}
	for ref := atomic.LoadUint32(s.node(s.head).link(0)); ref != 0; {
		n := s.node(ref)
		f(s.image.version(n.rec, n.seq))
		ref = atomic.LoadUint32(n.link(0))
	}
}

// lockedTree is a B+ tree with wide nodes, sorted in place, behind a lock.
type lockedTree struct {
	image *Image
	mu    sync.RWMutex
	nodes []*wide // by number; a slice of pointers, the nodes have none
	root  int32
	last  int32
	max   []byte
}

const wideFan = 64

type wide struct {
	n          int32
	leaf       bool
	prev, next int32
	prefix     [wideFan]uint64
	rec        [wideFan]Addr
	seq        [wideFan]uint64
	child      [wideFan]int32
}

func newLockedTree(im *Image) *lockedTree {
	t := &lockedTree{image: im, nodes: []*wide{nil, {leaf: true}}, root: 1, last: 1}
	return t
}

func (t *lockedTree) Bytes() int64 {
	return int64(len(t.nodes)-1) * int64(unsafe.Sizeof(wide{}))
}

func (t *lockedTree) search(n *wide, from int, key []byte, w, seq uint64) int {
	lo, hi := from, int(n.n)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		less := n.prefix[m] < w
		if n.prefix[m] == w {
			c := bytes.Compare(t.image.key(n.rec[m]), key)
			less = c < 0 || c == 0 && n.seq[m] > seq
		}
		if less {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

func (n *wide) insert(at int, it item) {
	copy(n.prefix[at+1:n.n+1], n.prefix[at:n.n])
	copy(n.rec[at+1:n.n+1], n.rec[at:n.n])
	copy(n.seq[at+1:n.n+1], n.seq[at:n.n])
	if !n.leaf {
		copy(n.child[at+1:n.n+1], n.child[at:n.n])
	}
	n.prefix[at], n.rec[at], n.seq[at], n.child[at] = it.prefix, it.rec, it.seq, int32(it.child)
	n.n++
}

func (t *lockedTree) Add(rec Addr, key []byte, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	it := item{prefix: window(key, 0), rec: rec, seq: seq}
	ascending := bytes.Compare(key, t.max) > 0
	if ascending {
		t.max = key
		if l := t.nodes[t.last]; l.n < wideFan {
			l.insert(int(l.n), it)
			return
		}
	}
	if sep, right := t.add(t.root, it, key, ascending); right != 0 {
		first := sep
		first.child, sep.child = uint32(t.root), uint32(right)
		root := &wide{}
		root.insert(0, first)
		root.insert(1, sep)
		t.nodes = append(t.nodes, root)
		t.root = int32(len(t.nodes) - 1)
	}
}

// add inserts it below ref; where that node is split, it returns the new right one with its bound.
func (t *lockedTree) add(ref int32, it item, key []byte, ascending bool) (item, int32) {
	n := t.nodes[ref]
	at := t.search(n, b2i(!n.leaf), key, it.prefix, it.seq)
	if !n.leaf {
		sep, right := t.add(n.child[at-1], it, key, ascending)
		if right == 0 {
			return item{}, 0
		}
		it = sep
		it.child = uint32(right)
	}
	if n.n < wideFan {
		n.insert(at, it)
		return item{}, 0
	}
	m := wideFan / 2
	if ascending {
		m = wideFan
	}
	r := &wide{leaf: n.leaf, prev: ref, next: n.next}
	t.nodes = append(t.nodes, r)
	right := int32(len(t.nodes) - 1)
	if n.leaf {
		if n.next != 0 {
			t.nodes[n.next].prev = right
		} else {
			t.last = right
		}
		n.next = right
	}
	for i := m; i < wideFan; i++ {
		r.insert(i-m, item{n.prefix[i], n.rec[i], n.seq[i], uint32(n.child[i])})
	}
	n.n = int32(m)
	if at <= m && m < wideFan {
		n.insert(at, it)
	} else {
		r.insert(at-m, it)
	}
	return item{r.prefix[0], r.rec[0], r.seq[0], 0}, right
}

func (t *lockedTree) Get(key []byte, maxSeq uint64) (v Version, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	w := window(key, 0)
	n := t.nodes[t.root]
	for !n.leaf {
		n = t.nodes[n.child[t.search(n, 1, key, w, maxSeq)-1]]
	}
	at := t.search(n, 0, key, w, maxSeq)
	if at == int(n.n) {
		if n.next == 0 {
			return Version{}, false
		}
		n, at = t.nodes[n.next], 0
	}
	v = t.image.version(n.rec[at], n.seq[at])
	return v, bytes.Equal(v.Key, key)
}

func (t *lockedTree) scan(reverse bool, f func(Version)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n := t.nodes[t.root]
	for !n.leaf {
		if reverse {
			n = t.nodes[n.child[n.n-1]]
		} else {
			n = t.nodes[n.child[0]]
		}
	}
	for {
		for i := range n.n {
			if reverse {
				i = n.n - 1 - i
			}
			f(t.image.version(n.rec[i], n.seq[i]))
		}
		next := n.next
		if reverse {
			next = n.prev
		}
		if next == 0 {
			return
		}
		n = t.nodes[next]
	}
}

// scan calls f for the newest version of every key.
func (t *Table) scan(reverse bool, f func(Version)) {
	it := t.Iter(math.MaxUint64)
	if reverse {
		for on := it.Last(); on; on = it.Prev() {
			f(it.Version())
		}
		return
	}
	for on := it.First(); on; on = it.Next() {
		f(it.Version())
	}
}

// rival is what the designs have in common.
type rival interface {
	Add(rec Addr, key []byte, seq uint64)
	Get(key []byte, maxSeq uint64) (Version, bool)
	Bytes() int64
	scan(reverse bool, f func(Version))
}

var rivals = []struct {
	name string
	new  func(*Image) rival
}{
	{"table", func(im *Image) rival { return New(im) }},
	{"skiplist", func(im *Image) rival { return newSkipList(im) }},
	{"locked", func(im *Image) rival { return newLockedTree(im) }},
}

func TestRivals(t *testing.T) {
	for _, design := range rivals {
		for _, kind := range keyKinds {
			if kind.next == nil || kind.name == "long" {
				continue
			}
			r := rand.New(rand.NewPCG(3, 3))
			im := NewImage(NewPool(0, 0))
			table := design.new(im)
			seen := map[string]bool{}
			var m model
			for seq := uint64(0); seq < 3000; seq++ {
				key := kind.next(r, int(seq))
				if seen[string(key)] {
					continue // scan is for unique keys
				}
				seen[string(key)] = true
				rec, imageKey := put(im, 1, key, key)
				table.Add(rec, imageKey, seq)
				m.add(Version{Key: key, Value: key, Seq: seq, Kind: 1})
			}
			want := m.at(math.MaxUint64)
			for _, v := range want {
				if got, ok := table.Get(v.Key, math.MaxUint64); !ok || !equal(got, v) {
					t.Fatalf("%s, %s: Get(%q) is %v", design.name, kind.name, v.Key, ok)
				}
				if _, ok := table.Get(append(bytes.Clone(v.Key), 1, 2, 3), math.MaxUint64); ok && !seen[string(v.Key)+"\x01\x02\x03"] {
					t.Fatalf("%s, %s: a key that is not there was found", design.name, kind.name)
				}
			}
			for _, reverse := range []bool{false, true} {
				if reverse {
					slices.Reverse(want)
				}
				var got []Version
				table.scan(reverse, func(v Version) { got = append(got, v) })
				if !slices.EqualFunc(got, want, equal) {
					t.Fatalf("%s, %s: scan, reverse %v: wrong", design.name, kind.name, reverse)
				}
			}
		}
	}
}
