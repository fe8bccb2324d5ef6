// Package worker runs tasks of package task: functions that are typed by the arguments of a kind of task.
//
//	type Welcome struct{ To string }
//
//	func (Welcome) Kind() string { return "welcome" }
//
//	var workers worker.Workers
//	worker.Register(&workers, func(ctx context.Context, t *worker.Task[Welcome]) error {
//		return mail.Send(ctx, t.Args.To)
//	})
//	runner, err := worker.New(tasks, &workers, worker.Options{Queues: []string{"mail"}})
//	go func() { ended <- runner.Run(ctx) }() // until ctx ends
//	_, err = worker.Enqueue(ctx, tasks, Welcome{To: "ada@example.org"}, task.Spec{Queue: "mail"})
//
// # What becomes of a task
//
// It is completed when its function returns nil. An error is a failure: the task is tried again after its Backoff,
// until its attempts are used up and it is dead. [Dead], [RetryIn] and [Snooze] make errors that say otherwise. A panic
// is a failure with its stack. So are arguments that cannot be read and a kind that the runner does not know, because a
// newer program may know it.
//
// A task is run at least once: again if the program is killed, or does not reach the store for as long as a lease
// lasts. What must not happen twice is done in the commit that completes the task, by [Execution.CompleteIn].
//
// # Contexts
//
// The context of a function ends when the task is cancelled (its cause is then [task.ErrCancelled]), when its lease
// is lost ([task.ErrLeaseLost]), when its time is up, and when the runner has stopped waiting for it ([ErrStopping]).
// A function that ignores that continues, but whatever it returns after the first two changes nothing.
package worker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// Args are the arguments of tasks of one kind. They are stored as JSON, unless they have methods
//
//	MarshalTask() ([]byte, error)
//	UnmarshalTask(payload []byte) error // of the pointer
//
// Kind is called on the zero value, too; a nil pointer, if A is a pointer.
type Args interface {
	Kind() string
}

// Defaults is what Args may implement besides: fields of Spec that Enqueue and NewSpec are not told.
type Defaults interface {
	Defaults() task.Spec
}

// ByArgs as the Unique text of a Spec makes NewSpec put there a text that is the same for the same kind and arguments.
const ByArgs = "\x00by args"

// A Worker does what a task of one kind says. It is called by many goroutines at once.
type Worker[A Args] func(ctx context.Context, t *Task[A]) error

// Task is a task that is being run, with its arguments.
type Task[A Args] struct {
	*Execution
	Args A
}

// Handler runs a task of any kind.
type Handler func(ctx context.Context, x *Execution) error

// Middleware puts something around a Handler. A panic of the worker is a *PanicError by then.
type Middleware func(next Handler) Handler

// Workers are the functions by kind. They are registered before a Runner is made of them.
type Workers struct {
	kinds map[string]*Kind
	bad   error // the first registration that made no sense
}

// Kind is how tasks of one kind are run. Its fields are set before a Runner is made.
type Kind struct {
	// Timeout is after how long the worker's context ends; 0 means not by time.
	Timeout time.Duration
	// Retry returns after how long a task that failed is tried again; 0 leaves it to the task's Backoff. The task's
	// Attempt is the one that failed. nil means 0.
	Retry func(t task.Task, err error) time.Duration
	// Middleware is put around the worker, the first outermost, inside of what the Runner puts around all.
	Middleware []Middleware

	work Handler
}

// Register adds the worker of the kind of A. What makes no sense, such as a second worker for a kind, New reports.
func Register[A Args](ws *Workers, work Worker[A]) *Kind {
	var zero A
	name := kindOf(zero)
	k := &Kind{work: func(ctx context.Context, x *Execution) error {
		args, err := Decode[A](x.Task)
		if err != nil {
			return err
		}
		return work(ctx, &Task[A]{x, args})
	}}
	var problem string
	switch {
	case work == nil:
		problem = "a nil worker"
	case name == "":
		problem = "no kind"
	case ws.kinds[name] != nil:
		problem = "a second worker for the kind"
	}
	if problem != "" {
		ws.bad = cmp.Or(ws.bad, error(&holdfast.Error{Op: "register", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("%s: kind %q of %T", problem, name, zero)}))
		return k
	}
	if ws.kinds == nil {
		ws.kinds = map[string]*Kind{}
	}
	ws.kinds[name] = k
	return k
}

// kindOf returns "" for a nil interface.
func kindOf(args Args) string {
	if args == nil {
		return ""
	}
	return args.Kind()
}

// NewSpec makes a Spec of arguments: s with Kind and Payload, which must be empty in it, and with what s does not say
// taken from the Defaults of args. ErrBadOption: args cannot be stored.
func NewSpec[A Args](args A, s task.Spec) (task.Spec, error) {
	bad := func(detail string, cause error) (task.Spec, error) {
		return task.Spec{}, &holdfast.Error{Op: "task spec", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("%s of %T", detail, args), Cause: cause}
	}
	switch {
	case s.Kind != "" || s.Payload != nil:
		return bad("kind or payload given besides those", nil)
	case kindOf(args) == "":
		return bad("no kind", nil)
	}
	if d, ok := any(args).(Defaults); ok {
		to, from := reflect.ValueOf(&s).Elem(), reflect.ValueOf(d.Defaults())
		for i := range to.NumField() {
			if to.Field(i).IsZero() {
				to.Field(i).Set(from.Field(i))
			}
		}
	}
	var err error
	s.Kind = args.Kind()
	if m, ok := any(args).(interface{ MarshalTask() ([]byte, error) }); ok {
		s.Payload, err = m.MarshalTask()
	} else {
		s.Payload, err = json.Marshal(args)
	}
	if err != nil {
		return bad("arguments", err)
	}
	if s.Unique == ByArgs {
		sum := sha256.Sum256(s.Payload)
		s.Unique = s.Kind + " " + hex.EncodeToString(sum[:])
	}
	return s, nil
}

// Enqueuer is what Enqueue asks of a *task.Store.
type Enqueuer interface {
	Enqueue(ctx context.Context, specs ...task.Spec) ([]task.Result, error)
}

// Enqueue enqueues a task with arguments; see NewSpec, whose Specs all other ways of enqueueing take.
func Enqueue[A Args](ctx context.Context, e Enqueuer, args A, s task.Spec) (task.Result, error) {
	s, err := NewSpec(args, s)
	if err != nil {
		return task.Result{}, err
	}
	results, err := e.Enqueue(ctx, s)
	if err != nil {
		return task.Result{}, err
	}
	return results[0], nil
}

// Decode returns the arguments of a task: zero ones if it has no payload. ErrBadOption: it is of another kind, or its
// payload does not fit A.
func Decode[A Args](t task.Task) (A, error) {
	var args A
	err := fmt.Errorf("the task is of the kind %.40q", t.Kind)
	if k := kindOf(args); k != "" && t.Kind == k {
		if m, ok := any(&args).(interface{ UnmarshalTask([]byte) error }); ok {
			err = m.UnmarshalTask(t.Payload)
		} else if err = nil; len(t.Payload) > 0 {
			err = json.Unmarshal(t.Payload, &args)
		}
	}
	if err != nil {
		return args, &holdfast.Error{Op: "task arguments", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("%T", args), Cause: err}
	}
	return args, nil
}

// Execution is one attempt at a task: what the task was when it was claimed, and what its worker may do with it. Its
// methods may be called by many goroutines, until the worker has returned.
type Execution struct {
	task.Task

	client  Client
	lease   task.Lease
	unwatch func()
	ended   atomic.Bool // the lease, or so the Watcher says

	mu        sync.Mutex
	expires   time.Time // of the lease, by the clock of this program
	settling  bool      // the lease is being given up: that it is gone is no surprise
	completed bool

	lost context.Context // ends when the lease is lost, or the task cancelled
	lose context.CancelCauseFunc
	ctx  context.Context // the worker's, but for its Timeout; ends with lost, or by stop
	stop context.CancelCauseFunc
}

// SetOutput stores progress or a result with the task: a []byte or json.RawMessage as it is, anything else as JSON.
// Later attempts, and anyone who inspects the task, find it in Output.
func (x *Execution) SetOutput(ctx context.Context, output any) error {
	var data []byte
	var err error
	switch o := output.(type) {
	case []byte:
		data = o
	case json.RawMessage:
		data = o
	default:
		if data, err = json.Marshal(output); err != nil {
			return &holdfast.Error{Op: "task output", Class: holdfast.ErrBadOption, Detail: fmt.Sprintf("%T", output),
				Cause: err}
		}
	}
	return x.client.SetOutput(ctx, x.lease, data)
}

// CompleteThen completes the task in one commit with tasks that are to run then. If it fails, none of that is done.
// After it, the worker should return; its error would only be logged. ErrLeaseLost, ErrCancelled: the task is not this
// worker's any more.
func (x *Execution) CompleteThen(ctx context.Context, then ...task.Spec) ([]task.Result, error) {
	x.begin()
	results, err := x.client.CompleteThen(ctx, x.lease, then...)
	x.end(err == nil)
	return results, err
}

// CompleteIn completes the task in a transaction of the database that the store is opened in, with tasks that are to
// run then: all that the transaction writes is there if the task is completed, and only then.
//
//	err := db.Update(ctx, func(tx *kv.Tx) error {
//		if err := tx.Bucket("imports").Put(key, value); err != nil {
//			return err
//		}
//		_, err := t.CompleteIn(tx, next)
//		return err
//	})
//
// If the transaction fails, the task is not completed, and what the worker returns decides as ever. Otherwise the
// worker should return; its error would only be logged. ErrLeaseLost, ErrCancelled: the task is not this worker's any
// more; the function returns the error, so that nothing is written. ErrBadOption: the Client is no [Joiner].
func (x *Execution) CompleteIn(tx *kv.Tx, then ...task.Spec) ([]task.Result, error) {
	store, ok := x.client.(Joiner)
	if !ok {
		return nil, &holdfast.Error{Op: "task complete", Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("a %T is not in the program's database", x.client), Remedy: "use CompleteThen"}
	}
	results, err := store.In(tx).Complete(x.lease, then...)
	if err != nil {
		return nil, err
	}

	// What becomes of the transaction is what becomes of the task.
	shared, err := tx.Enter(tx.DB())
	if err != nil {
		return nil, err
	}
	defer tx.Leave()
	if shared.Part(x) == nil {
		x.begin()
		shared.Join(x, (*completion)(x))
	}
	return results, nil
}

// begin notes that the task is being completed, and end whether it was.
func (x *Execution) begin() {
	x.unwatch()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settling = true
}

func (x *Execution) end(completed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settling, x.completed = completed, completed
}

// completion is the execution's part in the transaction that completes its task.
type completion Execution

// Prepare implements [txn.Part].
func (c *completion) Prepare(*holdfast.Batch) error { return nil }

// Commit implements [txn.Part].
func (c *completion) Commit(holdfast.Receipt, holdfast.Level) func() error {
	(*Execution)(c).end(true)
	return nil
}

// Rollback implements [txn.Part].
func (c *completion) Rollback() func() error {
	(*Execution)(c).end(false)
	return nil
}

// verdict is an error that says what becomes of a task.
type verdict struct {
	error
	dead, snooze bool
	in           time.Duration
}

func (v *verdict) Unwrap() error { return v.error }

func because(err error) error { return cmp.Or(err, errors.New("no reason is given")) }

// Dead makes an error that lets a task die, whatever attempts it has left.
func Dead(err error) error { return &verdict{error: because(err), dead: true} }

// RetryIn makes an error after which a task is tried again in d, if it has attempts left.
func RetryIn(d time.Duration, err error) error { return &verdict{error: because(err), in: max(d, 1)} }

// Snooze makes an error that is not a failure: the task runs again in d, and this attempt is not counted.
func Snooze(d time.Duration) error {
	return &verdict{error: fmt.Errorf("snoozed for %s", d), snooze: true, in: max(d, 0)}
}

// PanicError is what a panic of a worker becomes.
type PanicError struct {
	Value any
	Stack string
}

// Error says what the panic said.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns what the panic said, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
