package run

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
)

var update = flag.Bool("update", false, "write testdata/run-v1.bin anew")

// randomPairs is a run's worth of entries with keys of several shapes and places in many segments.
func randomPairs(rnd *rand.Rand, n int) []pair {
	prefixes := []string{"", "a", "user/", "user/0000000", strings.Repeat("p", 300), strings.Repeat("\xff", 20), "\x00\x00"}
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
		use[uint32(p.e.Place>>32)] = SegmentUse{uint32(p.e.Place >> 32), u.Entries + 1, u.Bytes + int64(len(p.key)) + int64(p.e.Len)}
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
		if it.First() || it.Last() || it.Next() || it.Prev() || it.SeekGE([]byte("a")) || it.SeekLT([]byte("a")) || it.Err() != nil {
			t.Error("there is something in an empty run", it.Err())
		}
		if _, ok, err := r.Get([]byte("a")); ok || err != nil || r.MayContain([]byte("a")) {
			t.Error(ok, err)
		}
		if err := errors.Join(r.Verify(), r.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestHash(t *testing.T) {
	if hash([]byte("a")) != 0xd24ec4f1a98c6e5b || hash([]byte("abc")) != 0x44bc2cf5ad770999 {
		t.Error("of a or abc")
	}
	b := make([]byte, 300)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	for _, v := range []struct {
		n    int
		want uint64
	}{
		{0, 0xef46db3751d8e999}, {1, 0x8a4127811b21e730}, {3, 0xb6e6c910c2fd373a}, {4, 0x22eda2cf6af4c124}, {5, 0x1da48e4b4cafab76},
		{8, 0xc6f1803a5e0b3222}, {12, 0x9178b724dce384c0}, {16, 0xafe8f989a0735a8e}, {31, 0x6ab1c40e29f50073}, {32, 0x5a0756fbe9ecd3d1},
		{33, 0xdc50cdc37bb9c183}, {63, 0x10dd94885c71894a}, {64, 0x90083da9cdb9d795}, {100, 0xd248bfc5208b0b16}, {300, 0xe99d1b8a38d407dd},
	} {
		if got := hash(b[:v.n]); got != v.want {
			t.Errorf("of %d bytes: %#x, want %#x", v.n, got, v.want)
		}
	}
}

// TestFilter counts false positives for keys like those in the run and for others.
func TestFilter(t *testing.T) {
	for _, keys := range benchKeys {
		pairs := keys.pairs(100_000)
		image, _ := build(t, pairs, blockTarget)
		r, err := modes[0].open(image, testID)
		if err != nil {
			t.Fatal(err)
		}
		wrong, n := 0, 0
		for _, p := range pairs {
			if !r.MayContain(p.key) {
				t.Fatal(p, "is not in the filter")
			}
			binary.BigEndian.PutUint64(p.key[8:], binary.BigEndian.Uint64(p.key[8:])+1<<40)
			for _, key := range [][]byte{p.key, p.key[:15], append(p.key, 0)} {
				if n++; r.MayContain(key) {
					wrong++
				}
			}
		}
		rate := float64(wrong) / float64(n)
		t.Logf("%s: %.2f %% false positives", keys.name, 100*rate)
		if rate > 0.015 {
			t.Errorf("%s: %.2f %% false positives", keys.name, 100*rate)
		}
	}
}

// TestSize holds what an entry costs, and what Size foretells.
func TestSize(t *testing.T) {
	f := new(memFile)
	w := NewWriter(f, testID)
	const n = 200_000
	for _, p := range ascending(n) {
		if err := w.Add(p.key, p.e); err != nil {
			t.Fatal(err)
		}
	}
	foretold := w.Size()
	info, err := w.Finish(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f bytes per entry", float64(info.FileBytes)/n)
	if info.FileBytes > 10*n {
		t.Errorf("%d bytes for %d entries", info.FileBytes, n)
	}
	if d := info.FileBytes - foretold; d < -info.FileBytes/100 || d > info.FileBytes/100 {
		t.Errorf("Size said %d, it is %d", foretold, info.FileBytes)
	}
	for i, size := range f.writes[:len(f.writes)-1] {
		if size < writeSize {
			t.Errorf("write %d of %d has %d bytes", i, len(f.writes), size)
		}
	}
	if f.syncs != 1 || f.closed != 0 {
		t.Error(f.syncs, "syncs,", f.closed, "closes")
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		key   string
		e     Entry
		class error
	}{
		{"empty key", "", Entry{}, holdfast.ErrBadKey},
		{"long key", strings.Repeat("x", holdfast.MaxKeySize+1), Entry{}, holdfast.ErrBadKey},
		{"same key", "k", Entry{}, holdfast.ErrBadKey},
		{"key below", "j", Entry{}, holdfast.ErrBadKey},
		{"prefix", "k"[:0] + "j\xff", Entry{}, holdfast.ErrBadKey},
		{"tombstone with length", "l", Entry{Tombstone: true, Len: 1}, holdfast.ErrBadOption},
		{"value beyond 4 GiB", "l", Entry{Place: 1<<32 - 1, Len: 2}, holdfast.ErrBadOption},
	} {
		w := NewWriter(new(memFile), testID)
		if err := w.Add([]byte("k"), Entry{}); err != nil {
			t.Fatal(err)
		}
		if err := w.Add([]byte(c.key), c.e); !errors.Is(err, c.class) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := w.Finish(0); !errors.Is(err, c.class) {
			t.Errorf("%s: Finish afterwards: %v", c.name, err)
		}
	}
	w := NewWriter(new(memFile), testID)
	if _, err := w.Finish(0); err != nil {
		t.Fatal(err)
	}
	if err := w.Add([]byte("k"), Entry{}); !errors.Is(err, holdfast.ErrClosed) {
		t.Error("Add after Finish:", err)
	}
}

func TestWriterFaults(t *testing.T) {
	f := &memFile{failWrite: syscall.ENOSPC}
	w := NewWriter(f, testID)
	_ = w.Add([]byte("k"), Entry{})
	if _, err := w.Finish(0); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	f.failWrite = nil
	if _, err := w.Finish(0); !errors.Is(err, syscall.ENOSPC) || f.syncs != 0 {
		t.Error("Finish after a failed write:", err)
	}
	w = NewWriter(&memFile{failSync: syscall.EIO}, testID)
	if _, err := w.Finish(0); !errors.Is(err, syscall.EIO) {
		t.Error("failed sync:", err)
	}
	// Room allocated in advance is given back: the footer ends the file.
	f = &memFile{b: make([]byte, 100_000)}
	w = NewWriter(f, testID)
	_ = w.Add([]byte("k"), Entry{Len: 3})
	info, err := w.Finish(0)
	if err != nil || info.FileBytes != int64(len(f.b)) {
		t.Fatal(err, info, len(f.b))
	}
	if r, err := modes[0].open(f.b, testID); err != nil || r.Verify() != nil {
		t.Error(err)
	}
}

// readAll reads a run in every way; what it answers must be right, or ErrCorrupt. It returns whether there was an error.
func readAll(r *Reader, pairs []pair, absent [][]byte) (failed bool, problem string) {
	bad := func(err error) bool {
		if err == nil {
			return false
		}
		failed = true
		var e *holdfast.Error
		if !errors.Is(err, holdfast.ErrCorrupt) || !errors.As(err, &e) || e.Path == "" {
			problem = fmt.Sprintf("error of another class, or without path: %v", err)
		}
		return true
	}
	for _, p := range pairs {
		if e, ok, err := r.Get(p.key); !bad(err) && (!ok || e != p.e) {
			return failed, fmt.Sprintf("Get(%v): %+v, %v", p, e, ok)
		}
		if !r.MayContain(p.key) {
			return failed, fmt.Sprintf("MayContain(%v): false", p)
		}
	}
	for _, key := range absent {
		if e, ok, err := r.Get(key); !bad(err) && ok {
			return failed, fmt.Sprintf("Get(%q): %+v", key, e)
		}
	}
	it, i := r.Iter(), 0
	for ; it.Next(); i++ {
		if i == len(pairs) || !bytes.Equal(it.Key(), pairs[i].key) || it.Entry() != pairs[i].e {
			return failed, fmt.Sprintf("Next to %d: %.40q", i, it.Key())
		}
	}
	if !bad(it.Err()) && i != len(pairs) {
		return failed, fmt.Sprintf("a scan ended after %d", i)
	}
	r.Init(it)
	for i = len(pairs) - 1; it.Prev(); i-- {
		if i < 0 || !bytes.Equal(it.Key(), pairs[i].key) || it.Entry() != pairs[i].e {
			return failed, fmt.Sprintf("Prev to %d: %.40q", i, it.Key())
		}
	}
	if !bad(it.Err()) && i != -1 {
		return failed, fmt.Sprintf("a scan backwards ended at %d", i)
	}
	return failed, problem
}

func smallRun(t testing.TB) (image []byte, pairs []pair, absent [][]byte) {
	pairs = append(ascending(60), pair{[]byte("f"), Entry{Tombstone: true}}, pair{[]byte("f/long/and/longer"), Entry{Place: 9<<32 | 77, Len: 5000, Sum: 1}},
		pair{[]byte("f/long/and/other"), Entry{Place: 3<<32 | 9000, Len: 1}})
	image, _ = build(t, pairs, 150)
	return image, pairs, absentKeys(pairs)[:60]
}

// TestEveryByte damages each byte of a run. Readers must notice or answer right, and Verify must notice.
func TestEveryByte(t *testing.T) {
	image, pairs, absent := smallRun(t)
	t.Log(len(image), "bytes")
	noticed := 0
	for at := range image {
		for m, mode := range modes {
			for _, flip := range []byte{1 << ((at + m) % 8), 0xff} {
				damaged := bytes.Clone(image)
				damaged[at] ^= flip
				r, err := mode.open(damaged, testID)
				if err != nil {
					if !errors.Is(err, holdfast.ErrCorrupt) {
						t.Fatalf("%s, byte %d: %v", mode.name, at, err)
					}
					noticed++
					continue
				}
				failed, problem := readAll(r, pairs, absent)
				if problem != "" {
					t.Fatalf("%s, byte %d: %s", mode.name, at, problem)
				}
				if failed {
					noticed++
				}
				if err := r.Verify(); !errors.Is(err, holdfast.ErrCorrupt) {
					t.Fatalf("%s, byte %d: Verify: %v", mode.name, at, err)
				}
				r.Close()
			}
		}
	}
	if noticed < len(image)*len(modes) {
		t.Error("only", noticed, "noticed")
	}
}

// TestRotAfterFirstRead damages each byte of a run that an open reader has read before. What it answers must still be
// right, or an error.
func TestRotAfterFirstRead(t *testing.T) {
	image, pairs, absent := smallRun(t)
	for _, mode := range modes {
		file := bytes.Clone(image)
		r, err := mode.open(file, testID)
		if err != nil {
			t.Fatal(err)
		}
		for at := range file {
			if failed, problem := readAll(r, pairs, absent); failed || problem != "" {
				t.Fatalf("%s, byte %d, in order: %v, %s", mode.name, at, failed, problem)
			}
			file[at] ^= 1 << (at % 8)
			if _, problem := readAll(r, pairs, absent); problem != "" {
				t.Fatalf("%s, byte %d: %s", mode.name, at, problem)
			}
			file[at] = image[at]
		}
		r.Close()
	}
}

// TestEveryLength cuts a run at every length, and makes it longer.
func TestEveryLength(t *testing.T) {
	image, pairs, absent := smallRun(t)
	for n := range len(image) + 200 {
		cut := append(bytes.Clone(image[:min(n, len(image))]), make([]byte, max(0, n-len(image)))...)
		for _, mode := range modes {
			if _, err := mode.open(cut, testID); (n == len(image)) != (err == nil) || err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
				t.Fatalf("%s, %d of %d bytes: %v", mode.name, n, len(image), err)
			}
		}
		// A file cut under an open reader.
		f := &memFile{b: bytes.Clone(image)}
		r, err := openMem(f, testID, NewCache(0))
		if err != nil {
			t.Fatal(err)
		}
		f.b = cut
		if _, problem := readAll(r, pairs, absent); problem != "" {
			t.Fatalf("cut to %d bytes when open: %s", n, problem)
		}
	}
}

// TestForeign puts other files, and parts of them, in the place of a run.
func TestForeign(t *testing.T) {
	image, pairs, absent := smallRun(t)
	refused := func(what string, b []byte, class error) {
		t.Helper()
		for _, mode := range modes {
			r, err := mode.open(b, testID)
			if err == nil {
				failed, problem := readAll(r, pairs, absent)
				if err = r.Verify(); !failed || problem != "" {
					t.Errorf("%s, %s: not noticed. %s", what, mode.name, problem)
				}
			}
			if !errors.Is(err, class) {
				t.Errorf("%s, %s: %v", what, mode.name, err)
			}
		}
	}
	other := func(id Identity) []byte {
		f := new(memFile)
		w := NewWriter(f, id)
		w.target = 150
		for _, p := range pairs {
			if err := w.Add(p.key, p.e); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Finish(1234); err != nil {
			t.Fatal(err)
		}
		return f.b
	}
	run, db := testID, testID
	run.ID++
	db.DB[3]++
	refused("another run", other(run), holdfast.ErrCorrupt)
	refused("another store's run", other(db), holdfast.ErrCorrupt)
	r, err := modes[0].open(image, testID)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := r.index()
	for i := range x.n {
		lo, hi := x.block(i)
		mixed := bytes.Clone(image)
		copy(mixed[lo:hi], other(run)[lo:hi])
		refused("a block of another run", mixed, holdfast.ErrCorrupt)
		for j := range i {
			if l, h := x.block(j); h-l == hi-lo {
				mixed := bytes.Clone(image)
				copy(mixed[lo:hi], image[l:h])
				copy(mixed[l:h], image[lo:hi])
				refused("two blocks exchanged", mixed, holdfast.ErrCorrupt)
			}
		}
	}
	headless := append(bytes.Clone(image[:headerSize]), other(run)[headerSize:]...)
	refused("another run behind our header", headless, holdfast.ErrCorrupt)
	newer := bytes.Clone(image)
	newer[8] = Version + 1
	refused("another version, bad checksum", newer, holdfast.ErrCorrupt)
	reseal(newer)
	refused("another version", newer, holdfast.ErrVersion)
	refused("zeros", make([]byte, 5000), holdfast.ErrCorrupt)
	refused("nothing", nil, holdfast.ErrCorrupt)
}

// reseal makes every checksum of a run right again that can be found, and leaves the rest as it is.
func reseal(b []byte) {
	if len(b) < headerSize+footerSize {
		return
	}
	s := testID.seed()
	le.PutUint32(b[60:], crcOf(b[:60]))
	n := int64(len(b))
	foot := b[n-footerSize:]
	at := func(i int) int64 { return int64(min(le.Uint64(foot[i:]), 1<<40)) }
	filter, index, meta, blocks, lines := at(0), at(8), at(16), int64(le.Uint32(foot[48:])), int64(le.Uint32(foot[52:]))
	if sums := 4 * filterPages(lines); filter <= index && index <= meta && meta <= n-footerSize && sums <= n-footerSize-meta {
		for page := range filterPages(lines) {
			if lo, hi := filter+page*pageSize, min(filter+(page+1)*pageSize, index); lo <= hi {
				le.PutUint32(b[n-footerSize-sums+4*page:], s.sum(lo, b[lo:hi]))
			}
		}
		for i := range blocks {
			o := index + 8*blocks + 4*i
			if o+8 > meta {
				break
			}
			if lo, hi := int64(le.Uint32(b[o:])), int64(le.Uint32(b[o+4:])); lo+4 <= hi && hi <= n {
				le.PutUint32(b[hi-4:], s.sum(lo, b[lo:hi-4]))
			}
		}
		le.PutUint32(foot[56:], s.sum(index, b[index:meta]))
		le.PutUint32(foot[60:], s.sum(meta, b[meta:n-footerSize]))
	}
	le.PutUint32(foot[92:], s.sum(n-footerSize, foot[:92]))
}

// TestVerify damages each byte and makes the checksums right again: what no checksum shows must show in what the parts say of each
// other. Some bytes may change without that, see below.
func TestVerify(t *testing.T) {
	image, pairs, _ := smallRun(t)
	if again := bytes.Clone(image); !bytes.Equal(image, again) {
		t.Fatal()
	} else if reseal(again); !bytes.Equal(image, again) {
		t.Fatal("reseal changes a run that is in order")
	}
	unnoticed := 0
	for at := headerSize; at < len(image); at++ {
		damaged := bytes.Clone(image)
		damaged[at] ^= 1 << (at % 8)
		reseal(damaged)
		for _, mode := range modes {
			r, err := mode.open(damaged, testID)
			if err == nil {
				err = r.Verify()
			}
			if err == nil {
				// It is another run, in order: it has another entry, or the same ones coded otherwise.
				unnoticed++
			} else if !errors.Is(err, holdfast.ErrCorrupt) {
				t.Fatalf("%s, byte %d: %v", mode.name, at, err)
			}
		}
	}
	// The sums of values, four bytes an entry, can say anything; so can places within a segment, one byte for some of
	// them, and maxSeq.
	free := len(pairs)*(4+1) + 8
	t.Logf("%d of %d bytes can be changed", unnoticed/len(modes), len(image))
	if unnoticed > free*len(modes) {
		t.Errorf("%d of %d bytes can be changed without Verify noticing", unnoticed/len(modes), len(image))
	}
}

// goldenPairs are those of testdata/run-v1.bin. They must never change.
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
	pairs = append(pairs, pair{key: bytes.Repeat([]byte("z"), holdfast.MaxKeySize), e: Entry{Place: 7, Len: 1 << 26}}, pair{key: []byte{0}, e: Entry{Place: 1<<64 - 1<<32, Len: 1, Sum: 5}})
	sort.Slice(pairs, func(i, j int) bool { return bytes.Compare(pairs[i].key, pairs[j].key) < 0 })
	return pairs
}

// TestGolden opens a file that the first version of this format wrote. If it fails, old stores cannot be
// read any more: give the format another version and keep reading this one.
func TestGolden(t *testing.T) {
	name := filepath.Join("testdata", "run-v1.bin")
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

func TestReadError(t *testing.T) {
	image, pairs, _ := smallRun(t)
	f := &memFile{b: image}
	if _, err := openMem(&memFile{b: image, failRead: syscall.EIO}, testID, NewCache(0)); !errors.Is(err, syscall.EIO) ||
		errors.Is(err, holdfast.ErrCorrupt) {
		t.Error("Open:", err)
	}
	r, err := openMem(f, testID, NewCache(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	it := r.Iter()
	f.failRead = syscall.EIO
	if _, _, err := r.Get(pairs[0].key); !errors.Is(err, syscall.EIO) || !r.MayContain(pairs[0].key) {
		t.Error("Get:", err)
	}
	if it.Next() || !errors.Is(it.Err(), syscall.EIO) || it.Next() || it.Prev() || !errors.Is(it.Err(), syscall.EIO) {
		t.Error("Next:", it.Err())
	}
	f.failRead = nil
	if !it.First() || it.Err() != nil || !bytes.Equal(it.Key(), pairs[0].key) {
		t.Error("First when it is over:", it.Err())
	}
	if err := r.Close(); err != nil || f.closed != 1 {
		t.Error(err, f.closed)
	}
	if err := r.Close(); err != nil || f.closed != 1 {
		t.Error("Close again:", err, f.closed)
	}
}

func TestCache(t *testing.T) {
	const limit = 64 << 10
	pairs := ascending(60_000)
	image, _ := build(t, pairs, blockTarget)
	c := NewCache(limit)
	var readers []*Reader
	for range 3 {
		r, err := openMem(&memFile{b: image}, testID, c)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		r, p := readers[rnd.IntN(3)], pairs[rnd.IntN(len(pairs))]
		if e, ok, err := r.Get(p.key); !ok || err != nil || e != p.e {
			t.Fatal(e, ok, err)
		}
		if c.Bytes() > limit {
			t.Fatal(c.Bytes(), "bytes")
		}
	}
	if c.Bytes() < limit/2 {
		t.Error("it holds only", c.Bytes(), "bytes")
	}
	for _, r := range readers {
		before := c.Bytes()
		if err := r.Close(); err != nil || c.Bytes() >= before {
			t.Error(err, c.Bytes(), before)
		}
	}
	if c.Bytes() != 0 {
		t.Error(c.Bytes(), "bytes without readers")
	}
}

// TestCacheKeepsUsed: what is used again and again stays while other pieces pass through.
func TestCacheKeepsUsed(t *testing.T) {
	c := NewCache(40 * (1024 + pieceOverhead))
	slots := make([]atomic.Pointer[piece], 10_000)
	c.put(&slots[0], make([]byte, 1024))
	for i := range slots[1:] {
		p := slots[0].Load()
		if p == nil {
			t.Fatal("gone after", i)
		}
		p.use()
		c.put(&slots[i+1], make([]byte, 1024))
	}
}

// TestCacheTurns: what is used now takes the place of what was used before.
func TestCacheTurns(t *testing.T) {
	const room = 100
	c := NewCache(room * (1024 + pieceOverhead))
	slots := make([]atomic.Pointer[piece], 3*room)
	for phase := range 3 {
		hits := 0
		for round := range 5 {
			for i := range room / 2 {
				slot := &slots[phase*room+i]
				if p := slot.Load(); p == nil {
					c.put(slot, make([]byte, 1024))
				} else if p.use(); round == 4 {
					hits++
				}
			}
		}
		if hits < room/2 {
			t.Errorf("phase %d: %d of %d pieces are at hand", phase, hits, room/2)
		}
	}
}

// TestConcurrent reads one run from many goroutines through a cache that is far too small.
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

// TestReadAhead: a long scan takes few read calls, either way, and does not fill the cache.
func TestReadAhead(t *testing.T) {
	pairs := ascending(200_000)
	image, info := build(t, pairs, blockTarget)
	f, c := &memFile{b: image}, NewCache(64<<20)
	r, err := openMem(f, testID, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(*Iter) bool{(*Iter).Next, (*Iter).Prev} {
		it, n := r.Iter(), 0
		before := f.reads.Load()
		for step(it) {
			n++
		}
		if it.Err() != nil || n != len(pairs) {
			t.Fatal(n, it.Err())
		}
		if reads := f.reads.Load() - before; reads > info.FileBytes/aheadMax+10 {
			t.Errorf("%d reads for %d bytes", reads, info.FileBytes)
		}
	}
	if c.Bytes() > info.FileBytes/20 {
		t.Error("the cache holds", c.Bytes(), "bytes")
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

// TestFiles: of many readers that are used, only so many have their files open, and each finds its own again.
func TestFiles(t *testing.T) {
	const files, most = 20, 4
	c := NewCache(0)
	c.most = most
	var open, greatest atomic.Int64
	var readers []*Reader
	var pairs [][]pair
	for i := range files {
		pairs = append(pairs, scattered(300, uint64(i)))
		image, _ := build(t, pairs[i], 300)
		fsys := &memFS{f: &memFile{b: image, open: &open}}
		r, err := Open(fsys, fmt.Sprint(i), testID, c)
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	var wg sync.WaitGroup
	for g := range uint64(3) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(g, 2))
			for range 500 {
				i := rnd.IntN(files)
				p := pairs[i][rnd.IntN(300)]
				if e, ok, err := readers[i].Get(p.key); !ok || err != nil || e != p.e {
					t.Error(e, ok, err)
					return
				}
				for n := open.Load(); n > greatest.Load(); {
					greatest.Store(n)
				}
			}
		})
	}
	wg.Wait()
	if n := greatest.Load(); n > most+3 || n < most { // each that opens one may meet others that are being read
		t.Error(n, "files were open")
	}
	for _, r := range readers {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if open.Load() != 0 || c.Bytes() != 0 {
		t.Error(open.Load(), "files are open,", c.Bytes(), "bytes held when all is closed")
	}
}

// TestReopen: a file that is opened again must be the same; what goes wrong then is an error, and over when it is
// mended.
func TestReopen(t *testing.T) {
	image, pairs, absent := smallRun(t)
	c := NewCache(0)
	c.most = 1
	fsys := &memFS{f: &memFile{b: image}}
	r, err := Open(fsys, "one", testID, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	other, err := openMem(&memFile{b: image}, testID, c)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	swapped, _ := build(t, pairs[1:], 150)
	sound := fsys.f
	for _, bad := range []struct {
		b     []byte
		fail  error
		class error
	}{
		{swapped, nil, holdfast.ErrCorrupt},
		{image[:len(image)-1], nil, holdfast.ErrCorrupt},
		{nil, nil, holdfast.ErrCorrupt},
		{image, fs.ErrNotExist, holdfast.ErrCorrupt},
		{image, syscall.EMFILE, syscall.EMFILE},
	} {
		fsys.f, fsys.failOpen = &memFile{b: bad.b}, bad.fail
		if _, _, err := r.Get(pairs[3].key); !errors.Is(err, bad.class) {
			t.Errorf("%d bytes, %v: %v", len(bad.b), bad.fail, err)
		}
		fsys.f, fsys.failOpen = sound, nil
		if failed, problem := readAll(r, pairs, absent); failed || problem != "" {
			t.Error("when it is back:", problem)
		}
		if _, _, err := other.Get(pairs[3].key); err != nil { // closes the file
			t.Error(err)
		}
	}
}
