package db

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// prepared opens a new database in memory whose segments have that size and are prepared when the test says so.
func prepared(t *testing.T, size int64) (*DB, Config) {
	t.Helper()
	return manualWith(t, 1<<20, func(c *Config) { c.Sizes.Segment, c.Sizes.Memtable = size, 64<<20 })
}

// fill commits sets of 1000 bytes at Power until the log is at off of its present segment, or in the next one, and
// returns how many keys there are then.
func (d *DB) fill(t *testing.T, n int, off int64) int {
	t.Helper()
	for cur := d.log.Current(); d.log.Current() == cur && d.log.End().Offset < off; n++ {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "%08d", n), make([]byte, 1000))
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func segmentFiles(t *testing.T, c Config) (names []string) {
	t.Helper()
	all, err := c.FS.List(c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		if strings.HasSuffix(n, ".seg") {
			names = append(names, n)
		}
	}
	return names
}

// TestCrashWhilePreparing: before each call on the way to the next segment, a crash leaves nothing that the tools call
// damage, nor anything that opening leaves there.
func TestCrashWhilePreparing(t *testing.T) {
	const size = 64 << 10
	rnd := rand.New(rand.NewPCG(*seed, 4))
	d, c := prepared(t, size)
	keys := d.fill(t, 0, 4<<10)
	m := c.FS.(*vfs.Mem)
	left := map[string]*vfs.Mem{}
	calls := 0
	crash := func() {
		for name, m := range map[string]*vfs.Mem{"killed": m.Kill(), "nothing": m.CrashNothing(),
			"everything": m.CrashAll(), "some": m.Crash(rnd)} {
			left[fmt.Sprintf("%s before call %d", name, calls)] = m
		}
		calls++
	}
	m.SetHook(func(op vfs.Op) error {
		if op.Kind.Mutates() {
			crash()
		}
		return nil
	})
	if did, err := d.prepareNext(); !did || err != nil || d.mu.next == nil {
		t.Fatal(did, err)
	}
	m.SetHook(nil)
	crash()
	if calls < 6 {
		t.Errorf("a segment was made with %d calls", calls)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if names := segmentFiles(t, c); len(names) != 1 {
		t.Fatalf("closed, it leaves %v", names)
	}
	for name, left := range left {
		v, err := check.Verify(left, c.Dir)
		if err != nil || len(v.Damage) > 0 {
			t.Fatalf("%s: verify: %v, %v", name, err, v.Damage)
		}
		if in, err := check.Inspect(left, c.Dir); err != nil || len(in.Damage) > 0 {
			t.Fatalf("%s: inspect: %v, %v", name, err, in.Damage)
		}
		again := c
		again.FS = left
		e, err := Open(again)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if names := segmentFiles(t, again); len(names) != 1 {
			t.Fatalf("%s: there is %v", name, names)
		}
		more := e.fill(t, keys, size)
		if _, err := e.Work(100); err != nil {
			t.Fatal(err)
		}
		got, err := contents(e)
		if err != nil || len(got) != more {
			t.Fatalf("%s: %d of %d keys, %v", name, len(got), more, err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLatePreparation: if the log gets to the end of its segment first, it makes the next itself, and what was being
// made meanwhile is given up: numbers ascend along the log. The one that is prepared in time is durable and filled with
// zeros, and the log goes on in it.
func TestLatePreparation(t *testing.T) {
	const size = 64 << 10
	d, c := prepared(t, size)
	keys := 0
	for d.log.Current() == nil || d.log.Current().Size < size {
		keys = d.fill(t, keys, size)
	}
	cur, stalls, late := d.log.Current(), d.stalls.Load(), ""
	m := c.FS.(*vfs.Mem)
	m.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && late == "" {
			late = op.Name
			keys = d.fill(t, keys, size)
		}
		return nil
	})
	if _, err := d.prepareNext(); err != nil {
		t.Fatal(err)
	}
	m.SetHook(nil)
	if d.log.Current() == cur || d.log.Current().File.Name() <= late || d.stalls.Load() != stalls+1 || d.mu.next != nil {
		t.Fatalf("the log went on from %d in %d, %s was being made; %d stalls", cur.ID, d.log.Current().ID, late,
			d.stalls.Load()-stalls)
	}
	if _, err := d.Work(100); err != nil {
		t.Fatal(err)
	}
	if d.mu.next == nil || d.mu.next.ID <= d.log.Current().ID || d.mu.next.Flags != format.FlagWritten {
		t.Fatal("no segment was prepared to follow, or it is not filled with zeros, or not durable")
	}
	if _, err := m.Size(late); err == nil {
		t.Error("what was given up is still there")
	}
	data, err := vfs.ReadFile(m, d.mu.next.File.Name())
	if err != nil || len(data) != size || format.Extent(data) > format.SegmentHeaderSize {
		t.Errorf("it has %d bytes, something in %d of them, %v", len(data), format.Extent(data), err)
	}
	next := d.mu.next
	if keys = d.fill(t, keys, size); d.log.Current() != next || d.stalls.Load() != stalls+1 {
		t.Error("the log did not go on in the segment that was prepared")
	}
	keys = d.fill(t, keys, 8<<10)
	c.FS = m.CrashNothing()
	if d, err = Open(c); err != nil {
		t.Fatal(err)
	}
	if got, err := contents(d); err != nil || len(got) != keys {
		t.Errorf("%d of %d keys, %v", len(got), keys, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPreparingFails: whatever call fails on the way to the next segment, nothing is left of it, the log makes one
// itself, and the next attempt succeeds.
func TestPreparingFails(t *testing.T) {
	const size = 64 << 10
	for fail := 0; ; fail++ {
		d, c := prepared(t, size)
		keys := d.fill(t, 0, 4<<10)
		calls := 0
		c.FS.(*vfs.Mem).SetHook(func(op vfs.Op) error {
			if !op.Kind.Mutates() || op.Kind == vfs.OpRemove {
				return nil
			}
			if calls++; calls == fail+1 {
				return fmt.Errorf("call %d fails", fail)
			}
			return nil
		})
		d.prepareNext()
		c.FS.(*vfs.Mem).SetHook(nil)
		if d.mu.next != nil { // all calls have failed once
			if fail < 6 {
				t.Errorf("only %d calls were made", fail)
			}
			d.Close()
			return
		}
		if names := segmentFiles(t, c); len(names) != 1 {
			t.Fatalf("call %d failed, there is %v", fail, names)
		}
		keys = d.fill(t, keys, size)
		if _, err := d.Work(100); err != nil || d.mu.next == nil {
			t.Fatalf("call %d failed, then: %v", fail, err)
		}
		if got, err := contents(d); err != nil || len(got) != keys {
			t.Errorf("call %d failed: %d of %d keys, %v", fail, len(got), keys, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLongWaits: what a commit waits for is said, with what goes on in the background; not twice within the time
// between lines, but how often it was not said.
func TestLongWaits(t *testing.T) { synctest.Test(t, testLongWaits) }

func testLongWaits(t *testing.T) {
	var out bytes.Buffer
	d, c := prepared(t, 64<<10)
	d.logger = slog.New(slog.NewTextHandler(&out, nil))
	d.watch.logger = d.logger
	d.fill(t, 0, 4<<10)
	if out.Len() > 0 {
		t.Fatalf("before anybody has waited long: %s", &out)
	}
	d.watch.least = 0
	d.watch.every = time.Hour
	d.watch.during(isFlushing, true)
	d.watch.during(isCompacting, true)
	d.watch.during(isCompacting, false)
	last := d.log.Current().File.Name()
	d.fill(t, 4, 6<<10)
	line := out.String()
	for _, want := range []string{"level=WARN", "a commit waited long", "took=", "for=\"writing to the log\"",
		"path=" + last, "background=\"flush for "} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %s", want, line)
		}
	}
	if strings.Count(line, "\n") != 1 || strings.Contains(line, "compaction") || strings.Contains(line, "unsaid") {
		t.Errorf("not one line, or it says too much: %s", line)
	}
	out.Reset()
	unsaid := d.watch.unsaid.Load()
	d.watch.next.Store(0)
	d.watch.during(isFlushing, false)
	d.watch.Waited(time.Now(), "this test")
	if line = out.String(); unsaid == 0 || !strings.Contains(line, fmt.Sprintf("unsaid=%d\n", unsaid)) ||
		strings.Contains(line, "background") {
		t.Errorf("%d waits were not said: %s", unsaid, line)
	}

	// A write that is quick and a sync that is not, and another commit that waits for it.
	out.Reset()
	d.watch.next.Store(0)
	d.watch.least = 50 * time.Millisecond
	syncing, release := make(chan bool), make(chan bool)
	var once atomic.Bool
	c.FS.(*vfs.Mem).SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && once.CompareAndSwap(false, true) {
			close(syncing)
			<-release
			time.Sleep(2 * d.watch.least)
		}
		return nil
	})
	put := func(key string, done chan error) {
		var b holdfast.Batch
		b.Set([]byte(key), nil)
		done <- commit(d, &b, holdfast.Power)
	}
	first, second := make(chan error, 1), make(chan error, 1)
	go put("first", first)
	<-syncing
	go put("second", second)
	synctest.Wait() // the second waits for the first one's sync
	d.watch.next.Store(0)
	close(release)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if line = out.String(); strings.Count(line, "for=\"a sync of the log\"") != 1 ||
		!strings.Contains(line, " write=") || !strings.Contains(line, " sync=") {
		t.Errorf("what was said of a slow sync: %s", line)
	}
	c.FS.(*vfs.Mem).SetHook(nil)
	d.watch.least = longWait
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEmptySegmentIsFollowed: a power cut comes when the end of one segment is on the device, and nothing of the next.
// The log goes on behind the empty one.
func TestEmptySegmentIsFollowed(t *testing.T) {
	d, c := prepared(t, 64<<10)
	keys := d.fill(t, 0, 4<<10)
	if _, err := d.prepareNext(); err != nil {
		t.Fatal(err)
	}
	first, next := d.log.Current(), d.mu.next
	put := func(d *DB) {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "%08d", keys), make([]byte, 1000))
		if err := commit(d, &b, holdfast.Process); err != nil {
			t.Fatal(err)
		}
		keys++
	}
	for d.log.Current() == first {
		put(d)
	}
	keys-- // the last one is in the next segment
	m := c.FS.(*vfs.Mem)
	var left *vfs.Mem
	m.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && op.Name == next.File.Name() {
			left = m.CrashNothing()
		}
		return nil
	})
	if err := d.Sync(); err != nil || left == nil || d.log.Current() != next {
		t.Fatal(err, left == nil)
	}
	m.SetHook(nil)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	c.FS = left
	for range 2 {
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := contents(d); err != nil || len(got) != keys {
			t.Fatalf("%d of %d keys, %v", len(got), keys, err)
		}
		put(d)
		c.FS = c.FS.(*vfs.Mem).Kill()
	}
}

// TestLargeBatchGivesUpNext: a batch for which the prepared segment is too small gets one of its own, also in the room
// of the prepared one, which is given up. A crash changes nothing.
func TestLargeBatchGivesUpNext(t *testing.T) {
	const size = 256 << 10
	d, c := prepared(t, size)
	keys := d.fill(t, 0, 4<<10)
	if _, err := d.Work(100); err != nil || d.mu.next == nil {
		t.Fatal(err)
	}
	m := c.FS.(*vfs.Mem)
	n := size + size/2
	m.SetCapacity(m.Used() - size + int64(n) + d.leave(false) + 200<<10)
	var b holdfast.Batch
	b.Set([]byte("large"), make([]byte, n))
	if err := commit(d, &b, holdfast.Power); err != nil || d.mu.next != nil {
		t.Error(err, d.mu.next)
	}
	c.FS = m.CrashNothing()
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := contents(d); err != nil || len(got) != keys+1 {
		t.Errorf("%d of %d keys, %v", len(got), keys+1, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestCloseStopsFilling: closing does not wait until the segment that is being filled with zeros is full, and leaves
// nothing of it.
func TestCloseStopsFilling(t *testing.T) {
	d, c := manualWith(t, 1<<30, func(c *Config) { c.Manual = false })
	d.mu.lastSize = 8 << 20
	d.syncedCommits.Store(1 << 20)
	const piece = 16 << 10
	m := c.FS.(*vfs.Mem)
	filling, filled := make(chan bool), 0
	m.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Len == piece {
			if filled++; filled == 1 {
				close(filling)
				<-d.stop
			}
		}
		return nil
	})
	d.fill(t, 0, 4<<10)
	<-filling
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	m.SetHook(nil)
	if filled != 1 {
		t.Errorf("closing has waited for %d pieces of %d bytes", filled, piece)
	}
	if names := segmentFiles(t, c); len(names) != 1 {
		t.Errorf("it leaves %v", names)
	}
}
