// Package memtable is the ordered index over the part of the log that is still in memory.
//
// A batch is copied once, into an [Image]: the very bytes that are then written to the log. A
// [Table] orders the versions in it; its nodes name records by their place in the image and copy
// neither keys nor values. Records are those of holdfast.Batch.
//
// The table is a B+ tree without Go pointers in its nodes, so that the garbage collector need not
// look into it. One goroutine adds; readers take no lock and never wait. Three rules make that work:
//
//   - What a reader can reach is never overwritten. An insertion fills a free slot of a node and
//     then publishes it with one store of the node's perm.
//   - A full node is replaced by new ones, and stays intact for those that are in it. Its memory is
//     given back with the table's.
//   - The leaves that replace another are linked before the tree leads to them, and a reader that
//     finds all of a leaf before its key looks into the next one. So a reader with an old view of the
//     inner nodes, which can only lead it too far left, still arrives.
package memtable

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// Table is an ordered set of versions: by key ascending, then by sequence number descending. One
// goroutine at a time adds; any number may read at the same time.
//
// A reader that asks for the state at maxSeq sees every version up to it that was added before the
// reader's call (for [Iter]: before Iter was called). A maxSeq above what was added then shows later
// versions too, some or all.
type Table struct {
	image *Image

	root   atomic.Uint64 // height<<32 | number of a leaf (height 0) or an inner node
	leaves atomic.Pointer[[]*leafSlab]
	inners atomic.Pointer[[]*innerSlab]
	first  atomic.Uint32 // the first leaf
	last   atomic.Uint32
	bytes  atomic.Int64

	// The writer's.
	versions   int
	nextLeaf   uint32 // number of the next leaf to be allocated
	nextInner  uint32
	tail       *leaf  // the last leaf
	maxKey     []byte // the greatest key; nil when there is none
	ends       [mostEnds]end
	nextEnd    int    // that is used again next
	misses     int    // searches of ends in vain since the last that was not
	pass       int    // so many keys are not looked up in ends
	path       []step // of the insertion that is going on, from the root
	build      [fan + 1]item
	buildInner [fan + 1]item
}

// mostEnds is how many streams of ascending keys below the greatest are followed at a time.
const mostEnds = 4

// end is where a key was added behind all others of a leaf, and another leaf follows. A key between the two belongs
// there too, and needs no search: stores have several tables, and keys that ascend in each of them.
//
// It stays right as long as nothing else is added to the leaf, or takes its place. The leaf behind begins with the same
// key for ever: but for the first leaf of all, no key is added before the first of a leaf.
type end struct {
	leaf        *leaf  // nil: none
	last, bound []byte // the last key of the leaf, and the first of the one behind
}

// step is one inner node of a path, and the position of the child that it goes on to.
type step struct {
	ref uint32
	pos int
}

// Version is one version of a key. The slices are the image's: valid until it is released, and not
// to be changed.
type Version struct {
	Seq        uint64
	Kind       holdfast.Kind // KindSet or KindDelete
	Key, Value []byte        // no Value when Kind is KindDelete
	ValueAddr  Addr          // where Value begins in the image; 0 when there is no Value

	// InLog says that the value is not in the image, and Pointer, which only the owner understands, where it is.
	InLog   bool
	Pointer Pointer
}

// Pointer says where a value is that is not in the image, and what it must be. The table only keeps it.
type Pointer struct {
	At  uint64
	Len uint32
	Sum uint32
}

// kindPointer is the kind of a record that has a value pointer instead of the value:
//
//	kind (1), key (string), place (8), length (4), sum (4)
const kindPointer = 0x80 | byte(holdfast.KindSet)

// AddPointer adds version seq of key like [Table.Add], with a value that is kept elsewhere. The key is copied.
func (t *Table) AddPointer(key []byte, p Pointer, seq uint64) {
	addr, b := t.image.Reserve(1 + uvarintLen(len(key)) + len(key) + 16)
	b[0] = kindPointer
	at := 1 + binary.PutUvarint(b[1:], uint64(len(key)))
	own := b[at : at+len(key) : at+len(key)]
	copy(own, key)
	at += len(key)
	binary.LittleEndian.PutUint64(b[at:], p.At)
	binary.LittleEndian.PutUint32(b[at+8:], p.Len)
	binary.LittleEndian.PutUint32(b[at+12:], p.Sum)
	t.Add(addr, own, seq)
}

// uvarintLen is how many bytes a length takes: one for every seven bits.
func uvarintLen(n int) int { return (bits.Len(uint(n)|1) + 6) / 7 }

// New returns an empty table over records in image. Its nodes come from image's pool.
func New(image *Image) *Table {
	t := &Table{image: image}
	t.reset()

	return t
}

// reset makes the table an empty one. No reader may be in it.
func (t *Table) reset() {
	t.leaves.Store(new([]*leafSlab))
	t.inners.Store(new([]*innerSlab))
	t.bytes.Store(0)
	t.versions, t.nextLeaf, t.nextInner, t.tail, t.maxKey = 0, 1, 0, nil, nil
	t.ends, t.nextEnd, t.misses, t.pass = [mostEnds]end{}, 0, 0, 0
	t.root.Store(0) // leaf 0 is no leaf: the table is empty
	t.first.Store(0)
	t.last.Store(0)
}

// Fits reports whether n more versions can be added, whatever their keys: whether there are numbers
// for the nodes. An empty table has room for two thousand million. It may be called where Add may be.
func (t *Table) Fits(n int) bool {
	// An insertion allocates at most two leaves, and on average at most two inner nodes beyond one
	// for each that is there already.
	return n >= 0 && 2*int64(n)+2*int64(max(t.nextLeaf, t.nextInner)) < 1<<32
}

// Len is the number of versions. It may be called where Add may be.
func (t *Table) Len() int { return t.versions }

// Bytes is the memory of the nodes. It may be called from any goroutine.
func (t *Table) Bytes() int64 { return t.bytes.Load() }

// Release gives the nodes back to the pool and empties the table. No goroutine may use the table or an
// iterator of it at the same time, and no iterator of it afterwards. The image is left alone.
func (t *Table) Release() {
	t.image.pool.putNodes(*t.leaves.Load(), *t.inners.Load())
	t.reset()
}

// Add adds the version with number seq of key, whose record (KindSet or KindDelete) is at rec; key
// is the key in the image, not a copy. seq must be greater than in all calls before, and Fits must
// hold.
func (t *Table) Add(rec Addr, key []byte, seq uint64) {
	t.versions++
	if bytes.Compare(key, t.maxKey) > 0 {
		// The common case of ascending keys: the entry goes to the end of the last leaf, without a search from the root.
		old := t.maxKey
		t.maxKey = key
		if t.tail != nil && t.tail.extend(rec, key, seq, old) {
			return
		}
	} else if t.pass > 0 {
		t.pass--
	} else if e := t.endFor(key); e == nil {
		// Where keys come in any order, looking costs a tenth of what adding does. So it is done for fewer keys, the longer
		// it was in vain.
		t.misses = min(t.misses+1, mostMisses)
		t.pass = 1<<(t.misses/mostEnds) - 1
	} else {
		t.misses = 0
		if e.leaf.extend(rec, key, seq, e.last) {
			e.last = key
			return
		}
	}
	t.insert(rec, key, seq)
}

// mostMisses makes every 64th key the last to be looked up.
const mostMisses = 6 * mostEnds

// endFor returns the end that key goes to, nil if none is known.
func (t *Table) endFor(key []byte) *end {
	for i := range t.ends {
		e := &t.ends[i]
		if e.leaf != nil && bytes.Compare(key, e.last) > 0 && bytes.Compare(key, e.bound) < 0 {
			return e
		}
	}

	return nil
}

// extend adds an entry to the end of a leaf whose last key is below it, if there is a free slot, and the key begins as
// all others of the leaf do.
func (l *leaf) extend(rec Addr, key []byte, seq uint64, last []byte) bool {
	p, skip := perm(l.perm.Load()), int(l.skip)
	n := p.count()
	if n == fan || skip > 0 && !shares(key, last, skip) {
		return false
	}
	l.prefix[n], l.rec[n], l.seq[n] = window(key, skip), rec, seq
	l.perm.Store(uint64(p.insert(n, n)))

	return true
}

// follow notes that a key was added at the end of l, which others with that number follow. The last leaf needs no note.
func (t *Table) follow(l *leaf, key []byte, after uint32) {
	if after == 0 || t.pass > mostEnds { // it would be forgotten before it is looked for
		return
	}
	next := t.leaf(after)
	t.ends[t.nextEnd] = end{l, key, t.image.key(next.rec[perm(next.perm.Load()).slot(0)])}
	t.nextEnd = (t.nextEnd + 1) % mostEnds
}

// unfollow forgets the end of a leaf, and has its place used next.
func (t *Table) unfollow(l *leaf) {
	for i := range t.ends {
		if t.ends[i].leaf == l {
			t.ends[i], t.nextEnd = end{}, i
		}
	}
}

// insert adds a version anywhere.
func (t *Table) insert(rec Addr, key []byte, seq uint64) {
	new := item{rec: rec, seq: seq}
	if t.tail == nil {
		ref, _ := t.newLeaf([]item{new}, 0)
		t.link(0, ref, ref, 0)
		t.root.Store(uint64(ref))

		return
	}

	// Otherwise the leaf is searched for, and gets the entry in a free slot if its keys begin as this one does.
	g := target{key: key, seq: seq}
	ref := t.descend(&g)

	l := t.leaf(ref)
	p := perm(l.perm.Load())
	pos, n, skip := t.locate(&l.node, p, 0, &g), p.count(), int(l.skip)
	strange := skip > g.proven || skip > len(key) // the key does not begin as all others here
	new.prefix = window(key, skip)
	t.unfollow(l)
	if n < fan && !strange {
		l.set(n, new)
		l.perm.Store(uint64(p.insert(pos, n)))
		if pos == n {
			t.follow(l, key, l.next.Load())
		}

		return
	}

	// The leaf is full, or the key is strange to it. What replaces it is linked first, and then the tree leads to it: see
	// the package comment. Where keys ascend or descend the full leaf stays, and the key begins a new one, so that leaves
	// are full and not half empty.
	before, after := l.prev.Load(), l.next.Load()
	if !strange {
		switch {
		case pos == n && (after == 0 || p.slot(n-1) == n-1): // ascending: leave the full leaf as it is
			b, leaf := t.newLeaf([]item{new}, t.guess(l.rec[p.slot(0)], rec))
			t.link(ref, b, b, after)
			t.replace(ref, new, b)
			t.follow(leaf, key, after)

			return
		case pos == 0 && (before == 0 || p.slot(0) == n-1): // descending: the same
			a, _ := t.newLeaf([]item{new}, t.guess(rec, l.rec[p.slot(n-1)]))
			t.link(before, a, a, ref)
			t.replace(a, l.item(p.slot(0)), ref)

			return
		}
	}

	// In any other case the entries are written once more, with the new one among them, into one leaf or two.
	items := t.build[:n+1]
	for i := range n {
		items[i+b2i(i >= pos)] = l.item(p.slot(i))
	}
	items[pos] = new
	if strange {
		skip = -1
	}
	if n < fan {
		a, _ := t.newLeaf(items, skip)
		t.link(before, a, a, after)
		t.setChild(a)

		return
	}
	m := (n + 1) / 2
	if !strange {
		switch { // where the last key was inserted next to this one, the next ones will be too
		case pos > 0 && pos < n && p.slot(pos-1) == n-1:
			m = pos + 1
		case pos > 0 && pos < n && p.slot(pos) == n-1:
			m = pos
		}
	}
	a, left := t.newLeaf(items[:m], skip)
	b, right := t.newLeaf(items[m:], skip)
	left.next.Store(b)
	right.prev.Store(a)
	t.link(before, a, b, after)
	t.replace(a, items[m], b)
}

// link makes a..b, linked to one another, the leaves between before and after.
func (t *Table) link(before, a, b, after uint32) {
	left, right := t.leaf(a), t.leaf(b)

	// A reader goes forward by next. So the new leaves are complete before the one before them leads there.
	left.prev.Store(before)
	right.next.Store(after)
	if after == 0 {
		t.tail = right
		t.last.Store(b)
	} else {
		t.leaf(after).prev.Store(b)
	}
	if before == 0 {
		t.first.Store(a)
	} else {
		t.leaf(before).next.Store(a)
	}
}

// setChild makes ref what the path leads to.
func (t *Table) setChild(ref uint32) {
	if len(t.path) == 0 {
		t.root.Store(t.root.Load()>>32<<32 | uint64(ref))
		return
	}
	s := t.path[len(t.path)-1]
	in := t.inner(s.ref)
	in.child[perm(in.perm.Load()).slot(s.pos)].Store(ref)
}

// replace makes a what the path leads to, and b, whose lower bound is sep, its right neighbour.
func (t *Table) replace(a uint32, sep item, b uint32) {
	for {
		if len(t.path) == 0 {
			l := t.leaf(t.first.Load())
			first := l.item(perm(l.perm.Load()).slot(0))
			first.child, sep.child = a, b
			ref := t.newInner([]item{first, sep}, -1)
			t.root.Store((t.root.Load()>>32+1)<<32 | uint64(ref))

			return
		}

		// An inner node that is full is divided in its turn, and the loop goes on with the node above.
		s := t.path[len(t.path)-1]
		in := t.inner(s.ref)
		p := perm(in.perm.Load())
		n, pos, skip, key := p.count(), s.pos+1, int(in.skip), t.image.key(sep.rec)
		strange := skip > 0 && !shares(key, t.image.key(in.rec[p.slot(0)]), skip)
		sep.child, sep.prefix = b, window(key, skip)
		if n < fan && !strange {
			in.set(n, sep)
			in.child[n].Store(b)
			in.perm.Store(uint64(p.insert(pos, n)))
			t.setChild(a)

			return
		}
		if pos == n && !strange && p.slot(n-1) == n-1 { // ascending
			t.setChild(a)
			a, b = s.ref, t.newInner([]item{sep}, t.guess(in.rec[p.slot(0)], sep.rec))
			t.path = t.path[:len(t.path)-1]
			continue
		}

		items := t.buildInner[:n+1]
		for i := range n {
			slot := p.slot(i)
			items[i+b2i(i >= pos)] = in.item(slot)
			items[i+b2i(i >= pos)].child = in.child[slot].Load()
		}
		items[s.pos].child, items[pos] = a, sep
		if strange {
			skip = -1
		}
		t.path = t.path[:len(t.path)-1]
		if n < fan {
			t.setChild(t.newInner(items, skip))
			return
		}
		m := (n + 1) / 2
		a, b, sep = t.newInner(items[:m], skip), t.newInner(items[m:], skip), items[m]
	}
}

// b2i is 1 for true. Entries from the new one's position on move up by one.
func b2i(b bool) int {
	if b {
		return 1
	}

	return 0
}

// slack is how many bytes before the first difference a node's window begins, so that neighbours to
// come still fit in.
const slack = 3

// guess is the skip of a node that begins with the record at b, after one that began with a.
func (t *Table) guess(a, b Addr) int {
	return max(0, lcp(t.image.key(a), t.image.key(b))-slack)
}

// fill writes items into the empty node n. Their prefixes are those at skip; with a negative skip
// they have none yet.
func (t *Table) fill(n *node, items []item, skip int) {
	one, last := min(1, len(items)-1), len(items)-1 // an inner node's first bound may be anything
	if skip < 0 || last > 0 && min(common(items[0].prefix, items[last].prefix),
		common(items[one].prefix, items[last].prefix)) >= slack+2 {
		// If the windows of all entries begin alike they tell little apart, so they are moved to the right, to where the keys
		// begin to differ.
		end := t.image.key(items[last].rec)
		better := min(lcp(t.image.key(items[0].rec), end), lcp(t.image.key(items[one].rec), end)) - slack
		if better = max(better, skip, 0); better != skip {
			skip = better
			for i := range items {
				items[i].prefix = window(t.image.key(items[i].rec), skip)
			}
		}
	}
	if last == 0 {
		items[0].prefix = window(t.image.key(items[0].rec), skip)
	}

	n.skip = uint16(skip)
	for i, it := range items {
		n.set(i, it)
	}
	n.perm.Store(uint64(identity | perm(len(items))))
}

// fewSlabs is how many slabs of leaves a small table has, up to 800 KB, and as much of records: see [largePages].
const fewSlabs = 8

// newLeaf makes a leaf of items, which is not linked yet. Only the writer calls it.
func (t *Table) newLeaf(items []item, skip int) (uint32, *leaf) {
	ref := t.nextLeaf
	if slabs := *t.leaves.Load(); int(ref>>leafShift) == len(slabs) {
		slabs = append(slabs, t.image.pool.leafSlab(len(slabs) >= fewSlabs))
		t.leaves.Store(&slabs)
		t.bytes.Add(leafSlabSize)
	}

	// The slab is stored before any node leads to the leaf.
	t.nextLeaf++
	l := t.leaf(ref)
	l.next.Store(0)
	l.prev.Store(0)
	t.fill(&l.node, items, skip)

	return ref, l
}

// newInner makes an inner node of items with their children.
func (t *Table) newInner(items []item, skip int) uint32 {
	ref := t.nextInner
	if slabs := *t.inners.Load(); int(ref>>innerShift) == len(slabs) {
		slabs = append(slabs, t.image.pool.innerSlab())
		t.inners.Store(&slabs)
		t.bytes.Add(innerSlabSize)
	}
	t.nextInner++

	in := t.inner(ref)
	for i, it := range items {
		in.child[i].Store(it.child)
	}
	t.fill(&in.node, items, skip)

	return ref
}

// leaf is that of a number. The list of slabs only grows, so any number that was ever seen is in it.
func (t *Table) leaf(ref uint32) *leaf {
	return &(*t.leaves.Load())[ref>>leafShift][ref&(1<<leafShift-1)]
}

// inner is leaf for inner nodes.
func (t *Table) inner(ref uint32) *inner {
	return &(*t.inners.Load())[ref>>innerShift][ref&(1<<innerShift-1)]
}

// target is a place in the order that is looked for: that of (key, seq).
type target struct {
	key    []byte
	seq    uint64
	window uint64
	skip   int // where window begins
	proven int // so many bytes are known to be the same in key and in every key of the next node
}

// descend goes from the root to the leaf where g belongs, and leaves the path in t.path.
func (t *Table) descend(g *target) uint32 {
	g.window = window(g.key, 0)
	t.path = t.path[:0]
	root := t.root.Load()
	ref := uint32(root)

	for h := root >> 32; h > 0; h-- {
		in := t.inner(ref)
		p := perm(in.perm.Load())
		i := t.route(in, p, g)
		t.path = append(t.path, step{ref, i})
		ref = in.child[p.slot(i)].Load()
	}

	return ref
}

// find returns the leaf that has the first version not before g, with the perm that shows it there,
// and its position; or the last leaf and the position after its end; or nil when the table is
// empty.
func (t *Table) find(g *target) (*leaf, perm, int) {
	g.window = window(g.key, 0)
	root := t.root.Load()
	ref := uint32(root)

	for h := root >> 32; h > 0; h-- {
		in := t.inner(ref)
		p := perm(in.perm.Load())
		ref = in.child[p.slot(t.route(in, p, g))].Load()
	}
	if ref == 0 {
		return nil, 0, 0
	}

	return t.arrive(ref, g)
}

// arrive is find from a leaf on that is the right one, or to the left of it.
func (t *Table) arrive(ref uint32, g *target) (*leaf, perm, int) {
	for {
		l := t.leaf(ref)
		p := perm(l.perm.Load())

		// An inner node that was read before a split leads too far left, never too far right: the entry is in this leaf or
		// behind it.
		pos := t.locate(&l.node, p, 0, g)
		if pos < p.count() {
			return l, p, pos
		}
		if ref = l.next.Load(); ref == 0 {
			return l, p, pos
		}
		g.proven = 0
	}
}

// route returns the position of the child of in where g belongs.
func (t *Table) route(in *inner, p perm, g *target) int {
	skip, proven := int(in.skip), g.proven
	i := t.locate(&in.node, p, 1, g) - 1
	if i > 0 && i+1 < p.count() && skip <= g.proven {
		// Between two bounds, keys have in common what the bounds have.
		proven = max(proven, skip+common(in.prefix[p.slot(i)], in.prefix[p.slot(i+1)]))
	}
	g.proven = proven // beyond the outer bounds, keys need not even share in.skip

	return i
}

// locate returns the first position of n, from lo on, whose entry is not before g.
func (t *Table) locate(n *node, p perm, lo int, g *target) int {
	hi, skip := p.count(), int(n.skip)
	if skip > g.proven {
		// The windows begin behind skip bytes. If it is not known that the key begins as all here do, that is looked at once,
		// and may decide everything.
		switch bytes.Compare(g.key[:min(skip, len(g.key))], t.image.key(n.rec[p.slot(0)])[:skip]) {
		case -1:
			return lo
		case 1:
			return hi
		}
		g.proven = skip
	}
	if skip != g.skip {
		g.window, g.skip = window(g.key, skip), skip
	}

	for lo < hi {
		m := int(uint(lo+hi) / 2)
		slot := p.slot(m)

		// The eight bytes in the node decide mostly; the record in the image, a cache miss, is asked only if they are equal.
		prefix := n.prefix[slot]
		if prefix < g.window || prefix == g.window && t.before(n, slot, g) {
			lo = m + 1
		} else {
			hi = m
		}
	}

	return lo
}

// before reports whether the entry in slot, whose prefix is g's window, is before g.
func (t *Table) before(n *node, slot int, g *target) bool {
	same := min(g.skip, len(g.key))
	c := bytes.Compare(t.image.key(n.rec[slot])[same:], g.key[same:])

	return c < 0 || c == 0 && n.seq[slot] > g.seq
}

// Get returns the newest version of key with a number up to maxSeq, KindDelete included.
func (t *Table) Get(key []byte, maxSeq uint64) (v Version, ok bool) {
	g := target{key: key, seq: maxSeq}
	l, p, pos := t.find(&g)
	if l == nil || pos == p.count() {
		return Version{}, false
	}
	slot := p.slot(pos)

	if l.prefix[slot] != g.window { // or the key does not begin as those in l do, which comes to the same
		return Version{}, false
	}
	v = t.image.version(l.rec[slot], l.seq[slot])
	if !bytes.Equal(v.Key, key) {
		return Version{}, false
	}

	return v, true
}

// key is the key of the record at rec.
func (im *Image) key(rec Addr) []byte {
	b := im.from(rec)
	n, at := int(b[1]), 2
	if n >= 0x80 {
		n, at = long(b[1:], 1)
	}

	return b[at : at+n : at+n]
}

// long decodes the length of several bytes that b begins with; what it says begins at the returned
// offset, b's own being at.
func long(b []byte, at int) (n, next int) {
	u, w := binary.Uvarint(b)
	return int(u), at + w
}

// version decodes the record at rec. It copies nothing.
func (im *Image) version(rec Addr, seq uint64) Version {
	b := im.from(rec)
	n, at := int(b[1]), 2
	if n >= 0x80 {
		n, at = long(b[1:], 1)
	}
	v := Version{Seq: seq, Kind: holdfast.Kind(b[0]), Key: b[at : at+n : at+n]}
	if v.Kind == holdfast.KindDelete {
		return v
	}
	at += n
	if b[0] == kindPointer {
		v.Kind, v.InLog = holdfast.KindSet, true
		v.Pointer = Pointer{binary.LittleEndian.Uint64(b[at:]), binary.LittleEndian.Uint32(b[at+8:]),
			binary.LittleEndian.Uint32(b[at+12:])}

		return v
	}
	n = int(b[at])
	if at++; n >= 0x80 {
		n, at = long(b[at-1:], at-1)
	}
	v.Value, v.ValueAddr = b[at:at+n:at+n], rec+Addr(at)

	return v
}
