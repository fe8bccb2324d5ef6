package pebble

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

// A crash at any moment, with any part of what was not synced lost, block by block, leaves
// a prefix of what was applied that has every commit acknowledged at Power and all before
// it; and what a process crash leaves has those acknowledged at Process too. Levels are
// mixed, logs rotate and are used again while tables are flushed and merged. The
// database that is left opens, and goes on, and survives a second crash.
func TestCrash(t *testing.T) {
	for round := range uint64(6) {
		t.Run(fmt.Sprint("seed=", round), func(t *testing.T) { crashRound(t, round) })
	}
}

func crashRound(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	fs := vfs.NewCrashableMem()
	e := startOn(t, fs, holdfast.Options{SyncEvery: -1, MemoryBytes: 1 << 20})

	var order sync.Mutex
	var next uint64
	var power, process atomic.Uint64 // highest acknowledged
	raise := func(to *atomic.Uint64, n uint64) {
		for old := to.Load(); old < n && !to.CompareAndSwap(old, n); old = to.Load() {
		}
	}
	// Few Power commits, so that much is not synced at any moment.
	levels := []holdfast.Level{1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3}
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for range 4 {
		writer := rand.New(rand.NewPCG(random.Uint64(), 2))
		writers.Go(func() {
			var b holdfast.Batch
			for {
				select {
				case <-stop:
					return
				default:
				}
				level := levels[writer.IntN(len(levels))]
				size := 100 + writer.IntN(4000)
				if writer.IntN(200) == 0 {
					size = 600_000 // over half a memtable: Pebble has its own path for these
				}
				order.Lock()
				n := next + 1
				r, err := e.Apply(numbered(&b, n, size), level)
				if err == nil {
					next = n
				}
				order.Unlock()
				if err == nil && writer.IntN(20) == 0 {
					continue // this one is not waited for
				}
				if err == nil {
					err = r.Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
				if level >= holdfast.Process {
					raise(&process, n)
				}
				if level == holdfast.Power {
					raise(&power, n)
				}
			}
		})
	}

	type image struct {
		fs       *vfs.MemFS
		percent  int
		min, max uint64
	}
	var images []image
	for i := range 12 {
		for start := process.Load(); process.Load() < start+40+random.Uint64N(400); {
			if t.Failed() {
				break
			}
		}
		percent := []int{0, 10, 50, 90, 99, 100}[i%6]
		im := image{percent: percent, min: power.Load()}
		if percent == 100 {
			im.min = process.Load()
		}
		im.fs = fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: random})
		order.Lock()
		im.max = next
		order.Unlock()
		images = append(images, im)
	}
	close(stop)
	writers.Wait()
	if m := e.Metrics(); m.Syncs < 10 {
		t.Errorf("only %d syncs: the test does not cover rotation", m.Syncs)
	}

	for i, im := range images {
		where := fmt.Sprintf("image %d, %d%% of what was not synced kept", i, im.percent)
		o, _ := holdfast.Options{SyncEvery: -1, MemoryBytes: 1 << 20}.WithDefaults()
		after, err := start(im.fs, "data", here, o)
		if err != nil {
			t.Fatalf("%s: open: %v", where, err)
		}
		got, err := count(after)
		if err != nil || got < im.min || got > im.max {
			t.Fatalf("%s: %d commits survive, acknowledged were %d, applied %d: %v", where, got, im.min, im.max, err)
		}
		// What was found is durable with the first Power commit after it.
		commit(t, after, got+1, holdfast.Power)
		second := im.fs.CrashClone(vfs.CrashCloneCfg{})
		if err := after.Close(); err != nil {
			t.Fatalf("%s: close: %v", where, err)
		}
		again, err := start(second, "data", here, o)
		if err != nil {
			t.Fatalf("%s: open after the second crash: %v", where, err)
		}
		if n, err := count(again); err != nil || n != got+1 {
			t.Fatalf("%s: after the second crash %d commits are there, want %d: %v", where, n, got+1, err)
		}
		try(t, again.Close())
	}
}

// Sync, the loss window's and the caller's, brings Memory and Process commits to the device.
func TestSyncSavesWeakerCommits(t *testing.T) {
	for _, level := range []holdfast.Level{holdfast.Memory, holdfast.Process} {
		fs := vfs.NewCrashableMem()
		e := startOn(t, fs, never)
		for n := uint64(1); n <= 10; n++ {
			commit(t, e, n, level)
		}
		lost := startOn(t, fs.CrashClone(vfs.CrashCloneCfg{}), never)
		if n, err := count(lost); n != 0 || err != nil {
			t.Errorf("%v: %d commits survive a power cut without a sync, the test proves nothing (%v)", level, n, err)
		}
		try(t, e.Sync())
		kept := startOn(t, fs.CrashClone(vfs.CrashCloneCfg{}), never)
		if n, err := count(kept); n != 10 || err != nil {
			t.Errorf("%v: %d commits survive, want 10 (%v)", level, n, err)
		}
	}
}

// A closed database has nothing left to lose.
func TestCloseSavesAll(t *testing.T) {
	fs := vfs.NewCrashableMem()
	e := startOn(t, fs, never)
	for n := uint64(1); n <= 10; n++ {
		commit(t, e, n, holdfast.Memory)
	}
	try(t, e.Close())
	after := startOn(t, fs.CrashClone(vfs.CrashCloneCfg{}), never)
	if n, err := count(after); n != 10 || err != nil {
		t.Errorf("%d commits survive, want 10 (%v)", n, err)
	}
}
