package db

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestFlushBesideMoves: a table that is flushed while a compaction is in progress does not get in the way of a ref that
// is about to come to the compaction's target from a newer tier. It once did: the tier then overlapped, keys could not
// be found, and the directory not be opened again.
func TestFlushBesideMoves(t *testing.T) {
	d, c := manual(t)
	d.put(t, sets("q1", "q2"))
	d.put(t, sets("b", "c"))
	d.put(t, sets("m", "q1", "z"))
	d.put(t, cut("q1", "q3"))
	ver := d.view.Load().ver
	if len(ver.Tiers) < 2 {
		t.Fatalf("%d tiers: this tests nothing", len(ver.Tiers))
	}
	d.edit.Lock()
	under := &compaction{oldest: ver.Tiers[len(ver.Tiers)-1].ID, newest: ver.Tiers[0].ID}
	d.compactor.begin(under)
	s := d.compactor.plan(under)
	d.compactor.edit.step = s
	ver.Acquire()
	d.edit.Unlock()
	out := d.tables.NewWriter()
	if err := d.compactor.rewrite(under, s, ver, out); err != nil {
		t.Fatal(err)
	}
	d.put(t, sets("n", "o"))
	d.edit.Lock()
	tiers := s.Tiers(d.view.Load().ver, out)
	if bad := tree.Overlapping(tiers); bad != nil {
		t.Errorf("refs overlap in tier %d", bad.ID)
	}
	if err := d.install(tiers, d.edit.from, nil, under.mover.commit()); err != nil {
		t.Fatal(err)
	}
	d.compactor.edit.step = nil
	d.compactor.finish(under)
	d.edit.Unlock()
	ver.Release()
	check := func() {
		t.Helper()
		for _, k := range []string{"b", "c", "m", "n", "o", "z"} {
			if v, err := d.Get(nil, []byte(k)); err != nil || string(v) != "value of "+k {
				t.Errorf("%s is %q, %v", k, v, err)
			}
		}
	}
	check()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if d, err = Open(c); err != nil {
		t.Fatal(err)
	}
	check()
	d.Close()
}

// TestDroppedOutputs: what a compaction has written and a range delete covered before it takes effect is
// removed.
func TestDroppedOutputs(t *testing.T) {
	d, c := manual(t)
	d.put(t, sets("a", "b", "c"))
	d.put(t, sets("b", "d"))
	var once atomic.Bool
	c.FS.(*vfs.Mem).SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, ".run") && once.CompareAndSwap(false, true) {
			d.put(t, cut("a", "z"))
		}
		return nil
	})
	if did, err := d.compactor.step(); !did || err != nil || !once.Load() {
		t.Fatalf("no compaction: %v, %v", did, err)
	}
	if _, err := d.Work(10); err != nil {
		t.Fatal(err)
	}
	if n := len(d.Inspect().Tables); n > 0 {
		t.Fatalf("%d tables are alive", n)
	}
	names, err := c.FS.List(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".run") {
			t.Errorf("%s is left", n)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// movingSteps is a database of n keys whose values a compaction moves, step by step, out of all segments that the log
// has left. A step moves some 16 KiB, a segment of moved values holds 24.
func movingSteps(t *testing.T, n int, mapped bool) *drive {
	t.Helper()
	x := newDrive(t, 64<<10, func(c *Config) {
		fsys := c.FS.(*vfs.Mem)
		fsys.SetMapping(mapped)
		t.Cleanup(fsys.Unmap)
		c.Sizes = Sizes{Memtable: 1 << 20, Segment: 24 << 10, Table: 16 << 10}
	})
	d := x.d
	for at := 0; at < n; at += 20 {
		var b holdfast.Batch
		for i := at; i < at+20; i++ {
			b.Set(stepKey(i), stepValue(i))
		}
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	x.moveAll()
	return x
}

// moveAll begins a compaction that empties all segments that the log has left.
func (x *drive) moveAll() {
	d, victims := x.d, map[uint32]bool{}
	l := d.Inspect()
	for _, s := range l.Segments {
		if !s.InLog {
			victims[s.ID] = true
		}
	}
	tiers := l.Tiers
	d.edit.Lock()
	defer d.edit.Unlock()
	d.compactor.begin(&compaction{oldest: tiers[len(tiers)-1].ID, newest: tiers[0].ID, victims: victims})
}

func stepKey(i int) []byte   { return fmt.Appendf(nil, "key %06d", i) }
func stepValue(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%06d ", i), 14) }

// TestSegmentFilledByLaterStep: a segment of moved values that nothing names any more stays as long as a step adds to
// it, also when the step has filled it and something else is installed before the step is.
func TestSegmentFilledByLaterStep(t *testing.T) {
	x := movingSteps(t, 2000, false)
	d := x.d
	if _, err := d.compactor.step(); err != nil {
		t.Fatal(err)
	}
	c := d.compactor.last()
	first, next := c.mover.seg, bytes.Clone(c.from)
	if first == nil || next == nil {
		t.Fatal("the first step has moved all, or nothing: this tests nothing")
	}
	d.put(t, func(b *holdfast.Batch) { b.DeleteRange(nil, next) })
	if d.view.Load().ver.Segment(first.ID) != nil {
		t.Fatal("the segment is still named: this tests nothing")
	}
	between := false
	x.fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.HasSuffix(op.Name, ".seg") && !between { // the first one is full
			between = true
			d.put(t, func(b *holdfast.Batch) { b.Set([]byte("another"), []byte("value")) })
		}
		return nil
	})
	if _, err := d.compactor.step(); err != nil {
		t.Fatal(err)
	}
	if !between {
		t.Fatal("the second step did not fill the segment: this tests nothing")
	}
	for range 2 {
		x.work()
		for i := range 2000 {
			v, err := d.Get(nil, stepKey(i))
			if deleted := bytes.Compare(stepKey(i), next) < 0; deleted != errors.Is(err, holdfast.ErrNotFound) ||
				!deleted && !bytes.Equal(v, stepValue(i)) {
				t.Fatalf("key %d: %q, %v", i, v, err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		x.open()
		d = x.d
	}
}

// TestNoMergeAfterFailure: a step that fails after the log has is undone like any other, and no other follows. The
// next one once went on in a segment that had been given up.
func TestNoMergeAfterFailure(t *testing.T) {
	x := movingSteps(t, 300, false)
	d := x.d
	before, err := x.fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	x.fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Name == format.TableName("db", d.mu.nextFile) {
			d.log.Fail(syscall.EIO)
			return syscall.EIO
		}
		return nil
	})
	if _, err := d.compactor.step(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the step: %v", err)
	}
	x.fs.SetHook(nil)
	if after, err := x.fs.List("db"); err != nil || !slices.Equal(before, after) {
		t.Errorf("%v, %v are left of %v", after, err, before)
	}
	if did, err := d.compactor.step(); did || !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("another step: %v, %v", did, err)
	}
}

// TestTwoManifests: when it is not known which of two manifests is durable the engine stops, whoever flushes, and
// also if the cause is a full disk, of which something could be given back.
func TestTwoManifests(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		for name, flush := range map[string]func(d *DB) error{
			"Flush": (*DB).Flush,
			"Work": func(d *DB) error {
				d.rotate()
				_, err := d.Work(1)
				return err
			},
		} {
			x := movingSteps(t, 100, false)
			x.d.compactor.edit.running = nil
			x.work() // the next segment is prepared, and could be given back
			var b holdfast.Batch
			b.Set([]byte("key"), []byte("value"))
			if err := commit(x.d, &b, holdfast.Power); err != nil {
				t.Fatal(err)
			}
			renamed, failed := false, false
			x.fs.SetHook(func(op vfs.Op) error {
				renamed = renamed || op.Kind == vfs.OpRename && path.Base(op.To) == format.ManifestName
				if op.Kind == vfs.OpSyncDir && renamed && !failed {
					failed = true
					return cause
				}
				return nil
			})
			if err := flush(x.d); !failed || !errors.Is(err, holdfast.ErrPoisoned) || x.d.Metrics().Poison == nil {
				t.Errorf("%s, %v: %v, poison %v", name, cause, err, x.d.Metrics().Poison)
			}
			x.fs.SetHook(nil)
		}
	}
}

// TestNoRoomToRename: a manifest that gets no name because the disk is full leaves the one before in force, and is
// tried again. With any other error it is not known which of the two is there.
func TestNoRoomToRename(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
		x := movingSteps(t, 100, false)
		x.work()
		var b holdfast.Batch
		b.Set([]byte("key"), []byte("value"))
		if err := commit(x.d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
		failures := 0
		x.fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpRename && path.Base(op.To) == format.ManifestName {
				failures++
				return cause
			}
			return nil
		})
		err := x.d.Flush()
		x.fs.SetHook(nil)
		fatal, poison := cause == syscall.EIO, x.d.Metrics().Poison
		if failures == 0 || !errors.Is(err, cause) || (poison != nil) != fatal {
			t.Errorf("%v, %d times: %v, poison %v", cause, failures, err, poison)
		}
		if fatal {
			continue
		}

		// There is room again: all is there, before and after it is opened anew.
		if err := x.d.Flush(); err != nil {
			t.Errorf("%v: with room again: %v", cause, err)
		}
		if err := x.d.Close(); err != nil {
			t.Errorf("%v: %v", cause, err)
		}
		x.open()
		if err := x.d.Close(); err != nil {
			t.Errorf("%v: %v", cause, err)
		}
		x.open()
		if v, err := x.d.Get(nil, []byte("key")); err != nil || string(v) != "value" {
			t.Errorf("%v: %q, %v", cause, v, err)
		}
	}
}
