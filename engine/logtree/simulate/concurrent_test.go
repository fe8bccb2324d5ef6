package simulate

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestConcurrent crashes databases with several writers and all background work on goroutines of their own:
// flushes meet merges there, which a history of one goroutine cannot bring about. It does not follow from its
// seed alone.
func TestConcurrent(t *testing.T) {
	first, n, crashes := firstSeed(), 0, 0
	for began := time.Now(); n == 0 || more(n, 20, began); n++ {
		crashes += concurrent(t, first+uint64(n))
		if t.Failed() {
			break
		}
	}
	t.Logf("%d databases from seed %d on, %d crashes", n, first, crashes)
}

// concurrent runs one database through some crashes, and returns how many there were.
func concurrent(t *testing.T, seed uint64) (crashes int) {
	rnd := rand.New(rand.NewPCG(seed, 2))
	made := newTraffic(rnd)
	pick := func(list ...int64) int64 { return list[rnd.IntN(len(list))] }
	c := db.Config{Dir: "/", New: true, ID: [16]byte{9}, Memory: 64 << 10, SyncEvery: time.Millisecond, Logger: discard,
		Sizes: db.Sizes{
			Memtable: pick(1, 136<<10, 144<<10), Segment: pick(600, 2<<10, 16<<10), Table: pick(1<<10, 16<<10)}}
	on := vfs.NewMem()
	on.SetMapping(rnd.IntN(2) == 0)
	defer func() { on.Unmap() }()
	var l ledger
	for generation := range 4 {
		c.FS = on
		d, err := db.Open(c)
		if err != nil {
			t.Errorf("seed %d: opening generation %d: %v", seed, generation, err)
			return crashes
		}
		c.New = false
		found, err := commits.Contents(d, holdfast.Range{})
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			return crashes
		}
		if err := l.settle(found, holdfast.Process); err != nil {
			t.Errorf("seed %d, generation %d: %v", seed, generation, err)
			return crashes
		}
		on.HaltAfter(20 + rnd.Int64N(400))
		write(t, seed, d, &l, made)
		on.Halt()
		if err := d.Close(); err == nil {
			t.Errorf("seed %d: Close without power succeeds", seed)
		}
		crashes++
		on.Unmap()
		if rnd.IntN(2) == 0 {
			on = on.Kill()
			continue
		}
		l.acked.Crash(holdfast.Power)
		on = on.Crash(rnd)
	}
	return crashes
}

// write commits from several goroutines until the power goes.
func write(t *testing.T, seed uint64, d *db.DB, l *ledger, made *traffic) {
	var mu sync.Mutex // order, and the ledger
	var writers sync.WaitGroup
	for w := range 3 {
		rnd := rand.New(rand.NewPCG(seed, uint64(w)))
		writers.Go(func() {
			var b holdfast.Batch
			for range 400 {
				level := holdfast.Levels()[rnd.IntN(3)]
				mu.Lock()
				list := made.batch()
				encode(&b, list)
				r, err := d.Apply(&b, level)
				if err == nil {
					l.apply(list)
				}
				upto := l.last()
				mu.Unlock()
				if err == nil && rnd.IntN(3) > 0 {
					if err = r.Wait(); err == nil {
						mu.Lock()
						l.acked.Add(upto, level)
						mu.Unlock()
					}
				}
				if err != nil {
					if !errors.Is(err, holdfast.ErrPoisoned) && !errors.Is(err, vfs.ErrHalted) {
						t.Errorf("seed %d: %v", seed, err)
					}
					return
				}
			}
		})
	}
	writers.Wait()
}
