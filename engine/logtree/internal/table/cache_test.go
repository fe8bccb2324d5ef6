package table

import (
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
	c := NewCache(room * (1024 + chunkOverhead))
	slots := make([]atomic.Pointer[chunk], 3*room)
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
			t.Errorf("phase %d: %d of %d chunks are at hand", phase, hits, room/2)
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
