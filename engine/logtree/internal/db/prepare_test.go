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
	"github.com/holdfastdb/holdfast/vfs"
)

// prepared opens a new database in memory whose segments have that size and are prepared when the test says so, at
// the pace of the log unless manual.
func prepared(t *testing.T, size int64, manual bool) (*DB, Config) {
	t.Helper()
	d, c := manualWith(t, 1<<20, func(c *Config) { c.Sizes.Segment, c.Sizes.Table = size, 64<<20 })
	d.manual = manual
	return d, c
}

// fill commits sets of 1000 bytes at Power until the log is at off of its present segment, or in the next one, and
// returns how many keys there are then.
func (d *DB) fill(t *testing.T, n int, off int64) int {
	t.Helper()
	for cur := d.cur; d.cur == cur && d.off < off; n++ {
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

// TestCrashWhilePreparing: after each step towards the next segment, a crash leaves nothing that the tools call
// damage, nor anything that opening leaves there.
func TestCrashWhilePreparing(t *testing.T) {
	const size = 64 << 10
	rnd := rand.New(rand.NewPCG(*seed, 4))
	steps := 0
	for done := false; !done; steps++ {
		d, c := prepared(t, size, true)
		keys := d.fill(t, 0, 4<<10)
		for range steps {
			if did, err := d.prepareNext(); !did || err != nil {
				t.Fatal(did, err)
			}
		}
		done = d.next != nil
		if half := d.making != nil; half == (done || steps == 0) {
			t.Fatalf("after %d steps: in the making %v, done %v", steps, half, done)
		}
		m := c.FS.(*vfs.Mem)
		for name, left := range map[string]*vfs.Mem{"killed": m.Kill(), "nothing": m.CrashNothing(),
			"everything": m.CrashAll(), "some": m.Crash(rnd)} {
			name = fmt.Sprintf("%s after %d steps", name, steps)
			v, err := Verify(left, c.Dir)
			if err != nil || len(v.Damage) > 0 {
				t.Fatalf("%s: verify: %v, %v", name, err, v.Damage)
			}
			if in, err := Inspect(left, c.Dir); err != nil || len(in.Damage) > 0 {
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
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if names := segmentFiles(t, c); len(names) != 1 {
			t.Fatalf("closed after %d steps, it leaves %v", steps, names)
		}
	}
	if steps < minZeroChunks {
		t.Errorf("a segment was made in %d steps", steps)
	}
}

// TestPreparingKeepsPace: a segment is written ahead as far as the log has come in the present one, no further, and
// is there before the log needs it.
func TestPreparingKeepsPace(t *testing.T) {
	const size = 4 << 20
	d, c := prepared(t, size, false)
	keys := 0
	for d.cur == nil || d.cur.size < size {
		keys = d.fill(t, keys, size)
		for did := true; did; {
			var err error
			if did, err = d.prepareNext(); err != nil {
				t.Fatal(err)
			}
		}
	}
	keys = d.fill(t, keys, 64<<10)
	wakes, before, stalls := 0, int64(0), d.stalls.Load()
	for d.next == nil {
		for did := true; did; {
			var err error
			if did, err = d.prepareNext(); err != nil {
				t.Fatal(err)
			}
		}
		if d.next != nil {
			break
		}
		// What is made is what half of the segment asks for, or one piece more.
		if d.making == nil || d.zeroed < min(2*d.off, size) || d.zeroed > 2*d.off+zeroChunk || d.zeroed == before {
			t.Fatalf("with the log at %d, %d bytes are written ahead, %d before", d.off, d.zeroed, before)
		}
		for len(d.prepare) > 0 {
			<-d.prepare
		}
		for before = d.zeroed; len(d.prepare) == 0; {
			keys = d.fill(t, keys, d.off+1)
			if d.off > size/2+8<<10 {
				t.Fatalf("nobody was called to go on, with the log at %d", d.off)
			}
		}
		wakes++
	}
	if wakes < size/zeroChunk/2 {
		t.Errorf("it was made in %d parts", wakes)
	}
	if d.next.flags != flagWritten || !d.next.durable {
		t.Error("it is not written ahead, or not durable")
	}
	data, err := readFile(c.FS, d.next.file.Name())
	if err != nil || len(data) != size || extent(data) > segmentHeader {
		t.Errorf("it has %d bytes, something in %d of them, %v", len(data), extent(data), err)
	}
	if d.fill(t, keys, size); d.stalls.Load() != stalls || d.cur.size != size {
		t.Error("the log did not go on in the segment that was prepared")
	}
	d.manual = true
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLatePreparation: if the log gets to the end of its segment first, it makes the next itself, and what was in
// the making is given up: numbers ascend along the log.
func TestLatePreparation(t *testing.T) {
	const size = 64 << 10
	d, c := prepared(t, size, true)
	keys := 0
	for d.cur == nil || d.cur.size < size {
		keys = d.fill(t, keys, size)
	}
	for range 3 {
		if did, err := d.prepareNext(); !did || err != nil {
			t.Fatal(did, err)
		}
	}
	late, cur, stalls := d.making, d.cur, d.stalls.Load()
	if late == nil || d.zeroed == 0 {
		t.Fatal("nothing is in the making: this tests nothing")
	}
	keys = d.fill(t, keys, size)
	if d.cur == cur || d.cur.id <= late.id || d.stalls.Load() != stalls+1 {
		t.Fatalf("the log went on from %d in %d, %d was in the making; %d stalls", cur.id, d.cur.id, late.id,
			d.stalls.Load()-stalls)
	}
	if _, err := d.Work(100); err != nil {
		t.Fatal(err)
	}
	if d.next == nil || d.next.id <= d.cur.id {
		t.Fatal("no segment was prepared to follow")
	}
	if _, err := c.FS.Size(segmentName(c.Dir, late.id)); err == nil {
		t.Error("what was given up is still there")
	}
	keys = d.fill(t, d.fill(t, keys, size), 8<<10)
	c.FS = c.FS.(*vfs.Mem).CrashNothing()
	d, err := Open(c)
	if err != nil {
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
		d, c := prepared(t, size, true)
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
		for d.next == nil {
			if did, err := d.prepareNext(); !did || err != nil {
				break
			}
		}
		c.FS.(*vfs.Mem).SetHook(nil)
		if d.next != nil { // all calls have failed once
			if fail < minZeroChunks+4 {
				t.Errorf("only %d calls were made", fail)
			}
			d.Close()
			return
		}
		if d.making != nil {
			t.Fatalf("call %d failed, but it goes on", fail)
		}
		if names := segmentFiles(t, c); len(names) != 1 {
			t.Fatalf("call %d failed, there is %v", fail, names)
		}
		keys = d.fill(t, keys, size)
		if _, err := d.Work(100); err != nil || d.next == nil {
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
	d, c := prepared(t, 64<<10, true)
	d.logger = slog.New(slog.NewTextHandler(&out, nil))
	d.watch.logger = d.logger
	d.fill(t, 0, 4<<10)
	if out.Len() > 0 {
		t.Fatalf("before anybody has waited long: %s", &out)
	}
	d.watch.least = 0
	d.watch.every = time.Hour
	d.watch.during(isFlushing, true)
	d.watch.during(isMerging, true)
	d.watch.during(isMerging, false)
	last := d.cur.file.Name()
	d.fill(t, 4, 6<<10)
	line := out.String()
	for _, want := range []string{"level=WARN", "a commit waited long", "took=", "for=\"writing to the log\"",
		"path=" + last, "background=\"flush for "} {
		if !strings.Contains(line, want) {
			t.Errorf("%q is not in %s", want, line)
		}
	}
	if strings.Count(line, "\n") != 1 || strings.Contains(line, "merge") || strings.Contains(line, "unsaid") {
		t.Errorf("not one line, or it says too much: %s", line)
	}
	out.Reset()
	unsaid := d.watch.unsaid.Load()
	d.watch.next.Store(0)
	d.watch.during(isFlushing, false)
	d.watch.waited(time.Now(), "this test")
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
