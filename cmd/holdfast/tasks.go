package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/store/task"
)

type taskCommand struct {
	List     taskList     `cmd:"" help:"List tasks."`
	Dead     taskDead     `cmd:"" help:"List the dead tasks, which failed for good, and why."`
	Show     taskShow     `cmd:"" help:"Show everything about a task."`
	Enqueue  taskEnqueue  `cmd:"" help:"Enqueue a task."`
	Retry    taskRetry    `cmd:"" help:"Run dead or cancelled tasks again."`
	Cancel   taskCancel   `cmd:"" help:"Cancel tasks."`
	Delete   taskDelete   `cmd:"" help:"Delete tasks that are not running."`
	Queues   taskQueues   `cmd:"" help:"List queues and their state."`
	Periodic taskPeriodic `cmd:"" help:"List periodic tasks, with their last and next ticks."`
	Pause    taskPause    `cmd:"" help:"Pause a queue: its tasks are not claimed."`
	Resume   taskResume   `cmd:"" help:"Resume a paused queue."`
}

type taskList struct {
	inPlace
	Queue string `help:"Only this queue." placeholder:"QUEUE"`
	State string `help:"Only this state: waiting, scheduled, blocked, running, completed, cancelled or dead." placeholder:"STATE"`
	Limit uint32 `help:"Maximum number; 0 for all." default:"100" placeholder:"N"`
}

func (c *taskList) run() int {
	var state task.State
	if c.State != "" {
		var err error
		if state, err = task.ParseState(c.State); err != nil {
			return fail(err)
		}
	}

	return c.reading(func(s *session) error {
		t := columns("id", "queue", "kind", "state", "attempts", "due", "worker")

		return s.tasks(&c.inPlace, task.Filter{Queue: c.Queue, State: state}, int(c.Limit), func(k *task.Task) {
			t.Row("", k.ID, k.Queue, k.Kind, k.State.String(), attempts(k), when(k.Due), cmp.Or(k.Worker, "-"))
			if t.Rows() == tableRows {
				s.t.Screen().Table(t)
				*t = *columns("id", "queue", "kind", "state", "attempts", "due", "worker")
			}
		}, func() {
			if t.Rows() > 0 { // none, if there are as many as tables show
				s.t.Screen().Table(t)
			}
		})
	})
}

// tableRows is after how many rows a table is shown, and the next one begun.
const tableRows = 1000

func attempts(k *task.Task) string { return fmt.Sprintf("%d of %d", k.Attempt, k.MaxAttempts) }

// tasks shows the tasks that a filter takes: as lines of JSON, or by row and end.
func (s *session) tasks(c *inPlace, f task.Filter, limit int, row func(*task.Task), end func()) error {
	tasks := s.client.Namespace(c.Namespace).Tasks()
	found := 0
	for limit == 0 || found < limit {
		f.Limit = tableRows
		if limit > 0 {
			f.Limit = min(limit-found, f.Limit)
		}
		page, next, err := tasks.List(s.ctx, f)
		if err != nil {
			return err
		}

		for i := range page {
			if !s.json {
				row(&page[i])
			} else if err := s.line(api.FromTask(&page[i])); err != nil {
				return err
			}
		}
		found += len(page)
		if f.Cursor = next; next == "" {
			break
		}
	}

	switch {
	case s.json:
	case found == 0:
		none()
	default:
		end()
	}

	return nil
}

type taskDead struct {
	inPlace
	Queue string `arg:"" optional:"" help:"The queue. Default: all."`
	Limit uint32 `help:"Maximum number; 0 for all." default:"100" placeholder:"N"`
}

func (c *taskDead) run() int {
	return c.reading(func(s *session) error {
		row := func(k *task.Task) {
			reason := "no reason is known"
			if n := len(k.Failures); n > 0 {
				reason = k.Failures[n-1].Message
			}
			fmt.Fprintf(s.out, "%s  %s  %s  %s  %s  %s\n", k.ID, k.Queue, k.Kind, when(k.Finished), attempts(k),
				text([]byte(reason)))
		}

		return s.tasks(&c.inPlace, task.Filter{Queue: c.Queue, State: task.Dead}, int(c.Limit), row, func() {})
	})
}

type taskShow struct {
	inPlace
	ID string `arg:"" help:"Id of the task."`
}

func (c *taskShow) run() int {
	return c.reading(func(s *session) error {
		k, err := s.client.Namespace(c.Namespace).Tasks().Get(s.ctx, c.ID)
		if err != nil {
			return err
		}
		if s.json {
			return s.document(api.FromTask(&k))
		}

		p := newPage(s.out)
		for _, l := range []struct{ name, value string }{
			{"id", k.ID}, {"queue", k.Queue}, {"kind", k.Kind}, {"state", k.State.String()}, {"attempts", attempts(&k)},
			{"created", when(k.Created)}, {"due", when(k.Due)}, {"started", when(k.Started)}, {"finished", when(k.Finished)},
			{"worker", k.Worker}, {"lease until", when(k.LeaseUntil)}, {"key", k.Key}, {"sequence", k.Sequence},
			{"unique", k.Unique}, {"payload", text(k.Payload)}, {"output", text(k.Output)},
		} {
			if l.value != "" && l.value != "-" {
				p.line("%s\t%s", l.name, l.value)
			}
		}
		if k.Priority != 0 {
			p.line("priority\t%d", k.Priority)
		}

		for _, id := range k.After {
			p.line("after\t%s", id)
		}

		for _, f := range k.Failures {
			p.line("failure\tattempt %d, %s: %s", f.Attempt, when(f.Time), text([]byte(f.Message)))
		}

		return p.end()
	})
}

type taskEnqueue struct {
	inPlace
	levelFlag
	Kind        string        `arg:"" help:"Kind of the task, which selects the worker."`
	Payload     string        `arg:"" optional:"" help:"Payload of the task; - for standard input."`
	ID          string        `name:"id" help:"Id of the task. Default: a new one." placeholder:"ID"`
	Queue       string        `help:"The queue." default:"default" placeholder:"QUEUE"`
	Priority    int8          `help:"Higher comes first." default:"0" placeholder:"N"`
	At          time.Time     `help:"Earliest time at which the task runs." placeholder:"2026-01-31T12:00:00Z"`
	Delay       time.Duration `help:"Delay from now before the task runs." default:"0s" placeholder:"10m"`
	Key         string        `help:"Key that the queue's limits by key count by." placeholder:"KEY"`
	Sequence    string        `help:"Tasks of the same sequence run one after another." placeholder:"NAME"`
	Unique      string        `help:"At most one unfinished task has this text." placeholder:"TEXT"`
	After       []string      `help:"Ids of tasks that must complete first." placeholder:"ID"`
	MaxAttempts int           `help:"Maximum number of attempts. Default: 25." default:"0" placeholder:"N"`
}

func (c *taskEnqueue) run() int {
	return c.with(func(s *session) error {
		payload, err := input(c.Payload)
		if err != nil {
			return err
		}
		r, err := s.client.Namespace(c.Namespace).Tasks().Enqueue(c.ctx(s), task.Spec{ID: c.ID, Queue: c.Queue, Kind: c.Kind,
			Payload: payload, Priority: c.Priority, At: c.At, Delay: c.Delay, Key: c.Key, Sequence: c.Sequence,
			Unique: c.Unique, After: c.After, MaxAttempts: c.MaxAttempts})
		if err != nil {
			return err
		}

		return s.said(api.Enqueued(r[0]), "%s%s", r[0].ID, map[bool]string{true: " (it was there)"}[r[0].Existing])
	})
}

type taskRetry struct {
	inPlace
	IDs   []string `arg:"" optional:"" name:"id" help:"Ids of the tasks."`
	Queue string   `help:"Retry all dead tasks of this queue instead." placeholder:"QUEUE"`
}

func (c *taskRetry) run() int {
	return c.with(func(s *session) error {
		tasks := s.client.Namespace(c.Namespace).Tasks()
		if (len(c.IDs) == 0) == (c.Queue == "") {
			return placeError("which tasks?", "give their ids, or a queue with --queue")
		}

		n := len(c.IDs)
		for _, id := range c.IDs {
			if err := tasks.Retry(s.ctx, id); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
		}
		if c.Queue != "" {
			var err error
			if n, err = tasks.RetryAll(s.ctx, c.Queue); err != nil {
				return err
			}
		}

		return s.said(api.Counted{Count: n}, "%d run again", n)
	})
}

// taskIDs are tasks with which the same is done.
type taskIDs struct {
	inPlace
	IDs []string `arg:"" name:"id" help:"Ids of the tasks."`
}

func (c *taskIDs) each(done string, do func(*client.Tasks, context.Context, string) error) int {
	return c.with(func(s *session) error {
		tasks := s.client.Namespace(c.Namespace).Tasks()
		for _, id := range c.IDs {
			if err := do(tasks, s.ctx, id); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
		}

		return s.said(api.Counted{Count: len(c.IDs)}, "%d %s", len(c.IDs), done)
	})
}

type taskCancel struct{ taskIDs }

func (c *taskCancel) run() int { return c.each("cancelled", (*client.Tasks).Cancel) }

type taskDelete struct{ taskIDs }

func (c *taskDelete) run() int { return c.each("removed", (*client.Tasks).Delete) }

type taskQueues struct{ inPlace }

func (c *taskQueues) run() int {
	return c.reading(func(s *session) error {
		queues, err := s.client.Namespace(c.Namespace).Tasks().Queues(s.ctx)
		if err != nil {
			return err
		}

		return list(s, queues, api.FromQueue, queueTable(), queueRow)
	})
}

type taskPeriodic struct{ inPlace }

func (c *taskPeriodic) run() int {
	return c.reading(func(s *session) error {
		periodic, err := s.client.Namespace(c.Namespace).Tasks().Periodics(s.ctx)
		if err != nil {
			return err
		}

		from := func(p task.PeriodicState) api.Periodic { return api.Periodic(p) }

		return list(s, periodic, from, columns("name", "last", "next", "refused#"), func(p api.Periodic) []string {
			next := "-"
			if !p.Next.IsZero() {
				next = when(p.Next)
			}

			return []string{p.Name, when(p.Last), next, num(p.Refused)}
		})
	})
}

func queueTable() *console.Table {
	names := []string{"queue"}
	for _, state := range task.States() {
		names = append(names, state.String()+"#")
	}

	return columns(append(names, "paused")...)
}

func queueRow(q api.Queue) []string {
	cells := []string{q.Name}
	for _, state := range task.States() {
		cells = append(cells, num(q.Counts[state.String()]))
	}

	return append(cells, map[bool]string{true: "yes", false: "no"}[q.Paused])
}

// taskQueue is a queue with which something is done.
type taskQueue struct {
	inPlace
	Queue string `arg:"" help:"The queue."`
}

func (c *taskQueue) do(f func(*client.Tasks, context.Context, string) error, done string) int {
	return c.with(func(s *session) error {
		if err := f(s.client.Namespace(c.Namespace).Tasks(), s.ctx, c.Queue); err != nil {
			return err
		}

		return s.said(struct{}{}, "queue %q %s", c.Queue, done)
	})
}

type taskPause struct{ taskQueue }

func (c *taskPause) run() int { return c.do((*client.Tasks).Pause, "is paused") }

type taskResume struct{ taskQueue }

func (c *taskResume) run() int { return c.do((*client.Tasks).Resume, "goes on") }
