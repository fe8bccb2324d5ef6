// Package task is a durable queue of tasks over any engine with atomic batches.
//
//	tasks, err := task.Open(kv.On(engine), task.Options{}) // at Power unless told otherwise
//	r, err := tasks.Enqueue(ctx, task.Spec{Queue: "mail", Kind: "welcome", Payload: payload})
//	leases, err := tasks.Claim(ctx, task.ClaimOptions{Queues: []string{"mail"}, Wait: true})
//	err = tasks.Complete(ctx, leases...)
//
// Package store/task/worker runs tasks with functions that are typed by their arguments; most programs use that.
// store/task/cron has schedules, and store/task/workertest runs tasks in tests.
//
// # At least once, with fencing
//
// A claimed task is held under a lease. [Store.Heartbeat] extends the lease; when it runs out, the next worker can
// claim the task. From then on every call of the former holder returns [ErrLeaseLost]. So a task is never held under
// two valid leases, but it may be begun more than once: what it does must bear that, or be done in the commit that
// completes it ([Tx.Complete]).
//
// # Transactions
//
// A store is a part of the transactions of the database that it is opened in, package kv:
//
//	err := db.Update(ctx, func(tx *kv.Tx) error {
//		if err := tx.Bucket("users").Put(id, user); err != nil {
//			return err
//		}
//		_, err := tasks.In(tx).Enqueue(spec)
//		return err
//	})
//
// # States
//
// A task waits, is scheduled for a time, or is blocked by tasks that come before it; then it runs; it ends completed,
// cancelled or dead, which means that it has failed for good. A failed task is scheduled again, after a growing
// delay, until it has used up its attempts. Completed and cancelled tasks are removed after a while ([Spec].Keep).
// Dead ones stay, unless the queue says otherwise, until they are retried or deleted.
//
// # Order and limits
//
// Of the waiting tasks of a queue that no limit holds back, the one with the highest priority comes first; of those
// with the same priority the one that was due first; then the one that was enqueued first. Across queues a claim
// takes them in the order in which it names them. Limits count running tasks and starts, by queue and by key. Tasks
// that a limit holds back cost the others nothing.
//
// Tasks of one sequence run one after the other, in the order in which they were enqueued: the next one may be claimed
// once the one before it is completed, cancelled, dead or deleted, and not while that waits for another attempt. Tasks
// that name others in [Spec].After are blocked until all of these are completed. If one of these ends otherwise, or is
// deleted, the tasks behind it are cancelled, and those behind them.
//
// # Time
//
// Leases are measured by the time that passes, whatever the clock shows. The times of schedules, periods and
// retention are those of the clock, which may be set: a task due at a time is claimed once the clock shows that. What
// was asked for with a delay (also retries) waits for that long at most, even if the clock is set back meanwhile, but
// for steps of up to a second, with which daemons keep the time: each makes it longer by as much. Across a restart
// there is only the clock; no lease outlives it by more than its length.
//
// When the clock is set back, a stored time that lies further ahead than it could be asked for now is taken as asked
// for now. A clock that was ahead for a moment, by whatever, so has no effect that lasts: unique texts are kept no
// longer than UniqueFor from now, finished tasks no longer than Keep, tasks that became ready while it was ahead keep
// their turn, periodic tasks go on with the next tick. While it is ahead, all that is due then is done, for good. A
// task that is due at a time keeps that time.
package task

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Limits of a task. Sizes are in bytes.
const (
	// MaxNameSize is the longest name of a store, queue, worker or periodic task.
	MaxNameSize = 128
	// MaxTextSize is the longest id, kind, key, sequence and unique text.
	MaxTextSize = 255
	// MaxPayloadSize is the largest payload, and the largest output.
	MaxPayloadSize = 1 << 20
	// MaxAfter is how many tasks one task can run after.
	MaxAfter = 100_000
	// MaxFailures is how many failures are kept of a task, the last ones.
	MaxFailures = 5
	// MaxFailureSize is how much is kept of the message of a failure, and of its stack.
	MaxFailureSize = 4 << 10
)

// Defaults.
const (
	DefaultQueue        = "default"
	DefaultLease        = 30 * time.Second
	DefaultMaxAttempts  = 25
	DefaultFirstBackoff = time.Second
	DefaultMaxBackoff   = time.Hour
	DefaultKeep         = 24 * time.Hour
)

// The classes of errors, besides those of package holdfast: ErrNotFound for a task or queue that is not there,
// ErrBadOption for what makes no sense, ErrTooLarge, ErrClosed.
var (
	// ErrLeaseLost: the lease has run out, or the task was completed, put back or deleted.
	ErrLeaseLost = errors.New("holdfast: lease lost")
	// ErrCancelled: the task was cancelled while the lease was held. The worker should stop.
	ErrCancelled = errors.New("holdfast: task cancelled")
	// ErrExists: there is a task with that id, or with the unique text.
	ErrExists = errors.New("holdfast: task exists")
	// ErrCycle: tasks that are enqueued together would wait for each other.
	ErrCycle = errors.New("holdfast: tasks wait for each other")
	// ErrState: the task's state does not allow the operation.
	ErrState = errors.New("holdfast: not in this state")
)

// State is where a task is in its life.
type State uint8

// The states.
const (
	Waiting   State = iota + 1 // may be claimed as soon as limits allow it
	Scheduled                  // not before its time: from the start, or after a failure or snooze
	Blocked                    // runs after tasks that are not completed, or is not the next of its sequence
	Running                    // held under a lease
	Completed
	Cancelled
	Dead // has failed for good
)

var stateNames = [...]string{"", "waiting", "scheduled", "blocked", "running", "completed", "cancelled", "dead"}

// States returns all states, in the order of a task's life.
func States() []State {
	return []State{Waiting, Scheduled, Blocked, Running, Completed, Cancelled, Dead}
}

// String returns the state in lower case.
func (s State) String() string {
	if s.valid() {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText implements [encoding.TextMarshaler]: states are their names in JSON and elsewhere. The zero State is
// none.
func (s State) MarshalText() ([]byte, error) {
	if s != 0 && !s.valid() {
		return nil, &holdfast.Error{Op: "task state", Class: holdfast.ErrBadOption, Detail: s.String()}
	}
	return []byte(stateNames[s]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *State) UnmarshalText(text []byte) (err error) {
	if *s = 0; len(text) > 0 {
		*s, err = ParseState(string(text))
	}
	return err
}

func (s State) valid() bool { return s >= Waiting && s <= Dead }

// Finished reports whether a task in this state runs no more, unless it is retried.
func (s State) Finished() bool { return s >= Completed && s <= Dead }

// ParseState returns the state of that name; ErrBadOption if there is none.
func ParseState(text string) (State, error) {
	for s := Waiting; s <= Dead; s++ {
		if stateNames[s] == text {
			return s, nil
		}
	}
	return 0, &holdfast.Error{Op: "task parse state", Class: holdfast.ErrBadOption, Detail: fmt.Sprintf("%.40q", text),
		Remedy: "use one of" + strings.Join(stateNames[:], " ")}
}

// Options are how a store is opened. The zero value is a safe choice.
type Options struct {
	// Name distinguishes several stores in one engine, at most MaxNameSize bytes, UTF-8 without control characters; it may
	// be empty.
	Name string

	// Level is what every change survives once it is acknowledged, unless its context names a stronger one
	// ([holdfast.WithLevel]); 0 means that of the database. A store may be opened at another level the next time. What the
	// store does by itself, such as enqueueing periodic tasks, is at this level.
	Level holdfast.Level

	// Keep is how long finished tasks are kept whose Spec and queue do not say; 0 means DefaultKeep, less than 0 that
	// they are removed at once.
	Keep time.Duration

	// Now is the clock; nil means time.Now. A program with a clock of its own calls Tick when that has moved.
	Now func() time.Time

	// Elapsed is how much time has passed since some moment, whatever the clock shows; it never falls. Leases are
	// measured by it. nil means the monotonic time of the system if Now is nil too, and otherwise that leases
	// are measured by Now.
	Elapsed func() time.Duration

	// Logger takes warnings about background work; nil means slog.Default.
	Logger *slog.Logger
}

// Spec is a task to be enqueued. The zero value of a field is its default.
type Spec struct {
	// ID names the task; "" lets the store make an id, greater as a text than those that it made before. Ids in the
	// form of those that stores make are refused, unless the store made it.
	ID       string
	Queue    string // "" means DefaultQueue
	Kind     string // which worker runs it
	Payload  []byte // at most MaxPayloadSize
	Priority int8   // higher comes first

	// At is the earliest time at which it may run, Delay the same from now on. At most one of them is set.
	At    time.Time
	Delay time.Duration

	// Key is what the limits by key of its queue count by: a customer. "" is not limited by key.
	Key string
	// Sequence names tasks of any queue that run one after the other, in the order of enqueueing.
	Sequence string

	// Unique lets there be one task at most with this text, in all queues: until it is finished if UniqueFor is 0,
	// otherwise for that long from now on. As long as there is one, enqueueing changes nothing and returns its id.
	Unique    string
	UniqueFor time.Duration

	// After are the ids of tasks that must be completed first, at most MaxAfter. They may be enqueued in the same call,
	// in any order.
	After []string

	MaxAttempts int     // 0 means DefaultMaxAttempts
	Backoff     Backoff // between attempts

	// Keep is how long the task is kept once it is completed or cancelled; 0 means as long as its queue says, less
	// than 0 not at all.
	Keep time.Duration
}

// Backoff is how long a task waits after an attempt that failed: First after the first one, twice as long after each
// further one, Max at most, and of that a random part from half to all.
type Backoff struct {
	First time.Duration // 0 means DefaultFirstBackoff
	Max   time.Duration // 0 means DefaultMaxBackoff, or First if that is longer
}

// Task is what is known of a task. Its Spec is as it was enqueued, with the id, the queue, At, MaxAttempts and
// Backoff filled in.
type Task struct {
	Spec
	State    State
	Attempt  int // how often it was begun, without the attempts that were snoozed
	Created  time.Time
	Due      time.Time // when it may run next, or was allowed to
	Started  time.Time // the last attempt; zero if there was none
	Finished time.Time // zero before

	Worker     string    // who has claimed it last
	LeaseUntil time.Time // while it runs

	Output   []byte    // at most MaxPayloadSize
	Failures []Failure // the last ones, the oldest first
}

// Failure is why an attempt failed. Message and Stack are cut to MaxFailureSize.
type Failure struct {
	Attempt        int       // set by the store
	Time           time.Time // set by the store
	Message, Stack string
}

// Lease is the right to work on a task. It can be sent elsewhere: its ID and Token are all that the store asks for.
type Lease struct {
	Task  Task
	Token uint64    // no other claim has the same, across restarts too
	Until time.Time // by the clock, when it was given or extended
}

// Result is what became of a Spec.
type Result struct {
	ID       string
	Existing bool // there was a task with its Unique text
}

// LeaseErrors says which of several leases something could not be done with; with the others it was.
type LeaseErrors struct {
	Errs []error // one for each lease, nil where all is well
}

// Error is the first of the errors, and how many more there are.
func (e *LeaseErrors) Error() string {
	text, more := "", 0
	for _, err := range e.Errs {
		if err != nil && text == "" {
			text = err.Error()
		} else if err != nil {
			more++
		}
	}
	if more > 0 {
		text = fmt.Sprintf("%s (and %d more)", text, more)
	}
	return text
}

// Unwrap returns the errors.
func (e *LeaseErrors) Unwrap() (errs []error) {
	for _, err := range e.Errs {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// ClaimOptions say what to claim.
type ClaimOptions struct {
	Queues []string      // in this order; none means DefaultQueue
	N      int           // how many tasks at most; 0 means 1. They are fewer where no more fit in ClaimBytes
	Lease  time.Duration // 0 means DefaultLease
	Worker string        // who claims, for those who look
	Wait   bool          // until there is one
}

// FailOptions say what happens to a failed task. The zero value schedules it again after its Backoff, or lets it die
// if it has used up its attempts.
type FailOptions struct {
	RetryIn time.Duration // instead of its Backoff, if it is not 0
	Dead    bool          // whatever attempts are left
}

// Filter selects tasks.
type Filter struct {
	Queue  string // "" means all
	State  State  // 0 means all
	Cursor string // where the list before this one ended; "" from the start
	Limit  int    // 0 means 100; at most 1000
}

// Rate is N starts in any span of time of length Per. The zero Rate is no limit.
type Rate struct {
	N   int
	Per time.Duration
}

// QueueOptions are the limits of a queue. The zero value limits nothing.
type QueueOptions struct {
	Concurrency    int  // tasks that run at once; 0 means no limit
	Rate           Rate // starts
	KeyConcurrency int  // tasks of one key that run at once; 0 means no limit
	KeyRate        Rate // starts of tasks of one key

	// Keep is for completed and cancelled tasks whose Spec does not say; 0 means as the store does, less than 0 not at
	// all.
	Keep time.Duration
	// KeepDead is for dead tasks; 0 means forever, less than 0 not at all.
	KeepDead time.Duration
}

// QueueInfo describes the state of a queue.
type QueueInfo struct {
	Name    string
	Options QueueOptions
	Paused  bool
	Counts  map[State]int
	// Next is when the waiting task became due that a claim would take next, without priorities the oldest one; zero if
	// there is none, or if limits of their keys hold all of them back.
	Next time.Time
}

// Schedule says when a periodic task is to run: Next returns the first time after a time, the zero time if there is
// none. It is called with the store's lock held: it neither blocks nor uses the store.
type Schedule interface {
	Next(after time.Time) time.Time
}

// CatchUp says what happens to ticks that passed while no program had the store open.
type CatchUp uint8

// What happens to missed ticks.
const (
	CatchUpLast CatchUp = iota // the last one is made up for
	CatchUpNone                // none
	CatchUpAll                 // all, MaxCatchUp at most
)

// MaxCatchUp is the maximum number of missed ticks that are caught up, the latest ones.
const MaxCatchUp = 1000

// Periodic is a task that is enqueued again and again, once for each tick of its schedule.
type Periodic struct {
	Name     string // what its ticks are remembered under
	Schedule Schedule
	Spec     Spec                      // of each task; its ID is empty, and its At the tick if neither At nor Delay is set
	Make     func(tick time.Time) Spec // instead of Spec, if it is not nil; called as Schedule is
	CatchUp  CatchUp
}
