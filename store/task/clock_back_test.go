package task_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestClockWasAhead: for each time that the store keeps, a clock that was ahead when it was stored, and is right again,
// has no effect that lasts, whether the store is open meanwhile or not.
func TestClockWasAhead(t *testing.T) {
	claimed := func(b *bench, kinds ...string) {
		b.t.Helper()
		leases, err := b.Claim(ctx, task.ClaimOptions{N: 100})
		b.ok(err)
		var got []string
		for _, l := range leases {
			got = append(got, l.Task.Kind)
		}
		if fmt.Sprint(got) != fmt.Sprint(kinds) {
			b.t.Errorf("claimed %q, want %q", got, kinds)
		}
		if len(leases) > 0 {
			b.ok(b.Complete(ctx, leases...))
		}
	}
	add := func(b *bench, spec task.Spec) bool {
		b.t.Helper()
		r, err := b.Enqueue(ctx, spec)
		b.ok(err)
		return r[0].Existing
	}
	for _, c := range []struct {
		name  string
		ahead func(b *bench) // done while the clock is ahead
		after func(b *bench) // done when it is right again
	}{
		{"ready", func(b *bench) { add(b, task.Spec{Kind: "first"}) }, func(b *bench) {
			add(b, task.Spec{Kind: "second"})
			claimed(b, "first", "second")
		}},
		{"delay", func(b *bench) { add(b, task.Spec{Kind: "late", Delay: time.Minute}) }, func(b *bench) {
			claimed(b)
			b.pass(61 * time.Second)
			claimed(b, "late")
		}},
		{"retry", func(b *bench) {
			add(b, task.Spec{Kind: "again", Backoff: task.Backoff{First: time.Minute, Max: time.Minute}})
			leases, err := b.Claim(ctx, task.ClaimOptions{})
			b.ok(err)
			b.ok(b.Fail(ctx, leases[0], task.Failure{}, task.FailOptions{}))
		}, func(b *bench) {
			b.pass(61 * time.Second)
			claimed(b, "again")
		}},
		{"lease", func(b *bench) {
			add(b, task.Spec{Kind: "held", Backoff: task.Backoff{First: 1, Max: 1}})
			_, err := b.Claim(ctx, task.ClaimOptions{Lease: time.Minute})
			b.ok(err)
		}, func(b *bench) {
			b.pass(61 * time.Second)
			b.pass(time.Second)
			claimed(b, "held")
		}},
		{"unique", func(b *bench) {
			add(b, task.Spec{Kind: "one", Unique: "u", UniqueFor: time.Hour})
			claimed(b, "one")
		}, func(b *bench) {
			if !add(b, task.Spec{Kind: "other", Unique: "u", UniqueFor: time.Hour}) {
				b.t.Error("the text is not unique any more")
			}
			b.pass(61 * time.Minute)
			if add(b, task.Spec{Kind: "other", Unique: "u", UniqueFor: time.Hour}) {
				b.t.Error("the text is unique for longer than an hour")
			}
		}},
		{"keep", func(b *bench) {
			add(b, task.Spec{ID: "done", Kind: "done", Keep: time.Hour})
			claimed(b, "done")
		}, func(b *bench) {
			if _, err := b.Get(ctx, "done"); err != nil {
				b.t.Error(err)
			}
			b.pass(61 * time.Minute)
			if _, err := b.Get(ctx, "done"); !errors.Is(err, holdfast.ErrNotFound) {
				b.t.Errorf("it is kept for longer than an hour: %v", err)
			}
		}},
		{"rate", func(b *bench) {
			b.ok(b.SetQueue(ctx, "", task.QueueOptions{Rate: task.Rate{N: 1, Per: time.Minute}}))
			add(b, task.Spec{Kind: "a"})
			claimed(b, "a")
		}, func(b *bench) {
			add(b, task.Spec{Kind: "b"})
			b.pass(61 * time.Second)
			claimed(b, "b")
		}},
		{"at", func(b *bench) { add(b, task.Spec{Kind: "fixed", At: b.c.Now().Add(-time.Minute)}) }, func(b *bench) {
			claimed(b, "fixed") // it was due then, and is ready
		}},
		{"periodic", func(b *bench) { b.ok(b.Tick(ctx)) }, func(b *bench) {
			b.ok(b.AddPeriodic(ctx, minutely))
			claimed(b, "tick") // of the clock that was ahead
			for range 10 {
				b.pass(time.Minute)
				claimed(b, "tick")
			}
		}},
	} {
		for _, ahead := range []time.Duration{2 * time.Hour, 365 * 24 * time.Hour} {
			for _, reopened := range []bool{false, true} {
				t.Run(fmt.Sprint(c.name, "/", ahead, "/reopened=", reopened), func(t *testing.T) {
					b := newBench(t)
					if c.name == "periodic" {
						b.ok(b.AddPeriodic(ctx, minutely))
						for range 5 {
							b.pass(time.Minute)
							claimed(b, "tick")
						}
					}
					b.c.jump(ahead)
					b.ok(b.Tick(ctx))
					c.ahead(b)
					if reopened {
						b.reopen()
					}
					b.c.jump(-ahead)
					if reopened {
						b.reopen()
						b.reopen() // it is made up for once
					}
					b.ok(b.Tick(ctx))
					c.after(b)
				})
			}
		}
	}
}

// TestTicksOnce: whatever the clock does, and however often the program ends and begins, no tick has two tasks; and
// while the clock is right each minute has its tick, whatever was while it was ahead.
func TestTicksOnce(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBench(t)
		var mu sync.Mutex // the store fires ticks by itself, too
		had := map[time.Time]bool{}
		p := minutely
		p.CatchUp = task.CatchUp(seed % 3)
		p.Make = func(tick time.Time) task.Spec {
			mu.Lock()
			defer mu.Unlock()
			if had[tick] {
				t.Errorf("seed %d: the tick %v has two tasks", seed, tick)
			}
			had[tick] = true
			return p.Spec
		}
		ahead := time.Duration(r.IntN(2)) * 1000 * time.Hour
		b.c.jump(ahead)
		b.ok(b.AddPeriodic(ctx, p))
		for step := range 60 {
			switch r.IntN(4) {
			case 0: // the program is away
				storetest.Close(t, b.Store)
				b.c.pass(time.Duration(r.IntN(6)) * time.Minute)
				b.open()
				b.ok(b.AddPeriodic(ctx, p))
			case 1: // while the program is away or not
				to := time.Duration(r.IntN(3)) * 1000 * time.Hour
				if r.IntN(8) == 0 {
					to = -2 * time.Minute
				}
				b.c.jump(to - ahead)
				if ahead = to; r.IntN(2) == 0 {
					b.reopen()
					b.ok(b.AddPeriodic(ctx, p))
				}
				b.ok(b.Tick(ctx))
			default:
				b.pass(time.Minute)
				mu.Lock()
				if ahead >= 0 && !had[b.c.Now().Truncate(time.Minute)] {
					t.Errorf("seed %d, step %d: no tick at %v, %v ahead", seed, step, b.c.Now(), ahead)
				}
				mu.Unlock()
			}
		}
	}
}

var minutely = task.Periodic{Name: "p", Schedule: every(time.Minute), Spec: task.Spec{Kind: "tick"}}

// daily is a schedule of one hour of the day, in a time zone.
type daily struct {
	hour int
	in   *time.Location
}

func (d daily) Next(after time.Time) time.Time {
	t := after.In(d.in)
	next := time.Date(t.Year(), t.Month(), t.Day(), d.hour, 0, 0, 0, d.in)
	if !next.After(after) {
		next = next.AddDate(0, 0, 1)
	}
	return next
}

// TestScheduleEdited: a schedule has no tick before it was set, in whatever way it differs from the one before, and one
// that is as it was catches up.
func TestScheduleEdited(t *testing.T) {
	east, west := time.FixedZone("east", 3600), time.FixedZone("west", -5*3600)
	for _, c := range []struct {
		name     string
		was, is  task.Schedule
		catchUp  task.CatchUp
		at       int // hour at which it is set again
		caughtUp int
	}{
		{"another hour", daily{3, time.UTC}, daily{5, time.UTC}, task.CatchUpLast, 12, 0},
		{"another zone", daily{4, east}, daily{4, west}, task.CatchUpLast, 12, 0},
		{"more often", daily{3, time.UTC}, every(5 * time.Minute), task.CatchUpAll, 12, 0},
		{"the same next tick", daily{3, time.UTC}, every(time.Hour), task.CatchUpAll, 26, 0},
		{"unchanged", daily{3, time.UTC}, daily{3, time.UTC}, task.CatchUpLast, 28, 1},
		{"unchanged, all", daily{3, time.UTC}, daily{3, time.UTC}, task.CatchUpAll, 52, 2},
		{"unchanged, none", daily{3, time.UTC}, daily{3, time.UTC}, task.CatchUpNone, 28, 0},
	} {
		for _, reopened := range []bool{false, true} {
			if !reopened && c.at > 24 {
				continue // an open store misses no ticks
			}
			t.Run(fmt.Sprint(c.name, "/reopened=", reopened), func(t *testing.T) {
				b := newBench(t)
				p := task.Periodic{Name: "p", Schedule: c.was, CatchUp: c.catchUp, Spec: task.Spec{Kind: "k"}}
				b.ok(b.AddPeriodic(ctx, p))
				b.pass(4 * time.Hour)
				count := func() int {
					leases, err := b.Claim(ctx, task.ClaimOptions{N: 1000})
					b.ok(err)
					if len(leases) > 0 {
						b.ok(b.Complete(ctx, leases...))
					}
					return len(leases)
				}
				count()
				p.Schedule = c.is
				if reopened {
					storetest.Close(t, b.Store)
					b.c.pass(time.Duration(c.at-4) * time.Hour)
					b.open()
				} else {
					b.pass(time.Duration(c.at-4) * time.Hour)
					count()
				}
				b.ok(b.AddPeriodic(ctx, p))
				b.ok(b.Tick(ctx))
				if n := count(); n != c.caughtUp {
					t.Errorf("%d ticks, want %d", n, c.caughtUp)
				}
				if list, err := b.Periodics(ctx); err != nil || len(list) != 1 || !list[0].Added ||
					!list[0].Next.Equal(c.is.Next(b.c.Now())) {
					t.Errorf("%+v, %v", list, err)
				}
			})
		}
	}
}

// TestRefusedTicks: a tick whose task is refused, such as for an id that an earlier tick's has, is counted and warned
// of.
func TestRefusedTicks(t *testing.T) {
	b := newBench(t)
	p := minutely
	p.Make = func(time.Time) task.Spec { return task.Spec{ID: "nightly", Kind: "k"} }
	b.ok(b.AddPeriodic(ctx, p))
	for range 5 {
		b.pass(time.Minute)
	}
	if list, err := b.Periodics(ctx); err != nil || len(list) != 1 || list[0].Refused != 4 {
		t.Errorf("%+v, %v", list, err)
	}
	b.reopen()
	if list, err := b.Periodics(ctx); err != nil || len(list) != 1 || list[0].Refused != 4 || list[0].Added {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestClaimIsBounded: a claim returns as many tasks as fit, and at least one; the others are as they were.
func TestClaimIsBounded(t *testing.T) {
	b := newBench(t)
	payload := bytes.Repeat([]byte("x"), task.MaxPayloadSize)
	for range 2*task.ClaimBytes/task.MaxPayloadSize + 1 {
		_, err := b.Enqueue(ctx, task.Spec{Kind: "k", Payload: payload, MaxAttempts: 2})
		b.ok(err)
	}
	for _, want := range []int{8, 8, 1} {
		gone, cancel := context.WithCancel(ctx)
		leases, err := b.Claim(gone, task.ClaimOptions{N: 100})
		cancel()
		if err != nil || len(leases) != want {
			t.Fatalf("%d leases, %v", len(leases), err)
		}
		for _, l := range leases {
			if l.Task.Attempt != 1 {
				t.Errorf("%+v", l)
			}
		}
		b.ok(b.Complete(ctx, leases...))
	}
}
