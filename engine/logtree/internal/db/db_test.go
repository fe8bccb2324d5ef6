package db

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestModel compares long random histories with the reference engine: reads, scans both ways and
// snapshots, through flushes, merges, reclaim and reopening.
func TestModel(t *testing.T) {
	t.Parallel()
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
			if strings.HasPrefix(name, "manual") {
				oneGoroutine(t)
			}
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
	next, head := 0, 0
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
				switch k := rnd.IntN(42); {
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
				case k == 39 && rnd.IntN(2) == 0: // items leave a queue
					for range 1 + rnd.IntN(12) {
						n := 1 + rnd.IntN(4)
						b.DeleteRange(fmt.Appendf(nil, "seq/%09d", head), fmt.Appendf(nil, "seq/%09d", head+n))
						if head += n; head > next+1 {
							head = max(0, next-rnd.IntN(1000)*rnd.IntN(2))
						}
						for range rnd.IntN(5) {
							next++
							b.Set(fmt.Appendf(nil, "seq/%09d", next), fmt.Appendf(nil, "item %d of step %d", next, step))
						}
					}
				case k == 40: // small ones, anywhere
					for range 1 + rnd.IntN(20) {
						k := key()
						b.DeleteRange(k, append(bytes.Clone(k), 0))
					}
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

// TestSegmentsAscend: the ids of the log's segments ascend along the log even when one is prepared
// while the log cannot wait for it and makes another. What is no longer needed is told by its id:
// out of order, segments that the log still writes to were closed.
func TestSegmentsAscend(t *testing.T) {
	d, _ := manual(t)
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
		if d.log.Current().ID < last {
			t.Fatalf("segment %d follows segment %d", d.log.Current().ID, last)
		}
		last = d.log.Current().ID
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

// TestTruncationFreesFiles: deleting the front of a log removes whole tables and segments, without
// anything being written but the delete.
func TestTruncationFreesFiles(t *testing.T) {
	t.Parallel()
	d, c := manual(t)
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

// TestEmptyRanges: batches that do nothing still count as something in the memtable, which is given up when it
// is full.
func TestEmptyRanges(t *testing.T) {
	d, _ := manual(t)
	defer d.Close()
	var b holdfast.Batch
	for range 1000 {
		b.DeleteRange([]byte("z"), []byte("a"))
	}
	for range 200 {
		if err := commit(d, &b, holdfast.Memory); err != nil {
			t.Fatal(err)
		}
	}
	if held := d.Metrics().MemoryBytes; held > 1<<20 {
		t.Errorf("%d bytes of memory are held, with a budget of 64 KiB", held)
	}
}

// TestManyWriters lets many goroutines append to one sequence, as an event store does, and checks
// that all of it is there, then and after reopening.
func TestManyWriters(t *testing.T) {
	t.Parallel()
	for _, level := range holdfast.Levels()[:3] { // there is one machine
		t.Run(level.String(), func(t *testing.T) {
			c := testConfig(vfs.OS(), t.TempDir())
			c.Memory = 4 << 20
			d, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			var order sync.Mutex
			var last uint64
			var writers sync.WaitGroup
			rounds := 300
			if testing.Short() {
				rounds = 60
			}
			if level == holdfast.Power {
				rounds = 60
			}
			for w := range 64 {
				writers.Go(func() {
					var b holdfast.Batch
					for range rounds {
						b.Reset()
						order.Lock()
						for range 1 + w {
							last++
							b.Set(binary.BigEndian.AppendUint64([]byte("e"), last), fmt.Appendf(nil, `{"index": %d}`, last))
						}
						r, err := d.Apply(&b, level)
						order.Unlock()
						if err != nil {
							t.Errorf("apply: %v", err)
							return
						}
						if err := r.Wait(); err != nil {
							t.Errorf("wait: %v", err)
							return
						}
					}
				})
			}
			writers.Wait()
			check := func() {
				t.Helper()
				it := d.Scan(holdfast.Range{})
				defer it.Close()
				n := uint64(0)
				for it.Next() {
					n++
					if k := binary.BigEndian.Uint64(it.Key()[1:]); k != n || string(it.Value()) != fmt.Sprintf(`{"index": %d}`, n) {
						t.Fatalf("entry %d is %d: %q", n, k, it.Value())
					}
				}
				if it.Err() != nil || n != last {
					t.Fatalf("%d of %d entries, %v", n, last, it.Err())
				}
			}
			check()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			c.New = false
			if d, err = Open(c); err != nil {
				t.Fatal(err)
			}
			check()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestLoneCommitAllocates: a writer alone at Power allocates next to nothing for a commit.
func TestLoneCommitAllocates(t *testing.T) {
	c := testConfig(vfs.OS(), t.TempDir())
	c.Memory = 64 << 20 // no flush meanwhile
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	b.Set([]byte("key"), []byte("value"))
	if n := testing.AllocsPerRun(200, func() {
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
