package kv_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// The model: two databases of one engine with buckets and a log each, and a message namespace and tasks in the first.
// A world is what is there after a transaction or call.
type world struct {
	roots    [2]*tree
	logs     [2]modelLog
	messages []modelMessage // in their global order
	tasks    map[string]*modelTask
}

// tree is a bucket.
type tree struct {
	keys map[string]modelValue
	sub  map[string]*tree
	seq  uint64
}

type modelValue struct {
	value   string
	expires int64 // 0: never
}

type modelLog struct {
	events  []modelEvent
	offsets map[string]uint64
}

// modelEvent and modelMessage are known by a number, which is also their id, if they have one.
type modelEvent struct {
	n     int
	named bool
}

type modelMessage struct {
	n        int
	named    bool
	stream   string
	position int64
}

type modelTask struct {
	state  task.State
	unique string
}

func newTree() *tree { return &tree{keys: map[string]modelValue{}, sub: map[string]*tree{}} }

func (t *tree) clone() *tree {
	c := &tree{maps.Clone(t.keys), map[string]*tree{}, t.seq}
	for name, sub := range t.sub {
		c.sub[name] = sub.clone()
	}
	return c
}

func newWorld() *world {
	w := &world{tasks: map[string]*modelTask{}}
	for d := range w.roots {
		w.roots[d], w.logs[d].offsets = newTree(), map[string]uint64{}
	}
	return w
}

func (w *world) clone() *world {
	c := &world{messages: slices.Clone(w.messages), tasks: map[string]*modelTask{}}
	for d := range w.roots {
		c.roots[d] = w.roots[d].clone()
		c.logs[d] = modelLog{slices.Clone(w.logs[d].events), maps.Clone(w.logs[d].offsets)}
	}
	for id, t := range w.tasks {
		same := *t
		c.tasks[id] = &same
	}
	return c
}

// find returns the bucket of a path, nil if it is not there and not to be made.
func (t *tree) find(path []string, make bool) *tree {
	for _, name := range path {
		if t.sub[name] == nil {
			if !make {
				return nil
			}
			t.sub[name] = newTree()
		}
		t = t.sub[name]
	}
	return t
}

// list returns the keys that have not expired and their values, in order.
func (t *tree) list(now int64) (all []string) {
	if t == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(t.keys)) {
		if v := t.keys[key]; v.expires == 0 || now < v.expires {
			all = append(all, key+"="+v.value)
		}
	}
	return all
}

func (t *tree) tell(b *strings.Builder, path string, now int64) {
	for _, name := range slices.Sorted(maps.Keys(t.sub)) {
		sub := t.sub[name]
		fmt.Fprintf(b, "%s/%q %d %q\n", path, name, sub.seq, sub.list(now))
		sub.tell(b, fmt.Sprintf("%s/%q", path, name), now)
	}
}

// buckets tells the buckets of a database.
func (w *world) buckets(d int, now int64) string {
	var b strings.Builder
	w.roots[d].tell(&b, "", now)
	return b.String()
}

// stores tells what is in the stores.
func (w *world) stores() string {
	var b strings.Builder
	for _, stream := range modelStreams {
		fmt.Fprintf(&b, "%s:", stream)
		for i, m := range w.messages {
			if m.stream == stream {
				fmt.Fprintf(&b, " %d@%d/%d", m.n, m.position, i+1)
			}
		}
		b.WriteString("\n")
	}
	for d := range w.logs {
		fmt.Fprintf(&b, "log %d:", d)
		for i, e := range w.logs[d].events {
			fmt.Fprintf(&b, " %d@%d", e.n, i+1)
		}
		for _, name := range modelOffsets {
			if at, ok := w.logs[d].offsets[name]; ok {
				fmt.Fprintf(&b, " %s=%d", name, at)
			}
		}
		b.WriteString("\n")
	}
	counts := map[task.State]int{}
	for _, id := range slices.Sorted(maps.Keys(w.tasks)) {
		fmt.Fprintf(&b, "%s %v\n", id, w.tasks[id].state)
		counts[w.tasks[id].state]++
	}
	for _, state := range task.States() {
		fmt.Fprintf(&b, "%v %d\n", state, counts[state])
	}
	return b.String()
}

func (w *world) all(now int64) string {
	return w.buckets(0, now) + "--\n" + w.buckets(1, now) + "--\n" + w.stores()
}

// version is that of a stream.
func (w *world) version(stream string) int64 {
	version := message.NoStream
	for _, m := range w.messages {
		if m.stream == stream {
			version = m.position
		}
	}
	return version
}

// holder is the task that has a unique text, "" for none.
func (w *world) holder(unique string) string {
	for id, t := range w.tasks {
		if unique != "" && t.unique == unique && !t.state.Finished() {
			return id
		}
	}
	return ""
}

var (
	modelStreams = []string{"a-1", "a-2"}
	modelOffsets = []string{"s", "t"}
	modelPaths   = [][]string{{"a"}, {"a", "x"}, {"a", "x", "y"}, {"b\x00"}, {"b\x00\x01"}, {"c", "x"}}
	modelRoots   = []string{"", "other"} // the databases
)

// wrong is an answer that the model does not give. Every other error of an operation is the engine's.
type wrong struct{ error }

func wrongf(format string, args ...any) error { return wrong{fmt.Errorf(format, args...)} }

// is compares the answer of a call with what it must be: an error of that class, or the same value.
func is(what string, got any, err error, want any, class error) error {
	switch {
	case class != nil && !errors.Is(err, class) && err == nil:
		return wrongf("%s returns %v, want %v", what, got, class)
	case class != nil && errors.Is(err, class):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w (want %v, %v)", what, err, want, class)
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		return wrongf("%s returns %s, want %s", what, g, w)
	}
	return nil
}

// machine is what the random transactions are made on: an engine with its databases and stores, and their model.
type machine struct {
	r      *rand.Rand
	clock  atomic.Int64
	engine holdfast.Engine
	fake   *storetest.FakeEngine // nil for other engines
	level  holdfast.Level        // of the stores, and that of which calls count as acknowledged
	weak   holdfast.Level        // of the databases

	dbs    [2]*kv.DB
	store  *message.Store
	space  *message.Namespace
	logs   [2]*event.Store
	tasks  *task.Store
	leases map[string]task.Lease

	states  []*world // after each commit; the last one is the present
	applied []uint64 // how many batches the fake engine had by then
	changed [2]int   // the last of them that a transaction of each database has made
	acked   int      // the last of them that was acknowledged
	unknown []*world // what may be there besides, as a call has failed and may have happened
	pending []waiting
	numbers int
	story   []string // the last steps
}

// waiting is a transaction that nobody has waited for.
type waiting struct {
	kv.Pending
	state int
	level holdfast.Level
}

func newMachine(r *rand.Rand, level, weak holdfast.Level) *machine {
	m := &machine{r: r, level: level, weak: weak, states: []*world{newWorld()}, applied: []uint64{0},
		leases: map[string]task.Lease{}}
	m.clock.Store(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return m
}

func (m *machine) now() time.Time { return time.Unix(0, m.clock.Load()) }

func (m *machine) cur() *world { return m.states[len(m.states)-1] }

// one tells that something happens once in n times.
func (m *machine) one(n int) bool { return m.r.IntN(n) == 0 }

func (m *machine) tell(format string, args ...any) {
	m.story = append(m.story, fmt.Sprintf(format, args...))
	m.story = m.story[max(0, len(m.story)-40):]
}

// open opens all that is in the engine.
func (m *machine) open(engine holdfast.Engine) (err error) {
	m.engine = engine
	for d, name := range modelRoots {
		if m.dbs[d], err = kv.Open(engine, kv.Options{Name: name, Level: m.weak, Now: m.now}); err != nil {
			return err
		}
	}
	return m.openStores()
}

func (m *machine) openStores() (err error) {
	quiet := slog.New(slog.DiscardHandler)
	if m.store, err = message.Open(m.dbs[0], message.Options{Level: m.level, RetainEvery: -1, Logger: quiet}); err != nil {
		return err
	}
	for d := range m.logs {
		o := event.Options{Name: fmt.Sprint("log", d), Level: m.level}
		if m.logs[d], err = event.Open(m.dbs[d], o); err != nil {
			return errors.Join(err, m.closeStores())
		}
	}
	if m.tasks, err = task.Open(m.dbs[0], task.Options{Level: m.level, Now: m.now, Logger: quiet}); err == nil {
		m.space, err = m.store.Namespace(ctx, message.Default)
	}
	if err != nil {
		return errors.Join(err, m.closeStores())
	}
	return nil
}

func (m *machine) closeStores() (err error) {
	if m.store != nil {
		err = m.store.Close()
	}
	for d := range m.logs {
		if m.logs[d] != nil {
			err = errors.Join(err, m.logs[d].Close())
		}
	}
	if m.tasks != nil {
		err = errors.Join(err, m.tasks.Close())
	}
	m.store, m.logs, m.tasks = nil, [2]*event.Store{}, nil
	return err
}

// do calls f. If it waits for receipts that the fake engine holds, they come in one by one.
func (m *machine) do(f func() error) error {
	if m.fake == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	patience := 2 * time.Millisecond
	for {
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			m.fake.Locked(func() {
				if m.fake.Settled < m.fake.Applied {
					m.fake.Settle()
				}
			})
			patience = 100 * time.Microsecond
		}
	}
}

// committed notes the state after a commit.
func (m *machine) committed(w *world) {
	m.states = append(m.states, w)
	applied := uint64(0)
	if m.fake != nil {
		m.fake.Locked(func() { applied = m.fake.Applied })
	}
	m.applied = append(m.applied, applied)
}

// settle waits for all transactions that nobody has waited for.
func (m *machine) settle() error {
	for _, p := range m.pending {
		if err := m.do(p.Wait); err != nil {
			return err
		}
		m.ack(p.state, p.level)
	}
	m.pending = nil
	return nil
}

func (m *machine) ack(state int, level holdfast.Level) {
	if level >= m.level {
		m.acked = max(m.acked, state)
	}
}

// calls are the methods of the stores in a transaction of one of the databases, or outside of one.
type calls struct {
	d          int
	write      func(stream string, expected *int64, messages []message.Message) (message.Result, error)
	version    func(stream string) (int64, error)
	append     func(last *uint64, events []event.Event) (event.Result, error)
	save       func(name string, at uint64) error
	load       func(name string) (uint64, error)
	drop       func(name string) error
	enqueue    func(specs ...task.Spec) ([]task.Result, error)
	complete   func(l task.Lease, then []task.Spec) ([]task.Result, error)
	cancel     func(id string) error
	delete     func(id string) error
	get        func(id string) (task.Task, error)
	known      [2]int // how many events of the log there were before the transaction
	knownSpace int    // and messages
	inTx       bool
}

func (m *machine) callsIn(tx *kv.Tx, d int, w *world) *calls {
	n, log, tasks := m.space.In(tx), m.logs[d].In(tx), m.tasks.In(tx)
	c := &calls{d: d, inTx: true, version: n.Version, save: log.SaveOffset, load: log.LoadOffset, drop: log.DeleteOffset,
		enqueue: tasks.Enqueue, cancel: tasks.Cancel, delete: tasks.Delete, get: tasks.Get, knownSpace: len(w.messages)}
	c.known = [2]int{len(w.logs[0].events), len(w.logs[1].events)}
	c.complete = func(l task.Lease, then []task.Spec) ([]task.Result, error) { return tasks.Complete(l, then...) }
	c.write = func(stream string, expected *int64, messages []message.Message) (message.Result, error) {
		if expected != nil {
			return n.WriteAfter(stream, *expected, messages...)
		}
		return n.Write(stream, messages...)
	}
	c.append = func(last *uint64, events []event.Event) (event.Result, error) {
		if last != nil {
			return log.AppendAfter(*last, events...)
		}
		return log.Append(events...)
	}
	return c
}

func (m *machine) plainCalls(d int, w *world) *calls {
	n, log, tasks := m.space, m.logs[d], m.tasks
	c := &calls{d: d, knownSpace: len(w.messages), known: [2]int{len(w.logs[0].events), len(w.logs[1].events)}}
	c.version = func(stream string) (int64, error) {
		v, ok, err := n.Version(ctx, stream)
		if err == nil && !ok {
			v = message.NoStream
		}
		return v, err
	}
	c.save = func(name string, at uint64) error { return log.SaveOffset(ctx, name, at) }
	c.load = func(name string) (uint64, error) { return log.LoadOffset(ctx, name) }
	c.drop = func(name string) error { return log.DeleteOffset(ctx, name) }
	c.enqueue = func(specs ...task.Spec) ([]task.Result, error) { return tasks.Enqueue(ctx, specs...) }
	c.complete = func(l task.Lease, then []task.Spec) ([]task.Result, error) {
		return tasks.CompleteThen(ctx, l, then...)
	}
	c.cancel = func(id string) error { return tasks.Cancel(ctx, id) }
	c.delete = func(id string) error { return tasks.Delete(ctx, id) }
	c.get = func(id string) (task.Task, error) { return tasks.Get(ctx, id) }
	c.write = func(stream string, expected *int64, messages []message.Message) (message.Result, error) {
		if expected != nil {
			return n.WriteAfter(ctx, stream, *expected, messages...)
		}
		return n.Write(ctx, stream, messages...)
	}
	c.append = func(last *uint64, events []event.Event) (event.Result, error) {
		if last != nil {
			return log.AppendAfter(ctx, *last, events...)
		}
		return log.Append(ctx, events...)
	}
	return c
}

// inStores makes a call of a store. What it changes is changed in w; the error is a wrong answer, or the engine's.
func (m *machine) inStores(c *calls, w *world) error {
	if c.d == 1 {
		return m.inLog(c, w)
	}
	switch m.r.IntN(3) {
	case 0:
		return m.inSpace(c, w)
	case 1:
		return m.inTasks(c, w)
	}
	return m.inLog(c, w)
}

func (m *machine) inSpace(c *calls, w *world) error {
	stream := modelStreams[m.r.IntN(2)]
	if m.one(5) {
		v, err := c.version(stream)
		return is("the version of "+stream, v, err, w.version(stream), nil)
	}
	if len(w.messages) > 0 && m.one(4) { // again
		at := m.r.IntN(len(w.messages))
		if m.one(2) {
			at = len(w.messages) - 1
		}
		if old := w.messages[at]; old.named {
			result, err := c.write(stream, nil, []message.Message{old.message()})
			var class error
			switch {
			case at >= c.knownSpace:
				class = message.ErrBadMessage
			case stream != old.stream:
				class = message.ErrIDTaken
			}
			return is(fmt.Sprintf("writing message %d again, to %s", old.n, stream), result, err,
				message.Result{Position: old.position, Global: int64(at + 1), Repeated: true}, class)
		}
	}

	version := w.version(stream)
	var expected *int64
	var class error
	if m.one(2) {
		e := version
		if m.one(3) {
			e += 1 + m.r.Int64N(2)
			class = message.ErrConflict
		}
		expected = &e
	}
	fresh := make([]modelMessage, 1+m.r.IntN(3))
	named := m.one(2)
	messages := make([]message.Message, len(fresh))
	for i := range fresh {
		m.numbers++
		fresh[i] = modelMessage{m.numbers, named, stream, version + 1 + int64(i)}
		messages[i] = fresh[i].message()
	}
	result, err := c.write(stream, expected, messages)
	if err := is(fmt.Sprintf("writing message %d to %s", fresh[0].n, stream), result, err,
		message.Result{Position: version + 1, Global: int64(len(w.messages) + 1)}, class); err != nil {
		return w.either(err, class, func(w *world) { w.messages = append(w.messages, fresh...) })
	}
	if class == nil {
		w.messages = append(w.messages, fresh...)
	}
	return nil
}

// either is what a call that failed may have done; the caller notes that if it was no part of a transaction.
type either struct {
	error
	also *world
}

func (e either) Unwrap() error { return e.error }

func (w *world) either(err, class error, f func(w *world)) error {
	if class != nil || errors.As(err, new(wrong)) {
		return err
	}
	also := w.clone()
	f(also)
	return either{err, also}
}

func (old modelMessage) message() message.Message {
	msg := message.Message{Type: "t", Data: fmt.Appendf(nil, `{"n":%d}`, old.n)}
	if old.named {
		msg.ID = fmt.Sprintf("00000000-0000-4000-8000-%012d", old.n)
	}
	return msg
}

func (e modelEvent) event() event.Event {
	out := event.Event{Type: strconv.Itoa(e.n), Data: []byte("data")}
	if e.named {
		out.ID = "id" + out.Type
	}
	return out
}

func (m *machine) inLog(c *calls, w *world) error {
	log := &w.logs[c.d]
	last := uint64(len(log.events))
	name := modelOffsets[m.r.IntN(2)]
	at, there := log.offsets[name]
	switch m.r.IntN(8) {
	case 0:
		pos := m.r.Uint64N(last + 2)
		var class error
		if pos > last {
			class = event.ErrAhead
		}
		err := is("saving an offset", nil, c.save(name, pos), nil, class)
		if err != nil {
			return w.either(err, class, func(w *world) { w.logs[c.d].offsets[name] = pos })
		}
		if class == nil {
			log.offsets[name] = pos
		}
		return nil
	case 1:
		got, err := c.load(name)
		if !there {
			return is("loading an offset", got, err, nil, holdfast.ErrNotFound)
		}
		return is("loading an offset", got, err, at, nil)
	case 2:
		if err := is("deleting an offset", nil, c.drop(name), nil, nil); err != nil {
			return w.either(err, nil, func(w *world) { delete(w.logs[c.d].offsets, name) })
		}
		delete(log.offsets, name)
		return nil
	}
	if last > 0 && m.one(4) {
		pos := 1 + m.r.Uint64N(last)
		if m.one(2) {
			pos = last
		}
		if old := log.events[pos-1]; old.named {
			result, err := c.append(nil, []event.Event{old.event()})
			var class error
			if pos > uint64(c.known[c.d]) {
				class = event.ErrBadEvent
			}
			return is("appending an event again", result, err, event.Result{First: pos, Last: pos, Repeated: true}, class)
		}
	}

	var after *uint64
	var class error
	if m.one(2) {
		l := last
		if m.one(3) {
			l, class = last+1, event.ErrConflict
		}
		after = &l
	}
	fresh := make([]modelEvent, 1+m.r.IntN(3))
	events := make([]event.Event, len(fresh))
	named := m.one(2)
	for i := range fresh {
		m.numbers++
		fresh[i] = modelEvent{m.numbers, named}
		events[i] = fresh[i].event()
	}
	result, err := c.append(after, events)
	if err := is(fmt.Sprintf("appending event %d", fresh[0].n), result, err,
		event.Result{First: last + 1, Last: last + uint64(len(fresh))}, class); err != nil {
		return w.either(err, class, func(w *world) { w.logs[c.d].events = append(w.logs[c.d].events, fresh...) })
	}
	if class == nil {
		log.events = append(log.events, fresh...)
	}
	return nil
}

// spec makes a task, what becomes of it, and says whether it can be enqueued.
func (m *machine) spec(w *world) (s task.Spec, result task.Result, class error) {
	m.numbers++
	s = task.Spec{Kind: "k", ID: fmt.Sprintf("task%d", m.numbers), Payload: []byte("payload")}
	if len(w.tasks) > 0 && m.one(5) {
		s.ID = m.anyTask(w)
	}
	if m.one(4) {
		s.Unique = fmt.Sprint("u", m.r.IntN(3))
	}
	if id := w.holder(s.Unique); id != "" {
		return s, task.Result{ID: id, Existing: true}, nil
	}
	if w.tasks[s.ID] != nil {
		class = task.ErrExists
	}
	return s, task.Result{ID: s.ID}, class
}

func (m *machine) anyTask(w *world) string {
	ids := slices.Sorted(maps.Keys(w.tasks))
	if len(ids) == 0 {
		return "none"
	}
	return ids[m.r.IntN(len(ids))]
}

func (w *world) enqueued(s task.Spec, r task.Result) {
	if !r.Existing {
		w.tasks[s.ID] = &modelTask{task.Waiting, s.Unique}
	}
}

func (m *machine) inTasks(c *calls, w *world) error {
	id := m.anyTask(w)
	t := w.tasks[id]
	lease, leased := m.leases[id]
	var class error
	switch kind := m.r.IntN(10); {
	case kind < 3 && leased: // complete
		switch {
		case t.state == task.Cancelled:
			class = task.ErrCancelled
		case t.state != task.Running:
			class = task.ErrLeaseLost
		}
		var then []task.Spec
		var want []task.Result
		after := w.clone() // the unique text of the task is free then
		after.tasks[id].state = task.Completed
		if m.one(2) {
			s, r, taken := m.spec(after)
			if then, want = append(then, s), append(want, r); class == nil {
				class = taken
			}
			after.enqueued(s, r)
		}
		results, err := c.complete(lease, then)
		if err := is("completing "+id, results, err, want, class); err != nil {
			if class == nil && !errors.As(err, new(wrong)) {
				return either{err, after}
			}
			return err
		}
		if class == nil {
			*w = *after
		}
		return nil
	case kind < 4:
		if t == nil {
			class = holdfast.ErrNotFound
		} else if t.state == task.Completed {
			class = task.ErrState
		}
		err := is("cancelling "+id, nil, c.cancel(id), nil, class)
		if err != nil {
			return w.either(err, class, func(w *world) { w.tasks[id].state = task.Cancelled })
		}
		if class == nil {
			t.state = task.Cancelled
		}
		return nil
	case kind < 5:
		if t == nil {
			class = holdfast.ErrNotFound
		} else if t.state == task.Running {
			class = task.ErrState
		}
		err := is("deleting "+id, nil, c.delete(id), nil, class)
		if err != nil {
			return w.either(err, class, func(w *world) { delete(w.tasks, id) })
		}
		if class == nil {
			delete(w.tasks, id)
		}
		return nil
	case kind < 6:
		if t == nil {
			_, err := c.get(id)
			return is("getting "+id, nil, err, nil, holdfast.ErrNotFound)
		}
		got, err := c.get(id)
		return is("getting "+id, fmt.Sprint(got.ID, got.State), err, fmt.Sprint(id, t.state), nil)
	}
	s, want, class := m.spec(w)
	results, err := c.enqueue(s)
	if err := is("enqueueing "+s.ID, results, err, []task.Result{want}, class); err != nil {
		return w.either(err, class, func(w *world) { w.enqueued(s, want) })
	}
	if class == nil {
		w.enqueued(s, want)
	}
	return nil
}

// claim claims a task, which is the store's choice.
func (m *machine) claim(w *world) error {
	var waiting []string
	for id, t := range w.tasks {
		if t.state == task.Waiting {
			waiting = append(waiting, id)
		}
	}
	leases, err := m.tasks.Claim(ctx, task.ClaimOptions{Lease: 1000 * time.Hour})
	if err != nil {
		for _, id := range waiting {
			also := w.clone()
			also.tasks[id].state = task.Running
			m.unknown = append(m.unknown, also)
		}
		return err
	}
	if len(waiting) == 0 {
		return is("claiming", len(leases), nil, 0, nil)
	}
	if len(leases) != 1 || !slices.Contains(waiting, leases[0].Task.ID) {
		return wrongf("claimed %+v, waiting are %q", leases, waiting)
	}
	w.tasks[leases[0].Task.ID].state = task.Running
	m.leases[leases[0].Task.ID] = leases[0]
	return nil
}

// inBuckets does something with a bucket.
func (m *machine) inBuckets(tx *kv.Tx, d int, w *world) error {
	path := modelPaths[m.r.IntN(len(modelPaths))]
	root := w.roots[d]
	b, model := tx.Bucket(path...), root.find(path, false)
	key := fmt.Sprintf("k%d", m.r.IntN(8))
	at := fmt.Sprintf("%q in %q", key, path)
	make := func() *tree { return root.find(path, true) }
	switch m.r.IntN(16) {
	case 0, 1, 2:
		m.numbers++
		value := fmt.Sprint(m.numbers)
		if m.one(8) {
			value = ""
		}
		make().keys[key] = modelValue{value: value}
		return is("putting "+at, nil, b.Put([]byte(key), []byte(value)), nil, nil)
	case 3:
		m.numbers++
		expires := tx.Now().Add(time.Duration(m.r.IntN(20)-2) * time.Second)
		make().keys[key] = modelValue{fmt.Sprint(m.numbers), expires.UnixNano()}
		return is("putting "+at, nil, b.PutUntil([]byte(key), fmt.Append(nil, m.numbers), expires), nil, nil)
	case 4, 5:
		if model != nil {
			delete(model.keys, key)
		}
		return is("deleting "+at, nil, b.Delete([]byte(key)), nil, nil)
	case 6:
		lo, hi := []byte(key), fmt.Appendf(nil, "k%d", m.r.IntN(9))
		if m.one(4) {
			lo = nil
		}
		if m.one(4) || bytes.Compare(lo, hi) >= 0 {
			hi = nil
		}
		if model != nil {
			maps.DeleteFunc(model.keys, func(key string, _ modelValue) bool {
				return key >= string(lo) && (hi == nil || key < string(hi))
			})
		}
		return is(fmt.Sprintf("deleting %q to %q in %q", lo, hi, path), nil, b.DeleteRange(lo, hi), nil, nil)
	case 7:
		make()
		return is("making a bucket", nil, b.Create(), nil, nil)
	case 8:
		there, err := b.Exists()
		return is(fmt.Sprintf("whether %q is there", path), there, err, model != nil, nil)
	case 9:
		make().seq++
		n, err := b.NextSequence()
		return is("the next number", n, err, make().seq, nil)
	case 10:
		if m.one(2) {
			make().seq = m.r.Uint64N(100)
			return is("setting a sequence", nil, b.SetSequence(make().seq), nil, nil)
		}
		var want uint64
		if model != nil {
			want = model.seq
		}
		n, err := b.Sequence()
		return is("a sequence", n, err, want, nil)
	case 11:
		in, name := path[:len(path)-1], path[len(path)-1]
		var err, class error
		if model == nil {
			class = kv.ErrNoBucket
		} else {
			delete(root.find(in, false).sub, name)
		}
		if len(in) == 0 {
			err = tx.DeleteBucket(name)
		} else {
			err = tx.Bucket(in...).DeleteBucket(name)
		}
		return is(fmt.Sprintf("deleting the bucket %q", path), nil, err, nil, class)
	case 12, 13:
		return m.walk(b, model, make, tx.Now().UnixNano())
	case 14:
		n, err := b.Count()
		return is(fmt.Sprintf("counting %q", path), n, err, len(model.list(tx.Now().UnixNano())), nil)
	}
	v, err := b.Get([]byte(key))
	if model != nil {
		if want, ok := model.keys[key]; ok && (want.expires == 0 || tx.Now().UnixNano() < want.expires) {
			return is("getting "+at, string(v), err, want.value, nil)
		}
	}
	return is("getting "+at, string(v), err, nil, holdfast.ErrNotFound)
}

// walk moves a cursor, and changes the bucket on the way, which the cursor does not see before it is placed again.
func (m *machine) walk(b *kv.Bucket, model *tree, make func() *tree, now int64) error {
	c := b.Cursor()
	var all []string // what it goes over
	at := -1         // where it is, -1: nowhere
	for range 1 + m.r.IntN(12) {
		var key, value []byte
		what := ""
		switch m.r.IntN(10) {
		case 0:
			what = "First"
			all = model.list(now)
			at = min(0, len(all)-1)
			key, value = c.First()
		case 1:
			what = "Last"
			all = model.list(now)
			at = len(all) - 1
			key, value = c.Last()
		case 2:
			seek := fmt.Sprintf("k%d", m.r.IntN(9))
			what = "Seek " + seek
			all = model.list(now)
			at = slices.IndexFunc(all, func(s string) bool { return s >= seek })
			key, value = c.Seek([]byte(seek))
		case 3, 4:
			k := fmt.Sprintf("k%d", m.r.IntN(8))
			var err error
			if m.numbers++; m.one(2) {
				model = make()
				model.keys[k] = modelValue{value: fmt.Sprint(m.numbers)}
				err = b.Put([]byte(k), fmt.Append(nil, m.numbers))
			} else if m.one(2) {
				if model != nil {
					delete(model.keys, k)
				}
				err = b.Delete([]byte(k))
			} else {
				if model != nil {
					maps.DeleteFunc(model.keys, func(key string, _ modelValue) bool { return key >= k })
				}
				err = b.DeleteRange([]byte(k), nil)
			}
			if err == nil && m.one(2) { // what was written is read elsewhere
				_, err = b.Sequence()
			}
			if err != nil {
				return err
			}
			continue
		case 5, 6, 7:
			what = "Next"
			if at >= 0 {
				if at++; at == len(all) {
					at = -1
				}
			}
			key, value = c.Next()
		default:
			what = "Prev"
			if at >= 0 {
				at--
			}
			key, value = c.Prev()
		}
		if err := c.Err(); err != nil {
			return err
		}
		got, want := "none", "none"
		if key != nil {
			got = fmt.Sprintf("%s=%s", key, value)
		}
		if at >= 0 {
			want = all[at]
		}
		if got != want {
			return wrongf("a cursor's %s is at %s, want %s of %q", what, got, want, all)
		}
	}
	return nil
}

var errOwn, errPanic = errors.New("the function's"), errors.New("a panic")

// transaction makes a transaction, of one database or both.
func (m *machine) transaction() error {
	w := m.cur().clone()
	before := w.all(m.clock.Load())
	which := []int{m.r.IntN(4) / 3}
	if m.one(4) {
		which = [][]int{{0, 1}, {1, 0}}[m.r.IntN(2)]
	}
	end := m.r.IntN(20) // how it ends
	if m.fake == nil && end < 2 {
		end = 19
	}
	operations := 1 + m.r.IntN(6)
	f := func(txs []*kv.Tx) error {
		var in [2]*calls
		for i, d := range which {
			in[d] = m.callsIn(txs[i], d, w)
		}
		for range operations {
			i := m.r.IntN(len(which))
			d := which[i]
			var err error
			if m.one(2) {
				err = m.inBuckets(txs[i], d, w)
			} else {
				err = m.inStores(in[d], w)
			}
			if err != nil {
				return err
			}
		}
		switch end {
		case 0: // what the engine refuses
			m.fake.Locked(func() { m.fake.Refuse, m.fake.Spare = &holdfast.Error{Class: holdfast.ErrFull}, 0 })
		case 1: // over the limit, which is that of all databases together
			for i := range 3 {
				err := txs[i%len(txs)].Bucket("large").Put([]byte{byte(i) + 1}, make([]byte, 30<<10))
				if err != nil && !errors.Is(err, holdfast.ErrTooLarge) {
					return err
				}
			}
		case 2, 3, 4:
			return errOwn
		case 5:
			panic(errPanic)
		case 6: // an error of a write that the function ignores
			_ = txs[len(txs)-1].Bucket("a").Put(nil, nil)
		}
		return nil
	}
	want := map[int]error{0: holdfast.ErrFull, 1: holdfast.ErrTooLarge, 2: errOwn, 3: errOwn, 4: errOwn, 5: errPanic,
		6: holdfast.ErrBadKey}[end]

	level, within := m.weak, ctx
	if strongest := m.engine.Capabilities().Strongest(); m.one(4) && strongest > level {
		level = level + 1 + holdfast.Level(m.r.IntN(int(strongest-level)))
		within = holdfast.WithLevel(ctx, level)
	}
	wait := m.one(2) || len(which) > 1 || len(m.pending) > 20
	var p kv.Pending
	var placed, returned bool
	err := m.do(func() (err error) {
		defer func() {
			if v := recover(); v == errPanic {
				err = errPanic
			} else if v != nil {
				panic(v)
			}
		}()
		note := func(txs []*kv.Tx) error {
			defer func() {
				for _, tx := range txs {
					level = max(level, tx.Level())
				}
			}()
			err := f(txs)
			returned = err == nil
			return err
		}
		one := func(tx *kv.Tx) error { return note([]*kv.Tx{tx}) }
		switch {
		case len(which) > 1:
			return kv.UpdateAll(within, []*kv.DB{m.dbs[which[0]], m.dbs[which[1]]}, note)
		case wait:
			return m.dbs[which[0]].Update(within, one)
		}
		p, err = m.dbs[which[0]].Submit(within, one)
		placed = err == nil
		return err
	})
	if end == 0 {
		m.fake.Locked(func() { m.fake.Refuse = nil })
	}
	after := w.all(m.clock.Load())
	m.tell("transaction of %v, %d operations, end %d, waited for: %v, level %v: %v", which, operations, end, wait, level,
		err)
	if want == nil {
		if err != nil {
			if returned { // it may have its place
				m.unknown = append(m.unknown, w)
			}
			return err
		}
		m.committed(w)
	} else if errors.Is(err, holdfast.ErrPoisoned) { // what it has seen is not durable
		return err
	} else if !errors.Is(err, want) && !(end == 0 && err == nil && before == after) {
		return cmp.Or(err, wrongf("a transaction that ends with %v has succeeded", want))
	} else if end == 5 {
		return nil // a panic waits for nothing
	}
	// What has written nothing has waited for what it has seen, and that was of its own databases.
	state := 0
	for _, d := range which {
		if want == nil && before != after {
			m.changed[d] = len(m.states) - 1
		}
		state = max(state, m.changed[d])
	}
	if wait {
		m.ack(state, level)
	} else if placed {
		m.pending = append(m.pending, waiting{p, state, level})
	}
	return nil
}

// plain makes a call outside of transactions.
func (m *machine) plain() error {
	if err := m.settle(); err != nil {
		return err
	}
	w := m.cur().clone()
	now := m.clock.Load()
	before := w.all(now)
	err := m.do(func() error {
		switch m.r.IntN(6) {
		case 0, 1:
			return m.claim(w)
		case 2:
			_, err := m.dbs[0].RemoveExpired(ctx)
			return err
		}
		return m.inStores(m.plainCalls(m.r.IntN(4)/3, w), w)
	})
	m.tell("a plain call: %v", err)
	if err != nil {
		if maybe := (either{}); errors.As(err, &maybe) {
			m.unknown = append(m.unknown, maybe.also)
		}
		return err
	}
	m.committed(w)
	if w.all(now) != before { // what is written brings all before it to its level; a call that only looks does not
		m.ack(len(m.states)-1, m.level)
	}
	return nil
}

// seen tells the buckets of a database as a transaction sees them.
func seen(tx *kv.Tx) (string, error) {
	var b strings.Builder
	var in func(buckets []string, at func(name string) *kv.Bucket, path string) error
	in = func(buckets []string, at func(name string) *kv.Bucket, path string) error {
		for _, name := range buckets {
			bucket := at(name)
			var there, back []string
			for k, v := range bucket.All() {
				there = append(there, fmt.Sprintf("%s=%s", k, v))
			}
			for k, v := range bucket.Range(holdfast.Range{Reverse: true}) {
				back = append(back, fmt.Sprintf("%s=%s", k, v))
			}
			if slices.Reverse(back); !slices.Equal(there, back) {
				return wrongf("bucket %s/%q: forwards %q, backwards %q", path, name, there, back)
			}
			seq, err := bucket.Sequence()
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s/%q %d %q\n", path, name, seq, there)
			if err := in(slices.Collect(bucket.Buckets()), bucket.Bucket, fmt.Sprintf("%s/%q", path, name)); err != nil {
				return err
			}
		}
		return nil
	}
	err := in(slices.Collect(tx.Buckets()), func(name string) *kv.Bucket { return tx.Bucket(name) }, "")
	return b.String(), err
}

// reader is View, Latest or Update.
type reader func(context.Context, func(*kv.Tx) error) error

func (m *machine) read(read reader) (saw string, err error) {
	err = m.do(func() error {
		return read(ctx, func(tx *kv.Tx) (err error) {
			saw, err = seen(tx)
			return err
		})
	})
	return saw, err
}

// looks compares what Latest and View see.
func (m *machine) looks() error {
	now := m.clock.Load()
	for d, db := range m.dbs {
		saw, err := m.read(db.Latest)
		if err != nil {
			return err
		}
		if want := m.cur().buckets(d, now); saw != want {
			return wrongf("Latest of database %d:\n%swant\n%s", d, saw, want)
		}
	}
	if !m.one(3) {
		return nil
	}
	d := m.r.IntN(2)
	saw, err := m.read(m.dbs[d].View)
	if err != nil {
		return err
	}
	for i := m.acked; i < len(m.states); i++ {
		if m.states[i].buckets(d, now) != saw {
			continue
		}
		if m.fake != nil {
			var settled uint64
			if m.fake.Locked(func() { settled = m.fake.Settled }); settled < m.applied[i] {
				return wrongf("View shows the state after %d batches, and %d are durable", m.applied[i], settled)
			}
		}
		return nil
	}
	return wrongf("View of database %d shows no state since the %dth, of %d:\n%swant now\n%s", d, m.acked,
		len(m.states), saw, m.cur().buckets(d, now))
}

// contents tells all that is in the databases and stores.
func (m *machine) contents() (string, error) {
	var b strings.Builder
	for _, db := range m.dbs {
		saw, err := m.read(db.View)
		if err != nil {
			return "", err
		}
		b.WriteString(saw + "--\n")
	}
	globals := map[int64]bool{}
	for _, stream := range modelStreams {
		fmt.Fprintf(&b, "%s:", stream)
		for msg, err := range m.space.Read(ctx, message.Query{Stream: stream}) {
			if err != nil {
				return "", err
			}
			var n int
			if _, err := fmt.Sscanf(string(msg.Data), `{"n":%d}`, &n); err != nil || globals[msg.Global] {
				return "", wrongf("the message %+v", msg)
			}
			globals[msg.Global] = true
			fmt.Fprintf(&b, " %d@%d/%d", n, msg.Position, msg.Global)
		}
		b.WriteString("\n")
	}
	counts, err := m.space.Count(ctx, "")
	if err != nil {
		return "", err
	}
	if counts.Messages != int64(len(globals)) {
		return "", wrongf("%d messages are counted, %d read", counts.Messages, len(globals))
	}
	for d, log := range m.logs {
		fmt.Fprintf(&b, "log %d:", d)
		events, err := log.Read(ctx, 1, 1<<20)
		if err != nil {
			return "", err
		}
		for _, e := range events {
			fmt.Fprintf(&b, " %s@%d", e.Type, e.Position)
		}
		for _, name := range modelOffsets {
			switch at, err := log.LoadOffset(ctx, name); {
			case err == nil:
				fmt.Fprintf(&b, " %s=%d", name, at)
			case !errors.Is(err, holdfast.ErrNotFound):
				return "", err
			}
		}
		b.WriteString("\n")
	}
	list, next, err := m.tasks.List(ctx, task.Filter{Limit: 1000})
	if err != nil || next != "" {
		return "", errors.Join(err, errors.New(next))
	}
	slices.SortFunc(list, func(a, b task.Task) int { return strings.Compare(a.ID, b.ID) })
	for _, t := range list {
		fmt.Fprintf(&b, "%s %v\n", t.ID, t.State)
	}
	states, err := m.tasks.Count(ctx, "")
	for _, state := range task.States() {
		fmt.Fprintf(&b, "%v %d\n", state, states[state])
	}
	if errors.Is(err, holdfast.ErrNotFound) && len(list) == 0 { // no queue yet
		err = nil
	}
	return b.String(), err
}

// compare compares everything, once it is durable.
func (m *machine) compare() error {
	if err := m.settle(); err != nil {
		return err
	}
	var all string
	if err := m.do(func() (err error) { all, err = m.contents(); return err }); err != nil {
		return err
	}
	if want := m.cur().all(m.clock.Load()); all != want {
		return wrongf("there is\n%swant\n%s", all, want)
	}
	// Nothing is needed any more that was before what no crash takes back. What is there may be newer, of a weaker level.
	m.states, m.applied = m.states[m.acked:], m.applied[m.acked:]
	for d := range m.changed {
		m.changed[d] = max(0, m.changed[d]-m.acked)
	}
	m.acked = 0
	return nil
}

// step does what comes next.
func (m *machine) step() error {
	m.clock.Add(int64(time.Second))
	do := m.transaction
	if m.one(5) {
		do = m.plain
	}
	if err := do(); err != nil {
		return err
	}
	return m.looks()
}

// histories are the seeds of a test: more of them if HOLDFAST_KV_HISTORIES says so, or one, HOLDFAST_KV_SEED.
func histories(few int) (first, behind uint64) {
	if n, err := strconv.ParseUint(os.Getenv("HOLDFAST_KV_HISTORIES"), 10, 64); err == nil {
		few = int(n)
	}
	first, err := strconv.ParseUint(os.Getenv("HOLDFAST_KV_SEED"), 10, 64)
	if err == nil {
		return first, first + 1
	}
	return 1, 1 + uint64(few)
}

// modelHistories is how many there are of so many: two with -short, for the race detector. One goroutine makes them,
// and what runs beside is the same in each.
func modelHistories(few int) int {
	if testing.Short() {
		return 2
	}
	return few
}

// Random transactions and calls, over buckets, logs, messages and tasks in two databases: every answer, and all that is
// there, is what a model says, whatever the engine refuses, and whenever it shows and settles what it has.
func TestModel(t *testing.T) {
	for _, kind := range []string{"logtree", "late", "fake", "fake late"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			first, behind := histories(modelHistories(4))
			for seed := first; seed < behind; seed++ {
				if err := modelHistory(t, kind, seed); err != nil {
					t.Fatalf("HOLDFAST_KV_SEED=%d: %v", seed, err)
				}
			}
		})
	}
}

func modelHistory(t *testing.T, kind string, seed uint64) (err error) {
	r := rand.New(rand.NewPCG(seed, 0))
	m := newMachine(r, holdfast.Memory, holdfast.Memory)
	var open func() (holdfast.Engine, error)
	if late := kind == "fake late"; late || kind == "fake" {
		m.fake = storetest.NewFakeEngine()
		m.fake.Late, m.fake.MaxBatch = late, 64<<10
		open = func() (holdfast.Engine, error) { return m.fake, nil }
	} else {
		dir := t.TempDir()
		entry, err := storetest.Lookup(kind)
		if err != nil {
			return err
		}
		m.level = holdfast.Process
		open = func() (holdfast.Engine, error) { return entry.Open(dir, holdfast.Options{}) }
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nafter\n%s", err, strings.Join(m.story, "\n"))
		}
	}()

	engine, err := open()
	if err != nil {
		return err
	}
	if err := m.open(engine); err != nil {
		return err
	}
	for range 150 {
		if m.fake != nil && m.one(10) {
			m.fake.Hold()
		}
		if err := m.step(); err != nil {
			return err
		}
		if m.one(8) {
			if err := m.compare(); err != nil {
				return err
			}
		}
		if m.fake != nil && m.one(20) {
			m.fake.Release(-1)
		}
		if !m.one(25) {
			continue
		}
		m.tell("closing")
		if err := m.settle(); err != nil {
			return err
		}
		if err := m.do(m.closeStores); err != nil {
			return err
		}
		if m.fake == nil {
			if err := m.engine.Close(); err != nil {
				return err
			}
		}
		if engine, err = open(); err != nil {
			return err
		}
		if err := m.do(func() error { return m.open(engine) }); err != nil {
			return err
		}
		if err := m.compare(); err != nil {
			return err
		}
	}
	if err := m.compare(); err != nil {
		return err
	}
	return errors.Join(m.do(m.closeStores), m.engine.Close())
}

// A crash at any write takes back whole transactions and calls, the last ones, in all databases and stores alike, and
// none that was acknowledged at the level of the crash.
func TestModelCrashes(t *testing.T) {
	t.Parallel()
	first, behind := histories(modelHistories(10))
	for seed := first; seed < behind; seed++ {
		level := holdfast.Process + holdfast.Level(seed%2)
		if err := crashHistory(seed, level); err != nil {
			t.Fatalf("HOLDFAST_KV_SEED=%d, level %v: %v", seed, level, err)
		}
	}
}

func crashHistory(seed uint64, level holdfast.Level) error {
	m := newMachine(nil, level, holdfast.Memory)
	err := storetest.CrashImage(seed, level, func(e holdfast.Engine, r *rand.Rand) (err error) {
		m.r, m.story = r, nil
		defer func() { err = errors.Join(err, m.closeStores()) }()
		if err := m.open(e); err != nil {
			return err
		}
		for {
			if err := m.step(); err != nil {
				return err
			}
			if m.one(30) {
				if err := m.compare(); err != nil {
					return err
				}
			}
		}
	}, func(e holdfast.Engine) (err error) {
		defer func() { err = errors.Join(err, m.closeStores()) }()
		if err := m.open(e); err != nil {
			return err
		}
		return m.recovered()
	})
	if err != nil {
		err = fmt.Errorf("%w\nafter\n%s", err, strings.Join(m.story, "\n"))
	}
	return err
}

// recovered finds out which of the states that a crash may have left is there, and goes on from that.
func (m *machine) recovered() error {
	there, err := m.contents()
	if err != nil {
		return err
	}
	now := m.clock.Load()
	for _, w := range slices.Concat(m.states[m.acked:], m.unknown) {
		if w.all(now) != there {
			continue
		}
		for id := range m.leases {
			if t := w.tasks[id]; t == nil || t.state != task.Running || m.cur().tasks[id] == nil ||
				m.cur().tasks[id].state != task.Running { // its claim was perhaps taken back
				delete(m.leases, id)
			}
		}
		m.states, m.applied, m.acked, m.changed = []*world{w}, []uint64{0}, 0, [2]int{}
		m.pending, m.unknown = nil, nil
		return nil
	}
	return wrongf("there is\n%swhich is none of the states %d to %d or %d others; the first\n%sthe last\n%s", there,
		m.acked, len(m.states)-1, len(m.unknown), m.states[m.acked].all(now), m.cur().all(now))
}
