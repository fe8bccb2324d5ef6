package task_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// wornEngine counts how many removed keys its scans have to pass before the first that is there. Engines keep removed
// keys for a while, and walk over them.
type wornEngine struct {
	holdfast.Engine
	removed [][]byte
	passed  int
}

func (e *wornEngine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	for op := range b.Ops() {
		at, had := slices.BinarySearchFunc(e.removed, op.Key, bytes.Compare)
		if op.Kind == holdfast.KindDelete && !had {
			e.removed = slices.Insert(e.removed, at, bytes.Clone(op.Key))
		}
	}
	return e.Engine.Apply(b, level)
}

func (e *wornEngine) Scan(r holdfast.Range) holdfast.Iterator {
	return &wornIterator{Iterator: e.Engine.Scan(r), e: e, at: r.Lo, hi: r.Hi}
}

// wornIterator counts what it passes.
type wornIterator struct {
	holdfast.Iterator
	e      *wornEngine
	at, hi []byte // the key after the last one
}

func (it *wornIterator) Next() bool {
	next, there := it.hi, it.Iterator.Next()
	if there {
		next = it.Key()
	}
	from, _ := slices.BinarySearchFunc(it.e.removed, it.at, bytes.Compare)
	to, _ := slices.BinarySearchFunc(it.e.removed, next, bytes.Compare)
	it.e.passed += max(to-from, 0)
	it.at = append(bytes.Clone(next), 0)
	return there
}

// TestSequenceDoesNotWear: a task of a sequence costs the same however many have gone before it, whether the sequence
// is long or its tasks come one by one.
func TestSequenceDoesNotWear(t *testing.T) {
	for _, most := range []int{1, 300} {
		eng := &wornEngine{Engine: mem.New()}
		s := openStore(t, eng, newClock().options(holdfast.Memory))
		const n = 300
		for done := range n {
			if done%most == 0 {
				enqueue(t, s, slices.Repeat([]task.Spec{{Kind: "k", Sequence: "s"}}, most)...)
			}
			leases := claim(t, s, task.ClaimOptions{N: 2})
			if len(leases) != 1 {
				t.Fatalf("%d tasks of one sequence are claimed", len(leases))
			}
			if err := s.Complete(ctx, leases...); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
		if eng.passed > 10*n {
			t.Errorf("%d at a time: scans pass %d removed keys for %d tasks", most, eng.passed, n)
		}
	}
}

// TestGoneTasksCostNothing: what is gone does not make lists, claims, and openings of the store slower, whatever is
// left in front of it.
func TestGoneTasksCostNothing(t *testing.T) {
	const n, step = 3000, 50
	defer task.SetLowStep(step)()
	for _, c := range []struct {
		name string
		old  []task.Spec // there from the start, and to the end
		spec task.Spec   // of those that come and go
		dead bool
	}{
		{"removed at once", []task.Spec{{Kind: "old", Delay: year}}, task.Spec{Keep: -1}, false},
		{"with keys", []task.Spec{{Kind: "old", Delay: year}}, task.Spec{Keep: -1, Key: "k"}, false},
		{"kept for a while", []task.Spec{{Kind: "old", Delay: year}}, task.Spec{Keep: time.Minute}, false},
		{"delayed", []task.Spec{{Kind: "old", Delay: year}}, task.Spec{Keep: -1, Delay: time.Second}, false},
		{"unique for a while", []task.Spec{{Kind: "old", Unique: "old", UniqueFor: year, Delay: year}},
			task.Spec{Keep: -1, Unique: "u", UniqueFor: time.Second}, false},
		{"dead and retried", []task.Spec{{Kind: "old", Delay: year}}, task.Spec{Keep: -1, MaxAttempts: 1}, true},
		{"behind one that runs", []task.Spec{{Kind: "old", Queue: "runs"}, {Kind: "old", Delay: year}},
			task.Spec{Keep: -1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock, eng := newClock(), &wornEngine{Engine: mem.New()}
			s := openStore(t, eng, clock.options(holdfast.Memory))
			enqueue(t, s, c.old...)
			claim(t, s, task.ClaimOptions{Queues: []string{"runs"}, Lease: 10 * year})
			for range n {
				c.spec.Kind = "k"
				enqueue(t, s, c.spec)
				clock.pass(c.spec.Delay)
				leases := claim(t, s, task.ClaimOptions{N: 2})
				if len(leases) != 1 {
					t.Fatalf("%d tasks are claimed", len(leases))
				}
				if c.dead {
					if err := s.Fail(ctx, leases[0], task.Failure{}, task.FailOptions{}); err != nil {
						t.Fatal(err)
					}
					if _, err := s.RetryAll(ctx, ""); err != nil {
						t.Fatal(err)
					}
					leases = claim(t, s, task.ClaimOptions{N: 2})
				}
				if err := s.Complete(ctx, leases...); err != nil {
					t.Fatal(err)
				}
				clock.pass(max(c.spec.Keep, 0) + c.spec.UniqueFor)
			}
			look := func(when string, most int) {
				t.Helper()
				if err := s.Tick(ctx); err != nil {
					t.Fatal(err)
				}
				list, _, err := s.List(ctx, task.Filter{})
				if err != nil || len(list) != len(c.old) || list[0].Kind != "old" {
					t.Fatalf("%s: %+v, %v", when, list, err)
				}
				if _, err := s.RetryAll(ctx, ""); err != nil {
					t.Fatal(err)
				}
				if leases := claim(t, s, task.ClaimOptions{}); len(leases) > 0 {
					t.Fatalf("%s: claimed %+v", when, leases)
				}
				if eng.passed > most {
					t.Errorf("%s, scans pass %d removed keys", when, eng.passed)
				}
				eng.passed = 0
			}
			eng.passed = 0
			look("the first time", 4*step)
			look("the second time", 0)
			closeStore(t, s)
			s = openStore(t, eng, clock.options(holdfast.Memory))
			look("opened again", 8*step)
			closeStore(t, s)
			if list, err := task.Examine(eng); err != nil || len(list[0].Problems) > 0 {
				t.Error(list, err)
			}
		})
	}
}

// TestLowsOfEarlierVersions: lows that a program which knows none has had the store after are not believed: it has set
// keys below them.
func TestLowsOfEarlierVersions(t *testing.T) {
	defer task.SetLowStep(4)()
	clock, eng := newClock(), mem.New()
	open := func() *task.Store { return openStore(t, eng, clock.options(holdfast.Memory)) }
	s := open()
	for range 10 {
		enqueue(t, s, task.Spec{Kind: "k", Keep: -1})
		if err := s.Complete(ctx, claim(t, s, task.ClaimOptions{})...); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(t, s, task.Spec{Kind: "old", Priority: 1})
	closeStore(t, s)
	lowKey := task.Low("", "i\adefault\x01")
	if _, err := eng.Get(nil, lowKey); err != nil {
		t.Fatalf("there is no low of waiting tasks: %v", err)
	}

	// As an earlier version: another description, and a low that is too high by now.
	var b holdfast.Batch
	description, err := eng.Get(nil, task.Description(""))
	if err != nil {
		t.Fatal(err)
	}
	description[4]++ // of the bound of numbers
	b.Set(task.Description(""), description)
	b.Set(lowKey, []byte("i\adefault\x02"))
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	if list, err := task.Examine(eng); err != nil || len(list[0].Problems) > 0 {
		t.Error(list, err)
	}
	s = open()
	if list, _, err := s.List(ctx, task.Filter{}); err != nil || len(list) != 1 {
		t.Errorf("listed %+v, %v", list, err)
	}
	if leases := claim(t, s, task.ClaimOptions{}); len(leases) != 1 || leases[0].Task.Kind != "old" {
		t.Errorf("claimed %+v", leases)
	}
	closeStore(t, s)

	// With a stamp that fits, a low that is wrong is found out.
	b.Reset()
	b.Set(task.Low("", "i\adefault\x04"), []byte("i\adefault\x05"))
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	if list, err := task.Examine(eng); err != nil || len(list[0].Problems) != 1 {
		t.Error(list, err)
	}
	b.Reset()
	b.Set(task.Low("", "i\adefault\x04"), []byte("nonsense"))
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	_, err = task.Open(kv.On(eng), clock.options(holdfast.Memory))
	storetest.WantError(t, err, holdfast.ErrCorrupt)
}

// TestDependentsDoNotWear: to tell one of many tasks that another has ended costs the same whichever it is.
func TestDependentsDoNotWear(t *testing.T) {
	defer task.SetSizes(256, 8, 4)()
	eng := &wornEngine{Engine: mem.New()}
	s := openStore(t, eng, newClock().options(holdfast.Memory))
	enqueue(t, s, task.Spec{Kind: "k", ID: "p"})
	const n = 300
	enqueue(t, s, slices.Repeat([]task.Spec{{Kind: "k", After: []string{"p"}}}, n)...)
	if err := s.Complete(ctx, claim(t, s, task.ClaimOptions{})...); err != nil {
		t.Fatal(err)
	}
	if err := s.Tick(ctx); err != nil {
		t.Fatal(err)
	}
	if leases := claim(t, s, task.ClaimOptions{N: 2 * n}); len(leases) != n {
		t.Errorf("%d tasks go on, want %d", len(leases), n)
	}
	closeStore(t, s)
	if eng.passed > 10*n {
		t.Errorf("scans pass %d removed keys for %d tasks", eng.passed, n)
	}
}

// TestRetriedWhileTelling: what runs after a task that was retried is not told that it had been cancelled before.
func TestRetriedWhileTelling(t *testing.T) {
	defer task.SetSizes(256, 8, 1)()
	s := openStore(t, mem.New(), newClock().options(holdfast.Memory))
	defer closeStore(t, s)
	enqueue(t, s, task.Spec{Kind: "k", ID: "p"})
	enqueue(t, s, slices.Repeat([]task.Spec{{Kind: "k", After: []string{"p"}}}, 1000)...)
	for _, f := range []func(context.Context, string) error{s.Cancel, s.Retry} {
		if err := f(ctx, "p"); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(t, s, task.Spec{Kind: "k", ID: "x", After: []string{"p"}})
	if err := s.Tick(ctx); err != nil {
		t.Fatal(err)
	}
	if x, err := s.Get(ctx, "x"); err != nil || x.State != task.Blocked {
		t.Errorf("it is %v: %+v, %v", x.State, x.Failures, err)
	}
}

// TestSequenceRefused: a completion that the engine refuses changes nothing of whose turn it is.
func TestSequenceRefused(t *testing.T) {
	eng := storetest.NewFakeEngine()
	s := openStore(t, eng, newClock().options(holdfast.Memory))
	defer closeStore(t, s)
	enqueue(t, s, task.Spec{Kind: "k", ID: "a", Sequence: "s"}, task.Spec{Kind: "k", ID: "b", Sequence: "s"})
	for _, id := range []string{"a", "b"} {
		l := claim(t, s, task.ClaimOptions{})[0]
		eng.Locked(func() { eng.Refuse, eng.Spare = holdfast.ErrFull, 0 })
		storetest.WantError(t, s.Complete(ctx, l), holdfast.ErrFull)
		eng.Locked(func() { eng.Refuse = nil })
		if more := claim(t, s, task.ClaimOptions{}); l.Task.ID != id || len(more) > 0 {
			t.Errorf("%s runs, want %s; and %+v", l.Task.ID, id, more)
		}
		if err := s.Complete(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := task.Examine(eng); err != nil || len(list[0].Problems) > 0 {
		t.Error(list, err)
	}
}

// TestLongestRate: a rate of one in the longest time there is holds.
func TestLongestRate(t *testing.T) {
	rate := task.Rate{N: 1, Per: math.MaxInt64}
	for _, o := range []task.QueueOptions{{Rate: rate}, {KeyRate: rate}} {
		s := openStore(t, mem.New(), newClock().options(holdfast.Memory))
		if err := s.SetQueue(ctx, "", o); err != nil {
			t.Fatal(err)
		}
		enqueue(t, s, slices.Repeat([]task.Spec{{Kind: "k", Key: "k"}}, 3)...)
		if leases := claim(t, s, task.ClaimOptions{N: 3}); len(leases) != 1 {
			t.Errorf("%+v: %d have started", o, len(leases))
		}
		closeStore(t, s)
	}
}

// TestQueuesAreForgotten: queues that have no tasks any more take no memory, however many there were.
func TestQueuesAreForgotten(t *testing.T) {
	c := newClock()
	o := c.options(holdfast.Memory)
	o.Keep = -1
	s := openStore(t, mem.New(), o)
	defer closeStore(t, s)
	for i := range 1000 {
		name := fmt.Sprint("q", i)
		enqueue(t, s, task.Spec{Kind: "k", Queue: name, Delay: time.Hour}, task.Spec{Kind: "k", Queue: name})
		for _, l := range claim(t, s, task.ClaimOptions{Queues: []string{name}}) {
			if err := s.Complete(ctx, l); err != nil {
				t.Fatal(err)
			}
		}
		tasks, _, err := s.List(ctx, task.Filter{Queue: name})
		if err != nil || len(tasks) != 1 {
			t.Fatal(tasks, err)
		}
		if i%100 > 0 {
			if err := s.Delete(ctx, tasks[0].ID); err != nil {
				t.Fatal(err)
			}
		}
		c.pass(time.Hour) // as long as something may be due in a queue it is known
		if err := s.Tick(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Known(); n > 200 {
		t.Errorf("%d queues are in memory, 10 have tasks", n)
	}
	if list, err := s.Queues(ctx); err != nil || len(list) != 10 {
		t.Error(len(list), err)
	}
}

// tightEngine has room for small batches only while it is full.
type tightEngine struct {
	holdfast.Engine
	full bool
}

func (e *tightEngine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if e.full && b.Len() > 1 {
		return holdfast.Receipt{}, holdfast.ErrFull
	}
	return e.Engine.Apply(b, level)
}

// TestTicksWaitForRoom: a tick whose task finds no room is not passed over, even if it could be noted that it is.
func TestTicksWaitForRoom(t *testing.T) {
	c, eng := newClock(), &tightEngine{Engine: mem.New()}
	s := openStore(t, eng, c.options(holdfast.Memory))
	defer closeStore(t, s)
	if err := s.AddPeriodic(ctx, task.Periodic{Name: "p", Schedule: every(time.Minute),
		Spec: task.Spec{Kind: "k"}}); err != nil {
		t.Fatal(err)
	}
	// No background work comes in between: the time passes for calls only, and the store is called here.
	eng.full = true
	c.pass(time.Minute)
	storetest.WantError(t, s.Tick(ctx), holdfast.ErrFull)
	eng.full = false
	c.pass(2 * time.Second) // when it is tried again
	if err := s.Tick(ctx); err != nil {
		t.Fatal(err)
	}
	if leases := claim(t, s, task.ClaimOptions{N: 2}); len(leases) != 1 {
		t.Errorf("the tick has %d tasks", len(leases))
	}
}

// TestLowRefused: a removal that the engine refuses leaves what it was to remove in lists and claims.
func TestLowRefused(t *testing.T) {
	defer task.SetLowStep(1)()
	eng := storetest.NewFakeEngine()
	s := openStore(t, eng, newClock().options(holdfast.Memory))
	defer closeStore(t, s)
	enqueue(t, s, task.Spec{ID: "a", Kind: "k"}, task.Spec{ID: "b", Kind: "k"})
	eng.Locked(func() { eng.Refuse, eng.Spare = holdfast.ErrFull, 0 })
	storetest.WantError(t, s.Delete(ctx, "a"), holdfast.ErrFull)
	eng.Locked(func() { eng.Refuse = nil })
	if list, _, err := s.List(ctx, task.Filter{}); err != nil || len(list) != 2 || list[0].ID != "a" {
		t.Errorf("listed %+v, %v", list, err)
	}
	if leases := claim(t, s, task.ClaimOptions{N: 2}); len(leases) != 2 || leases[0].Task.ID != "a" {
		t.Errorf("claimed %+v", leases)
	}
}

// A transaction that takes a task from its place, puts it there again and is given up leaves it in lists and claims.
func TestPlaceGivenUp(t *testing.T) {
	for _, key := range []string{"", "k"} {
		for _, lanes := range []int{0, 100} {
			func() {
				defer task.SetMaxLanes(lanes)()
				s := openStore(t, mem.New(), newClock().options(holdfast.Memory))
				defer closeStore(t, s)
				enqueue(t, s, task.Spec{ID: "a", Kind: "k", Key: key})
				if err := s.Complete(ctx, claim(t, s, task.ClaimOptions{})...); err != nil {
					t.Fatal(err)
				}
				if leases := claim(t, s, task.ClaimOptions{}); len(leases) > 0 {
					t.Fatal(leases)
				}
				enqueue(t, s, task.Spec{ID: "b", Kind: "k", Key: key})
				if list, _, err := s.List(ctx, task.Filter{State: task.Waiting}); err != nil || len(list) != 1 {
					t.Fatal(list, err) // and from here on it is known that nothing is in front of it
				}
				gone := errors.New("given up")
				if err := s.DB().Update(ctx, func(tx *kv.Tx) error {
					if err := errors.Join(s.In(tx).Cancel("b"), s.In(tx).Retry("b")); err != nil {
						return err
					}
					return gone
				}); !errors.Is(err, gone) {
					t.Fatal(err)
				}
				if list, _, err := s.List(ctx, task.Filter{State: task.Waiting}); err != nil || len(list) != 1 {
					t.Errorf("key %q, %d lanes: listed %+v, %v", key, lanes, list, err)
				}
				if got := tasksOf(claim(t, s, task.ClaimOptions{})); !slices.Equal(got, []string{"b"}) {
					t.Errorf("key %q, %d lanes: claimed %v", key, lanes, got)
				}
			}()
		}
	}
}

// So does one whose batch gets too large.
func TestTooLargeGivenUp(t *testing.T) {
	s := openStore(t, mem.New(), newClock().options(holdfast.Memory))
	defer closeStore(t, s)
	enqueue(t, s, task.Spec{ID: "a", Kind: "k"})
	if err := s.Complete(ctx, claim(t, s, task.ClaimOptions{})...); err != nil {
		t.Fatal(err)
	}
	enqueue(t, s, task.Spec{ID: "b", Kind: "k"})
	listed := func() []task.Task {
		list, _, err := s.List(ctx, task.Filter{State: task.Waiting})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	listed() // what lies before it is a gap

	if err := s.DB().Update(ctx, func(tx *kv.Tx) error {
		in := s.In(tx)
		_, err := in.Enqueue(task.Spec{Kind: "k"})
		_, err2 := in.Get("b") // each call takes what the one before it has written into the batch
		s.Overflow()
		err3 := in.Cancel("b")
		_, err4 := in.Get("b")
		return errors.Join(err, err2, err3, err4)
	}); !errors.Is(err, holdfast.ErrTooLarge) {
		t.Error(err)
	}
	if list := listed(); len(list) != 1 {
		t.Errorf("listed %+v", list)
	}
	if got := tasksOf(claim(t, s, task.ClaimOptions{})); !slices.Equal(got, []string{"b"}) {
		t.Errorf("claimed %v", got)
	}
}

// TestGapsAreFew: what is remembered of removed keys has a bound, and none of what is there is lost by it.
func TestGapsAreFew(t *testing.T) {
	s := openStore(t, mem.New(), newClock().options(holdfast.Memory))
	defer closeStore(t, s)
	none := func() {
		t.Helper()
		most, filled, err := s.Gaps()
		if err != nil || len(filled) > 0 || most < 1 || most > task.MaxGaps {
			t.Errorf("%d gaps, in which there are %q, %v", most, filled, err)
		}
	}
	const n = 3 * task.MaxGaps / 2
	enqueue(t, s, slices.Repeat([]task.Spec{{Kind: "k"}}, n+1)...)
	claim(t, s, task.ClaimOptions{}) // from here on gaps of what waits are known
	for cursor := ""; ; {            // each scan finds one
		list, next, err := s.List(ctx, task.Filter{State: task.Waiting, Limit: 1, Cursor: cursor})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if cursor = next; next == "" {
			break
		}
	}
	none()
	for range n { // each parts the one in front of all
		enqueue(t, s, task.Spec{Kind: "k", Priority: 1})
	}
	none()
	if leases := claim(t, s, task.ClaimOptions{N: 3 * n}); len(leases) != 2*n {
		t.Errorf("%d of %d tasks are claimed", len(leases), 2*n)
	}
}
