package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ctx       = context.Background()
	wantError = storetest.WantError
	quiet     = slog.New(slog.DiscardHandler)
)

type (
	step  struct{ Do string }
	other struct{ N int }
)

func (step) Kind() string  { return "step" }
func (other) Kind() string { return "other" }

type fixture struct {
	*task.Store
	eng holdfast.Engine
	db  *kv.DB
	t   rapid.TB
}

// bubble runs a test in which time passes only when all goroutines wait for it.
func bubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t)
		defer f.close()
		test(t, f)
	})
}

func open(t rapid.TB) *fixture {
	f := &fixture{eng: mem.New(), t: t}
	var err error
	f.db, err = kv.Open(f.eng, kv.Options{Level: holdfast.Memory})
	f.check(err)
	f.Store, err = task.Open(f.db, task.Options{Logger: quiet})
	f.check(err)
	return f
}

func (f *fixture) close() {
	f.t.Helper()
	s, err := f.eng.Snapshot() // a worker that was left behind may just be writing
	f.check(err)
	found, err := task.Examine(s)
	err = errors.Join(err, s.Close())
	for _, e := range found {
		if len(e.Problems) > 0 {
			f.t.Errorf("the store has problems: %q", e.Problems)
		}
	}
	if err := errors.Join(err, f.Store.Close(), f.eng.Close()); err != nil {
		f.t.Error(err)
	}
}

func (f *fixture) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) enqueue(do string, s task.Spec) string {
	f.t.Helper()
	r, err := worker.Enqueue(ctx, f.Store, step{do}, s)
	f.check(err)
	return r.ID
}

func (f *fixture) get(id string) task.Task {
	f.t.Helper()
	got, err := f.Get(ctx, id)
	f.check(err)
	return got
}

func (f *fixture) runner(c worker.Client, ws *worker.Workers, o worker.Options) *worker.Runner {
	f.t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	r, err := worker.New(c, ws, o)
	f.check(err)
	return r
}

// run starts a runner; the function that it returns stops it, and returns what Run does.
func (f *fixture) run(c worker.Client, ws *worker.Workers, o worker.Options) (stop func() error) {
	f.t.Helper()
	r := f.runner(c, ws, o)
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func steps(work worker.Worker[step]) *worker.Workers {
	var ws worker.Workers
	worker.Register(&ws, work)
	return &ws
}

var errFailed = errors.New("it failed")

// TestOutcomes runs a task for each thing that a worker can return or do.
func TestOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var ws worker.Workers
		k := worker.Register(&ws, func(ctx context.Context, t *worker.Task[step]) error {
			switch do, arg, _ := strings.Cut(t.Args.Do, " "); do {
			case "nil":
				return nil
			case "dead":
				return fmt.Errorf("wrapped: %w", worker.Dead(errFailed))
			case "snooze":
				return fmt.Errorf("wrapped: %w", worker.Snooze(time.Hour))
			case "retry":
				return worker.RetryIn(time.Minute, errFailed)
			case "panic":
				panic(errFailed)
			case "goexit":
				runtime.Goexit()
			case "slow":
				<-ctx.Done()
				return ctx.Err()
			case "output":
				outputs := []any{map[string]int{"percent": 2}, []byte("as it is"), json.RawMessage("[1]"), make(chan int)}
				return t.SetOutput(ctx, outputs[len(arg)])
			}
			return errFailed
		})
		k.Timeout = time.Minute
		k.Retry = func(t task.Task, err error) time.Duration {
			if t.Key == "patient" && errors.Is(err, errFailed) {
				return time.Duration(t.Attempt) * 10 * time.Hour
			}
			if t.Key == "panic" {
				panic("in Retry")
			}
			return 0
		}
		worker.Register(&ws, func(context.Context, *worker.Task[other]) error { return nil })

		for _, c := range []struct {
			name string
			spec task.Spec // of the kind step, if it names none
			do   string

			state    task.State
			attempt  int
			min, max time.Duration // until it is due again
			failure  string
			stack    bool
		}{
			{name: "completed", do: "nil", state: task.Completed, attempt: 1},
			{name: `{"percent":2}`, do: "output ", state: task.Completed, attempt: 1},
			{name: "as it is", do: "output x", state: task.Completed, attempt: 1},
			{name: "[1]", do: "output xx", state: task.Completed, attempt: 1},
			{"bad output", task.Spec{}, "output xxx", task.Scheduled, 1, time.Second / 2, time.Second,
				"task output: bad option: chan int: json: unsupported type", false},
			{"failed", task.Spec{}, "fail", task.Scheduled, 1, time.Second / 2, time.Second, "it failed", false},
			{"last", task.Spec{MaxAttempts: 1}, "fail", task.Dead, 1, 0, 0, "it failed", false},
			{"dead", task.Spec{}, "dead", task.Dead, 1, 0, 0, "wrapped: it failed", false},
			{"snoozed", task.Spec{MaxAttempts: 1}, "snooze", task.Scheduled, 0, time.Hour, time.Hour, "", false},
			{"retry", task.Spec{}, "retry", task.Scheduled, 1, time.Minute, time.Minute, "it failed", false},
			{"last retry", task.Spec{MaxAttempts: 1}, "retry", task.Dead, 1, 0, 0, "it failed", false},
			{"policy", task.Spec{Key: "patient"}, "fail", task.Scheduled, 1, 10 * time.Hour, 10 * time.Hour, "it failed", false},
			{"bad policy", task.Spec{Key: "panic"}, "fail", task.Scheduled, 1, time.Second / 2, time.Second, "it failed", false},
			{"panic", task.Spec{}, "panic", task.Scheduled, 1, time.Second / 2, time.Second, "panic: it failed", true},
			{"goexit", task.Spec{}, "goexit", task.Scheduled, 1, time.Second / 2, time.Second, "runtime.Goexit", false},
			{"slow", task.Spec{}, "slow", task.Scheduled, 1, time.Second / 2, time.Second, "deadline exceeded", false},
			{"unknown", task.Spec{Kind: "strange"}, "", task.Scheduled, 1, time.Second / 2, time.Second,
				`no worker for the kind "strange"`, false},
			{"arguments", task.Spec{Kind: "other", Payload: []byte(`{"N":"x"}`)}, "", task.Scheduled, 1, time.Second / 2,
				time.Second, "other: json: cannot unmarshal string", false},
		} {
			if c.spec.ID = c.name; c.spec.Kind == "" {
				f.enqueue(c.do, c.spec)
			} else {
				_, err := f.Enqueue(ctx, c.spec)
				f.check(err)
			}
			ran := make(chan int)
			go func() { // which Goexit ends
				n := 0
				defer func() { ran <- n }()
				n, err := f.runner(f.Store, &ws, worker.Options{}).RunDue(ctx)
				if err != nil || n != 1 {
					t.Errorf("%s: %d tasks have run: %v", c.name, n, err)
				}
			}()
			<-ran
			got := f.get(c.name)
			if got.State != c.state || got.Attempt != c.attempt {
				t.Errorf("%s: %s after %d attempts, want %s after %d", c.name, got.State, got.Attempt, c.state, c.attempt)
			}
			if in := time.Until(got.Due); c.state == task.Scheduled && (in < c.min || in > c.max) {
				t.Errorf("%s: due in %s, want %s to %s", c.name, in, c.min, c.max)
			}
			var failure task.Failure
			if len(got.Failures) > 0 {
				failure = got.Failures[0]
			}
			if c.failure == "" != (failure.Message == "") || !strings.Contains(failure.Message, c.failure) ||
				strings.Contains(failure.Stack, "TestOutcomes") != c.stack {
				t.Errorf("%s: failed with %q, stack %q", c.name, failure.Message, failure.Stack)
			}
			if strings.HasPrefix(c.do, "output") && got.State == task.Completed && string(got.Output) != c.name {
				t.Errorf("the output is %q, want %q", got.Output, c.name)
			}
			f.check(f.Delete(ctx, c.name))
		}
	})
}

// TestCompleteIn: a task, the program's keys and the tasks that follow are one commit.
func TestCompleteIn(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var ws worker.Workers
		worker.Register(&ws, func(ctx context.Context, t *worker.Task[step]) error {
			next, err := worker.NewSpec(other{7}, task.Spec{ID: "next of " + t.ID, After: []string{t.ID}})
			if err != nil {
				return err
			}
			err = f.db.Update(ctx, func(tx *kv.Tx) error {
				if _, err := t.CompleteIn(tx, next); err != nil {
					return err
				}
				if t.Args.Do == "fail" {
					return errFailed
				}
				return tx.Bucket("done").Put([]byte(t.ID), []byte("value"))
			})
			if t.Args.Do == "fail" {
				return err
			}
			time.Sleep(time.Minute) // the lease is gone, and the context has not ended
			return errors.Join(err, ctx.Err(), errFailed)
		})
		var ran []int
		worker.Register(&ws, func(_ context.Context, t *worker.Task[other]) error {
			ran = append(ran, t.Args.N)
			return nil
		})
		f.enqueue("all", task.Spec{ID: "a"})
		f.enqueue("fail", task.Spec{ID: "b", MaxAttempts: 1})
		if n, err := f.runner(f.Store, &ws, worker.Options{}).RunDue(ctx); n != 3 || err != nil {
			t.Errorf("%d tasks have run, want a, b and the next of a: %v", n, err)
		}
		if a, b := f.get("a"), f.get("b"); a.State != task.Completed || b.State != task.Dead ||
			!slices.Equal(ran, []int{7}) || strings.Contains(b.Failures[0].Message, "context") {
			t.Errorf("a is %s, b %s for %v, and ran %d", a.State, b.State, b.Failures, ran)
		}
		f.check(f.db.View(ctx, func(tx *kv.Tx) error {
			if n, err := tx.Bucket("done").Count(); n != 1 || err != nil {
				t.Errorf("%d were written, want that of a: %v", n, err)
			}
			_, err := tx.Bucket("done").Get([]byte("a"))
			return err
		}))
		_, err := f.Get(ctx, "next of b")
		wantError(t, err, holdfast.ErrNotFound)
	})
}

// TestCompleteThen: a task and those that follow are one commit, with a client that has no transactions too.
func TestCompleteThen(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var ws worker.Workers
		worker.Register(&ws, func(ctx context.Context, x *worker.Task[step]) error {
			wantError(t, f.db.Update(ctx, func(tx *kv.Tx) error {
				_, err := x.CompleteIn(tx)
				return err
			}), holdfast.ErrBadOption)
			next := task.Spec{ID: "next", Kind: "k", Queue: "next", After: []string{x.ID}}
			if _, err := x.CompleteThen(ctx, next, next); !errors.Is(err, task.ErrExists) {
				t.Errorf("two tasks of one id: %v", err)
			}
			_, err := x.CompleteThen(ctx, next)
			return errors.Join(err, errFailed)
		})
		f.enqueue("", task.Spec{ID: "a"})
		client := struct{ worker.Client }{f.Store}
		if n, err := f.runner(client, &ws, worker.Options{}).RunDue(ctx); n != 1 || err != nil {
			t.Error(n, err)
		}
		if a, next := f.get("a"), f.get("next"); a.State != task.Completed || next.State != task.Waiting {
			t.Errorf("a is %s, next %s", a.State, next.State)
		}
	})
}

// TestLeases: a long task keeps its lease; one that is cancelled, taken away, or cannot be extended, learns it in time.
func TestLeases(t *testing.T) {
	const lease, never = 30 * time.Second, 1000 * time.Hour
	for name, c := range map[string]struct {
		trouble func(f *fixture, c *client)
		cause   error
		within  time.Duration
		state   task.State
		runs    int32
	}{
		"long":      {func(*fixture, *client) {}, nil, never, task.Completed, 1},
		"cancelled": {func(f *fixture, _ *client) { f.check(f.Cancel(ctx, "x")) }, task.ErrCancelled, 0, task.Cancelled, 1},
		"cut off":   {func(_ *fixture, c *client) { c.cut.Store(true) }, task.ErrLeaseLost, lease, task.Completed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				var runs atomic.Int32
				causes := make(chan error, 10)
				work := func(ctx context.Context, t *worker.Task[step]) error {
					if runs.Add(1) > 1 {
						return nil
					}
					select {
					case <-ctx.Done():
					case <-time.After(20 * lease):
					}
					causes <- context.Cause(ctx)
					return nil
				}
				f.enqueue("", task.Spec{ID: "x"})
				cut := &client{Store: f.Store}
				stop := f.run(cut, steps(work), worker.Options{Lease: lease, Grace: -1})
				synctest.Wait()
				stop2 := f.run(f.Store, steps(work), worker.Options{Lease: lease}) // takes over
				time.Sleep(lease * 3 / 2)
				began := time.Now()
				c.trouble(f, cut)
				if cause := <-causes; !errors.Is(cause, c.cause) {
					t.Errorf("the context has ended because of %v, want %v", cause, c.cause)
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("the worker has learnt it after %s, want at most %s", took, c.within)
				}
				time.Sleep(4 * lease)
				f.check(stop())
				f.check(stop2())
				if got, err := f.Get(ctx, "x"); got.State != c.state || c.state == 0 && !errors.Is(err, holdfast.ErrNotFound) {
					t.Errorf("the task is %s, want %s: %v", got.State, c.state, err)
				}
				if runs.Load() != c.runs {
					t.Errorf("it was run %d times, want %d", runs.Load(), c.runs)
				}
			})
		})
	}
}

// client is a store behind a network.
type client struct {
	*task.Store
	cut   atomic.Bool
	fault func(ctx context.Context) (before, after error) // of a call, if it is not nil
}

var errNetwork = errors.New("network")

func call[T any](ctx context.Context, c *client, f func() (T, error)) (T, error) {
	var none T
	var before, after error
	if c.fault != nil {
		before, after = c.fault(ctx)
	}
	if c.cut.Load() {
		<-ctx.Done() // no answer
		before = ctx.Err()
	}
	if before != nil {
		return none, before
	}
	v, err := f()
	if c.cut.Load() {
		<-ctx.Done()
		after = ctx.Err()
	}
	if err == nil && after != nil {
		return none, after
	}
	return v, err
}

func (c *client) Claim(ctx context.Context, o task.ClaimOptions) ([]task.Lease, error) {
	return call(ctx, c, func() ([]task.Lease, error) { return c.Store.Claim(ctx, o) })
}

func (c *client) Heartbeat(ctx context.Context, l ...task.Lease) ([]task.Lease, error) {
	return call(ctx, c, func() ([]task.Lease, error) { return c.Store.Heartbeat(ctx, l...) })
}

func (c *client) Complete(ctx context.Context, l ...task.Lease) error {
	_, err := call(ctx, c, func() (any, error) { return nil, c.Store.Complete(ctx, l...) })
	return err
}

func (c *client) CompleteThen(ctx context.Context, l task.Lease, then ...task.Spec) ([]task.Result, error) {
	return call(ctx, c, func() ([]task.Result, error) { return c.Store.CompleteThen(ctx, l, then...) })
}

func (c *client) Fail(ctx context.Context, l task.Lease, f task.Failure, o task.FailOptions) error {
	_, err := call(ctx, c, func() (any, error) { return nil, c.Store.Fail(ctx, l, f, o) })
	return err
}

func (c *client) Snooze(ctx context.Context, l task.Lease, d time.Duration) error {
	_, err := call(ctx, c, func() (any, error) { return nil, c.Store.Snooze(ctx, l, d) })
	return err
}

// TestStop: a runner that stops waits for its workers, then ends their contexts and gives their tasks back, and does
// not wait for ever.
func TestStop(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		const grace = 10 * time.Second
		hang := make(chan struct{})
		work := func(ctx context.Context, t *worker.Task[step]) error {
			switch t.Args.Do {
			case "soon":
				time.Sleep(grace - 1)
			case "heeds":
				<-ctx.Done()
				return context.Cause(ctx)
			case "panics":
				<-ctx.Done()
				panic("stopped")
			case "hangs":
				<-hang
			}
			return nil
		}
		ids := []string{"soon", "heeds", "panics", "hangs"}
		for _, id := range ids {
			f.enqueue(id, task.Spec{ID: id})
		}
		stop := f.run(f.Store, steps(work), worker.Options{Concurrency: 4, Grace: grace})
		synctest.Wait()
		later := f.enqueue("", task.Spec{}) // is not claimed: all workers are busy
		began := time.Now()
		err := stop()
		wantError(t, err, worker.ErrStillRunning)
		if took := time.Since(began); took != 2*grace || !strings.Contains(err.Error(), "hangs") ||
			strings.Contains(err.Error(), "heeds") {
			t.Errorf("stopped after %s: %v", took, err)
		}
		want := map[string]task.State{"soon": task.Completed, "heeds": task.Waiting, "panics": task.Scheduled,
			"hangs": task.Running, later: task.Waiting}
		for id, state := range want {
			if got := f.get(id); got.State != state || (got.Attempt == 0) != (state == task.Waiting) {
				// The one that panicked may be due again by now.
				if id != "panics" || got.State != task.Waiting || got.Attempt != 1 {
					t.Errorf("%s is %s after %d attempts, want %s", id, got.State, got.Attempt, state)
				}
			}
		}
		close(hang) // it returns at last, within its lease or not
	})
}

// TestMiddleware: the first is outermost, and all see what the worker did, a panic too.
func TestMiddleware(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var order []string
		layer := func(name string) worker.Middleware {
			return func(next worker.Handler) worker.Handler {
				return func(ctx context.Context, x *worker.Execution) error {
					order = append(order, name)
					err := next(ctx, x)
					var p *worker.PanicError
					order = append(order, fmt.Sprintf("%s %s %t", name, x.Kind, errors.As(err, &p)))
					return err
				}
			}
		}
		var ws worker.Workers
		worker.Register(&ws, func(_ context.Context, t *worker.Task[step]) error {
			if t.Args.Do == "panic" {
				panic(t.Args.Do)
			}
			return nil
		}).Middleware = []worker.Middleware{layer("c"), layer("d")}
		r := f.runner(f.Store, &ws, worker.Options{Middleware: []worker.Middleware{layer("a"), layer("b")}})
		once := task.Spec{MaxAttempts: 1}
		f.enqueue("panic", once)
		_, err := f.Enqueue(ctx, task.Spec{Kind: "strange", MaxAttempts: 1})
		f.check(err)
		_, err = r.RunDue(ctx)
		f.check(err)
		want := "a b c d d step true c step true b step true a step true a b b strange false a strange false"
		if got := strings.Join(order, " "); got != want {
			t.Errorf("order %s, want %s", got, want)
		}

		for _, m := range []worker.Middleware{
			func(worker.Handler) worker.Handler { panic("making") },
			func(worker.Handler) worker.Handler { return nil },
			func(worker.Handler) worker.Handler {
				return func(context.Context, *worker.Execution) error { panic("running") }
			},
		} {
			id := f.enqueue("", once)
			_, err := f.runner(f.Store, &ws, worker.Options{Middleware: []worker.Middleware{m}}).RunDue(ctx)
			f.check(err)
			if got := f.get(id); got.State != task.Dead || got.Failures[0].Stack == "" {
				t.Errorf("a middleware that panics: %s for %v", got.State, got.Failures)
			}
		}
	})
}

// TestArgs: what arguments and options there can be, and which are refused.
func TestArgs(t *testing.T) {
	f := open(t)
	defer f.close()
	got, err := worker.NewSpec(binary{1, 2}, task.Spec{Queue: "q", Unique: worker.ByArgs})
	f.check(err)
	again, err := worker.NewSpec(binary{1, 2}, task.Spec{Unique: worker.ByArgs})
	f.check(err)
	args, err := worker.Decode[binary](task.Task{Spec: got})
	f.check(err)
	if got.Queue != "q" || got.Priority != 5 || got.Kind != "binary" || string(got.Payload) != "\x01\x02" ||
		args != (binary{1, 2}) || again.Queue != "from Defaults" || got.Unique != again.Unique ||
		!strings.HasPrefix(got.Unique, "binary ") {
		t.Errorf("specs %+v and %+v, arguments %v", got, again, args)
	}
	pointer, err := worker.NewSpec(&pointed{3}, task.Spec{})
	f.check(err)
	if p, err := worker.Decode[*pointed](task.Task{Spec: pointer}); err != nil || p.N != 3 {
		t.Errorf("arguments %v: %v", p, err)
	}

	_, err = worker.NewSpec(step{}, task.Spec{Kind: "step"})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = worker.NewSpec(step{}, task.Spec{Payload: []byte("x")})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = worker.NewSpec(worker.Args(nil), task.Spec{})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = worker.NewSpec(unstorable{}, task.Spec{})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = worker.Decode[step](task.Task{Spec: got})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = worker.Decode[binary](task.Task{Spec: task.Spec{Kind: "binary", Payload: []byte("x")}})
	wantError(t, err, holdfast.ErrBadOption)
	_, err = worker.Decode[worker.Args](task.Task{})
	wantError(t, err, holdfast.ErrBadOption)

	good := func() *worker.Workers { return steps(func(context.Context, *worker.Task[step]) error { return nil }) }
	twice, none, unnamed := good(), steps(nil), good()
	worker.Register(twice, func(context.Context, *worker.Task[step]) error { return nil })
	worker.Register(unnamed, func(context.Context, *worker.Task[worker.Args]) error { return nil })
	for i, c := range []struct {
		client worker.Client
		ws     *worker.Workers
		o      worker.Options
	}{
		{nil, good(), worker.Options{}},
		{f.Store, nil, worker.Options{}},
		{f.Store, new(worker.Workers), worker.Options{}},
		{f.Store, twice, worker.Options{}},
		{f.Store, none, worker.Options{}},
		{f.Store, unnamed, worker.Options{}},
		{f.Store, good(), worker.Options{Concurrency: -1}},
		{f.Store, good(), worker.Options{Lease: -1}},
		{f.Store, good(), worker.Options{Lease: 1}},
	} {
		if _, err := worker.New(c.client, c.ws, c.o); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("case %d: %v, want ErrBadOption", i, err)
		}
	}
}

type (
	binary     [2]byte
	pointed    struct{ N int }
	unstorable struct{ C chan int }
)

func (*pointed) Kind() string   { return "pointed" }
func (unstorable) Kind() string { return "unstorable" }
func (binary) Kind() string     { return "binary" }
func (binary) Defaults() task.Spec {
	return task.Spec{Queue: "from Defaults", Priority: 5}
}
func (b binary) MarshalTask() ([]byte, error) { return b[:], nil }
func (b *binary) UnmarshalTask(p []byte) error {
	if len(p) != len(b) {
		return errFailed
	}
	copy(b[:], p)
	return nil
}

// TestRunErrors: what cannot pass stops a runner, and what may pass does not.
func TestRunErrors(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var log bytes.Buffer
		work := func(context.Context, *worker.Task[step]) error { return nil }
		r := f.runner(f.Store, steps(work), worker.Options{Queues: []string{strings.Repeat("q", 1000)}})
		wantError(t, r.Run(ctx), holdfast.ErrBadOption)
		var none context.Context
		wantError(t, r.Run(none), holdfast.ErrBadOption)
		ended, cancel := context.WithCancel(ctx)
		cancel()
		f.check(r.Run(ended))
		_, err := r.RunDue(ended)
		wantError(t, err, context.Canceled)

		var n atomic.Int32
		c := &client{Store: f.Store, fault: func(context.Context) (before, after error) {
			if n.Add(1) <= 5 {
				return errNetwork, nil
			}
			return nil, nil
		}}
		id := f.enqueue("", task.Spec{})
		stop := f.run(c, steps(work), worker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := f.get(id); got.State != task.Completed || strings.Count(log.String(), "trying again") != 5 {
			t.Errorf("after 5 faults, the task is %s; the log is:\n%s", got.State, &log)
		}
		f.check(stop())
		ending := make(chan error)
		go func() { ending <- f.runner(f.Store, steps(work), worker.Options{}).Run(ctx) }()
		synctest.Wait()
		other, err := task.Open(kv.On(f.eng), task.Options{Name: "other", Level: holdfast.Memory})
		f.check(err)
		f.check(f.Store.Close())
		wantError(t, <-ending, holdfast.ErrClosed)
		f.Store = other
	})
}

// TestConcurrency: as many workers as allowed run at once, never more, and all tasks are run.
func TestConcurrency(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		const tasks, most = 100, 7
		var now, highest, ran atomic.Int32
		work := func(context.Context, *worker.Task[step]) error {
			if n := now.Add(1); n > highest.Load() {
				highest.Store(n)
			}
			time.Sleep(rand.N(time.Second))
			now.Add(-1)
			ran.Add(1)
			return nil
		}
		stop := f.run(f.Store, steps(work), worker.Options{Concurrency: most, Queues: []string{"a", "b"}})
		for i := range tasks {
			f.enqueue("", task.Spec{Queue: string(rune('a' + i%2))})
		}
		time.Sleep(tasks * time.Second)
		f.check(stop())
		if ran.Load() != tasks || highest.Load() != most {
			t.Errorf("%d of %d tasks have run, %d at once, want %d", ran.Load(), tasks, highest.Load(), most)
		}
	})
}

// TestUnderFaults runs tasks with runners that are cut off, stopped and started again, and a store whose answers get
// lost. Each task ends, and what is written when one is completed is written once.
func TestUnderFaults(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tasks, rounds, faults := rapid.IntRange(1, 20).Draw(r, "tasks"), rapid.IntRange(1, 4).Draw(r, "rounds"),
			rapid.IntRange(2, 20).Draw(r, "faults")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		bubble(t, func(t *testing.T, f *fixture) {
			var mu sync.Mutex
			number := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				return random.IntN(n)
			}
			chance := func(n int) bool { return number(n) == 0 }
			fault := func(context.Context) (before, after error) {
				if chance(faults) {
					before = errNetwork
				}
				if chance(faults) {
					after = errNetwork
				}
				return before, after
			}
			var attempts atomic.Int64
			work := func(ctx context.Context, t *worker.Task[step]) error {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(time.Duration(t.Attempt) * 7 * time.Second):
				}
				switch {
				case chance(6):
					return errFailed
				case chance(6):
					return worker.Snooze(time.Second)
				case chance(6):
					panic("by chance")
				case t.Args.Do == "":
					return nil
				}
				before, after := fault(ctx) // the worker fails, too
				if before != nil {
					return before
				}
				return errors.Join(f.db.Update(ctx, func(tx *kv.Tx) error {
					if err := tx.Bucket("written", t.ID).Put(fmt.Append(nil, attempts.Add(1)), nil); err != nil {
						return err
					}
					_, err := t.CompleteIn(tx)
					return err
				}), after)
			}
			var ids []string
			for i := range tasks {
				ids = append(ids, f.enqueue([]string{"", "write"}[i%2],
					task.Spec{MaxAttempts: 1000, Backoff: task.Backoff{Max: time.Minute}}))
			}
			for range rounds {
				var stops []func() error
				for range 2 {
					c := &client{Store: f.Store, fault: fault}
					stops = append(stops, f.run(c, steps(work), worker.Options{Concurrency: 4, Grace: time.Second}))
					time.Sleep(time.Duration(number(60)) * time.Second)
					c.cut.Store(chance(2))
				}
				time.Sleep(time.Duration(number(60)) * time.Second)
				for _, stop := range stops {
					if err := stop(); !errors.Is(err, worker.ErrStillRunning) { // those that are cut off
						f.check(err)
					}
				}
			}
			stop := f.run(f.Store, steps(work), worker.Options{})
			unfinished := func(id string) bool { return !f.get(id).State.Finished() }
			for range 24 * 60 {
				if !slices.ContainsFunc(ids, unfinished) {
					break
				}
				time.Sleep(time.Minute)
			}
			f.check(stop())
			for i, id := range ids {
				got := f.get(id)
				written := int64(0)
				f.check(f.db.View(ctx, func(tx *kv.Tx) (err error) {
					written, err = tx.Bucket("written", id).Count()
					return err
				}))
				if got.State != task.Completed || written != int64(i%2) {
					t.Fatalf("task %s is %s, and was written %d times, want %d", id, got.State, written, i%2)
				}
			}
		})
		if t.Failed() {
			r.FailNow()
		}
	})
}
