package subjects

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/task"
)

// Task is package store/task: tasks are enqueued, several at once, with keys of the caller's, in sequences, after
// others and unique; they are claimed, kept alive, completed with such keys, and fail, are put back, forgotten and
// cancelled.
//
// Which task an operation claims is the store's choice. So each operation leaves a key that names it; what is there of
// the tasks must agree with these.
var Task = Subject{
	Name: "task", About: "the task store: batches with the caller's keys, leases, sequences, dependencies, failures",
	begin: func(h *protocol.History, _ string, _ bool) { h.Concurrent = true },
	work:  taskWork, read: taskRead, judge: taskJudge,
}

// taskVictim works on an open store.
type taskVictim struct {
	concurrent
	store taskStore
	held  map[string]uint64 // by whom a task is held, under a lease that outlives the test
	ended map[string]int    // how many tasks had been completed, as was acknowledged, before this one
}

// taskStore is what works with tasks, a store or a server.
type taskStore interface {
	// EnqueueMarked enqueues tasks, and CompleteMarked completes one besides. Both set a mark in the same commit.
	EnqueueMarked(ctx context.Context, m mark, specs ...task.Spec) ([]task.Result, error)
	CompleteMarked(ctx context.Context, l task.Lease, m mark, then ...task.Spec) ([]task.Result, error)
	Claim(ctx context.Context, o task.ClaimOptions) ([]task.Lease, error)
	Heartbeat(ctx context.Context, leases ...task.Lease) ([]task.Lease, error)
	Complete(ctx context.Context, leases ...task.Lease) error
	Fail(ctx context.Context, l task.Lease, f task.Failure, o task.FailOptions) error
	Snooze(ctx context.Context, l task.Lease, d time.Duration) error
	Cancel(ctx context.Context, id string) error
	SetQueue(ctx context.Context, queue string, o task.QueueOptions) error
}

// mark is the key of an operation, with its value.
type mark struct {
	key   string
	value []byte
}

// taskMarks is the bucket of the marks.
const taskMarks = "marks"

// ownTasks is a store in the victim's own engine. Its marks are keys of a bucket.
type ownTasks struct {
	*task.Store
	db *kv.DB
}

// openTasks opens the store of an engine, and its database.
func openTasks(e holdfast.Engine, o task.Options) (s ownTasks, err error) {
	if s.db, err = kv.Open(e, kv.Options{Level: o.Level}); err == nil {
		s.Store, err = task.Open(s.db, o)
	}
	return s, err
}

// EnqueueMarked implements [taskStore].
func (s ownTasks) EnqueueMarked(ctx context.Context, m mark, specs ...task.Spec) (results []task.Result, err error) {
	err = s.marked(ctx, m, func(s task.Tx) (err error) {
		results, err = s.Enqueue(specs...)
		return err
	})
	return results, err
}

// CompleteMarked implements [taskStore].
func (s ownTasks) CompleteMarked(ctx context.Context, l task.Lease, m mark, then ...task.Spec) (
	results []task.Result, err error) {
	err = s.marked(ctx, m, func(s task.Tx) (err error) {
		results, err = s.Complete(l, then...)
		return err
	})
	return results, err
}

// marked does f and sets the mark in one transaction, so that a crash leaves both or neither.
func (s ownTasks) marked(ctx context.Context, m mark, f func(s task.Tx) error) error {
	return s.db.Update(ctx, func(tx *kv.Tx) error {
		if err := f(s.In(tx)); err != nil {
			return err
		}
		return tx.Bucket(taskMarks).Put([]byte(m.key), m.value)
	})
}

// newTaskVictim works on a store that is open, in the victim or behind a server.
func newTaskVictim(w *worker, s taskStore, given holdfast.Level) *taskVictim {
	return &taskVictim{concurrent: newConcurrent(w, scriptOf(w.spec.Seed), given), store: s, held: map[string]uint64{},
		ended: map[string]int{}}
}

// taskWork works through several writers until stop is closed.
func taskWork(w *worker, e holdfast.Engine, stop <-chan struct{}) (err error) {
	s, err := openTasks(e, task.Options{Level: w.spec.Level})
	if err != nil {
		return w.failure(err, "opening the store")
	}
	defer func() { err = errors.Join(err, w.failure(s.Close(), "closing the store")) }()
	ctx := context.Background()

	// The limits are set again at every opening, which changes nothing after the first.
	if err := s.SetQueue(ctx, taskQueues[1], taskLimits); err != nil && !w.refused(err) {
		return fmt.Errorf("setting limits: %w", err)
	}

	v := newTaskVictim(w, s, e.Capabilities().Promise(w.spec.Level).Given)
	var group sync.WaitGroup
	for range w.spec.Writers {
		w.start(&group, func() error {
			for !stopped(stop) {
				w.pace()
				o := v.begin()
				err := v.do(ctx, o)
				if err == nil {
					// The acknowledgement is told before the operation ends, so that later ones count as later.
					v.acked(o.n, v.given)
				}
				v.finish(o.n, err)
				if err != nil && !w.refused(err) {
					return fmt.Errorf("%v: %w", o, err)
				}
			}

			return nil
		})
	}
	group.Wait()

	return nil
}

// taskLimits are those of the second queue.
var taskLimits = task.QueueOptions{Concurrency: 40, KeyConcurrency: 20}

// begin makes and tells the next operation.
func (v *taskVictim) begin() *taskOp {
	v.state.Lock()
	defer v.state.Unlock()
	v.begun++
	o := v.script.task(v.spec.Gen, v.begun)
	v.report.Send(protocol.TellIssued, o.n, 0)

	return &o
}

// mark is the mark of an operation.
func (v *taskVictim) mark(o *taskOp, kind taskKind, id string) mark {
	key := taskMark(o, kind, id)
	return mark{key, v.script.Value(nil, key, commits.Written{N: o.n, Gen: o.gen, Size: commits.HeaderSize + 10})}
}

// do does an operation. One that finds no task to claim enqueues instead, so that tasks never run out.
func (v *taskVictim) do(ctx context.Context, o *taskOp) error {
	if o.kind == taskEnqueue {
		return v.enqueue(ctx, o)
	}
	if o.kind == taskCancel {
		return v.cancel(ctx, o)
	}
	l, ok, err := v.claim(ctx, o)
	if err != nil {
		return fmt.Errorf("claiming: %w", err)
	}
	if !ok {
		return v.enqueue(ctx, o)
	}

	return v.settle(ctx, o, l)
}

// enqueue enqueues the tasks of an operation.
func (v *taskVictim) enqueue(ctx context.Context, o *taskOp) error {
	specs := v.script.specs(o)
	results, err := v.store.EnqueueMarked(ctx, v.mark(o, taskEnqueue, ""), specs...)
	if err != nil {
		return fmt.Errorf("enqueueing: %w", err)
	}
	v.enqueued(o, specs, results)

	return nil
}

// enqueued checks the results of tasks that were enqueued: one with a unique text may be answered with another that
// has it.
func (v *taskVictim) enqueued(o *taskOp, specs []task.Spec, results []task.Result) {
	for i, r := range results {
		if r.ID != specs[i].ID && (!r.Existing || specs[i].Unique == "") {
			v.wrong("%v, task %s, was told %+v", o, specs[i].ID, r)
		}
		v.spent.Add(int64(len(specs[i].Payload) + 300))
	}
}

// claim claims a task for an operation.
func (v *taskVictim) claim(ctx context.Context, o *taskOp) (l task.Lease, ok bool, err error) {
	c := task.ClaimOptions{Queues: taskQueues[:taskHeld], Lease: taskFar, Worker: o.by()}
	switch o.kind {
	case taskHold:
		c.Queues = taskQueues[taskHeld:]
	case taskForget:
		c.Lease = time.Millisecond
	}

	// Counted before the claim: what was completed by then must not be given out.
	v.state.Lock()
	ended := len(v.ended)
	v.state.Unlock()
	leases, err := v.store.Claim(ctx, c)
	if err != nil || len(leases) == 0 {
		return l, false, err
	}
	l = leases[0]

	v.state.Lock()
	defer v.state.Unlock()
	if !v.known(l.Task) {
		v.wrong("%v is given task %s, which no operation enqueued like that", o, l.Task.ID)
	}
	if before, done := v.ended[l.Task.ID]; done && before < ended {
		v.wrong("%v is given task %s, and its completion had been acknowledged before", o, l.Task.ID)
	}
	if o.kind == taskForget {
		return l, true, nil // whose lease may have run out
	}
	if by, twice := v.held[l.Task.ID]; twice {
		v.wrong("task %s is claimed by operation %d, and held by operation %d", l.Task.ID, o.n, by)
	}
	v.held[l.Task.ID] = o.n

	return l, true, nil
}

// known reports whether a task is as an operation that was begun enqueues it. v.state is held.
func (v *taskVictim) known(t task.Task) bool {
	gen, n, k, ok := taskOf(t.ID)
	if !ok || gen > v.spec.Gen || n > v.begun && gen == v.spec.Gen {
		return false
	}
	o := v.script.task(gen, n)

	return k >= 0 && k < o.size && bytes.Equal(v.script.specs(&o)[k].Payload, t.Payload)
}

// release forgets that an operation holds a task, before that is told to the store.
func (v *taskVictim) release(o *taskOp, l task.Lease) {
	v.state.Lock()
	defer v.state.Unlock()
	if v.held[l.Task.ID] == o.n {
		delete(v.held, l.Task.ID)
	}
}

// settle does with a task what the operation does, and sets its key.
func (v *taskVictim) settle(ctx context.Context, o *taskOp, l task.Lease) error {
	id, kind := l.Task.ID, o.kind
	if kind != taskHold && l.Task.Attempt > taskAttempts {
		kind = taskComplete // so that what it is failed for is kept
	}

	var err error
	switch kind {
	case taskHold:
		// It stays so.
	case taskForget:
		time.Sleep(3 * time.Millisecond)
		if err := v.store.Complete(ctx, l); !errors.Is(err, task.ErrLeaseLost) && !errors.Is(err, task.ErrCancelled) {
			if err == nil {
				v.wrong("%v has completed task %s, whose lease had run out", o, id)
			}

			return err
		}
	case taskComplete:
		return v.complete(ctx, o, l)
	default:
		// Released first: as soon as the store knows of it, another operation may claim the task.
		v.release(o, l)
		f := task.Failure{Message: "by " + o.by()}
		switch kind {
		case taskFail:
			err = v.store.Fail(ctx, l, f, task.FailOptions{RetryIn: time.Millisecond})
		case taskBury:
			err = v.store.Fail(ctx, l, f, task.FailOptions{Dead: true})
		case taskSnooze:
			err = v.store.Snooze(ctx, l, 2*time.Millisecond)
		}
	}
	if errors.Is(err, task.ErrCancelled) {
		kind, err = taskSnooze, nil // which says nothing of the task
	}
	if err != nil {
		return fmt.Errorf("task %s: %w", id, err)
	}

	return v.done(ctx, o, kind, id)
}

// complete completes a task with the key of the operation, and some with tasks that come next.
func (v *taskVictim) complete(ctx context.Context, o *taskOp, l task.Lease) error {
	var then []task.Spec
	if o.n%3 == 0 {
		_, err := v.store.Heartbeat(ctx, l)
		if errors.Is(err, task.ErrLeaseLost) && o.kind == taskForget {
			return v.done(ctx, o, taskSnooze, l.Task.ID)
		}
		if err != nil && !errors.Is(err, task.ErrCancelled) {
			return fmt.Errorf("heartbeat of task %s: %w", l.Task.ID, err)
		}
	}
	if o.enqueues {
		then = v.script.specs(o)
	}

	// As in settle, before the store makes it free.
	v.release(o, l)
	results, err := v.store.CompleteMarked(ctx, l, v.mark(o, taskComplete, l.Task.ID), then...)

	// The task was cancelled, or its lease has run out, before it was completed. The operation is done all the same, and
	// its mark says nothing of the task.
	if errors.Is(err, task.ErrCancelled) || errors.Is(err, task.ErrLeaseLost) && o.kind == taskForget {
		return v.done(ctx, o, taskSnooze, l.Task.ID)
	}
	if err != nil {
		return fmt.Errorf("completing task %s: %w", l.Task.ID, err)
	}
	v.enqueued(o, then, results)
	v.state.Lock()
	defer v.state.Unlock()

	// The number says how many were completed before, which tells claims that were begun earlier from later ones.
	v.ended[l.Task.ID] = len(v.ended)

	return nil
}

// done sets the key of an operation whose work is done.
func (v *taskVictim) done(ctx context.Context, o *taskOp, kind taskKind, id string) error {
	if _, err := v.store.EnqueueMarked(ctx, v.mark(o, kind, id)); err != nil {
		return fmt.Errorf("setting the key: %w", err)
	}
	v.spent.Add(300)

	return nil
}

// cancel cancels a task that an earlier operation may have enqueued.
func (v *taskVictim) cancel(ctx context.Context, o *taskOp) error {
	gen := v.spec.Gen // older ones have other ids
	id, kind := taskID(gen, o.cancels, 0), taskCancel
	if old := v.script.task(gen, o.cancels); old.brief || old.queue == taskHeld { // which is to stay, or not to
		return v.enqueue(ctx, o)
	}

	// Whoever holds it loses it with that.
	v.state.Lock()
	delete(v.held, id)
	v.state.Unlock()

	switch err := v.store.Cancel(ctx, id); {
	// It was never enqueued, or is finished. The mark says nothing of it then.
	case errors.Is(err, holdfast.ErrNotFound), errors.Is(err, task.ErrState):
		kind = taskSnooze
	case err != nil:
		return fmt.Errorf("cancelling task %s: %w", id, err)
	}

	return v.done(ctx, o, kind, id)
}

// taskRead examines the store, and tells the marks and all tasks.
func taskRead(c *check, e holdfast.Engine, emit func(commits.Found)) error {
	examinations, err := task.Examine(e)
	if err != nil {
		return fmt.Errorf("examining: %w", err)
	}

	// Examine looks at the keys themselves, before opening changes any of them.
	for _, x := range examinations {
		for _, problem := range x.Problems {
			c.wrong("examined: %s", problem)
		}
	}
	now := time.Now()
	// A clock that stands, so that nothing moves.
	s, err := openTasks(e, task.Options{Level: c.spec.Level, Now: func() time.Time { return now }})
	if err != nil {
		return fmt.Errorf("opening the store: %w", err)
	}
	err = s.db.View(context.Background(), func(tx *kv.Tx) error {
		for key, value := range tx.Bucket(taskMarks).All() {
			emit(commits.NewFound(string(key), value))
		}
		return nil
	})
	if err == nil {
		// What was due by now is moved, so that the state of a task does not depend on when it is looked at.
		err = s.Tick(context.Background())
	}
	if err == nil {
		err = taskList(c, s.Store, emit)
	}

	return errors.Join(err, s.Close())
}

// taskList tells all tasks, and where what is listed and counted disagrees.
func taskList(c *check, s *task.Store, emit func(commits.Found)) error {
	ctx := context.Background()
	queues, err := s.Queues(ctx)
	if err != nil {
		return err
	}

	uniques := map[string]string{}
	var entries []commits.Found // and marks that are tasks
	for _, q := range queues {
		listed := 0
		for cursor := ""; ; {
			tasks, next, err := s.List(ctx, task.Filter{Queue: q.Name, Cursor: cursor, Limit: 1000})
			if err != nil {
				return err
			}

			for _, t := range tasks {
				listed++
				if q.Name == taskMarks {
					entries = append(entries, commits.NewFound(t.ID, t.Payload))
					continue
				}

				// Of tasks that are not finished, no two may have the same unique text.
				if other := uniques[t.Unique]; t.Unique != "" && !t.State.Finished() {
					if uniques[t.Unique] = t.ID; other != "" && other != t.ID {
						c.wrong("tasks %s and %s have the same unique text", other, t.ID)
					}
				}
				entries = append(entries, taskEntry(t))
			}
			if cursor = next; next == "" {
				break
			}
		}

		counted := 0
		for _, n := range q.Counts {
			counted += n
		}
		if listed != counted {
			c.wrong("queue %q has %d tasks, and %d are listed", q.Name, counted, listed)
		}
	}
	slices.SortFunc(entries, func(a, b commits.Found) int { return strings.Compare(a.Key, b.Key) })

	for _, e := range entries { // in an order that does not hang on states
		emit(e)
	}

	return nil
}
