package task_test

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// evidence is what those who work on a store know of its tasks, across crashes of it.
type evidence struct {
	clock *clock
	say   func(noted) // tells another process what is noted; nil for none

	mu     sync.Mutex
	notes  int      // so many
	ids    []string // in the order in which they were made
	tasks  map[string]*known
	tokens map[uint64]string // of all leases
	found  error             // what is wrong
	count  struct{ enqueued, claimed, completed, lost int }
}

// known is what is known of a task. What was begun may have happened; what is acknowledged has.
type known struct {
	spec  task.Spec
	mates []string // enqueued in the same call
	done  string   // the task that was completed in the same call, if any

	acked bool       // it was enqueued
	ended task.State // acknowledged: Completed, Cancelled or Dead
	since int        // when that was noted
	maybe []task.State

	token       uint64        // of the lease that is held, 0 for none
	from, until time.Duration // that was given after from, and ends after until
	given       time.Duration // and was given before this
}

// noted is one thing that is known from now on.
type noted struct {
	What  string
	ID    string        `json:",omitempty"`
	Spec  *task.Spec    `json:",omitempty"`
	Mates []string      `json:",omitempty"`
	Done  string        `json:",omitempty"` // the task that is completed with that, if any
	State task.State    `json:",omitempty"`
	Token uint64        `json:",omitempty"`
	From  time.Duration `json:",omitempty"` // when a lease was given or extended, at the earliest
	At    time.Duration `json:",omitempty"` // when it was given, at the latest; or how much time passes
	Notes int           `json:",omitempty"` // since the call began that has returned this
	Text  string        `json:",omitempty"`
}

// quiet is a logger for what is made to fail.
var quiet = slog.New(slog.DiscardHandler)

func newEvidence(c *clock) *evidence {
	return &evidence{clock: c, tasks: map[string]*known{}, tokens: map[uint64]string{}}
}

// note notes something. The first contradiction is found.
func (e *evidence) note(n noted) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noteLocked(n)
}

func (e *evidence) noteLocked(n noted) {
	if e.say != nil {
		e.say(n)
	}
	e.notes++
	k := e.tasks[n.ID]
	if k == nil && n.ID != "" && n.What != "makes" {
		if e.say == nil { // otherwise the other process may know it
			e.wrong("task %q is %s, and nobody enqueued it", n.ID, n.What)
		}
		return
	}
	switch n.What {
	case "wrong":
		e.found = cmp.Or(e.found, errors.New(n.Text))
	case "time": // passes
		e.clock.move(n.At, 0)
	case "makes":
		e.ids = append(e.ids, n.ID)
		e.tasks[n.ID] = &known{spec: *n.Spec, mates: n.Mates, done: n.Done}
	case "made":
		k.acked = true
		e.count.enqueued++
	case "claimed":
		// What has returned later may have been done earlier: only what is wrong in either order is.
		if k.token != 0 && n.At < k.until && k.given < n.From+task.DefaultLease {
			e.wrong("task %q is claimed between %v and %v, and was between %v and %v", n.ID, n.From, n.At, k.from, k.given)
		}
		if other := e.tokens[n.Token]; other != "" {
			e.wrong("tasks %q and %q have the same token %d", n.ID, other, n.Token)
		}
		if k.ended != 0 && k.since <= e.notes-n.Notes {
			e.wrong("task %q is claimed, and was acknowledged as %v", n.ID, k.ended)
		}
		e.tokens[n.Token] = n.ID
		k.token, k.from, k.given, k.until = n.Token, n.From, n.At, n.From+task.DefaultLease
		e.count.claimed++
	case "extended":
		if k.token == n.Token {
			k.until = n.From + task.DefaultLease
		}
	case "given up":
		if k.token == n.Token || n.Token == 0 {
			k.token = 0
		}
	case "ends": // perhaps
		k.maybe = append(k.maybe, n.State)
	case "ended":
		if k.ended != 0 && (k.ended != task.Cancelled || n.State != task.Cancelled) {
			e.wrong("task %q is %v, and was acknowledged as %v before", n.ID, n.State, k.ended)
		}
		if k.ended, k.since = n.State, e.notes; n.State == task.Completed {
			e.count.completed++
		}
	}
}

// wrong notes what is wrong, of which the first is kept. It is called with the lock held.
func (e *evidence) wrong(format string, args ...any) {
	e.noteLocked(noted{What: "wrong", Text: fmt.Sprintf(format, args...)})
}

// made and done are what goes with a task's enqueueing, and with its completions, by their tokens.
func made(tx *kv.Tx) *kv.Bucket { return tx.Bucket("made") }

func done(tx *kv.Tx, id string) *kv.Bucket { return tx.Bucket("done", id) }

// worker works on a store.
type worker struct {
	*evidence
	*rand.Rand
	s      *task.Store
	name   string // no other worker's, in any process
	made   int    // tasks
	full   bool   // the engine may refuse what it does
	leases []task.Lease
}

// locked runs f, which may read and change what is known.
func (e *evidence) locked(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// work does n things, or goes on until something fails if n is 0.
func (w *worker) work(n int) error {
	for i := 0; n == 0 || i < n; i++ {
		var err error
		switch w.IntN(12) {
		case 0, 1, 2, 3:
			err = w.enqueue()
		case 4:
			err = w.cancel()
		case 5:
			if w.IntN(4) == 0 {
				w.note(noted{What: "time", At: time.Duration(w.IntN(40)) * time.Second})
			}
			err = w.s.Tick(ctx)
		default:
			if len(w.leases) < 3 {
				err = w.claim(1 + w.IntN(4))
			} else {
				err = w.settle()
			}
		}
		if err != nil && !(w.full && errors.Is(err, holdfast.ErrFull)) {
			return err
		}
	}
	return nil
}

// specs makes some tasks, which are to be enqueued together, when task from is completed if it is not empty. Those with
// a sequence have one that is the worker's own, so their order is known.
func (w *worker) specs(from string) (specs []task.Spec) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var mates []string
	for range 1 + w.IntN(3) {
		s := task.Spec{ID: fmt.Sprintf("%s-%d", w.name, w.made), Queue: someQueues[w.IntN(len(someQueues))], Kind: "k",
			Payload: make([]byte, w.IntN(200)), Key: fmt.Sprint("key", w.IntN(3)), Priority: int8(w.IntN(3))}
		switch w.IntN(8) {
		case 0, 1:
			s.Sequence = w.name
		case 2, 3:
			if len(w.ids) > 0 && from == "" {
				s.After = []string{w.ids[len(w.ids)-1-w.IntN(min(len(w.ids), 20))]}
			}
		case 4:
			s.Unique = fmt.Sprint("unique", w.IntN(3))
		case 5:
			s.Delay = time.Duration(w.IntN(60)) * time.Second
		}
		w.made++
		specs, mates = append(specs, s), append(mates, s.ID)
	}
	for i := range specs {
		w.noteLocked(noted{What: "makes", ID: specs[i].ID, Spec: &specs[i], Mates: mates, Done: from})
	}
	return specs
}

// with puts the keys that go with tasks into the transaction that enqueues them.
func with(tx *kv.Tx, specs []task.Spec) error {
	for _, s := range specs {
		if err := made(tx).Put([]byte(s.ID), nil); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) enqueue() error {
	specs := w.specs("")
	var results []task.Result
	err := w.s.DB().Update(ctx, func(tx *kv.Tx) (err error) {
		if err := with(tx, specs); err != nil {
			return err
		}
		results, err = w.s.In(tx).Enqueue(specs...)
		return err
	})
	if errors.Is(err, holdfast.ErrNotFound) || errors.Is(err, task.ErrState) { // the one that it runs after is not there
		return nil
	}
	if err != nil {
		return fmt.Errorf("enqueueing: %w", err)
	}
	w.enqueued(specs, results)
	return nil
}

// enqueued notes what was acknowledged.
func (w *worker) enqueued(specs []task.Spec, results []task.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, r := range results {
		s, other := specs[i], w.tasks[r.ID]
		switch {
		case !r.Existing && r.ID == s.ID:
			w.noteLocked(noted{What: "made", ID: s.ID})
		case r.Existing && other == nil && w.say != nil: // the other process knows it
		case !r.Existing || s.Unique == "" || other == nil || other.spec.Unique != s.Unique:
			w.wrong("%+v was told %+v", s, r)
		}
	}
}

// claim claims tasks, and checks that nobody else holds them and that they may run.
func (w *worker) claim(most int) error {
	from, notes := w.clock.Elapsed(), 0
	w.locked(func() { notes = w.notes })
	leases, err := w.s.Claim(ctx, task.ClaimOptions{Queues: someQueues, N: most, Worker: w.name})
	if err != nil {
		return fmt.Errorf("claiming: %w", err)
	}
	to := w.clock.Elapsed()
	for _, l := range leases {
		var before []string // which must be finished
		w.locked(func() {
			id := l.Task.ID
			w.noteLocked(noted{What: "claimed", ID: id, Token: l.Token, From: from, At: to, Notes: w.notes + 1 - notes})
			for _, other := range w.ids {
				if other == id {
					break
				}
				if o := w.tasks[other]; l.Task.Sequence != "" && o.acked && o.spec.Sequence == l.Task.Sequence {
					before = append(before, other)
				}
			}
		})
		for i, other := range append(before, l.Task.After...) {
			t, err := w.s.Get(ctx, other)
			if err != nil {
				return fmt.Errorf("what comes before %q: %w", l.Task.ID, err)
			}
			if !t.State.Finished() || i >= len(before) && t.State != task.Completed {
				w.locked(func() { w.wrong("task %q runs, and comes after %q, which is %v", l.Task.ID, other, t.State) })
			}
		}
	}
	w.leases = append(w.leases, leases...)
	return nil
}

// settle does something with the lease that is held longest.
func (w *worker) settle() (err error) {
	l := w.leases[0]
	id, ended := l.Task.ID, task.State(0)
	w.leases = w.leases[1:]
	giveUp := func(s task.State) {
		w.note(noted{What: "given up", ID: id, Token: l.Token})
		if ended = s; s != 0 {
			w.note(noted{What: "ends", ID: id, State: s})
		}
	}
	switch w.IntN(10) {
	case 0:
		giveUp(0)
		err = w.s.Fail(ctx, l, task.Failure{Message: "why"}, task.FailOptions{RetryIn: time.Second})
	case 1:
		giveUp(task.Dead)
		err = w.s.Fail(ctx, l, task.Failure{Message: "why"}, task.FailOptions{Dead: true})
	case 2:
		giveUp(0)
		err = w.s.Snooze(ctx, l, time.Duration(w.IntN(5))*time.Second)
	case 3: // forgotten
	case 4:
		from := w.clock.Elapsed()
		if _, err = w.s.Heartbeat(ctx, l); err == nil {
			w.leases = append(w.leases, l)
			w.note(noted{What: "extended", ID: id, Token: l.Token, From: from})
		}
	case 5:
		if err = w.s.SetOutput(ctx, l, []byte("output")); err == nil {
			w.leases = append(w.leases, l)
		}
	default:
		giveUp(task.Completed)
		var then []task.Spec
		if w.IntN(4) == 0 {
			then = w.specs(id)
		}
		err = w.complete(l, then)
	}
	switch {
	case errors.Is(err, task.ErrLeaseLost), errors.Is(err, task.ErrCancelled):
		w.locked(func() { w.count.lost++ })
		return nil
	case err != nil:
		return fmt.Errorf("ending %q: %w", id, err)
	case ended != 0:
		w.note(noted{What: "ended", ID: id, State: ended})
	}
	return nil
}

// complete completes a task, and enqueues others, with the keys that go with that.
func (w *worker) complete(l task.Lease, then []task.Spec) error {
	var results []task.Result
	err := w.s.DB().Update(ctx, func(tx *kv.Tx) (err error) {
		if results, err = w.s.In(tx).Complete(l, then...); err != nil {
			return err
		}
		if err := done(tx, l.Task.ID).Put(fmt.Append(nil, l.Token), nil); err != nil {
			return err
		}
		return with(tx, then)
	})
	if err == nil {
		w.enqueued(then, results)
	}
	return err
}

func (w *worker) cancel() error {
	id := ""
	w.locked(func() {
		if len(w.ids) > 0 && w.IntN(3) == 0 {
			id = w.ids[len(w.ids)-1-w.IntN(min(len(w.ids), 20))]
		}
	})
	if id == "" {
		return nil
	}
	w.note(noted{What: "ends", ID: id, State: task.Cancelled})
	w.note(noted{What: "given up", ID: id})
	switch err := w.s.Cancel(ctx, id); {
	case err == nil:
		w.note(noted{What: "ended", ID: id, State: task.Cancelled})
	case !errors.Is(err, holdfast.ErrNotFound) && !errors.Is(err, task.ErrState):
		return fmt.Errorf("cancelling %q: %w", id, err)
	}
	return nil
}

// check compares what is there with what is known, where nobody works.
func (e *evidence) check(s *task.Store, eng holdfast.Engine) error {
	if e.found != nil {
		return e.found
	}
	fixed, err := eng.Snapshot() // the store works in the background
	if err != nil {
		return err
	}
	defer fixed.Close()
	examinations, err := task.Examine(fixed)
	if err != nil || len(examinations) != 1 || len(examinations[0].Problems) > 0 {
		return fmt.Errorf("examined: %+v, %w", examinations, err)
	}
	return s.DB().View(ctx, func(tx *kv.Tx) error { return e.compare(s, tx) })
}

// compare compares tasks, and what was written with them, with what is known.
func (e *evidence) compare(s *task.Store, tx *kv.Tx) error {
	for id, k := range e.tasks {
		t, err := s.Get(ctx, id)
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return fmt.Errorf("%q: %w", id, err)
		}
		there := err == nil
		times, err := done(tx, id).Count()
		if err != nil {
			return err
		}
		before, err := int64(0), error(nil)
		if k.done != "" {
			before, err = done(tx, k.done).Count()
		}
		switch {
		case err != nil:
			return err
		case k.acked && !there:
			return fmt.Errorf("task %q is lost", id)
		case k.ended != 0 && t.State != k.ended:
			return fmt.Errorf("task %q was acknowledged as %v, and is %v", id, k.ended, t.State)
		case times > 1 || (times == 1) != (t.State == task.Completed):
			return fmt.Errorf("task %q is %v, and was completed %d times", id, t.State, times)
		case !there:
			continue
		case k.done != "" && before == 0:
			return fmt.Errorf("task %q is there, and task %q, which was completed with it, is not", id, k.done)
		case t.State.Finished() && !slices.Contains(k.maybe, t.State) && (t.State != task.Cancelled || t.After == nil):
			return fmt.Errorf("task %q is %v, and nobody has ended it so", id, t.State)
		}
		for _, mate := range k.mates {
			if _, err := made(tx).Get([]byte(mate)); err != nil {
				return fmt.Errorf("task %q is there, and what was written with it is not: %w", id, err)
			}
		}
		if k.acked = true; t.State.Finished() {
			k.ended = t.State
		}
	}
	return nil
}

// drain completes all tasks, as time passes: none waits for ever.
func (e *evidence) drain(s *task.Store) error {
	w := &worker{evidence: e, Rand: rand.New(rand.NewPCG(1, 2)), s: s, name: "drain"}
	for idle := 0; idle < 100; idle++ {
		w.note(noted{What: "time", At: time.Minute})
		if err := s.Tick(ctx); err != nil {
			return err
		}
		for before := -1; len(w.leases) > before; {
			before = len(w.leases)
			if err := w.claim(100); err != nil {
				return err
			}
		}
		var group sync.WaitGroup
		errs := make([]error, len(w.leases))
		for i, l := range w.leases {
			w.note(noted{What: "ends", ID: l.Task.ID, State: task.Completed})
			group.Go(func() {
				if errs[i] = w.complete(l, nil); errs[i] == nil {
					w.note(noted{What: "ended", ID: l.Task.ID, State: task.Completed})
				}
			})
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if len(w.leases) > 0 {
			w.leases, idle = nil, 0
		}
		if n, err := unfinished(s); err != nil || n == 0 {
			return cmp.Or(err, e.found)
		}
	}
	n, err := unfinished(s)
	return fmt.Errorf("%d tasks wait for ever, %w", n, err)
}

// unfinished is how many tasks are not finished.
func unfinished(s *task.Store) (n int, err error) {
	queues, err := s.Queues(ctx)
	for _, q := range queues {
		for state, count := range q.Counts {
			if !state.Finished() {
				n += count
			}
		}
	}
	return n, err
}
