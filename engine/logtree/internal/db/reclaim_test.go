package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// scattered is a key of eight bytes whose place among the others has nothing to do with i.
func scattered(i int) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(i+1)*0x9E3779B97F4A7C15)
}

// drive is a database in memory on a disk that can fill up, with its background work done after each commit.
type drive struct {
	t  *testing.T
	fs *vfs.Mem
	c  Config
	d  *DB
}

func newDrive(t *testing.T, memory int64) *drive {
	t.Helper()
	x := &drive{t: t, fs: vfs.NewMem()}
	x.c = testConfig(x.fs, "db")
	x.c.Manual, x.c.SyncEvery, x.c.Memory = true, -1, memory
	if err := errors.Join(x.fs.MkdirAll("db"), x.fs.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	x.open()
	t.Cleanup(func() { x.d.Close() })
	return x
}

func (x *drive) open() {
	x.t.Helper()
	var err error
	if x.d, err = Open(x.c); err != nil {
		x.t.Fatal(err)
	}
	x.c.New = false
}

func (x *drive) work() {
	x.t.Helper()
	if _, err := x.d.Work(10_000); err != nil {
		x.t.Fatal(err)
	}
}

// each commits an operation for each of n numbers, 100 at a time. It returns how many were committed before the first
// error.
func (x *drive) each(n int, op func(b *holdfast.Batch, i int)) (int, error) {
	x.t.Helper()
	var b holdfast.Batch
	for i := range n {
		op(&b, i)
		if b.Len() < 100 && i < n-1 {
			continue
		}
		if err := commit(x.d, &b, holdfast.Power); err != nil {
			return i - b.Len() + 1, err
		}
		b.Reset()
		x.work()
	}
	return n, nil
}

func (x *drive) count() int {
	x.t.Helper()
	all, err := contents(x.d)
	if err != nil {
		x.t.Fatal(err)
	}
	return len(all)
}

// TestNearlyFullDisk: on a disk of one and a half times the live data, overwriting at random goes on for ever. A
// merge once needed room for all that it read, and the database could not be written to any more, nor after
// reopening.
func TestNearlyFullDisk(t *testing.T) {
	const n = 50_000
	x := newDrive(t, 1<<20)
	rnd := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, 100)
	if _, err := x.each(n, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
		t.Fatal(err)
	}
	x.fs.SetCapacity(n * 108 * 3 / 2)
	done, err := x.each(n, func(b *holdfast.Batch, _ int) { b.Set(scattered(rnd.IntN(n)), value) })
	if err != nil {
		t.Fatalf("after %d overwrites: %v", done, err)
	}
	if got := x.count(); got != n {
		t.Errorf("%d of %d keys", got, n)
	}
}

// TestFullDisk: what does not fit is refused and nothing else: what is there can be read and deleted key by key, and
// then there is room again. A full disk once ended all writing, and deleting did not get further after reopening.
func TestFullDisk(t *testing.T) {
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
		x.d.reclaim.tidy(true)
	}
	x.work()
	if now := x.fs.Used(); now > before/2 {
		t.Errorf("%d bytes on disk, %d before everything was deleted", now, before)
	}
	if _, err := x.each(1000, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
		t.Error(err)
	}
}

// TestRangeDeleteIsGarbage: what a range delete has cut off runs counts as garbage, also if it covers none of them as
// a whole.
func TestRangeDeleteIsGarbage(t *testing.T) {
	const n = 40_000
	x := newDrive(t, 4<<20)
	value := make([]byte, 200)
	if _, err := x.each(n, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	b.DeleteRange([]byte{1}, []byte{255})
	if err := commit(x.d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	x.d.reclaim.tidy(true)
	x.work()
	if left := x.count(); left == 0 || left > n/50 {
		t.Fatalf("%d keys are left: this tests nothing", left)
	}
	var used int64
	for _, s := range x.d.view.Load().ver.segs {
		used += s.used.Load()
	}
	if used > n*208/8 {
		t.Errorf("%d bytes of log are kept for %d keys", used, x.count())
	}
}

// TestDeletesGiveBack: what was deleted gives its space back though nothing else is written: by a range, key by key,
// and in the memtable; while the database is open, and when it is closed at once.
func TestDeletesGiveBack(t *testing.T) {
	const n = 8_000
	value := make([]byte, 1000)
	for name, remove := range map[string]func(b *holdfast.Batch){
		"everything": func(b *holdfast.Batch) { b.DeleteRange(nil, nil) },
		"the front":  func(b *holdfast.Batch) { b.DeleteRange([]byte("key 0"), []byte("key 00007999")) },
		"by key": func(b *holdfast.Batch) {
			for i := range n {
				b.Delete(fmt.Appendf(nil, "key %08d", i))
			}
		},
	} {
		for _, memory := range []int64{4 << 20, 128 << 20} { // most is in runs, all is in the memtable
			for _, closed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d MiB, closed %v", name, memory>>20, closed), func(t *testing.T) {
					x := newDrive(t, memory)
					if _, err := x.each(n, func(b *holdfast.Batch, i int) { b.Set(fmt.Appendf(nil, "key %08d", i), value) }); err != nil {
						t.Fatal(err)
					}
					var b holdfast.Batch
					remove(&b)
					if err := commit(x.d, &b, holdfast.Power); err != nil {
						t.Fatal(err)
					}
					if closed {
						for range 2 {
							if err := x.d.Close(); err != nil {
								t.Fatal(err)
							}
							x.open()
						}
					} else {
						for range 3 {
							x.work()
							x.d.reclaim.tidy(true)
						}
					}
					x.work()
					if used := x.fs.Used(); used > 2<<20 {
						names, _ := x.fs.List("db")
						for i, name := range names {
							size, _ := x.fs.Size(filepath.Join("db", name))
							names[i] = fmt.Sprintf("%s %d", name, size)
						}
						t.Errorf("%d bytes on disk for %d keys: %v", used, x.count(), names)
					}
				})
			}
		}
	}
}

// TestClosedBeforeFlush: a range delete that ends the memtable gives its space back also when the database is closed
// before the flush.
func TestClosedBeforeFlush(t *testing.T) {
	x := newDrive(t, 4<<20)
	value := make([]byte, 1000)
	if _, err := x.each(8_000, func(b *holdfast.Batch, i int) { b.Set(fmt.Appendf(nil, "key %08d", i), value) }); err != nil {
		t.Fatal(err)
	}
	x.d.mu.Lock()
	x.d.rotateTable()
	x.d.mu.Unlock()
	x.work()
	var b holdfast.Batch
	b.DeleteRange(nil, nil)
	if err := commit(x.d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	if v := x.d.view.Load(); len(v.imm) == 0 {
		t.Fatal("the range delete has not ended the memtable")
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	if used := x.fs.Used(); used > 2<<20 {
		t.Errorf("%d bytes are left on disk", used)
	}
	x.open()
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

// TestTidyComesByItself: nobody has to write or close for the space of what was deleted to come back, whether it was
// in a memtable or in runs.
func TestTidyComesByItself(t *testing.T) {
	for _, memory := range []int64{128 << 20, 32 << 20} {
		synctest.Test(t, func(t *testing.T) { testTidy(t, memory) })
	}
}

func testTidy(t *testing.T, memory int64) {
	fsys := vfs.NewMem()
	c := testConfig(fsys, "db")
	c.Memory = memory
	if err := fsys.MkdirAll("db"); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		var b holdfast.Batch
		for k := range 100 {
			b.Set(scattered(i*100+k), make([]byte, 1000))
		}
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
	}
	var b holdfast.Batch
	b.DeleteRange(nil, nil)
	if err := commit(d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	for start := time.Now(); fsys.Used() > 2<<20; time.Sleep(tidyAfter) {
		if time.Since(start) > time.Minute {
			t.Fatalf("after a minute there are %d bytes on disk", fsys.Used())
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// flip changes a bit in the middle of that text in the files of that kind, or, for no text, of the largest of them.
func flip(t *testing.T, fsys *vfs.Mem, kind string, text []byte) {
	t.Helper()
	names, err := fsys.List("db")
	if err != nil {
		t.Fatal(err)
	}
	largest, most := "", int64(0)
	for _, name := range names {
		if name = filepath.Join("db", name); !strings.HasSuffix(name, kind) {
			continue
		}
		b, err := readFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, text); len(text) > 0 && at >= 0 {
			largest, most = name, int64(2*at+len(text))
			break
		}
		if len(text) == 0 && int64(len(b)) > most {
			largest, most = name, int64(len(b))
		}
	}
	if err := fsys.Flip(largest, most/2, 0); err != nil {
		t.Fatal(err)
	}
}

// TestRottenValue: a value that cannot be read stays where it is, and all others are moved and written as before. It
// once stopped all writing, again after each opening.
func TestRottenValue(t *testing.T) {
	const n = 10_000
	x := newDrive(t, 2<<20)
	value, odd := bytes.Repeat([]byte("v"), 200), bytes.Repeat([]byte("Q"), 200)
	if _, err := x.each(n, func(b *holdfast.Batch, i int) {
		v := value
		if i == 77 {
			v = odd
		}
		b.Set(scattered(i), v)
	}); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, x.fs, ".seg", odd)
	x.open()
	rnd := rand.New(rand.NewPCG(1, 1))
	for session := range 2 {
		if done, err := x.each(4*n, func(b *holdfast.Batch, _ int) { b.Set(scattered(100+rnd.IntN(n-100)), value) }); err != nil {
			t.Fatalf("session %d, after %d overwrites: %v", session, done, err)
		}
		if _, err := x.d.Get(nil, scattered(77)); !errors.Is(err, holdfast.ErrCorrupt) {
			t.Errorf("session %d: the damaged value: %v", session, err)
		}
		if v, err := x.d.Get(nil, scattered(78)); err != nil || !bytes.Equal(v, value) {
			t.Errorf("session %d: another value: %v", session, err)
		}
		m := x.d.Metrics()
		if m.Poison != nil || !errors.Is(m.Trouble, holdfast.ErrCorrupt) {
			t.Errorf("session %d: poison %v, trouble %v", session, m.Poison, m.Trouble)
		}
		if used := x.fs.Used(); used > 3*n*208 {
			t.Errorf("session %d: %d bytes on disk for %d of data", session, used, n*208)
		}
		if err := x.d.Close(); err != nil {
			t.Fatal(err)
		}
		v, err := Verify(x.fs, "db")
		if err != nil || len(v.Damage) == 0 {
			t.Errorf("session %d: Verify: %v, %v", session, err, v.Damage)
		}
		x.open()
	}
}

// TestDamagedRun: an index file of which a block cannot be read is left out of merges, and everything else goes on.
func TestDamagedRun(t *testing.T) {
	const n = 20_000
	x := newDrive(t, 2<<20)
	value := make([]byte, 100)
	if _, err := x.each(n, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, x.fs, ".run", nil)
	x.open()
	rnd := rand.New(rand.NewPCG(1, 1))
	if done, err := x.each(3*n, func(b *holdfast.Batch, _ int) { b.Set(scattered(rnd.IntN(n)), value) }); err != nil {
		t.Fatalf("after %d overwrites: %v", done, err)
	}
	if m := x.d.Metrics(); m.Poison != nil || !errors.Is(m.Trouble, holdfast.ErrCorrupt) {
		t.Errorf("poison %v, trouble %v", m.Poison, m.Trouble)
	}
	bad := 0
	for i := range n {
		v, err := x.d.Get(nil, scattered(i))
		if errors.Is(err, holdfast.ErrCorrupt) {
			bad++
		} else if err != nil || !bytes.Equal(v, value) {
			t.Fatalf("key %d: %v", i, err)
		}
	}
	if bad > n/20 {
		t.Errorf("%d of %d keys cannot be read for one damaged block", bad, n)
	}
	if tiers := len(x.d.view.Load().ver.tiers); tiers > 20 {
		t.Errorf("%d tiers", tiers)
	}
}

// TestBackgroundFailures: what background work could not do for want of something is undone and done later, and
// writing goes on.
func TestBackgroundFailures(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.EIO} {
		for _, kind := range []vfs.Kind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync} {
			for _, suffix := range []string{".run", manifestName + ".new", ".seg"} {
				x := newDrive(t, 1<<20)
				value := make([]byte, 100)
				set := func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }
				if _, err := x.each(500, set); err != nil {
					t.Fatal(err)
				}
				x.d.mu.Lock()
				x.d.rotateTable()
				x.d.mu.Unlock()
				failed := 0
				cur := x.d.cur.file.Name()
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
				if m := x.d.Metrics(); m.Trouble != nil || m.Poison != nil || len(x.d.view.Load().imm) > 0 {
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

// TestPaceIsShared: writers that are slowed down get one rate together, however many they are. Each once got its own.
func TestPaceIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &DB{watch: newWatch(testConfig(vfs.NewMem(), "db").Logger)}
		d.reclaim.d = d
		d.reclaim.debt.Store(&debt{base: 1, width: 1000})
		d.log.appended.Store(501) // halfway
		const writers, each = 64, 128 << 10
		start := time.Now()
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range each / (4 << 10) {
					d.reclaim.pace(4 << 10)
				}
			})
		}
		all.Wait()
		want := float64(writers*each) / pacing
		if took := time.Since(start).Seconds(); took < 0.99*want || took > 1.01*want {
			t.Errorf("%d bytes in %.3f s, not in %.3f", writers*each, took, want)
		}
	})
}

// TestLastStop: at the bound of the debt writers wait until reclaim has caught up, or has nothing to do.
func TestLastStop(t *testing.T) {
	d := &DB{watch: newWatch(testConfig(vfs.NewMem(), "db").Logger), merges: make(chan struct{}, 1)}
	d.changed.L, d.reclaim.d = &d.mu, d
	for name, release := range map[string]func(){
		"less debt":       func() { d.reclaim.debt.Store(&debt{base: 5000, width: 1000}) },
		"no merge to do":  func() { d.reclaim.busy = false },
		"a failed engine": func() { d.log.failed.Store(&failure{err: syscall.EIO}) },
	} {
		d.log.appended.Store(5000)
		d.reclaim.debt.Store(&debt{base: 1, width: 1000})
		d.reclaim.busy = true
		d.log.failed.Store(nil)
		through := make(chan struct{})
		go func() {
			d.reclaim.pace(1)
			close(through)
		}()
		<-d.merges // it is about to wait
		select {
		case <-through:
			t.Errorf("%s: a writer did not wait", name)
		default:
		}
		d.mu.Lock()
		release()
		d.changed.Broadcast()
		d.mu.Unlock()
		<-through
	}
}

// TestHeadersAreNoGarbage: what is written once and never changed is not moved, however small it is.
func TestHeadersAreNoGarbage(t *testing.T) {
	x := newDrive(t, 2<<20)
	var b holdfast.Batch
	for i := range 300 {
		b.Reset()
		for k := range 1000 {
			b.Set(binary.BigEndian.AppendUint64(nil, uint64(i*1000+k)), nil)
		}
		if err := commit(x.d, &b, holdfast.Memory); err != nil {
			t.Fatal(err)
		}
		x.work()
	}
	for id, s := range x.d.segs {
		if s.kind == kindMoved {
			t.Errorf("segment %d holds %d bytes that were moved", id, s.used.Load())
		}
	}
}

// TestDamagedRunAmongTiers: whichever index file is damaged, merges of what is newer, and of what is older, lose
// nothing of what can be read. Keys of tiers below a damaged one were once dropped where tiers above it were merged.
func TestDamagedRunAmongTiers(t *testing.T) {
	key := func(i int) []byte { return fmt.Appendf(nil, "key %04d", i) }
	made := newDrive(t, 2<<20)
	want := map[int]string{}
	rnd := rand.New(rand.NewPCG(2, 2))
	round := func(d *DB, n int) {
		t.Helper()
		var b holdfast.Batch
		for range n {
			i := rnd.IntN(400)
			want[i] = fmt.Sprintf("value %x of %d", rnd.Uint64(), i)
			b.Set(key(i), []byte(want[i]))
		}
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
		d.mu.Lock()
		d.rotateTable()
		d.mu.Unlock()
		if _, err := d.flush(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{300, 40, 30, 20} {
		round(made.d, n)
	}
	if tiers := len(made.d.view.Load().ver.tiers); tiers < 3 {
		t.Fatalf("%d tiers: this tests nothing", tiers)
	}
	if err := made.d.Close(); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(want)
	names, err := made.fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if filepath.Ext(name) != ".run" {
			continue
		}
		want = maps.Clone(before)
		x := &drive{t: t, fs: made.fs.Clone(), c: made.c}
		x.c.FS = x.fs
		if err := x.fs.Flip(filepath.Join("db", name), 100, 0); err != nil {
			t.Fatal(err)
		}
		x.open()
		for range 6 {
			round(x.d, 25)
			x.work()
		}
		unreadable := 0
		for i, value := range want {
			v, err := x.d.Get(nil, key(i))
			if errors.Is(err, holdfast.ErrCorrupt) {
				unreadable++
			} else if err != nil || string(v) != value {
				t.Errorf("%s damaged: key %d is %q, %v, want %q", name, i, v, err, value)
			}
		}
		if unreadable == 0 || unreadable == len(want) {
			t.Errorf("%s damaged: %d of %d keys cannot be read", name, unreadable, len(want))
		}
		if err := x.d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// movingSteps is a database of n keys whose values a pass moves, step by step, out of all segments that the log has
// left. A step moves some 16 KiB, a segment of moved values holds 24.
func movingSteps(t *testing.T, n int, mapped bool) *drive {
	t.Helper()
	fsys := vfs.NewMem()
	fsys.SetMapping(mapped)
	t.Cleanup(fsys.Unmap)
	x := &drive{t: t, fs: fsys, c: testConfig(fsys, "db")}
	x.c.Manual, x.c.SyncEvery, x.c.Sizes = true, -1, Sizes{Table: 1 << 20, Segment: 24 << 10, Run: 16 << 10}
	if err := errors.Join(x.fs.MkdirAll("db"), x.fs.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	x.open()
	t.Cleanup(func() { x.d.Close() })
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

// moveAll begins a pass that empties all segments that the log has left.
func (x *drive) moveAll() {
	d, victims := x.d, map[uint32]bool{}
	for _, s := range d.view.Load().ver.segs {
		if s.id < d.from.seg {
			victims[s.id] = true
		}
	}
	tiers := d.view.Load().ver.tiers
	d.reclaim.passes = append(d.reclaim.passes, &pass{
		oldest: tiers[len(tiers)-1].id, newest: tiers[0].id, victims: victims, limit: d.runLimit, mover: &mover{d: d, seq: d.from.seq},
	})
}

func stepKey(i int) []byte   { return fmt.Appendf(nil, "key %06d", i) }
func stepValue(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%06d ", i), 14) }

// TestSegmentFilledByLaterStep: a segment of moved values that nothing names any more stays as long as a step adds to
// it, also when the step has filled it and something else is installed before the step is.
func TestSegmentFilledByLaterStep(t *testing.T) {
	x := movingSteps(t, 2000, false)
	d := x.d
	if _, err := d.reclaim.mergeOnce(); err != nil {
		t.Fatal(err)
	}
	p := d.reclaim.passes[len(d.reclaim.passes)-1]
	first, next := p.mover.seg, bytes.Clone(p.next)
	if first == nil || next == nil {
		t.Fatal("the first step has moved all, or nothing: this tests nothing")
	}
	d.put(t, func(b *holdfast.Batch) { b.DeleteRange(nil, next) })
	if d.view.Load().ver.segment(first.id) != nil {
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
	if _, err := d.reclaim.mergeOnce(); err != nil {
		t.Fatal(err)
	}
	if !between {
		t.Fatal("the second step did not fill the segment: this tests nothing")
	}
	for range 2 {
		x.work()
		for i := range 2000 {
			v, err := d.Get(nil, stepKey(i))
			if deleted := bytes.Compare(stepKey(i), next) < 0; deleted != errors.Is(err, holdfast.ErrNotFound) || !deleted && !bytes.Equal(v, stepValue(i)) {
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

// TestMovedSegmentIsMappedUnread: a segment of moved values is mapped before it is installed, when nobody reads it
// yet. One that the last step of a pass began was once mapped while readers looked whether it was.
func TestMovedSegmentIsMappedUnread(t *testing.T) {
	x := movingSteps(t, 300, true)
	d, mapped := x.d, 0
	d.reclaim.passes[0].limit = 1 << 20 // one step
	x.fs.SetHook(func(op vfs.Op) error {
		if id, ok := numbered(path.Base(op.Name), ".seg"); ok && op.Kind == vfs.OpMap {
			if d.view.Load().ver.segment(uint32(id)) != nil {
				t.Errorf("segment %d is mapped while it is read", id)
			}
			mapped++
		}
		return nil
	})
	for len(d.reclaim.passes) > 0 {
		if _, err := d.reclaim.mergeOnce(); err != nil {
			t.Fatal(err)
		}
	}
	if mapped == 0 {
		t.Error("no segment of moved values was mapped: this tests nothing")
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
		if op.Kind == vfs.OpWrite && op.Name == runName("db", d.nextFile) {
			d.log.fail(syscall.EIO)
			return syscall.EIO
		}
		return nil
	})
	if _, err := d.reclaim.mergeOnce(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the step: %v", err)
	}
	x.fs.SetHook(nil)
	if after, err := x.fs.List("db"); err != nil || !slices.Equal(before, after) {
		t.Errorf("%v, %v are left of %v", after, err, before)
	}
	if did, err := d.reclaim.mergeOnce(); did || !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("another step: %v, %v", did, err)
	}
}

// TestUnreadablePages: what lies in pages of a mapped file that cannot be read stays out of merges, be it values or
// an index, and everything else goes on, as it does where the damage shows in a checksum.
func TestUnreadablePages(t *testing.T) {
	const n = 2000
	for _, kind := range []string{".seg", ".run"} {
		x := movingSteps(t, n, true)
		name := segmentName("db", 1)
		if kind == ".run" {
			name = runName("db", x.d.view.Load().ver.files[0].id)
		}
		if err := x.fs.Spoil(name, 4096, 8192); err != nil {
			t.Fatal(err)
		}
		x.d.put(t, func(b *holdfast.Batch) {
			for i := 0; i < n; i += 3 {
				b.Set(stepKey(i), stepValue(i+1))
			}
		})
		x.d.reclaim.passes = nil
		x.moveAll()
		for len(x.d.reclaim.passes) > 0 {
			if _, err := x.d.reclaim.mergeOnce(); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		if m := x.d.Metrics(); m.Poison != nil || !isUnreadable(m.Trouble) {
			t.Errorf("%s: poison %v, trouble %v", kind, m.Poison, m.Trouble)
		}
		for _, s := range x.d.view.Load().ver.segs {
			if kind == ".seg" && s.kind == kindLog && s.id != 1 && s.id < x.d.from.seg {
				t.Errorf("segment %d was not emptied", s.id)
			}
		}
		for i := range n {
			want := stepValue(i)
			if i%3 == 0 {
				want = stepValue(i + 1)
			}
			if v, err := x.d.Get(nil, stepKey(i)); !isUnreadable(err) && (err != nil || !bytes.Equal(v, want)) {
				t.Fatalf("%s: key %d: %q, %v", kind, i, v, err)
			}
		}
	}
}

// TestMergeChecksAgain: an index file that rots after it was read is not merged as it is, with a new checksum over
// the rot.
func TestMergeChecksAgain(t *testing.T) {
	const n = 500
	x := movingSteps(t, n, true)
	x.d.reclaim.passes = nil
	if got := x.count(); got != n {
		t.Fatalf("%d of %d keys", got, n)
	}
	name := runName("db", x.d.view.Load().ver.files[0].id)
	for bit := range int64(8) {
		if err := x.fs.Flip(name, 200+100*bit, int(bit)); err != nil {
			t.Fatal(err)
		}
	}
	x.d.put(t, func(b *holdfast.Batch) {
		for i := 0; i < n; i += 3 {
			b.Set(stepKey(i), stepValue(i))
		}
	})
	x.moveAll()
	for len(x.d.reclaim.passes) > 0 {
		if _, err := x.d.reclaim.mergeOnce(); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	x.open()
	bad := 0
	for i := range n {
		v, err := x.d.Get(nil, stepKey(i))
		if errors.Is(err, holdfast.ErrCorrupt) {
			bad++
		} else if err != nil || !bytes.Equal(v, stepValue(i)) {
			t.Fatalf("key %d: %q, %v", i, v, err)
		}
	}
	if bad == n { // what was in memory may still be right
		t.Errorf("none of %d keys can be read", n)
	}
}

// TestPlacingBesideStep: a flush may ask where a step is at work while it is (the race detector sees if it touches
// what the step writes).
func TestPlacingBesideStep(t *testing.T) {
	x := movingSteps(t, 1000, false)
	d, p := x.d, x.d.reclaim.passes[0]
	d.edit.Lock()
	s := d.reclaim.plan(p)
	d.edit.Unlock()
	p.mover.begin()
	out := d.newOutput()
	var placing sync.WaitGroup
	placing.Go(func() {
		if at := (span{lo: stepKey(0), hi: stepKey(10)}); !s.occupies(p, p.oldest, at) {
			t.Error("the step does not keep runs out of the way")
		}
	})
	if err := d.reclaim.rewrite(p, s, out); err != nil {
		t.Fatal(err)
	}
	placing.Wait()
	out.abandon()
	p.mover.undo()
}

// TestDefaultBudgetOnSmallDisk: files are small beside a small disk, whatever memory there is. With files of the
// usual size, overwrites were refused for ever with half of the disk free: there was no room to empty the largest
// segment.
func TestDefaultBudgetOnSmallDisk(t *testing.T) {
	for _, mib := range []int64{64, 96} {
		x := &drive{t: t, fs: vfs.NewMem()}
		x.c = testConfig(x.fs, "db")
		x.c.Manual, x.c.SyncEvery, x.c.Memory = true, -1, 128<<20
		x.fs.SetCapacity(mib << 20)
		if err := errors.Join(x.fs.MkdirAll("db"), x.fs.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		x.open()
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

// TestTwoManifests: when it is not known which of two manifests is durable the engine stops, whoever flushes, and
// also if the cause is a full disk, of which something could be given back.
func TestTwoManifests(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		for name, flush := range map[string]func(d *DB) error{
			"Flush": (*DB).Flush,
			"Work": func(d *DB) error {
				d.mu.Lock()
				d.rotateTable()
				d.mu.Unlock()
				_, err := d.Work(1)
				return err
			},
		} {
			x := movingSteps(t, 100, false)
			x.d.reclaim.passes = nil
			x.work() // the next segment is prepared, and could be given back
			var b holdfast.Batch
			b.Set([]byte("key"), []byte("value"))
			if err := commit(x.d, &b, holdfast.Power); err != nil {
				t.Fatal(err)
			}
			renamed, failed := false, false
			x.fs.SetHook(func(op vfs.Op) error {
				renamed = renamed || op.Kind == vfs.OpRename && path.Base(op.To) == manifestName
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
