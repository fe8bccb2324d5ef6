package table

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
)

var update = flag.Bool("update", false, "write testdata/table-v1.bin anew")

// randomPairs is a table's worth of entries with keys of several shapes and places in many segments.
func randomPairs(rnd *rand.Rand, n int) []pair {
	prefixes := []string{"", "a", "user/", "user/0000000", strings.Repeat("p", 300), strings.Repeat("\xff", 20),
		"\x00\x00"}
	shape := rnd.IntN(4)
	keys := map[string]bool{}
	for i := range n {
		prefix := prefixes[rnd.IntN(len(prefixes))]
		switch s := rnd.IntN(20); {
		case s == 0:
			keys[string([]byte{byte(rnd.Uint32())})] = true
		case s == 1:
			keys[prefix+strings.Repeat("x", rnd.IntN(3))+"y"] = true
		case s == 2 && rnd.IntN(8) == 0:
			keys[strings.Repeat(string([]byte{byte('a' + rnd.IntN(3))}), holdfast.MaxKeySize-rnd.IntN(3))] = true
		case shape == 0:
			keys[string(binary.BigEndian.AppendUint64([]byte("e/"), uint64(i)))] = true
		case shape == 1:
			keys[fmt.Sprintf("%s%d", prefix, rnd.IntN(10*n))] = true
		case shape == 2:
			keys[string(binary.BigEndian.AppendUint32([]byte(prefix), rnd.Uint32()))] = true
		default:
			b := make([]byte, 1+rnd.IntN(12))
			for j := range b {
				b[j] = byte(rnd.IntN(3)) * 0x7f
			}
			keys[prefix+string(b)] = true
		}
	}
	var pairs []pair
	for key := range keys {
		pairs = append(pairs, pair{key: []byte(key)})
	}
	sort.Slice(pairs, func(i, j int) bool { return bytes.Compare(pairs[i].key, pairs[j].key) < 0 })
	segment, offset, order := rnd.Uint32N(5), uint32(64), rnd.IntN(3)
	for i := range pairs {
		e := &pairs[i].e
		switch {
		case rnd.IntN(8) == 0:
			e.Tombstone = true
			continue
		case order == 0: // anywhere
			segment, offset = rnd.Uint32()>>rnd.IntN(32), rnd.Uint32()>>rnd.IntN(32)
		case rnd.IntN(40) == 0:
			segment, offset = segment+1, 64
		case order == 1 && rnd.IntN(4) == 0: // backwards too
			offset -= min(offset, rnd.Uint32N(10000))
		}
		e.Len, e.Sum = 100, rnd.Uint32()
		if rnd.IntN(3) == 0 {
			e.Len = rnd.Uint32N(1 << 20)
		}
		e.Len = min(e.Len, -offset-1)
		e.Place = uint64(segment)<<32 | uint64(offset)
		offset += e.Len + 20
		if offset < 64 {
			offset = 64
		}
	}
	return pairs
}

// absentKeys are keys near those of the pairs that are not among them.
func absentKeys(pairs []pair) [][]byte {
	have := map[string]bool{"": true}
	for _, p := range pairs {
		have[string(p.key)] = true
	}
	var keys [][]byte
	add := func(key []byte) {
		if !have[string(key)] && len(key) <= holdfast.MaxKeySize {
			have[string(key)] = true
			keys = append(keys, key)
		}
	}
	for _, p := range pairs {
		k := p.key
		add(append(bytes.Clone(k), 0))
		add(append(bytes.Clone(k), 0xff))
		add(bytes.Clone(k[:len(k)-1]))
		add(bytes.Clone(k[:len(k)/2]))
		up, down := bytes.Clone(k), bytes.Clone(k)
		up[len(k)-1]++
		down[0]--
		add(up)
		add(down)
	}
	return keys
}

func same(t *testing.T, what string, got, want Entry) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %+v, want %+v", what, got, want)
	}
}

func TestModel(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		n := []int{1, 2, 15, 16, 17, 300, 3000}[rnd.IntN(7)]
		pairs := randomPairs(rnd, n)
		image, info := build(t, pairs, []int{64, 300, 1024, 4096}[rnd.IntN(4)])
		mode := modes[seed%uint64(len(modes))]
		t.Run(fmt.Sprintf("%s/seed=%d", mode.name, seed), func(t *testing.T) {
			r, err := mode.open(image, testID)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			checkInfo(t, r.Info(), info, pairs, int64(len(image)))
			for _, p := range pairs {
				e, ok, err := r.Get(p.key)
				if !ok || err != nil || !r.MayContain(p.key) {
					t.Fatalf("Get(%v): %v, %v", p, ok, err)
				}
				same(t, "Get", e, p.e)
			}
			absent := absentKeys(pairs)
			for _, key := range absent {
				if e, ok, err := r.Get(key); ok || err != nil {
					t.Fatalf("Get(%.40q), which is not there: %+v, %v", key, e, err)
				}
			}
			checkMoves(t, rnd, r, pairs, absent)
			if err := r.Verify(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func checkInfo(t *testing.T, got, written Info, pairs []pair, size int64) {
	t.Helper()
	want := Info{Entries: int64(len(pairs)), FileBytes: size, MaxSeq: 1234}
	use := map[uint32]SegmentUse{}
	for _, p := range pairs {
		if p.e.Tombstone {
			want.Tombstones++
			continue
		}
		u := use[uint32(p.e.Place>>32)]
		use[uint32(p.e.Place>>32)] = SegmentUse{uint32(p.e.Place >> 32), u.Entries + 1,
			u.Bytes + int64(len(p.key)) + int64(p.e.Len)}
	}
	for _, u := range use {
		want.Segments = append(want.Segments, u)
	}
	slices.SortFunc(want.Segments, func(a, b SegmentUse) int { return cmp.Compare(a.ID, b.ID) })
	if len(pairs) > 0 {
		want.Smallest, want.Largest = pairs[0].key, pairs[len(pairs)-1].key
	}
	for _, info := range []Info{got, written} {
		if !reflect.DeepEqual(info, want) {
			t.Fatalf("info %+v, want %+v", info, want)
		}
	}
}

// checkMoves makes random moves and compares each with the pairs.
func checkMoves(t *testing.T, rnd *rand.Rand, r *Reader, pairs []pair, absent [][]byte) {
	it := r.Iter()
	at, fresh := -1, true // -1: before the first, len(pairs): after the last
	lower := func(key []byte) int {
		return sort.Search(len(pairs), func(i int) bool { return bytes.Compare(pairs[i].key, key) >= 0 })
	}
	for step := range 6*len(pairs) + 200 {
		key := []byte{}
		if i := rnd.IntN(len(pairs) + len(absent) + 1); i < len(pairs) {
			key = pairs[i].key
		} else if i < len(pairs)+len(absent) {
			key = absent[i-len(pairs)]
		}
		var ok bool
		move := rnd.IntN(64)
		switch {
		case move == 0:
			at, ok = 0, it.First()
		case move == 1:
			at, ok = len(pairs)-1, it.Last()
		case move < 8:
			at, ok = lower(key), it.SeekGE(key)
		case move < 14:
			at, ok = lower(key)-1, it.SeekLT(key)
		case move == 14:
			r.Init(it)
			at, fresh = -1, true
			if rnd.IntN(2) == 0 {
				continue
			}
			at, ok = len(pairs)-1, it.Prev()
		case step/200%2 == 0 == (move < 52): // mostly forwards for a while, then mostly backwards
			at, ok = min(at+1, len(pairs)), it.Next()
		case fresh:
			at, ok = len(pairs)-1, it.Prev()
		default:
			at, ok = max(at-1, -1), it.Prev()
		}
		fresh = false
		if it.Err() != nil {
			t.Fatalf("step %d, move %d: %v", step, move, it.Err())
		}
		if ok != (at >= 0 && at < len(pairs)) {
			t.Fatalf("step %d, move %d to %d of %d: %v", step, move, at, len(pairs), ok)
		}
		if ok {
			if !bytes.Equal(it.Key(), pairs[at].key) {
				t.Fatalf("step %d, move %d to %d of %d: %.40q, want %v", step, move, at, len(pairs), it.Key(), pairs[at])
			}
			same(t, "Entry", it.Entry(), pairs[at].e)
		}
	}
}

func TestEmpty(t *testing.T) {
	image, info := build(t, nil, 100)
	for _, mode := range modes {
		r, err := mode.open(image, testID)
		if err != nil {
			t.Fatal(err)
		}
		checkInfo(t, r.Info(), info, nil, int64(len(image)))
		it := r.Iter()
		if it.First() || it.Last() || it.Next() || it.Prev() || it.SeekGE([]byte("a")) || it.SeekLT([]byte("a")) ||
			it.Err() != nil {
			t.Error("there is something in an empty table", it.Err())
		}
		if _, ok, err := r.Get([]byte("a")); ok || err != nil || r.MayContain([]byte("a")) {
			t.Error(ok, err)
		}
		if err := errors.Join(r.Verify(), r.Close()); err != nil {
			t.Error(err)
		}
	}
}

// goldenPairs are those of testdata/table-v1.bin. They must never change.
func goldenPairs() []pair {
	var pairs []pair
	place := uint64(1<<32 + 64)
	for i := range 700 {
		p := pair{key: fmt.Appendf(nil, "stream/%03d/%05d", i/40, i*i%99991)}
		switch {
		case i%11 == 3:
			p.e.Tombstone = true
		case i%50 == 49:
			place = (place>>32+3)<<32 + 4096
			fallthrough
		default:
			p.e = Entry{Place: place, Len: uint32(100 + i%5/4*i), Sum: uint32(i) * 0x9E3779B1}
			place += uint64(p.e.Len) + 21
		}
		pairs = append(pairs, p)
	}
	pairs = append(pairs, pair{key: bytes.Repeat([]byte("z"), holdfast.MaxKeySize),
		e: Entry{Place: 7, Len: 1 << 26}}, pair{key: []byte{0}, e: Entry{Place: 1<<64 - 1<<32, Len: 1, Sum: 5}})
	sort.Slice(pairs, func(i, j int) bool { return bytes.Compare(pairs[i].key, pairs[j].key) < 0 })
	return pairs
}

// TestGolden opens a file that the first version of this format wrote. If it fails, old stores cannot be
// read any more: give the format another version and keep reading this one.
func TestGolden(t *testing.T) {
	name := filepath.Join("testdata", "table-v1.bin")
	pairs := goldenPairs()
	written, _ := build(t, pairs, blockTarget)
	if *update {
		if err := os.WriteFile(name, written, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(golden, written) {
		t.Error("what is written now differs from", name)
	}
	for _, mode := range modes {
		r, err := mode.open(golden, testID)
		if err != nil {
			t.Fatal(err)
		}
		if failed, problem := readAll(r, pairs, absentKeys(pairs)); failed || problem != "" {
			t.Error(mode.name, problem)
		}
		if err := errors.Join(r.Verify(), r.Close()); err != nil {
			t.Error(mode.name, err)
		}
	}
}

// TestConcurrent reads one table from many goroutines through a cache that is far too small.
func TestConcurrent(t *testing.T) {
	pairs := scattered(20_000, 3)
	image, _ := build(t, pairs, 1024)
	for _, f := range []func() (*Reader, error){
		func() (*Reader, error) { return modes[0].open(image, testID) },
		func() (*Reader, error) { return openMem(&memFile{b: image}, testID, NewCache(100<<10)) },
	} {
		r, err := f()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for g := range uint64(8) {
			wg.Go(func() {
				rnd, it := rand.New(rand.NewPCG(g, 1)), r.Iter()
				for range 300 {
					i := rnd.IntN(len(pairs))
					if e, ok, err := r.Get(pairs[i].key); !ok || err != nil || e != pairs[i].e {
						t.Error(e, ok, err)
						return
					}
					for ok := it.SeekGE(pairs[i].key); ok && i < len(pairs) && rnd.IntN(200) > 0; ok = it.Next() {
						if it.Entry() != pairs[i].e {
							t.Error(it.Entry(), pairs[i])
							return
						}
						i++
					}
					if it.Err() != nil {
						t.Error(it.Err())
						return
					}
				}
				if g == 0 {
					if err := r.Verify(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAllocations(t *testing.T) {
	pairs := scattered(20_000, 3)
	image, _ := build(t, pairs, blockTarget)
	for _, mode := range modes[:1] {
		r, err := mode.open(image, testID)
		if err != nil {
			t.Fatal(err)
		}
		it := r.Iter()
		read := func() {
			for i := 0; i < len(pairs); i += 10 {
				if _, ok, err := r.Get(pairs[i].key); !ok || err != nil {
					t.Fatal(err)
				}
			}
			r.Init(it)
			for it.Next() {
			}
			r.Init(it)
			for it.Prev() {
			}
			if !it.SeekGE(pairs[7].key) || !it.SeekLT(pairs[7].key) || it.Err() != nil {
				t.Fatal(it.Err())
			}
		}
		read()
		if n := testing.AllocsPerRun(3, read); n > 0 {
			t.Errorf("%s: %v allocations", mode.name, n)
		}
	}
}

// TestKeysOfAllLengths: keys come back as they were written, whatever they share with the one before and however long
// the rest is, also at the end of a block. Short ones are copied in chunks of fixed size.
func TestKeysOfAllLengths(t *testing.T) {
	rnd := rand.New(rand.NewPCG(*firstSeed, 23))
	for shared := range 50 {
		for suffix := 1; suffix < 40; suffix++ {
			// A key that shares that much with the one before is above it because the byte behind is.
			pairs := []pair{{key: bytes.Repeat([]byte{1}, shared+suffix)}}
			for i := 1; i < 40; i++ {
				key := bytes.Clone(pairs[i-1].key[:shared+1])
				key[shared]++
				for range suffix - 1 {
					key = append(key, byte(rnd.Uint32()))
				}
				e := Entry{Tombstone: true}
				if rnd.IntN(2) == 0 {
					e = Entry{Place: 3<<32 + uint64(rnd.Uint32N(1<<20)), Len: 100, Sum: rnd.Uint32()}
				}
				pairs = append(pairs, pair{key, e})
			}
			image, _ := build(t, pairs, 200)
			r, err := modes[0].open(image, testID)
			if err != nil {
				t.Fatal(err)
			}
			it := r.Iter()
			for i := range pairs {
				if !it.Next() || !bytes.Equal(it.Key(), pairs[i].key) || it.Entry() != pairs[i].e {
					t.Fatalf("-table.seed=%d: %v, want %v, %v", *firstSeed, pair{it.Key(), it.Entry()}, pairs[i], it.Err())
				}
			}
			r.Close()
		}
	}
}
