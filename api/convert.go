package api

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// MS is a duration as a number of milliseconds. What is shorter than one, and not 0, is one; so is what is less than 0,
// with its sign.
func MS(d time.Duration) int64 {
	switch ms := d.Milliseconds(); {
	case ms == 0 && d > 0:
		return 1
	case ms == 0 && d < 0:
		return -1
	default:
		return ms
	}
}

// Duration is what a number of milliseconds stands for. One that is too long is the longest there is.
func Duration(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(min(ms, most), -most)) * time.Millisecond
}

// FromMessage is a message of a store.
func FromMessage(m *message.Message) Message {
	return Message{ID: m.ID, Stream: m.Stream, Position: m.Position, Global: m.Global, Type: m.Type, Data: m.Data,
		Metadata: m.Metadata, Time: m.Time}
}

// Store is the message as stores have it.
func (m *Message) Store() message.Message {
	return message.Message{ID: m.ID, Stream: m.Stream, Position: m.Position, Global: m.Global, Type: m.Type, Data: m.Data,
		Metadata: Present(m.Metadata), Time: m.Time}
}

// Present is raw, or nil if that is the null of JSON.
func Present(raw json.RawMessage) []byte {
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}

	return raw
}

// FromNewMessages are messages that are to be written.
func FromNewMessages(messages []message.Message) []NewMessage {
	to := make([]NewMessage, len(messages))
	for i, m := range messages {
		to[i] = NewMessage{ID: m.ID, Type: m.Type, Data: m.Data, Metadata: m.Metadata, Time: m.Time}
	}
	return to
}

// Store are the messages as stores have them.
func (w *Write) Store() []message.Message {
	to := make([]message.Message, len(w.Messages))
	for i, m := range w.Messages {
		to[i] = message.Message{ID: m.ID, Type: m.Type, Data: m.Data, Metadata: Present(m.Metadata), Time: m.Time}
	}
	return to
}

// FromRetention is the retention of a stream.
func FromRetention(r message.Retention) Retention {
	return Retention{MaxAgeMS: MS(r.MaxAge), MaxCount: r.MaxCount}
}

// Store is the retention as stores have it.
func (r Retention) Store() message.Retention {
	return message.Retention{MaxAge: Duration(r.MaxAgeMS), MaxCount: r.MaxCount}
}

// FromEvent is an event of a log.
func FromEvent(e *event.Event) Event {
	return Event{Position: e.Position, Time: e.Time, Type: e.Type, ID: e.ID, Origin: e.Origin, Metadata: e.Metadata,
		Data: e.Data}
}

// Store is the event as logs have it.
func (e *Event) Store() event.Event {
	return event.Event{Position: e.Position, Time: e.Time, Type: e.Type, ID: e.ID, Origin: e.Origin, Metadata: e.Metadata,
		Data: e.Data}
}

// FromNewEvent is an event that is to be appended.
func FromNewEvent(e *event.Event) NewEvent { return NewEvent(FromEvent(e)) }

// Store is the event as logs have it.
func (e *NewEvent) Store() event.Event { return (*Event)(e).Store() }

// Store are the events as logs have them.
func (a *Append) Store() []event.Event {
	to := make([]event.Event, len(a.Events))
	for i := range to {
		to[i] = a.Events[i].Store()
	}
	return to
}

// FromCursors are subscriptions or snapshots of a log.
func FromCursors(list []event.Cursor) []Subscriber {
	to := make([]Subscriber, len(list))
	for i, c := range list {
		to[i] = Subscriber{Name: c.Name, Position: c.Position, Lag: c.Lag, Missed: c.Missed}
	}

	return to
}

// FromSpec is a task to be enqueued.
func FromSpec(s *task.Spec) NewTask {
	return NewTask{ID: s.ID, Queue: s.Queue, Kind: s.Kind, Payload: s.Payload, Priority: s.Priority, At: s.At,
		DelayMS: MS(s.Delay), Key: s.Key, Sequence: s.Sequence, Unique: s.Unique, UniqueForMS: MS(s.UniqueFor),
		After: s.After, MaxAttempts: s.MaxAttempts, BackoffFirstMS: MS(s.Backoff.First), BackoffMaxMS: MS(s.Backoff.Max),
		KeepMS: MS(s.Keep)}
}

// Store is the task as stores have it.
func (t *NewTask) Store() task.Spec {
	return task.Spec{ID: t.ID, Queue: t.Queue, Kind: t.Kind, Payload: t.Payload, Priority: t.Priority, At: t.At,
		Delay: Duration(t.DelayMS), Key: t.Key, Sequence: t.Sequence, Unique: t.Unique, UniqueFor: Duration(t.UniqueForMS),
		After: t.After, MaxAttempts: t.MaxAttempts,
		Backoff: task.Backoff{First: Duration(t.BackoffFirstMS), Max: Duration(t.BackoffMaxMS)}, Keep: Duration(t.KeepMS)}
}

// Specs are tasks as stores have them.
func Specs(tasks []NewTask) []task.Spec {
	specs := make([]task.Spec, len(tasks))
	for i := range tasks {
		specs[i] = tasks[i].Store()
	}

	return specs
}

// FromTask is a task of a store.
func FromTask(t *task.Task) Task {
	to := Task{NewTask: FromSpec(&t.Spec), State: t.State.String(), Attempt: t.Attempt, Created: t.Created, Due: t.Due,
		Started: t.Started, Finished: t.Finished, Worker: t.Worker, LeaseUntil: t.LeaseUntil, Output: t.Output}
	for _, f := range t.Failures {
		to.Failures = append(to.Failures, TaskFailure{Attempt: f.Attempt, Time: f.Time, Message: f.Message, Stack: f.Stack})
	}

	return to
}

// Store is the task as stores have it. ErrBadOption: its state is none.
func (t *Task) Store() (task.Task, error) {
	state, err := task.ParseState(t.State)
	to := task.Task{Spec: t.NewTask.Store(), State: state, Attempt: t.Attempt, Created: t.Created, Due: t.Due,
		Started: t.Started, Finished: t.Finished, Worker: t.Worker, LeaseUntil: t.LeaseUntil, Output: t.Output}

	for _, f := range t.Failures {
		to.Failures = append(to.Failures, f.Store())
	}

	return to, err
}

// Store is the failure as stores have it.
func (f TaskFailure) Store() task.Failure {
	return task.Failure{Attempt: f.Attempt, Time: f.Time, Message: f.Message, Stack: f.Stack}
}

// Store is the lease as stores need it, with no more than the task's id.
func (l LeaseRef) Store() task.Lease {
	return task.Lease{Task: task.Task{Spec: task.Spec{ID: l.ID}}, Token: l.Token}
}

// FromQueueOptions are the options of a queue.
func FromQueueOptions(o task.QueueOptions) QueueOptions {
	return QueueOptions{Concurrency: o.Concurrency, RateN: o.Rate.N, RatePerMS: MS(o.Rate.Per),
		KeyConcurrency: o.KeyConcurrency, KeyRateN: o.KeyRate.N, KeyRatePerMS: MS(o.KeyRate.Per), KeepMS: MS(o.Keep),
		KeepDeadMS: MS(o.KeepDead)}
}

// Store are the options as stores have them.
func (o QueueOptions) Store() task.QueueOptions {
	return task.QueueOptions{Concurrency: o.Concurrency, Rate: task.Rate{N: o.RateN, Per: Duration(o.RatePerMS)},
		KeyConcurrency: o.KeyConcurrency, KeyRate: task.Rate{N: o.KeyRateN, Per: Duration(o.KeyRatePerMS)},
		Keep: Duration(o.KeepMS), KeepDead: Duration(o.KeepDeadMS)}
}

// FromQueue is a queue and how it is doing.
func FromQueue(q task.QueueInfo) Queue {
	to := Queue{Name: q.Name, Options: FromQueueOptions(q.Options), Paused: q.Paused, Counts: map[string]int{}}
	for state, n := range q.Counts {
		to.Counts[state.String()] = n
	}

	return to
}

// Store is the queue as stores have it. ErrBadOption: it counts a state that is none.
func (q *Queue) Store() (task.QueueInfo, error) {
	to := task.QueueInfo{Name: q.Name, Options: q.Options.Store(), Paused: q.Paused, Counts: map[task.State]int{}}
	for name, n := range q.Counts {
		state, err := task.ParseState(name)
		if err != nil {
			return to, err
		}
		to.Counts[state] = n
	}

	return to, nil
}

// Store are the leases as stores need them.
func (l *LeaseRefs) Store() []task.Lease {
	leases := make([]task.Lease, len(l.Leases))
	for i, ref := range l.Leases {
		leases[i] = ref.Store()
	}

	return leases
}
