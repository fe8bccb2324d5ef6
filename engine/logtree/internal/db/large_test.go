package db

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// largeBatch is one of values that stay in the log, with a delete and a small value among them.
func largeBatch(d *DB, b *holdfast.Batch, mark byte) {
	b.Reset()
	b.Set([]byte("a"), bytes.Repeat([]byte{mark}, 3*d.leastLarge))
	b.Delete([]byte("b"))
	b.Set([]byte("c"), []byte{mark})
	b.Set([]byte("d"), bytes.Repeat([]byte{mark + 1}, 200_000+int(mark)%4)) // with padding of each length
}

func checkLarge(t *testing.T, when string, r holdfast.Reader, d *DB, mark byte) {
	t.Helper()
	want := map[string][]byte{
		"a": bytes.Repeat([]byte{mark}, 3*d.leastLarge), "c": {mark},
		"d": bytes.Repeat([]byte{mark + 1}, 200_000+int(mark)%4),
	}
	for _, k := range []string{"a", "b", "c", "d"} {
		v, err := r.Get(nil, []byte(k))
		if want[k] == nil && errors.Is(err, holdfast.ErrNotFound) {
			continue
		}
		if err != nil || !bytes.Equal(v, want[k]) {
			t.Fatalf("%s: %s has %d bytes %.8x, %v; want %d bytes %.8x", when, k, len(v), v, err, len(want[k]), want[k])
		}
	}
	for _, reverse := range []bool{false, true} {
		n := 0
		it := r.Scan(holdfast.Range{Reverse: reverse})
		for ; it.Next(); n++ {
			if !bytes.Equal(it.Value(), want[string(it.Key())]) {
				t.Fatalf("%s: a scan shows %s with %d bytes %.8x", when, it.Key(), len(it.Value()), it.Value())
			}
		}
		if err := it.Close(); err != nil || n != 3 {
			t.Fatalf("%s: a scan shows %d keys, %v", when, n, err)
		}
	}
}

// TestLargeValues: large values are read from the log at every stage: right after Apply at each level, from a
// snapshot whose segments nothing else needs any more, after a kill, and from tables.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"mapped":     testConfig(vfs.OS(), t.TempDir()),
		"read calls": testConfig(vfs.NewMem(), "db"),
	} {
		for _, level := range holdfast.Levels()[:3] { // there is one machine
			t.Run(fmt.Sprint(name, " ", level), func(t *testing.T) {
				c := c
				c.Dir += "/" + level.String()
				c.Manual, c.Memory, c.SyncEvery = true, 8<<20, -1
				c.Sizes.Segment = 256 << 10
				if err := c.FS.MkdirAll(c.Dir); err != nil {
					t.Fatal(err)
				}
				d, err := Open(c)
				if err != nil {
					t.Fatal(err)
				}
				var b holdfast.Batch
				b.Set([]byte("b"), []byte("to be deleted"))
				if err := commit(d, &b, level); err != nil {
					t.Fatal(err)
				}
				largeBatch(d, &b, 1)
				r, err := d.Apply(&b, level)
				if err != nil {
					t.Fatal(err)
				}
				checkLarge(t, "applied", d, d, 1)
				if err := r.Wait(); err != nil {
					t.Fatal(err)
				}
				if held := d.Inspect().Memtable.Held; held > 128<<10 {
					t.Errorf("%d bytes are in memory", held)
				}
				old, err := d.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				for i := range byte(20) {
					largeBatch(d, &b, 2+i)
					if err := commit(d, &b, level); err != nil {
						t.Fatal(err)
					}
					if i%8 == 7 {
						d.rotate()
					}
					if _, err := d.Work(100); err != nil {
						t.Fatal(err)
					}
				}
				if d.Inspect().isAlive(1) {
					t.Error("the first segment is still alive: this tests little")
				}
				checkLarge(t, "snapshot", old, d, 1)
				checkLarge(t, "after flushes", d, d, 21)
				old.Close()
				if err := d.log.Write(d.log.Appended()); err != nil {
					t.Fatal(err)
				}
				c.New = false
				again, err := Open(c) // as after a kill
				if err != nil {
					t.Fatal(err)
				}
				checkLarge(t, "after a kill", again, d, 21)
				again.rotate()
				if _, err := again.Work(100); err != nil {
					t.Fatal(err)
				}
				checkLarge(t, "from tables", again, d, 21)
				if err := again.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestLargeWriteFails: a large batch that cannot be written, wholly or in part, stops the database; it is seen as long
// as that is open, as every batch is that Apply took, and not after reopening.
func TestLargeWriteFails(t *testing.T) {
	for write := range int64(2) { // of the body and the header
		for _, level := range holdfast.Levels()[:3] { // there is one machine
			for _, short := range []int64{0, 1, 9} { // of a header whose last bytes may be zeros anyway
				d, c := manualWith(t, 8<<20)
				var b holdfast.Batch
				largeBatch(d, &b, 3)
				for range 4 { // until the segment has room for another
					if err := commit(d, &b, holdfast.Process); err != nil {
						t.Fatal(err)
					}
				}
				c.FS.(*vfs.Mem).SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpWrite, Name: "*.seg", Skip: write, Short: short}))
				largeBatch(d, &b, 10)
				r, err := d.Apply(&b, level)
				if err == nil {
					err = r.Wait()
				}
				if !errors.Is(err, holdfast.ErrPoisoned) {
					t.Fatalf("write %d failed at %v, and the commit returned %v", write, level, err)
				}
				checkLarge(t, "after a failed write", d, d, 10)
				if err := commit(d, &b, level); !errors.Is(err, holdfast.ErrPoisoned) {
					t.Fatalf("a commit after a failed write returned %v", err)
				}
				c.FS.(*vfs.Mem).SetHook(nil)
				if err := d.Close(); !errors.Is(err, holdfast.ErrPoisoned) {
					t.Fatalf("Close returned %v", err)
				}
				if d, err = Open(c); err != nil {
					t.Fatal(err)
				}
				checkLarge(t, "reopened", d, d, 3)
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestLargeDamage: a value that is read from the log before any table names it is checked.
func TestLargeDamage(t *testing.T) {
	d, c := manualWith(t, 8<<20)
	defer d.Close()
	var b holdfast.Batch
	largeBatch(d, &b, 3)
	if err := commit(d, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	f, err := c.FS.OpenWrite(format.SegmentName(c.Dir, d.log.Current().ID))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, d.log.End().Offset-100); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if v, err := d.Get(nil, []byte("d")); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("a damaged value was read: %d bytes, %v", len(v), err)
	}
	it := d.Scan(holdfast.Range{})
	for it.Next() {
		if string(it.Key()) == "d" {
			t.Error("a scan showed a damaged value")
		}
	}
	if err := it.Close(); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("a scan over a damaged value ended with %v", err)
	}
}

// TestLargeAfterFailedSync: large values that a failed sync may have dropped are still read by the program that wrote
// them.
func TestLargeAfterFailedSync(t *testing.T) {
	for i := range 24 {
		level := holdfast.Levels()[i%3]
		d, c := manualWith(t, 8<<20)
		roll(t, c.FS.(*vfs.Mem), i/3)
		var b holdfast.Batch
		largeBatch(d, &b, 3)
		for range 4 { // until the segment, which is durable, has room for another
			if err := commit(d, &b, holdfast.Power); err != nil {
				t.Fatal(err)
			}
		}
		largeBatch(d, &b, 10)
		r, err := d.Apply(&b, level)
		if err != nil {
			t.Fatal(err)
		}
		mem := c.FS.(*vfs.Mem)
		mem.SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpSync, Name: "*.seg"}))
		if err := d.Sync(); !errors.Is(err, holdfast.ErrPoisoned) {
			t.Fatalf("a failed sync returned %v", err)
		}
		if err := r.Wait(); !errors.Is(err, holdfast.ErrPoisoned) {
			t.Fatalf("a commit at %v returned %v after a failed sync", level, err)
		}
		mem.SetHook(nil)
		mem.DropCaches()
		checkLarge(t, "after a failed sync", d, d, 10)
		d.Close()
	}
}
