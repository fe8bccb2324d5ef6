package table

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/vfs"
)

var firstSeed = flag.Uint64("table.seed", 1, "first seed of the random walks")

var testID = Identity{DB: [16]byte{'a', ' ', 's', 't', 'o', 'r', 'e', 7: 1, 15: 9}, ID: 42}

// memFile is a file in memory. It notes what is done to it and fails on demand.
type memFile struct {
	b      []byte
	writes []int // lengths
	syncs  int
	reads  atomic.Int64
	closed int
	open   *atomic.Int64 // if not nil, how many of many are open

	failWrite, failRead error
}

func (f *memFile) Name() string           { return "mem.run" }
func (f *memFile) Size() (int64, error)   { return int64(len(f.b)), nil }
func (f *memFile) Datasync() error        { return f.Sync() }
func (f *memFile) Allocate(n int64) error { return f.Truncate(max(n, int64(len(f.b)))) }
func (f *memFile) Sync() error            { f.syncs++; return nil }
func (f *memFile) Truncate(size int64) error {
	f.b = append(f.b[:min(size, int64(len(f.b)))], make([]byte, max(0, size-int64(len(f.b))))...)
	return nil
}

func (f *memFile) Close() error {
	f.closed++
	if f.open != nil {
		f.open.Add(-1)
	}
	return nil
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.reads.Add(1)
	if f.failRead != nil {
		return 0, f.failRead
	}
	if off >= int64(len(f.b)) {
		return 0, io.EOF
	}
	n := copy(b, f.b[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	if f.failWrite != nil {
		return 0, f.failWrite
	}
	f.writes = append(f.writes, len(b))
	if end := off + int64(len(b)); end > int64(len(f.b)) {
		f.b = append(f.b, make([]byte, end-int64(len(f.b)))...)
	}
	return copy(f.b[off:], b), nil
}

// memFS opens one file, whatever the name.
type memFS struct {
	vfs.FS
	f        *memFile
	failOpen error
}

func (fs *memFS) Open(string) (vfs.File, error) {
	if fs.f.open != nil && fs.failOpen == nil {
		fs.f.open.Add(1)
	}
	return fs.f, fs.failOpen
}

func openMem(f *memFile, id Identity, c *Cache) (*Reader, error) {
	return Open(&memFS{f: f}, files.NewSet(8), f.Name(), id, c)
}

// modes are the ways a table is read.
var modes = []struct {
	name string
	open func(b []byte, id Identity) (*Reader, error)
}{
	{"cached", func(b []byte, id Identity) (*Reader, error) { return openMem(&memFile{b: b}, id, NewCache(1<<20)) }},
	{"uncached", func(b []byte, id Identity) (*Reader, error) { return openMem(&memFile{b: b}, id, NewCache(0)) }},
}

type pair struct {
	key []byte
	e   Entry
}

// build writes a table of the pairs, with blocks of about target bytes.
func build(t testing.TB, pairs []pair, target int) ([]byte, Info) {
	t.Helper()
	f := new(memFile)
	w := NewWriter(f, testID)
	w.target = target
	for _, p := range pairs {
		if err := w.Add(p.key, p.e); err != nil {
			t.Fatal(err)
		}
	}
	info, err := w.Finish(1234)
	if err != nil {
		t.Fatal(err)
	}
	return f.b, info
}

// ascending is n pairs with 16-byte keys and 100-byte values, as a log leaves them that is written in the order of
// its keys, a batch at a time.
func ascending(n int) []pair {
	pairs := make([]pair, n)
	place := uint64(3<<32 + 64)
	for i := range pairs {
		key := make([]byte, 16)
		copy(key, "e\x04nametbl")
		binary.BigEndian.PutUint64(key[8:], uint64(i))
		if i%100 == 0 {
			place += 40
		}
		place += 20
		pairs[i] = pair{key, Entry{Place: place, Len: 100, Sum: uint32(i) * 2654435761}}
		place += 100
	}
	return pairs
}

// scattered is n pairs with random 16-byte keys in the order of the keys, and places in that of a log written in
// another.
func scattered(n int, seed uint64) []pair {
	rnd := rand.New(rand.NewPCG(seed, 1))
	pairs := ascending(n)
	for i := range pairs {
		binary.BigEndian.PutUint64(pairs[i].key, rnd.Uint64())
		binary.BigEndian.PutUint64(pairs[i].key[8:], rnd.Uint64())
	}
	sort.Slice(pairs, func(i, j int) bool { return bytes.Compare(pairs[i].key, pairs[j].key) < 0 })
	return pairs
}

func (p pair) String() string { return fmt.Sprintf("%.30q: %+v", p.key, p.e) }
