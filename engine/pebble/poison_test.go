package pebble

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

// Whatever write or sync fails first, at whatever level writers wait, under rotation,
// flushes and merges: nothing hangs or ends the process, every waiter is told the
// cause, reads go on, Close returns, and reopening finds a prefix with everything that was
// acknowledged, also after a power cut at the moment of the failure.
func TestPoison(t *testing.T) {
	places := []struct{ op, suffix string }{
		{"write", ".log"}, {"sync", ".log"},
		{"write", ".sst"}, {"sync", ".sst"},
		{"write", "MANIFEST"}, {"sync", "MANIFEST"},
		{"sync", "data"}, // the directory
	}
	for i, place := range places {
		for after := range int64(3) {
			t.Run(fmt.Sprintf("%s %s %d", place.op, place.suffix, after), func(t *testing.T) {
				poisonRound(t, place.op, place.suffix, 3*after+int64(i%2))
			})
		}
	}
}

func poisonRound(t *testing.T, op, place string, after int64) {
	mem := vfs.NewCrashableMem()
	var armed atomic.Bool
	var left atomic.Int64
	left.Store(after)
	// A full disk stays full.
	fault := func(path string) error {
		if !armed.Load() || !strings.Contains(path, place) || place == "data" && path != "data" || left.Add(-1) >= 0 {
			return nil
		}
		return syscall.ENOSPC
	}
	fs := &observedFS{FS: mem}
	if op == "write" {
		fs.write = fault
	} else {
		fs.sync = fault
	}
	e := startOn(t, fs, holdfast.Options{SyncEvery: -1, MemoryBytes: 1 << 20})
	armed.Store(true)

	var order sync.Mutex
	var next, process, power uint64
	var mu sync.Mutex
	var writers sync.WaitGroup
	for w := range 6 {
		level := holdfast.Levels()[w%3]
		writers.Go(func() {
			var b holdfast.Batch
			for i := 0; ; i++ {
				order.Lock()
				n := next + 1
				r, err := e.Apply(numbered(&b, n, 5000), level)
				if err == nil {
					next = n
				}
				order.Unlock()
				if err == nil {
					err = r.Wait()
				}
				if err == nil {
					mu.Lock()
					if level >= holdfast.Process {
						process = max(process, n)
					}
					if level == holdfast.Power {
						power = max(power, n)
					}
					mu.Unlock()
					continue
				}
				if !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("the error is not a poison with its cause: %v", err)
				}
				if again := r.Wait(); level != holdfast.Memory && again == nil && err == nil {
					t.Error("a second Wait returned another result")
				}
				return
			}
		})
	}
	writers.Wait()
	if e.Metrics().Poison == nil || e.Metrics().Syncs == 0 {
		t.Errorf("metrics: %+v", e.Metrics())
	}
	if n, err := count(e); err != nil || n != next {
		t.Errorf("reads after the failure: %d keys, want %d: %v", n, next, err)
	}
	snap, err := e.Snapshot()
	try(t, err)
	if _, err := snap.Get(nil, numberedKey(1)); err != nil {
		t.Errorf("a snapshot after the failure: %v", err)
	}
	if err := snap.Close(); err != nil {
		t.Error(err)
	}
	if err := e.Sync(); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Errorf("Sync: %v", err)
	}
	cut := mem.CrashClone(vfs.CrashCloneCfg{})
	if err := e.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v", err)
	}
	o, _ := never.WithDefaults()
	for _, image := range []struct {
		what  string
		fs    vfs.FS
		least uint64
	}{{"after reopening", mem, process}, {"after a power cut", cut, power}} {
		again, err := start(image.fs, "data", here, o)
		if err != nil {
			t.Fatalf("%s: %v", image.what, err)
		}
		n, err := count(again)
		if err != nil || n < image.least || n > next {
			t.Errorf("%s: %d commits, acknowledged %d, applied %d: %v", image.what, n, image.least, next, err)
		}
		commit(t, again, n+1, holdfast.Power)
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A disk that fills while the database is being opened or made is an error of Open, and no
// harm is done.
func TestOpenOnFullDisk(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o, _ := never.WithDefaults()
	for room := int64(0); ; room++ {
		var left atomic.Int64
		left.Store(room)
		fault := func(string) error {
			if left.Add(-1) < 0 {
				return syscall.ENOSPC
			}
			return nil
		}
		e, err := start(&observedFS{FS: mem, write: fault, sync: fault}, "data", here, o)
		if err == nil {
			if room < 10 {
				t.Errorf("opened after %d writes: the test covers nothing", room)
			}
			_ = e.Close()
			break
		}
		if !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, holdfast.ErrFull) || errors.Is(err, holdfast.ErrCorrupt) {
			t.Fatalf("room for %d writes: %v", room, err)
		}
	}
	e := startOn(t, mem, never)
	commit(t, e, 1, holdfast.Power)
}

// When a database is full of what a killed process left in its log, a disk without room
// fails Open and keeps every commit.
func TestReplayOnFullDisk(t *testing.T) {
	mem := vfs.NewCrashableMem()
	e := startOn(t, mem, never)
	for n := uint64(1); n <= 100; n++ {
		commit(t, e, n, holdfast.Process)
	}
	left := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: seeded(1)})
	o, _ := never.WithDefaults()
	for _, place := range []string{".sst", "MANIFEST", ".log", "OPTIONS", ".dbtmp", "marker"} {
		fault := func(path string) error {
			if strings.Contains(path, place) {
				return syscall.ENOSPC
			}
			return nil
		}
		if again, err := start(&observedFS{FS: left, write: fault, sync: fault}, "data", here, o); err == nil {
			if err := again.Close(); place != "OPTIONS" {
				t.Errorf("opened with no room for %s (%v)", place, err)
			}
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("no room for %s: %v", place, err)
		}
	}
	again := startOn(t, left, never)
	if n, err := count(again); n != 100 || err != nil {
		t.Errorf("%d commits are left of 100: %v", n, err)
	}
}

// Once the disk is frozen, merging stops, because it would fill memory, but for a writer
// that waits for it; and when the database closes.
func TestFrozenCompactions(t *testing.T) {
	d := newDisk(vfs.NewMem(), "data", here)
	d.enter(serving)
	d.fail("write", "data/000001.log", syscall.ENOSPC)
	created := make(chan error)
	create := func() {
		f, err := d.Create("data/000002.sst", categoryCompaction)
		if err == nil {
			_, err = f.Write([]byte("x"))
		}
		created <- err
	}
	go create()
	select {
	case err := <-created:
		t.Fatalf("a merge went on: %v", err)
	default:
	}
	d.stall(1)
	if err := <-created; err != nil {
		t.Errorf("a merge that a writer waits for: %v", err)
	}
	d.stall(-1)
	if st, err := d.Stat("data/000002.sst"); err != nil || st.Size() != 1 {
		t.Errorf("the table in memory: %v", err)
	}
	if _, err := d.FS.Stat("data/000002.sst"); err == nil {
		t.Error("the table is below")
	}
	go create()
	d.enter(closing)
	if err := <-created; !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a merge while closing: %v", err)
	}
}

// What Pebble calls fatal poisons instead of ending the process.
func TestFatal(t *testing.T) {
	e := startOn(t, vfs.NewMem(), never)
	commit(t, e, 1, holdfast.Process)
	o, _ := never.WithDefaults()
	logger{o.Logger, e.disk}.Fatalf("no more: %w", syscall.EIO)
	_, err := e.Apply(numbered(new(holdfast.Batch), 2, 8), holdfast.Memory)
	if !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	if n, err := count(e); n != 1 || err != nil {
		t.Error(n, err)
	}
}
