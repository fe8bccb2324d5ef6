package table

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
)

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

// TestCacheKeepsUsed: what is used again and again stays while other chunks pass through.
func TestCacheKeepsUsed(t *testing.T) {
	c := NewCache(40 * (1024 + chunkOverhead))
	slots := make([]atomic.Pointer[chunk], 10_000)
	c.put(&chunk{slot: &slots[0], data: make([]byte, 1024)})
	for i := range slots[1:] {
		p := slots[0].Load()
		if p == nil {
			t.Fatal("gone after", i)
		}
		p.use()
		c.put(&chunk{slot: &slots[i+1], data: make([]byte, 1024)})
	}
}

// TestCacheTurns: what is used now takes the place of what was used before.
func TestCacheTurns(t *testing.T) {
	const room = 100
	c := NewCache(room * (1024 + chunkOverhead))
	slots := make([]atomic.Pointer[chunk], 3*room)
	for phase := range 3 {
		hits := 0
		for round := range 5 {
			for i := range room / 2 {
				slot := &slots[phase*room+i]
				if p := slot.Load(); p == nil {
					c.put(&chunk{slot: slot, data: make([]byte, 1024)})
				} else if p.use(); round == 4 {
					hits++
				}
			}
		}
		if hits < room/2 {
			t.Errorf("phase %d: %d of %d chunks are at hand", phase, hits, room/2)
		}
	}
}

// reading is [Values] for a test: each value is the number of its place, and reads says how many groups were read.
type reading struct{ reads int }

func (r *reading) Values(entries []Entry, bytes int) []byte {
	r.reads++
	b := make([]byte, 0, bytes)
	for _, e := range entries {
		b = append(b, valueOf(e)...)
	}
	return b
}

func valueOf(e Entry) []byte {
	return bytes.Repeat(le.AppendUint64(nil, e.Place), int(e.Len)/8+1)[:e.Len]
}

// walkValues walks over n entries from at on, and checks the values that the cache has. It returns how many it has.
func walkValues(t *testing.T, r *Reader, pairs []pair, at, n int, from Values) (had int) {
	t.Helper()
	it := r.Iter()
	for ok := it.SeekGE(pairs[at].key); ok && n > 0; ok = it.Next() {
		near := it.Near(false, n, nil, false)
		values := it.Values(false, len(near.Entries), from)
		for i, v := range values {
			if v == nil {
				continue
			}
			if had++; !bytes.Equal(v, valueOf(near.Entries[i])) {
				t.Fatalf("a value of %d bytes is %q", near.Entries[i].Len, v)
			}
		}
		n -= len(near.Entries)
		it.Skip(len(near.Entries) - 1)
	}
	return had
}

// TestCacheValues: what walks read twice is in memory, what comes by once takes the place of little of it, and blocks
// go before values. All of it stays within the limit, and goes with the reader.
func TestCacheValues(t *testing.T) {
	const limit, hot = 1 << 20, 3000
	pairs := ascending(60_000)
	for i := range pairs {
		pairs[i].e.Len = uint32(20 + i%3*30)
	}
	image, info := build(t, pairs, blockTarget)
	c := NewCache(limit)
	r, err := openMem(&memFile{b: image}, testID, c)
	if err != nil {
		t.Fatal(err)
	}
	from := new(reading)
	for at := 0; at < hot; at += 50 {
		walkValues(t, r, pairs, at, 50, from)
	}
	if had := walkValues(t, r, pairs, 0, hot, nil); had != hot {
		t.Errorf("%d of %d values are there", had, hot)
	}
	if c.Bytes() < hot*50 {
		t.Error("it holds only", c.Bytes(), "bytes")
	}

	// All others come by, each once, while these are read again and again.
	least, before := hot, from.reads
	for at := hot; at+50 <= len(pairs); at += 50 {
		walkValues(t, r, pairs, at, 50, from)
		if at%1000 == 0 {
			least = min(least, walkValues(t, r, pairs, 0, hot, nil))
		}
		if c.Bytes() > limit {
			t.Fatal(c.Bytes(), "bytes")
		}
	}
	if least < hot*9/10 {
		t.Errorf("%d of %d values were left", least, hot)
	}
	if reads := from.reads - before; reads > (len(pairs)-hot)/16/2 {
		t.Errorf("%d groups were read to keep their values, of %d", reads, (len(pairs)-hot)/16)
	}

	// Where blocks take all there is, no values are kept, nor read to be kept.
	small := NewCache(info.FileBytes / 4)
	if r2, err := openMem(&memFile{b: image}, testID, small); err != nil {
		t.Fatal(err)
	} else {
		defer r2.Close()
		walkValues(t, r2, pairs, 0, 100, from)
		for i := range pairs {
			if _, ok, err := r2.Get(pairs[i].key); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		before = from.reads
		walkValues(t, r2, pairs, 0, 50, from)
		if had := walkValues(t, r2, pairs, 0, 50, nil); had > 0 && from.reads == before {
			t.Errorf("%d values are there, though blocks have taken everything", had)
		}
		if small.Bytes() > info.FileBytes/4+r2.t.meta {
			t.Error(small.Bytes(), "bytes")
		}
	}
	if err := r.Close(); err != nil || c.Bytes() != 0 {
		t.Error(err, c.Bytes(), "bytes without readers")
	}
}

// TestCacheValuesAtOnce: many goroutines put and use values while blocks come and go.
func TestCacheValuesAtOnce(t *testing.T) {
	pairs := ascending(20_000)
	for i := range pairs {
		pairs[i].e.Len = 40
	}
	image, _ := build(t, pairs, blockTarget)
	c := NewCache(100 << 10)
	r, err := openMem(&memFile{b: image}, testID, c)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for g := range uint64(4) {
		all.Go(func() {
			rnd, from := rand.New(rand.NewPCG(g, 1)), new(reading)
			for range 2000 {
				it := r.Iter()
				if !it.SeekGE(pairs[rnd.IntN(rnd.IntN(len(pairs))+1)].key) {
					t.Error(it.Err())
					return
				}
				near := it.Near(false, 30, nil, false)
				for i, v := range it.Values(false, len(near.Entries), from) {
					if v != nil && !bytes.Equal(v, valueOf(near.Entries[i])) {
						t.Errorf("a value is %q", v)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if err := r.Close(); err != nil || c.Bytes() != 0 {
		t.Error(err, c.Bytes(), "bytes without readers")
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

// TestFiles: of many readers that are used, only so many have their files open, and each finds its own again.
func TestFiles(t *testing.T) {
	const count, most = 20, 4
	c, set := NewCache(0), files.NewSet(most)
	var open, greatest atomic.Int64
	var readers []*Reader
	var pairs [][]pair
	for i := range count {
		pairs = append(pairs, scattered(300, uint64(i)))
		image, _ := build(t, pairs[i], 300)
		fsys := &memFS{f: &memFile{b: image, open: &open}}
		r, err := Open(fsys, set, fmt.Sprint(i), testID, c)
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
				i := rnd.IntN(count)
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
	c, set := NewCache(0), files.NewSet(1)
	fsys := &memFS{f: &memFile{b: image}}
	r, err := Open(fsys, set, "one", testID, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	other, err := Open(&memFS{f: &memFile{b: image}}, set, "other", testID, c)
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
