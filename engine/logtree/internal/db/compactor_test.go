package db

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestRangeDeleteIsGarbage: what a range delete has cut off tables counts as garbage, also if it covers none of them as
// a whole.
func TestRangeDeleteIsGarbage(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
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
	x.d.compactor.tidy(true)
	x.work()
	if left := x.count(); left == 0 || left > n/50 {
		t.Fatalf("%d keys are left: this tests nothing", left)
	}
	if used := x.d.Inspect().Used(); used > n*208/8 {
		t.Errorf("%d bytes of log are kept for %d keys", used, x.count())
	}
}

// TestDeletesGiveBack: what was deleted gives its space back though nothing else is written: by a range, key by key,
// and in the memtable; while the database is open, and when it is closed at once.
func TestDeletesGiveBack(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
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
		for _, memory := range []int64{4 << 20, 128 << 20} { // most is in tables, all is in the memtable
			for _, closed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d MiB, closed %v", name, memory>>20, closed), func(t *testing.T) {
					x := newDrive(t, memory)
					if _, err := x.each(n, func(b *holdfast.Batch, i int) {
						b.Set(fmt.Appendf(nil, "key %08d", i),
							value)
					}); err != nil {
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
							x.d.compactor.tidy(true)
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
	if _, err := x.each(8_000, func(b *holdfast.Batch, i int) {
		b.Set(fmt.Appendf(nil, "key %08d", i),
			value)
	}); err != nil {
		t.Fatal(err)
	}
	x.d.rotate()
	x.work()
	var b holdfast.Batch
	b.DeleteRange(nil, nil)
	if err := commit(x.d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	if x.d.Inspect().Waiting == 0 {
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

// TestTidyComesByItself: nobody has to write or close for the space of what was deleted to come back, whether it was
// in a memtable or in tables.
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
	defer d.Close()
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
	testkit.Until(t, "most of the space back", func() bool { return fsys.Used() <= 2<<20 })
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPaceIsShared: writers that are slowed down get one rate together, however many they are. Each once got its own.
func TestPaceIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 64 << 20
		d := &DB{watch: newWatch(testConfig(vfs.NewMem(), "db").Logger)}
		d.compactor.d = d
		d.compactor.stall.Store(&policy.Stall{Base: 1, Half: 500, Width: 1000, Rate: rate})
		d.log = testLog(501)
		const writers, each = 64, 128 << 10
		start := time.Now()
		var all sync.WaitGroup
		for range writers {
			all.Go(func() {
				for range each / (4 << 10) {
					d.compactor.pace(4 << 10)
				}
			})
		}
		all.Wait()
		want := float64(writers*each) / rate
		if took := time.Since(start).Seconds(); took < 0.99*want || took > 1.01*want {
			t.Errorf("%d bytes in %.3f s, not in %.3f", writers*each, took, want)
		}
	})
}

// testLog is a log of that many bytes.
func testLog(bytes uint64) *wal.Log {
	l := wal.New(wal.Config{OnFail: func(error) {}})
	l.Durable(bytes)
	return l
}

// TestLastStop: where writers have to stop, they wait until compactions have caught up, or have nothing to do.
func TestLastStop(t *testing.T) {
	d := &DB{watch: newWatch(testConfig(vfs.NewMem(), "db").Logger), compactions: make(chan struct{}, 1)}
	d.mu.changed.L, d.compactor.d = &d.mu, d
	stallFrom := func(base uint64) {
		d.compactor.stall.Store(&policy.Stall{Base: base, Half: 500, Width: 1000, Rate: 64 << 20})
	}
	for name, release := range map[string]func(){
		"less garbage":       func() { stallFrom(5000) },
		"nothing to compact": func() { d.compactor.mu.busy = false },
		"a failed engine":    func() { d.log.Fail(syscall.EIO) },
	} {
		d.log = testLog(5000)
		stallFrom(1)
		d.compactor.mu.busy = true
		through := make(chan struct{})
		go func() {
			d.compactor.pace(1)
			close(through)
		}()
		<-d.compactions // it is about to wait
		select {
		case <-through:
			t.Errorf("%s: a writer did not wait", name)
		default:
		}
		d.mu.Lock()
		release()
		d.mu.changed.Broadcast()
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
	for _, s := range x.d.Inspect().Alive {
		if s.Moved {
			t.Errorf("segment %d holds %d bytes that were moved", s.ID, s.Used)
		}
	}
}
