package task_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/task"
)

// waiting is claims that wait, each for one task.
type waiting struct {
	s    *task.Store
	mu   sync.Mutex
	got  []task.Lease // in the order in which they came
	errs []error
}

// wait begins n claims of queues.
func (w *waiting) wait(ctx context.Context, n int, queues ...string) {
	for range n {
		go func() {
			leases, err := w.s.Claim(ctx, task.ClaimOptions{Queues: queues, Wait: true})
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.got = append(w.got, leases...); err != nil {
				w.errs = append(w.errs, err)
			}
		}()
	}
	synctest.Wait()
}

// want checks that so many claims have returned in all.
func (w *waiting) want(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.got) != n || len(w.errs) > 0 {
		t.Fatalf("%d claims have returned, want %d: %v", len(w.got), n, w.errs)
	}
}

// TestWaiting: each task wakes one of those who wait, when it can be claimed, whatever that hung on.
func TestWaiting(t *testing.T) {
	const other = "other"
	for name, test := range map[string]struct {
		limits task.QueueOptions
		before []task.Spec                             // which can be claimed at once
		specs  []task.Spec                             // which cannot yet
		wake   func(s *task.Store, l task.Lease) error // of the first of before
		later  time.Duration                           // or when so much time has passed
		woken  int
	}{
		"enqueued": {woken: 2, wake: func(s *task.Store, _ task.Lease) error {
			_, err := s.Enqueue(ctx, task.Spec{Kind: "k"}, task.Spec{Kind: "k"})
			return err
		}},
		"due": {woken: 2, specs: []task.Spec{{Kind: "k", Delay: time.Hour}, {Kind: "k", Delay: time.Hour}},
			later: time.Hour},
		"due one": {woken: 1, specs: []task.Spec{{Kind: "k", Delay: time.Hour}, {Kind: "k", Delay: 2 * time.Hour}},
			later: time.Hour},
		"lease ran": {woken: 1, before: []task.Spec{{Kind: "k"}}, later: task.DefaultLease},
		"concurrency": {woken: 1, limits: task.QueueOptions{Concurrency: 1}, before: []task.Spec{{Kind: "k"}},
			specs: []task.Spec{{Kind: "k"}, {Kind: "k"}}, wake: complete},
		"concurrency of a key": {woken: 1, limits: task.QueueOptions{KeyConcurrency: 1}, before: []task.Spec{{Kind: "k",
			Key: "k"}},
			specs: []task.Spec{{Kind: "k", Key: "k"}, {Kind: "k", Key: "k"}}, wake: complete},
		"rate": {woken: 1, limits: task.QueueOptions{Rate: task.Rate{N: 1, Per: 10 * time.Second}},
			before: []task.Spec{{Kind: "k"}},
			specs:  []task.Spec{{Kind: "k"}, {Kind: "k"}}, later: 10 * time.Second},
		"rate of a key": {woken: 1, limits: task.QueueOptions{KeyRate: task.Rate{N: 1, Per: 10 * time.Second}},
			before: []task.Spec{{Kind: "k", Key: "k"}}, specs: []task.Spec{{Kind: "k", Key: "k"}, {Kind: "k", Key: "k"}},
			later: 10 * time.Second},
		"higher limits": {woken: 2, limits: task.QueueOptions{Concurrency: 1}, before: []task.Spec{{Kind: "k"}},
			specs: []task.Spec{{Kind: "k"}, {Kind: "k"}, {Kind: "k"}},
			wake: func(s *task.Store, _ task.Lease) error {
				return s.SetQueue(ctx, task.DefaultQueue, task.QueueOptions{Concurrency: 3})
			}},
		"sequence": {woken: 1, before: []task.Spec{{Kind: "k", Sequence: "s"}}, specs: []task.Spec{{Kind: "k",
			Sequence: "s"}, {Kind: "k", Sequence: "s"}},
			wake: complete},
		"failed": {woken: 1, before: []task.Spec{{Kind: "k"}}, later: time.Second, wake: func(s *task.Store,
			l task.Lease) error {
			return s.Fail(ctx, l, task.Failure{}, task.FailOptions{RetryIn: time.Second})
		}},
		"retried": {woken: 1, before: []task.Spec{{Kind: "k"}}, wake: func(s *task.Store, l task.Lease) error {
			if err := s.Fail(ctx, l, task.Failure{}, task.FailOptions{Dead: true}); err != nil {
				return err
			}
			return s.Retry(ctx, l.Task.ID)
		}},
		"dependency": {woken: 2, before: []task.Spec{{Kind: "k", ID: "p"}},
			specs: []task.Spec{{Kind: "k", After: []string{"p"}}, {Kind: "k", After: []string{"p"}}}, wake: complete},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t, mem.New(), task.Options{Level: holdfast.Memory})
				defer closeStore(t, s)
				if err := s.SetQueue(ctx, task.DefaultQueue, test.limits); err != nil {
					t.Fatal(err)
				}
				var first task.Lease
				if len(test.before) > 0 {
					enqueue(t, s, test.before...)
					first = claim(t, s, task.ClaimOptions{})[0]
				}
				if len(test.specs) > 0 {
					enqueue(t, s, test.specs...)
				}
				w := &waiting{s: s}
				waiters, cancel := context.WithCancel(ctx)
				w.wait(waiters, 10, other, task.DefaultQueue)
				w.want(t, 0)
				if test.wake != nil {
					if err := test.wake(s, first); err != nil {
						t.Fatal(err)
					}
				}
				if test.later > 0 {
					time.Sleep(test.later - 1)
					w.want(t, 0)
					time.Sleep(time.Nanosecond)
				}
				w.want(t, test.woken)
				cancel()
				synctest.Wait()
				if len(w.errs) != 10-test.woken {
					t.Errorf("%d claims have ended: %v", len(w.errs), w.errs)
				}
				for _, err := range w.errs {
					storetest.WantError(t, err, context.Canceled)
				}
			})
		})
	}
}

func complete(s *task.Store, l task.Lease) error { return s.Complete(ctx, l) }

// TestWaitingPaused: nobody is given a task of a paused queue, and none is forgotten when it is resumed.
func TestWaitingPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mem.New()
		s := openStore(t, eng, task.Options{Level: holdfast.Memory})
		if err := s.Pause(ctx, "q"); err != nil {
			t.Fatal(err)
		}
		enqueue(t, s, task.Spec{Kind: "k", Queue: "q"}, task.Spec{Kind: "k", Queue: "q", Delay: time.Minute})
		closeStore(t, s)
		s = openStore(t, eng, task.Options{Level: holdfast.Memory})
		defer closeStore(t, s)
		w := &waiting{s: s}
		w.wait(ctx, 2, "q")
		time.Sleep(time.Hour)
		w.want(t, 0)
		if err := s.Resume(ctx, "q"); err != nil {
			t.Fatal(err)
		}
		w.want(t, 2)
	})
}

// TestWaitingEnds: claims that wait end with the store, and with its engine.
func TestWaitingEnds(t *testing.T) {
	for _, class := range []error{holdfast.ErrClosed, holdfast.ErrPoisoned} {
		synctest.Test(t, func(t *testing.T) {
			eng := storetest.NewFakeEngine()
			s := openStore(t, eng, task.Options{Level: holdfast.Memory})
			w := &waiting{s: s}
			w.wait(ctx, 5, task.DefaultQueue)
			if class == holdfast.ErrClosed {
				closeStore(t, s)
			} else {
				eng.Hold()
				failed := storetest.Async(func() error {
					_, err := s.Enqueue(ctx, task.Spec{Kind: "k",
						Queue: "another"})
					return err
				})
				synctest.Wait()
				eng.Locked(func() { eng.Fail = errors.New("made to fail") })
				storetest.Finished(t, holdfast.ErrPoisoned, failed)
			}
			if synctest.Wait(); len(w.errs) != 5 {
				t.Errorf("%d claims have ended: %v", len(w.errs), w.errs)
			}
			for _, err := range w.errs {
				storetest.WantError(t, err, class)
			}
			_ = s.Close()
		})
	}
}

// TestWaitingEndsAlone: claims that wait learn at once that the engine has ended, though nobody calls anything.
func TestWaitingEndsAlone(t *testing.T) {
	for want, end := range map[error]func(eng *storetest.FakeEngine){
		holdfast.ErrClosed: func(eng *storetest.FakeEngine) {
			if err := eng.Close(); err != nil {
				t.Error(err)
			}
		},
		holdfast.ErrPoisoned: func(eng *storetest.FakeEngine) {
			eng.Locked(func() { eng.Fail = errors.New("made to fail") })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			eng := storetest.NewFakeEngine()
			s := openStore(t, eng, task.Options{Level: holdfast.Memory})
			w := &waiting{s: s}
			w.wait(ctx, 5, task.DefaultQueue)
			time.Sleep(time.Minute)
			begun := time.Now()
			end(eng)
			if synctest.Wait(); len(w.errs) != 5 || time.Since(begun) > 0 {
				t.Errorf("%d claims have ended after %v: %v", len(w.errs), time.Since(begun), w.errs)
			}
			for _, err := range w.errs {
				storetest.WantError(t, err, want)
			}
			_ = s.Close()
		})
	}
}

// TestWaitingWhileFull: what the engine refuses wakes nobody for nothing, and nobody waits for ever once there is room.
func TestWaitingWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := storetest.NewFakeEngine()
		s := openStore(t, eng, task.Options{Level: holdfast.Memory, Logger: quiet})
		defer closeStore(t, s)
		enqueue(t, s, task.Spec{Kind: "k", Delay: time.Minute})
		w := &waiting{s: s}
		w.wait(ctx, 2, task.DefaultQueue)
		eng.Locked(func() { eng.Refuse, eng.Spare = holdfast.ErrFull, 0 })
		_, err := s.Enqueue(ctx, task.Spec{Kind: "k"})
		storetest.WantError(t, err, holdfast.ErrFull)
		time.Sleep(time.Hour) // the first task is due
		w.want(t, 0)
		eng.Locked(func() { eng.Refuse = nil })
		time.Sleep(time.Minute)
		if synctest.Wait(); len(w.got)+len(w.errs) == 0 {
			t.Fatal("nobody is given the task")
		}
		for _, err := range w.errs {
			storetest.WantError(t, err, holdfast.ErrFull)
		}
		if len(w.got) == 0 {
			if leases := claim(t, s, task.ClaimOptions{}); len(leases) != 1 {
				t.Fatalf("%+v", leases)
			}
		}
		enqueue(t, s, task.Spec{Kind: "k"}, task.Spec{Kind: "k"})
		synctest.Wait()
		if len(w.got)+len(w.errs) != 2 {
			t.Errorf("%d claims returned tasks, %d ended: one waits for ever", len(w.got), len(w.errs))
		}
	})
}

// TestWokenByAnother: who is woken by a task of one queue and takes one of another wakes the next in its place.
func TestWokenByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, mem.New(), task.Options{Level: holdfast.Memory})
		defer closeStore(t, s)
		w := &waiting{s: s}
		w.wait(ctx, 1, "a", "b")
		w.wait(ctx, 1, "b")
		enqueue(t, s, task.Spec{Kind: "k", Queue: "b"}, task.Spec{Kind: "k", Queue: "a"})
		w.want(t, 2)
	})
}
