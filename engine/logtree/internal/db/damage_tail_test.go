package db

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/vfs"
)

// tailed is a database that was not closed, of which the last segment is to be damaged.
type tailed struct {
	fs     *vfs.Mem
	c      Config
	name   string
	id     uint32
	used   int64               // bytes of the segment that hold frames
	first  int                 // the states before the segment
	ends   []int64             // where the batches of the segment end
	synced []int               // when that batch was made, so many of the segment's were known to be synced
	states []map[string]string // after each batch
}

// newTailed commits batches, each group of so many synced together, in segments of that size, and kills the
// program.
func newTailed(t *testing.T, group int, segment int64) *tailed {
	t.Helper()
	c := testConfig(vfs.NewMem(), "/")
	c.Manual, c.SyncEvery, c.Sizes = true, -1, Sizes{Segment: segment, Memtable: 1 << 20}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	x := &tailed{fs: c.FS.(*vfs.Mem), states: []map[string]string{{}}}
	var b holdfast.Batch
	begin, synced := 0, 0
	for i := range 13 {
		b.Reset()
		now := maps.Clone(x.states[i])
		for k := range 1 + i%3 {
			key, value := fmt.Sprintf("key%d", (i+k)%7), strings.Repeat(fmt.Sprint(i), 1+(i*7+k)%40)
			b.Set([]byte(key), []byte(value))
			now[key] = value
		}
		if i%5 == 4 {
			b.Delete([]byte("key3"))
			delete(now, "key3")
		}
		if i == 9 {
			b.DeleteRange([]byte("key5"), nil)
			delete(now, "key5")
			delete(now, "key6")
		}
		level := holdfast.Process
		if i%group == group-1 {
			level = holdfast.Power
		}
		was := d.log.Current()
		if err := commit(d, &b, level); err != nil {
			t.Fatal(err)
		}
		if d.log.Current() != was {
			begin, x.first, x.ends, x.synced = i, i, nil, nil
		}
		x.states = append(x.states, now)
		x.ends = append(x.ends, d.log.End().Offset)
		x.synced = append(x.synced, max(synced-begin, 0))
		if level == holdfast.Power {
			synced = i + 1
		}
		x.id, x.name, x.used = d.log.Current().ID, d.log.Current().File.Name(), d.log.End().Offset
	}
	x.fs.Halt()
	x.fs = x.fs.Kill()
	c.New = false
	x.c = c
	return x
}

// open returns the number of the state that is found, or ErrCorrupt.
func (x *tailed) open(t *testing.T, fsys *vfs.Mem) (int, error) {
	t.Helper()
	found := [2]int{-1, -1}
	for try := range found { // the second time finds the same
		c := x.c
		c.FS = fsys
		d, err := Open(c)
		if err != nil {
			if !errors.Is(err, holdfast.ErrCorrupt) {
				t.Fatalf("an error that is not ErrCorrupt: %v", err)
			}
			if try > 0 {
				t.Fatalf("opening a second time: %v", err)
			}
			return -1, err
		}
		got := contentsOf(t, d)
		found[try] = slices.IndexFunc(x.states, func(s map[string]string) bool { return maps.Equal(s, got) })
		if found[try] < 0 {
			t.Fatalf("what is found was never there: %v", got)
		}
		fsys.Halt()
		fsys = fsys.CrashNothing()
	}
	if found[0] != found[1] {
		t.Fatalf("state %d is found, and then state %d", found[0], found[1])
	}
	return found[0], nil
}

// whole is how many batches of the segment lie before off.
func (x *tailed) whole(off int64) int {
	return len(x.ends) - len(slices.DeleteFunc(slices.Clone(x.ends), func(end int64) bool { return end <= off }))
}

func eachTailed(t *testing.T, test func(t *testing.T, x *tailed)) {
	for _, group := range []int{1, 3, 100} {
		for _, segment := range []int64{64 << 10, 700} {
			t.Run(fmt.Sprintf("synced by %d, segments of %d", group, segment),
				func(t *testing.T) { test(t, newTailed(t, group, segment)) })
		}
	}
}

// TestTailCut cuts the last segment at every byte. Nothing behind the cut can say that it was synced: what is found
// is the whole batches before it. Only where the segment itself is not there any more, and the one before says that
// it was durable, that is damage.
func TestTailCut(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	eachTailed(t, func(t *testing.T, x *tailed) {
		for n := range x.used {
			fsys := x.fs.Clone()
			if err := fsys.CutFile(x.name, n); err != nil {
				t.Fatal(err)
			}
			// A frame's padding may be missing.
			found, err := x.open(t, fsys)
			switch want := x.first + x.whole(n); {
			case err != nil && n >= format.SegmentHeaderSize:
				t.Fatalf("cut to %d bytes: %v", n, err)
			case err == nil && found != want && found != x.first+x.whole(n+format.FrameAlign-1):
				t.Fatalf("cut to %d bytes: state %d is found, not %d", n, found, want)
			}
		}
	})
}

// TestTailFlipped flips every byte of the last segment. A batch of which a later frame knows that it had been
// synced must not be missed in silence; what is found instead is the batches before.
func TestTailFlipped(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	eachTailed(t, func(t *testing.T, x *tailed) {
		refused := 0
		for off := range x.used {
			for _, bit := range []int{int(off) % 8, int(off+3) % 8}[:night.Or(2, 1)] {
				fsys := x.fs.Clone()
				if err := fsys.Flip(x.name, off, bit); err != nil {
					t.Fatal(err)
				}
				found, err := x.open(t, fsys)
				before := x.whole(off) // batches that are still reached
				if off < format.SegmentHeaderSize {
					before = 0
				}
				if err != nil {
					refused++
					continue
				}
				if found == len(x.states)-1 {
					continue // it was padding
				}
				// The damaged batch is number before; some later one may know of it.
				for i := before + 1; i < len(x.synced); i++ {
					if x.synced[i] > before {
						t.Fatalf("bit %d of byte %d: batch %d is missed in silence, though batch %d knows that %d were synced: "+
							"state %d is found",
							bit, off, x.first+before, x.first+i, x.first+x.synced[i], found)
					}
				}
				if found != x.first+before {
					t.Fatalf("bit %d of byte %d: state %d is found, not %d", bit, off, found, x.first+before)
				}
			}
		}
		t.Logf("%d of %d refused", refused, night.Or(2, 1)*int(x.used))
	})
}

// TestSyncAcrossSegments: a sync is under way while the log goes on in another segment. Only that segment's later
// frames tell that the end of the first segment had been synced. It was once taken for torn.
func TestSyncAcrossSegments(t *testing.T) {
	d, c := manualWith(t, 64<<10, func(c *Config) { c.Sizes = Sizes{Segment: 700, Memtable: 1 << 20} })
	fsys := c.FS.(*vfs.Mem)
	for i := range 3 {
		var b holdfast.Batch
		b.Set(scattered(i), make([]byte, 50))
		if err := commit(d, &b, holdfast.Process); err != nil {
			t.Fatal(err)
		}
	}
	first, end := d.log.Current(), d.log.End().Offset
	reached, goOn := make(chan struct{}), make(chan struct{})
	fsys.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && op.Name == first.File.Name() {
			close(reached)
			<-goOn
		}
		return nil
	})
	synced := make(chan error)
	go func() { synced <- d.Sync() }()
	<-reached
	add := func(size int) {
		t.Helper()
		var b holdfast.Batch
		b.Set([]byte("more"), make([]byte, size))
		if err := commit(d, &b, holdfast.Process); err != nil {
			t.Error(err)
		}
	}
	add(400)
	fsys.SetHook(nil)
	close(goOn)
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	add(10)
	if d.log.Current() == first {
		t.Fatal("the log is still not in its second segment: this tests nothing")
	}
	fsys.Halt()
	fsys = fsys.Kill()
	if err := fsys.Flip(first.File.Name(), end-10, 0); err != nil {
		t.Fatal(err)
	}
	c.FS = fsys
	if _, err := Open(c); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("with a damaged frame that had been synced, Open returns %v", err)
	}
}

// TestReadFaultsWhileOpening lets each read of an Open fail, once. That Open fails, or has no need of
// what it could not read; what it could not read is not taken for lost, and nothing is removed.
func TestReadFaultsWhileOpening(t *testing.T) {
	c := testConfig(vfs.NewMem(), "/")
	c.Manual, c.SyncEvery, c.Sizes = true, -1, Sizes{Segment: 700, Memtable: 140 << 10}
	want := map[string]string{}
	var b holdfast.Batch
	for session := range 4 { // the log goes on in a new segment each time
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		c.New = false
		for i := range 6 {
			b.Reset()
			key, value := fmt.Sprintf("key%d", i*session), strings.Repeat(fmt.Sprint(session), 100+i)
			b.Set([]byte(key), []byte(value))
			want[key] = value
			if err := commit(d, &b, holdfast.Process); err != nil {
				t.Fatal(err)
			}
		}
		if session == 1 {
			if _, err := d.Work(10); err != nil {
				t.Fatal(err)
			}
			d.rotate()
			if _, err := d.Work(10); err != nil {
				t.Fatal(err)
			}
		}
		m := c.FS.(*vfs.Mem)
		m.Halt()
		c.FS = m.Kill()
	}
	sound := c.FS.(*vfs.Mem)
	failed := 0
	for _, kind := range []vfs.Kind{vfs.OpOpen, vfs.OpList, vfs.OpSize, vfs.OpRead} {
		for skip := range int64(200) {
			fsys, struck := sound.Clone(), false
			faults := vfs.Faults(vfs.Fault{Kind: kind, Skip: skip, Count: 1})
			fsys.SetHook(func(op vfs.Op) error {
				err := faults(op)
				struck = struck || err != nil
				return err
			})
			c.FS = fsys
			if _, err := Open(c); err != nil {
				failed++
			}
			fsys.SetHook(nil)
			c.FS = fsys.Kill()
			d, err := Open(c)
			if err != nil {
				t.Fatalf("after %v %d failed once: %v", kind, skip, err)
			}
			if got := contentsOf(t, d); !maps.Equal(got, want) {
				t.Fatalf("after %v %d failed once, %d of %d keys are found", kind, skip, len(got), len(want))
			}
			if !struck {
				break
			}
		}
	}
	if failed < 10 {
		t.Errorf("only %d times did Open fail", failed)
	}
	t.Logf("%d times Open failed", failed)
}

// TestStrangeNumbers: a file whose number no segment can have is none of ours. It once made the next segment's
// number begin anew, at that of a file which was alive.
func TestStrangeNumbers(t *testing.T) {
	c := testConfig(vfs.NewMem(), "/")
	c.Manual = true
	var b holdfast.Batch
	for i := range 3 {
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		c.New = false
		if n := contentsOf(t, d); len(n) != i {
			t.Fatalf("opening %d finds %v", i, n)
		}
		b.Reset()
		b.Set(fmt.Appendf(nil, "key%d", i), []byte("value"))
		if err := errors.Join(commit(d, &b, holdfast.Power), d.Close()); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"/4294967296.run", "/4294967296.seg"} {
			if err := writeFile(c.FS, name, []byte("strange")); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func contentsOf(t *testing.T, d *DB) map[string]string {
	t.Helper()
	got, err := contents(d)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
