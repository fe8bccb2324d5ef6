package v1

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/store/task"
)

// maxWait is how long a claim waits at most.
const maxWait = time.Minute

// maxClaim is how many tasks or messages one claim gives at most.
const maxClaim = 1000

// leastWait is how long a claim of messages takes at least before it has none, in milliseconds: they are read
// meanwhile.
const leastWait = 20

// giveBack is the timeout for giving back what was claimed for a client that has disconnected.
const giveBack = 10 * time.Second

// tasks declares how tasks are enqueued, claimed and finished.
func (s *service) tasks() {
	const tag = "tasks"
	declare(s, operation{id: "enqueue-tasks", method: http.MethodPost, path: inNamespace + "/tasks", role: auth.Write,
		tag: tag, write: true, summary: "Enqueue tasks, all or none",
		codes: []string{api.CodeExists, api.CodeState, api.CodeNotFound}},
		on((*call).tasks, func(c *call, t *task.Store, in *struct{ Body api.Enqueue }) (out api.EnqueueResult, err error) {
			results, err := t.Enqueue(c.ctx, api.Specs(in.Body.Tasks)...)

			return enqueued(results), err
		}))
	declare(s, operation{id: "claim-tasks", method: http.MethodPost, path: inNamespace + "/tasks/claim", role: auth.Write,
		tag: tag, write: true, stream: true, summary: "Claim tasks under leases, and wait for the first",
		about: "There are none in the answer if none came in time, or the server stops. " +
			mostBytes("payloads, outputs and failures", "task", task.ClaimBytes) + " Claim again for more."},
		func(c *call, in *struct{ Body api.ClaimTasks }) (out api.Leases, err error) {
			o := task.ClaimOptions{Queues: in.Body.Queues, N: min(in.Body.N, maxClaim), Lease: api.Duration(in.Body.LeaseMS),
				Worker: in.Body.Worker, Wait: in.Body.WaitMS > 0}
			t, err := c.tasks()
			if err != nil {
				return out, err
			}
			leases, err := waitFor(c, in.Body.WaitMS, func(ctx context.Context) ([]task.Lease, error) { return t.Claim(ctx, o) })
			if err != nil {
				return out, err
			}

			out.Leases = make([]api.Lease, len(leases))
			for i, l := range leases {
				out.Leases[i] = api.Lease{Task: api.FromTask(&l.Task), Token: l.Token, Until: l.Until}
			}

			// If the client has gone, nobody works on the tasks, and others would wait until the leases run out.
			c.unless = func(ctx context.Context) error { return errors.Join(giveTasksBack(ctx, t, leases)...) }

			return out, nil
		})
	declare(s, operation{id: "return-tasks", method: http.MethodPost, path: inNamespace + "/leases/return",
		role: auth.Write, tag: tag, write: true, summary: "Give back tasks that no worker has seen",
		about: "They can be claimed again at once, and the attempt does not count. What became of each lease is in the " +
			"answer."},
		on((*call).tasks, func(c *call, t *task.Store, in *struct{ Body api.LeaseRefs }) (out api.LeaseResults, err error) {
			leases := in.Body.Store()

			return leaseResults(nil, len(leases), &task.LeaseErrors{Errs: giveTasksBack(c.ctx, t, leases)})
		}))
	declare(s, operation{id: "complete-tasks", method: http.MethodPost, path: inNamespace + "/leases/complete",
		role: auth.Write, tag: tag, write: true, summary: "Complete tasks in hand",
		about: "What became of each lease is in the answer; one that is lost does not keep the others from being completed."},
		on((*call).tasks, func(c *call, t *task.Store, in *struct{ Body api.LeaseRefs }) (out api.LeaseResults, err error) {
			leases := in.Body.Store()

			return leaseResults(nil, len(leases), t.Complete(c.ctx, leases...))
		}))
	s.leases()
	s.eachTask()
	s.queues()
}

// giveTasksBack puts tasks back that no worker has seen, and returns an error for each, nil if all is well. They share
// commits.
func giveTasksBack(ctx context.Context, t *task.Store, leases []task.Lease) []error {
	errs := make([]error, len(leases))
	var all sync.WaitGroup

	// All at once, because commits that are asked for together share a sync.
	for i, l := range leases {
		all.Go(func() { errs[i] = t.Snooze(ctx, l, 0) })
	}
	all.Wait()

	return errs
}

// leases declares what is done with single leases, but for completing.
func (s *service) leases() {
	const tag = "tasks"
	lost := []string{api.CodeLeaseLost, api.CodeCancelled}
	declare(s, operation{id: "heartbeat", method: http.MethodPost, path: inNamespace + "/leases/heartbeat",
		role: auth.Write, tag: tag, summary: "Extend leases", write: true,
		about: "What became of each lease is in the answer: when it ends now, or why it could not be extended."},
		on((*call).tasks, func(c *call, t *task.Store, in *struct{ Body api.LeaseRefs }) (out api.LeaseResults, err error) {
			leases, err := t.Heartbeat(c.ctx, in.Body.Store()...)

			return leaseResults(leases, len(in.Body.Leases), err)
		}))
	declare(s, operation{id: "complete-task-then", method: http.MethodPost, path: inNamespace + "/leases/complete-then",
		role: auth.Write, tag: tag, write: true, summary: "Complete a task, and enqueue those that come next",
		about: "Both are one commit: if the lease is lost, nothing is enqueued.",
		codes: append([]string{api.CodeExists, api.CodeState, api.CodeNotFound}, lost...)},
		on((*call).tasks, func(c *call, t *task.Store, in *struct{ Body api.CompleteTask }) (
			out api.EnqueueResult, err error) {
			results, err := t.CompleteThen(c.ctx, in.Body.LeaseRef.Store(), api.Specs(in.Body.Then)...)
			return enqueued(results), err
		}))
	declare(s, operation{id: "fail-task", method: http.MethodPost, path: inNamespace + "/leases/fail", role: auth.Write,
		tag: tag, write: true, summary: "Say that an attempt has failed", codes: lost,
		about: "The task is tried again after a while, or is dead if it has used up its attempts."},
		on((*call).tasks, func(c *call, t *task.Store, in *struct{ Body api.FailTask }) (none, error) {
			return none{}, t.Fail(c.ctx, in.Body.LeaseRef.Store(), in.Body.Failure.Store(),
				task.FailOptions{RetryIn: api.Duration(in.Body.RetryInMS), Dead: in.Body.Dead})
		}))
	declare(s, operation{id: "snooze-task", method: http.MethodPost, path: inNamespace + "/leases/snooze",
		role: auth.Write, tag: tag, write: true, summary: "Put a task back for a while; the attempt does not count",
		codes: lost},
		on((*call).tasks, func(c *call, t *task.Store, in *struct{ Body api.SnoozeTask }) (none, error) {
			return none{}, t.Snooze(c.ctx, in.Body.LeaseRef.Store(), api.Duration(in.Body.ForMS))
		}))
	declare(s, operation{id: "set-task-output", method: http.MethodPost, path: inNamespace + "/leases/output",
		role: auth.Write, tag: tag, write: true, summary: "Set the output of a task in hand", codes: lost},
		on((*call).tasks, func(c *call, t *task.Store, in *struct{ Body api.TaskOutput }) (none, error) {
			return none{}, t.SetOutput(c.ctx, in.Body.LeaseRef.Store(), in.Body.Output)
		}))
}

// eachTask declares what is done with tasks by their ids, and lists of them.
func (s *service) eachTask() {
	const tag = "tasks"
	missing := []string{api.CodeNotFound}
	type id struct {
		ID string `path:"id" is:"task" doc:"The task's id."`
	}
	declare(s, operation{id: "list-tasks", method: http.MethodGet, path: inNamespace + "/tasks", role: auth.Read, tag: tag,
		summary: "List tasks, queue by queue and state by state", codes: missing,
		about: "Tasks that change while a list is read page by page may be in it twice or not at all. " +
			mostBytes("payloads, outputs and failures", "task", task.ClaimBytes)},
		func(c *call, in *struct {
			Queue  string `query:"queue" is:"any queue" doc:"Tasks of this queue only."`
			State  string `query:"state" enum:"waiting,scheduled,blocked,running,completed,cancelled,dead" doc:"Tasks in this state only."`
			Cursor string `query:"cursor" doc:"What the page before has as next."`
			Limit  int    `query:"limit" is:"natural" doc:"How many tasks at most: 100 if absent, never more than 1000."`
		}) (out api.Tasks, err error) {
			out.Tasks = []api.Task{}
			f := task.Filter{Queue: in.Queue, Cursor: in.Cursor, Limit: min(in.Limit, 1000)}
			if in.State != "" {
				if f.State, err = task.ParseState(in.State); err != nil {
					return out, err
				}
			}
			t, err := c.findTasks()

			// A namespace without tasks has an empty list. A queue that is asked for by name must be there.
			if errors.Is(err, holdfast.ErrNotFound) && in.Queue == "" {
				return out, nil
			}
			if err != nil {
				return out, err
			}

			list, next, err := t.List(c.ctx, f)
			for i := range list {
				out.Tasks = append(out.Tasks, api.FromTask(&list[i]))
			}
			out.Next = next

			return out, err
		})
	declare(s, operation{id: "get-task", method: http.MethodGet, path: inNamespace + "/tasks/{id}", role: auth.Read,
		tag: tag, summary: "Describe a task", codes: missing},
		on((*call).findTasks, func(c *call, t *task.Store, in *id) (out api.Task, err error) {
			found, err := t.Get(c.ctx, in.ID)

			return api.FromTask(&found), err
		}))

	for _, do := range []struct {
		operation
		f func(*task.Store, context.Context, string) error
	}{
		{operation{id: "delete-task", method: http.MethodDelete, path: inNamespace + "/tasks/{id}",
			summary: "Remove a task that does not run"}, (*task.Store).Delete},
		{operation{id: "cancel-task", method: http.MethodPost, path: inNamespace + "/tasks/{id}/cancel",
			summary: "End a task that is not finished; cancelling again does nothing"}, (*task.Store).Cancel},
		{operation{id: "retry-task", method: http.MethodPost, path: inNamespace + "/tasks/{id}/retry",
			summary: "Let a dead or cancelled task run again"}, (*task.Store).Retry},
	} {
		do.role, do.tag, do.write = auth.Write, tag, true
		do.codes = []string{api.CodeNotFound, api.CodeState, api.CodeExists}
		declare(s, do.operation, on((*call).findTasks, func(c *call, t *task.Store, in *id) (none, error) {
			return none{}, do.f(t, c.ctx, in.ID)
		}))
	}
}

// queues declares what is done with queues.
func (s *service) queues() {
	const tag = "queues"
	missing := []string{api.CodeNotFound}
	type queue struct {
		Queue string `path:"queue" is:"queue" doc:"The queue."`
	}
	declare(s, operation{id: "list-queues", method: http.MethodGet, path: inNamespace + "/queues", role: auth.Read,
		tag: tag, summary: "List queues that have tasks or options, and how they are doing"},
		func(c *call, _ *none) ([]api.Queue, error) {
			return listed(c, (*task.Store).Queues, api.FromQueue)
		})
	declare(s, operation{id: "list-periodic", method: http.MethodGet, path: inNamespace + "/periodic", role: auth.Read,
		tag: tag, summary: "List periodic tasks, with their last and next ticks",
		about: "Programs that have the store open themselves add them; their next ticks are enqueued while one of these " +
			"runs."},
		func(c *call, _ *none) ([]api.Periodic, error) {
			return listed(c, (*task.Store).Periodics, func(p task.PeriodicState) api.Periodic { return api.Periodic(p) })
		})
	declare(s, operation{id: "get-queue", method: http.MethodGet, path: inNamespace + "/queues/{queue}", role: auth.Read,
		tag: tag, summary: "How a queue is doing", codes: missing},
		on((*call).findTasks, func(c *call, t *task.Store, in *queue) (out api.Queue, err error) {
			q, err := t.Queue(c.ctx, in.Queue)

			return api.FromQueue(q), err
		}))
	declare(s, operation{id: "set-queue", method: http.MethodPut, path: inNamespace + "/queues/{queue}", role: auth.Write,
		tag: tag, write: true, summary: "Set the options of a queue, which need not have tasks yet"},
		on((*call).tasks, func(c *call, t *task.Store, in *struct {
			queue
			Body api.QueueOptions
		}) (none, error) {
			return none{}, t.SetQueue(c.ctx, in.Queue, in.Body.Store())
		}))
	declare(s, operation{id: "pause-queue", method: http.MethodPost, path: inNamespace + "/queues/{queue}/pause",
		role: auth.Write, tag: tag, write: true, summary: "Let no task of a queue be claimed; those that run go on"},
		on((*call).tasks, func(c *call, t *task.Store, in *queue) (none, error) {
			return none{}, t.Pause(c.ctx, in.Queue)
		}))
	declare(s, operation{id: "resume-queue", method: http.MethodPost, path: inNamespace + "/queues/{queue}/resume",
		role: auth.Write, tag: tag, write: true, summary: "End a pause", codes: missing},
		on((*call).findTasks, func(c *call, t *task.Store, in *queue) (none, error) {
			return none{}, t.Resume(c.ctx, in.Queue)
		}))
	declare(s, operation{id: "retry-queue", method: http.MethodPost, path: inNamespace + "/queues/{queue}/retry",
		role: auth.Write, tag: tag, write: true, stream: true, summary: "Let the dead tasks of a queue run again",
		codes: missing},
		on((*call).findTasks, func(c *call, t *task.Store, in *queue) (out api.Counted, err error) {
			out.Count, err = t.RetryAll(c.ctx, in.Queue)

			return out, err
		}))
}

// listed is what the namespace's store of tasks lists, and nothing if it is not there.
func listed[S, T any](c *call, list func(*task.Store, context.Context) ([]S, error), to func(S) T) ([]T, error) {
	out := []T{}
	t, err := c.findTasks()
	if errors.Is(err, holdfast.ErrNotFound) {
		return out, nil
	}
	if err != nil {
		return nil, err
	}

	found, err := list(t, c.ctx)
	for _, x := range found {
		out = append(out, to(x))
	}

	return out, err
}

// mostBytes says in the document how much an answer has at most, whatever number is asked for.
func mostBytes(of, one string, limit int) string {
	return fmt.Sprintf("Whatever number is asked for, they have about %d MiB of %s at most, or there is one %s that is "+
		"larger.", limit>>20, of, one)
}

// waitFor calls claim with a context that ends when it has waited long enough, or the server stops; then nothing was
// claimed, and that is no error.
func waitFor[T any](c *call, waitMS int64, claim func(ctx context.Context) ([]T, error)) ([]T, error) {
	if waitMS < 0 {
		return nil, problem.BadRequest("wait_ms is %d", waitMS)
	}

	// Three ends of waiting: the server stops, the time has passed, the client is gone. Only the last is an error.
	ctx, cancel := c.stopping(c.ctx)
	defer cancel()

	ctx, cancelWait := context.WithTimeout(ctx, min(api.Duration(waitMS), maxWait))
	defer cancelWait()
	if waitMS == 0 { // it does not wait
		ctx = c.ctx
	}
	claimed, err := claim(ctx)
	if err != nil && ctx.Err() != nil && c.ctx.Err() == nil &&
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return nil, nil
	}

	return claimed, err
}

// enqueued are the results in the form of the API.
func enqueued(results []task.Result) api.EnqueueResult {
	out := api.EnqueueResult{Results: make([]api.Enqueued, len(results))}
	for i, r := range results {
		out.Results[i] = api.Enqueued(r)
	}

	return out
}

// leaseResults is what became of each of several leases, the ones that leases has for those with which all is well. An
// error that is not that of single leases is returned.
func leaseResults(leases []task.Lease, n int, err error) (api.LeaseResults, error) {
	out := api.LeaseResults{Results: make([]api.LeaseResult, n)}
	var each *task.LeaseErrors
	if err != nil && !errors.As(err, &each) {
		return out, err
	}

	for i := range out.Results {
		if each != nil && each.Errs[i] != nil {
			p := problem.Of(each.Errs[i])
			out.Results[i] = api.LeaseResult{Code: p.Code, Detail: p.Detail}
		} else if leases != nil {
			out.Results[i].Until = leases[i].Until
		}
	}

	return out, nil
}
