package task

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// on makes a change to the task of an id.
func (s *Store) on(ctx context.Context, op, id string, f func(x *tx, t *task) error) error {
	return s.change(ctx, func(x *tx) error {
		t, err := s.find(op, id)
		if err != nil {
			return err
		}
		return f(x, t)
	})
}

// Cancel ends a task that is not finished. If it is running, its worker learns so from the next call with its lease.
// For the store it is no longer running: the next of its sequence may begin. Cancelling again does nothing. ErrState:
// it is completed or dead.
func (s *Store) Cancel(ctx context.Context, id string) error {
	return s.on(ctx, "cancel", id, (*tx).cancel)
}

func (x *tx) cancel(t *task) error {
	switch t.state() {
	case Cancelled:
		return nil
	case Completed, Dead:
		return x.s.fail("cancel", ErrState, nil, "", "task %s is %s", t.id(), t.state())
	}
	return x.finish(t, Cancelled)
}

// Retry lets a dead or cancelled task run again, as if for the first time: at once, at the end of its sequence,
// without waiting for the tasks that it was to run after. ErrState: it is neither dead nor cancelled. ErrExists:
// another task has its unique text by now.
func (s *Store) Retry(ctx context.Context, id string) error {
	if err := s.toldAll(ctx); err != nil {
		return err
	}
	return s.on(ctx, "retry", id, (*tx).retry)
}

// toldAll returns when those that run after tasks that have ended have been told: they are not to be taken for those
// that will run after a task that is retried.
func (s *Store) toldAll(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	all := s.ended == none
	if s.leave(); all {
		return nil
	}
	return s.Tick(ctx)
}

func (x *tx) retry(t *task) error {
	s := x.s
	if t.state() != Dead && t.state() != Cancelled {
		return s.fail("retry", ErrState, nil, "retry what is dead or cancelled", "task %s is %s", t.id(), t.state())
	}
	to := *t
	to.State, to.Attempt, to.At, to.Due, to.Finished, to.Removal = byte(Waiting), 0, 0, x.now, 0, 0

	// Another task may have taken the unique text after this one had ended.
	if t.Unique != "" {
		id, num, err := x.holder(t.Unique)
		if err != nil {
			return err
		}
		if num != 0 && num != t.num {
			return s.fail("retry", ErrExists, nil, "", "task %s has the unique text of task %s", id, t.id())
		}
		if t.UniqueFor == 0 {
			x.take(t.Unique, t.id(), t.num, 0)
			to.Flags |= format.HasUnique
		}
	}
	if t.Sequence != "" {
		first, err := x.first(t.Sequence)
		if err != nil {
			return err
		}
		if first != nil {
			to.State = byte(Blocked)
		}

		// It gets a new turn at the end: those that came behind it have been let go on.
		x.turn(&to, s.next())
	}
	x.put(t, &to)
	return nil
}

// RetryAll retries the dead tasks of a queue, and returns how many there were. Those whose unique text another task
// has stay dead. It makes many commits: after an error some are retried. ErrNotFound: there is no such queue.
func (s *Store) RetryAll(ctx context.Context, queue string) (n int, err error) {
	q, err := s.known(ctx, "retry", queue)
	if err != nil {
		return 0, err
	}
	if err := s.toldAll(ctx); err != nil {
		return 0, err
	}

	// Each commit begins behind the place where the one before has stopped: those that stay dead are not looked at again.
	at, done := format.Place{}, 0
	for more := true; more; n += done {
		if err := s.change(ctx, func(x *tx) error {
			found, _, err := s.places(q, Dead, at.Time, at.Task, never, chunk)
			if err != nil {
				return err
			}
			done = 0
			for _, p := range found {
				t, err := s.listed(p)
				if err != nil {
					return err
				}
				if err = x.retry(t); err == nil {
					done++
				} else if !errors.Is(err, ErrExists) {
					return err
				}
				at = p
			}
			at.Task++
			more = len(found) == chunk
			return nil
		}); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Delete removes a task that does not run. One that is not finished is cancelled first. ErrState: it runs.
func (s *Store) Delete(ctx context.Context, id string) error {
	return s.on(ctx, "delete", id, (*tx).delete)
}

func (x *tx) delete(t *task) error {
	switch {
	case t.state() == Running:
		return x.s.fail("delete", ErrState, nil, "cancel it first", "task %s is running", t.id())
	case t.state().Finished():
		x.remove(t)
		return nil
	}
	to := *t
	to.Keep = -1
	return x.finishAs(t, &to, Cancelled)
}

// known returns a queue that has tasks or options.
func (s *Store) known(ctx context.Context, op, name string) (*queue, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return s.lookUp(op, name)
}

func (s *Store) lookUp(op, name string) (*queue, error) {
	if name == "" {
		name = DefaultQueue
	}
	if q := s.queues[name]; q != nil && q.there() {
		return q, nil
	}
	return nil, s.fail(op, holdfast.ErrNotFound, nil, "", "there is no queue %.80q", name)
}

// there reports whether q has tasks or options.
func (q *queue) there() bool { return q.set || q.counts != [len(q.counts)]int{} }

// SetQueue sets the options of a queue, which need not have tasks yet. They hold from then on: running tasks
// continue. What the options say of retention holds for tasks that finish later. ErrBadOption: a negative number, or
// a rate without a time.
func (s *Store) SetQueue(ctx context.Context, queue string, o QueueOptions) error {
	for _, r := range []Rate{o.Rate, o.KeyRate} {
		if r.N < 0 || r.Per < 0 || (r.N > 0) != (r.Per > 0) {
			return s.bad("set queue", "a rate of %d in %v", r.N, r.Per)
		}
	}
	if o.Concurrency < 0 || o.KeyConcurrency < 0 {
		return s.bad("set queue", "a concurrency of %d, and %d by key", o.Concurrency, o.KeyConcurrency)
	}
	return s.setQueue(ctx, "set queue", queue, true, func(k *kept) { k.Options = o })
}

// Pause stops claims of a queue's tasks until Resume, across restarts too, and returns when that has reached the
// store's level. Running tasks continue, and claims that wait go on waiting. A queue that has no tasks yet may be
// named.
func (s *Store) Pause(ctx context.Context, queue string) error {
	return s.setQueue(ctx, "pause", queue, true, func(k *kept) { k.Paused = true })
}

// Resume ends what Pause has begun, and lets claims that wait have the tasks. ErrNotFound: there is no such queue.
func (s *Store) Resume(ctx context.Context, queue string) error {
	return s.setQueue(ctx, "resume", queue, false, func(k *kept) { k.Paused = false })
}

func (s *Store) setQueue(ctx context.Context, op, name string, anew bool, change func(*kept)) error {
	if name == "" {
		name = DefaultQueue
	}
	if what := names.Wrong(name, MaxNameSize); what != "" {
		return s.bad(op, "the queue %s", what)
	}
	level, err := s.at(ctx)
	if err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	d, err := s.setQueueNow(op, name, level, anew, change)
	if err != nil {
		return err
	}
	return d.Wait()
}

// setQueueNow is setQueue with the turn and the lock, which it gives back.
func (s *Store) setQueueNow(op, name string, level holdfast.Level, anew bool, change func(*kept)) (durable, error) {
	defer s.turn.Give() // the engine may panic
	q, err := s.lookUp(op, name)
	if err != nil && !anew {
		return durable{}, err
	}
	if q == nil {
		q = s.queue(name)
	}
	k := kept{q.o, q.paused}
	change(&k)
	d, err := s.try(level, func(x *tx) error {
		value, err := json.Marshal(k)
		x.set(s.keys.Key(nil, format.TableQueues, name), value)
		return err
	})
	if err != nil {
		return durable{}, err
	}
	q.o, q.paused, q.set, q.held = k.Options, k.Paused, true, 0
	for _, l := range q.lanes {
		s.review(l)
	}
	s.wake(q)
	s.setAlarm(q)
	return d, nil
}

// info describes a queue.
func (s *Store) info(q *queue) (QueueInfo, error) {
	i := QueueInfo{Name: q.name, Options: q.o, Paused: q.paused, Counts: q.count()}
	if err := s.readLanes(q, func(*lane) {}); err != nil {
		return i, err
	}
	l := q.next()
	at, err := s.awayBefore(q, l)
	switch {
	case at != nowhere:
		i.Next = date(at.Time)
	case l != nil:
		i.Next = date(l.window.Items[0].Time)
	}
	return i, err
}

func (q *queue) count() map[State]int {
	counts := make(map[State]int, len(q.counts)-1)
	for _, state := range States() {
		counts[state] = q.counts[state]
	}
	return counts
}

// Queue describes the state of a queue, from memory. What it counts may not be durable yet. ErrNotFound: there is none
// of that name, with tasks or options.
func (s *Store) Queue(ctx context.Context, queue string) (QueueInfo, error) {
	if err := s.enter(ctx); err != nil {
		return QueueInfo{}, err
	}
	defer s.leave()
	q, err := s.lookUp("queue", queue)
	if err != nil {
		return QueueInfo{}, err
	}
	return s.info(q)
}

// Queues describes all queues that have tasks or options, in the order of their names, as Queue does each: all at one
// moment.
func (s *Store) Queues(ctx context.Context) (list []QueueInfo, err error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	for _, q := range s.queues {
		if q.there() {
			info, err := s.info(q)
			if err != nil {
				return nil, err
			}
			list = append(list, info)
		}
	}
	slices.SortFunc(list, func(a, b QueueInfo) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Count returns how many tasks of a queue are in each state. Errors are those of Queue.
func (s *Store) Count(ctx context.Context, queue string) (map[State]int, error) {
	info, err := s.Queue(ctx, queue)
	return info.Counts, err
}
