package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/task"
)

// The fifth study: a queue of tasks in SQLite against one file for each task. A task is inserted, set to processing,
// its output is updated ten times, and it is deleted. Throughput is ours.
const (
	taskKind    = "example"
	taskArgs    = `["a","b","c"]`
	taskOutput  = "output %02d of client %04d, %09d" // 33 bytes
	taskOutputs = 10
	taskChanges = taskOutputs + 3

	// taskRecord makes the floor's records as large as a task with its id, command, arguments, status and output.
	taskRecord = 32 + len(taskKind) + len(taskArgs) + 10 + 33 - kvKeySize

	// taskLease is longer than any measurement.
	taskLease = 2 * time.Hour
)

// taskSizes are the numbers that the workloads work on.
type taskSizes struct{ backlog, long int }

func taskWorkloads() []Workload { return taskStudy(taskSizes{backlog: 100_000, long: 1_000_000}) }

// taskStudy is the table of workloads on so much.
func taskStudy(n taskSizes) []Workload {
	throughput := func(name, about string, backlog int) Workload {
		w := taskThroughput{backlog}

		return Workload{Name: name, About: about, Unit: "tasks", Items: 1, Store: Tasks, Clients: []int{1, 64},
			Overhead: time.Duration(backlog) * 40 * time.Microsecond, Engine: w.engine, Floor: w.floor, Null: w.null}
	}
	long := throughput("task/long", "task/throughput for long, behind 1,000,000 tasks", n.long)
	long.Samples = true

	return append([]Workload{
		{
			Name:  "task/lifecycle",
			About: "a task is enqueued, claimed, has its output replaced ten times, is completed and gone",
			Unit:  "changes", Items: taskChanges, Store: Tasks, Clients: []int{100}, StudyClients: 100,
			Study: study(map[figure]string{
				{contender.SQLiteSQL, holdfast.Process}: "11k-17k/s: 130,000 in 7.8-11.5 s",
			}),
			StudyNote: "The study's 100 workers had 100 tasks each; here they go on.",
			Engine:    taskLifecycle{}.engine, Floor: taskLifecycle{}.floor, Null: taskLifecycle{}.null,
		},
		throughput("task/throughput", "enqueue a task, claim the next one and complete it, behind 100,000 tasks", n.backlog),
		long,
	}, taskOrderWorkloads()...)
}

// openTasks opens the task queue under test: the engine itself if it is a peer, else one of package task.
func openTasks(e holdfast.Engine, level holdfast.Level) (contender.Tasks, func() error, error) {
	if peer, ok := e.(contender.TasksEngine); ok {
		return peer, func() error { return nil }, nil
	}
	store, err := task.Open(kv.On(e), task.Options{Level: level})
	if err != nil {
		return nil, nil, err
	}

	return taskQueue{store}, store.Close, nil
}

// taskQueue is one of package task with the methods of a peer.
type taskQueue struct{ *task.Store }

func (q taskQueue) Enqueue(ctx context.Context, specs ...contender.TaskSpec) ([]string, error) {
	list := make([]task.Spec, len(specs))
	for i, s := range specs {
		list[i] = task.Spec{Kind: taskKind, Payload: s.Args}
		if s.Discard {
			list[i].Keep = -1
		}
	}
	results, err := q.Store.Enqueue(ctx, list...)
	ids := make([]string, len(results))

	for i, r := range results {
		ids[i] = r.ID
	}

	return ids, err
}

func (q taskQueue) Work(int) error { return nil }

func (q taskQueue) Claim(ctx context.Context) (contender.TaskClaim, error) {
	leases, err := q.Store.Claim(ctx, task.ClaimOptions{Lease: taskLease, Wait: true})
	if err != nil {
		return contender.TaskClaim{}, err
	}
	if len(leases) != 1 {
		return contender.TaskClaim{}, fmt.Errorf("%w: %d tasks claimed", ErrWrong, len(leases))
	}
	l := leases[0]

	return contender.TaskClaim{ID: l.Task.ID, Args: l.Task.Payload, Lease: l}, nil
}

func (q taskQueue) SetOutput(ctx context.Context, c contender.TaskClaim, output []byte) error {
	return q.Store.SetOutput(ctx, c.Lease.(task.Lease), output)
}

func (q taskQueue) Complete(ctx context.Context, c contender.TaskClaim) error {
	return q.Store.Complete(ctx, c.Lease.(task.Lease))
}

func (q taskQueue) List(ctx context.Context, yield func(contender.Task) error) error {
	f := task.Filter{Limit: 1000}
	for {
		list, next, err := q.Store.List(ctx, f)
		if err != nil {
			return err
		}

		for _, t := range list {
			if err := yield(contender.Task{ID: t.ID, Args: t.Payload, Output: t.Output, State: t.State}); err != nil {
				return err
			}
		}
		if f.Cursor = next; next == "" {
			return nil
		}
	}
}

// taskSum is a set of tasks, in constant memory: how many there are, and the sum of the hashes of their ids.
type taskSum struct {
	n    atomic.Int64
	hash atomic.Uint64
}

func (s *taskSum) add(hash uint64) {
	s.n.Add(1)
	s.hash.Add(hash)
}

// taskAcks are what was acknowledged.
type taskAcks struct {
	seed                         maphash.Seed
	enqueued, claimed, completed taskSum
	put                          atomic.Int64 // bytes of kinds, arguments and outputs
}

func newTaskAcks() *taskAcks { return &taskAcks{seed: maphash.MakeSeed()} }

func (a *taskAcks) enqueue(q contender.Tasks, specs ...contender.TaskSpec) error {
	ids, err := q.Enqueue(context.Background(), specs...)
	if err == nil && len(ids) != len(specs) {
		err = fmt.Errorf("%w: %d ids of %d tasks", ErrWrong, len(ids), len(specs))
	}
	if err != nil {
		return err
	}

	for _, id := range ids {
		a.enqueuedOne(id)
	}

	return nil
}

// enqueuedOne notes that a task was enqueued.
func (a *taskAcks) enqueuedOne(id string) {
	a.enqueued.add(maphash.String(a.seed, id))
	a.put.Add(int64(len(taskKind) + len(taskArgs)))
}

func (a *taskAcks) claim(q contender.Tasks) (contender.TaskClaim, error) {
	c, err := q.Claim(context.Background())
	if err != nil {
		return c, err
	}
	if string(c.Args) != taskArgs {
		return c, fmt.Errorf("%w: task %s is claimed with %q", ErrWrong, c.ID, c.Args)
	}
	a.claimed.add(maphash.String(a.seed, c.ID))

	return c, nil
}

func (a *taskAcks) complete(q contender.Tasks, c contender.TaskClaim) error {
	err := q.Complete(context.Background(), c)
	if err == nil {
		a.completed.add(maphash.String(a.seed, c.ID))
	}

	return err
}

// verify compares the tasks that wait and those that are completed with what was acknowledged. Of the others, and of
// those of which other says so, nothing more is asked.
func (a *taskAcks) verify(q contender.Tasks, kept bool, other func(contender.Task) (bool, error)) (
	items, checked int64, err error) {
	var waiting, completed taskSum
	err = q.List(context.Background(), func(t contender.Task) error {
		items++
		if string(t.Args) != taskArgs {
			return fmt.Errorf("%w: task %s has the arguments %q", ErrWrong, t.ID, t.Args)
		}
		if is, err := other(t); is || err != nil {
			return err
		}

		hash := maphash.String(a.seed, t.ID)
		switch t.State {
		case task.Waiting:
			waiting.add(hash)
		case task.Completed:
			completed.add(hash)
		default:
			return fmt.Errorf("%w: task %s is %v", ErrWrong, t.ID, t.State)
		}

		return nil
	})
	differ := func(what string, n int64, hash uint64, there *taskSum) error {
		if n == there.n.Load() && hash == there.hash.Load() {
			return nil
		}

		return fmt.Errorf("%w: %d tasks should be %s and %d are, or others are", ErrWrong, n, what, there.n.Load())
	}
	if err == nil {
		err = differ("waiting", a.enqueued.n.Load()-a.claimed.n.Load(), a.enqueued.hash.Load()-a.claimed.hash.Load(),
			&waiting)
	}
	if kept {
		err = errors.Join(err, differ("completed", a.completed.n.Load(), a.completed.hash.Load(), &completed))
	} else {
		err = errors.Join(err, differ("completed and not gone", 0, 0, &completed))
	}

	return items, items, err
}
