package task_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/task"
)

// bench is a store in memory with a clock of its own.
type bench struct {
	t testing.TB
	*task.Store
	eng holdfast.Engine
	c   *clock
}

func newBench(t testing.TB) *bench {
	b := &bench{t: t, eng: mem.New(), c: newClock()}
	b.open()
	t.Cleanup(func() {
		b.examine()
		storetest.Close(t, b.Store)
	})
	return b
}

func (b *bench) open() {
	b.t.Helper()
	var err error
	b.Store, err = task.Open(on(b.eng, holdfast.Memory), task.Options{Now: b.c.Now, Elapsed: b.c.Elapsed})
	b.ok(err)
}

func (b *bench) reopen() {
	b.t.Helper()
	storetest.Close(b.t, b.Store)
	b.open()
}

func (b *bench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) is(err, want error) {
	b.t.Helper()
	if !errors.Is(err, want) {
		b.t.Fatalf("got %v, want %v", err, want)
	}
}

func (b *bench) examine() {
	b.t.Helper()
	list, err := task.Examine(b.eng)
	if err != nil || len(list) != 1 || len(list[0].Problems) > 0 {
		b.t.Fatalf("%+v, %v", list, err)
	}
}

// pass lets time pass, and the store do what is due then.
func (b *bench) pass(d time.Duration) {
	b.t.Helper()
	b.c.pass(d)
	b.ok(b.Tick(ctx))
}

// add enqueues tasks.
func (b *bench) add(specs ...task.Spec) {
	b.t.Helper()
	_, err := b.Enqueue(ctx, specs...)
	b.ok(err)
}

// claim claims up to 100 tasks, which are to be those of ids.
func (b *bench) claim(ids ...string) []task.Lease {
	b.t.Helper()
	return b.claimN(100, ids...)
}

func (b *bench) claimN(n int, ids ...string) []task.Lease {
	b.t.Helper()
	leases, err := b.Claim(ctx, task.ClaimOptions{N: n, Queues: []string{"", "q"}})
	b.ok(err)
	var got []string
	for _, l := range leases {
		got = append(got, l.Task.ID)
	}
	if !slices.Equal(got, ids) {
		b.t.Fatalf("claimed %q, want %q", got, ids)
	}
	return leases
}

func (b *bench) state(id string, want task.State) task.Task {
	b.t.Helper()
	got, err := b.Get(ctx, id)
	if want == 0 {
		b.is(err, holdfast.ErrNotFound)
		return got
	}
	b.ok(err)
	if got.State != want {
		b.t.Fatalf("task %s is %s, want %s", id, got.State, want)
	}
	return got
}

func TestOrder(t *testing.T) {
	b := newBench(t)
	b.add(
		task.Spec{Kind: "k", ID: "a"},
		task.Spec{Kind: "k", ID: "b", Priority: 1},
		task.Spec{Kind: "k", ID: "q", Queue: "q"},
		task.Spec{Kind: "k", ID: "c"},
		task.Spec{Kind: "k", ID: "later", Delay: time.Minute, Priority: 127},
		task.Spec{Kind: "k", ID: "low", Priority: -128},
	)
	b.claimN(2, "b", "a")
	b.pass(time.Minute) // and the leases have run out
	b.claim("later", "b", "a", "c", "low", "q")
}

func TestLimits(t *testing.T) {
	b := newBench(t)
	b.ok(b.SetQueue(ctx, "q", task.QueueOptions{Concurrency: 3, KeyConcurrency: 2, KeyRate: task.Rate{N: 3,
		Per: time.Minute}}))
	var specs []task.Spec
	for i := range 6 {
		specs = append(specs, task.Spec{Kind: "k", ID: fmt.Sprint("a", i), Queue: "q", Key: "a"})
	}
	b.add(
		append(specs, task.Spec{Kind: "k", ID: "b0", Queue: "q", Key: "b"}, task.Spec{Kind: "k", ID: "n0", Queue: "q"})...)
	l := b.claim("a0", "a1", "b0") // two of a, three in all
	b.ok(b.Complete(ctx, l[0]))
	l2 := b.claim("a2")
	b.ok(b.Complete(ctx, l[1], l2[0]))
	b.reopen()
	b.claim("n0") // the rate of a is used up
	b.pass(20 * time.Second)
	b.claim()
	b.pass(40 * time.Second)  // b0 and n0 come back too
	b.claim("a3", "a4", "b0") // a is due before n0
}

func TestRate(t *testing.T) {
	b := newBench(t)
	b.ok(b.SetQueue(ctx, "q", task.QueueOptions{Rate: task.Rate{N: 2, Per: time.Minute}}))
	for i := range 5 {
		b.add(task.Spec{Kind: "k", ID: fmt.Sprint(i), Queue: "q"})
	}
	b.ok(b.Complete(ctx, b.claimN(1, "0")...))
	b.pass(30 * time.Second)
	b.ok(b.Complete(ctx, b.claim("1")...))
	b.pass(30 * time.Second)
	b.ok(b.Complete(ctx, b.claim("2")...))
	b.reopen()
	b.claim()
	b.c.pass(time.Second)
	b.c.jump(-time.Hour) // set back
	b.ok(b.Tick(ctx))
	b.pass(29 * time.Second)
	b.claim()
	b.pass(31 * time.Second) // the starts count from when the clock was set back
	b.claim("3", "4")
}

func TestSequence(t *testing.T) {
	b := newBench(t)
	b.add(
		task.Spec{Kind: "k", ID: "a", Sequence: "s"},
		task.Spec{Kind: "k", ID: "b", Sequence: "s"},
		task.Spec{Kind: "k", ID: "c", Sequence: "s"},
		task.Spec{Kind: "k", ID: "d", Sequence: "s"},
	)
	l := b.claim("a")
	b.ok(b.Fail(ctx, l[0], task.Failure{}, task.FailOptions{RetryIn: time.Second}))
	b.claim()
	b.pass(time.Second)
	b.claim("a")
	b.ok(b.Cancel(ctx, "a"))
	b.ok(b.Delete(ctx, "c"))
	b.ok(b.Retry(ctx, "a"))
	b.ok(b.Complete(ctx, b.claim("b")...))
	b.examine()
	b.ok(b.Complete(ctx, b.claim("d")...))
	b.ok(b.Complete(ctx, b.claim("a")...))
	b.claim()
}

func TestAfter(t *testing.T) {
	b := newBench(t)
	b.add(
		task.Spec{Kind: "k", ID: "z", After: []string{"x", "y", "x"}},
		task.Spec{Kind: "k", ID: "x"},
		task.Spec{Kind: "k", ID: "y"},
		task.Spec{Kind: "k", ID: "zz", After: []string{"z"}},
		task.Spec{Kind: "k", ID: "other", After: []string{"y"}},
	)
	l := b.claim("x", "y")
	b.ok(b.Complete(ctx, l...)) // both in one commit
	b.examine()
	b.reopen()
	l = b.claim("z", "other")
	b.ok(b.Fail(ctx, l[0], task.Failure{Message: "m"}, task.FailOptions{Dead: true}))
	if f := b.state("zz", task.Cancelled).Failures; len(f) != 1 {
		t.Fatal(f)
	}
	b.examine()
	_, err := b.Enqueue(ctx, task.Spec{Kind: "k", After: []string{"z"}})
	b.is(err, task.ErrState)
	_, err = b.Enqueue(ctx, task.Spec{Kind: "k", After: []string{"none"}})
	b.is(err, holdfast.ErrNotFound)
	_, err = b.Enqueue(
		ctx,
		task.Spec{Kind: "k", ID: "1", After: []string{"2"}},
		task.Spec{Kind: "k", ID: "2", After: []string{"1"}},
	)
	b.is(err, task.ErrCycle)
	_, err = b.Enqueue(
		ctx,
		task.Spec{Kind: "k", ID: "1", After: []string{"2"}, Sequence: "s"},
		task.Spec{Kind: "k", ID: "2", Sequence: "s"},
	)
	b.is(err, task.ErrCycle)
	b.add(task.Spec{Kind: "k", ID: "1"}, task.Spec{Kind: "k", ID: "2", After: []string{"1"}})
	b.ok(b.Delete(ctx, "1"))
	b.state("2", task.Cancelled)
}

func TestUnique(t *testing.T) {
	b := newBench(t)
	r, err := b.Enqueue(ctx, task.Spec{Kind: "k", ID: "a", Unique: "u"}, task.Spec{Kind: "k", Unique: "u"})
	b.ok(err)
	if r[1] != (task.Result{ID: "a", Existing: true}) {
		t.Fatal(r)
	}
	b.ok(b.Cancel(ctx, "a"))
	b.add(task.Spec{Kind: "k", ID: "b", Unique: "u"})
	b.is(b.Retry(ctx, "a"), task.ErrExists)
	b.ok(b.Delete(ctx, "a")) // has it no more
	r, err = b.Enqueue(
		ctx,
		task.Spec{Kind: "k", Unique: "u"},
		task.Spec{Kind: "k", ID: "p", Unique: "p", UniqueFor: time.Hour, Keep: -1},
	)
	b.ok(err)
	if r[0].ID != "b" {
		t.Fatal(r)
	}
	b.ok(b.Complete(ctx, b.claim("b", "p")...))
	b.state("p", 0)
	r, err = b.Enqueue(ctx, task.Spec{Kind: "k", Unique: "p", UniqueFor: time.Hour})
	b.ok(err)
	if r[0] != (task.Result{ID: "p", Existing: true}) {
		t.Fatal(r)
	}
	b.pass(time.Hour)
	b.add(task.Spec{Kind: "k", ID: "p2", Unique: "p", UniqueFor: time.Hour})
	b.claim("p2")
}

func TestRetention(t *testing.T) {
	b := newBench(t)
	b.add(
		task.Spec{Kind: "k", ID: "a", Payload: make([]byte, 2000), Unique: "u"},
		task.Spec{Kind: "k", ID: "b", Keep: time.Hour},
		task.Spec{Kind: "k", ID: "c", MaxAttempts: 1},
		task.Spec{Kind: "k", ID: "d"},
	)
	l := b.claim("a", "b", "c", "d")
	b.ok(b.SetOutput(ctx, l[0], make([]byte, 1000)))
	b.ok(b.Complete(ctx, l[0], l[1]))
	b.ok(b.Fail(ctx, l[2], task.Failure{}, task.FailOptions{}))
	b.ok(b.Cancel(ctx, "d"))
	b.pass(time.Hour)
	b.state("a", task.Completed)
	b.state("b", 0)
	b.pass(23 * time.Hour)
	b.state("a", 0)
	b.state("d", 0)
	b.state("c", task.Dead)
	b.ok(b.Retry(ctx, "c"))
	b.claim("c")
}

// A clock that is set back neither lets a lease live longer nor a delay.
func TestClockSetBack(t *testing.T) {
	b := newBench(t)
	b.add(task.Spec{Kind: "k", ID: "a"}, task.Spec{Kind: "k", ID: "delayed", Delay: time.Minute},
		task.Spec{Kind: "k", ID: "at", At: b.c.Now().Add(time.Minute)})
	b.claim("a")
	b.c.pass(time.Second)
	b.c.jump(-5 * time.Hour)
	b.claim()
	b.pass(28 * time.Second)
	b.claim()
	b.pass(time.Second)
	b.claim("a")
	b.pass(29 * time.Second)
	b.claim()
	b.pass(time.Second)
	b.claim("delayed", "a")
	b.reopen() // a lease is not longer than it was
	b.pass(30 * time.Second)
	b.claim("delayed", "a")
	b.pass(5 * time.Hour)
	b.claim("delayed", "a", "at")
}

type every time.Duration

func (e every) Next(t time.Time) time.Time { return t.Truncate(time.Duration(e)).Add(time.Duration(e)) }

func TestPeriodic(t *testing.T) {
	b := newBench(t)
	add := func(c task.CatchUp) {
		t.Helper()
		b.ok(b.AddPeriodic(ctx, task.Periodic{Name: "p", Schedule: every(time.Hour), CatchUp: c,
			Make: func(tick time.Time) task.Spec { return task.Spec{Kind: "k", ID: tick.Format("15:04")} }}))
	}
	add(0)
	b.claim()
	b.pass(time.Hour)
	add(0)
	b.claim("01:00")
	b.pass(3 * time.Hour)
	b.claim("01:00", "04:00")
	b.ok(b.Pause(ctx, ""))
	for i, want := range []string{"06:00", "", "08:00"} {
		storetest.Close(t, b.Store)
		b.c.pass([]time.Duration{2 * time.Hour, time.Hour, 2 * time.Hour}[i])
		b.open()
		add([]task.CatchUp{task.CatchUpLast, task.CatchUpNone, task.CatchUpAll}[i])
		b.ok(b.Tick(ctx))
		if want != "" {
			b.state(want, task.Waiting)
		}
	}
	b.state("05:00", 0)
	b.state("09:00", task.Waiting)
	b.ok(b.RemovePeriodic(ctx, "p"))
	b.pass(time.Hour)
	b.state("10:00", 0)
}

// A waiting claim gets the task that comes, and one task wakes one of many.
func TestWait(t *testing.T) {
	b := newBench(t)
	const n = 50
	got := make(chan string, n)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			l, err := b.Claim(ctx, task.ClaimOptions{Queues: []string{"q", "r"}, Wait: true})
			if err != nil || len(l) != 1 {
				t.Error(l, err)
				return
			}
			got <- l[0].Task.ID
		})
	}
	seen := map[string]bool{}
	for i := range n {
		b.add(task.Spec{Kind: "k", ID: fmt.Sprint(i), Queue: []string{"q", "r"}[i%2]})
		seen[<-got] = true
	}
	wg.Wait()
	if len(seen) != n {
		t.Fatal(seen)
	}
}

// A task that is not kept may be taken along by two that it runs after.
func TestCancelledTwice(t *testing.T) {
	b := newBench(t)
	b.add(
		task.Spec{Kind: "k", ID: "a"},
		task.Spec{Kind: "k", ID: "c", After: []string{"a", "b"}, Keep: -1},
		task.Spec{Kind: "k", ID: "b",
			After: []string{"a"}},
	)
	b.ok(b.Delete(ctx, "a"))
	b.state("b", task.Cancelled)
	b.state("c", 0)
}

// Many that run after one, and one that runs after many, are told step by step.
func TestManyAfter(t *testing.T) {
	b := newBench(t)
	const n = 400 // more than one commit tells
	specs := []task.Spec{{Kind: "k", ID: "first"}}
	last := task.Spec{Kind: "k", ID: "last", Queue: "q"}
	for i := range n {
		specs = append(specs, task.Spec{Kind: "k", ID: fmt.Sprint(i), After: []string{"first"}})
		last.After = append(last.After, fmt.Sprint(i))
	}
	for _, cancel := range []bool{false, true} {
		b.add(append(specs, last)...)
		if cancel {
			b.ok(b.Cancel(ctx, "first"))
			b.reopen() // the rest goes on
		} else {
			b.ok(b.Complete(ctx, b.claim("first")...))
		}
		b.ok(b.Tick(ctx))
		counts, err := b.Count(ctx, "")
		b.ok(err)
		if want := map[bool]task.State{false: task.Waiting, true: task.Cancelled}[cancel]; counts[want] < n {
			t.Fatal(counts)
		}
		for !cancel {
			leases, err := b.Claim(ctx, task.ClaimOptions{N: 300})
			b.ok(err)
			b.ok(b.Complete(ctx, leases...))
			if len(leases) == 0 {
				break
			}
		}
		if want := map[bool]task.State{false: task.Waiting, true: task.Cancelled}[cancel]; b.state("last",
			want).State != want {
			t.Fatal(want)
		}
		b.ok(b.Delete(ctx, "last"))
		b.pass(25 * time.Hour)
	}
}

// A queue tells how long its next task waits.
func TestNext(t *testing.T) {
	for _, lanes := range []int{0, 100} {
		t.Run(fmt.Sprint(lanes, " keys in memory"), func(t *testing.T) {
			defer task.SetMaxLanes(lanes)()
			b := newBench(t)
			next := func(want time.Time) {
				t.Helper()
				info, err := b.Queue(ctx, "")
				b.ok(err)
				if !info.Next.Equal(want) {
					t.Fatalf("the next is due at %v, want %v", info.Next, want)
				}
			}
			begin := b.c.Now()
			b.add(task.Spec{Kind: "k", ID: "a"})
			b.pass(time.Minute)
			b.add(task.Spec{Kind: "k", ID: "b", Key: "k"})
			next(begin)
			b.reopen()
			next(begin) // and not only once a claim has looked
			first, err := b.Claim(ctx, task.ClaimOptions{N: 1})
			b.ok(err)
			next(begin.Add(time.Minute))
			b.ok(b.Complete(ctx, first...))
			b.ok(b.Complete(ctx, b.claim("b")...))
			next(time.Time{})
		})
	}
}
