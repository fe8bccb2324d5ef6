package task

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Claim takes waiting tasks, and returns when that has reached the store's level. They are the caller's until their
// leases end. Without Wait it may return none. With it, it waits until there is one, and returns ctx's error if that
// ends before, ErrClosed if the store is closed, ErrPoisoned if the engine fails. A queue that has no tasks yet may
// be named.
func (s *Store) Claim(ctx context.Context, o ClaimOptions) ([]Lease, error) {
	if len(o.Queues) == 0 {
		o.Queues = []string{DefaultQueue}
	}
	if o.N == 0 {
		o.N = 1
	}
	if o.Lease == 0 {
		o.Lease = DefaultLease
	}
	if o.N < 0 || o.Lease < 0 {
		return nil, s.bad("claim", "%d tasks for %v", o.N, o.Lease)
	}
	for _, name := range append(slices.Clone(o.Queues), o.Worker) {
		if what := names.Wrong(name, MaxNameSize); what != "" {
			return nil, s.bad("claim", "a queue or worker %s", what)
		}
	}
	if slices.Contains(o.Queues, "") {
		o.Queues = slices.Clone(o.Queues)
		for i, name := range o.Queues {
			if name == "" {
				o.Queues[i] = DefaultQueue
			}
		}
	}
	level, err := s.at(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.Leave()

	// From the first time that it waits on, the call stands in its queues, and takes its place there again each time. A
	// queue that was made for that alone is dropped at the end.
	var w *waiter
	var by *queue // has woken w
	defer func() {
		if w != nil {
			s.turn.Lock()
			defer s.turn.Unlock()
			for _, name := range o.Queues {
				s.drop(name)
			}
		}
	}()
	has := true // the turn: the engine may panic
	give := func() {
		if has {
			has = false
			s.turn.Give()
		}
	}
	defer give()
	for {
		var leases []Lease
		d, err := s.try(level, func(x *tx) (err error) {
			leases, err = x.claim(&o)
			return err
		})
		if by != nil { // another takes what is left there: this call may have taken a task of another queue
			s.wake(by)
			by = nil
		}
		if errors.Is(err, holdfast.ErrFull) && !errors.Is(err, holdfast.ErrPoisoned) && o.N > 1 {
			o.N /= 2 // a smaller commit may be admitted
			continue
		}
		if err != nil || len(leases) > 0 || !o.Wait {
			give()
			if err == nil && len(leases) > 0 {
				err = d.Wait()
			}
			if err != nil {
				return nil, err
			}
			return leases, nil
		}
		if s.life.Closed() {
			return nil, holdfast.ErrClosed
		}
		if w == nil {
			w = &waiter{woken: make(chan *queue, 1)}
		}

		// It waits before it gives up the turn: a task that is enqueued from then on finds it waiting.
		s.wait(w, o.Queues)
		give()
		by = nil
		select {
		case by = <-w.woken:
			err = s.take(ctx)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			s.unwait(w, by)
			return nil, err
		}
		has = true
		by.woken--
	}
}

// claim claims up to o.N tasks, and no more than fit in ClaimBytes.
func (x *tx) claim(o *ClaimOptions) (leases []Lease, err error) {
	s, size := x.s, 0
	for _, name := range o.Queues {
		q := s.queues[name]
		for q != nil && len(leases) < o.N {
			l, err := x.comesNext(q)
			if err != nil {
				return nil, err
			}
			if l == nil {
				break
			}
			first := l.window.Items[0]
			t := first.t
			if t == nil {
				if t, err = s.listed(l.place(&first)); err != nil {
					return nil, err
				}
			}
			to := *t
			to.State, to.Attempt, to.Started, to.Worker = byte(Running), t.Attempt+1, x.now, strings.Clone(o.Worker)
			to.Token, to.Lease, to.Until, to.until = s.next(), o.Lease, after(x.now, o.Lease), 0

			// It is read before it is claimed: what does not fit any more has not been tried.
			full, err := s.full(&to)
			if err != nil {
				return nil, err
			}
			if size += full.bytes(); size > claimBytes && len(leases) > 0 {
				return leases, nil
			}
			x.start(l)
			x.put(t, &to)
			leases = append(leases, Lease{full, to.Token, date(to.Until)})
		}
	}
	return leases, nil
}

// bytes is how much of a task there is that can be large.
func (t *Task) bytes() int {
	n := len(t.Payload) + len(t.Output)
	for i := range t.Failures {
		n += len(t.Failures[i].Message) + len(t.Failures[i].Stack)
	}
	return n
}

// start counts a start for the rates of a lane and its queue.
func (x *tx) start(l *lane) {
	q := l.q
	count := func(starts *format.Starts, r Rate, key string) {
		if r.N <= 0 {
			return
		}

		// The rate is counted in memory at once. If the commit fails, the functions in other undo what was counted.
		was := *starts
		x.other = append(x.other, func() { *starts = was })
		*starts = started(was, r, x.now)
		x.key = x.s.keys.Rate(x.key, q.name, key)
		x.set(x.key, starts.Append(nil))
	}
	count(&q.starts, q.o.Rate, "")
	if l.key != "" {
		count(&l.starts, q.o.KeyRate, l.key)
	}
}

// leased returns the task of a lease that is valid.
func (s *Store) leased(op string, l *Lease) (*task, error) {
	t, err := s.find(op, l.Task.ID)
	switch {
	case errors.Is(err, holdfast.ErrNotFound):
		return nil, s.fail(op, ErrLeaseLost, nil, "", "task %.80q is not there any more", l.Task.ID)
	case err != nil:
		return nil, err
	case t.Token != l.Token || l.Token == 0:
		return nil, s.fail(op, ErrLeaseLost, nil, "", "task %s was claimed again, or is not the lease's", t.id())
	case t.state() == Cancelled:
		return nil, s.fail(op, ErrCancelled, nil, "give up what is in hand", "task %s", t.id())
	case t.state() != Running:
		return nil, s.fail(op, ErrLeaseLost, nil, "", "task %s is %s", t.id(), t.state())
	// By the monotonic clock of this process: if the machine's clock is set, no lease gets longer or shorter.
	case s.running[t.num].until <= s.elapsed:
		return nil, s.fail(op, ErrLeaseLost, nil, "", "the lease of task %s ran out", t.id())
	}
	return t, nil
}

// each makes a change to the tasks of leases, all that are valid in one commit.
func (s *Store) each(ctx context.Context, op string, leases []Lease, f func(x *tx, i int, t *task) error) error {
	lost := &LeaseErrors{Errs: make([]error, len(leases))}
	failed := false
	err := s.change(ctx, func(x *tx) error {
		for i := range leases {
			t, err := s.leased(op, &leases[i])
			if errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrCancelled) {
				lost.Errs[i], failed = err, true
				continue
			}
			if err == nil {
				err = f(x, i, t)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && failed {
		return lost
	}
	return err
}

// Heartbeat extends leases by their length, from now on, and returns them as they are then: zero where the error, a
// [*LeaseErrors], has one for it. ErrCancelled: the task was cancelled. ErrLeaseLost: it is not the caller's any more.
func (s *Store) Heartbeat(ctx context.Context, leases ...Lease) ([]Lease, error) {
	out := make([]Lease, len(leases))
	err := s.each(ctx, "heartbeat", leases, func(x *tx, i int, t *task) error {
		to := *t
		to.Until, to.until = after(x.now, t.Lease), 0
		x.put(t, &to)
		out[i] = leases[i]
		out[i].Until = date(to.Until)
		out[i].Task.LeaseUntil = out[i].Until
		return nil
	})
	var lost *LeaseErrors
	if err != nil && !errors.As(err, &lost) {
		return nil, err
	}
	return out, err
}

// SetOutput sets the output of a running task: its result or its progress. Errors are those of Heartbeat, and
// ErrTooLarge.
func (s *Store) SetOutput(ctx context.Context, l Lease, output []byte) error {
	return s.each(ctx, "set output", []Lease{l}, func(x *tx, _ int, t *task) error { return x.setOutput(t, output) })
}

func (x *tx) setOutput(t *task, output []byte) error {
	s := x.s
	if len(output) > MaxPayloadSize {
		return s.fail("set output", holdfast.ErrTooLarge, nil, "", "%d bytes, the limit is %d", len(output), MaxPayloadSize)
	}
	to := *t
	key := s.keys.Of(nil, format.TableOutputs, t.num)
	switch to.Output = nil; {
	case len(output) > format.InlineSize:
		to.Flags |= format.BigOutput
		x.set(key, output)
	default:
		if t.Flags&format.BigOutput != 0 {
			to.Flags &^= format.BigOutput
			x.set(key, nil)
		}
		if len(output) > 0 {
			to.Output = slices.Clone(output)
		}
	}
	x.put(t, &to)
	return nil
}

// Complete says that tasks are done, and returns when that has reached the store's level. Errors are those of
// Heartbeat; the tasks of leases that are valid are completed even if others are not.
func (s *Store) Complete(ctx context.Context, leases ...Lease) error {
	return s.each(ctx, "complete", leases, func(x *tx, _ int, t *task) error { return x.finish(t, Completed) })
}

// CompleteThen completes a task, and in the same commit enqueues the tasks that come next. These may run after the task
// itself. If the lease is lost, nothing is changed. To write something else in the commit, use [Tx.Complete].
func (s *Store) CompleteThen(ctx context.Context, l Lease, then ...Spec) (results []Result, err error) {
	if err := s.check(then); err != nil {
		return nil, err
	}
	if err := s.change(ctx, func(x *tx) (err error) {
		results, err = x.complete(&l, then)
		return err
	}); err != nil {
		return nil, err
	}
	return results, nil
}

// complete completes a task, and enqueues others whose specs have been checked.
func (x *tx) complete(l *Lease, then []Spec) ([]Result, error) {
	t, err := x.s.leased("complete", l)
	if err != nil {
		return nil, err
	}
	if err := x.finish(t, Completed); err != nil {
		return nil, err
	}
	return x.enqueue(then)
}

// Fail says that an attempt has failed. Errors are those of Heartbeat; ErrBadOption: RetryIn is negative.
func (s *Store) Fail(ctx context.Context, l Lease, f Failure, o FailOptions) error {
	return s.each(ctx, "fail", []Lease{l}, func(x *tx, _ int, t *task) error { return x.fail(t, f, o) })
}

func (x *tx) fail(t *task, f Failure, o FailOptions) error {
	if o.RetryIn < 0 {
		return x.s.bad("fail", "a retry in %v", o.RetryIn)
	}
	wait := o.RetryIn
	if wait == 0 {
		wait = backoff(t)
	}
	return x.failed(t, f, o, wait)
}

// backoff is how long t waits after its attempt.
func backoff(t *task) time.Duration {
	// The wait doubles with each attempt. Half of it is random, so that what failed together does not come back together.
	d := t.First
	for i := 1; i < t.Attempt && d < t.Max; i++ {
		// Doubling a large wait could overflow: beyond half of the maximum it does not matter any more.
		d = min(d, t.Max/2+1) * 2
	}
	if d = min(d, t.Max); d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2+1)
}

// failed ends an attempt that has failed; the next one is after wait.
func (x *tx) failed(t *task, f Failure, o FailOptions, wait time.Duration) error {
	to := *t
	cut := func(text string) string {
		return strings.ToValidUTF8(strings.Clone(text[:min(len(text), MaxFailureSize)]), "")
	}

	// Only the last failures are kept, or a task that fails for weeks would grow without bound.
	kept := t.Failures[max(len(t.Failures)-MaxFailures+1, 0):]
	to.Failures = append(slices.Clone(kept), format.Failure{Attempt: t.Attempt, Time: x.now, Message: cut(f.Message),
		Stack: cut(f.Stack)})
	if o.Dead || t.Attempt >= t.MaxAttempts {
		return x.finishAs(t, &to, Dead)
	}
	x.putBack(t, &to, wait)
	return nil
}

// putBack changes a task from t to to, which runs again after wait.
func (x *tx) putBack(t, to *task, wait time.Duration) {
	to.State = byte(Waiting)
	if wait > 0 {
		to.Due, to.State = after(x.now, wait), byte(Scheduled)
		to.Flags |= format.Delayed
	}
	x.put(t, to)
}

// Snooze puts a task back for d. The attempt does not count. Errors are those of Fail.
func (s *Store) Snooze(ctx context.Context, l Lease, d time.Duration) error {
	return s.each(ctx, "snooze", []Lease{l}, func(x *tx, _ int, t *task) error { return x.snooze(t, d) })
}

func (x *tx) snooze(t *task, d time.Duration) error {
	if d < 0 {
		return x.s.bad("snooze", "for %v", d)
	}
	to := *t
	to.Attempt--
	x.putBack(t, &to, d)
	return nil
}
