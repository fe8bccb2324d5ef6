package simulate

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/night"
)

var (
	oneSeed = flag.Uint64("simulate.seed", 0, "run the history of this seed only, and tell its steps")
	runFor  = flag.Duration("simulate.for", 0, "run histories of fresh seeds for this long; default: some fixed seeds")
)

// tell runs a history and logs what it does.
func tell(t *testing.T, seed uint64) {
	s, err := run(context.Background(), seed, mannerOf(seed), nil, func(step int, what string) {
		t.Logf("%4d %s", step, what)
	})
	t.Logf("%+v", s)
	if err != nil {
		t.Fatal(err)
	}
}

// TestHistories runs histories of fixed seeds, or of fresh ones for as long as it is told. .ci/run simulates for 10 s,
// too.
func TestHistories(t *testing.T) {
	if *oneSeed != 0 {
		tell(t, *oneSeed)
		return
	}
	first := firstSeed()
	t.Logf("from seed %d on; -simulate.seed=N repeats one", first)
	var all Stats
	var mu sync.Mutex
	var n, bad atomic.Int64
	began := time.Now()
	inParallel(func() bool {
		s, err := Run(context.Background(), first+uint64(n.Add(1))-1)
		mu.Lock()
		defer mu.Unlock()
		all.Add(s)
		if err != nil {
			t.Error(err)
			bad.Add(1)
		}
		return bad.Load() < 20 && more(int(n.Load()), night.Or(300, 40), began)
	})
	t.Logf("%d histories in %v: %+v", n.Load(), time.Since(began), all)
	if all.Cuts == 0 || all.Kills == 0 || all.Halts == 0 || all.Doubles == 0 || all.Poisons == 0 || all.Refusals == 0 ||
		all.Compactions == 0 || all.Checkpoints == 0 {
		t.Errorf("some things never happened: %+v", all)
	}
}

// TestFound runs histories that have found something: a flush in the middle of replay that took the number of a lost
// segment, and a read after dropped caches that the engine could not have known to fail.
func TestFound(t *testing.T) {
	for _, seed := range []uint64{2751128293, 9259741492920774774, 14074235061890172202, 4886965343732407166} {
		if _, err := Run(context.Background(), seed); err != nil {
			t.Error(err)
		}
	}
}

// firstSeed is 1, or a fresh one if tests are to run for a time.
func firstSeed() uint64 {
	if *runFor > 0 {
		return rand.Uint64()
	}
	return 1
}

// more reports whether more than n histories are to be run, of so many with fixed seeds.
func more(n, fixed int, began time.Time) bool {
	if *runFor > 0 {
		return time.Since(began) < *runFor
	}
	return n < fixed
}

// inParallel calls f on all processors until it returns false.
func inParallel(f func() bool) {
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for f() {
			}
		})
	}
	workers.Wait()
}

// TestSameSeed: a seed is one history, to the last operation on the file system.
func TestSameSeed(t *testing.T) {
	first := firstSeed()
	for seed := first; seed < first+night.Or[uint64](25, 8); seed++ {
		var sums [2]uint64
		var stats [2]Stats
		var lines [2][]string
		for i := range sums {
			h := fnv.New64()
			s, err := run(context.Background(), seed, mannerOf(seed), nil, func(step int, what string) {
				fmt.Fprintln(h, step, what)
				lines[i] = append(lines[i], what)
			})
			if err != nil {
				t.Fatal(err)
			}
			sums[i], stats[i] = h.Sum64(), s
		}
		if sums[0] != sums[1] || stats[0] != stats[1] {
			for i := range lines[0] {
				if i >= len(lines[1]) || lines[0][i] != lines[1][i] {
					t.Errorf("line %d: %s, and then %s", i, lines[0][i], lines[1][min(i, len(lines[1])-1)])
					break
				}
			}
			t.Fatalf("seed %d: two runs differ: %+v, %+v", seed, stats[0], stats[1])
		}
	}
}

func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, 1); err != context.Canceled {
		t.Fatalf("with a context that is done: %v", err)
	}
}
