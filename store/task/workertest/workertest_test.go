package workertest_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/cron"
	"github.com/holdfastdb/holdfast/store/task/worker"
	"github.com/holdfastdb/holdfast/store/task/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	greet struct{ Who string }
	audit struct{ What string }
)

func (greet) Kind() string { return "greet" }
func (audit) Kind() string { return "audit" }

var (
	ctx     = context.Background()
	errRude = errors.New("rude")
)

// program is what is tested: it greets, and what it has greeted is audited. Its database is opened later.
func program(db **kv.DB) *worker.Workers {
	var ws worker.Workers
	worker.Register(&ws, func(ctx context.Context, t *worker.Task[greet]) error {
		if t.Args.Who == "nobody" && t.Attempt == 1 {
			return errRude
		}
		next, err := worker.NewSpec(audit{"greeted " + t.Args.Who}, task.Spec{Queue: "audits"})
		if err != nil {
			return err
		}
		return (*db).Update(ctx, func(tx *kv.Tx) error {
			if err := tx.Bucket("greeted").Put([]byte("last"), []byte(t.Args.Who)); err != nil {
				return err
			}
			_, err := t.CompleteIn(tx, next)
			return err
		})
	})
	worker.Register(&ws, func(context.Context, *worker.Task[audit]) error { return nil })
	return &ws
}

func kinds(runs []workertest.Run) (out []string) {
	for _, r := range runs {
		text := r.Kind + " " + r.State.String()
		if r.Err != nil {
			text += ": " + r.Err.Error()
		}
		out = append(out, text)
	}
	return out
}

func TestTasks(t *testing.T) {
	var db *kv.DB
	tasks := workertest.Open(t, program(&db), worker.Options{})
	db = tasks.DB
	for _, who := range []string{"ada", "nobody"} {
		if _, err := worker.Enqueue(ctx, tasks, greet{who}, task.Spec{Queue: "greetings", Delay: time.Minute,
			Backoff: task.Backoff{First: time.Hour}}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		if got := kinds(tasks.Run()); !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
	}
	if p := workertest.Pending[greet](tasks); len(p) != 2 || p[0].Args.Who != "ada" || p[1].Args.Who != "nobody" ||
		p[0].State != task.Scheduled || !p[0].Due.Equal(tasks.Now().Add(time.Minute)) {
		t.Errorf("pending are %+v", p)
	}
	expect()
	tasks.Advance(time.Minute)
	expect("greet completed", "greet scheduled: rude", "audit completed")
	tasks.Advance(time.Hour)
	expect("greet completed", "audit completed")
	if p := workertest.Pending[greet](tasks); p != nil {
		t.Errorf("pending are %+v", p)
	}
	if err := db.View(ctx, func(tx *kv.Tx) error {
		last, err := tx.Bucket("greeted").Get([]byte("last"))
		if string(last) != "nobody" {
			t.Errorf("%q was greeted last", last)
		}
		return err
	}); err != nil {
		t.Error(err)
	}

	hourly, err := cron.Parse("@hourly", nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := worker.NewSpec(audit{"all is well"}, task.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if err := tasks.AddPeriodic(ctx, task.Periodic{Name: "audit", Schedule: hourly, Spec: spec}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		tasks.Advance(time.Hour)
		expect("audit completed")
	}
}

// failing is a test that notes that it has failed.
type failing struct {
	testing.TB
	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = format
	panic(f)
}

// TestEndless: a worker that comes again at once does not run for ever.
func TestEndless(t *testing.T) {
	var ws worker.Workers
	worker.Register(&ws, func(context.Context, *worker.Task[greet]) error { return worker.Snooze(0) })
	f := &failing{TB: t}
	tasks := workertest.Open(f, &ws, worker.Options{Logger: slog.New(slog.DiscardHandler)})
	if _, err := worker.Enqueue(ctx, tasks, greet{}, task.Spec{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if v := recover(); v != f || !strings.Contains(f.said, "snooze") {
			t.Errorf("stopped by %v: %s", v, f.said)
		}
	}()
	tasks.Run()
	t.Error("there were endless tasks, and Run has returned")
}
