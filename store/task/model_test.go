package task_test

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task"
)

// model is what a store should hold, in plain Go, and what its calls should return. Its methods return the class of
// the error that the store's return.
type model struct {
	now     time.Time     // by the clock
	elapsed time.Duration // that has passed
	next    int           // the place of the next task in the order of enqueueing
	tasks   map[string]*modelTask
	queues  map[string]*modelQueue
	uniques map[string]modelUnique
}

// modelTask is a task. Its State is Waiting as long as it neither runs nor is finished: state tells which it is then.
type modelTask struct {
	task.Task
	place   int // in the order of enqueueing
	turn    int // in its sequence
	parents []*modelTask
	free    bool // it does not wait for them any more
	token   int  // of the last lease, 0 for none
	blocked bool // when that was last looked at
	ready   bool // it was due then, whatever the clock shows now
	delayed bool // it is due after a delay, not at a time
	removal time.Time
	length  time.Duration // of the lease
	ends    time.Duration // when the lease runs out
}

type modelQueue struct {
	task.QueueOptions
	paused bool
	set    bool // it is there without tasks
	starts []modelStart
}

// modelStart is when a task was claimed.
type modelStart struct {
	at  time.Duration
	key string
}

// modelUnique is whose a unique text is, and until when; for ever if that is zero: until the task is finished.
type modelUnique struct {
	id    string
	until time.Time
	d     time.Duration // for which it was asked
}

// modelLease is a lease that was given, and what the model knows it by.
type modelLease struct {
	task.Lease
	token int
}

func newModel(now time.Time) *model {
	return &model{now: now, tasks: map[string]*modelTask{}, queues: map[string]*modelQueue{},
		uniques: map[string]modelUnique{}}
}

// clone copies a model. Slices are never changed in place.
func (m *model) clone() *model {
	c := *m
	c.tasks, c.queues, c.uniques = copies(m.tasks), copies(m.queues), maps.Clone(m.uniques)
	for _, t := range c.tasks {
		t.parents = slices.Clone(t.parents)
		for i, p := range t.parents {
			if m.there(p) {
				t.parents[i] = c.tasks[p.ID]
			}
		}
	}
	return &c
}

// there reports whether a task has not been removed.
func (m *model) there(t *modelTask) bool { return m.tasks[t.ID] == t }

func copies[V any](m map[string]*V) map[string]*V {
	c := map[string]*V{}
	for k, v := range m {
		one := *v
		c[k] = &one
	}
	return c
}

// inOrder is the tasks in the order of enqueueing.
func (m *model) inOrder() []*modelTask {
	return slices.SortedFunc(maps.Values(m.tasks), func(a, b *modelTask) int { return a.place - b.place })
}

func (m *model) queue(name string) *modelQueue {
	q := m.queues[name]
	if q == nil {
		q = &modelQueue{}
		m.queues[name] = q
	}
	return q
}

// state is the state of a task now.
func (m *model) state(t *modelTask) task.State {
	switch {
	case t.State == task.Running || t.State.Finished():
		return t.State
	case t.blocked:
		return task.Blocked
	case t.ready:
		return task.Waiting
	}
	return task.Scheduled
}

// settle finds out who is blocked no more, and who is due.
func (m *model) settle() {
	for _, t := range m.tasks {
		if t.State != task.Waiting {
			continue
		}
		was := t.blocked
		if t.blocked = m.waits(t); was && !t.blocked {
			t.Due, t.ready = later(m.now, t.At), false
		}
		t.ready = t.ready || !t.Due.After(m.now)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// waits reports whether a task waits for others.
func (m *model) waits(t *modelTask) bool {
	for _, p := range t.parents {
		if m.there(p) && p.State != task.Completed && !t.free {
			return true
		}
	}
	for _, o := range m.tasks {
		if t.Sequence != "" && o.Sequence == t.Sequence && o.turn < t.turn && !o.State.Finished() {
			return true
		}
	}
	return false
}

// shown is a task as Get returns it.
func (m *model) shown(t *modelTask) task.Task {
	shown := t.Task
	shown.State, shown.After = m.state(t), nil
	for _, p := range t.parents {
		if !slices.Contains(shown.After, p.ID) {
			shown.After = append(shown.After, p.ID)
		}
	}
	return shown
}

func (m *model) enqueue(specs ...task.Spec) (results []task.Result, class error) {
	before, batch := m.clone(), map[string]bool{}
	defer func() {
		if class != nil {
			*m = *before
		}
	}()
	for _, spec := range specs {
		spec.Queue = cmp.Or(spec.Queue, task.DefaultQueue)
		if holder := m.holder(spec.Unique); holder != "" {
			results = append(results, task.Result{ID: holder, Existing: true})
			continue
		}
		if m.tasks[spec.ID] != nil {
			return nil, task.ErrExists
		}
		m.place(spec)
		batch[spec.ID] = true
		results = append(results, task.Result{ID: spec.ID})
	}
	if m.cyclic(maps.Clone(batch)) {
		return nil, task.ErrCycle
	}
	for _, t := range m.inOrder() {
		for _, parent := range t.After {
			p := m.tasks[parent]
			if p == nil && batch[t.ID] {
				return nil, holdfast.ErrNotFound
			}
			if batch[t.ID] {
				t.parents = append(t.parents, p)
			}
		}
		for _, p := range t.parents {
			if batch[t.ID] && (p.State == task.Cancelled || p.State == task.Dead) {
				return nil, task.ErrState
			}
		}
	}
	m.settle()
	return results, nil
}

// place puts a new task where it belongs.
func (m *model) place(spec task.Spec) {
	t := &modelTask{Task: task.Task{Spec: spec, State: task.Waiting, Created: m.now}, place: m.next,
		turn: m.next}
	m.next++
	if spec.Delay > 0 {
		t.At, t.delayed = m.now.Add(spec.Delay), true
	}
	t.Delay, t.Due = 0, later(m.now, t.At)
	t.MaxAttempts = cmp.Or(spec.MaxAttempts, task.DefaultMaxAttempts)
	t.Backoff.First = cmp.Or(spec.Backoff.First, task.DefaultFirstBackoff)
	t.Backoff.Max = cmp.Or(spec.Backoff.Max, max(task.DefaultMaxBackoff, t.Backoff.First))
	m.tasks[spec.ID] = t
	m.claimUnique(t)
	m.queue(spec.Queue)
}

func (m *model) claimUnique(t *modelTask) {
	if t.Unique == "" {
		return
	}
	u := modelUnique{id: t.ID, d: t.UniqueFor}
	if t.UniqueFor > 0 {
		u.until = m.now.Add(t.UniqueFor)
	}
	m.uniques[t.Unique] = u
}

// cyclic reports whether some of the tasks wait for each other.
func (m *model) cyclic(ids map[string]bool) bool {
	for n := 0; n != len(ids); {
		n = len(ids)
		maps.DeleteFunc(ids, func(id string, _ bool) bool {
			t := m.tasks[id]
			for other := range ids {
				o := m.tasks[other]
				if slices.Contains(t.After, other) || t.Sequence != "" && o.Sequence == t.Sequence && o.place < t.place {
					return false
				}
			}
			return true
		})
	}
	return len(ids) > 0
}

// finish ends a task.
func (m *model) finish(t *modelTask, s task.State) {
	q := m.queue(t.Queue)
	keep := cmp.Or(t.Keep, q.Keep, task.DefaultKeep)
	if s == task.Dead {
		keep = cmp.Or(q.KeepDead, forever)
	}
	t.State, t.Finished, t.LeaseUntil, t.removal = s, m.now, time.Time{}, m.now.Add(max(keep, 0))
	if u := m.uniques[t.Unique]; u.id == t.ID && u.until.IsZero() {
		delete(m.uniques, t.Unique)
	}
	if s != task.Completed {
		m.cancelBehind(t)
	}
	if keep < 0 {
		delete(m.tasks, t.ID)
	}
	m.settle()
}

// forever is longer than any test.
const forever = 50 * 365 * 24 * time.Hour

// cancelBehind cancels what runs after a task that will not be completed.
func (m *model) cancelBehind(parent *modelTask) {
	for _, t := range m.inOrder() {
		if t.State == task.Waiting && slices.Contains(t.parents, parent) && !t.free {
			t.Failures = append(slices.Clip(t.Failures), task.Failure{Time: m.now})
			m.finish(t, task.Cancelled)
		}
	}
}

// claim gives leases, with tokens from token on, for as many tasks as fit in most bytes. How many each has is in sizes.
func (m *model) claim(o task.ClaimOptions, token int, sizes map[string]int, most int) (list []task.Task) {
	queues := o.Queues
	if len(queues) == 0 {
		queues = []string{task.DefaultQueue}
	}
	for _, name := range queues {
		var ready []*modelTask
		for _, t := range m.tasks {
			if t.Queue == name && m.state(t) == task.Waiting {
				ready = append(ready, t)
			}
		}
		slices.SortFunc(ready, func(a, b *modelTask) int {
			return cmp.Or(int(b.Priority)-int(a.Priority), a.Due.Compare(b.Due), a.place-b.place)
		})
		for _, t := range ready {
			if len(list) < max(o.N, 1) && m.allowed(t) {
				if most -= sizes[t.ID]; most < 0 && len(list) > 0 {
					return list
				}
				m.start(t, o, token+len(list))
				list = append(list, m.shown(t))
			}
		}
	}
	return list
}

// allowed reports whether the limits of its queue let a task start.
func (m *model) allowed(t *modelTask) bool {
	q := m.queue(t.Queue)
	running, ofKey := 0, 0
	for _, o := range m.tasks {
		if o.State == task.Running && o.Queue == t.Queue {
			running++
			if o.Key == t.Key {
				ofKey++
			}
		}
	}
	starts := func(r task.Rate, key func(string) bool) (n int) {
		for _, s := range q.starts {
			if s.at+r.Per > m.elapsed && key(s.key) {
				n++
			}
		}
		return n
	}
	all, same := func(string) bool { return true }, func(key string) bool { return key == t.Key }
	return !q.paused && (q.Concurrency == 0 || running < q.Concurrency) &&
		(q.KeyConcurrency == 0 || t.Key == "" || ofKey < q.KeyConcurrency) &&
		(q.Rate.N == 0 || starts(q.Rate, all) < q.Rate.N) &&
		(q.KeyRate.N == 0 || t.Key == "" || starts(q.KeyRate, same) < q.KeyRate.N)
}

func (m *model) start(t *modelTask, o task.ClaimOptions, token int) {
	t.State, t.Started, t.Worker, t.token = task.Running, m.now, o.Worker, token
	t.length = cmp.Or(o.Lease, task.DefaultLease)
	t.Attempt++
	t.extend(m)
	q := m.queue(t.Queue)
	q.starts = append(slices.Clip(q.starts), modelStart{m.elapsed, t.Key})
}

func (t *modelTask) extend(m *model) { t.LeaseUntil, t.ends = m.now.Add(t.length), m.elapsed+t.length }

// held returns the task of a lease, or why it is not the caller's.
func (m *model) held(l modelLease) (*modelTask, error) {
	switch t := m.tasks[l.Task.ID]; {
	case t == nil || t.token != l.token || t.State != task.Running && t.State != task.Cancelled:
		return nil, task.ErrLeaseLost
	case t.State == task.Cancelled:
		return nil, task.ErrCancelled
	default:
		return t, nil
	}
}

// release puts a task back that ran.
func (m *model) release(t *modelTask, d time.Duration) {
	t.State, t.LeaseUntil, t.ready = task.Waiting, time.Time{}, true
	if d > 0 {
		t.Due, t.delayed, t.ready = m.now.Add(d), true, false
	}
	m.settle()
}

// failed ends an attempt.
func (m *model) failed(t *modelTask, f task.Failure, o task.FailOptions) {
	f.Attempt, f.Time = t.Attempt, m.now
	t.Failures = append(slices.Clip(t.Failures), f)
	t.Failures = t.Failures[max(0, len(t.Failures)-task.MaxFailures):]
	if o.Dead || t.Attempt >= t.MaxAttempts {
		m.finish(t, task.Dead)
		return
	}
	m.release(t, o.RetryIn)
}

func (m *model) cancel(id string) error {
	switch t := m.tasks[id]; {
	case t == nil:
		return holdfast.ErrNotFound
	case t.State == task.Cancelled:
		return nil
	case t.State.Finished():
		return task.ErrState
	default:
		m.finish(t, task.Cancelled)
		return nil
	}
}

// holder is whose a unique text is now, "" if it is nobody's.
func (m *model) holder(text string) string {
	u := m.uniques[text]
	if text != "" && (u.until.IsZero() || u.until.After(m.now)) {
		return u.id
	}
	return ""
}

func (m *model) retry(id string) error {
	t := m.tasks[id]
	switch {
	case t == nil:
		return holdfast.ErrNotFound
	case t.State != task.Dead && t.State != task.Cancelled:
		return task.ErrState
	case m.holder(t.Unique) != "" && m.holder(t.Unique) != id:
		return task.ErrExists
	}
	t.State, t.Attempt, t.Finished, t.Due, t.At = task.Waiting, 0, time.Time{}, m.now, time.Time{}
	t.free, t.ready, t.blocked, t.turn = true, false, false, m.next
	m.next++
	if t.UniqueFor == 0 {
		m.claimUnique(t)
	}
	m.settle()
	return nil
}

func (m *model) retryAll(queue string) (any, error) {
	n := 0
	if !m.known(queue) {
		return nil, holdfast.ErrNotFound
	}
	dead := m.inOrder()
	slices.SortStableFunc(dead, func(a, b *modelTask) int { return a.removal.Compare(b.removal) })
	for _, t := range dead {
		if t.Queue == queue && t.State == task.Dead && m.retry(t.ID) == nil {
			n++
		}
	}
	return n, nil
}

// known reports whether a queue has tasks or options.
func (m *model) known(queue string) bool {
	for _, t := range m.tasks {
		if t.Queue == queue {
			return true
		}
	}
	return m.queue(queue).set
}

// pause pauses a queue, or ends that.
func (m *model) pause(queue string, on bool) error {
	if !on && !m.known(queue) {
		return holdfast.ErrNotFound
	}
	m.queue(queue).paused, m.queue(queue).set = on, true
	return nil
}

func (m *model) remove(id string) error {
	t := m.tasks[id]
	switch {
	case t == nil:
		return holdfast.ErrNotFound
	case t.State == task.Running:
		return task.ErrState
	case t.State.Finished():
		delete(m.tasks, id)
	default:
		t.Keep = -1
		m.finish(t, task.Cancelled)
	}
	return nil
}

// jump is what becomes of stored times when the clock is set back.
func (m *model) jump(d time.Duration) {
	now := m.now.Add(d)
	for text, u := range m.uniques {
		if latest := now.Add(u.d); u.until.After(latest) {
			u.until = latest
			m.uniques[text] = u
		}
	}
	for _, t := range m.tasks {
		ahead, state := t.Finished.Sub(now), m.state(t)
		switch {
		case state == task.Scheduled && t.delayed:
			t.Due = t.Due.Add(d)
		case state == task.Waiting && t.Due.After(now):
			t.Due = now
		case state.Finished() && ahead > 0 && t.removal.Sub(t.Finished) < forever:
			t.Finished, t.removal = now, t.removal.Add(-ahead)
		}
	}
}

// tick does what is due.
func (m *model) tick() {
	for _, t := range m.inOrder() {
		if t.State == task.Running && t.ends <= m.elapsed {
			m.failed(t, task.Failure{Message: "its lease has run out"}, task.FailOptions{})
		}
	}
	maps.DeleteFunc(m.tasks, func(_ string, t *modelTask) bool {
		return t.State.Finished() && !t.removal.After(m.now)
	})
	maps.DeleteFunc(m.uniques, func(_ string, u modelUnique) bool { return !u.until.IsZero() && !u.until.After(m.now) })
	m.settle()
}

// reopen is what becomes of leases, of which no more is known than when they end by the clock, and how long they are.
func (m *model) reopen() {
	for _, t := range m.tasks {
		t.ends = m.elapsed + min(max(t.LeaseUntil.Sub(m.now), 0), t.length)
	}
	m.tick()
}

// counts counts the tasks of a queue.
func (m *model) counts(queue string) map[task.State]int {
	counts := map[task.State]int{}
	for _, s := range task.States() {
		counts[s] = 0
	}
	for _, t := range m.tasks {
		if t.Queue == queue {
			counts[m.state(t)]++
		}
	}
	return counts
}
