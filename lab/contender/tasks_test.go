package contender

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/task"
)

// openTasks opens a queue in dir and makes it ready for that many claims, none if that is 0.
func openTasks(t *testing.T, peer all.Entry, dir string, level holdfast.Level, claims int) TasksEngine {
	t.Helper()
	e, err := peer.Open(dir, holdfast.Options{Level: level})
	if err != nil {
		t.Fatal(err)
	}
	q := e.(TasksEngine)
	if claims > 0 {
		err = q.Work(claims)
	}
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func taskArgs(n int) []byte { return fmt.Appendf(nil, `{"n":%d}`, n) }

func mustEnqueue(t *testing.T, q Tasks, specs ...TaskSpec) []string {
	t.Helper()
	ids, err := q.Enqueue(t.Context(), specs...)
	if err != nil || len(ids) != len(specs) {
		t.Fatalf("%d ids of %d tasks, %v", len(ids), len(specs), err)
	}
	return ids
}

// expectTasks compares the tasks that are there with lines of arguments, output and state. What is claimed may be
// waiting again.
func expectTasks(t *testing.T, q Tasks, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	err := q.List(t.Context(), func(k Task) error {
		if _, twice := got[k.ID]; twice {
			t.Errorf("task %s is listed twice", k.ID)
		}
		if k.State == task.Running {
			k.State = task.Waiting
		}
		got[k.ID] = fmt.Sprintf("%s %q %v", k.Args, k.Output, k.State)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, line := range want {
		if got[id] != line {
			t.Errorf("task %s is %q, want %q", id, got[id], line)
		}
		delete(got, id)
	}
	for id, line := range got {
		t.Errorf("task %s should not be there: %q", id, line)
	}
}

// TestTasks: many enqueue, claim and complete at a time. Each task is claimed once; what was acknowledged is there
// after a crash and after a close.
func TestTasks(t *testing.T) {
	for _, peer := range TaskEngines() {
		t.Run(peer.Name, func(t *testing.T) {
			const level = holdfast.Process
			if p := peer.Describe().Promise(level); p.Given != level {
				t.Skip(p.Why)
			}
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			dir := filepath.Join(t.TempDir(), "queue")
			const workers = 6
			each := night.Or(12, 4)
			q := openTasks(t, peer, dir, level, workers)
			defer func() { _ = q.Close() }()

			var want, claims sync.Map // of ids
			var all sync.WaitGroup
			for w := range workers {
				all.Go(func() {
					for i := range each {
						spec := TaskSpec{Args: taskArgs(w*each + i), Discard: i%2 == 0}
						more := TaskSpec{Args: taskArgs(-1), Discard: true}
						ids, err := q.Enqueue(t.Context(), spec, more)
						if err != nil || len(ids) != 2 {
							t.Errorf("%q, %v", ids, err)
							return
						}
						want.Store(ids[0], spec)
						want.Store(ids[1], more)
						for range 2 {
							if !work(t, q, &claims, i) {
								return
							}
						}
					}
				})
			}
			all.Wait()
			if t.Failed() {
				t.FailNow()
			}
			kept, n := map[string]string{}, 0
			claims.Range(func(id, claimed any) bool {
				spec, ok := want.Load(id)
				if !ok || string(spec.(TaskSpec).Args) != claimed.(string) {
					t.Errorf("task %s was claimed with %s: enqueued %v, %v", id, claimed, ok, spec)
				} else if !spec.(TaskSpec).Discard {
					kept[id.(string)] = fmt.Sprintf("%s %q %v", claimed, "output of "+id.(string), task.Completed)
				}
				n++
				return true
			})
			if n != 2*workers*each || len(kept) != workers*each/2 {
				t.Errorf("%d tasks claimed, %d are kept", n, len(kept))
			}

			t.Run("a claim waits", func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if c, err := q.Claim(ctx); !errors.Is(err, context.Canceled) {
					t.Fatalf("claimed of an empty queue: %+v, %v", c, err)
				}
				claimed := make(chan TaskClaim)
				go func() {
					defer close(claimed)
					c, err := q.Claim(t.Context())
					if err != nil {
						t.Error(err)
					}
					claimed <- c
				}()
				id := mustEnqueue(t, q, TaskSpec{Args: taskArgs(1)})[0]
				c := <-claimed
				if c.ID != id {
					t.Errorf("claimed %s, enqueued %s", c.ID, id)
				}
				for i, want := range []error{nil, task.ErrLeaseLost} {
					if err := q.Complete(t.Context(), c); !errors.Is(err, want) || err != nil && want == nil {
						t.Errorf("completed for time %d: %v", i+1, err)
					}
				}
				kept[id] = fmt.Sprintf("%s %q %v", taskArgs(1), "", task.Completed)
			})

			for n, id := range mustEnqueue(t, q, TaskSpec{Args: taskArgs(0)}, TaskSpec{Args: taskArgs(1)},
				TaskSpec{Args: taskArgs(2)}) {
				kept[id] = fmt.Sprintf("%s %q %v", taskArgs(n), "", task.Waiting)
			}
			c, err := q.Claim(t.Context())
			if err == nil {
				err = q.SetOutput(t.Context(), c, []byte("half done"))
			}
			if err != nil {
				t.Fatal(err)
			}
			kept[c.ID] = fmt.Sprintf("%s %q %v", c.Args, "half done", task.Waiting)

			if server, ok := q.(interface{ kill() }); ok && peer.Name == River {
				awaitCompleted(t, q, len(kept)-3)
				server.kill()
				_ = q.Close()
				q = openTasks(t, peer, dir, level, 0)
			} else {
				awaitCompleted(t, q, len(kept)-3)
				crashed := filepath.Join(t.TempDir(), "crashed")
				if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				again := openTasks(t, peer, crashed, level, 0)
				expectTasks(t, again, kept)
				if err := again.Close(); err != nil {
					t.Error(err)
				}
			}
			expectTasks(t, q, kept)
			if c := q.Capabilities(); c.Promise(level).Given != level || c.Promise(holdfast.Power).Given != 0 {
				t.Errorf("%+v", c)
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := q.Enqueue(t.Context(), TaskSpec{Args: taskArgs(0)}); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("enqueued after Close: %v", err)
			}
			if _, err := q.Claim(t.Context()); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("claimed after Close: %v", err)
			}
			q = openTasks(t, peer, dir, level, 0)
			expectTasks(t, q, kept)
			if _, err := peer.Open(dir, holdfast.Options{Level: level}); !errors.Is(err, holdfast.ErrLocked) {
				t.Errorf("opened twice: %v", err)
			}
			if _, err := q.Get(nil, []byte("key")); !errors.Is(err, holdfast.ErrUnavailable) {
				t.Error(err)
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// work claims a task, sets its output and completes it.
func work(t *testing.T, q Tasks, claims *sync.Map, i int) bool {
	c, err := q.Claim(t.Context())
	if err != nil {
		t.Error(err)
		return false
	}
	if other, twice := claims.LoadOrStore(c.ID, string(c.Args)); twice {
		t.Errorf("task %s was claimed twice: %s", c.ID, other)
	}
	for _, output := range []string{fmt.Sprint("first ", i), "output of " + c.ID} {
		if err == nil {
			err = q.SetOutput(t.Context(), c, []byte(output))
		}
	}
	if err == nil {
		err = q.Complete(t.Context(), c)
	}
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// awaitCompleted waits until that many tasks are completed: River writes that a moment later.
func awaitCompleted(t *testing.T, q Tasks, want int) {
	t.Helper()
	n := 0
	if !testkit.Holds(func() bool {
		n = 0
		err := q.List(t.Context(), func(k Task) error {
			if k.State == task.Completed {
				n++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n == want
	}) {
		t.Fatalf("%d tasks are completed, want %d", n, want)
	}
}
