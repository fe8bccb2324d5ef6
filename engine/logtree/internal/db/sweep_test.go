package db

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestSweep: keys with small values that are put again and again, in random order, take little more room than they
// need, most values come to lie in the order of the keys, and none is newer than its segment's begin frame says. That
// once held only for compactions that take in nothing newer.
func TestSweep(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	const keys, size, rounds = 4000, 100, 12
	x := newDrive(t, 1<<20, func(c *Config) { c.Sizes = Sizes{Memtable: 64 << 10, Segment: 64 << 10, Table: 16 << 10} })
	r := rand.New(rand.NewPCG(1, 2))
	op := uint64(0) // the number of the last one
	want := map[string]uint64{}
	set := func(b *holdfast.Batch, k int) {
		op++
		value := make([]byte, size)
		binary.LittleEndian.PutUint64(value, op)
		b.Set(scattered(k), value)
		want[string(scattered(k))] = op
	}
	sweeps, took := 0, false
	for round := range rounds {
		var b holdfast.Batch
		for i := range keys {
			if round == 0 {
				set(&b, i)
			} else {
				set(&b, r.IntN(keys))
			}
			if b.Len() < 50 {
				continue
			}
			if err := commit(x.d, &b, holdfast.Power); err != nil {
				t.Fatal(err)
			}
			b.Reset()
			if _, err := x.d.Work(1); err != nil { // so flushes come between steps
				t.Fatal(err)
			}
			if x.d.Inspect().InSweep() {
				sweeps++
			}
		}
		x.work()
		if round < 3 {
			continue
		}
		used := x.d.Inspect().Used()
		if limit := int64(keys * (8 + size) * 17 / 10); used > limit {
			t.Errorf("round %d: %d bytes of log, more than %d", round, used, limit)
		}
		took = x.checkMoved(want) || took
	}
	if sweeps == 0 || !took {
		t.Errorf("%d times in a sweep, values found in moved segments: %v; this tests nothing", sweeps, took)
	}
}

// checkMoved checks that the newest values, which begin with the numbers of their operations, are there, and no newer
// than the segments of moved values say that they are in. It reports whether it met such a segment.
func (x *drive) checkMoved(want map[string]uint64) (met bool) {
	x.t.Helper()
	d := x.d
	all, err := contents(d)
	if err != nil || len(all) != len(want) {
		x.t.Fatalf("%d of %d keys, %v", len(all), len(want), err)
	}
	for key, n := range want {
		if got := binary.LittleEndian.Uint64([]byte(all[key])); got != n {
			x.t.Fatalf("key %x has the value of operation %d, not %d", key, got, n)
		}
	}
	v := d.latest().view
	defer v.release()
	said := map[uint32]uint64{}
	for _, s := range segmentsOf(v.ver) {
		if s.Kind == format.SegmentMoved {
			b, err := s.Read(nil, format.SegmentHeaderSize+format.FrameHeader, 8)
			if err != nil {
				x.t.Fatal(err)
			}
			said[s.ID] = binary.LittleEndian.Uint64(b)
		}
	}
	for _, tier := range v.ver.Tiers {
		for _, ref := range tier.Refs {
			it := ref.Table.Reader.Iter()
			for it.Next() {
				e := it.Entry()
				if seq, ok := said[uint32(e.Place>>32)]; ok && !e.Tombstone {
					met = true
					value, err := v.ver.Value(nil, e)
					if n := binary.LittleEndian.Uint64(value); err != nil || n > seq {
						x.t.Fatalf("the value of operation %d is in a segment of values up to %d, %v", n, seq, err)
					}
				}
			}
		}
	}
	return met
}

// TestSweepBeside: sweeps go on beside writers, range deletes, Compact and iterators that are held, which see what they
// saw; what is there in the end is there again after opening.
func TestSweepBeside(t *testing.T) {
	t.Parallel()
	const keys, size, writers = 2000, 60, 4
	writes := 2_000
	if testing.Short() {
		writes = 600 // more than one range is deleted
	}
	c := testConfig(vfs.NewMem(), "db")
	c.Memory, c.Sizes = 1<<20, Sizes{Memtable: 32 << 10, Segment: 64 << 10, Table: 16 << 10}
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	key := func(w, k int) []byte { return binary.BigEndian.AppendUint32([]byte{byte(w)}, uint32(k)*0x9E3779B1) }
	want := make([]map[string]string, writers)
	var all sync.WaitGroup
	for w := range writers {
		want[w] = map[string]string{}
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			var b holdfast.Batch
			for i := range writes {
				b.Reset()
				k := key(w, r.IntN(keys))
				if i%500 == 499 {
					hi := []byte{byte(w + 1)} // the end of the writer's keys
					if k[1] < 250 {
						hi = []byte{byte(w), k[1] + 5}
					}
					b.DeleteRange(k, hi)
					for x := range want[w] {
						if x >= string(k) && x < string(hi) {
							delete(want[w], x)
						}
					}
				} else {
					value := make([]byte, size)
					binary.LittleEndian.PutUint64(value, uint64(i))
					b.Set(k, value)
					want[w][string(k)] = string(value)
				}
				if err := commit(d, &b, holdfast.Process); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() { // holds an iterator for a while, and compacts
		for n := 0; ; n++ {
			before, err := contents(d)
			it := d.Scan(holdfast.Range{})
			for range 100 {
				it.Next()
			}
			if n%4 == 3 {
				err = errors.Join(err, d.Compact(t.Context(), holdfast.Range{}))
			}
			time.Sleep(20 * time.Millisecond)
			for it.Next() {
			}
			if err = errors.Join(err, it.Close()); err != nil || len(before) > keys*writers {
				t.Errorf("%d keys, %v", len(before), err)
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	all.Wait()
	close(stop)
	beside.Wait()
	for range 2 {
		got, err := contents(d)
		n := 0
		for w := range writers {
			n += len(want[w])
			for k, v := range want[w] {
				if got[k] != v {
					t.Fatalf("key %x is %x, not %x", k, got[k], v)
				}
			}
		}
		if err != nil || len(got) != n {
			t.Fatalf("%d keys, not %d, %v", len(got), n, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		c.New = false
		if d, err = Open(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCompactWhenMergesFail: Compact tells of a merge that fails though it is not its own. It once waited for ever for
// a sweep over which smaller merges were begun, failed, and were begun again.
func TestCompactWhenMergesFail(t *testing.T) {
	t.Parallel()
	const keys, size = 4000, 100
	x := newDrive(t, 1<<20, func(c *Config) { c.Sizes = Sizes{Memtable: 64 << 10, Segment: 64 << 10, Table: 16 << 10} })
	r := rand.New(rand.NewPCG(1, 2))
	commitSome := func() {
		var b holdfast.Batch
		for range 50 {
			b.Set(scattered(r.IntN(keys)), make([]byte, size))
		}
		if err := commit(x.d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
	}
	failure := errors.New("no file can be made")
	failing := func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, ".run") {
			return failure
		}
		return nil
	}
	for range 4000 {
		commitSome()
		if _, err := x.d.Work(1); err != nil {
			t.Fatal(err)
		}
		if !x.d.Inspect().InSweep() {
			continue
		}
		for range 2 * policy.MinTiers * policy.MaxFull { // enough for a merge of small tiers to be due
			commitSome()
			if _, err := x.d.flushOnce(); err != nil {
				t.Fatal(err)
			}
		}
		// Compact would fail in its flush otherwise.
		x.d.rotate()
		for more := true; more; {
			var err error
			if more, err = x.d.flushOnce(); err != nil {
				t.Fatal(err)
			}
		}
		x.fs.SetHook(failing)
		if err := x.d.Compact(&countdown{Context: t.Context(), calls: 1000}, holdfast.Range{}); !errors.Is(err, failure) {
			t.Fatalf("Compact returned %v", err)
		}
		x.fs.SetHook(nil)
		if err := x.d.Compact(t.Context(), holdfast.Range{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("there was no sweep")
}

// TestSweepReadsAtOnce: where reads take long, many are under way while values are moved, and each comes to its place.
func TestSweepReadsAtOnce(t *testing.T) {
	t.Parallel()
	const keys, size, batches = 3000, 100, 200
	fsys := vfs.NewMem()
	c := testConfig(fsys, "db")
	c.Memory, c.Sizes = 1<<20, Sizes{Memtable: 64 << 10, Segment: 256 << 10, Table: 32 << 10}
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var now, most atomic.Int64
	fsys.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && op.Len == size {
			n := now.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(20 * time.Microsecond)
			now.Add(-1)
		}
		return nil
	})
	r := rand.New(rand.NewPCG(1, 2))
	want := map[string]uint64{}
	var b holdfast.Batch
	for n := range uint64(batches) {
		b.Reset()
		for range 50 {
			k := scattered(r.IntN(keys))
			value := make([]byte, size)
			binary.LittleEndian.PutUint64(value, n)
			b.Set(k, value)
			want[string(k)] = n
		}
		if err := commit(d, &b, holdfast.Process); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Compact(t.Context(), holdfast.Range{}); err != nil {
		t.Fatal(err)
	}
	if most.Load() < 2 {
		t.Errorf("%d reads at once", most.Load())
	}
	all, err := contents(d)
	if err != nil || len(all) != len(want) {
		t.Fatalf("%d of %d keys, %v", len(all), len(want), err)
	}
	for k, n := range want {
		if got := binary.LittleEndian.Uint64([]byte(all[k])); got != n || len(all[k]) != size {
			t.Fatalf("key %x has the value of batch %d, not %d", k, got, n)
		}
	}
}

// TestFastReadsAreNotLeftForLater: when what is moved is in memory again, values are read when they are met, also where
// goroutines that read at once would share one processor. They once stayed left for later for ever.
func TestFastReadsAreNotLeftForLater(t *testing.T) {
	x := movingSteps(t, 6000, false)
	d := x.d
	c := d.compactor.last()
	d.manual = false
	defer func() { d.manual = true }()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c.mover.slow = true

	// A read takes a fifth of what is slow, and both are long enough that a busy machine adds little.
	d.slowRead = 200 * time.Microsecond
	x.fs.SetHook(func(op vfs.Op) error {
		for start := time.Now(); op.Kind == vfs.OpRead && time.Since(start) < d.slowRead/5; {
		}
		return nil
	})
	steps := 0
	for ; c.mover.slow && len(d.Inspect().Compacting) > 0; steps++ { // some may be slow because the machine is busy
		if _, err := d.compactor.step(); err != nil {
			t.Fatal(err)
		}
	}
	if steps == 0 || c.mover.slow {
		t.Errorf("reads count as slow after %d steps", steps)
	}
}
