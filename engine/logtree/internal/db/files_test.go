package db

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// counted counts the files that are open, and fails to open more where it is told to.
type counted struct {
	vfs.FS
	open, greatest atomic.Int64
	fail           atomic.Pointer[error]
}

func (c *counted) Open(name string) (vfs.File, error) {
	if err := c.fail.Load(); err != nil {
		return nil, *err
	}
	return c.count(c.FS.Open(name))
}
func (c *counted) Create(name string) (vfs.File, error)    { return c.count(c.FS.Create(name)) }
func (c *counted) OpenWrite(name string) (vfs.File, error) { return c.count(c.FS.OpenWrite(name)) }

func (c *counted) count(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	for n := c.open.Add(1); n > c.greatest.Load(); {
		c.greatest.Store(n)
	}
	m, maps := f.(vfs.Mapper)
	if maps {
		return &countedMap{countedFile{File: f, c: c}, m}, nil
	}
	return &countedFile{File: f, c: c}, nil
}

type countedFile struct {
	vfs.File
	c    *counted
	once sync.Once
}

func (f *countedFile) Close() error {
	f.once.Do(func() { f.c.open.Add(-1) })
	return f.File.Close()
}

type countedMap struct {
	countedFile
	vfs.Mapper
}

// TestFewOpenFiles: of hundreds of files a few are open at a time, while many goroutines read, write, merge, verify and
// make checkpoints, and everything is right. Opening, also for reading only, needs no more.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	const most, size = 8, 500
	n := 2000
	if testing.Short() {
		n = 800
	}
	m := vfs.NewMem()
	c, copied := testConfig(nil, "db"), "copied"
	fsys := &counted{FS: m}
	c.FS, c.Sizes = fsys, Sizes{Memtable: 32 << 10, Segment: 8 << 10, Table: 4 << 10, Files: most}
	if err := errors.Join(m.MkdirAll(c.Dir), m.MkdirAll(copied), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	value := func(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%05d", i), size/5) }
	put := func(d *DB, from, to, step int) {
		for i := from; i < to; i += step {
			var b holdfast.Batch
			b.Set(stepKey(i), value(i))
			if err := commit(d, &b, holdfast.Process); err != nil {
				t.Error(err)
				return
			}
		}
	}
	put(d, 0, n, 1)
	var group sync.WaitGroup
	for g := range uint64(4) {
		group.Go(func() {
			r := rand.New(rand.NewPCG(g, 1))
			for range 500 {
				i := r.IntN(n)
				if v, err := d.Get(nil, stepKey(i)); err != nil || !bytes.Equal(v, value(i)) {
					t.Errorf("key %d: %.10q, %v", i, v, err)
					return
				}
			}
		})
	}
	group.Go(func() { put(d, 0, n, 7) })
	group.Go(func() {
		if err := d.Compact(t.Context(), holdfast.Range{Lo: stepKey(n / 3), Hi: stepKey(n / 2)}); err != nil {
			t.Error(err)
		}
	})
	group.Go(func() {
		p, release, err := d.Pin()
		if err != nil {
			t.Error(err)
			return
		}
		defer release()
		p.FS = m // it has a limit of its own
		v, err := check.VerifyPinned(p, func() error { return nil })
		if err != nil || len(v.Damage) > 0 {
			t.Error(v, err)
		}
	})
	group.Go(func() {
		err := d.Life.Long(t.Context(), func(ctx context.Context) error { return d.Checkpoint(ctx, copied) })
		if err != nil {
			t.Error(err)
		}
	})
	group.Wait()
	files, err := fsys.List(c.Dir)
	if err != nil || len(files) < 10*most {
		t.Fatal(len(files), "files:", err)
	}
	// Besides what is read there are those that are written: segments of the log and of moved values that no flush or
	// merge has left, tables and manifests; each reader may have one open that does not count.
	if now, most := fsys.greatest.Load(), int64(most+24); now > most {
		t.Errorf("%d files were open, of %d", now, len(files))
	}
	if err := d.Close(); err != nil || fsys.open.Load() > 0 {
		t.Fatalf("%d files are open: %v", fsys.open.Load(), err)
	}
	c.New = false
	for _, dir := range []string{c.Dir, copied} {
		for _, readOnly := range []bool{true, false} {
			fsys.greatest.Store(0)
			c.Dir, c.ReadOnly = dir, readOnly
			d, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			it := d.Scan(holdfast.Range{})
			for ; it.Next(); got++ {
				if !bytes.Equal(it.Key(), stepKey(got)) || !bytes.Equal(it.Value(), value(got)) {
					t.Fatalf("%q is %.10q", it.Key(), it.Value())
				}
			}
			if err := it.Close(); err != nil || got != n {
				t.Fatal(got, err)
			}
			if now := fsys.greatest.Load(); now > most+16 {
				t.Errorf("%s, read only %v: %d files were open", dir, readOnly, now)
			}
			if err := errors.Join(d.Close()); err != nil || fsys.open.Load() > 0 {
				t.Fatalf("%d files are open: %v", fsys.open.Load(), err)
			}
		}
	}
}

// TestReopenFails: a file that cannot be opened again is an error of the read that needs it, and over when the cause
// is. One that is missing, or is another one, is ErrCorrupt; too many open files are not, and no merge takes what they
// keep from it for damage.
func TestReopenFails(t *testing.T) {
	t.Parallel()
	c := testConfig(nil, "db")
	m := vfs.NewMem()
	fsys := &counted{FS: m}
	c.FS, c.Manual, c.NoMapping, c.Sizes = fsys, true, true, Sizes{Memtable: 16 << 10, Segment: 16 << 10, Files: 1}
	if err := errors.Join(m.MkdirAll(c.Dir), m.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { d.Close() }()
	const n = 200
	for i := range n {
		var b holdfast.Batch
		b.Set(stepKey(i), bytes.Repeat([]byte{byte(i)}, 500))
		if err := commit(d, &b, holdfast.Process); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	read := func() (failed int, last error) {
		for i := range n / 2 {
			v, err := d.Get(nil, stepKey(i))
			switch {
			case err != nil:
				failed, last = failed+1, err
			case !bytes.Equal(v, bytes.Repeat([]byte{byte(i)}, 500)):
				t.Fatalf("key %d: %.10q", i, v)
			}
		}
		return failed, last
	}
	for _, x := range []struct{ fail, class error }{
		{syscall.EMFILE, syscall.EMFILE}, {syscall.ENFILE, syscall.ENFILE}, {fs.ErrNotExist, holdfast.ErrCorrupt},
		{holdfast.ErrReplaced, holdfast.ErrReplaced},
	} {
		fsys.fail.Store(&x.fail)
		failed, err := read()
		corrupt := x.class == holdfast.ErrCorrupt
		if failed == 0 || !errors.Is(err, x.class) || errors.Is(err, holdfast.ErrCorrupt) != corrupt {
			t.Errorf("%v: %d reads failed with %v", x.fail, failed, err)
		}
		if x.fail == syscall.EMFILE {
			if err := d.Compact(t.Context(), holdfast.Range{}); err != nil && !errors.Is(err, x.fail) {
				t.Errorf("Compact: %v", err)
			}
			if m := d.Metrics(); m.Poison != nil || errors.Is(m.Trouble, holdfast.ErrCorrupt) {
				t.Error(m.Poison, m.Trouble)
			}
		}
		fsys.fail.Store(nil)
		if failed, err := read(); failed > 0 {
			t.Errorf("%v is over, and %d reads fail with %v", x.fail, failed, err)
		}
	}
	// Another file under the name of one that is closed.
	ids := d.segmentIDs()
	first, second := format.SegmentName(c.Dir, ids[0]), format.SegmentName(c.Dir, ids[1])
	aside := filepath.Join(c.Dir, "aside")
	if _, err := d.Get(nil, stepKey(n/2)); err != nil { // closes others
		t.Fatal(err)
	}
	if err := errors.Join(m.Rename(first, aside), m.Link(second, first)); err != nil {
		t.Fatal(err)
	}
	if failed, err := read(); failed == 0 || !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("%d reads failed with %v", failed, err)
	}
	if err := errors.Join(m.Remove(first), m.Rename(aside, first)); err != nil {
		t.Fatal(err)
	}
	if failed, err := read(); failed > 0 || d.Metrics().Poison != nil {
		t.Error(failed, err, d.Metrics().Poison)
	}
}

// TestRemoveObsoleteWaits: who removes obsolete files finds them gone afterwards, also if another goroutine had begun
// to remove them. Compact once returned while the files of a whole database were still being removed.
func TestRemoveObsoleteWaits(t *testing.T) {
	t.Parallel()
	d, c := manual(t)
	defer func() { d.Close() }()
	m := c.FS.(*vfs.Mem)
	name := format.SegmentName(c.Dir, 999)
	f, err := m.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	second := make(chan bool)
	m.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRemove && op.Name == name {
			go func() {
				d.removeObsolete()
				_, err := m.Size(name)
				second <- errors.Is(err, fs.ErrNotExist)
			}()
			for range 1000 { // it has time to come back too early
				runtime.Gosched()
			}
		}
		return nil
	})
	d.makeObsolete(name)
	d.removeObsolete()
	if !<-second {
		t.Error("it returned while the file was still there")
	}
}
