package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/store/task"
)

// Tasks are the tasks of a namespace. Its methods do what those of task.Store do; it is a worker.Client and a
// worker.Enqueuer. Workers learn that their tasks are cancelled with the next heartbeat, a third of a lease later.
type Tasks struct {
	c               *Client
	namespace, path string
}

// Tasks are the tasks of the namespace.
func (n *Namespace) Tasks() *Tasks { return &Tasks{c: n.c, namespace: n.id, path: n.path} }

// Enqueue adds tasks, all or none. Tasks without an id get one of the client.
//
// If the answer to a try is lost, and the ids then exist, the tasks were enqueued by that try if they are the same.
// Only a task that is not kept once it is finished can be enqueued twice so, if it has run meanwhile.
func (t *Tasks) Enqueue(ctx context.Context, specs ...task.Spec) ([]task.Result, error) {
	if err := notSpecs(specs); err != nil {
		return nil, err
	}
	specs = withIDs(specs)
	r := &request{op: "task enqueue", method: "POST", path: t.path + "/tasks", body: api.Enqueue{Tasks: newTasks(specs)},
		safe: true}
	var done api.EnqueueResult
	err := t.c.call(ctx, r, &done)
	if code(err) == api.CodeExists && r.lost {
		if results, ok := t.enqueued(ctx, specs); ok {
			return results, nil
		}
	}

	return results(r.op, len(specs), done, err)
}

// notSpecs says what JSON would change in specs.
func notSpecs(specs []task.Spec) error {
	for _, s := range specs {
		texts := append([]string{s.ID, s.Queue, s.Kind, s.Key, s.Sequence, s.Unique}, s.After...)
		if err := notText("task enqueue", holdfast.ErrBadOption, texts...); err != nil {
			return err
		}
	}

	return nil
}

// withIDs are specs that all have ids.
func withIDs(specs []task.Spec) []task.Spec {
	specs = slices.Clone(specs)
	for i := range specs {
		specs[i].ID = cmp.Or(specs[i].ID, newID())
	}

	return specs
}

// newTasks are specs as the API has them.
func newTasks(specs []task.Spec) []api.NewTask {
	list := make([]api.NewTask, len(specs))
	for i := range specs {
		list[i] = api.FromSpec(&specs[i])
	}

	return list
}

// results checks that an answer has a result for each of n tasks. If not, it is not known what was done.
func results(op string, n int, done api.EnqueueResult, err error) ([]task.Result, error) {
	if err != nil {
		return nil, err
	}
	if len(done.Results) != n {
		return nil, &Error{Op: op, Status: 200, Unknown: true, Detail: fmt.Sprintf("%d results for %d tasks",
			len(done.Results), n)}
	}

	list := make([]task.Result, n)
	for i, r := range done.Results {
		list[i] = task.Result(r)
	}

	return list, nil
}

// enqueued looks whether tasks are there as a try whose answer was lost has enqueued them: each by its id, or, with a
// unique text that another task has, by that.
func (t *Tasks) enqueued(ctx context.Context, specs []task.Spec) ([]task.Result, bool) {
	list := make([]task.Result, len(specs))
	for i, s := range specs {
		got, err := t.Get(ctx, s.ID)
		switch {
		case err == nil:
			if got.Kind != s.Kind || got.Queue != cmp.Or(s.Queue, task.DefaultQueue) || got.Key != s.Key ||
				got.Unique != s.Unique || got.Sequence != s.Sequence || !bytes.Equal(got.Payload, s.Payload) {
				return nil, false
			}
			list[i].ID = s.ID
		case code(err) == api.CodeNotFound && s.Unique != "":
			// All or none were enqueued, and some were; so another task had the text. If it is finished by now there is one
			// more, as if this call had come later.
			alone, err := t.Enqueue(ctx, s)
			if err != nil {
				return nil, false
			}
			list[i] = alone[0]
		default:
			return nil, false
		}
	}

	return list, true
}

// Claim takes waiting tasks. They are the caller's until their leases end. Without Wait it may return none. With it, it
// waits until there is one, also for a server that cannot be reached. Tasks that were claimed by a try whose answer was
// lost come again when their leases have run out. Those of an answer that is larger than [Options].MaxResponse, or
// cannot be read, are given back, and there is an error.
func (t *Tasks) Claim(ctx context.Context, o task.ClaimOptions) ([]task.Lease, error) {
	pause := t.c.pause()
	for {
		asked := time.Now()
		r := &request{op: "task claim", method: "POST", path: t.path + "/tasks/claim", safe: true, always: o.Wait}
		if o.Wait {
			r.wait = waitFor(ctx)
		}
		r.body = api.ClaimTasks{Queues: o.Queues, N: o.N, LeaseMS: api.MS(o.Lease), Worker: o.Worker,
			WaitMS: api.MS(r.wait)}
		giveBack := func(refs []api.LeaseRef) {
			t.c.returns(ctx, r.op, t.path+"/leases/return", api.LeaseRefs{Leases: refs}, len(refs))
		}
		r.refused = func(answer io.Reader) { giveBack(leasesIn(answer)) }
		var got api.Leases
		if err := t.c.call(ctx, r, &got); err != nil {
			return nil, err
		}
		if len(got.Leases) == 0 && o.Wait {
			if !t.c.again(ctx, pause, asked, r.wait) {
				return nil, t.c.ended(ctx, r, nil)
			}
			continue
		}

		leases := make([]task.Lease, len(got.Leases))
		for i := range got.Leases {
			l := &got.Leases[i]

			// A task that cannot be read is of no use to the caller. All of the answer are given back, so that another can
			// have them before the leases end.
			claimed, err := l.Task.Store()
			if err != nil {
				refs := make([]api.LeaseRef, len(got.Leases))
				for i, l := range got.Leases {
					refs[i] = api.LeaseRef{ID: l.Task.ID, Token: l.Token}
				}
				giveBack(refs)

				return nil, &Error{Op: r.op, Status: 200, Detail: err.Error()}
			}
			leases[i] = task.Lease{Task: claimed, Token: l.Token, Until: l.Until}
		}

		return leases, nil
	}
}

// ref names a lease, as requests do.
func ref(l task.Lease) api.LeaseRef { return api.LeaseRef{ID: l.Task.ID, Token: l.Token} }

// each does something with leases, each of which can fail for itself. The error is a *task.LeaseErrors then.
func (t *Tasks) each(ctx context.Context, what string, leases []task.Lease) (list []api.LeaseResult, lost bool,
	err error) {
	if len(leases) == 0 {
		return nil, false, holdfast.CheckContext(ctx)
	}

	var body api.LeaseRefs
	for _, l := range leases {
		body.Leases = append(body.Leases, ref(l))
	}
	r := &request{op: "task " + what, method: "POST", path: t.path + "/leases/" + what, body: body, safe: true}
	var got api.LeaseResults
	if err := t.c.call(ctx, r, &got); err != nil {
		return nil, r.lost, err
	}
	if len(got.Results) != len(leases) {
		return nil, r.lost, &Error{Op: r.op, Status: 200, Unknown: true,
			Detail: fmt.Sprintf("%d results for %d leases", len(got.Results), len(leases))}
	}

	return got.Results, r.lost, nil
}

// leaseErrors is the error of several leases, nil if none of them has one.
func leaseErrors(errs []error) error {
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}

	return &task.LeaseErrors{Errs: errs}
}

// Heartbeat extends leases by their length, from now on, and returns them as they are then: zero where the error, a
// *task.LeaseErrors, has one for it.
func (t *Tasks) Heartbeat(ctx context.Context, leases ...task.Lease) ([]task.Lease, error) {
	got, _, err := t.each(ctx, "heartbeat", leases)
	if err != nil {
		return nil, err
	}

	extended, errs := make([]task.Lease, len(got)), make([]error, len(got))
	for i, r := range got {
		if errs[i] = coded("task heartbeat", r.Code, r.Detail); errs[i] == nil {
			extended[i] = leases[i]
			extended[i].Until, extended[i].Task.LeaseUntil = r.Until, r.Until
		}
	}

	return extended, leaseErrors(errs)
}

// Complete says that tasks are done. Errors are those of Heartbeat; the tasks of leases that are valid are completed
// even if others are not.
func (t *Tasks) Complete(ctx context.Context, leases ...task.Lease) error {
	got, lost, err := t.each(ctx, "complete", leases)
	if err != nil {
		return err
	}

	errs := make([]error, len(got))
	for i, r := range got {
		if errs[i] = coded("task complete", r.Code, r.Detail); lost {
			errs[i] = t.settled(ctx, leases[i], errs[i], completed)
		}
	}

	return leaseErrors(errs)
}

// completed reports whether a task was completed under a lease.
func completed(got *task.Task, l task.Lease) bool {
	return got.State == task.Completed && (l.Task.Attempt == 0 || got.Attempt == l.Task.Attempt)
}

// settled looks, if a lease is lost after a try whose answer was lost, whether it was that try which has settled the
// task: nil then. What it looks like then done knows.
func (t *Tasks) settled(ctx context.Context, l task.Lease, err error, done func(*task.Task, task.Lease) bool) error {
	if code(err) != api.CodeLeaseLost {
		return err
	}
	if got, failed := t.Get(ctx, l.Task.ID); failed == nil && done(&got, l) {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		e.Unknown = true
	}

	return err
}

// CompleteThen completes a task, and in the same commit enqueues the tasks that come next.
func (t *Tasks) CompleteThen(ctx context.Context, l task.Lease, then ...task.Spec) ([]task.Result, error) {
	if err := notSpecs(then); err != nil {
		return nil, err
	}
	then = withIDs(then)
	r := &request{op: "task complete", method: "POST", path: t.path + "/leases/complete-then",
		body: api.CompleteTask{LeaseRef: ref(l), Then: newTasks(then)}, safe: true}
	var done api.EnqueueResult
	err := t.c.call(ctx, r, &done)
	if r.lost && err != nil && t.settled(ctx, l, err, completed) == nil {
		if list, ok := t.enqueued(ctx, then); ok {
			return list, nil
		}
	}

	return results(r.op, len(then), done, err)
}

// settle tells what became of a running task. It is safe to try again: the lease is lost once it is done.
func (t *Tasks) settle(ctx context.Context, what string, l task.Lease, body any,
	done func(*task.Task, task.Lease) bool) error {
	r := &request{op: "task " + what, method: "POST", path: t.path + "/leases/" + what, body: body, safe: true}
	err := t.c.call(ctx, r, nil)
	if r.lost {
		err = t.settled(ctx, l, err, done)
	}

	return err
}

// SetOutput sets the output of a running task.
func (t *Tasks) SetOutput(ctx context.Context, l task.Lease, output []byte) error {
	never := func(*task.Task, task.Lease) bool { return false } // the lease is not lost by it
	return t.settle(ctx, "output", l, api.TaskOutput{LeaseRef: ref(l), Output: slices.Concat([]byte{}, output)}, never)
}

// Fail says that an attempt has failed. With [Error].Unknown, task.ErrLeaseLost may mean that a try has said so whose
// answer was lost, and that the task does not show it any more. There is nothing to do: the task runs again, unless its
// attempts are used up.
func (t *Tasks) Fail(ctx context.Context, l task.Lease, f task.Failure, o task.FailOptions) error {
	// Cut as the store does it, so that it is known again after a lost answer, and fits into a request.
	cut := func(text string) string { return strings.ToValidUTF8(text[:min(len(text), task.MaxFailureSize)], "") }
	failure := api.TaskFailure{Message: cut(f.Message), Stack: cut(f.Stack)}
	body := api.FailTask{LeaseRef: ref(l), RetryInMS: api.MS(o.RetryIn), Dead: o.Dead, Failure: failure}
	return t.settle(ctx, "fail", l, body, func(got *task.Task, l task.Lease) bool {
		return slices.ContainsFunc(got.Failures, func(had task.Failure) bool {
			return had.Attempt == l.Task.Attempt && had.Message == failure.Message
		})
	})
}

// Snooze puts a task back for d; the attempt does not count. What is said of Fail holds here, too.
func (t *Tasks) Snooze(ctx context.Context, l task.Lease, d time.Duration) error {
	// Nothing else takes an attempt back.
	return t.settle(ctx, "snooze", l, api.SnoozeTask{LeaseRef: ref(l), ForMS: api.MS(d)},
		func(got *task.Task, l task.Lease) bool { return got.Attempt < l.Task.Attempt })
}

// Get returns what is known of a task. ErrNotFound: there is none with that id.
func (t *Tasks) Get(ctx context.Context, id string) (task.Task, error) {
	var got api.Task
	err := t.c.call(ctx, &request{op: "task get", method: "GET", path: t.task(id), safe: true}, &got)
	if err != nil {
		return task.Task{}, err
	}

	return got.Store()
}

// task is the path of a task.
func (t *Tasks) task(id string) string { return t.path + path("/tasks/%s", id) }

// List returns tasks that match a filter, and the cursor of the next list, "" if there are no more.
func (t *Tasks) List(ctx context.Context, f task.Filter) (tasks []task.Task, next string, err error) {
	v := url.Values{}
	for name, text := range map[string]string{"queue": f.Queue, "cursor": f.Cursor} {
		if text != "" {
			v.Set(name, text)
		}
	}
	if f.State != 0 {
		v.Set("state", f.State.String())
	}
	if f.Limit != 0 {
		v.Set("limit", strconv.Itoa(f.Limit))
	}
	var page api.Tasks
	err = t.c.call(ctx, &request{op: "task list", method: "GET", path: t.path + "/tasks", query: v, safe: true}, &page)

	for i := range page.Tasks {
		got, err := page.Tasks[i].Store()
		if err != nil {
			return nil, "", err
		}
		tasks = append(tasks, got)
	}

	return tasks, page.Next, err
}

// Cancel ends a task that is not finished. Cancelling again does nothing. task.ErrState: it is completed or dead.
func (t *Tasks) Cancel(ctx context.Context, id string) error {
	return t.c.call(ctx, &request{op: "task cancel", method: "POST", path: t.task(id) + "/cancel", safe: true}, nil)
}

// Retry lets a dead or cancelled task run again. If the answer is lost it is not tried again: the task may have failed
// for good once more by then.
func (t *Tasks) Retry(ctx context.Context, id string) error {
	return t.c.call(ctx, &request{op: "task retry", method: "POST", path: t.task(id) + "/retry"}, nil)
}

// Delete removes a task that does not run. ErrNotFound with [Error].Unknown: a try whose answer was lost has removed
// it.
func (t *Tasks) Delete(ctx context.Context, id string) error {
	return t.c.call(ctx, &request{op: "task delete", method: "DELETE", path: t.task(id), safe: true}, nil)
}

// Queues describes all queues that have tasks or options, in the order of their names.
func (t *Tasks) Queues(ctx context.Context) ([]task.QueueInfo, error) {
	var list []api.Queue
	err := t.c.call(ctx, &request{op: "queues", method: "GET", path: t.path + "/queues", safe: true}, &list)
	if err != nil {
		return nil, err
	}

	to := make([]task.QueueInfo, len(list))
	for i := range list {
		if to[i], err = list[i].Store(); err != nil {
			return nil, err
		}
	}

	return to, nil
}

// Periodics describes all periodic tasks, in the order of their names. Programs that have the store open themselves add
// them; a server only shows them.
func (t *Tasks) Periodics(ctx context.Context) ([]task.PeriodicState, error) {
	var list []api.Periodic
	err := t.c.call(ctx, &request{op: "periodic tasks", method: "GET", path: t.path + "/periodic", safe: true}, &list)
	if err != nil {
		return nil, err
	}

	to := make([]task.PeriodicState, len(list))
	for i, p := range list {
		to[i] = task.PeriodicState(p)
	}

	return to, nil
}

// Queue describes the state of a queue. ErrNotFound: there is none of that name, with tasks or options.
func (t *Tasks) Queue(ctx context.Context, queue string) (task.QueueInfo, error) {
	var q api.Queue
	if err := t.c.call(ctx, &request{op: "queue", method: "GET", path: t.queue(queue), safe: true}, &q); err != nil {
		return task.QueueInfo{}, err
	}

	return q.Store()
}

// Count returns how many tasks of a queue are in each state. Errors are those of Queue.
func (t *Tasks) Count(ctx context.Context, queue string) (map[task.State]int, error) {
	q, err := t.Queue(ctx, queue)
	return q.Counts, err
}

// queue is the path of a queue.
func (t *Tasks) queue(name string) string { return t.path + path("/queues/%s", name) }

// SetQueue sets the options of a queue, which need not have tasks yet.
func (t *Tasks) SetQueue(ctx context.Context, queue string, o task.QueueOptions) error {
	return t.c.call(ctx, &request{op: "set queue", method: "PUT", path: t.queue(queue), body: api.FromQueueOptions(o),
		safe: true}, nil)
}

// Pause stops claims of a queue's tasks until Resume, across restarts too. Running tasks continue.
func (t *Tasks) Pause(ctx context.Context, queue string) error {
	return t.c.call(ctx, &request{op: "pause queue", method: "POST", path: t.queue(queue) + "/pause", safe: true}, nil)
}

// Resume ends what Pause has begun. ErrNotFound: there is no such queue.
func (t *Tasks) Resume(ctx context.Context, queue string) error {
	return t.c.call(ctx, &request{op: "resume queue", method: "POST", path: t.queue(queue) + "/resume", safe: true}, nil)
}

// RetryAll retries the dead tasks of a queue, and returns how many there were. If the answer is lost it is not tried
// again, as with Retry.
func (t *Tasks) RetryAll(ctx context.Context, queue string) (int, error) {
	var n api.Counted
	err := t.c.call(ctx, &request{op: "retry queue", method: "POST", path: t.queue(queue) + "/retry"}, &n)

	return n.Count, err
}
