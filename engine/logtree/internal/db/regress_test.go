package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// manual opens a new database in memory that does no work by itself.
func manual(t *testing.T) (*DB, Config) { return manualWith(t, 64<<10) }

// manualWith is manual with another budget of memory.
func manualWith(t *testing.T, memory int64) (*DB, Config) {
	t.Helper()
	c := testConfig(vfs.NewMem(), "db")
	c.Manual, c.Memory, c.SyncEvery = true, memory, -1
	if err := c.FS.MkdirAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	c.New = false
	return d, c
}

// put commits sets, or with a value of nil deletes of ranges, and flushes them.
func (d *DB) put(t *testing.T, change func(b *holdfast.Batch)) {
	t.Helper()
	var b holdfast.Batch
	change(&b)
	if err := commit(d, &b, holdfast.Process); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.rotateTable()
	d.mu.Unlock()
	for len(d.view.Load().imm) > 0 {
		if _, err := d.flush(); err != nil {
			t.Fatal(err)
		}
	}
}

func sets(keys ...string) func(*holdfast.Batch) {
	return func(b *holdfast.Batch) {
		for _, k := range keys {
			b.Set([]byte(k), []byte("value of "+k))
		}
	}
}

func cut(lo, hi string) func(*holdfast.Batch) {
	return func(b *holdfast.Batch) { b.DeleteRange([]byte(lo), []byte(hi)) }
}

// TestFlushBesideMoves: a run that is flushed while a merge is in progress must not be linked into the
// merge's target where a ref from a newer tier is about to come. It once was: the tier then overlapped, keys
// could not be found, and the directory not be opened again.
func TestFlushBesideMoves(t *testing.T) {
	d, c := manual(t)
	d.put(t, sets("q1", "q2"))
	d.put(t, sets("b", "c"))
	d.put(t, sets("m", "q1", "z"))
	d.put(t, cut("q1", "q3"))
	ver := d.view.Load().ver
	if len(ver.tiers) < 2 {
		t.Fatalf("%d tiers: this tests nothing", len(ver.tiers))
	}
	d.edit.Lock()
	p := &pass{oldest: ver.tiers[len(ver.tiers)-1].id, newest: ver.tiers[0].id, limit: d.runLimit, mover: &mover{d: d}}
	s := d.reclaim.plan(p)
	d.reclaim.step, d.reclaim.stepPass = s, p
	ver.refs.Add(1)
	d.edit.Unlock()
	out := d.newOutput()
	if err := d.reclaim.rewrite(p, s, out); err != nil {
		t.Fatal(err)
	}
	d.put(t, sets("n", "o"))
	d.edit.Lock()
	tiers := d.reclaim.result(p, s, out)
	if bad := overlapping(tiers); bad != nil {
		t.Errorf("refs overlap in tier %d", bad.id)
	}
	if err := d.install(tiers, d.from, nil, p.mover.commit()); err != nil {
		t.Fatal(err)
	}
	d.reclaim.step, d.reclaim.stepPass = nil, nil
	d.edit.Unlock()
	ver.release()
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

// TestNeighboursAreNoCluster: a run linked into a gap touches the refs that were cut for it, and
// overlaps neither.
func TestNeighboursAreNoCluster(t *testing.T) {
	d, _ := manual(t)
	defer d.Close()
	d.put(t, sets("a", "z"))
	d.put(t, sets("m", "n"))
	ver := d.view.Load().ver
	if len(ver.tiers) != 1 || len(ver.tiers[0].refs) != 3 {
		t.Fatalf("%d tiers: the run was not linked", len(ver.tiers))
	}
	s := d.reclaim.plan(&pass{oldest: ver.tiers[0].id, newest: ver.tiers[0].id})
	for _, c := range s.clusters {
		if c.rewrite {
			t.Errorf("%q to %q is to be rewritten", c.span.lo, c.span.hi)
		}
	}
}

// TestDroppedOutputs: what a merge has written and a range delete covered before it takes effect is
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
	if did, err := d.reclaim.mergeOnce(); !did || err != nil || !once.Load() {
		t.Fatalf("no merge: %v, %v", did, err)
	}
	if _, err := d.Work(10); err != nil {
		t.Fatal(err)
	}
	if n := len(d.view.Load().ver.files); n > 0 {
		t.Fatalf("%d runs are alive", n)
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

// TestDroppedReceipt: a batch at Power whose receipt is dropped reaches the device within the loss
// window.
func TestDroppedReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testConfig(vfs.NewMem(), "/")
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		var b holdfast.Batch
		b.Set([]byte("key"), []byte("value"))
		if _, err := d.Apply(&b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
		time.Sleep(c.SyncEvery)
		synctest.Wait()
		if d.log.synced.Load() < d.log.appended.Load() {
			t.Fatal("it was not synced within the loss window")
		}
	})
}

// TestRangeTombstones compares range deletes with a list of every one of them.
func TestRangeTombstones(t *testing.T) {
	rnd := rand.New(rand.NewPCG(*seed, 3))
	key := func() []byte { return fmt.Appendf(nil, "%02d", rnd.IntN(60)) }
	for range 200 {
		var all []rangeTombstone
		var ts *rangeTombstones
		seq := uint64(0)
		for range 1 + rnd.IntN(8) {
			var batch []rangeTombstone
			for range 1 + rnd.IntN(6) {
				seq++
				lo, hi := key(), key()
				switch c := bytes.Compare(lo, hi); {
				case rnd.IntN(10) == 0:
					hi = nil
				case c > 0:
					lo, hi = hi, lo
				case c == 0:
					continue
				}
				if rnd.IntN(10) == 0 {
					lo = nil
				}
				batch = append(batch, rangeTombstone{lo, hi, seq})
			}
			if len(batch) == 0 {
				continue
			}
			all = append(all, batch...)
			ts = ts.with(batch)
			for i := range 61 {
				k := fmt.Appendf(nil, "%02d", i)
				want := uint64(0)
				for _, r := range all {
					if bytes.Compare(r.lo, k) <= 0 && (len(r.hi) == 0 || bytes.Compare(k, r.hi) < 0) {
						want = max(want, r.seq)
					}
				}
				if got := ts.covers(k); got != want {
					t.Fatalf("%s was deleted by %d, want %d, of %v: %v", k, got, want, all, ts.list)
				}
			}
		}
	}
}

// TestReusedSegmentSizes: the last segment of a session, which Close cuts, is not used again as if it
// had its full length.
func TestReusedSegmentSizes(t *testing.T) {
	var said bytes.Buffer
	c := testConfig(vfs.OS(), t.TempDir())
	c.Manual = true
	c.Logger = slog.New(slog.NewTextHandler(&said, nil))
	for range 6 {
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		c.New = false
		for range 3 {
			d.put(t, sets("a", "b"))
			if _, err := d.Work(10); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if said.Len() > 0 {
		t.Errorf("it warned: %s", said.String())
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

// TestCloseWhilePoisonedWrites: closing a failed database waits for whoever still writes for a receipt.
func TestCloseWhilePoisonedWrites(t *testing.T) {
	c := testConfig(vfs.NewMem(), "db")
	c.Manual = true
	mem := c.FS.(*vfs.Mem)
	if err := mem.MkdirAll(c.Dir); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	sets("a")(&b)
	if err := commit(d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	inside, goOn := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	mem.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && first.CompareAndSwap(false, true) {
			close(inside)
			<-goOn
		}
		return nil
	})
	r, err := d.Apply(&b, holdfast.Process)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() { waited <- r.Wait() }()
	<-inside
	d.log.fail(errors.New("a device fails"))
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	<-d.stop
	for range 1000 { // so that a Close that does not wait would come to its end
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		t.Errorf("Close returned (%v) while a write was under way", err)
	default:
	}
	close(goOn)
	<-waited
	if err := <-closed; !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("Close returned %v", err)
	}
}

// TestNoAckAfterFailedSync: what was written but not waited for before a sync failed is not acknowledged after
// it, at any level, while what had been acknowledged stays so. It once was: the system may have dropped the pages.
func TestNoAckAfterFailedSync(t *testing.T) {
	d, c := manualWith(t, 4<<20) // one memtable takes it all: nothing is synced for a flush
	var b holdfast.Batch
	apply := func(level holdfast.Level) holdfast.Receipt {
		t.Helper()
		b.Reset()
		sets("a")(&b)
		r, err := d.Apply(&b, level)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	synced := apply(holdfast.Process)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	var acked, open []holdfast.Receipt
	for _, level := range []holdfast.Level{holdfast.Memory, holdfast.Process} {
		acked = append(acked, apply(level))
		if err := acked[len(acked)-1].Wait(); err != nil {
			t.Fatal(err)
		}
	}
	for _, level := range holdfast.Levels() {
		open = append(open, apply(level))
	}
	if err := d.log.writeTo(d.log.appended.Load()); err != nil {
		t.Fatal(err)
	}
	c.FS.(*vfs.Mem).SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpSync, Name: "*.seg"}))
	if err := d.Sync(); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Fatalf("a failed sync returned %v", err)
	}
	c.FS.(*vfs.Mem).SetHook(nil)
	for range 2 {
		for i, r := range open {
			if err := r.Wait(); !errors.Is(err, holdfast.ErrPoisoned) {
				t.Errorf("a commit at %v, not acknowledged before a sync failed, returned %v after it", holdfast.Levels()[i], err)
			}
		}
		for i, r := range append(acked, synced) {
			if err := r.Wait(); err != nil {
				t.Errorf("commit %d, which had been acknowledged or synced, returned %v after a failed sync", i, err)
			}
		}
	}
	if err := d.Close(); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("Close returned %v", err)
	}
}

// TestMayBeFrame: no frame is passed over when one looks for frames behind a tear, however many operations are before
// it, and hardly any bytes that are none are summed up. They once all were: opening after a crash, behind which
// random values stood, took minutes.
func TestMayBeFrame(t *testing.T) {
	const epoch = 77
	var data []byte
	var begins []int
	seq := uint32(0)
	add := func(kind frameKind, body []byte, ops int) {
		begins = append(begins, len(data))
		b := make([]byte, frameSize(len(body)))
		copy(b[frameHeader:], body)
		putFrameHeader(b, epoch, kind, len(body), checksum(body), seq, 0)
		data = append(data, b...)
		seq += uint32(ops)
	}
	add(frameBegin, make([]byte, beginBody), 0)
	for _, n := range []int{1, 2, 1000, 1, 20_000} {
		// The shortest operations there are, without padding: as many as can be before a frame.
		add(frameBatch, bytes.Repeat([]byte{byte(holdfast.KindDelete), 1, 'k'}, 4*n), 4*n)
	}
	add(frameEnd, make([]byte, endBody), 0)
	for i, from := range begins {
		found := framesIn(data[from:], int64(from), epoch)
		if len(found) != len(begins)-i {
			t.Fatalf("%d of %d frames are found behind frame %d", len(found), len(begins)-i, i)
		}
		for k, f := range found {
			if f.at+from != begins[i+k] {
				t.Fatalf("frame %d is found at %d, not at %d", i+k, f.at+from, begins[i+k])
			}
		}
	}

	random := make([]byte, 1<<20)
	src := rand.NewChaCha8([32]byte{5})
	src.Read(random)
	summed := 0
	for at := 0; at+frameHeader <= len(random); at += frameAlign {
		if mayBeFrame(random[at:], int64(at)) {
			summed++
		}
	}
	if tried := len(random) / frameAlign; summed > tried/1000 {
		t.Errorf("%d of %d places with random bytes are taken for a frame", summed, tried)
	}
}

// roll makes syncs of another file fail, so that the next one that fails leaves something else on the disk.
func roll(t *testing.T, mem *vfs.Mem, times int) {
	t.Helper()
	f, err := mem.Create("other")
	if err != nil {
		t.Fatal(err)
	}
	mem.SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpSync, Name: "other"}))
	defer mem.SetHook(nil)
	for range times {
		if _, err := f.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err == nil {
			t.Fatal("a sync did not fail")
		}
	}
}

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

// TestMemoryVouchesForMemory: that a Memory commit was acknowledged says nothing of a Process commit before it, for which
// nobody has waited.
func TestMemoryVouchesForMemory(t *testing.T) {
	d, c := manualWith(t, 4<<20)
	apply := func(level holdfast.Level) holdfast.Receipt {
		t.Helper()
		var b holdfast.Batch
		sets(level.String())(&b)
		r, err := d.Apply(&b, level)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	process := apply(holdfast.Process)
	memory := apply(holdfast.Memory)
	if err := memory.Wait(); err != nil {
		t.Fatal(err)
	}
	c.FS.(*vfs.Mem).SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpSync, Name: "*.seg"}))
	if err := d.Sync(); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Fatalf("a failed sync returned %v", err)
	}
	c.FS.(*vfs.Mem).SetHook(nil)
	if err := process.Wait(); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("a Process commit that had not been acknowledged before a sync failed returned %v after it", err)
	}
	if err := memory.Wait(); err != nil {
		t.Errorf("a Memory commit that had been acknowledged returned %v", err)
	}
	if err := d.Close(); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("Close returned %v", err)
	}
}

// TestFramesAmongNumbers: numbers of eight bytes look like headers of long frames, each of which was summed up: a minute for
// four MiB, and an hour for 64.
func TestFramesAmongNumbers(t *testing.T) {
	const epoch = 77
	b := make([]byte, 4<<20)
	for at := 0; at < len(b); at += 8 {
		binary.LittleEndian.PutUint64(b[at:], uint64(8_000_001+at/8))
	}
	body := bytes.Clone(b[1<<20 : 1<<20+300_000])
	at := 2 << 20
	copy(b[at+frameHeader:], body)
	putFrameHeader(b[at:], epoch, frameBatch, len(body), checksum(body), 5, 0)
	may := 0
	for i := 0; i+frameHeader <= len(b); i += frameAlign {
		if mayBeFrame(b[i:], int64(i)) && int(binary.LittleEndian.Uint32(b[i+4:])>>2) <= len(b)-i-frameHeader {
			may++
		}
	}
	if found := framesIn(b, 0, epoch); len(found) != 1 || found[0].at != at || !bytes.Equal(found[0].body, body) || may < 10_000 {
		t.Errorf("%d frames found, of %d places that look like one", len(found), may)
	}
	search := frameSearch{b: b, epoch: epoch}
	if got := search.resync(0, 5); got != at {
		t.Errorf("the next frame is found at %d, not at %d", got, at)
	}
	if got := search.resync(at, 5); got != len(b) {
		t.Errorf("a frame is found at %d, behind the last one", got)
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
		for id := range d.segs {
			if id >= d.from.seg && d.segs[id].kind == kindLog {
				pieces++
			}
		}
		read = max(read, pieces)
		for more := true; more; {
			flushed, err := d.flush()
			if err != nil {
				t.Fatal(err)
			}
			merged, err := d.reclaim.mergeOnce()
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
	if most > 2*maxScraps+maxSmall || read > maxReplayedSegments+1 {
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

// TestKilledOften: what was reserved for the log of a program that is killed is given back at the next opening, and the next
// segment is no larger for it. Files of 32 MiB once stayed, one for each kill, and opening searched them all.
func TestKilledOften(t *testing.T) {
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

// TestDeleteMakesRoom: on a disk that has filled up, a database that is opened again can delete with the little room there is, and
// write again when that has made room. It once wanted a whole segment for the first delete.
func TestDeleteMakesRoom(t *testing.T) {
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

// TestOpenWithoutRoom: what could be flushed while the disk had room may be in memory again at the next opening if there is none, and a log in
// many pieces need not be flushed at all. Opening once failed, or was followed by a poison, so that nothing could be deleted.
func TestOpenWithoutRoom(t *testing.T) {
	for name, fill := range map[string]func(d *DB, c Config, n *int) *DB{
		"memtables to flush": func(d *DB, _ Config, n *int) *DB {
			for ; len(d.view.Load().imm) < 2 || d.view.Load().mem.weight() < 1<<19; *n++ {
				write(t, d, *n)
			}
			for d.next == nil {
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
			c := testConfig(vfs.NewMem(), "db")
			c.Manual, c.Memory, c.SyncEvery, c.Sizes.Segment, c.Sizes.Table = true, 8<<20, -1, 4<<20, 1<<20
			if err := errors.Join(c.FS.MkdirAll(c.Dir), c.FS.SyncDir("/")); err != nil {
				t.Fatal(err)
			}
			d, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			c.New = false
			n := 0
			fill(d, c, &n)
			disk := c.FS.(*vfs.Mem).Kill()
			c.FS = disk
			disk.SetCapacity(disk.Used() + 40<<10)
			if d, err = Open(c); err != nil {
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

// write commits 50 bytes under key i.
func write(t *testing.T, d *DB, i int) {
	t.Helper()
	var b holdfast.Batch
	b.Set(fmt.Appendf(nil, "%08d", i), make([]byte, 50))
	if err := commit(d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
}

// TestCutInPadding: a file that was cut in the padding of its last frame is read, and stays readable when its frames are in runs. The manifest
// once said that it had those bytes, and the next opening that it was cut short.
func TestCutInPadding(t *testing.T) {
	d, c := manualWith(t, 8<<20)
	for i := range maxReplayedSegments + 2 {
		write(t, d, i)
		name, off := d.cur.file.Name(), d.off
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
