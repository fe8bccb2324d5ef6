package task_test

import (
	"bytes"
	"log/slog"

	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestTicks: whatever the clock does, with refused commits, and though the store is closed and the periodic task added
// again and again, a tick has one task at most, no tick that is to come has one, and while the store is open and the
// clock goes on, none is left out.
func TestTicks(t *testing.T) {
	few(t, 40)
	rapid.Check(t, func(rt *rapid.T) {
		c, eng := newClock(), storetest.NewFakeEngine()
		var s *task.Store
		open := func() {
			var err error
			if s, err = task.Open(kv.On(eng), c.options(holdfast.Memory)); err != nil {
				rt.Fatal(err)
			}
		}
		catchUp := rapid.SampledFrom([]task.CatchUp{task.CatchUpLast, task.CatchUpNone, task.CatchUpAll}).Draw(rt, "catch up")
		add := func() {
			if err := s.AddPeriodic(ctx, task.Periodic{Name: "p", Schedule: every(time.Minute), CatchUp: catchUp,
				Make: func(tick time.Time) task.Spec { return task.Spec{Kind: fmt.Sprint(tick.Unix())} }}); err != nil {
				rt.Fatal(err)
			}
		}
		open()
		defer func() { _ = s.Close() }()
		add()
		seen := map[string]int{}
		highest := c.Now()
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			d := rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, time.Minute, time.Hour}).Draw(rt, "time")
			whole := false
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				c.jump(-d)
			case 1:
				c.jump(d)
			case 2, 3:
				if err := s.Close(); err != nil {
					rt.Fatal(err)
				}
				c.pass(d)
				open()
				add()
			case 4:
				eng.Locked(func() { eng.Refuse, eng.Spare = holdfast.ErrFull, 0 })
				c.pass(d)
				_ = s.Tick(ctx)
				eng.Locked(func() { eng.Refuse = nil })
				c.pass(2 * time.Second) // when it is tried again
			case 5:
				add()
			default:
				c.pass(d)
				whole = d <= time.Minute && c.Now().After(highest.Add(time.Minute))
			}
			if err := s.Tick(ctx); err != nil {
				rt.Fatal(err)
			}
			leases, err := s.Claim(ctx, task.ClaimOptions{N: 5000})
			if err != nil {
				rt.Fatal(err)
			}
			now := c.Now()
			if now.After(highest) {
				highest = now
			}
			for _, l := range leases {
				var unix int64
				if _, err := fmt.Sscan(l.Task.Kind, &unix); err != nil || unix%60 != 0 || unix > highest.Unix() {
					rt.Fatalf("at %v there is a task of %q", now, l.Task.Kind)
				}
				if seen[l.Task.Kind]++; seen[l.Task.Kind] > 1 {
					rt.Fatalf("the tick %s has two tasks", time.Unix(unix, 0).UTC())
				}
			}
			if err := s.Complete(ctx, leases...); len(leases) > 0 && err != nil {
				rt.Fatal(err)
			}
			if last := fmt.Sprint(now.Truncate(time.Minute).Unix()); whole && seen[last] == 0 {
				rt.Fatalf("at %v the tick %s has no task", now, last)
			}
		}
	})
}

// TestRefusedTicksWarn: of several ticks in a row whose tasks are refused one is warned of, with what to do; all are
// counted, also by the next opening.
func TestRefusedTicksWarn(t *testing.T) {
	var log bytes.Buffer
	c, eng := newClock(), mem.New()
	o := c.options(holdfast.Memory)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	s := openStore(t, eng, o)
	id := "nightly"
	p := task.Periodic{Name: "p", Schedule: every(time.Minute),
		Make: func(time.Time) task.Spec { return task.Spec{ID: id, Kind: "k"} }}
	if err := s.AddPeriodic(ctx, p); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		id                string
		ticks             int
		warnings, refused int
	}{{"nightly", 20, 1, 19}, {"other", 10, 2, 28}, {"", 5, 2, 28}, {"nightly", 3, 3, 31}} {
		id = step.id
		for range step.ticks {
			c.pass(time.Minute)
			if err := s.Tick(ctx); err != nil {
				t.Fatal(err)
			}
		}
		list, err := s.Periodics(ctx)
		n := bytes.Count(log.Bytes(), []byte("leave the ID out of what Make returns"))
		if err != nil || len(list) != 1 || list[0].Refused != uint64(step.refused) || n != step.warnings {
			t.Errorf("%+v: %d warnings, %+v, %v", step, n, list, err)
		}
	}
	closeStore(t, s)
	if lines := bytes.Count(log.Bytes(), []byte("\n")); lines != 3 {
		t.Errorf("%d lines: %s", lines, &log)
	}
}
