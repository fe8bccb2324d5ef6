package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// stopping ends the runner's context when it has claimed something.
type stopping struct {
	*task.Store
	stop func()
}

func (c stopping) Claim(ctx context.Context, o task.ClaimOptions) ([]task.Lease, error) {
	leases, err := c.Store.Claim(ctx, o)
	c.stop()
	return leases, err
}

// TestGivenBack: what was claimed when the runner stops is given back, and the log has no error of it.
func TestGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var log bytes.Buffer
		var ws worker.Workers
		worker.Register(&ws, func(context.Context, *worker.Task[step]) error { return errors.New("it has run") })
		running, stop := context.WithCancel(ctx)
		id := f.enqueue("it", task.Spec{})
		o := worker.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		f.check(f.runner(stopping{f.Store, stop}, &ws, o).Run(running))
		if got := f.get(id); got.State != task.Waiting || got.Attempt != 0 {
			t.Errorf("it is %s after %d attempts", got.State, got.Attempt)
		}
		if text := log.String(); !strings.Contains(text, "given back") || strings.Contains(text, "error") {
			t.Errorf("the log: %s", text)
		}
	})
}

// TestMisspeltQueue: a worker of a queue that nothing is known of says so once, with the names of those that there are,
// whether these come before it or after it; it runs what comes all the same.
func TestMisspeltQueue(t *testing.T) {
	for _, before := range []bool{true, false} {
		bubble(t, func(t *testing.T, f *fixture) {
			var log bytes.Buffer
			ran := 0
			var ws worker.Workers
			worker.Register(&ws, func(context.Context, *worker.Task[step]) error { ran++; return nil })
			if before {
				f.check(f.SetQueue(ctx, "known", task.QueueOptions{}))
				f.enqueue("it", task.Spec{Queue: "mail"})
			}
			r := f.runner(f.Store, &ws, worker.Options{Queues: []string{"mial", ""}, Concurrency: 1,
				Logger: slog.New(slog.NewJSONHandler(&log, nil))})
			running, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- r.Run(running) }()
			synctest.Wait()
			if !before {
				f.enqueue("it", task.Spec{Queue: "mail"})
			}
			time.Sleep(10 * task.DefaultLease)
			f.enqueue("it", task.Spec{Queue: "mial"})
			synctest.Wait()
			stop()
			f.check(<-ended)
			var warning struct {
				Level, Queue string
				Known        []string
			}
			if lines := bytes.Count(log.Bytes(), []byte("\n")); lines != 1 {
				t.Fatalf("%d lines: %s", lines, &log)
			}
			f.check(json.Unmarshal(log.Bytes(), &warning))
			want := "[mail]"
			if before {
				want = "[known mail]"
			}
			if warning.Level != "WARN" || warning.Queue != "mial" || fmt.Sprint(warning.Known) != want {
				t.Errorf("%s", &log)
			}
			if ran != 1 {
				t.Errorf("%d tasks have run", ran)
			}
		})
	}
}

// TestFirstQueue: a worker of a store that has no queue yet is no reason for a warning.
func TestFirstQueue(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var log bytes.Buffer
		var ws worker.Workers
		worker.Register(&ws, func(context.Context, *worker.Task[step]) error { return nil })
		r := f.runner(
			f.Store,
			&ws,
			worker.Options{Queues: []string{"mail"}, Logger: slog.New(slog.NewTextHandler(&log, nil))},
		)
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(running) }()
		time.Sleep(10 * task.DefaultLease)
		stop()
		f.check(<-ended)
		if log.Len() > 0 {
			t.Errorf("%s", &log)
		}
	})
}
