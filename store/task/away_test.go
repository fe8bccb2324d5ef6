package task_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
		for i := range 100 { // two of each key
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
			leases = append(leases, claim(t, s, task.ClaimOptions{N: 200})...)
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
			eng.Locked(func() { eng.Refuse, eng.Spare = holdfast.ErrFull, 1 }) // what is over waits for the next opening
			closeStore(t, openStore(t, eng, c.options(holdfast.Memory)))
			eng.Locked(func() { eng.Refuse = nil })
			s = openStore(t, eng, c.options(holdfast.Memory))
		} else if err := s.Tick(ctx); err != nil {
			t.Fatal(err)
		}
		if n := s.Lanes(); n > 4 {
			t.Errorf("%d lanes are in memory when their starts no longer count; closed meanwhile: %v", n, closed)
		}
		if n := storetest.Keys(eng, holdfast.Prefix(task.Rates(""))); n > 0 {
			t.Errorf("%d keys have starts in the engine that no longer count; closed meanwhile: %v", n, closed)
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

// What is urgent costs the same however much has been urgent before it, in front of a backlog of keys that are away:
// tasks of two priorities, also of one key, those that come back to their place after they have failed, and others that
// are taken back.
func TestUrgentKeysAwayDoNotWear(t *testing.T) {
	defer task.SetMaxLanes(1)()
	const n, backlog = 300, 20
	gone := errors.New("given up")
	for name, change := range map[string]func(s *task.Store, i int, urgent *task.Spec) error{
		"of two priorities": func(_ *task.Store, i int, urgent *task.Spec) error {
			urgent.Key, urgent.Priority = fmt.Sprint("urgent", i), int8(i%2)
			return nil
		},
		"of one key": func(_ *task.Store, i int, urgent *task.Spec) error {
			urgent.Key, urgent.Priority = "urgent", int8(i%2)
			return nil
		},
		"and others given up": func(s *task.Store, i int, urgent *task.Spec) error {
			urgent.Key, urgent.Priority = fmt.Sprint("urgent", i), int8(i%2)
			if err := s.DB().Update(ctx, func(tx *kv.Tx) error {
				if _, err := s.In(tx).Enqueue(task.Spec{Kind: "k", Key: fmt.Sprint("other", i), Priority: 5}); err != nil {
					return err
				}
				return gone
			}); !errors.Is(err, gone) {
				return fmt.Errorf("%v, want %w", err, gone)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			eng := &wornEngine{Engine: mem.New()}
			s := openStore(t, eng, newClock().options(holdfast.Memory))
			for i := range backlog {
				enqueue(t, s, task.Spec{Kind: "k", Key: fmt.Sprint("backlog", i), Priority: -1})
			}
			for i := range n {
				urgent := task.Spec{Kind: "k", ID: fmt.Sprint("urgent", i), Keep: -1}
				if err := change(s, i, &urgent); err != nil {
					t.Fatal(err)
				}
				enqueue(t, s, urgent)
				leases := claim(t, s, task.ClaimOptions{})
				if len(leases) != 1 || leases[0].Task.ID != urgent.ID {
					t.Fatalf("claimed %v, want %s", tasksOf(leases), urgent.ID)
				}
				if err := s.Complete(ctx, leases...); err != nil {
					t.Fatal(err)
				}
			}
			if got := claim(t, s, task.ClaimOptions{N: 2 * backlog}); len(got) != backlog {
				t.Errorf("claimed %d of the backlog, want %d", len(got), backlog)
			}
			closeStore(t, s)
			if eng.passed > 20*n {
				t.Errorf("scans pass %d removed keys for %d tasks", eng.passed, n)
			}
		})
	}
}

// A task that is put back for no time comes back to its place, in front of all that were enqueued after it. That costs
// the same however many of those are gone.
func TestRetriedKeyAwayDoesNotWear(t *testing.T) {
	defer task.SetMaxLanes(1)()
	const n = 300
	eng := &wornEngine{Engine: mem.New()}
	s := openStore(t, eng, newClock().options(holdfast.Memory))
	for _, key := range []string{"a", "b"} {
		enqueue(t, s, task.Spec{Kind: "k", Key: key, Priority: -1})
	}
	enqueue(t, s, task.Spec{Kind: "k", ID: "first", Key: "first"})
	for i := range n {
		next := task.Spec{Kind: "k", ID: fmt.Sprint("next", i), Key: fmt.Sprint("next", i), Keep: -1}
		enqueue(t, s, next)
		leases := claim(t, s, task.ClaimOptions{N: 2})
		if got := tasksOf(leases); !slices.Equal(got, []string{"first", next.ID}) {
			t.Fatalf("claimed %v, want first and %s", got, next.ID)
		}
		if err := s.Snooze(ctx, leases[0], 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Complete(ctx, leases[1]); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	if eng.passed > 20*n {
		t.Errorf("scans pass %d removed keys for %d tasks", eng.passed, n)
	}
}

// readsEngine counts how often it is asked, and what is written.
type readsEngine struct {
	holdfast.Engine
	gets, scans, sets int
}

func (e *readsEngine) Get(dst, key []byte) ([]byte, error) {
	e.gets++
	return e.Engine.Get(dst, key)
}

func (e *readsEngine) Scan(r holdfast.Range) holdfast.Iterator {
	e.scans++
	return e.Engine.Scan(r)
}

func (e *readsEngine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	e.sets += b.Len()
	return e.Engine.Apply(b, level)
}

// Opening a store, and the first claim after that, read the index and the table of lanes that are away, and nothing for
// each key. They write only what is missing in the table: if more lanes were in memory than may be now.
func TestManyKeysOpenedOnceMore(t *testing.T) {
	const keys, most = 300, 20
	eng, c := &readsEngine{Engine: mem.New()}, newClock()
	s := openStore(t, eng, c.options(holdfast.Memory))
	want := make([]string, keys)
	for i := range keys {
		want[i] = fmt.Sprint("task", i)
		enqueue(t, s, task.Spec{ID: want[i], Kind: "k", Key: fmt.Sprint("key", i*7%keys)})
		c.pass(time.Millisecond)
	}
	closeStore(t, s)
	for i, lanes := range []int{100, 100, 0, 0, 50, keys, 10, 10} {
		func() {
			defer task.SetMaxLanes(lanes)()
			few := i == 7 // of the table is remembered: the others are looked up, and not written again
			if few {
				defer task.SetMaxListed(10)()
			}
			*eng = readsEngine{Engine: eng.Engine}
			s := openStore(t, eng, c.options(holdfast.Memory))
			leases := claim(t, s, task.ClaimOptions{})
			got := *eng
			if ids := tasksOf(leases); !slices.Equal(ids, want[:1]) {
				t.Errorf("%d lanes: claimed %v, want %s", lanes, ids, want[0])
			}
			if got.gets > most && !few || got.scans > most {
				t.Errorf("%d lanes: opening and a claim read %d keys and scan %d times", lanes, got.gets, got.scans)
			}
			if i != 0 && i != 2 && got.sets > most {
				t.Errorf("%d lanes: opening and a claim write %d keys", lanes, got.sets)
			}
			if n := s.Lanes(); n > lanes+1 {
				t.Errorf("%d lanes are in memory, want %d at most", n, lanes)
			}
			want = want[1:]
			if err := s.Complete(ctx, leases...); err != nil {
				t.Error(err)
			}
			closeStore(t, s)
		}()
	}
	s = openStore(t, eng, c.options(holdfast.Memory))
	if got := tasksOf(claim(t, s, task.ClaimOptions{N: keys})); !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
	closeStore(t, s)
}

// A transaction that is given up leaves no lanes in memory that were away.
func TestManyKeysGivenUp(t *testing.T) {
	defer task.SetMaxLanes(4)()
	eng := mem.New()
	s := openStore(t, eng, newClock().options(holdfast.Memory))
	defer closeStore(t, s)
	const keys = 30
	var want []string
	for i := range 2 * keys {
		want = append(want, fmt.Sprint("task", i))
		enqueue(t, s, task.Spec{ID: want[i], Kind: "k", Key: fmt.Sprint("key", i%keys)})
	}
	gone := errors.New("given up")
	for _, change := range []func(tx task.Tx, id string) error{task.Tx.Cancel, task.Tx.Delete} {
		if err := s.DB().Update(ctx, func(tx *kv.Tx) error {
			for _, id := range want {
				if err := change(s.In(tx), id); err != nil {
					return err
				}
			}
			return gone
		}); !errors.Is(err, gone) {
			t.Fatal(err)
		}
		if n := s.Lanes(); n > 4 {
			t.Errorf("%d lanes are in memory, want 4 at most", n)
		}
	}
	if got := tasksOf(claim(t, s, task.ClaimOptions{N: 3 * keys})); !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// slowEnd is a context that tells when it is waited for. Then it ends, but not before it may; never if that is nil.
type slowEnd struct {
	context.Context
	once        sync.Once
	waited, may chan struct{}
}

func (c *slowEnd) Done() <-chan struct{} {
	c.once.Do(func() { close(c.waited) })
	if c.may != nil {
		<-c.may
	}
	return c.may
}

func (c *slowEnd) Err() error {
	select {
	case <-c.may:
		return context.Canceled
	default:
		return nil
	}
}

// A claim that gives up beside a transaction that has emptied the queue, and then fails, neither lets the queue be
// forgotten nor keeps another one from the task.
func TestClaimOfKeysAwayBesideATransaction(t *testing.T) {
	defer task.SetMaxLanes(0)()
	for _, another := range []bool{false, true} {
		t.Run(fmt.Sprint("another waits: ", another), func(t *testing.T) { testClaimBesideATransaction(t, another) })
	}
}

func testClaimBesideATransaction(t *testing.T, another bool) {
	s := openStore(t, mem.New(), task.Options{Level: holdfast.Memory})
	defer storetest.Close(t, s)
	c := &slowEnd{Context: ctx, waited: make(chan struct{}), may: make(chan struct{})}
	claimed := storetest.Async(func() error {
		_, err := s.Claim(c, task.ClaimOptions{Wait: true})
		return err
	})
	<-c.waited
	var next chan error
	if another {
		c := &slowEnd{Context: ctx, waited: make(chan struct{})}
		next = storetest.Async(func() error {
			_, err := s.Claim(c, task.ClaimOptions{Wait: true})
			return err
		})
		<-c.waited
	}
	id := enqueue(t, s, task.Spec{Kind: "k", Key: "a"})[0].ID
	failed := errors.New("mine")
	if err := s.DB().Update(ctx, func(tx *kv.Tx) error {
		if err := s.In(tx).Delete(id); err != nil {
			t.Error(err)
		}
		close(c.may)
		storetest.Finished(t, context.Canceled, claimed)
		return failed
	}); err != failed {
		t.Fatal(err)
	}
	if another {
		storetest.Finished(t, nil, next)
	} else if leases := claim(t, s, task.ClaimOptions{}); len(leases) != 1 {
		t.Errorf("%d tasks are claimed", len(leases))
	}
}
