// Package workertest is for tests of programs with tasks: a store in memory whose clock the test moves, and which runs
// workers when the test says so, one task after the other, in the test's goroutine.
//
//	tasks := workertest.Open(t, &workers, worker.Options{})
//	signUp(tasks.Store, "ada") // the program's own code
//	if mails := workertest.Pending[Welcome](tasks); len(mails) != 1 || mails[0].Args.To != "ada" {
//		t.Errorf("enqueued: %v", mails)
//	}
//	for _, run := range tasks.Run() {
//		if run.Err != nil {
//			t.Error(run.Err)
//		}
//	}
//	tasks.Advance(time.Hour) // and Run again: retries, schedules and periods are due
//
// What runs with goroutines, contexts that time out and real queues is tested by a Runner in a bubble of
// testing/synctest.
package workertest

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// Tasks is a store for one test, which is closed when that ends. Whatever fails in the store itself fails the test.
type Tasks struct {
	*task.Store
	Engine holdfast.Engine // in memory
	DB     *kv.DB          // in which the store is opened: what is written with tasks is read there

	t       testing.TB
	workers *worker.Workers
	o       worker.Options

	mu  sync.Mutex
	now time.Time
}

// Open opens a store whose clock shows the start of 2026, in UTC. Of the options, Queues are those that Run takes tasks
// from if it is not told; none means all that there are.
func Open(t testing.TB, workers *worker.Workers, o worker.Options) *Tasks {
	t.Helper()
	s := &Tasks{Engine: mem.New(), t: t, workers: workers, o: o, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	var err error
	s.DB, err = kv.Open(s.Engine, kv.Options{Level: holdfast.Memory})
	s.check(err)
	s.Store, err = task.Open(s.DB, task.Options{Now: s.Now, Logger: s.o.Logger})
	s.check(err)
	t.Cleanup(func() {
		s.check(s.Store.Close())
		s.check(s.Engine.Close())
	})
	return s
}

func (s *Tasks) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Now returns what the clock shows.
func (s *Tasks) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Advance moves the clock. Periodic tasks whose time has come are enqueued.
func (s *Tasks) Advance(d time.Duration) {
	s.t.Helper()
	s.mu.Lock()
	s.now = s.now.Add(d)
	s.mu.Unlock()
	s.check(s.Tick(context.Background()))
}

// Run is one attempt at a task: what its worker returned, and the task as it is when all that is due has run. Of a task
// that is not kept, it is what was claimed.
type Run struct {
	task.Task
	Err error
}

// maxRuns is how many tasks one call of Run runs at most: more come from a worker that snoozes or retries at once.
const maxRuns = 10_000

// Run runs what is due, and what that enqueues and is due at once, until there is nothing left, and returns it in the
// order of running.
func (s *Tasks) Run(queues ...string) []Run {
	s.t.Helper()
	var runs []Run
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	o := s.o
	o.Middleware = slices.Concat([]worker.Middleware{func(next worker.Handler) worker.Handler {
		return func(ctx context.Context, x *worker.Execution) error {
			runs = append(runs, Run{Task: x.Task})
			if len(runs) == maxRuns {
				stop()
			}
			err := next(ctx, x)
			runs[len(runs)-1].Err = err
			return err
		}
	}}, o.Middleware)
	if len(queues) > 0 {
		o.Queues = queues
	}
	for {
		if len(queues) == 0 && len(s.o.Queues) == 0 {
			infos, err := s.Queues(ctx)
			s.check(err)
			o.Queues = nil
			for _, q := range infos {
				o.Queues = append(o.Queues, q.Name)
			}
		}
		r, err := worker.New(s.Store, s.workers, o)
		s.check(err)
		n, err := r.RunDue(ctx)
		if ctx.Err() != nil {
			s.t.Fatalf("%d tasks were run, and more are due: does a worker snooze or retry without a pause?", maxRuns)
		}
		s.check(err)
		if n == 0 { // nor in queues that have come into being
			break
		}
	}
	for i := range runs {
		if now, err := s.Get(ctx, runs[i].ID); err == nil {
			runs[i].Task = now
		}
	}
	return runs
}

// Enqueued is a task with its arguments.
type Enqueued[A worker.Args] struct {
	task.Task
	Args A
}

// Pending returns the tasks of the kind of A that are not finished, in the order in which they were enqueued.
func Pending[A worker.Args](s *Tasks) []Enqueued[A] {
	s.t.Helper()
	var found []Enqueued[A]
	var zero A
	for f := (task.Filter{}); ; {
		list, next, err := s.List(context.Background(), f)
		s.check(err)
		for _, t := range list {
			if t.State.Finished() || t.Kind != zero.Kind() {
				continue
			}
			args, err := worker.Decode[A](t)
			s.check(err)
			found = append(found, Enqueued[A]{t, args})
		}
		if f.Cursor = next; next == "" {
			break
		}
	}
	slices.SortStableFunc(found, func(a, b Enqueued[A]) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID) // the store's ids are in order
	})
	return found
}
