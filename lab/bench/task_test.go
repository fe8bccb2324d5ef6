package bench

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/task"
)

// fakeTasks is a peer that does not keep its promises: ours, in which some calls are others from some time on.
type fakeTasks struct {
	holdfast.Engine
	contender.Tasks
	mutant taskMutant
	n      int // calls of what is another
}

// taskMutant is which calls are others. Each is told how often it was called.
type taskMutant struct {
	enqueue   func(n int, q contender.Tasks, specs []contender.TaskSpec) ([]string, error)
	claim     func(n int, q contender.Tasks, c contender.TaskClaim) (contender.TaskClaim, error)
	setOutput func(n int, q contender.Tasks, c contender.TaskClaim, output []byte) error
	complete  func(n int, q contender.Tasks, c contender.TaskClaim) error
	list      func(n int, t contender.Task, yield func(contender.Task) error) error
}

func (f *fakeTasks) Enqueue(ctx context.Context, specs ...contender.TaskSpec) ([]string, error) {
	if f.n++; f.mutant.enqueue != nil {
		return f.mutant.enqueue(f.n, f.Tasks, specs)
	}
	return f.Tasks.Enqueue(ctx, specs...)
}

func (f *fakeTasks) Claim(ctx context.Context) (contender.TaskClaim, error) {
	c, err := f.Tasks.Claim(ctx)
	if f.n++; f.mutant.claim != nil && err == nil {
		return f.mutant.claim(f.n, f.Tasks, c)
	}
	return c, err
}

func (f *fakeTasks) SetOutput(ctx context.Context, c contender.TaskClaim, output []byte) error {
	if f.n++; f.mutant.setOutput != nil {
		return f.mutant.setOutput(f.n, f.Tasks, c, output)
	}
	return f.Tasks.SetOutput(ctx, c, output)
}

func (f *fakeTasks) Complete(ctx context.Context, c contender.TaskClaim) error {
	if f.n++; f.mutant.complete != nil {
		return f.mutant.complete(f.n, f.Tasks, c)
	}
	return f.Tasks.Complete(ctx, c)
}

func (f *fakeTasks) List(ctx context.Context, yield func(contender.Task) error) error {
	return f.Tasks.List(ctx, func(t contender.Task) error {
		if f.n++; f.mutant.list != nil {
			return f.mutant.list(f.n, t, yield)
		}
		return yield(t)
	})
}

// Close closes the queue and its engine.
func (f *fakeTasks) Close() error { return errors.Join(f.Tasks.Close(), f.Engine.Close()) }

// TestTaskVerificationCatches: whatever a queue does wrong, the workloads that can see it do.
func TestTaskVerificationCatches(t *testing.T) {
	const both, kept, lives = "lifecycle throughput long", "throughput long", "lifecycle"
	ctx := context.Background()
	var first contender.TaskClaim
	for name, test := range map[string]struct {
		mutant taskMutant
		seen   string // by which workloads
	}{
		"nothing": {},
		"a task is lost": {taskMutant{list: func(n int, k contender.Task, yield func(contender.Task) error) error {
			if n%100 == 0 || k.State == task.Running {
				return nil
			}
			return yield(k)
		}}, both},
		"a task is enqueued twice": {taskMutant{enqueue: func(n int, q contender.Tasks, specs []contender.TaskSpec) (
			[]string, error) {
			_, err := q.Enqueue(ctx, specs...)
			if err != nil {
				return nil, err
			}
			return q.Enqueue(ctx, specs...)
		}}, both},
		"a claim has other arguments": {taskMutant{claim: func(_ int, _ contender.Tasks, c contender.TaskClaim) (
			contender.TaskClaim, error) {
			c.Args = []byte(`["a","b"]`)
			return c, nil
		}}, both},
		"a task has other arguments": {taskMutant{list: func(_ int, k contender.Task,
			yield func(contender.Task) error) error {
			k.Args = []byte(`["a","b","d"]`)
			return yield(k)
		}}, both},
		"an output is lost": {taskMutant{setOutput: func(_ int, q contender.Tasks, c contender.TaskClaim,
			output []byte) error {
			if string(output[:9]) == "output 10" {
				return nil
			}
			return q.SetOutput(ctx, c, output)
		}}, lives},
		"a task is not completed": {taskMutant{complete: func(n int, q contender.Tasks, c contender.TaskClaim) error {
			return nil
		}}, both},
		"a task is completed that is kept for later": {taskMutant{list: func(_ int, k contender.Task,
			yield func(contender.Task) error) error {
			if k.State == task.Running {
				k.State = task.Completed
			}
			return yield(k)
		}}, lives},
		"a completed task waits again": {taskMutant{list: func(_ int, k contender.Task,
			yield func(contender.Task) error) error {
			if k.State == task.Completed {
				k.State = task.Waiting
			}
			return yield(k)
		}}, kept},
		"a task is claimed twice": {taskMutant{claim: func(n int, q contender.Tasks, c contender.TaskClaim) (
			contender.TaskClaim, error) {
			if first.ID == "" || n%7 != 0 {
				first = c
				return c, nil
			}
			c.ID = first.ID
			return c, nil
		}}, both},
	} {
		t.Run(name, func(t *testing.T) {
			notice(t, smallTasks(), test.seen, func() (holdfast.Engine, func()) {
				first = contender.TaskClaim{}
				engine := mem.New()
				queue, _, err := openTasks(engine, holdfast.Memory)
				if err != nil {
					t.Fatal(err)
				}
				fake := &fakeTasks{Engine: engine, Tasks: queue}
				return fake, func() { fake.mutant, fake.n = test.mutant, 0 }
			})
		})
	}
}

// TestTaskPlan: each workload has its own numbers of clients unless others are asked for, and peers of another kind
// have no part.
func TestTaskPlan(t *testing.T) {
	numbers := func(r Request) map[string][]int {
		p, err := Standard().Plan(r)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string][]int{}
		for _, c := range p.Cells {
			if !slices.Contains(of[c.Workload], c.Clients) {
				of[c.Workload] = append(of[c.Workload], c.Clients)
			}
			if c.Engine == contender.Postgres || c.Engine == contender.RaftWAL {
				t.Errorf("%s on %s", c.Workload, c.Engine)
			}
		}
		return of
	}
	of := numbers(Request{Preset: "task"})
	if !maps.EqualFunc(of, map[string][]int{"task/lifecycle": {100}, "task/throughput": {1, 64}, "file/linear": {1},
		"file/concurrent": {100}}, slices.Equal) {
		t.Errorf("%v", of)
	}
	of = numbers(Request{Preset: "task", Clients: []int{7, 3}})
	if !slices.Equal(of["task/lifecycle"], []int{3, 7}) || !slices.Equal(of["task/throughput"], []int{3, 7}) {
		t.Errorf("%v", of)
	}
}
