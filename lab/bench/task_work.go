package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast/lab/contender"
)

// taskLoad is clients on a queue that is ready for claims.
func taskLoad(t Task, table *table[contender.Tasks], acked *taskAcks, client func(i int) func() error,
	verify func(contender.Tasks) (items, checked int64, err error)) (Load, error) {
	if err := table.store.Work(t.Clients); err != nil {
		return Load{}, errors.Join(err, table.close())
	}
	acked.put.Store(0) // what was put before
	load := table.load(client, verify)
	load.Put = acked.put.Load

	return load, nil
}

// taskLifecycle is lives of tasks. A life ends when the client begins the next one, so that there is a task of each
// client to be verified in the end, with the last output.
type taskLifecycle struct{}

// taskLives is what is known of the tasks that clients have.
type taskLives struct {
	*taskAcks
	mu   sync.Mutex
	last map[string]string // outputs, by id
}

func (l *taskLives) client(q contender.Tasks, i int) func() error {
	ctx := context.Background()
	var held contender.TaskClaim
	number := 0

	return func() error {
		if held.ID != "" {
			if err := l.complete(q, held); err != nil {
				return err
			}
			l.mu.Lock()
			delete(l.last, held.ID)
			l.mu.Unlock()
		}
		err := l.enqueue(q, contender.TaskSpec{Args: []byte(taskArgs), Discard: true})
		if err != nil {
			return err
		}
		if held, err = l.claim(q); err != nil {
			return err
		}
		number++

		var output []byte
		for n := range taskOutputs {
			output = fmt.Appendf(output[:0], taskOutput, n+1, i, number)
			if err := q.SetOutput(ctx, held, output); err != nil {
				return err
			}
			l.put.Add(int64(len(output)))
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if _, twice := l.last[held.ID]; twice {
			return fmt.Errorf("%w: two clients have task %s", ErrWrong, held.ID)
		}
		l.last[held.ID] = string(output)

		return nil
	}
}

func (l *taskLives) verify(q contender.Tasks) (items, checked int64, err error) {
	found := 0
	items, checked, err = l.taskAcks.verify(q, false, func(t contender.Task) (bool, error) {
		output, ok := l.last[t.ID]
		if ok {
			found++
		}
		if ok && (string(t.Output) != output || t.State.Finished()) {
			return true, fmt.Errorf("%w: task %s is %v with the output %q, should be held with %q", ErrWrong, t.ID, t.State,
				t.Output, output)
		}

		return ok, nil
	})
	if err == nil && found != len(l.last) {
		err = fmt.Errorf("%w: %d tasks are held, %d are there", ErrWrong, len(l.last), found)
	}

	return items, checked, err
}

func newTaskLives() *taskLives { return &taskLives{taskAcks: newTaskAcks(), last: map[string]string{}} }

func (taskLifecycle) engine(t Task) (Load, error) {
	table, err := openTable(t, openTasks)
	if err != nil {
		return Load{}, err
	}
	lives := newTaskLives()

	return taskLoad(t, table, lives.taskAcks, func(i int) func() error { return lives.client(table.store, i) },
		lives.verify)
}

func (taskLifecycle) null(t Task) (Load, error) {
	lives, null := newTaskLives(), &nullTasks{}
	return null.load(func(i int) func() error { return lives.client(null, i) }), nil
}

func (taskLifecycle) floor(t Task) (Load, error) { return taskFloor(t, taskChanges) }

// taskThroughput is tasks that are enqueued behind others, of which the next one is claimed and completed.
type taskThroughput struct{ backlog int }

func (taskThroughput) client(q contender.Tasks, acked *taskAcks) func() error {
	spec := contender.TaskSpec{Args: []byte(taskArgs)}

	return func() error {
		if err := acked.enqueue(q, spec); err != nil {
			return err
		}
		c, err := acked.claim(q)
		if err != nil {
			return err
		}

		return acked.complete(q, c)
	}
}

// taskChunk is how many tasks of the backlog are enqueued at once.
const taskChunk = 1000

func (w taskThroughput) engine(t Task) (Load, error) {
	acked := newTaskAcks()
	table, err := openTableLoaded(t, openTasks, func(q contender.Tasks) error {
		specs := make([]contender.TaskSpec, taskChunk)
		for i := range specs {
			specs[i].Args = []byte(taskArgs)
		}

		for left := w.backlog; left > 0; left -= taskChunk {
			if err := acked.enqueue(q, specs[:min(left, taskChunk)]...); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return Load{}, err
	}

	return taskLoad(t, table, acked, func(int) func() error { return w.client(table.store, acked) },
		func(q contender.Tasks) (items, checked int64, err error) {
			return acked.verify(q, true, func(contender.Task) (bool, error) { return false, nil })
		})
}

func (w taskThroughput) null(t Task) (Load, error) {
	acked, null := newTaskAcks(), &nullTasks{}
	return null.load(func(int) func() error { return w.client(null, acked) }), nil
}

func (taskThroughput) floor(t Task) (Load, error) { return taskFloor(t, 3) }

// taskFloor writes a record for each change.
func taskFloor(t Task, changes int) (Load, error) {
	f, err := newKVFloor(t, 1, taskRecord)
	if err != nil {
		return Load{}, err
	}

	return f.load(func(i int) func() error {
		write := f.appender(i)

		return func() error {
			for range changes {
				if err := write(); err != nil {
					return err
				}
			}

			return nil
		}
	}), nil
}

// nullTasks gives out tasks in order and keeps nothing.
type nullTasks struct {
	contender.Tasks
	enqueued, claimed atomic.Int64
}

func (n *nullTasks) load(client func(int) func() error) Load {
	return nullLoad(client, n.enqueued.Load)
}

// Enqueue implements [contender.Tasks].
func (n *nullTasks) Enqueue(context.Context, ...contender.TaskSpec) ([]string, error) {
	return []string{strconv.FormatInt(n.enqueued.Add(1), 10)}, nil
}

// Claim implements [contender.Tasks].
func (n *nullTasks) Claim(context.Context) (contender.TaskClaim, error) {
	return contender.TaskClaim{ID: strconv.FormatInt(n.claimed.Add(1), 10), Args: []byte(taskArgs)}, nil
}

// SetOutput implements [contender.Tasks].
func (n *nullTasks) SetOutput(context.Context, contender.TaskClaim, []byte) error { return nil }

// Complete implements [contender.Tasks].
func (n *nullTasks) Complete(context.Context, contender.TaskClaim) error { return nil }
