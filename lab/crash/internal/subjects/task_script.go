package subjects

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/store/task"
)

// taskKind is what an operation on a task store does.
type taskKind int

const (
	taskEnqueue  taskKind = iota
	taskComplete          // the other kinds but the last begin with claiming a task
	taskFail
	taskBury   // fails for good
	taskSnooze // that and the next leave nothing behind that lasts
	taskForget // a lease that runs out
	taskHold   // a lease that outlives the test
	taskCancel
)

var taskKinds = [...]string{"enqueue", "complete", "fail", "bury", "snooze", "forget", "hold", "cancel"}

// String names the kind, as marks have it.
func (k taskKind) String() string { return taskKinds[k] }

var taskQueues = []string{"default", "limited", "held"}

const (
	taskHeld     = 2                // the queue of tasks that are held for ever, which no limit concerns
	taskAttempts = 3                // so often a task fails or is forgotten at most
	taskLarge    = 20 << 10         // bytes of payload
	taskFar      = 1000 * time.Hour // longer than any test
)

// taskOp is one operation on a task store. All but what it claims follows from its number.
type taskOp struct {
	n    uint64
	gen  uint32
	kind taskKind

	// Of tasks that are enqueued together:
	shape    string // "", "sequence", "after" or "unique"
	size     int    // tasks
	queue    int
	brief    bool // not kept once they are completed
	cancels  uint64
	enqueues bool // completing another task
}

// String names the operation, for findings.
func (o *taskOp) String() string { return fmt.Sprintf("operation %d (%v)", o.n, o.kind) }

// by is whom the operation claims and fails tasks as.
func (o *taskOp) by() string { return fmt.Sprintf("%d-%d", o.gen, o.n) }

// task makes operation n of a generation.
func (p script) task(gen uint32, n uint64) taskOp {
	// The order of the draws is part of what a seed means: the judge draws the same.
	r := p.Random(gen, n)
	o := taskOp{n: n, gen: gen, size: 1, queue: r.IntN(2)}
	switch what := r.IntN(40); {
	case what < 14:
	case what < 30:
		o.kind, o.enqueues = taskComplete, r.IntN(6) == 0
	case what < 37:
		o.kind = taskKind(2 + r.IntN(4))
	case what < 38:
		o.kind = taskHold
	default:
		o.kind = taskCancel

		// One of the last sixty, which is often still waiting.
		o.cancels = n - min(n, 1+r.Uint64N(60))
	}

	switch shape := r.IntN(8); {
	case shape < 2:
		o.shape, o.size = "sequence", 3
	case shape < 4:
		o.shape, o.size = "after", 3
	case shape == 4:
		o.shape = "unique"
	case shape == 5:
		o.size = 1 + r.IntN(4)
	case shape == 6:
		o.brief = true
	default:
		if r.IntN(3) == 0 {
			o.queue = taskHeld
		}
	}

	return o
}

// taskID is the id of task k of an operation.
func taskID(gen uint32, n uint64, k int) string { return fmt.Sprintf("%d-%d-%d", gen, n, k) }

// taskOf takes an id apart.
func taskOf(id string) (gen uint32, n uint64, k int, ok bool) {
	fields, _ := fmt.Sscanf(id, "%d-%d-%d", &gen, &n, &k)
	return gen, n, k, fields == 3
}

// specs makes the tasks that an operation enqueues.
func (p script) specs(o *taskOp) (specs []task.Spec) {
	// Another sequence than that of the operation itself, so that neither depends on how many draws the other makes.
	r := p.Random(o.gen, ^o.n)
	for k := range o.size {
		id := taskID(o.gen, o.n, k)
		size := commits.HeaderSize + r.IntN(200)
		if r.IntN(60) == 0 {
			size += r.IntN(taskLarge)
		}

		s := task.Spec{ID: id, Queue: taskQueues[o.queue], Kind: "crash", Priority: int8(r.IntN(3)),
			Key: fmt.Sprint("key-", r.IntN(4)), Payload: p.Value(nil, id, commits.Written{N: o.n, Gen: o.gen, Size: size})}
		switch {
		case o.shape == "sequence":
			s.Sequence = taskID(o.gen, o.n, 0)
		case o.shape == "after":
			for before := range k {
				s.After = append(s.After, taskID(o.gen, o.n, before))
			}

		// Four texts only, so that tasks often have the same one.
		case o.shape == "unique":
			s.Unique = fmt.Sprint("unique-", r.IntN(4))
		case o.brief:
			s.Keep = -1
		case r.IntN(4) == 0:
			s.Delay = time.Duration(r.IntN(20)) * time.Millisecond
		}
		specs = append(specs, s)
	}

	return specs
}

// taskMark is the key that an operation sets when it is done: in the commit of what it does if that takes the caller's
// keys, otherwise after it. It names the task that it is about, if any.
func taskMark(o *taskOp, kind taskKind, id string) string {
	return fmt.Sprintf("z-task/%016x/%v/%s", o.n, kind, id)
}

// taskMarked takes such a key apart.
func taskMarked(key string) (kind, id string, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 || parts[0] != "z-task" {
		return "", "", false
	}

	return parts[2], parts[3], true
}

// taskEntry describes a task that is found. What changes by itself as time passes is left out.
func taskEntry(t task.Task) commits.Found {
	state := "open"
	if t.State.Finished() {
		state = t.State.String()
	}
	begun := "new"
	if !t.Started.IsZero() {
		begun = "begun"
	}
	worker := t.Worker
	if worker == "" {
		worker = "-"
	}

	reasons := ","
	for _, f := range t.Failures {
		if by, ok := strings.CutPrefix(f.Message, "by "); ok {
			reasons += by + ","
		}
	}
	found := commits.NewFound(fmt.Sprintf("task %s %s %s %s %s", t.ID, state, begun, worker, reasons), t.Payload)
	found.Sum = taskDigest(t.Spec)

	return found
}

// taskDigest covers what was enqueued, but for what depends on the time and on other tasks.
func taskDigest(s task.Spec) commits.Digest {
	return commits.DigestOf(fmt.Appendf(nil, "%q %q %q %d %q %q %q %d %x", s.ID, s.Queue, s.Kind, s.Priority, s.Key,
		s.Sequence, s.Unique, max(s.Keep, -1), s.Payload)) // of times below 0 all are the same
}

// taskFound is a task in the words of its entry.
type taskFound struct{ id, state, begun, worker, reasons string }

// taskPlace takes the key of a task's entry apart.
func taskPlace(key string) (t taskFound, ok bool) {
	n, _ := fmt.Sscanf(key, "task %s %s %s %s %s", &t.id, &t.state, &t.begun, &t.worker, &t.reasons)
	return t, n == 5
}
