package memtable

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
)

var seed = flag.Uint64("memtable.seed", 1, "first seed of the random histories")

// put writes one record into im, as a batch of one operation encodes it.
func put(im *Image, kind holdfast.Kind, key, value []byte) (rec Addr, imageKey []byte) {
	var b holdfast.Batch
	if kind == holdfast.KindDelete {
		b.Delete(key)
	} else {
		b.Set(key, value)
	}
	if b.Err() != nil {
		panic(b.Err())
	}
	rec, dst := im.Reserve(b.Size())
	copy(dst, b.Bytes())
	_, w := binary.Uvarint(dst[1:])
	return rec, im.At(rec+Addr(1+w), len(key))
}

// modelKey is one key of the model, with its versions, oldest first.
type modelKey struct {
	key      []byte
	versions []Version
}

type model struct{ keys []modelKey }

func (m *model) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(m.keys, key, func(k modelKey, key []byte) int { return bytes.Compare(k.key, key) })
}

func (m *model) add(v Version) {
	i, ok := m.find(v.Key)
	if !ok {
		m.keys = slices.Insert(m.keys, i, modelKey{key: v.Key})
	}
	m.keys[i].versions = append(m.keys[i].versions, v)
}

func (k modelKey) at(maxSeq uint64) (Version, bool) {
	for _, v := range slices.Backward(k.versions) {
		if v.Seq <= maxSeq {
			return v, true
		}
	}
	return Version{}, false
}

// at is what an iterator at maxSeq must show.
func (m *model) at(maxSeq uint64) (list []Version) {
	for _, k := range m.keys {
		if v, ok := k.at(maxSeq); ok {
			list = append(list, v)
		}
	}
	return list
}

func equal(a, b Version) bool {
	return a.Seq == b.Seq && a.Kind == b.Kind && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) &&
		a.InLog == b.InLog && a.Pointer == b.Pointer
}

// edgeKey is a key on the left or the right of all that begin with a letter between a and z. Past its
// first byte it would stand on the other side.
func edgeKey(left bool, i int) []byte {
	if left {
		return fmt.Appendf(nil, "a-zzzzzzzzzzzzzzzzzz/%02x", i)
	}
	return fmt.Appendf(nil, "z-++++++++++++++++++/%02x", i)
}

// keyKinds make keys of many shapes. They return the next key; some go on from the one before.
var keyKinds = []struct {
	name string
	next func(r *rand.Rand, i int) []byte
}{
	{"one-byte", func(r *rand.Rand, _ int) []byte { return []byte{byte(r.IntN(256))} }},
	{"zeros", func(r *rand.Rand, _ int) []byte {
		key := append([]byte("x"), make([]byte, r.IntN(24))...)
		if r.IntN(2) == 0 {
			key[len(key)-1] = byte(r.IntN(3))
		}
		return key
	}},
	{"short", func(r *rand.Rand, _ int) []byte {
		key := make([]byte, 1+r.IntN(12))
		for i := range key {
			key[i] = byte(r.IntN(3))
		}
		return key
	}},
	{"uniform", func(r *rand.Rand, _ int) []byte {
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.Uint64()), r.Uint64())
	}},
	{"ascending", func(_ *rand.Rand, i int) []byte { return fmt.Appendf(nil, "event/%012d", i*7) }},
	{"descending", func(_ *rand.Rand, i int) []byte { return fmt.Appendf(nil, "event/%012d", 1<<30-i) }},
	{"streams", func(r *rand.Rand, i int) []byte { return fmt.Appendf(nil, "stream-%03d/position/%08d", r.IntN(20), i) }},
	{"tables", func(r *rand.Rand, i int) []byte { // keys ascend in each of several tables; a few keys lie behind all
		if i == 0 || r.IntN(100) == 0 {
			return fmt.Appendf(nil, "z/%d", r.IntN(9))
		}
		return fmt.Appendf(nil, "%c/of/a/store/%08d", 'a'+r.IntN(6), i)
	}},
	{"shared", func(r *rand.Rand, _ int) []byte {
		return fmt.Appendf(nil, "tenant/%d/some/long/common/prefix/%d/%06x", r.IntN(2), r.IntN(9), r.IntN(1<<14))
	}},
	{"hot", func(r *rand.Rand, _ int) []byte { return fmt.Appendf(nil, "a-counter-that-is-hot/%d", r.IntN(3)) }},
	{"carry", func(_ *rand.Rand, i int) []byte { return fmt.Appendf(nil, "carry/%08x", i*4099) }},
	{"nested", func(r *rand.Rand, _ int) []byte { return bytes.Repeat([]byte("ab"), 1+r.IntN(200)) }},
	{"edges", func(r *rand.Rand, i int) []byte { // a big group, then a few keys on either side of it
		if i < 200 || r.IntN(8) > 0 {
			return fmt.Appendf(nil, "middle/of/all/the/keys/%05x", 256+r.IntN(1<<16))
		}
		return edgeKey(r.IntN(2) == 0, r.IntN(40))
	}},
	{"long", func(r *rand.Rand, _ int) []byte {
		key := bytes.Repeat([]byte{'k'}, holdfast.MaxKeySize-r.IntN(3))
		key[[]int{0, 7, 8, 8191, len(key) - 1}[r.IntN(5)]] = byte(r.IntN(256))
		return key
	}},
	{"mixed", nil},
}

func TestModel(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: there is one goroutine")
	}
	pool := NewPool(64<<10, 8<<20, 1<<30) // shared: later tables get used memory
	for _, kind := range keyKinds {
		t.Run(kind.name, func(t *testing.T) {
			for i := range uint64(8) {
				seed, n := *seed+i, []int{10, 60, 400, 3000}[i%4]
				if kind.name == "long" {
					n = min(n, 400)
				}
				next := kind.next
				if next == nil {
					next = func(r *rand.Rand, i int) []byte { return keyKinds[r.IntN(len(keyKinds)-2)].next(r, i) }
				}
				checkModel(t, pool, seed, n, next)
				if t.Failed() {
					t.Fatalf("-memtable.seed=%d, %d versions", seed, n)
				}
			}
		})
	}
}

func checkModel(t *testing.T, pool *Pool, seed uint64, n int, next func(*rand.Rand, int) []byte) {
	r := rand.New(rand.NewPCG(seed, 1))
	im := NewImage(pool)
	table := New(im)
	defer im.Release()
	defer table.Release()
	var m model
	var probes [][]byte
	for i, seq := 0, uint64(r.IntN(2)); i < n; i, seq = i+1, seq+1+r.Uint64N(3) {
		key := next(r, i)
		if len(probes) > 0 && r.IntN(8) == 0 {
			key = probes[r.IntN(len(probes))]
		}
		probes = append(probes, key)
		v := Version{Seq: seq, Kind: holdfast.KindSet, Key: key}
		if r.IntN(5) == 0 {
			v.Kind = holdfast.KindDelete
		} else {
			v.Value = fmt.Appendf(nil, "%0*d", []int{1, 127, 128, 300}[r.IntN(4)], seq)
		}
		if v.Kind == holdfast.KindSet && r.IntN(4) == 0 {
			v.Value, v.InLog, v.Pointer = nil, true, Pointer{r.Uint64(), r.Uint32(), r.Uint32()}
			table.AddPointer(v.Key, v.Pointer, seq)
		} else {
			rec, imageKey := put(im, v.Kind, v.Key, v.Value)
			table.Add(rec, imageKey, seq)
		}
		m.add(v)
		if got, ok := table.Get(key, seq); !ok || !equal(got, v) {
			t.Fatalf("version %d of %.40q: just added, not there", seq, key)
		}
		if i%97 == 0 {
			checkNodes(t, table)
		}
	}
	checkNodes(t, table)
	if table.Len() != n {
		t.Fatalf("Len is %d, want %d", table.Len(), n)
	}
	lastSeq := uint64(0)
	for _, k := range m.keys {
		lastSeq = max(lastSeq, k.versions[len(k.versions)-1].Seq)
	}
	for range 300 { // Get, of keys that are there and of neighbours
		key := bytes.Clone(probes[r.IntN(len(probes))])
		switch r.IntN(6) {
		case 0:
			key = append(key, 0)
		case 1:
			key = key[:r.IntN(len(key)+1)]
		case 2:
			key[r.IntN(len(key))] += byte(1 + r.IntN(255))
		}
		maxSeq := r.Uint64N(lastSeq + 2)
		if r.IntN(4) == 0 {
			maxSeq = math.MaxUint64
		}
		var want Version
		i, found := m.find(key)
		if found {
			want, found = m.keys[i].at(maxSeq)
		}
		got, ok := table.Get(key, maxSeq)
		if ok != found || !equal(got, want) {
			t.Fatalf("Get(%.40q, %d): %v %.80v, want %v %.80v", key, maxSeq, ok, got, found, want)
		}
		if ok && got.Kind == holdfast.KindSet && !got.InLog && !bytes.Equal(im.At(got.ValueAddr, len(got.Value)), got.Value) {
			t.Fatalf("ValueAddr %x of %.40q is not where the value is", got.ValueAddr, key)
		}
	}
	checkArrive(t, r, table, probes)
	for _, maxSeq := range []uint64{0, lastSeq / 3, lastSeq / 2, lastSeq, math.MaxUint64} {
		checkWalk(t, r, table, m.at(maxSeq), maxSeq, probes)
	}
}

// checkArrive lets searches begin where a reader with an old view of the inner nodes begins: in a leaf
// too far left.
func checkArrive(t *testing.T, r *rand.Rand, table *Table, probes [][]byte) {
	t.Helper()
	for range 100 {
		key := probes[r.IntN(len(probes))]
		g := target{key: key, seq: math.MaxUint64}
		wantLeaf, _, wantPos := table.find(&g)
		ref := table.descend(&target{key: key, seq: math.MaxUint64})
		for range 4 {
			g = target{key: key, seq: math.MaxUint64, window: window(key, 0)}
			if l, _, pos := table.arrive(ref, &g); l != wantLeaf || pos != wantPos {
				t.Fatalf("%.40q: a search that begins in leaf %d ends elsewhere", key, ref)
			}
			if before := table.leaf(ref).prev.Load(); before != 0 {
				ref = before
			}
		}
	}
}

// checkWalk compares an iterator with want: a scan each way, then a random walk.
func checkWalk(t *testing.T, r *rand.Rand, table *Table, want []Version, maxSeq uint64, probes [][]byte) {
	t.Helper()
	it := table.Iter(maxSeq)
	at := -1 // position in want
	move := func(name string, got bool) {
		t.Helper()
		on := at >= 0 && at < len(want)
		if got != on || it.Valid() != on {
			t.Fatalf("at %d: %s is %v at %d of %d", maxSeq, name, got, at, len(want))
		}
		if on && !equal(it.Version(), want[at]) {
			t.Fatalf("at %d: %s is at %.40q version %d, want %.40q version %d", maxSeq, name, it.Version().Key,
				it.Version().Seq, want[at].Key, want[at].Seq)
		}
		if on && (!bytes.Equal(it.Key(), want[at].Key) || it.Seq() != want[at].Seq) {
			t.Fatalf("at %d: %s: Key and Seq differ from Version", maxSeq, name)
		}
	}
	forward := func() { at = min(at+1, len(want)); move("Next", it.Next()) }
	back := func() { at = max(at-1, -1); move("Prev", it.Prev()) }
	for range len(want) + 2 {
		forward()
	}
	for range len(want) + 2 {
		back()
	}
	for range 300 {
		seek := func(key []byte) int {
			i, _ := slices.BinarySearchFunc(want, key, func(v Version, key []byte) int { return bytes.Compare(v.Key, key) })
			return i
		}
		key := bytes.Clone(probes[r.IntN(len(probes))])
		if r.IntN(2) == 0 {
			key[r.IntN(len(key))] += byte(1 + r.IntN(255))
		} else if r.IntN(4) == 0 {
			key = key[:r.IntN(len(key)+1)]
		}
		switch r.IntN(10) {
		case 0:
			at = 0
			move("First", it.First())
		case 1:
			at = len(want) - 1
			move("Last", it.Last())
		case 2, 3:
			at = seek(key)
			move("SeekGE", it.SeekGE(key))
		case 4, 5:
			at = seek(key) - 1
			move("SeekLT", it.SeekLT(key))
		case 6, 7:
			for range 1 + r.IntN(20) {
				forward()
			}
		default:
			for range 1 + r.IntN(20) {
				back()
			}
		}
	}
}

// checkNodes checks what must hold of the nodes while nobody adds.
func checkNodes(t *testing.T, table *Table) {
	t.Helper()
	var found []uint32 // leaves, in order
	check := func(n *node, from int, what string) {
		p := perm(n.perm.Load())
		if p.count() < 1 || p.count() > fan {
			t.Fatalf("%s has %d entries", what, p.count())
		}
		first := table.image.key(n.rec[p.slot(0)])
		for i := range p.count() {
			s := p.slot(i)
			key := table.image.key(n.rec[s])
			if !shares(key, first, int(n.skip)) {
				t.Fatalf("%s: %.40q does not share %d bytes", what, key, n.skip)
			}
			if n.prefix[s] != window(key, int(n.skip)) {
				t.Fatalf("%s: the prefix of %.40q is wrong", what, key)
			}
			if i <= from {
				continue
			}
			b := p.slot(i - 1)
			if c := bytes.Compare(table.image.key(n.rec[b]), key); c > 0 || c == 0 && n.seq[b] <= n.seq[s] {
				t.Fatalf("%s: entries out of order", what)
			}
		}
	}
	var walk func(ref uint32, h uint64)
	walk = func(ref uint32, h uint64) {
		if h == 0 {
			check(&table.leaf(ref).node, 0, "leaf")
			found = append(found, ref)
			return
		}
		in := table.inner(ref)
		check(&in.node, 1, "inner node")
		p := perm(in.perm.Load())
		for i := range p.count() {
			walk(in.child[p.slot(i)].Load(), h-1)
		}
	}
	root := table.root.Load()
	walk(uint32(root), root>>32)
	versions, before := 0, uint32(0)
	ref := table.first.Load()
	for _, want := range found {
		l := table.leaf(ref)
		if ref != want || l.prev.Load() != before {
			t.Fatalf("leaf %d is linked where %d is in the tree, after %d", ref, want, l.prev.Load())
		}
		versions += perm(l.perm.Load()).count()
		before, ref = ref, l.next.Load()
	}
	for _, e := range table.ends {
		if e.leaf == nil {
			continue
		}
		p, next := perm(e.leaf.perm.Load()), table.leaf(e.leaf.next.Load())
		last, first := e.leaf.rec[p.slot(p.count()-1)], next.rec[perm(next.perm.Load()).slot(0)]
		if !slices.ContainsFunc(found, func(ref uint32) bool { return table.leaf(ref) == e.leaf }) || next == table.leaf(0) ||
			!bytes.Equal(table.image.key(last), e.last) || !bytes.Equal(table.image.key(first), e.bound) {
			t.Fatalf("what is known of a leaf's end, %.40q before %.40q, is wrong", e.last, e.bound)
		}
	}
	if ref != 0 || table.last.Load() != before || table.tail != table.leaf(before) {
		t.Fatal("the last leaf is not the last")
	}
	if versions != table.Len() {
		t.Fatalf("%d versions in leaves, Len is %d", versions, table.Len())
	}
}

// TestEmpty moves about in a table that has nothing.
func TestEmpty(t *testing.T) {
	table := New(NewImage(NewPool(0, 0, 0)))
	if _, ok := table.Get([]byte("a"), math.MaxUint64); ok {
		t.Error("Get found something")
	}
	it := table.Iter(math.MaxUint64)
	if it.First() || it.Last() || it.Next() || it.Prev() || it.SeekGE([]byte("a")) || it.SeekLT([]byte("a")) ||
		it.SeekGE(nil) || it.Valid() {
		t.Error("an iterator found something")
	}
	most := int64(1) << 31 // which is below 0 where an int has 32 bits
	if !table.Fits(1<<30) || table.Fits(int(most)) || table.Fits(-1) {
		t.Error("Fits is wrong for an empty table")
	}
}

// TestEdges looks for keys that begin as all bounds of an inner node do, where its first or last child
// holds only keys that begin otherwise.
func TestEdges(t *testing.T) {
	t.Parallel()
	im := NewImage(NewPool(0, 0, 0))
	table := New(im)
	middle := func(i int) []byte { return fmt.Appendf(nil, "middle/of/all/the/keys/%05x", i) }
	seq := uint64(0)
	add := func(key []byte) {
		rec, imageKey := put(im, holdfast.KindSet, key, nil)
		table.Add(rec, imageKey, seq)
		seq++
	}
	for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(400) {
		add(middle(1000 + i))
	}
	for i := range 100 {
		add(edgeKey(true, i))
		add(edgeKey(false, i))
		checkNodes(t, table)
		it := table.Iter(math.MaxUint64)
		if low := middle(999); !it.SeekGE(low) || !bytes.Equal(it.Key(), middle(1000)) || !it.SeekLT(low) ||
			!bytes.Equal(it.Key(), edgeKey(true, i)) {
			t.Fatalf("%d keys on each side: a seek to the low end fails", i+1)
		}
		if high := middle(1400); !it.SeekGE(high) || !bytes.Equal(it.Key(), edgeKey(false, 0)) || !it.SeekLT(high) ||
			!bytes.Equal(it.Key(), middle(1399)) {
			t.Fatalf("%d keys on each side: a seek to the high end fails", i+1)
		}
	}
}

// TestManyVersions reads old states of keys that have thousands of versions, which iterators must
// pass by searching, not by stepping.
func TestManyVersions(t *testing.T) {
	t.Parallel()
	im := NewImage(NewPool(0, 0, 0))
	table := New(im)
	const keys, versions = 5, 4000
	for i := range uint64(keys * versions) {
		rec, key := put(im, holdfast.KindSet, fmt.Appendf(nil, "counter/%d", i%keys), nil)
		table.Add(rec, key, i)
	}
	checkNodes(t, table)
	for _, maxSeq := range []uint64{0, 3, 4, 5, 777, keys*versions - 1, math.MaxUint64} {
		var want []uint64
		for k := range uint64(keys) {
			if last := min(maxSeq, keys*versions-1); k <= last {
				want = append(want, last-(last-k)%keys)
			}
		}
		it := table.Iter(maxSeq)
		var up, down []uint64
		for on := it.First(); on; on = it.Next() {
			up = append(up, it.Seq())
		}
		for on := it.Prev(); on; on = it.Prev() {
			down = append(down, it.Seq())
		}
		slices.Reverse(down)
		if !slices.Equal(up, want) || !slices.Equal(down, want) {
			t.Errorf("at %d: up %d, down %d, want %d", maxSeq, up, down, want)
		}
	}
}

// TestNoAllocation checks that reading allocates nothing.
func TestNoAllocation(t *testing.T) {
	im := NewImage(NewPool(0, 0, 0))
	table := New(im)
	for i := range uint64(1000) {
		rec, key := put(im, holdfast.KindSet, fmt.Appendf(nil, "key/%d", i*7919%1000), []byte("v"))
		table.Add(rec, key, i)
	}
	key, sum := []byte("key/500"), 0
	if n := testing.AllocsPerRun(100, func() {
		v, _ := table.Get(key, math.MaxUint64)
		it := table.Iter(math.MaxUint64)
		for on := it.SeekGE(key); on && sum&7 != 7; on = it.Next() {
			sum += len(v.Value)
		}
		it.SeekLT(key)
		it.Prev()
		sum++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestConcurrent reads while one goroutine adds: what was published before is there, order holds, and
// a fixed state does not change.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	for _, kind := range keyKinds {
		if kind.next == nil || kind.name == "long" {
			continue
		}
		t.Run(kind.name, func(t *testing.T) { testConcurrent(t, kind.next) })
	}
}

func testConcurrent(t *testing.T, next func(*rand.Rand, int) []byte) {
	const n, readers = 6000, 3
	im := NewImage(NewPool(16<<10, 0, 0))
	table := New(im)
	r := rand.New(rand.NewPCG(5, 5))
	keys := make([][]byte, n) // version i+1 is of keys[i]
	for i := range keys {
		keys[i] = next(r, i)
	}
	var published atomic.Uint64 // versions 1..published are there
	var done atomic.Bool
	var wg sync.WaitGroup
	for reader := range readers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(reader), 7))
			for last := false; !t.Failed() && !last; {
				last = done.Load() // one more round when all is there
				if maxSeq := published.Load(); maxSeq > 0 {
					readState(t, r, table, keys, maxSeq, &published)
				}
			}
		})
	}
	for i, key := range keys {
		rec, imageKey := put(im, holdfast.KindSet, key, binary.BigEndian.AppendUint64(nil, uint64(i+1)))
		table.Add(rec, imageKey, uint64(i+1))
		published.Store(uint64(i + 1))
	}
	done.Store(true)
	wg.Wait()
	checkNodes(t, table)
}

// TestConcurrentSplits keeps tables small, so that readers are often where a leaf is being split.
func TestConcurrentSplits(t *testing.T) {
	t.Parallel()
	const tables, n, readers = 50, 500, 2
	type state struct {
		table     *Table
		keys      [][]byte
		published atomic.Int64 // keys[:published] are there, key i as version i
		done      atomic.Bool
	}
	pool := NewPool(64<<10, 0, 0)
	for number := range uint64(tables) {
		r := rand.New(rand.NewPCG(number, 11))
		s := &state{table: New(NewImage(pool)), keys: make([][]byte, n)}
		for i := range s.keys { // unique, half of them with a common prefix
			s.keys[i] = binary.BigEndian.AppendUint64(nil, r.Uint64())
			if number%2 == 0 {
				s.keys[i] = append([]byte("common/prefix/"), s.keys[i]...)
			}
		}
		var wg sync.WaitGroup
		for reader := range uint64(readers) {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(number, reader))
				for !s.done.Load() && !t.Failed() {
					known := s.published.Load()
					if known == 0 {
						continue
					}
					for range 20 {
						i := r.Int64N(known)
						if v, ok := s.table.Get(s.keys[i], math.MaxUint64); !ok || v.Seq != uint64(i) {
							t.Errorf("table %d: key %d of %d: %v, version %d", number, i, known, ok, v.Seq)
						}
						it := s.table.Iter(uint64(known - 1))
						if !it.SeekGE(s.keys[i]) || it.Seq() != uint64(i) || it.Prev() && (!it.Next() || it.Seq() != uint64(i)) {
							t.Errorf("table %d: a seek to key %d of %d fails", number, i, known)
						}
					}
					it := s.table.Iter(uint64(known - 1))
					up, down := int64(0), int64(0)
					for on := it.First(); on; on = it.Next() {
						up++
					}
					for on := it.Last(); on; on = it.Prev() {
						down++
					}
					if up != known || down != known {
						t.Errorf("table %d: %d keys upwards, %d downwards, want %d", number, up, down, known)
					}
				}
			})
		}
		for i, key := range s.keys {
			rec, imageKey := put(s.table.image, holdfast.KindSet, key, nil)
			s.table.Add(rec, imageKey, uint64(i))
			s.published.Store(int64(i + 1))
			if i%100 == 0 {
				runtime.Gosched()
			}
		}
		s.done.Store(true)
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}

// readState checks the state at maxSeq in several ways while more is added.
func readState(t *testing.T, r *rand.Rand, table *Table, keys [][]byte, maxSeq uint64, published *atomic.Uint64) {
	newest := map[string]uint64{}
	for i, key := range keys[:maxSeq] {
		newest[string(key)] = uint64(i + 1)
	}
	for range 50 {
		i := r.Uint64N(maxSeq)
		v, ok := table.Get(keys[i], maxSeq)
		if !ok || v.Seq != newest[string(keys[i])] || binary.BigEndian.Uint64(v.Value) != v.Seq ||
			!bytes.Equal(v.Key, keys[i]) {
			t.Errorf("Get(%q, %d): %v, version %d, want %d", keys[i], maxSeq, ok, v.Seq, newest[string(keys[i])])
			return
		}
		// The very latest: not older than what had been published, whatever is being added.
		i = published.Load() - 1
		if v, ok := table.Get(keys[i], math.MaxUint64); !ok || v.Seq < i+1 {
			t.Errorf("Get(%q): %v, version %d, but %d had been published", keys[i], ok, v.Seq, i+1)
			return
		}
	}
	it := table.Iter(maxSeq)
	scan := func(name string, start, move func() bool, sign int) {
		var last []byte
		count := 0
		for on := start(); on; on = move() {
			v := it.Version()
			if count > 0 && bytes.Compare(last, v.Key)*sign >= 0 || v.Seq != newest[string(v.Key)] {
				t.Errorf("%s at %d: %q version %d after %q, newest is %d", name, maxSeq, v.Key, v.Seq, last, newest[string(v.Key)])
				return
			}
			last = v.Key
			count++
		}
		if count != len(newest) {
			t.Errorf("%s at %d: %d keys, want %d", name, maxSeq, count, len(newest))
		}
	}
	scan("forward", it.First, it.Next, 1)
	scan("backward", it.Last, it.Prev, -1)
	for range 20 { // turn round anywhere
		key := keys[r.IntN(len(keys))]
		if it.SeekGE(key) && bytes.Compare(it.Key(), key) < 0 || it.SeekLT(key) && bytes.Compare(it.Key(), key) >= 0 {
			t.Errorf("a seek to %q is at %q", key, it.Key())
		}
		if it.SeekGE(key) {
			want := it.Version()
			if it.Prev() && bytes.Compare(it.Key(), key) >= 0 || !it.Next() || !equal(it.Version(), want) {
				t.Errorf("Prev and Next from %q do not come back", want.Key)
			}
		}
	}
	latest := table.Iter(math.MaxUint64) // in order too, though it may see what is being added
	key := keys[r.IntN(len(keys))]
	if latest.SeekGE(key) && bytes.Compare(latest.Key(), key) < 0 {
		t.Errorf("a seek to %q is at %q", key, latest.Key())
	}
	last := []byte(nil)
	for on, i := latest.Valid(), 0; on && i < 100; on, i = latest.Next(), i+1 {
		if last != nil && bytes.Compare(last, latest.Key()) >= 0 {
			t.Errorf("%q after %q", latest.Key(), last)
		}
		last = latest.Key()
	}
}
