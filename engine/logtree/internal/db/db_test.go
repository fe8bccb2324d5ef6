package db

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/vfs"
)

var seed = flag.Uint64("db.seed", 1, "first seed of the random histories")

// testConfig opens small files in dir, so that all kinds of background work happen soon.
func testConfig(fsys vfs.FS, dir string) Config {
	return Config{FS: fsys, Dir: dir, New: true, ID: [16]byte{1, 2, 3}, Memory: 64 << 10, Logger: slog.New(slog.DiscardHandler), SyncEvery: time.Second}
}

// TestModel compares long random histories with the reference engine: reads, scans both ways and
// snapshots, through flushes, merges, reclaim and reopening.
func TestModel(t *testing.T) {
	for name, x := range map[string]struct {
		histories, steps int
		mapped           bool
		change           func(*Config)
	}{
		"background, mapped": {3, 2000, true, func(c *Config) { c.Memory *= 4 }},
		"manual, mapped":     {3, 2000, true, func(c *Config) { c.Manual, c.Memory = true, 4*c.Memory }},
		"manual, read calls": {3, 2000, false, func(c *Config) { c.Manual = true }},
		"background, disk":   {1, 300, true, func(c *Config) { c.Memory, c.FS, c.Dir = 4*c.Memory, vfs.OS(), t.TempDir() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				x.histories = 1
			}
			for i := range x.histories {
				fsys := vfs.NewMem()
				fsys.SetMapping(x.mapped)
				t.Cleanup(fsys.Unmap)
				c := testConfig(fsys, "db")
				x.change(&c)
				testModel(t, *seed+uint64(i), c, x.steps)
			}
		})
	}
}

func testModel(t *testing.T, seed uint64, c Config, steps int) {
	t.Logf("-db.seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	open := func() *DB {
		d, err := Open(c)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		c.New = false
		return d
	}
	d, model := open(), mem.New()
	key := func() []byte {
		if rnd.IntN(3) == 0 {
			return fmt.Appendf(nil, "log/%08d", rnd.IntN(3000))
		}
		return fmt.Appendf(nil, "%c%d", 'a'+rune(rnd.IntN(3)), rnd.IntN(1500))
	}
	next := 0
	type view struct{ got, want holdfast.Snapshot }
	var views []view
	drop := func(i int) {
		views[i].got.Close()
		views[i].want.Close()
		views = append(views[:i], views[i+1:]...)
	}
	var b holdfast.Batch
	for step := range steps {
		switch n := rnd.IntN(100); {
		case n < 70:
			b.Reset()
			if rnd.IntN(4) == 0 { // values that stay in the log
				for range 1 + rnd.IntN(3) {
					if rnd.IntN(5) == 0 {
						b.Delete(key())
					}
					b.Set(key(), bytes.Repeat([]byte{byte(step)}, 300+rnd.IntN(3000)))
				}
			}
			for range 1 + rnd.IntN(12) {
				if b.Size() > 200 && rnd.IntN(4) > 0 {
					break
				}
				switch k := rnd.IntN(40); {
				case k < 20:
					b.Set(key(), bytes.Repeat([]byte{byte(step)}, rnd.IntN(200)))
				case k < 30: // ascending
					next++
					b.Set(fmt.Appendf(nil, "seq/%09d", next), fmt.Appendf(nil, "value %d of step %d", next, step))
				case k < 38:
					b.Delete(key())
				case k == 38:
					lo, hi := key(), key()
					if rnd.IntN(8) == 0 {
						hi = nil
					}
					b.DeleteRange(lo, hi)
				default: // truncation of a log
					b.DeleteRange([]byte("seq/"), fmt.Appendf(nil, "seq/%09d", max(0, next-rnd.IntN(2000))))
				}
			}
			if err := commit(d, &b, holdfast.Levels()[rnd.IntN(3)]); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			if err := holdfast.Commit(model, &b, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
		case n < 80:
			k := key()
			got, err := d.Get(nil, k)
			want, wantErr := model.Get(nil, k)
			if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
				t.Fatalf("step %d: Get(%q) = %q, %v; want %q, %v", step, k, got, err, want, wantErr)
			}
		case n < 86:
			compare(t, step, d, model, holdfast.Range{Lo: key(), Hi: key(), Reverse: rnd.IntN(2) == 0})
		case n < 88:
			compare(t, step, d, model, holdfast.Range{Reverse: rnd.IntN(2) == 0})
		case n < 91:
			got, err := d.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			want, _ := model.Snapshot()
			views = append(views, view{got, want})
			if len(views) > 4 {
				drop(rnd.IntN(len(views)))
			}
		case n < 94 && len(views) > 0:
			v := views[rnd.IntN(len(views))]
			compare(t, step, v.got, v.want, holdfast.Range{Reverse: rnd.IntN(2) == 0})
		case n < 98:
			if c.Manual {
				if _, err := d.Work(1 + rnd.IntN(3)); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
			}
		case n == 98:
			for len(views) > 0 {
				drop(0)
			}
			if err := d.Close(); err != nil {
				t.Fatalf("step %d: close: %v", step, err)
			}
			d = open()
		}
	}
	compare(t, -1, d, model, holdfast.Range{})
	for len(views) > 0 {
		drop(0)
	}
	if c.Manual {
		if _, err := d.Work(1000); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, -2, d, model, holdfast.Range{})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = open()
	compare(t, -3, d, model, holdfast.Range{})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := c.FS.List(c.Dir)
	if err != nil || len(entries) > 200 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

func compare(t *testing.T, step int, got, want holdfast.Reader, r holdfast.Range) {
	t.Helper()
	g, w := got.Scan(r), want.Scan(r)
	defer g.Close()
	defer w.Close()
	for n := 0; ; n++ {
		a, b := g.Next(), w.Next()
		if a != b || a && (!bytes.Equal(g.Key(), w.Key()) || !bytes.Equal(g.Value(), w.Value())) {
			t.Fatalf("step %d: entry %d of [%q, %q): %v %q = %q, %v; want %v %q = %q", step, n, r.Lo, r.Hi, a, g.Key(), g.Value(), g.Err(), b, w.Key(), w.Value())
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

// TestSegmentsAscend: the ids of the log's segments ascend along the log even when one is prepared
// while the log cannot wait for it and makes another. What is no longer needed is told by its id:
// out of order, segments that the log still writes to were closed.
func TestSegmentsAscend(t *testing.T) {
	c := testConfig(vfs.NewMem(), "db")
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	c.Manual = true
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	last := uint32(0)
	for i := range 300 {
		b.Reset()
		n := 100
		if i%7 == 0 {
			n = 40_000 // larger than a prepared segment
		}
		b.Set(fmt.Appendf(nil, "key %d", i%50), make([]byte, n))
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
		if d.cur.id < last {
			t.Fatalf("segment %d follows segment %d", d.cur.id, last)
		}
		last = d.cur.id
		if i%3 == 0 {
			if _, err := d.Work(1); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTruncationFreesFiles: deleting the front of a log removes whole runs and segments, without
// anything being written but the delete.
func TestTruncationFreesFiles(t *testing.T) {
	c := testConfig(vfs.NewMem(), "db")
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	c.Manual = true
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	key := func(i int) []byte { return fmt.Appendf(nil, "log/%08d", i) }
	const n = 20_000
	for i := range n {
		b.Set(key(i), make([]byte, 100))
		if b.Len() == 50 {
			if err := commit(d, &b, holdfast.Process); err != nil {
				t.Fatal(err)
			}
			b.Reset()
			if _, err := d.Work(100); err != nil {
				t.Fatal(err)
			}
		}
	}
	size := func() (n int64) {
		names, err := c.FS.List(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			s, err := c.FS.Size(c.Dir + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			n += s
		}
		return n
	}
	before, written := size(), d.Metrics().BytesWritten
	b.Reset()
	b.DeleteRange(key(0), key(n-1000))
	if err := commit(d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Work(100); err != nil {
		t.Fatal(err)
	}
	if after := size(); after > before/4 {
		t.Errorf("%d bytes before, %d after 95 %% of the log were deleted", before, after)
	}
	if w := d.Metrics().BytesWritten - written; w > before/4 {
		t.Errorf("%d bytes were written for it", w)
	}
	it := d.Scan(holdfast.Range{})
	left := 0
	for it.Next() {
		left++
	}
	if err := it.Close(); err != nil || left != 1000 {
		t.Errorf("%d keys are left, %v", left, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
