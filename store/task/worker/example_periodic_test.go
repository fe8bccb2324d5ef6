package worker_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/cron"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// Report is made every morning.
type Report struct{ Format string }

func (Report) Kind() string { return "report" }

// A periodic task is enqueued once for each tick of its schedule.
func Example_periodic() {
	eng := mem.New()
	defer eng.Close()
	var days atomic.Int64 // a clock of our own, so that the example does not take days
	now := func() time.Time { return time.Date(2026, 3, 7+int(days.Load()), 12, 0, 0, 0, time.UTC) }
	tasks, err := task.Open(kv.On(eng), task.Options{Level: holdfast.Memory, Now: now})
	if err != nil {
		log.Fatal(err)
	}
	defer tasks.Close()
	ctx := context.Background()
	morning, err := cron.Parse("CRON_TZ=Europe/Berlin 30 6 * * *", nil)
	if err != nil {
		log.Fatal(err)
	}
	report, err := worker.NewSpec(Report{Format: "PDF"}, task.Spec{})
	if err != nil {
		log.Fatal(err)
	}
	err = tasks.AddPeriodic(ctx, task.Periodic{Name: "morning report", Schedule: morning, Spec: report})
	if err != nil {
		log.Fatal(err)
	}

	var workers worker.Workers
	worker.Register(&workers, func(ctx context.Context, t *worker.Task[Report]) error {
		fmt.Println(t.Args.Format, "of", t.At) // the tick
		return nil
	})
	runner, err := worker.New(tasks, &workers, worker.Options{})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		days.Add(1)
		if err := tasks.Tick(ctx); err != nil {
			log.Fatal(err)
		}
		if _, err := runner.RunDue(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// PDF of 2026-03-08 05:30:00 +0000 UTC
	// PDF of 2026-03-09 05:30:00 +0000 UTC
}
