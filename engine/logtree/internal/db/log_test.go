package db

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/vfs"
)

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
		if d.log.Synced() < d.log.Appended() {
			t.Fatal("it was not synced within the loss window")
		}
	})
}

// TestCloseWhilePoisonedWrites: closing a failed database waits for whoever still writes for a receipt.
func TestCloseWhilePoisonedWrites(t *testing.T) {
	d, c := manual(t)
	mem := c.FS.(*vfs.Mem)
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
	d.log.Fail(errors.New("a device fails"))
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	<-d.stop
	for range 1000 { // so that a Close that does not wait would come to its end
		runtime.Gosched()
	}
	select {
	case err := <-closed:
		close(goOn)
		t.Fatalf("Close returned (%v) while a write was in progress", err)
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
	for _, level := range holdfast.Levels()[:3] { // there is one machine
		open = append(open, apply(level))
	}
	if err := d.log.Write(d.log.Appended()); err != nil {
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

// TestMemoryVouchesForMemory: that a Memory commit was acknowledged says nothing of a Process commit before it, for
// which nobody has waited.
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

// TestInspectUsed: of a segment that was the last when a program was killed, only what is in frames is used, also
// when the log has gone on in another one.
func TestInspectUsed(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("/db"); err != nil {
		t.Fatal(err)
	}
	c := testConfig(fsys, "/db")
	c.Manual, c.SyncEvery = true, -1
	used := map[uint32]int64{}
	for range 3 {
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		c.New = false
		write(t, d, 1)
		used[d.log.Current().ID] = d.log.End().Offset
		left := c.FS.(*vfs.Mem).Kill()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		c.FS = left
		in, err := check.Inspect(left, "/db")
		if err != nil || len(in.Damage) > 0 {
			t.Fatal(err, in)
		}
		for _, s := range in.Segments {
			if s.Used != used[s.ID] || s.Bytes <= s.Used {
				t.Errorf("segment %d: %d of %d bytes are used, not %d", s.ID, s.Used, s.Bytes, used[s.ID])
			}
		}
	}
	if len(used) != 3 {
		t.Errorf("%v", used)
	}
}
