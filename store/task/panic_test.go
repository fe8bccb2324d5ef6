package task_test

import (
	"errors"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// scheduled is a schedule that is a function.
type scheduled func(time.Time) time.Time

func (s scheduled) Next(t time.Time) time.Time { return s(t) }

// Code of the program that panics leaves the store usable, for this call and all others.
func TestPanicsOfPeriodicTasks(t *testing.T) {
	c, eng := newClock(), mem.New()
	o := c.options(holdfast.Memory)
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := task.Open(kv.On(eng), o)
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	bad := func(time.Time) time.Time { panic("no schedule today") }
	storetest.WantError(t, s.AddPeriodic(ctx, task.Periodic{Name: "bad", Schedule: scheduled(bad)}), holdfast.ErrBadOption)
	if _, err := s.Enqueue(ctx, task.Spec{Kind: "k", ID: "still works"}); err != nil {
		t.Fatal(err)
	}
	// One whose Make panics passes its ticks over, one whose schedule does ends; others go on.
	makes, panics := 0, false
	for _, p := range []task.Periodic{
		{Name: "make", Schedule: every(time.Minute), Make: func(time.Time) task.Spec {
			if makes++; makes < 3 {
				panic(errors.New("no task today"))
			}
			return task.Spec{Kind: "make"}
		}},
		{Name: "schedule", Spec: task.Spec{Kind: "schedule"}, Schedule: scheduled(func(t time.Time) time.Time {
			if panics {
				panic("no more")
			}
			return t.Truncate(time.Minute).Add(time.Minute)
		})},
		{Name: "sound", Spec: task.Spec{Kind: "sound"}, Schedule: every(time.Minute)},
	} {
		if err := s.AddPeriodic(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]int{}
	for range 5 {
		c.pass(time.Minute)
		if err := s.Tick(ctx); err != nil {
			t.Fatal(err)
		}
		leases, err := s.Claim(ctx, task.ClaimOptions{N: 9})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range leases {
			got[l.Task.Kind]++
		}
		if err := s.Complete(ctx, leases...); err != nil {
			t.Fatal(err)
		}
		panics = len(got) > 0
	}
	if got["make"] != 3 || got["schedule"] == 0 || got["schedule"] > 2 || got["sound"] != 5 {
		t.Errorf("%v", got)
	}
	// Whatever ends the goroutine that the program's code is called by, the lock is given up.
	ended := make(chan bool)
	go func() {
		defer close(ended)
		_ = s.AddPeriodic(ctx, task.Periodic{Name: "exit", Schedule: scheduled(func(time.Time) time.Time {
			runtime.Goexit()
			return time.Time{}
		})})
	}()
	<-ended
	if _, err := s.Enqueue(ctx, task.Spec{Kind: "k", ID: "still works, too"}); err != nil {
		t.Fatal(err)
	}
}
