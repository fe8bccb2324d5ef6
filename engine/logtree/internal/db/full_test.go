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
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestRefusedNumbers: batches that a full disk refuses use up no numbers of files, of which there are 32 bits.
func TestRefusedNumbers(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	x := newDrive(t, 1<<20)
	x.fs.SetCapacity(4 << 20)
	set := func(b *holdfast.Batch, i int) { b.Set(scattered(i), make([]byte, 100)) }
	if _, err := x.each(1_000_000, set); !errors.Is(err, holdfast.ErrFull) {
		t.Fatal(err)
	}
	var b holdfast.Batch
	set(&b, 1_000_001)
	for commit(x.d, &b, holdfast.Power) == nil { // the last of the segment
	}
	before := x.d.mu.nextFile
	const n = 200
	for range n {
		if err := commit(x.d, &b, holdfast.Power); !errors.Is(err, holdfast.ErrFull) {
			t.Fatal(err)
		}
	}
	if used := x.d.mu.nextFile - before; used > n/10 {
		t.Errorf("%d refused batches have used up %d numbers", n, used)
	}
	v, err := check.Verify(x.fs, "db")
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range v.Notes {
		if note == format.ReserveName+" is not the database's" {
			t.Error(note)
		}
	}
}

// TestAsksForNoMore: room that is known not to be there is not asked for. On ext4 an allocation that fails has taken
// all the room for a moment: a compaction that looked then found none to move values, and the writer that waited for
// it was refused though a third of the disk was garbage.
func TestAsksForNoMore(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	x := newDrive(t, 1<<20)
	x.fs.SetCapacity(4 << 20)
	tried, missing := 0, 0
	x.fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpAllocate {
			tried++
			if have, _ := x.fs.Size(op.Name); x.fs.Free("db") < op.Offset-have {
				missing++
			}
		}
		return nil
	})
	set := func(b *holdfast.Batch, i int) { b.Set(scattered(i), make([]byte, 100)) }
	if _, err := x.each(1_000_000, set); !errors.Is(err, holdfast.ErrFull) {
		t.Fatal(err)
	}
	if tried == 0 || missing > 0 {
		t.Errorf("%d of %d allocations were for more room than there was", missing, tried)
	}
}

// TestDeletesFromTheReserve: where somebody else has taken the last byte, the reserve is kept for deletes. It once
// went into emptying a segment for which it was not enough, which gave nothing back: 141 deletes were possible.
func TestDeletesFromTheReserve(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	x := newDrive(t, 64<<20)
	if _, err := x.each(20_000, func(b *holdfast.Batch, i int) {
		b.Set(scattered((i*i+i/3)%10_000),
			make([]byte, 4000))
	}); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	x.fs.SetCapacity(x.fs.Used())
	x.open()
	for i := range 2_000 {
		var b holdfast.Batch
		b.Delete(scattered(i))
		if err := commit(x.d, &b, holdfast.Power); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
		if i%10 == 0 {
			x.work()
		}
	}
}

// TestDeleteMakesRoom: on a disk that has filled up, a database that is opened again can delete with the little
// room there is, and write again when that has made room. It once wanted a whole segment for the first delete.
func TestDeleteMakesRoom(t *testing.T) {
	t.Parallel()
	fsys := vfs.NewMem()
	c := testConfig(fsys, "db")
	c.Memory, c.Manual = 64<<20, true
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	fsys.SetCapacity(24 << 20)
	open := func() *DB {
		t.Helper()
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		c.New = false
		return d
	}
	d := open()
	value := bytes.Repeat([]byte("v"), 2000)
	n := 0
	for ; ; n++ {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "key %06d", n), value)
		err := commit(d, &b, holdfast.Power)
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if int64(n)*2000 < 12<<20 {
		t.Errorf("no room for more than %d values of 2000 bytes", n)
	}
	if err := d.Close(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	d = open()
	for i := range 100 {
		var b holdfast.Batch
		b.Delete(fmt.Appendf(nil, "key %06d", i))
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatalf("after %d deletes: %v", i, err)
		}
	}
	var all holdfast.Batch
	all.DeleteRange([]byte("key "), []byte("key!"))
	if err := commit(d, &all, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Work(1000); err != nil {
		t.Fatal(err)
	}
	for i := range n / 2 {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "again %06d", i), value)
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatalf("after %d new values: %v", i, err)
		}
		if i%1000 == 0 {
			if _, err := d.Work(1000); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNearlyFullDisk: on a disk of one and a half times the live data, overwriting at random goes on for ever. A
// merge once needed room for all that it read, and the database could not be written to any more, nor after
// reopening.
func TestNearlyFullDisk(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	const n = 50_000
	x := newDrive(t, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, 100)
	if _, err := x.each(n, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
		t.Fatal(err)
	}
	x.fs.SetCapacity(n * 108 * 3 / 2)
	done, err := x.each(night.Or(n, n/2), func(b *holdfast.Batch, _ int) { b.Set(scattered(rnd.IntN(n)), value) })
	if err != nil {
		t.Fatalf("after %d overwrites: %v", done, err)
	}
	if got := x.count(); got != n {
		t.Errorf("%d of %d keys", got, n)
	}
}

// TestRoomForTables: a compaction moves no more values than there is room for beside the tables that are written with
// them. One that began with all the room there was, for values alone, ended in the middle, where it had given nothing
// back: no overwrite found room any more on a disk of which a quarter was garbage.
func TestRoomForTables(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	const keys, memory, unit = 8000, 4 << 20, 128 << 10
	small := func(c *Config) { c.Sizes = Sizes{Memtable: 4 * unit, Segment: 2 * unit, Table: unit} }
	rnd := rand.New(rand.NewPCG(1, 1))
	set := func(b *holdfast.Batch, i int) { b.Set(bytes.Repeat(scattered(i), 8), make([]byte, 500)) }
	overwrite := func(b *holdfast.Batch, _ int) { set(b, rnd.IntN(keys)) }

	// Nothing has compacted the garbage yet.
	full := newDrive(t, memory, small)
	if _, err := full.each(keys, set); err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	for range keys / 3 {
		if overwrite(&b, 0); b.Len() == 100 {
			if err := commit(full.d, &b, holdfast.Power); err != nil {
				t.Fatal(err)
			}
			b.Reset()
		}
	}
	if err := full.d.Close(); err != nil {
		t.Fatal(err)
	}

	for room := int64(3 * unit); room <= 5*unit; room += unit / 4 {
		for _, asked := range []bool{false, true} {
			x := newDrive(t, memory, small)
			x.d.Close()
			x.fs = full.fs.Clone()
			x.c.FS = x.fs
			x.fs.SetCapacity(x.fs.Used() + room)
			x.open()
			if asked {
				if err := x.d.Compact(t.Context(), holdfast.Range{}); err != nil && !errors.Is(err, holdfast.ErrFull) {
					t.Fatal(err)
				}
			}
			x.work()
			if done, err := x.each(keys/8, overwrite); err != nil {
				t.Errorf("%d bytes of room, asked %v: after %d overwrites: %v", room, asked, done, err)
			}
		}
	}
}

// TestFullDisk: what does not fit is refused and nothing else: what is there can be read and deleted key by key, and
// then there is room again. A full disk once ended all writing, and deleting did not get further after reopening.
func TestFullDisk(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, reopen := range []bool{false, true} {
		x := newDrive(t, 1<<20)
		x.fs.SetCapacity(4 << 20)
		value := make([]byte, 100)
		set := func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }
		n, err := x.each(1_000_000, set)
		if !errors.Is(err, holdfast.ErrFull) || !errors.Is(err, syscall.ENOSPC) || x.d.Metrics().Poison != nil {
			t.Fatalf("after %d keys: %v, poison %v", n, err, x.d.Metrics().Poison)
		}
		if n < 20_000 {
			t.Errorf("only %d keys of 108 bytes fit into 4 MiB", n)
		}
		if got := x.count(); got != n {
			t.Fatalf("%d of %d keys on the full disk", got, n)
		}
		if reopen {
			if err := x.d.Close(); err != nil {
				t.Fatal(err)
			}
			x.open()
		}
		if done, err := x.each(n, func(b *holdfast.Batch, i int) { b.Delete(scattered(i)) }); err != nil {
			t.Fatalf("after %d of %d deletes: %v", done, n, err)
		}
		if got := x.count(); got != 0 {
			t.Errorf("%d keys after all were deleted", got)
		}
		if again, err := x.each(n*9/10, set); err != nil {
			t.Errorf("%d of %d keys fit again: %v", again, n, err)
		}
	}
}

// TestNoByteLeft: where somebody else has taken the last byte, a range delete still works, and makes room.
func TestNoByteLeft(t *testing.T) {
	t.Parallel()
	x := newDrive(t, 8<<20)
	value := make([]byte, 1000)
	if _, err := x.each(10_000, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
		t.Fatal(err)
	}
	fill := func() {
		x.fs.SetCapacity(x.fs.Used())
	}
	fill()
	i := 0
	for ; ; i++ { // until the log's last segment is full, too
		var b holdfast.Batch
		b.Set(scattered(i), value)
		if err := commit(x.d, &b, holdfast.Power); errors.Is(err, holdfast.ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		fill()
	}
	before := x.fs.Used()
	var b holdfast.Batch
	b.DeleteRange(nil, nil)
	if err := commit(x.d, &b, holdfast.Power); err != nil {
		t.Fatalf("a range delete after %d overwrites: %v", i, err)
	}
	for range 3 {
		x.work()
		x.d.compactor.tidy(true)
	}
	x.work()
	if now := x.fs.Used(); now > before/2 {
		t.Errorf("%d bytes on disk, %d before everything was deleted", now, before)
	}
	if _, err := x.each(1000, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
		t.Error(err)
	}
}

// TestCloseWithoutRoom: what is synced needs no room on the disk, nor a file descriptor, for the database to be
// closed in good order.
func TestCloseWithoutRoom(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE} {
		x := newDrive(t, 4<<20)
		if _, err := x.each(1_000, func(b *holdfast.Batch, i int) { b.Set(scattered(i), make([]byte, 1000)) }); err != nil {
			t.Fatal(err)
		}
		var b holdfast.Batch
		b.DeleteRange(nil, []byte{0x10})
		if err := commit(x.d, &b, holdfast.Memory); err != nil {
			t.Fatal(err)
		}
		want := x.count()
		x.fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpCreate {
				return cause
			}
			return nil
		})
		if err := x.d.Close(); err != nil {
			t.Errorf("%v: %v", cause, err)
		}
		x.fs.SetHook(nil)
		x.open()
		if got := x.count(); got != want {
			t.Errorf("%v: %d keys of %d are there", cause, got, want)
		}
	}
}

// TestDamageAfterCloseWithoutRoom: where a full disk has no room for a manifest that says how far the log was synced,
// the log says it. Damage to the last commits was once taken for a torn tail, be they of the session that ends or of
// one before, which was killed.
func TestDamageAfterCloseWithoutRoom(t *testing.T) {
	for _, killed := range []bool{false, true} {
		d, c := manualWith(t, 64<<10, func(c *Config) { c.Sizes = Sizes{Segment: 700, Memtable: 1 << 20} })
		fsys := c.FS.(*vfs.Mem)
		for i := range 12 {
			write(t, d, i)
		}
		name, begin, end := d.log.Current().File.Name(), int64(format.SegmentHeaderSize), d.log.End().Offset
		sessions := 1
		if killed {
			fsys.Halt()
			fsys = fsys.Kill()
			sessions = 2
		}
		for session := range sessions {
			fsys.SetCapacity(fsys.Used())
			if killed {
				c.FS = fsys
				var err error
				if d, err = Open(c); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			in, err := check.Inspect(fsys, c.Dir)
			if err != nil || in.Log.End.Offset != end+format.FrameHeader || in.Manifest.Synced > 0 {
				t.Fatalf("killed %v, session %d: the log ended at byte %d and has %+v, %v", killed, session, end, in.Log, err)
			}
		}
		if v, err := check.Verify(fsys, c.Dir); err != nil || len(v.Damage) > 0 {
			t.Errorf("killed %v: Verify: %v, %v", killed, err, v.Damage)
		}
		for off := range end {
			at := fsys.Clone()
			if err := at.Flip(name, off, int(off%8)); err != nil {
				t.Fatal(err)
			}
			c.FS = at
			d, err := Open(c)
			switch {
			case err == nil && off >= begin && len(contentsOf(t, d)) == 12: // padding
			case !errors.Is(err, holdfast.ErrCorrupt):
				t.Fatalf("killed %v: byte %d of %d is damaged, and Open says %v", killed, off, end, err)
			}
		}
		c.FS = fsys
		if d, err := Open(c); err != nil || len(contentsOf(t, d)) != 12 {
			t.Errorf("killed %v: without damage: %v", killed, err)
		}
	}
}

// TestCloseWithoutRoomBehindEndFrame: the log ends with a frame that names a segment which did not survive. A close
// without room for the manifest adds nothing there, where a replay would find it or not, by where it begins.
func TestCloseWithoutRoomBehindEndFrame(t *testing.T) {
	d, c := manualWith(t, 64<<10, func(c *Config) { c.Sizes = Sizes{Segment: 700, Memtable: 1 << 20} })
	n := 0
	for ; d.log.Current() == nil || d.log.Current().ID == 1; n++ {
		var b holdfast.Batch
		b.Set(scattered(n), make([]byte, 50))
		if err := commit(d, &b, holdfast.Process); err != nil {
			t.Fatal(err)
		}
	}
	n-- // the last one is in the segment that is lost
	lost := d.log.Current().File.Name()
	open := func(want int) {
		t.Helper()
		fsys := c.FS.(*vfs.Mem)
		fsys.Halt()
		fsys = fsys.Kill()
		if lost != "" {
			if err := fsys.Remove(lost); err != nil {
				t.Fatal(err)
			}
			lost = ""
		}
		c.FS = fsys
		var err error
		if d, err = Open(c); err != nil {
			t.Fatal(err)
		}
		if got := len(contentsOf(t, d)); got != want {
			t.Fatalf("%d of %d keys", got, want)
		}
	}
	open(n)
	fsys := c.FS.(*vfs.Mem)
	fsys.SetCapacity(fsys.Used())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	fsys.SetCapacity(-1)
	open(n)
	d.rotate()
	if _, err := d.flush(); err != nil {
		t.Fatal(err)
	}
	write(t, d, n)
	open(n + 1)
}

// TestBackgroundFailures: what background work could not do for want of something is undone and done later, and
// writing goes on.
func TestBackgroundFailures(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.EIO} {
		for _, kind := range []vfs.Kind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync} {
			for _, suffix := range []string{".run", format.ManifestName + ".new", ".seg"} {
				x := newDrive(t, 1<<20)
				value := make([]byte, 100)
				set := func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }
				if _, err := x.each(500, set); err != nil {
					t.Fatal(err)
				}
				x.d.rotate()
				failed := 0
				cur := x.d.log.Current().File.Name()
				x.fs.SetHook(func(op vfs.Op) error {
					if op.Kind == kind && strings.HasSuffix(path.Base(op.Name), suffix) && op.Name != cur {
						failed++
						return cause
					}
					return nil
				})
				if _, err := x.d.Work(20); err != nil {
					t.Fatal(err)
				}
				if m := x.d.Metrics(); m.Poison != nil || failed > 0 && suffix != ".seg" && !errors.Is(m.Trouble, cause) {
					t.Errorf("%v of %s: %v; poison %v, trouble %v", kind, suffix, cause, m.Poison, m.Trouble)
				}
				x.fs.SetHook(nil)
				x.work()
				if m := x.d.Metrics(); m.Trouble != nil || m.Poison != nil || x.d.Inspect().Waiting > 0 {
					t.Errorf("%v of %s: %v, and later: %v, %v", kind, suffix, cause, m.Trouble, m.Poison)
				}
				if _, err := x.each(1_500, set); err != nil {
					t.Fatal(err)
				}
				if err := x.d.Close(); err != nil {
					t.Fatal(err)
				}
				x.open()
				if got := x.count(); got != 1_500 {
					t.Errorf("%v of %s: %v: then %d keys", kind, suffix, cause, got)
				}
			}
		}
	}
}

// TestDefaultBudgetOnSmallDisk: files are small beside a small disk, whatever memory there is. With files of the
// usual size, overwrites were refused for ever with half of the disk free: there was no room to empty the largest
// segment.
func TestDefaultBudgetOnSmallDisk(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, mib := range []int64{64, 96} {
		x := newDrive(t, 128<<20, func(c *Config) { c.FS.(*vfs.Mem).SetCapacity(mib << 20) })
		n := int(mib<<20/4096) / 2 // a third of it and more is left
		rnd := rand.New(rand.NewPCG(1, 1))
		value := make([]byte, 4096)
		if done, err := x.each(n, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
			t.Fatalf("%d MiB: after %d of %d values: %v", mib, done, n, err)
		}
		if done, err := x.each(2*n, func(b *holdfast.Batch, _ int) { b.Set(scattered(rnd.IntN(n)), value) }); err != nil {
			t.Fatalf("%d MiB: after %d of %d overwrites: %v", mib, done, 2*n, err)
		}
		if got := x.count(); got != n {
			t.Errorf("%d MiB: %d of %d keys", mib, got, n)
		}
		if err := x.d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
