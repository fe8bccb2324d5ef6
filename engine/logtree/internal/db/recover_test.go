package db

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestWriteAgain: what an Open has shown survives the next power cut, even if it had been written before a sync
// that failed and the system says since that all is well.
func TestWriteAgain(t *testing.T) {
	for name, value := range map[string][]byte{"small": []byte("value"), "large": bytes.Repeat([]byte("value"), 10_000)} {
		for i := range 8 {
			d, c := manualWith(t, 4<<20)
			mem := c.FS.(*vfs.Mem)
			if err := mem.SyncDir("."); err != nil {
				t.Fatal(err)
			}
			roll(t, mem, i)
			var b holdfast.Batch
			b.Set([]byte("synced"), []byte("value"))
			if err := commit(d, &b, holdfast.Power); err != nil {
				t.Fatal(err)
			}
			b.Reset()
			b.Set([]byte("written"), value)
			if err := commit(d, &b, holdfast.Process); err != nil {
				t.Fatal(err)
			}
			mem.SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpSync, Name: "*.seg"}))
			if err := d.Sync(); !errors.Is(err, holdfast.ErrPoisoned) {
				t.Fatalf("a failed sync returned %v", err)
			}
			killed := mem.Kill()
			c.FS = killed
			again, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			if v, err := again.Get(nil, []byte("written")); err != nil || !bytes.Equal(v, value) {
				t.Fatalf("%s: after a kill, %d bytes, %v", name, len(v), err)
			}
			c.FS = killed.CrashNothing()
			if again, err = Open(c); err != nil {
				t.Fatal(err)
			}
			if v, err := again.Get(nil, []byte("written")); err != nil || !bytes.Equal(v, value) {
				t.Fatalf("%s: what Open had shown is gone after a power cut: %d bytes, %v", name, len(v), err)
			}
			again.Close()
		}
	}
}

// TestTornBehindAHole: a kill can leave zeros, for what was not written yet, before a large value that was.
func TestTornBehindAHole(t *testing.T) {
	d, c := manualWith(t, 8<<20)
	d.put(t, sets("near"))
	var b holdfast.Batch
	sets("near")(&b)
	if _, err := d.Apply(&b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	b.Set([]byte("far"), bytes.Repeat([]byte("v"), 100_000))
	if _, err := d.Apply(&b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	c.FS = c.FS.(*vfs.Mem).Kill()
	again, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if torn := again.Metrics().TornBytes; torn < 100_000 {
		t.Errorf("%d bytes are reported torn", torn)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenedOften: a database that is opened many times, with little written each time, keeps few files. It once got a
// segment each time, which the next opening read and synced, all of them, as long as the memtable was not full.
func TestOpenedOften(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	d, c := manualWith(t, 8<<20)
	const sessions = 500
	most, read := 0, 0
	for i := range sessions {
		var b holdfast.Batch
		sets(fmt.Sprintf("key %d", i), fmt.Sprintf("other %d", sessions-i))(&b)
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		if d, err = Open(c); err != nil {
			t.Fatal(err)
		}
		pieces := 0
		for _, s := range d.Inspect().Alive {
			if s.InLog {
				pieces++
			}
		}
		read = max(read, pieces)
		for more := true; more; {
			flushed, err := d.flush()
			if err != nil {
				t.Fatal(err)
			}
			merged, err := d.compactor.step()
			if err != nil {
				t.Fatal(err)
			}
			more = flushed || merged
		}
		names, err := c.FS.List(c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(names))
	}
	if most > 2*policy.MaxSmallSegments+8 || read > maxReplayedSegments+1 {
		t.Errorf("%d files, of which %d were read at one opening", most, read)
	}
	for i := range sessions {
		for _, key := range []string{fmt.Sprintf("key %d", i), fmt.Sprintf("other %d", i+1)} {
			if v, err := d.Get(nil, []byte(key)); err != nil || string(v) != "value of "+key {
				t.Fatalf("%s: %q, %v", key, v, err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMuchReplayedIsFlushed: of what an opening has read from the log, a quarter of a full memtable or more is flushed,
// so that the next opening does not read it again, and scans find scattered keys in tables.
func TestMuchReplayedIsFlushed(t *testing.T) {
	for _, much := range []bool{false, true} {
		t.Run(fmt.Sprint(much), func(t *testing.T) {
			d, c := manualWith(t, 8<<20)
			least, n := d.memtableLimit/replayedShare*2, 0
			if !much {
				least /= 4
			}
			for ; d.Inspect().Memtable.Weight < least; n++ {
				var b holdfast.Batch
				sets(fmt.Sprintf("key %d", n*7919%10007))(&b)
				if err := commit(d, &b, holdfast.Process); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // what was flushed is not read again
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				var err error
				if d, err = Open(c); err != nil {
					t.Fatal(err)
				}
				if waits := d.Inspect().Waiting; waits > 1 || waits == 1 != much {
					t.Fatalf("%d memtables wait for a flush", waits)
				}
				if _, err := d.flush(); err != nil {
					t.Fatal(err)
				}
				much = false
			}
			for i := range n {
				key := fmt.Sprintf("key %d", i*7919%10007)
				if v, err := d.Get(nil, []byte(key)); err != nil || string(v) != "value of "+key {
					t.Fatalf("%s: %q, %v", key, v, err)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestMuchIsFlushedAtClosing: what the next opening would flush is flushed at closing, so that opening finds little, or
// nothing, to read in the log. Little is left there.
func TestMuchIsFlushedAtClosing(t *testing.T) {
	for full, left := range map[float64]bool{0.1: true, 0.3: false, 1.1: true} {
		t.Run(fmt.Sprint(full), func(t *testing.T) {
			d, c := manualWith(t, 32<<20)
			least, n := int64(full*float64(d.memtableLimit)), 0
			value := strings.Repeat("v", 200)
			for ; d.Inspect().Memtable.Weight < least && d.Inspect().Waiting == 0; n++ {
				var b holdfast.Batch
				for i := range 100 {
					b.Set(fmt.Appendf(nil, "key %d", (100*n+i)*7919%1000003), []byte(value))
				}
				if err := commit(d, &b, holdfast.Process); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			in := d.Inspect()
			if n := in.Memtable.Weight; in.Waiting > 0 || n > 0 != left || n >= d.memtableLimit/replayedShare {
				t.Fatalf("%d memtables wait for a flush, and the first has %d bytes", in.Waiting, n)
			}
			for i := range 100 * n {
				key := fmt.Sprintf("key %d", i*7919%1000003)
				if v, err := d.Get(nil, []byte(key)); err != nil || string(v) != value {
					t.Fatalf("%s: %q, %v", key, v, err)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestKilledOften: what was reserved for the log of a program that is killed is given back at the next opening, and
// the next segment is no larger for it. Files of 32 MiB once stayed, one for each kill, and opening searched them
// all.
func TestKilledOften(t *testing.T) {
	t.Parallel()
	c := testConfig(vfs.OS(), t.TempDir())
	c.Memory, c.Manual = 64<<20, true
	value := bytes.Repeat([]byte("v"), 100)
	for i := range 30 {
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		c.New = false
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "key %d", i), value)
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
		for range 100 { // prepare the next segment, too
			if _, err := d.Work(1); err != nil {
				t.Fatal(err)
			}
		}
		d.abandon() // as a kill does
	}
	if n := diskBytes(t, c.Dir); n > 4<<20 {
		t.Errorf("30 records of 100 bytes take %d bytes", n)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if v, err := d.Get(nil, fmt.Appendf(nil, "key %d", i)); err != nil || !bytes.Equal(v, value) {
			t.Fatalf("key %d: %q, %v", i, v, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenWithoutRoom: what could be flushed while the disk had room may be in memory again at the next opening if
// there is none, and a log in many pieces need not be flushed at all. Opening once failed, or was followed by a
// poison, so that nothing could be deleted.
func TestOpenWithoutRoom(t *testing.T) {
	for name, fill := range map[string]func(d *DB, c Config, n *int) *DB{
		"memtables to flush": func(d *DB, _ Config, n *int) *DB {
			for ; d.Inspect().Waiting < 2 || d.Inspect().Memtable.Weight < 1<<19; *n++ {
				write(t, d, *n)
			}
			for d.mu.next == nil {
				if _, err := d.prepareNext(); err != nil {
					t.Fatal(err)
				}
			}
			return d
		},
		"many pieces": func(d *DB, c Config, n *int) *DB {
			for range 2 * maxReplayedSegments {
				for range 200 {
					write(t, d, *n)
					*n++
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				var err error
				if d, err = Open(c); err != nil {
					t.Fatal(err)
				}
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, c := manualWith(t, 8<<20, func(c *Config) { c.Sizes.Segment, c.Sizes.Memtable = 4<<20, 1<<20 })
			n := 0
			fill(d, c, &n)
			disk := c.FS.(*vfs.Mem).Kill()
			c.FS = disk
			disk.SetCapacity(disk.Used() + 40<<10)
			d, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Work(100); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if v, err := d.Get(nil, fmt.Appendf(nil, "%08d", i)); err != nil || len(v) != 50 {
					t.Fatalf("key %d of %d: %d bytes, %v", i, n, len(v), err)
				}
			}
			var all holdfast.Batch
			all.DeleteRange([]byte("0"), []byte("9"))
			if err := commit(d, &all, holdfast.Power); err != nil {
				t.Fatal(err)
			}
			disk.SetCapacity(disk.Used() + 16<<20)
			if _, err := d.Work(100); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCutInPadding: a file that was cut in the padding of its last frame is read, and stays readable when its
// frames are in tables. The manifest once said that it had those bytes, and the next opening that it was cut short.
func TestCutInPadding(t *testing.T) {
	d, c := manualWith(t, 8<<20)
	for i := range maxReplayedSegments + 2 {
		write(t, d, i)
		name, off := d.log.Current().File.Name(), d.log.End().Offset
		d.abandon()
		f, err := c.FS.OpenWrite(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(off-1), f.Close()); err != nil {
			t.Fatal(err)
		}
		if d, err = Open(c); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := d.Work(100); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		if d, err = Open(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOldManifestKeepsItsFiles kills the program after a manifest was renamed and before its directory was synced, and
// cuts the power while the next Open works. If the old manifest is back then, so are the tables that it names.
func TestOldManifestKeepsItsFiles(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	d, c := manualWith(t, 4<<20)
	mem := c.FS.(*vfs.Mem)
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		d.put(t, func(b *holdfast.Batch) {
			for i := range 200 {
				b.Set(fmt.Appendf(nil, "key %04d", i), fmt.Appendf(nil, "value %d", round))
			}
		})
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	renamed := false
	mem.SetHook(func(op vfs.Op) error {
		renamed = renamed || op.Kind == vfs.OpRename && path.Base(op.To) == format.ManifestName
		if op.Kind == vfs.OpSyncDir && renamed {
			return syscall.EIO
		}
		return nil
	})
	if _, err := d.compactor.step(); err == nil || !renamed {
		t.Fatalf("the merge ends with %v, the manifest renamed: %v", err, renamed)
	}
	for n := int64(1); ; n++ {
		killed := mem.Kill()
		killed.HaltAfter(n)
		c.FS = killed
		if d, err := Open(c); err == nil {
			if err := d.Close(); err == nil {
				return
			}
		}
		for seed := range uint64(20) {
			c.FS = killed.Crash(rand.New(rand.NewPCG(seed, uint64(n))))
			d, err := Open(c)
			if err != nil {
				t.Fatalf("power cut at operation %d after the kill, seed %d: %v", n, seed, err)
			}
			for i := range 200 {
				if v, err := d.Get(nil, fmt.Appendf(nil, "key %04d", i)); err != nil || string(v) != "value 5" {
					t.Fatalf("power cut at operation %d after the kill, seed %d: key %d is %q, %v", n, seed, i, v, err)
				}
			}
		}
	}
}

// sameFS is a file system on which what is written to segments is compared with what they hold.
type sameFS struct {
	vfs.FS
	t     *testing.T
	bytes int // written
}

func (s *sameFS) OpenWrite(name string) (vfs.File, error) {
	f, err := s.FS.OpenWrite(name)
	if err != nil {
		return nil, err
	}
	return sameFile{f, s}, nil
}

type sameFile struct {
	vfs.File
	s *sameFS
}

func (f sameFile) WriteAt(b []byte, off int64) (int, error) {
	f.s.bytes += len(b)
	was := make([]byte, len(b))
	if _, err := f.ReadAt(was, off); err != nil || !bytes.Equal(was, b) {
		f.s.t.Errorf("%d bytes at %d of %s change: %v", len(b), off, f.Name(), err)
	}
	return f.File.WriteAt(b, off)
}

// TestWriteAgainChangesNothing: what Open writes over acknowledged frames are the bytes that are there, so that
// a torn write of them is harmless. It is torn here, at sectors, at each operation.
func TestWriteAgainChangesNothing(t *testing.T) {
	t.Parallel()
	d, c := manualWith(t, 4<<20)
	mem := c.FS.(*vfs.Mem)
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	const commits = 40 // of some 60 bytes: they share sectors
	for i := range commits {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "value %d", i))
		level := holdfast.Power
		if i >= commits/2 && i < commits-1 { // the last sync is of many frames, and none says that it was made
			level = holdfast.Process
		}
		if err := commit(d, &b, level); err != nil {
			t.Fatal(err)
		}
	}
	for n := int64(1); ; n++ {
		killed := mem.Kill()
		killed.Seed(uint64(n))
		killed.HaltAfter(n)
		same := &sameFS{FS: killed, t: t}
		c.FS = same
		_, err := Open(c)
		for seed := range uint64(20) {
			c.FS = killed.Crash(rand.New(rand.NewPCG(seed, uint64(n))))
			d, err := Open(c)
			if err != nil {
				t.Fatalf("power cut at operation %d of Open, seed %d: %v", n, seed, err)
			}
			for i := range commits {
				if v, err := d.Get(nil, fmt.Appendf(nil, "key %d", i)); err != nil || string(v) != fmt.Sprintf("value %d", i) {
					t.Fatalf("power cut at operation %d of Open, seed %d: key %d is %q, %v", n, seed, i, v, err)
				}
			}
		}
		if err == nil {
			if same.bytes < 500 {
				t.Errorf("Open wrote %d bytes again: this test is about more", same.bytes)
			}
			return
		}
	}
}

// TestFailedOpenClosesFiles: an Open that fails when it has tables and segments open closes them again.
func TestFailedOpenClosesFiles(t *testing.T) {
	mem := vfs.NewMem()
	files := &counted{FS: mem}
	d, c := manualWith(t, 8<<20, func(c *Config) { c.FS = files })
	d.put(t, sets("a", "b"))
	d.put(t, sets("c"))
	write(t, d, 0)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []vfs.Kind{vfs.OpSyncDir, vfs.OpSync} {
		mem.SetHook(vfs.Faults(vfs.Fault{Kind: kind}))
		if _, err := Open(c); err == nil {
			t.Fatalf("Open succeeds though %v fails", kind)
		}
		mem.SetHook(nil)
		if n := files.open.Load(); n != 0 {
			t.Errorf("%d files are open after %v has failed in Open", n, kind)
		}
	}
	if d, err := Open(c); err != nil {
		t.Fatal(err)
	} else if err := d.Close(); err != nil || files.open.Load() != 0 {
		t.Errorf("%v, %d files are open after Close", err, files.open.Load())
	}
}
