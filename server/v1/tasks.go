package v1

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/store/task"
)

// maxWait is how long a claim waits at most.
const maxWait = time.Minute

// giveBack is how long it may take to give back what was claimed for a client that is gone.
const giveBack = 10 * time.Second

func (s *service) tasks() {
	const tag = "tasks"
	declare(s, operation{id: "enqueue-tasks", method: http.MethodPost, path: inNamespace + "/tasks", role: auth.Write,
		tag: tag, write: true, summary: "Enqueue tasks, all or none",
		codes: []string{api.CodeExists, api.CodeState, api.CodeNotFound}},
		func(c *call, in *struct{ Body api.Enqueue }) (out api.EnqueueResult, err error) {
			t, err := c.data.Tasks(c.ctx, c.ns)
			if err != nil {
				return out, err
			}
			results, err := t.Enqueue(c.ctx, api.Specs(in.Body.Tasks)...)
			return enqueued(results), err
		})
	declare(s, operation{id: "claim-tasks", method: http.MethodPost, path: inNamespace + "/tasks/claim", role: auth.Write,
		tag: tag, write: true, stream: true, summary: "Claim tasks under leases, and wait for the first",
		about: "There are none in the answer if none came in time, or the server stops."},
		func(c *call, in *struct{ Body api.ClaimTasks }) (out api.Leases, err error) {
			o := task.ClaimOptions{Queues: in.Body.Queues, N: in.Body.N, Lease: api.Duration(in.Body.LeaseMS),
				Worker: in.Body.Worker, Wait: in.Body.WaitMS > 0}
			t, err := c.data.Tasks(c.ctx, c.ns)
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
			c.unless = func(ctx context.Context) error {
				var errs []error
				for _, l := range leases {
					errs = append(errs, t.Snooze(ctx, l, 0))
				}
				return errors.Join(errs...)
			}
			return out, nil
		})
	declare(s, operation{id: "complete-tasks", method: http.MethodPost, path: inNamespace + "/leases/complete",
		role: auth.Write, tag: tag, write: true, summary: "Complete tasks in hand",
		about: "What became of each lease is in the answer; one that is lost does not keep the others from being completed."},
		func(c *call, in *struct{ Body api.LeaseRefs }) (out api.LeaseResults, err error) {
			t, err := c.data.Tasks(c.ctx, c.ns)
			if err != nil {
				return out, err
			}
			leases := in.Body.Store()
			return leaseResults(nil, len(leases), t.Complete(c.ctx, leases...))
		})
}

// waitFor calls claim with a context that ends when it has waited long enough, or the server stops; then nothing was
// claimed, and that is no error.
func waitFor[T any](c *call, waitMS int64, claim func(ctx context.Context) ([]T, error)) ([]T, error) {
	if waitMS < 0 {
		return nil, bad("wait_ms is %d", waitMS)
	}
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
			p := problemOf(each.Errs[i])
			out.Results[i] = api.LeaseResult{Code: p.Code, Detail: p.Detail}
		} else if leases != nil {
			out.Results[i].Until = leases[i].Until
		}
	}
	return out, nil
}
