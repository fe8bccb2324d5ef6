package task_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// world is a store on an engine whose test decides when it is durable, and the model of both.
type world struct {
	*rapid.T
	late   bool
	parts  bool                  // what follows from a call is done in parts, and is done once Tick has returned
	lanes  int                   // how many keys are in memory at most, each time that the store is opened another number
	under  holdfast.Engine       // what survives a reopening
	eng    *storetest.FakeEngine // over it
	clock  *clock
	s      *task.Store
	m      *model  // after all calls
	calls  []*call // that have not been compared, in the order in which they were made
	held   bool    // batches are not durable
	leases []modelLease
	tokens int // of the model
	ids    int

	// The rates of queues stay as they are, and if there are any the clock is not set: what else a store remembers of
	// starts is its own affair.
	rates, keyRates map[string]task.Rate
}

// call is a call of the store and what the model says of it.
type call struct {
	name      string
	done      bool
	got, want any
	err       error
	class     error  // that err must have
	before    *model // before it
	applied   uint64 // batches, up to this call
}

func newWorld(t *rapid.T, late, parts bool, lanes int) *world {
	w := &world{T: t, late: late, parts: parts, lanes: lanes, under: mem.New(), clock: newClock(),
		rates: map[string]task.Rate{}, keyRates: map[string]task.Rate{}}
	w.m = newModel(w.clock.Now())
	w.open()
	if !w.chance("rates", 2) {
		return w
	}
	rates := []task.Rate{{}, {}, {N: 2, Per: time.Minute}, {N: 1, Per: 5 * time.Second}}
	for _, queue := range someQueues {
		w.rates[queue], w.keyRates[queue] = pick(w, "rate", rates), pick(w, "rate by key", rates)
		w.setQueue(queue, task.QueueOptions{Rate: w.rates[queue], KeyRate: w.keyRates[queue]})
	}
	return w
}

func (w *world) setQueue(queue string, o task.QueueOptions) {
	w.do(fmt.Sprintf("SetQueue(%s, %+v)", queue, o), errOnly(func() error { return w.s.SetQueue(ctx, queue, o) }),
		modelErr(func(m *model) error { m.queue(queue).QueueOptions, m.queue(queue).set = o, true; return nil }))
}

// open opens a store on a new engine over what there is, with other keys in memory than before.
func (w *world) open() {
	if w.lanes > 0 {
		task.SetMaxLanes(rapid.IntRange(0, w.lanes).Draw(w.T, "lanes"))
		task.SetMaxListed(rapid.IntRange(0, 4).Draw(w.T, "listed"))
	}
	w.eng = storetest.NewFakeEngine()
	w.eng.Engine, w.eng.Late = w.under, w.late
	s, err := task.Open(on(w.eng, holdfast.Memory), w.clock.options(holdfast.Memory))
	if err != nil {
		w.Fatalf("opening: %v", err)
	}
	w.s = s
	w.tick()
}

// do makes a call, and compares it with the model once it is durable.
func (w *world) do(name string, store func() (any, error), model func(m *model) (any, error)) {
	w.Log(name)
	c := &call{name: name, before: w.m.clone()}
	c.want, c.class = model(w.m)
	go func() {
		c.got, c.err = store()
		c.done = true
	}()
	synctest.Wait()
	w.eng.Locked(func() { c.applied = w.eng.Applied })
	w.calls = append(w.calls, c)
	if !w.held {
		w.settled(len(w.calls))
	}
	if w.parts {
		w.tick()
	}
}

// tick has the store do what is due.
func (w *world) tick() {
	if err := w.s.Tick(ctx); err != nil {
		w.Fatalf("Tick: %v", err)
	}
}

// settled compares what the first n calls have returned, which are durable.
func (w *world) settled(n int) {
	synctest.Wait()
	for _, c := range w.calls[:n] {
		if !c.done {
			w.Fatalf("%s does not return", c.name)
		}
		if !errors.Is(c.err, c.class) || c.class == nil && c.err != nil {
			w.Fatalf("%s: %v, want %v", c.name, c.err, c.class)
		}
		if c.class == nil {
			w.same(c.name, c.got, c.want)
		}
	}
	w.calls = w.calls[n:]
}

// same compares what a call returned.
func (w *world) same(name string, got, want any) {
	leases, ok := got.([]task.Lease)
	if !ok {
		if fmt.Sprint(got) != fmt.Sprint(want) { // a slice may be empty or nil
			w.Fatalf("%s returned\n%+v, want\n%+v", name, got, want)
		}
		return
	}
	var tasks []task.Task
	for i, l := range leases {
		if i < len(want.([]modelLease)) {
			w.leases = append(w.leases, modelLease{l, want.([]modelLease)[i].token})
		}
		if !l.Until.Equal(l.Task.LeaseUntil) {
			w.Fatalf("%s: lease %+v", name, l)
		}
		tasks = append(tasks, l.Task)
	}
	var wanted []task.Task
	for _, l := range want.([]modelLease) {
		wanted = append(wanted, l.Task)
	}
	w.sameTasks(name, tasks, wanted)
}

func (w *world) sameTasks(name string, got, want []task.Task) {
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !sameTask(got[i], want[i]) {
			w.Fatalf("%s, at %v:\n%s\nwant\n%s", name, w.m.now, texts(got), texts(want))
		}
	}
}

func sameTask(a, b task.Task) bool { return text(a) == text(b) }

func texts(tasks []task.Task) (s string) {
	for _, t := range tasks {
		s += text(t) + "\n"
	}
	return s
}

// text is a task in one line, equal for equal tasks.
func text(t task.Task) string {
	s := t.Spec
	s.After = slices.Sorted(slices.Values(s.After))
	at := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.UTC().Format("02-15:04:05.999999999")
	}
	line := fmt.Sprintf("%s %v queue %q kind %q %q priority %d key %q sequence %q unique %q for %v after %q attempt %d/%d"+
		" keep %v %v created %s due %s started %s finished %s worker %q until %s output %q", s.ID, t.State, s.Queue, s.Kind,
		s.Payload, s.Priority, s.Key, s.Sequence, s.Unique, s.UniqueFor, s.After, t.Attempt, s.MaxAttempts, s.Keep, s.Backoff,
		at(t.Created), at(t.Due), at(t.Started), at(t.Finished), t.Worker, at(t.LeaseUntil), t.Output)
	for _, f := range t.Failures {
		if f.Attempt == 0 { // why it was cancelled: of several reasons any will do
			f.Message = ""
		}
		line += fmt.Sprintf(" [%d %s %q %q]", f.Attempt, at(f.Time), f.Message, f.Stack)
	}
	return line
}

// agree compares all that is there.
func (w *world) agree() {
	if _, filled, err := w.s.Gaps(); err != nil || len(filled) > 0 {
		w.Fatalf("scans pass over %q, which are there, %v", filled, err)
	}
	var all []task.Task
	for _, t := range w.m.inOrder() {
		want := w.m.shown(t)
		got, err := w.s.Get(ctx, t.ID)
		if err != nil {
			w.Fatalf("%s: %v", t.ID, err)
		}
		w.sameTasks("Get", []task.Task{got}, []task.Task{want})
		all = append(all, want)
	}
	var infos []task.QueueInfo
	for _, queue := range append([]string{""}, someQueues...) {
		counts, err := w.s.Count(ctx, queue)
		switch {
		case queue == "":
		case !w.m.known(queue):
			if !errors.Is(err, holdfast.ErrNotFound) {
				w.Fatalf("queue %q: %v, %v, want none", queue, counts, err)
			}
			continue
		default:
			want := w.m.counts(queue)
			if err != nil || !maps.Equal(counts, want) {
				w.Fatalf("queue %q: %v, %v, want %v", queue, counts, err, want)
			}
			q := w.m.queue(queue)
			infos = append(infos, task.QueueInfo{Name: queue, Options: q.QueueOptions, Paused: q.paused, Counts: want})
		}
		for _, state := range append([]task.State{0}, task.States()...) {
			var want []task.Task
			for _, t := range all {
				if (queue == "" || t.Queue == queue) && (state == 0 || t.State == state) {
					want = append(want, t)
				}
			}
			w.sameTasks(fmt.Sprintf("List of %q, %v", queue, state), sorted(w.list(queue, state)), sorted(want))
		}
	}
	slices.SortFunc(infos, func(a, b task.QueueInfo) int { return strings.Compare(a.Name, b.Name) })
	got, err := w.s.Queues(ctx)
	for i := range got {
		if waits := got[i].Counts[task.Waiting] > 0; !waits && !got[i].Next.IsZero() {
			w.Fatalf("the next of queue %q has waited since %v, and none waits", got[i].Name, got[i].Next)
		}
		got[i].Next = time.Time{} // TestNext has it
	}
	if err != nil || !reflect.DeepEqual(got, infos) {
		w.Fatalf("queues %+v, %v, want %+v", got, err, infos)
	}
}

func sorted(tasks []task.Task) []task.Task {
	slices.SortFunc(tasks, func(a, b task.Task) int { return slices.Compare([]byte(a.ID), []byte(b.ID)) })
	return tasks
}

// list lists tasks, a few at a time.
func (w *world) list(queue string, state task.State) (all []task.Task) {
	for cursor := ""; ; {
		page, next, err := w.s.List(ctx, task.Filter{Queue: queue, State: state, Cursor: cursor, Limit: 3})
		if err != nil || len(page) > 3 || len(page) == 0 && next != "" {
			w.Fatalf("List of %q, %v, after %q: %d, %q, %v", queue, state, cursor, len(page), next, err)
		}
		all = append(all, page...)
		if cursor = next; next == "" {
			return all
		}
	}
}

var (
	someQueues    = []string{task.DefaultQueue, "a", "b"}
	someKeys      = []string{"", "", "x", "y", "z"}
	someSequences = []string{"", "", "", "s", "t"}
	someUniques   = []string{"", "", "", "u", "v"}
)

func pick[V any](w *world, name string, from []V) V { return rapid.SampledFrom(from).Draw(w.T, name) }

func (w *world) chance(name string, in int) bool { return rapid.IntRange(0, in-1).Draw(w.T, name) == 0 }

// anyID is the id of some task, or of none.
func (w *world) anyID() string {
	ids := []string{"none"}
	for _, t := range w.m.inOrder() {
		ids = append(ids, t.ID)
	}
	return pick(w, "id", ids)
}

func (w *world) spec() task.Spec {
	w.ids++
	s := task.Spec{ID: fmt.Sprintf("t%03d", w.ids), Queue: pick(w, "queue", append(someQueues, "")), Kind: "kind",
		Payload: fmt.Append(nil, w.ids), Priority: int8(rapid.IntRange(-1, 1).Draw(w.T, "priority")),
		Key: pick(w, "key", someKeys), Sequence: pick(w, "sequence", someSequences), Unique: pick(w, "unique", someUniques),
		MaxAttempts: rapid.IntRange(0, 2).Draw(w.T, "attempts"),
		Keep:        pick(w, "keep", []time.Duration{0, 0, -1, time.Minute})}
	if w.chance("large", 10) {
		s.Payload = bytes.Repeat(s.Payload, 600)
	}
	if s.Unique != "" && w.chance("for a while", 2) {
		s.UniqueFor = 40 * time.Second
	}
	switch rapid.IntRange(0, 5).Draw(w.T, "when") {
	case 0:
		s.At = w.m.now.Add(pick(w, "at", []time.Duration{-time.Hour, 10 * time.Second, time.Hour}))
	case 1:
		s.Delay = pick(w, "delay", []time.Duration{time.Second, 30 * time.Second})
	}
	for w.chance("after", 4) && len(s.After) < 3 {
		if id := w.anyID(); !slices.Contains(s.After, id) {
			s.After = append(s.After, id)
		}
	}
	if w.chance("again", 20) {
		s.ID = w.anyID()
	}
	return s
}

// specs are some tasks, of which some run after each other.
func (w *world) specs(least, most int) (specs []task.Spec) {
	for range rapid.IntRange(least, most).Draw(w.T, "tasks") {
		specs = append(specs, w.spec())
	}
	for i := range specs {
		if w.chance("after another", 4) {
			specs[i].After = append(specs[i].After, specs[rapid.IntRange(0, len(specs)-1).Draw(w.T, "which")].ID)
		}
	}
	return specs
}

// lease is some lease, the last ones more often.
func (w *world) lease() (modelLease, bool) {
	if len(w.leases) == 0 {
		return modelLease{}, false
	}
	last := min(len(w.leases), pick(w, "last", []int{3, 3, 100}))
	return w.leases[len(w.leases)-1-rapid.IntRange(0, last-1).Draw(w.T, "lease")], true
}

// leasesOf are one to three different leases.
func (w *world) someLeases() (list []modelLease, plain []task.Lease) {
	for range rapid.IntRange(1, 3).Draw(w.T, "leases") {
		if l, ok := w.lease(); ok && !slices.ContainsFunc(list, func(o modelLease) bool { return o.token == l.token }) {
			list, plain = append(list, l), append(plain, l.Lease)
		}
	}
	return list, plain
}

// errOnly makes a call of one that returns an error only.
func errOnly(f func() error) func() (any, error) {
	return func() (any, error) { return nil, f() }
}

func modelErr(f func(m *model) error) func(m *model) (any, error) {
	return func(m *model) (any, error) { return nil, f(m) }
}

// each does something with several leases, and returns what the store should.
func each(list []modelLease, f func(m *model, t *modelTask)) func(m *model) (any, error) {
	return func(m *model) (_ any, class error) {
		for _, l := range list {
			t, err := m.held(l)
			if err != nil {
				class = cmpOr(class, err)
				continue
			}
			f(m, t)
		}
		return nil, class
	}
}

func cmpOr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// enqueue enqueues tasks.
func (w *world) enqueue() {
	specs := w.specs(1, 3)
	w.do(fmt.Sprintf("Enqueue(%+v)", specs), func() (any, error) { return w.s.Enqueue(ctx, specs...) },
		func(m *model) (any, error) { return m.enqueue(specs...) })
}

// claimBytes is how many bytes a claim has at most in a world: some of its tasks have more.
const claimBytes = 1500

func (w *world) claim() {
	o := task.ClaimOptions{N: rapid.IntRange(0, 4).Draw(w.T, "n"), Worker: pick(w, "worker", []string{"", "me"}),
		Lease: pick(w, "lease for", []time.Duration{0, 10 * time.Second}), Queues: rapid.Permutation(someQueues).Draw(w.T,
			"queues")[:rapid.IntRange(0, 3).Draw(w.T, "queues")]}
	sizes := map[string]int{}
	for id := range w.m.tasks { // by what the store says: why a task was cancelled the model does not know
		if t, err := w.s.Get(ctx, id); err == nil {
			sizes[id] = len(t.Payload) + len(t.Output)
			for _, f := range t.Failures {
				sizes[id] += len(f.Message) + len(f.Stack)
			}
		}
	}
	w.do(fmt.Sprintf("Claim(%+v)", o), func() (any, error) { return w.s.Claim(ctx, o) }, func(m *model) (any, error) {
		var list []modelLease
		for _, t := range m.claim(o, w.tokens+1, sizes, claimBytes) {
			w.tokens++
			list = append(list, modelLease{task.Lease{Task: t}, w.tokens})
		}
		return list, nil
	})
}

func (w *world) complete() {
	if list, plain := w.someLeases(); len(list) > 0 {
		w.do("Complete of "+names(list), errOnly(func() error { return w.s.Complete(ctx, plain...) }),
			each(list, func(m *model, t *modelTask) { m.finish(t, task.Completed) }))
	}
}

func names(list []modelLease) (s string) {
	for _, l := range list {
		s += fmt.Sprintf("%s(%d) ", l.Task.ID, l.token)
	}
	return s
}

func (w *world) completeThen() {
	l, ok := w.lease()
	if !ok {
		return
	}
	specs := w.specs(0, 2)
	w.do(fmt.Sprintf("CompleteThen(%s, %+v)", l.Task.ID, specs), func() (any, error) {
		return w.s.CompleteThen(ctx, l.Lease, specs...)
	}, func(m *model) (any, error) { return m.completeThen(l, specs) })
}

func (m *model) completeThen(l modelLease, specs []task.Spec) ([]task.Result, error) {
	t, err := m.held(l)
	if err != nil {
		return nil, err
	}
	before := m.clone()
	m.finish(t, task.Completed)
	results, err := m.enqueue(specs...)
	if err != nil {
		*m = *before
	}
	return results, err
}

// txStep is one call in a transaction.
type txStep struct {
	name  string
	store func(s task.Tx) (any, error)
	model func(m *model) (any, error)
}

// txStep makes one, which may not be possible.
func (w *world) txStep() (s txStep, ok bool) {
	only := func(f func(s task.Tx) error) func(s task.Tx) (any, error) {
		return func(s task.Tx) (any, error) { return nil, f(s) }
	}
	what := rapid.IntRange(0, 6).Draw(w.T, "step")
	if what < 3 {
		specs := w.specs(1, 3)
		return txStep{fmt.Sprintf("Enqueue(%+v)", specs),
			func(s task.Tx) (any, error) { return s.Enqueue(specs...) },
			func(m *model) (any, error) { return m.enqueue(specs...) }}, true
	}
	if what == 3 {
		id := w.anyID()
		switch rapid.IntRange(0, 2).Draw(w.T, "what") {
		case 0:
			return txStep{"Cancel of " + id, only(func(s task.Tx) error { return s.Cancel(id) }),
				modelErr(func(m *model) error { return m.cancel(id) })}, true
		case 1:
			return txStep{"Retry of " + id, only(func(s task.Tx) error { return s.Retry(id) }),
				modelErr(func(m *model) error { return m.retry(id) })}, true
		default:
			return txStep{"Delete of " + id, only(func(s task.Tx) error { return s.Delete(id) }),
				modelErr(func(m *model) error { return m.remove(id) })}, true
		}
	}
	l, ok := w.lease()
	if !ok {
		return s, false
	}
	if what == 4 {
		specs := w.specs(0, 2)
		return txStep{fmt.Sprintf("Complete(%s, %+v)", l.Task.ID, specs),
			func(s task.Tx) (any, error) { return s.Complete(l.Lease, specs...) },
			func(m *model) (any, error) { return m.completeThen(l, specs) }}, true
	}
	held := func(f func(m *model, t *modelTask)) func(m *model) (any, error) {
		return modelErr(func(m *model) error {
			t, err := m.held(l)
			if err == nil {
				f(m, t)
			}
			return err
		})
	}
	f, o := task.Failure{Message: "why", Stack: "where"}, task.FailOptions{RetryIn: time.Second, Dead: what == 5}
	if w.chance("snooze", 2) {
		return txStep{"Snooze of " + l.Task.ID, only(func(s task.Tx) error { return s.Snooze(l.Lease, o.RetryIn) }),
			held(func(m *model, t *modelTask) {
				t.Attempt--
				m.release(t, o.RetryIn)
			})}, true
	}
	return txStep{"Fail of " + l.Task.ID, only(func(s task.Tx) error { return s.Fail(l.Lease, f, o) }),
		held(func(m *model, t *modelTask) { m.failed(t, f, o) })}, true
}

// outcome is what a step has returned.
func outcome(v any, err error) string {
	for _, class := range []error{nil, holdfast.ErrNotFound, task.ErrExists, task.ErrState, task.ErrCycle,
		task.ErrLeaseLost, task.ErrCancelled} {
		if errors.Is(err, class) {
			if err != nil {
				v = nil
			}
			return fmt.Sprint(v, " ", class)
		}
	}
	return err.Error()
}

var errAbandoned = errors.New("abandoned")

// transaction makes several changes, also after some that fail, and keeps all or none.
func (w *world) transaction() {
	var steps []txStep
	name := "transaction of"
	most := 5
	if w.parts { // what a step has others told it may do later
		most = 1
	}
	for range rapid.IntRange(1, most).Draw(w.T, "steps") {
		if s, ok := w.txStep(); ok {
			steps = append(steps, s)
			name += " " + s.name
		}
	}
	var abandon error
	if w.chance("abandon", 3) {
		abandon = errAbandoned
	}
	w.do(name, func() (any, error) {
		var got []string
		err := w.s.DB().Update(ctx, func(tx *kv.Tx) error {
			for _, s := range steps {
				got = append(got, outcome(s.store(w.s.In(tx))))
			}
			return abandon
		})
		return got, err
	}, func(m *model) (any, error) {
		before := m.clone()
		var want []string
		for _, s := range steps {
			want = append(want, outcome(s.model(m)))
		}
		if abandon != nil {
			*m = *before
		}
		return want, abandon
	})
}

func (w *world) heartbeat() {
	list, plain := w.someLeases()
	if len(list) == 0 {
		return
	}
	w.do("Heartbeat of "+names(list), errOnly(func() error { _, err := w.s.Heartbeat(ctx, plain...); return err }),
		each(list, func(m *model, t *modelTask) { t.extend(m) }))
}

// withLease does one of what is done with one lease.
func (w *world) withLease() {
	l, ok := w.lease()
	if !ok {
		return
	}
	d := pick(w, "in", []time.Duration{time.Second, 30 * time.Second})
	f, o := task.Failure{Message: "why", Stack: "where"}, task.FailOptions{RetryIn: d, Dead: w.chance("dead", 5)}
	list := []modelLease{l}
	switch rapid.IntRange(0, 3).Draw(w.T, "what") {
	case 0:
		output := bytes.Repeat([]byte("output"), pick(w, "output", []int{0, 1, 2, 200}))
		w.do("SetOutput of "+names(list), errOnly(func() error { return w.s.SetOutput(ctx, l.Lease, output) }),
			each(list, func(_ *model, t *modelTask) { t.Output = output }))
	case 1:
		w.do("Snooze of "+names(list), errOnly(func() error { return w.s.Snooze(ctx, l.Lease, d) }),
			each(list, func(m *model, t *modelTask) {
				t.Attempt--
				m.release(t, d)
			}))
	default:
		w.do("Fail of "+names(list), errOnly(func() error { return w.s.Fail(ctx, l.Lease, f, o) }),
			each(list, func(m *model, t *modelTask) { m.failed(t, f, o) }))
	}
}

func (w *world) withID() {
	id := w.anyID()
	switch rapid.IntRange(0, 2).Draw(w.T, "what") {
	case 0:
		w.do("Cancel of "+id, errOnly(func() error { return w.s.Cancel(ctx, id) }),
			modelErr(func(m *model) error { return m.cancel(id) }))
	case 1:
		w.do("Retry of "+id, errOnly(func() error { return w.s.Retry(ctx, id) }),
			modelErr(func(m *model) error { return m.retry(id) }))
	default:
		w.do("Delete of "+id, errOnly(func() error { return w.s.Delete(ctx, id) }),
			modelErr(func(m *model) error { return m.remove(id) }))
	}
}

func (w *world) withQueue() {
	queue := pick(w, "queue", someQueues)
	switch rapid.IntRange(0, 4).Draw(w.T, "what") {
	case 0:
		w.do("RetryAll of "+queue, func() (any, error) { return w.s.RetryAll(ctx, queue) },
			func(m *model) (any, error) { return m.retryAll(queue) })
	case 1:
		w.do("Pause of "+queue, errOnly(func() error { return w.s.Pause(ctx, queue) }),
			modelErr(func(m *model) error { return m.pause(queue, true) }))
	case 2:
		w.do("Resume of "+queue, errOnly(func() error { return w.s.Resume(ctx, queue) }),
			modelErr(func(m *model) error { return m.pause(queue, false) }))
	default:
		o := task.QueueOptions{Concurrency: rapid.IntRange(0, 3).Draw(w.T, "concurrency"), Rate: w.rates[queue],
			KeyConcurrency: rapid.IntRange(0, 2).Draw(w.T, "concurrency by key"), KeyRate: w.keyRates[queue],
			Keep:     pick(w, "keep", []time.Duration{0, 0, -1, time.Minute}),
			KeepDead: pick(w, "keep dead", []time.Duration{0, 0, -1, time.Minute})}
		w.setQueue(queue, o)
	}
}

const year = 365 * 24 * time.Hour

// moveClock lets time pass, or sets the clock.
func (w *world) moveClock() {
	d := pick(w, "time", []time.Duration{1, time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Hour,
		25 * time.Hour, year})
	switch how := rapid.IntRange(0, 7).Draw(w.T, "how"); {
	case how == 0 && len(w.rates) == 0:
		d = max(d, 5*time.Second) // less may be noticed by the next opening, or not
		w.clock.move(0, -d)
		w.m.jump(-d)
	case how == 1 && len(w.rates) == 0:
		w.clock.move(0, d)
	default:
		w.clock.move(d, 0)
	}
	w.m.now, w.m.elapsed = w.clock.Now(), w.clock.Elapsed()
	w.do("Tick", errOnly(func() error { return w.s.Tick(ctx) }), modelErr(func(m *model) error { m.tick(); return nil }))
}

// hold makes some calls of which none is durable until all are, or until the engine fails.
func (w *world) hold() {
	w.eng.Hold()
	w.held = true
	for range rapid.IntRange(1, 5).Draw(w.T, "calls") {
		w.change()
	}
	w.held = false
	if !w.chance("failure", 4) {
		w.eng.Release(-1)
		w.settled(len(w.calls))
		return
	}
	// The first n calls become durable.
	n := rapid.IntRange(0, len(w.calls)).Draw(w.T, "durable")
	w.eng.Locked(func() {
		for n > 0 && w.eng.Settled < w.calls[n-1].applied {
			w.eng.Settle()
		}
	})
	w.settled(n)
	w.eng.Locked(func() { w.eng.Fail = errors.New("made to fail") })
	synctest.Wait()
	for _, c := range w.calls {
		if !c.done {
			w.Fatalf("%s does not return after the engine has failed", c.name)
		}
		if c.err == nil && c.applied > 0 && c.applied > w.eng.Settled {
			w.Logf("%s has returned: %v", c.name, c.got)
		}
	}
	if len(w.calls) > 0 && w.late {
		w.m = w.calls[0].before
	}
	w.calls = nil
	_ = w.s.Close()
	w.open()
	w.m.reopen()
}

// refuse has the engine refuse what the next call wants to write: then it changes nothing.
func (w *world) refuse() {
	w.eng.Locked(func() { w.eng.Refuse, w.eng.Spare = holdfast.ErrFull, 0 })
	w.held = true // which leaves the comparison to us
	w.change()
	w.held = false
	w.eng.Locked(func() { w.eng.Refuse = nil })
	if len(w.calls) == 1 && errors.Is(w.calls[0].err, holdfast.ErrFull) {
		w.m, w.calls = w.calls[0].before, nil
	}
	w.settled(len(w.calls))
}

// reopen closes the store and opens it again, sometimes by another clock. No lease outlives that by more than its
// length.
func (w *world) reopen() {
	jump := time.Duration(0)
	if len(w.rates) == 0 && w.chance("another clock", 3) {
		jump = pick(w, "by", []time.Duration{-2 * time.Hour, -year, 2 * time.Hour, year})
		w.clock.pass(2 * time.Second) // the clock is written to the second
		w.m.now, w.m.elapsed = w.clock.Now(), w.clock.Elapsed()
		w.do("Tick", errOnly(func() error { return w.s.Tick(ctx) }), modelErr(func(m *model) error { m.tick(); return nil }))
	}
	w.Logf("reopened, the clock set by %v", jump)
	if err := w.s.Close(); err != nil {
		w.Fatalf("closing: %v", err)
	}
	w.clock.jump(jump)
	if jump < 0 {
		w.m.jump(jump)
	}
	w.m.now = w.clock.Now()
	w.open()
	w.m.reopen()
}

// change makes a call that changes something.
func (w *world) change() {
	changes := []func(){w.enqueue, w.enqueue, w.claim, w.claim, w.complete, w.completeThen, w.transaction,
		w.heartbeat, w.withLease,
		w.withID, w.withQueue}
	pick(w, "change", changes)()
}

func (w *world) step() {
	switch step := rapid.IntRange(0, 9).Draw(w.T, "step"); {
	case step < 2:
		w.moveClock()
	case step == 2 && !w.parts:
		w.hold()
	case step == 3 && !w.parts:
		w.refuse()
	case step == 4:
		w.reopen()
	default:
		w.change()
	}
	w.agree()
}

// TestModel compares a store with the model under random calls, a clock that jumps, an engine that shows what is
// written late, refuses commits and fails, and reopening. More with -rapid.checks.
func TestModel(t *testing.T) {
	few(t, 40)
	for name, kind := range map[string]struct {
		late         bool
		chunk, lanes int
	}{"shown at once": {false, 256, 100}, "shown when durable": {true, 256, 1}, "in parts": {false, 1, 1},
		"keys away": {false, 256, 0}, "few keys away": {false, 256, 2}} {
		t.Run(name, func(t *testing.T) {
			defer task.SetSizes(2, 1, kind.chunk)()
			defer task.SetMaxLanes(kind.lanes)()
			defer task.SetMaxListed(1)()
			defer task.SetLowStep(3)()
			defer task.SetClaimBytes(claimBytes)()
			rapid.Check(t, func(rt *rapid.T) {
				bubble(t, func() {
					w := newWorld(rt, kind.late, kind.chunk == 1, kind.lanes)
					defer w.end()
					for range rapid.IntRange(1, 40).Draw(rt, "steps") {
						w.step()
					}
					w.examine()
					w.reopen()
					w.agree()
					w.examine()
				})
			})
		})
	}
}

// examine checks that indexes and tasks agree.
func (w *world) examine() {
	list, err := task.Examine(w.under)
	if err != nil || len(list) != 1 || len(list[0].Problems) > 0 {
		w.Fatalf("%+v, %v", list, err)
	}
}

// end ends what is under way, so that the bubble can end after a failure too.
func (w *world) end() {
	w.eng.Locked(func() { w.eng.Fail = errors.New("the end") })
	_ = w.s.Close()
}

// bubble runs f in a bubble of synctest, and panics as it does.
func bubble(t *testing.T, f func()) {
	var panicked any
	synctest.Test(t, func(*testing.T) {
		defer func() { panicked = recover() }()
		f()
	})
	switch {
	case panicked == nil:
	case strings.HasSuffix(fmt.Sprintf("%T", panicked), ".invalidData"):
		panic(panicked) // in a place of its own: rapid tells panics apart by where they come from
	default:
		panic(panicked)
	}
}

// few makes rapid do so few checks, unless the command line says otherwise.
func few(t *testing.T, checks int) {
	f := flag.Lookup("rapid.checks")
	if f.Value.String() == f.DefValue {
		if err := f.Value.Set(fmt.Sprint(checks)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
	}
}
