package task_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// Every method that writes does so at the level of its context.
func TestEveryWriteIsAtItsLevel(t *testing.T) {
	claimed := func(ctx context.Context, s *task.Store) []task.Lease {
		list, err := s.Claim(ctx, task.ClaimOptions{N: 1})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list
	}
	for name, write := range map[string]func(ctx context.Context, s *task.Store) error{
		"Enqueue": func(ctx context.Context, s *task.Store) error {
			_, err := s.Enqueue(ctx, task.Spec{Kind: "k"})
			return err
		},
		"Claim":    func(ctx context.Context, s *task.Store) error { claimed(ctx, s); return nil },
		"Complete": func(ctx context.Context, s *task.Store) error { return s.Complete(ctx, claimed(ctx, s)...) },
		"Fail": func(ctx context.Context, s *task.Store) error {
			return s.Fail(ctx, claimed(ctx, s)[0], task.Failure{}, task.FailOptions{})
		},
		"Cancel":   func(ctx context.Context, s *task.Store) error { return s.Cancel(ctx, "a") },
		"Delete":   func(ctx context.Context, s *task.Store) error { return s.Delete(ctx, "a") },
		"SetQueue": func(ctx context.Context, s *task.Store) error { return s.SetQueue(ctx, "q", task.QueueOptions{}) },
		"AddPeriodic": func(ctx context.Context, s *task.Store) error {
			return s.AddPeriodic(ctx, task.Periodic{Name: "p", Schedule: every(1 << 40), Spec: task.Spec{Kind: "k"}})
		},
		"CompleteThen": func(ctx context.Context, s *task.Store) error {
			_, err := s.CompleteThen(ctx, claimed(ctx, s)[0], task.Spec{Kind: "k"})
			return err
		},
		"a transaction": func(ctx context.Context, s *task.Store) error {
			return s.DB().Update(ctx, func(tx *kv.Tx) error {
				_, err := s.In(tx).Enqueue(task.Spec{Kind: "k"})
				return err
			})
		},
		"a transaction that changes nothing": func(ctx context.Context, s *task.Store) error {
			return s.DB().Update(ctx, func(tx *kv.Tx) error {
				r, err := s.In(tx).Enqueue(task.Spec{Kind: "k", Unique: "u"})
				if err == nil && !r[0].Existing {
					err = errors.New("it was there")
				}
				return err
			})
		},
		"a task that is there": func(ctx context.Context, s *task.Store) error {
			r, err := s.Enqueue(ctx, task.Spec{Kind: "k", Unique: "u"})
			if err == nil && !r[0].Existing {
				err = errors.New("it was not")
			}
			return err
		},
	} {
		for _, level := range holdfast.Levels() {
			if name == "a task that is there" && level == holdfast.Process {
				continue // it is, at the store's level
			}
			eng := storetest.NewLevelEngine()
			s, err := task.Open(on(eng, holdfast.Memory), newClock().options(holdfast.Memory))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Enqueue(ctx, task.Spec{Kind: "k", ID: "a", Unique: "u"}); err != nil {
				t.Fatal(err)
			}
			eng.Applied()
			if err := write(holdfast.WithLevel(ctx, level), s); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			other := func(l holdfast.Level) bool { return l != level }
			// What is there already is safe at the store's level.
			got := eng.Applied()
			if len(got) == 0 && level != holdfast.Memory || slices.ContainsFunc(got, other) {
				t.Errorf("%s at %v applied batches at %v", name, level, got)
			}
			storetest.Close(t, s)
		}
	}
	s, err := task.Open(kv.On(mem.New()), newClock().options(holdfast.Memory))
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	power := holdfast.WithLevel(ctx, holdfast.Power)
	_, err = s.Enqueue(power, task.Spec{Kind: "k"})
	storetest.WantError(t, err, holdfast.ErrLevel)
	_, err = s.Claim(power, task.ClaimOptions{Wait: true})
	storetest.WantError(t, err, holdfast.ErrLevel)
	if list, _, err := s.List(ctx, task.Filter{}); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
}

// A claim at a weaker level does not hand out a task before the device has it, if that is what its enqueuer asked for.
func TestClaimBehindPower(t *testing.T) {
	eng := storetest.NewLevelEngine()
	s, err := task.Open(kv.On(eng), newClock().options(holdfast.Process))
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	eng.Hold()
	power := storetest.Async(func() error {
		_, err := s.Enqueue(holdfast.WithLevel(ctx, holdfast.Power), task.Spec{Kind: "k", ID: "a"})
		return err
	})
	claim := storetest.Async(func() error {
		leases, err := s.Claim(ctx, task.ClaimOptions{Wait: true})
		if err == nil && len(leases) != 1 {
			err = fmt.Errorf("%d leases", len(leases))
		}
		return err
	})
	storetest.Unfinished(t, power, claim)
	eng.Release()
	storetest.Finished(t, nil, power, claim)
}

// TestMixedCrashImages cuts the power under changes at levels of their own, or kills them: what was acknowledged at a
// level that the crash spares is there.
func TestMixedCrashImages(t *testing.T) {
	kept, crashes := 0, 0
	storetest.CrashImages(t, 16, func(seed uint64, spared holdfast.Level) error {
		var mu sync.Mutex
		least := map[string]task.State{} // Waiting: it is there; Completed: so it is
		c := newClock()
		return storetest.CrashImage(seed, spared, func(e holdfast.Engine, r *rand.Rand) error {
			s, err := task.Open(kv.On(e), c.options(holdfast.Process+holdfast.Level(r.IntN(2))))
			if err != nil {
				return err
			}
			note := func(id string, state task.State) {
				mu.Lock()
				defer mu.Unlock()
				least[id] = max(least[id], state)
			}
			errs := make([]error, 3)
			var group sync.WaitGroup
			for w := range errs {
				own := rand.New(rand.NewPCG(seed, r.Uint64()))
				group.Go(func() {
					for errs[w] == nil {
						level := 1 + holdfast.Level(own.IntN(3))
						id := fmt.Sprintf("%d-%x", level, own.Uint64())
						at := holdfast.WithLevel(ctx, level)
						if _, errs[w] = s.Enqueue(at, task.Spec{Kind: "k", ID: id}); errs[w] != nil {
							return
						}
						if level >= spared {
							note(id, task.Waiting)
						}
						level = 1 + holdfast.Level(own.IntN(3))
						at = holdfast.WithLevel(ctx, level)
						var leases []task.Lease
						if leases, errs[w] = s.Claim(at, task.ClaimOptions{N: 1}); errs[w] != nil || len(leases) == 0 {
							continue
						}
						id = leases[0].Task.ID
						if level >= spared || holdfast.Level(id[0]-'0') >= spared {
							note(id, task.Waiting)
						}
						if errs[w] = s.Complete(at, leases...); errs[w] == nil && level >= spared {
							note(id, task.Completed)
						}
					}
				})
			}
			group.Wait()
			return errors.Join(errors.Join(errs...), s.Close())
		}, func(e holdfast.Engine) error {
			s, err := task.Open(kv.On(e), c.options(spared))
			if err != nil {
				return err
			}
			for id, state := range least {
				got, err := s.Get(ctx, id)
				if err != nil || state == task.Completed && got.State != state {
					return fmt.Errorf("task %s is %v, it was %v: %w", id, got.State, state, err)
				}
			}
			kept, crashes = kept+len(least), crashes+1
			return s.Close()
		})
	})
	if kept < 10*crashes {
		t.Errorf("%d tasks in %d crashes: too little was tested", kept, crashes)
	}
}
