package db

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
	"github.com/holdfastdb/holdfast/vfs"
)

// ordering makes files of sizes with which a flush is of some thousand keys.
func ordering(c *Config) { c.Sizes = Sizes{Memtable: 1 << 20, Segment: 256 << 10, Table: 64 << 10} }

// scatter commits keys from to to, in an order of their own, and returns how many bytes of keys and values those are.
func (x *drive) scatter(from, to int, want map[string]string) (payload int64) {
	x.t.Helper()
	var b holdfast.Batch
	for i := from; i < to; i++ {
		key, value := scattered(i), fmt.Appendf(nil, "%0100d", i)
		b.Set(key, value)
		want[string(key)] = string(value)
		payload += int64(len(key) + len(value))
		if b.Len() == 100 || i == to-1 {
			if err := commit(x.d, &b, holdfast.Power); err != nil {
				x.t.Fatal(err)
			}
			b.Reset()
		}
	}
	return payload
}

// moved returns how many bytes the segments have that flushes moved, and how many the log has that tables name.
func (x *drive) moved() (flushed, log int64) {
	x.t.Helper()
	v := x.d.latest().view
	defer v.release()
	for segment, live := range v.ver.Usage() {
		s := segment.(*wal.Segment)
		switch {
		case s.Flags&format.FlagFlushed != 0:
			if flushed += s.Used.Load(); s.Payload.Load() != live {
				x.t.Errorf("segment %d: %d of %d bytes are alive, and nothing was replaced", s.ID, live, s.Payload.Load())
			}
		case s.Kind == format.SegmentLog:
			log += live
		}
	}
	return flushed, log
}

// TestOrderedFlush: a flush of keys in random order puts their values in the order of the keys, so that no table names
// the log any more, and the log goes. All tools know the segments, and the database opens again.
func TestOrderedFlush(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	x := newDrive(t, 8<<20, ordering)
	want := map[string]string{}
	payload := x.scatter(0, 20_000, want)
	x.d.rotate()
	x.work()
	if flushed, log := x.moved(); flushed < payload || log != 0 {
		t.Errorf("%d of %d bytes are in order, tables name %d bytes of the log", flushed, payload, log)
	}
	if used := x.d.Inspect().Used(); used > payload*5/4+512<<10 { // and the log's present segment and the next
		t.Errorf("segments of %d bytes hold %d", used, payload)
	}
	if written := x.d.otherBytes.Load(); written < payload || written > payload*7/4 {
		t.Errorf("beside the log, %d bytes were written for %d", written, payload)
	}

	// Each table names places that ascend.
	v := x.d.latest().view
	for _, tier := range v.ver.Tiers {
		for _, ref := range tier.Refs {
			it, last := ref.Table.Reader.Iter(), map[uint32]uint64{}
			for it.Next() {
				e := it.Entry()
				if id := uint32(e.Place >> 32); e.Place <= last[id] {
					t.Fatalf("place %x follows %x", e.Place, last[id])
				} else {
					last[id] = e.Place
				}
			}
		}
	}
	v.release()

	for round := range 3 {
		if all, err := contents(x.d); err != nil || !maps.Equal(all, want) {
			t.Fatalf("round %d: %d of %d keys, %v", round, len(all), len(want), err)
		}
		if err := x.d.Checkpoint(t.Context(), "copy"); round == 0 && err == nil {
			t.Error("a checkpoint went into a directory that is not there")
		}
		if err := x.d.Close(); err != nil {
			t.Fatal(err)
		}
		v, err := check.Verify(x.fs, "db")
		if err != nil || len(v.Damage) > 0 {
			t.Fatalf("%v, %v", err, v)
		}
		x.open()
		x.scatter(20_000+5000*round, 25_000+5000*round, want)
		x.d.rotate()
		x.work()
	}
	dir := "copy"
	if err := errors.Join(x.fs.MkdirAll(dir), x.d.Checkpoint(t.Context(), dir)); err != nil {
		t.Fatal(err)
	}
	if v, err := check.Verify(x.fs, dir); err != nil || len(v.Damage) > 0 {
		t.Fatalf("%v, %v", err, v)
	}

	// Overwritten, the values are swept as those of the log are, and the space comes back.
	r := rand.New(rand.NewPCG(1, 2))
	var b holdfast.Batch
	for range 150_000 {
		b.Set(scattered(r.IntN(35_000)), make([]byte, 100))
		if b.Len() == 100 {
			if err := commit(x.d, &b, holdfast.Process); err != nil {
				t.Fatal(err)
			}
			b.Reset()
			x.work()
		}
	}
	if used, most := x.d.Inspect().Used(), int64(35_000*108*17/10); used > most {
		t.Errorf("%d bytes of segments, more than %d", used, most)
	}
}

// TestAscendingOnce: what ascends is written once: events of one stream, of some streams at once, and with a head that
// each batch puts again. Their values stay in the log.
func TestAscendingOnce(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, streams := range []int{1, 16} {
		x := newDrive(t, 8<<20, ordering)
		payload := int64(0)
		var b holdfast.Batch
		for i := range 40_000 {
			key, value := fmt.Appendf(nil, "s%02d/%08d", i%streams, i), make([]byte, 100)
			b.Set(key, value)
			payload += int64(len(key) + len(value))
			if b.Len() == 10 {
				b.Set([]byte("head"), key)
				if err := commit(x.d, &b, holdfast.Power); err != nil {
					t.Fatal(err)
				}
				b.Reset()
				x.work()
			}
		}
		x.d.rotate()
		x.work()
		flushed, log := x.moved()
		if flushed != 0 || log < payload {
			t.Errorf("%d streams: of %d bytes a flush has moved %d, and %d are in the log", streams, payload, flushed, log)
		}
		// The log has each value once. Tables, merges of them and manifests are all that is written beside it.
		if written := x.d.otherBytes.Load(); written > payload/2 {
			t.Errorf("%d streams: beside the log, %d bytes were written for %d", streams, written, payload)
		}
	}
}

// TestOrderedFlushNoRoom: where there is no room for a second copy of the values, or nothing can be written to it, a
// flush leaves them in the log, and nothing of the attempt.
func TestOrderedFlushNoRoom(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for n := range 12 {
		x := newDrive(t, 8<<20, ordering)
		want := map[string]string{}
		x.scatter(0, 5000, want)
		x.d.rotate()
		ops := 0
		x.fs.SetHook(func(op vfs.Op) error { // from write n of the segment on
			if strings.HasSuffix(op.Name, ".seg") && (op.Kind == vfs.OpWrite || op.Kind == vfs.OpCreate) {
				if ops++; ops > n {
					return syscall.ENOSPC
				}
			}
			return nil
		})
		if did, err := x.d.flush(); !did || err != nil {
			t.Fatalf("%d: %v, %v", n, did, err)
		}
		x.fs.SetHook(nil)
		flushed, log := x.moved()
		if ops > n && (flushed != 0 || log == 0) || ops <= n && flushed == 0 {
			t.Errorf("%d: %d of %d writes, %d bytes moved, %d in the log", n, min(ops, n), ops, flushed, log)
		}
		if all, err := contents(x.d); err != nil || !maps.Equal(all, want) {
			t.Fatalf("%d: %d of %d keys, %v", n, len(all), len(want), err)
		}
		if err := x.d.Close(); err != nil {
			t.Fatal(err)
		}
		if v, err := check.Verify(x.fs, "db"); err != nil || len(v.Damage)+len(v.Notes) > 0 {
			t.Fatalf("%d: %v, %+v", n, err, v)
		}
	}
}

// TestOrderedFlushCrash: whatever a crash leaves of such a flush, and of the removal of the log behind it, all keys are
// there again; a failed one is done again.
func TestOrderedFlushCrash(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for n, ended := 1, false; !ended; n += 1 + n/16 {
		x := newDrive(t, 8<<20, ordering)
		want := map[string]string{}
		x.scatter(0, 3000, want)
		x.d.rotate()
		x.fs.HaltAfter(int64(n))
		_, err := x.d.Work(100)
		if ended = err == nil && !x.fs.Halted(); ended {
			if flushed, log := x.moved(); flushed == 0 || log != 0 {
				t.Errorf("%d bytes were moved, %d are in the log: this tests nothing", flushed, log)
			}
		}
		for name, fs := range map[string]*vfs.Mem{"nothing": x.fs.CrashNothing(), "all": x.fs.CrashAll(),
			"some": x.fs.Crash(rand.New(rand.NewPCG(uint64(n), 1)))} {
			c := x.c
			c.FS, c.New = fs, false
			d, err := Open(c)
			if err != nil {
				t.Fatalf("%d, %s: %v", n, name, err)
			}
			if _, err := d.Work(100); err != nil {
				t.Fatalf("%d, %s: %v", n, name, err)
			}
			if all, err := contents(d); err != nil || !maps.Equal(all, want) {
				t.Fatalf("%d, %s: %d of %d keys, %v", n, name, len(all), len(want), err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if v, err := check.Verify(fs, "db"); err != nil || len(v.Damage)+len(v.Notes) > 0 {
				t.Fatalf("%d, %s: %v, %+v", n, name, err, v)
			}
		}
	}
}

// TestOrderedFlushInReplay: a flush that is made while the log is still being read takes no number that the log names
// further on, of a segment that a power cut has taken.
func TestOrderedFlushInReplay(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	x := newDrive(t, 8<<20, ordering, func(c *Config) { c.Sizes.Memtable = 4 << 20 })
	want := map[string]string{}
	x.scatter(0, 5000, want)

	// The end of a segment is on the disk, and the name of the next one is not.
	full := x.d.log.Current()
	for i := 5000; x.d.log.Current() == full; i++ {
		var b holdfast.Batch
		b.Set(scattered(i), make([]byte, 100))
		if err := commit(x.d, &b, holdfast.Process); err != nil {
			t.Fatal(err)
		}
	}
	if err := full.File.Sync(); err != nil {
		t.Fatal(err)
	}
	c := x.c
	fs := x.fs.CrashNothing()
	if lost := format.SegmentName("db", x.d.log.Current().ID); exists(fs, lost) || !exists(fs, full.File.Name()) {
		t.Fatalf("%s is there, or the one before is not: this tests nothing", lost)
	}

	// A memtable is full before the log has come to its end.
	c.FS, c.New, c.Sizes.Memtable = fs, false, 256<<10
	for range 2 {
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		if all, err := contents(d); err != nil || len(all) < len(want) {
			t.Fatalf("%d of %d keys, %v", len(all), len(want), err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(fs *vfs.Mem, name string) bool {
	_, err := fs.Size(name)
	return err == nil
}
