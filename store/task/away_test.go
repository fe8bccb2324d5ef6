package task_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// Of many keys with tasks few are in memory, and their tasks come in the order in which they would come if all were, by
// priority too, also after the store was opened again while tasks run, after transactions that were given up, and after
// claims that the engine has refused.
func TestManyKeys(t *testing.T) {
	defer task.SetMaxLanes(4)()
	defer task.SetSizes(2, 2, 3)()
	eng, c := storetest.NewFakeEngine(), newClock()
	open := func() *task.Store { return openStore(t, eng, c.options(holdfast.Memory)) }
	s := open()
	few := func(most int) {
		t.Helper()
		if n := s.Lanes(); n > most {
			t.Fatalf("%d lanes of keys are in memory, want %d at most", n, most)
		}
	}
	const keys, each = 30, 4
	var want []string
	add := func(priority int8, round int) {
		for i := range keys {
			id := fmt.Sprintf("%d-%d-%d", priority, round, i)
			enqueue(t, s, task.Spec{ID: id, Kind: "k", Key: fmt.Sprint("key", i*7%keys), Priority: priority})
			want = append(want, id)
			c.pass(time.Millisecond)
			few(4)
		}
	}
	for round := range each / 2 {
		add(0, round)
	}
	late := want
	want = nil
	for round := range each / 2 {
		add(1, round)
	}
	want = append(want, late...)

	gone := errors.New("given up")
	giveUp := func(i int) {
		t.Helper()
		if err := s.DB().Update(ctx, func(tx *kv.Tx) error {
			if _, err := s.In(tx).Enqueue(task.Spec{Kind: "k", Key: fmt.Sprint("other", i), Priority: 5},
				task.Spec{Kind: "k", Key: fmt.Sprint("key", i%keys), Priority: 5}); err != nil {
				return err
			}
			return gone
		}); !errors.Is(err, gone) {
			t.Fatal(err)
		}
	}
	for i := range 2 * keys {
		giveUp(i)
	}
	few(4)

	var run []task.Lease
	for i := 0; i < len(want); i++ {
		giveUp(i)
		if i%7 == 5 {
			eng.Locked(func() { eng.Refuse, eng.Spare = holdfast.ErrFull, 0 })
			_, err := s.Claim(ctx, task.ClaimOptions{})
			storetest.WantError(t, err, holdfast.ErrFull)
			eng.Locked(func() { eng.Refuse = nil })
		}
		leases := claim(t, s, task.ClaimOptions{})
		if len(leases) != 1 || leases[0].Task.ID != want[i] {
			t.Fatalf("claim %d got %s, want %s", i, tasksOf(leases), want[i])
		}
		if i%25 == 10 {
			closeStore(t, s)
			s = open()
			few(5 + len(run)) // and those of tasks that run
		}
		if i%20 == 3 { // the task of a lane that is away
			if err := s.Delete(ctx, want[len(want)-1]); err != nil {
				t.Fatal(err)
			}
			want = want[:len(want)-1]
		}
		if i%25 == 9 { // runs on while the store is opened again, and to the end
			run = append(run, leases...)
		} else if err := s.Complete(ctx, leases...); err != nil {
			t.Fatal(err)
		}
		few(6 + len(run))
	}
	if err := s.Complete(ctx, run...); err != nil {
		t.Fatal(err)
	}
	if got := claim(t, s, task.ClaimOptions{}); len(got) > 0 {
		t.Fatalf("got %s, want none", tasksOf(got))
	}
	few(0)
	if left := away(eng); left > 0 {
		t.Fatalf("%d keys are left in the table of lanes that are away", left)
	}
	closeStore(t, s)
}

func tasksOf(leases []task.Lease) (ids []string) {
	for _, l := range leases {
		ids = append(ids, l.Task.ID)
	}
	return ids
}

// away is how many lanes are away, as an engine has them.
func away(eng holdfast.Engine) (n int) {
	it := eng.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		if bytes.HasPrefix(it.Key(), task.Aways("")) {
			n++
		}
	}
	return n
}

// A store that a program has had which keeps all lanes in memory has its keys in the table when it is opened; if the
// disk is full they are in memory.
func TestManyKeysOpened(t *testing.T) {
	for _, full := range []bool{false, true} {
		eng, c := mem.New(), newClock()
		s := openStore(t, eng, c.options(holdfast.Memory))
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint("task", i))
			enqueue(t, s, task.Spec{ID: want[i], Kind: "k", Key: fmt.Sprint("key", i*7%50)})
			c.pass(time.Millisecond)
		}
		closeStore(t, s)

		func() {
			defer task.SetMaxLanes(4)()
			defer task.SetSizes(2, 2, 3)()
			fake := storetest.NewFakeEngine()
			fake.Engine = eng
			if full {
				fake.Refuse, fake.Spare = holdfast.ErrFull, 1 // opening itself writes
			}
			s, err := task.Open(kv.On(fake), c.options(holdfast.Memory))
			if err != nil {
				t.Fatal(err)
			}
			if n := s.Lanes(); full != (n == 50) || !full && n != 4 {
				t.Errorf("%d lanes are in memory; the disk is full: %v", n, full)
			}
			fake.Locked(func() { fake.Refuse, fake.Ops = nil, 20 }) // 46 lanes too many are no reason for a large commit
			leases := claim(t, s, task.ClaimOptions{})
			fake.Locked(func() { fake.Ops = 0 })
			leases = append(leases, claim(t, s, task.ClaimOptions{N: 100})...)
			if got := tasksOf(leases); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if err := s.Complete(ctx, leases...); err != nil {
				t.Error(err)
			}
			if s.Lanes() > 0 || away(eng) > 0 {
				t.Errorf("%d lanes are left in memory, %d away", s.Lanes(), away(eng))
			}
			closeStore(t, s)
		}()
	}
}

// Keys with a rate by key whose starts no longer count are in memory no more than others, whether time passes while the
// store is open or not. However many they are, no commit is large.
func TestManyKeysStarted(t *testing.T) {
	defer task.SetMaxLanes(4)()
	defer task.SetSizes(2, 2, 3)()
	for _, closed := range []bool{false, true} {
		eng, c := storetest.NewFakeEngine(), newClock()
		s := openStore(t, eng, c.options(holdfast.Memory))
		if err := s.SetQueue(ctx, "", task.QueueOptions{KeyRate: task.Rate{N: 1, Per: time.Minute}}); err != nil {
			t.Fatal(err)
		}
		const keys = 30
		for i := range 2 * keys {
			enqueue(t, s, task.Spec{Kind: "k", Key: fmt.Sprint("key", i%keys)})
		}
		if err := s.Complete(ctx, claim(t, s, task.ClaimOptions{N: 2 * keys})...); err != nil {
			t.Fatal(err)
		}
		if n := s.Lanes(); n != keys {
			t.Errorf("%d lanes are in memory while their starts count, want %d", n, keys)
		}
		eng.Ops = 20
		if closed {
			closeStore(t, s)
		}
		c.pass(2 * time.Minute)
		if closed {
			s = openStore(t, eng, c.options(holdfast.Memory))
		} else if err := s.Tick(ctx); err != nil {
			t.Fatal(err)
		}
		if n := s.Lanes(); n > 4 {
			t.Errorf("%d lanes are in memory when their starts no longer count; closed meanwhile: %v", n, closed)
		}
		eng.Ops = 0
		if got := claim(t, s, task.ClaimOptions{N: 2 * keys}); len(got) != keys {
			t.Errorf("claimed %d tasks, want %d", len(got), keys)
		}
		closeStore(t, s)
	}
}

// A task of a key that is away costs the same however many of the key have gone before it, whether they come one by one
// or wait together.
func TestKeysAwayDoNotWear(t *testing.T) {
	defer task.SetMaxLanes(1)()
	for _, most := range []int{1, 300} {
		eng := &wornEngine{Engine: mem.New()}
		s := openStore(t, eng, newClock().options(holdfast.Memory))
		enqueue(t, s, task.Spec{Kind: "k", Key: "a", Priority: -1}, task.Spec{Kind: "k", Key: "b", Priority: -1})
		const n = 300
		for done := range n {
			if done%most == 0 {
				enqueue(t, s, slices.Repeat([]task.Spec{{Kind: "k", Key: "c", Keep: -1}}, most)...)
			}
			leases := claim(t, s, task.ClaimOptions{})
			if len(leases) != 1 || leases[0].Task.Key != "c" {
				t.Fatalf("claimed %v, want a task of c", leases)
			}
			if err := s.Complete(ctx, leases...); err != nil {
				t.Fatal(err)
			}
		}
		closeStore(t, s)
		if eng.passed > 20*n {
			t.Errorf("%d at a time: scans pass %d removed keys for %d tasks", most, eng.passed, n)
		}
	}
}
