package task_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestConformance: on every engine at every level that it gives, concurrent workers lose no task, complete none twice,
// and hold none under two valid leases; also when the store is closed while they work, and it and the engine are opened
// again.
func TestConformance(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *target) {
		e := newEvidence(newClock())
		for round := range 2 {
			s := openStore(t, tg.Engine, e.clock.options(tg.Level))
			limits := task.QueueOptions{Concurrency: 4, KeyConcurrency: 2, Rate: task.Rate{N: 40, Per: time.Minute}}
			if err := s.SetQueue(ctx, someQueues[round], limits); err != nil {
				t.Fatal(err)
			}
			var group sync.WaitGroup
			for i := range 4 {
				w := &worker{evidence: e, Rand: rand.New(rand.NewPCG(uint64(round), uint64(i))), s: s,
					name: fmt.Sprintf("w%d-%d", round, i)}
				n := 60
				beside := round == 0 && i > 0
				if beside {
					n = 1000 // or until the store is closed
				}
				group.Go(func() {
					if err := w.work(n); err != nil && !(beside && errors.Is(err, holdfast.ErrClosed)) {
						t.Error(err)
					}
					if round == 0 && i == 0 {
						if err := s.Close(); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			if round == 1 {
				closeStore(t, s)
			}
			tg.Reopen(t)
			s = openStore(t, tg.Engine, e.clock.options(tg.Level))
			if err := e.check(s, tg.Engine); err != nil {
				t.Fatal(err)
			}
			if round == 1 {
				if err := e.drain(s); err != nil {
					t.Fatal(err)
				}
				if err := e.check(s, tg.Engine); err != nil {
					t.Fatal(err)
				}
			}
			closeStore(t, s)
		}
		if c := e.count; c.enqueued < 50 || c.claimed < 50 || c.completed < 20 {
			t.Errorf("%+v: too little was tested", c)
		}
	})
}

// TestWorkersWhileUnsettled: the same where batches are durable, and shown, one by one and later than they are applied,
// and where some are refused.
func TestWorkersWhileUnsettled(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, eng *storetest.FakeEngine) {
		e := newEvidence(newClock())
		s := openStore(t, eng, e.clock.options(holdfast.Memory))
		eng.Hold()
		var done atomic.Bool
		var settling, group sync.WaitGroup
		settling.Go(func() {
			for n := 0; !done.Load(); n++ {
				eng.Locked(func() {
					if eng.Settled < eng.Applied {
						eng.Settle()
					}
					if eng.Refuse = nil; n%7 == 0 {
						eng.Refuse, eng.Spare = holdfast.ErrFull, 0
					}
				})
				runtime.Gosched()
			}
		})
		for i := range 4 {
			w := &worker{evidence: e, Rand: rand.New(rand.NewPCG(5, uint64(i))), s: s, name: fmt.Sprint("w", i), full: true}
			group.Go(func() {
				if err := w.work(200); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		done.Store(true)
		settling.Wait()
		eng.Locked(func() { eng.Refuse = nil })
		eng.Release(-1)
		closeStore(t, s)
		s = openStore(t, eng, e.clock.options(holdfast.Memory))
		for _, err := range []error{e.check(s, eng), e.drain(s), e.check(s, eng)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
	})
}

func closeStore(t testing.TB, s *task.Store) {
	t.Helper()
	storetest.Close(t, s)
}
