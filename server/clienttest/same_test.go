package clienttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

const someID = "0198c5d0-0000-7000-8000-00000000000"

// useMessages does with messages all that there is to do.
func useMessages(n messages) *script {
	s := new(script)
	m := func(typ, data string) message.Message { return message.Message{Type: typ, Data: []byte(data)} }
	withID := func(id string, m message.Message) message.Message {
		m.ID = someID + id
		return m
	}
	at := time.Date(2026, 1, 31, 12, 0, 0, 123456789, time.UTC)
	write := func(r message.Result, err error) { s.note(err, "write %+v", r) }
	write(n.Write(ctx, "order-1", m("Placed", `{"a":"<b>&\u2028 ü","n":1.50,"big":12345678901234567890}`)))
	write(n.Write(ctx, "order-1", m("Paid", `{}`), m("Sent", `{"to":[1,2,{}]}`)))
	write(n.Write(ctx, "order-2", withID("1", m("Placed", `{}`)), withID("2", m("Paid", `{}`))))
	write(n.Write(ctx, "order-2", withID("1", m("Placed", `{}`)), withID("2", m("Paid", `{}`)))) // a repeat
	write(n.Write(ctx, "order-3", withID("1", m("Placed", `{}`))))
	write(n.WriteAfter(ctx, "order-1", 2, m("Closed", `{}`)))
	write(n.WriteAfter(ctx, "order-1", 2, m("Closed", `{}`)))
	write(n.WriteAfter(ctx, "new/1 +%?#-x", message.NoStream, message.Message{Type: "T", Data: []byte(`{}`),
		Metadata: []byte(`{"correlationStreamName":"order-1"}`), Time: at}))
	write(n.WriteAfter(ctx, "order-1", message.NoStream, m("T", `{}`)))
	write(n.Write(ctx, "", m("T", `{}`)))
	write(n.Write(ctx, "order-1"))
	write(n.Write(ctx, "order-1", m("T", `[1]`)))
	write(n.Write(ctx, "order-1", message.Message{ID: "x", Type: "T", Data: []byte(`{}`)}))

	read := func(q message.Query) {
		for m, err := range n.Read(ctx, q) {
			id := m.ID
			if !strings.HasPrefix(id, someID) {
				id = fmt.Sprint(len(id))
			}
			s.note(err, "read %+v: %s %s %d %d %s %s %s %v", q, id, m.Stream, m.Position, m.Global, m.Type, m.Data, m.Metadata,
				m.Time.Equal(at))
		}
	}
	for _, q := range []message.Query{{}, {Stream: "order-1"}, {Stream: "order-1", From: 2, Limit: 1}, {Category: "order"},
		{Category: "order", From: 5, Limit: 2}, {Types: []string{"Placed", "Paid"}}, {Prefix: "order-2"}, {Stream: "none"},
		{Category: "none"}, {Category: "order", Group: message.Group{Member: 1, Size: 2}}, {From: 1000},
		{Category: "new/1 +%?#", Correlation: "order"}, {Stream: "a", Category: "b"}, {Limit: -1}, {From: -3, Limit: 1},
		{Category: "order", Group: message.Group{Member: 3, Size: 2}}} {
		read(q)
	}
	for m, err := range n.Read(ctx, message.Query{}) { // what is written meanwhile is not read
		if err == nil {
			_, err = n.Write(ctx, "copy-"+m.Stream, message.Message{Type: m.Type, Data: m.Data})
		}
		s.note(err, "copied %d", m.Global)
	}
	for _, stream := range []string{"order-1", "new/1 +%?#-x", "none"} {
		v, ok, err := n.Version(ctx, stream)
		s.note(err, "version %d %v", v, ok)
		last, err := n.LastMessage(ctx, stream, "")
		s.note(err, "last %d %s", last.Position, last.Type)
	}
	last, err := n.LastMessage(ctx, "order-1", "Paid")
	s.note(err, "last %d %s", last.Position, last.Type)
	streams, err := n.Streams(ctx, "order-", "order-1", 0)
	for i := range streams {
		streams[i].Last = time.Time{}
	}
	s.note(err, "streams %+v", streams)
	streams, err = n.Streams(ctx, "", "", 3)
	s.note(err, "%d streams", len(streams))
	streams, err = n.Streams(ctx, "", "", -1)
	s.note(err, "%d streams", len(streams))
	categories, err := n.Categories(ctx)
	s.note(err, "categories %+v", categories)
	for _, category := range []string{"", "order", "none"} {
		c, err := n.Count(ctx, category)
		s.note(err, "count %+v", c)
	}
	s.note(n.SavePosition(ctx, "mails", 3), "save")
	s.note(n.SavePosition(ctx, "mails", 1e9), "save")
	for range 2 {
		p, err := n.LoadPosition(ctx, "mails")
		s.note(err, "load %d", p)
		s.note(n.DeletePosition(ctx, "mails"), "delete position")
	}
	s.note(n.SetRetention(ctx, "order-1", message.Retention{MaxAge: time.Hour, MaxCount: 4}), "set retention")
	for _, stream := range []string{"order-1", "none"} {
		r, err := n.Retention(ctx, stream)
		s.note(err, "retention %+v", r)
	}
	removed := func(k int64, err error) { s.note(err, "removed %d", k) }
	removed(n.Truncate(ctx, "order-1", 2))
	removed(n.Truncate(ctx, "none", 2))
	removed(n.Delete(ctx, "order-2"))
	write(n.Write(ctx, "order-2", m("Again", `{}`)))
	removed(n.Tombstone(ctx, "order-2"))
	write(n.Write(ctx, "order-2", m("Again", `{}`)))
	read(message.Query{Category: "order"})
	var out strings.Builder
	exported, err := n.Export(ctx, &out, message.ExportOptions{Categories: []string{"order", "a"}})
	s.note(err, "exported %d %d", exported, strings.Count(out.String(), "\n"))
	for line := range strings.Lines(out.String()) {
		var l struct {
			Stream string
			Pos    int64
			Gpos   int64
			Data   json.RawMessage
		}
		s.note(json.Unmarshal([]byte(line), &l), "%+v", l)
	}
	return s
}

// TestMessages: a program does with messages over the network what it does with a store of its own.
func TestMessages(t *testing.T) {
	e := mem.New()
	store, err := message.Open(kv.On(e), message.Options{Level: holdfast.Memory})
	check(t, err)
	n, err := store.Namespace(ctx, message.Default)
	check(t, err)
	own := useMessages(n)
	check(t, errors.Join(store.Close(), e.Close()))
	c, _ := serve(t)
	compare(t, own, useMessages(c.Namespace(message.Default)))
}

// useEvents does with a log of events all that there is to do.
func useEvents(l events) *script {
	s := new(script)
	ev := func(typ string, data ...byte) event.Event { return event.Event{Type: typ, Data: data} }
	added := func(r event.Result, err error) { s.note(err, "append %+v", r) }
	at := time.Date(2026, 1, 31, 12, 0, 0, 123456789, time.UTC)
	added(l.Append(ctx, ev("a", 0, 255, '<'), ev("b")))
	added(l.Append(ctx, event.Event{Type: "c", ID: "x", Origin: "here", Metadata: []byte{1}, Time: at}))
	added(l.Append(ctx, event.Event{Type: "c", ID: "x"}))
	added(l.Append(ctx, event.Event{Type: "c", ID: "x"}, event.Event{ID: "y"}))
	added(l.Append(ctx, event.Event{ID: "z"}, event.Event{}))
	added(l.Append(ctx))
	added(l.AppendAfter(ctx, 3, ev("d")))
	added(l.AppendAfter(ctx, 3, ev("d")))
	added(l.AppendAfter(ctx, 0, ev("d")))
	show := func(e event.Event, err error) {
		if e.ID != "x" {
			e.ID = "" // the client gives ids
		}
		s.note(err, "event %d %s %q %s %v %v %v", e.Position, e.Type, e.ID, e.Origin, e.Metadata, e.Data, e.Time.Equal(at))
	}
	for _, from := range []uint64{1, 3, 5, 100} {
		for _, limit := range []int{0, 2, -1} {
			for e, err := range l.Events(ctx, from, limit) {
				show(e, err)
			}
			list, err := l.Read(ctx, from, limit)
			s.note(err, "%d events", len(list))
		}
	}
	s.note(l.SaveOffset(ctx, "mails/a b", 2), "save")
	s.note(l.SaveOffset(ctx, "sms", 100), "save")
	subs, err := l.Subscriptions(ctx)
	s.note(err, "subscriptions %+v", subs)
	removed, err := l.TruncateBefore(ctx, 4)
	s.note(err, "removed %d", removed)
	removed, err = l.TruncateBefore(ctx, 400)
	s.note(err, "removed %d", removed)
	subs, err = l.Subscriptions(ctx)
	s.note(err, "subscriptions %+v", subs)
	for range 2 {
		p, err := l.LoadOffset(ctx, "mails/a b")
		s.note(err, "load %d", p)
		s.note(l.DeleteOffset(ctx, "mails/a b"), "delete offset")
	}
	for e, err := range l.Events(ctx, 1, 0) {
		show(e, err)
	}
	for e, err := range l.Follow(ctx, 4) {
		show(e, err)
		if err != nil || e.Position == 6 {
			break
		}
		added(l.Append(ctx, ev("e"), ev("f")))
	}
	for e, err := range l.Follow(ctx, 1) {
		show(e, err)
		if err == nil {
			break
		}
	}
	return s
}

// TestEvents: the same with a log of events.
func TestEvents(t *testing.T) {
	e := mem.New()
	store, err := event.Open(kv.On(e), event.Options{Level: holdfast.Memory})
	check(t, err)
	own := useEvents(store)
	check(t, errors.Join(store.Close(), e.Close()))
	c, _ := serve(t)
	compare(t, own, useEvents(c.Namespace(message.Default).Log("a log")))
}

// useTasks does with tasks all that there is to do.
func useTasks(k tasks) *script {
	s := new(script)
	enqueue := func(specs ...task.Spec) []task.Result {
		r, err := k.Enqueue(ctx, specs...)
		existing := []bool{}
		for _, r := range r {
			existing = append(existing, r.Existing)
		}
		s.note(err, "enqueue %v", existing)
		return r
	}
	show := func(t task.Task, err error) {
		until := t.Due.Sub(t.Created).Round(time.Hour)
		for i := range t.Failures {
			t.Failures[i].Time = time.Time{}
		}
		s.note(err, "task %s %s %q %d %v %d of %d, worker %q, key %q %q %q %v %v %v, %q %+v %v", t.Queue, t.Kind, t.Payload,
			t.Priority, t.State, t.Attempt, t.MaxAttempts, t.Worker, t.Key, t.Sequence, t.Unique, len(t.After), t.Backoff,
			t.Keep, t.Output, t.Failures, until)
	}
	enqueue(task.Spec{Queue: "a", Kind: "one", Payload: []byte{0, 1, '<'}, Key: "k", Priority: 3, MaxAttempts: 2,
		Backoff: task.Backoff{First: 3 * time.Hour, Max: 3 * time.Hour}, Keep: time.Hour})
	both := enqueue(task.Spec{Queue: "a", Kind: "two", ID: "mine/1 %"}, task.Spec{Queue: "a", Kind: "three",
		After: []string{"mine/1 %"}})
	enqueue(task.Spec{Queue: "a", Kind: "two", ID: "mine/1 %"})
	enqueue(task.Spec{Queue: "a", Unique: "u", UniqueFor: time.Hour, Kind: "u", Delay: 2 * time.Hour})
	enqueue(task.Spec{Queue: "a", Unique: "u", UniqueFor: time.Hour, Kind: "u"})
	enqueue(task.Spec{Queue: "a", Kind: "x", After: []string{"none"}})
	enqueue(task.Spec{Queue: "a", Kind: "x", Delay: -1 * time.Hour})
	enqueue(task.Spec{Queue: "a", Kind: "x", Payload: make([]byte, task.MaxPayloadSize+1)})
	enqueue()
	claim := func(n int) []task.Lease {
		l, err := k.Claim(ctx, task.ClaimOptions{Queues: []string{"a"}, N: n, Worker: "me", Lease: time.Hour})
		s.note(err, "claimed %d", len(l))
		for _, l := range l {
			show(l.Task, nil)
		}
		return l
	}
	held := claim(1)
	show(k.Get(ctx, held[0].Task.ID))
	show(k.Get(ctx, "none"))
	longer, err := k.Heartbeat(ctx, held...)
	s.note(err, "heartbeat %v", len(longer) == 1 && !longer[0].Until.Before(held[0].Until))
	s.note(k.SetOutput(ctx, held[0], []byte("half")), "output")
	s.note(k.Fail(ctx, held[0], task.Failure{Message: "no", Stack: "here"},
		task.FailOptions{RetryIn: 3 * time.Hour}), "fail")
	s.note(k.Fail(ctx, held[0], task.Failure{}, task.FailOptions{}), "fail")
	show(k.Get(ctx, held[0].Task.ID))
	second := claim(5)
	s.note(k.Snooze(ctx, second[0], 5*time.Hour), "snooze")
	show(k.Get(ctx, second[0].Task.ID))
	s.note(k.Cancel(ctx, held[0].Task.ID), "cancel")
	s.note(k.Cancel(ctx, "none"), "cancel")
	s.note(k.Retry(ctx, held[0].Task.ID), "retry")
	s.note(k.Retry(ctx, held[0].Task.ID), "retry")
	third := claim(1)
	s.note(k.Fail(ctx, third[0], task.Failure{Message: "never"}, task.FailOptions{Dead: true}), "fail")
	n, err := k.RetryAll(ctx, "a")
	s.note(err, "retried %d", n)
	_, err = k.RetryAll(ctx, "none")
	s.note(err, "retried none")
	fourth := claim(1)
	s.note(k.Cancel(ctx, fourth[0].Task.ID), "cancel")
	_, err = k.Heartbeat(ctx, fourth...)
	s.note(err, "heartbeat")
	s.note(k.Complete(ctx, append(fourth, held...)...), "complete")
	var each *task.LeaseErrors
	s.note(nil, "%v", errors.As(k.Complete(ctx, held...), &each) && len(each.Errs) == 1)

	enqueue(task.Spec{Queue: "a", Kind: "last", Priority: 9})
	fifth := claim(1)
	next, err := k.CompleteThen(ctx, fifth[0], task.Spec{Queue: "a", Kind: "next", After: []string{fifth[0].Task.ID}})
	s.note(err, "complete with %d", len(next))
	_, err = k.CompleteThen(ctx, fifth[0], task.Spec{Queue: "a", Kind: "next"})
	s.note(err, "complete with")
	sixth := claim(1)
	s.note(k.Complete(ctx, sixth...), "complete")
	s.note(k.Delete(ctx, sixth[0].Task.ID), "delete")
	s.note(k.Delete(ctx, sixth[0].Task.ID), "delete")

	options := task.QueueOptions{Concurrency: 3, Rate: task.Rate{N: 2, Per: time.Minute}, KeyConcurrency: 1,
		KeyRate: task.Rate{N: 1, Per: time.Second}, Keep: time.Hour, KeepDead: -1 * time.Second}
	s.note(k.SetQueue(ctx, "b/c", options), "set queue")
	s.note(k.SetQueue(ctx, "b/c", task.QueueOptions{Concurrency: -1}), "set queue")
	s.note(k.Pause(ctx, "b/c"), "pause")
	s.note(k.Resume(ctx, "none"), "resume")
	for _, name := range []string{"a", "b/c", "none"} {
		q, err := k.Queue(ctx, name)
		s.note(err, "queue %s %v %+v %v", q.Name, q.Paused, q.Options.Concurrency, q.Counts)
		c, err := k.Count(ctx, name)
		s.note(err, "count %v", c)
	}
	s.note(k.Resume(ctx, "b/c"), "resume")
	queues, err := k.Queues(ctx)
	s.note(err, "queues %+v", queues)
	for _, f := range []task.Filter{{}, {Queue: "a"}, {Queue: "a", State: task.Blocked}, {State: task.Scheduled},
		{Queue: "none"}, {Limit: 2}, {Cursor: "nonsense"}} {
		list, next, err := k.List(ctx, f)
		s.note(err, "list %+v: %d, more: %v", f, len(list), next != "")
		for _, t := range list {
			show(t, nil)
		}
	}
	_ = both
	return s
}

// TestTasks: the same with tasks.
func TestTasks(t *testing.T) {
	e := mem.New()
	store, err := task.Open(kv.On(e), task.Options{Level: holdfast.Memory, Logger: quiet})
	check(t, err)
	own := useTasks(store)
	check(t, errors.Join(store.Close(), e.Close()))
	c, _ := serve(t)
	compare(t, own, useTasks(c.Namespace(message.Default).Tasks()))
}

// TestPeriodics: what a program has added is seen from elsewhere as in the store.
func TestPeriodics(t *testing.T) {
	c, d := serve(t)
	tasks := c.Namespace(message.Default).Tasks()
	none, err := tasks.Periodics(ctx)
	check(t, err)
	if len(none) != 0 {
		t.Errorf("there are %+v", none)
	}
	store, err := d.Tasks(ctx, message.Default)
	check(t, err)
	at := time.Date(2200, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, schedule := range map[string]once{"a/b": {at}, "ended": {}} {
		check(t, store.AddPeriodic(ctx, task.Periodic{Name: name, Schedule: schedule, Spec: task.Spec{Kind: "k"}}))
	}
	want, err := store.Periodics(ctx)
	check(t, err)
	got, err := tasks.Periodics(ctx)
	check(t, err)
	if len(got) != 2 || !got[0].Added || !got[0].Next.Equal(at) || !got[1].Next.IsZero() || got[1].Last.IsZero() {
		t.Errorf("there are %+v", got)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("there are %+v, the store says %+v", got, want)
	}
}

// once is a schedule of one tick, or none.
type once struct{ at time.Time }

func (o once) Next(after time.Time) time.Time {
	if o.at.After(after) {
		return o.at
	}
	return time.Time{}
}

type job struct{ N int }

func (job) Kind() string { return "job" }

// TestWorkers: the workers of a program work over the network as in the process of the store: tasks fail and are tried
// again, snooze, enqueue others when they complete, and learn that they are cancelled.
func TestWorkers(t *testing.T) {
	t.Parallel()
	c, d := serve(t)
	k := c.Namespace(message.Default).Tasks()
	var ran, cancelled atomic.Int64
	var ws worker.Workers
	worker.Register(&ws, func(ctx context.Context, t *worker.Task[job]) error {
		ran.Add(1)
		switch n := t.Args.N; {
		case n == 1000: // until it is cancelled
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), task.ErrCancelled) {
				cancelled.Add(1)
			}
			return ctx.Err()
		case n%4 == 1 && t.Attempt == 1:
			return worker.RetryIn(time.Millisecond, errors.New("once"))
		case n%4 == 2 && n < 100:
			next, err := worker.NewSpec(job{n + 100}, task.Spec{})
			if err != nil {
				return err
			}
			_, err = t.CompleteThen(ctx, next)
			return err
		case n%4 == 3:
			return t.SetOutput(ctx, n)
		}
		return nil
	})
	r, err := worker.New(k, &ws, worker.Options{Logger: quiet, Lease: 12 * time.Second, Concurrency: 4})
	check(t, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()
	var long string
	for n := range 20 {
		_, err := worker.Enqueue(ctx, k, job{n}, task.Spec{})
		check(t, err)
	}
	result, err := worker.Enqueue(ctx, k, job{1000}, task.Spec{})
	check(t, err)
	long = result.ID
	own, err := d.Tasks(ctx, message.Default)
	check(t, err)
	testkit.Until(t, "what must come", func() bool {
		got, err := own.Get(ctx, long)
		check(t, err)
		return got.State == task.Running
	})
	check(t, k.Cancel(ctx, long))
	testkit.Until(t, "what must come", func() bool {
		counts, err := own.Count(ctx, task.DefaultQueue)
		check(t, err)
		return counts[task.Completed] == 25 && cancelled.Load() == 1
	})
	stop()
	check(t, <-ended)
	if n := ran.Load(); n != 20+5+5+1 {
		t.Errorf("%d runs", n)
	}
}

// TestServerKilled: a server is killed and started again while writers write, workers work and followers follow. No
// message is lost or there twice, followers see each once and in order, and all tasks are completed.
func TestServerKilled(t *testing.T) {
	v := startVictim(t)
	c := v.dial()
	n := c.Namespace(message.Default)
	const messagesOf, rounds = 40, 3
	check(t, errOf(n.Write(ctx, "begin", message.Message{Type: "T", Data: []byte(`{}`)})))

	// Two followers, from the start and of one stream, both there before the first kill.
	there := make(chan struct{}, 2)
	type seen struct {
		globals []int64
		err     error
	}
	results := make(chan seen, 2)
	for range 2 {
		go func() {
			var s seen
			for m, err := range n.Follow(ctx, message.Query{}) {
				if s.err = err; err != nil {
					break
				}
				if s.globals = append(s.globals, m.Global); len(s.globals) == 1 {
					there <- struct{}{}
				}
				if m.Type == "End" {
					break
				}
			}
			results <- s
		}()
	}
	<-there
	<-there

	var ws worker.Workers
	var ran atomic.Int64
	worker.Register(&ws, func(ctx context.Context, t *worker.Task[job]) error {
		ran.Add(1)
		return nil
	})
	r, err := worker.New(n.Tasks(), &ws, worker.Options{Logger: quiet, Lease: 2 * time.Second, Concurrency: 2})
	check(t, err)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(running) }()

	var wrote atomic.Int64
	writers := make(chan error, 2)
	go func() {
		for i := range messagesOf * rounds {
			if _, err := n.WriteAfter(ctx, "order-1", int64(i)-1, message.Message{Type: "T",
				Data: []byte(fmt.Sprintf(`{"n":%d}`, i))}); err != nil {
				writers <- fmt.Errorf("message %d: %w", i, err)
				return
			}
			wrote.Add(1)
		}
		writers <- nil
	}()
	go func() {
		for i := range messagesOf * rounds {
			r, err := worker.Enqueue(ctx, n.Tasks(), job{i}, task.Spec{MaxAttempts: 100})
			if err != nil || r.Existing {
				writers <- fmt.Errorf("task %d: %w, %v", i, err, r.Existing)
				return
			}
		}
		writers <- nil
	}()
	for k := range int64(rounds - 1) {
		testkit.Until(t, "what must come", func() bool { return wrote.Load() >= (k+1)*messagesOf })
		v.kill()
		v.start()
	}
	check(t, <-writers)
	check(t, <-writers)
	check(t, errOf(n.Write(ctx, "end", message.Message{Type: "End", Data: []byte(`{}`)})))
	for range 2 {
		s := <-results
		if s.err != nil || len(s.globals) != messagesOf*rounds+2 || !slices.IsSorted(s.globals) ||
			len(slices.Compact(s.globals)) != messagesOf*rounds+2 {
			t.Errorf("a follower has seen %d messages, %v", len(s.globals), s.err)
		}
	}
	at := 0
	for m, err := range n.Read(ctx, message.Query{Stream: "order-1"}) {
		check(t, err)
		if want := fmt.Sprintf(`{"n":%d}`, at); string(m.Data) != want || m.Position != int64(at) {
			t.Fatalf("%s at position %d, want %s", m.Data, m.Position, want)
		}
		at++
	}
	if at != messagesOf*rounds {
		t.Errorf("%d messages", at)
	}
	testkit.Until(t, "what must come", func() bool {
		counts, err := n.Tasks().Count(ctx, task.DefaultQueue)
		check(t, err)
		return counts[task.Completed] == messagesOf*rounds
	})
	stop()
	check(t, <-ended)
	counts, err := n.Tasks().Count(ctx, task.DefaultQueue)
	check(t, err)
	total := 0
	for _, n := range counts {
		total += n
	}
	if total != messagesOf*rounds || ran.Load() < int64(total) {
		t.Errorf("%v tasks, %d runs", counts, ran.Load())
	}
}

func errOf[T any](_ T, err error) error { return err }
