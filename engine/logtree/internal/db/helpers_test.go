package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// manual opens a new database in memory that does no work by itself.
func manual(t *testing.T) (*DB, Config) { return manualWith(t, 64<<10) }

// manualWith is manual with another budget of memory, and with what changes says. The name of the directory is
// durable. The Config that it returns opens the database again.
func manualWith(t testing.TB, memory int64, changes ...func(c *Config)) (*DB, Config) {
	t.Helper()
	c := testConfig(vfs.NewMem(), "db")
	c.Manual, c.Memory, c.SyncEvery = true, memory, -1
	for _, change := range changes {
		change(&c)
	}
	if err := errors.Join(c.FS.MkdirAll(c.Dir), c.FS.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	c.New = false
	return d, c
}

// rotate ends the memtable.
func (d *DB) rotate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rotateMemtable()
}

// put commits sets, or with a value of nil deletes of ranges, and flushes them.
func (d *DB) put(t testing.TB, change func(b *holdfast.Batch)) {
	t.Helper()
	var b holdfast.Batch
	change(&b)
	if err := commit(d, &b, holdfast.Process); err != nil {
		t.Fatal(err)
	}
	d.rotate()
	for d.Inspect().Waiting > 0 {
		if _, err := d.flush(); err != nil {
			t.Fatal(err)
		}
	}
}

func sets(keys ...string) func(*holdfast.Batch) {
	return func(b *holdfast.Batch) {
		for _, k := range keys {
			b.Set([]byte(k), []byte("value of "+k))
		}
	}
}

func cut(lo, hi string) func(*holdfast.Batch) {
	return func(b *holdfast.Batch) { b.DeleteRange([]byte(lo), []byte(hi)) }
}

// roll makes syncs of another file fail, so that the next one that fails leaves something else on the disk.
func roll(t *testing.T, mem *vfs.Mem, times int) {
	t.Helper()
	f, err := mem.Create("other")
	if err != nil {
		t.Fatal(err)
	}
	mem.SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpSync, Name: "other"}))
	defer mem.SetHook(nil)
	for range times {
		if _, err := f.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err == nil {
			t.Fatal("a sync did not fail")
		}
	}
}

// write commits 50 bytes under key i.
func write(t *testing.T, d *DB, i int) {
	t.Helper()
	var b holdfast.Batch
	b.Set(fmt.Appendf(nil, "%08d", i), make([]byte, 50))
	if err := commit(d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
}

// scattered is a key of eight bytes whose place among the others has nothing to do with i.
func scattered(i int) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(i+1)*0x9E3779B97F4A7C15)
}

// drive is a database in memory on a disk that can fill up, with its background work done after each commit.
type drive struct {
	t  testing.TB
	fs *vfs.Mem
	c  Config
	d  *DB
}

func newDrive(t testing.TB, memory int64, changes ...func(c *Config)) *drive {
	t.Helper()
	d, c := manualWith(t, memory, changes...)
	x := &drive{t: t, fs: c.FS.(*vfs.Mem), c: c, d: d}
	t.Cleanup(func() { x.d.Close() })
	return x
}

func (x *drive) open() {
	x.t.Helper()
	var err error
	if x.d, err = Open(x.c); err != nil {
		x.t.Fatal(err)
	}
	x.c.New = false
}

func (x *drive) work() {
	x.t.Helper()
	if _, err := x.d.Work(10_000); err != nil {
		x.t.Fatal(err)
	}
}

// each commits an operation for each of n numbers, 100 at a time. It returns how many were committed before the first
// error.
func (x *drive) each(n int, op func(b *holdfast.Batch, i int)) (int, error) {
	x.t.Helper()
	var b holdfast.Batch
	for i := range n {
		op(&b, i)
		if b.Len() < 100 && i < n-1 {
			continue
		}
		if err := commit(x.d, &b, holdfast.Power); err != nil {
			return i - b.Len() + 1, err
		}
		b.Reset()
		x.work()
	}
	return n, nil
}

func (x *drive) count() int {
	x.t.Helper()
	all, err := contents(x.d)
	if err != nil {
		x.t.Fatal(err)
	}
	return len(all)
}

// flip changes a bit in the middle of that text in the files of that kind, or, for no text, of the largest of them.
func flip(t *testing.T, fsys *vfs.Mem, kind string, text []byte) {
	t.Helper()
	names, err := fsys.List("db")
	if err != nil {
		t.Fatal(err)
	}
	largest, most := "", int64(0)
	for _, name := range names {
		if name = filepath.Join("db", name); !strings.HasSuffix(name, kind) {
			continue
		}
		b, err := vfs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, text); len(text) > 0 && at >= 0 {
			largest, most = name, int64(2*at+len(text))
			break
		}
		if len(text) == 0 && int64(len(b)) > most {
			largest, most = name, int64(len(b))
		}
	}
	if err := fsys.Flip(largest, most/2, 0); err != nil {
		t.Fatal(err)
	}
}

var seed = flag.Uint64("db.seed", 1, "first seed of the random histories")

// testConfig opens small files in dir, so that all kinds of background work happen soon.
func testConfig(fsys vfs.FS, dir string) Config {
	return Config{FS: fsys, Dir: dir, New: true, ID: [16]byte{1, 2, 3}, Memory: 64 << 10,
		Logger: slog.New(slog.DiscardHandler), SyncEvery: time.Second}
}

func compare(t *testing.T, step int, got, want holdfast.Reader, r holdfast.Range) {
	t.Helper()
	g, w := got.Scan(r), want.Scan(r)
	defer g.Close()
	defer w.Close()
	for n := 0; ; n++ {
		a, b := g.Next(), w.Next()
		if a != b || a && (!bytes.Equal(g.Key(), w.Key()) || !bytes.Equal(g.Value(), w.Value())) {
			t.Fatalf("step %d: entry %d of [%q, %q): %v %q = %q, %v; want %v %q = %q", step, n, r.Lo, r.Hi, a, g.Key(),
				g.Value(), g.Err(), b, w.Key(), w.Value())
		}
		if !a {
			if g.Err() != nil {
				t.Fatalf("step %d: %v", step, g.Err())
			}
			return
		}
	}
}

// commit applies b and waits.
func commit(d *DB, b *holdfast.Batch, level holdfast.Level) error {
	r, err := d.Apply(b, level)
	if err != nil {
		return err
	}
	return r.Wait()
}

// contents is what a reader shows.
func contents(r holdfast.Reader) (map[string]string, error) {
	all := map[string]string{}
	it := r.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		all[string(it.Key())] = string(it.Value())
	}
	return all, it.Err()
}

// oneGoroutine skips a test with -short, which is for the race detector: it makes such a test slow, and finds nothing.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: there is one goroutine")
	}
}
