package task_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// repaired is an engine in which a loss was accepted.
type repaired struct{ holdfast.Engine }

func (r *repaired) Capabilities() holdfast.Capabilities {
	c := r.Engine.Capabilities()
	c.Accepted = "a loss"
	return c
}

// TestAccepted: whatever kind of keys is lost, all of them or some, once the loss was accepted the store does not open,
// or the tasks that are there are found by id, queue and state, and what is unique is.
func TestAccepted(t *testing.T) {
	o := task.Options{Level: holdfast.Memory}
	eng := mem.New()
	s := openStore(t, eng, o)
	if err := s.SetQueue(ctx, "slow", task.QueueOptions{Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	var specs []task.Spec
	for i := range 5 {
		specs = append(
			specs,
			task.Spec{ID: fmt.Sprint("id", i), Kind: "k", Unique: fmt.Sprint("u", i), Sequence: "seq"},
			task.Spec{ID: fmt.Sprint("big", i), Kind: "k", Queue: "slow", Payload: make([]byte, 100<<10)},
			task.Spec{ID: fmt.Sprint("after", i), Kind: "k", After: []string{fmt.Sprint("id", i)}},
			task.Spec{
				ID:        fmt.Sprint("late", i),
				Kind:      "k",
				Delay:     time.Hour,
				Unique:    fmt.Sprint("for", i),
				UniqueFor: time.Hour,
			},
		)
	}
	enqueue(t, s, specs...)
	closed := func(s *task.Store) {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	closed(s)
	kinds := map[byte]int{0: 0} // 0 stands for all of them
	it := eng.Scan(holdfast.Range{})
	for it.Next() {
		kinds[it.Key()[2]]++
	}
	it.Close()
	if len(kinds) < 10 {
		t.Fatalf("keys of %d kinds: %v", len(kinds), kinds)
	}
	refused, opened := 0, 0
	for kind := range kinds {
		for seed := range uint64(4) {
			r := rand.New(rand.NewPCG(seed, uint64(kind)))
			left := mem.New()
			var b holdfast.Batch
			records := 0
			it := eng.Scan(holdfast.Range{})
			for it.Next() {
				table := it.Key()[2]
				if table == kind && (seed == 0 || r.IntN(2) == 0) || kind == 0 && r.IntN(4) == 0 {
					continue
				}
				if b.Set(it.Key(), it.Value()); table == 't' {
					records++
				}
			}
			if err := errors.Join(it.Close(), holdfast.Commit(left, &b, holdfast.Memory)); err != nil {
				t.Fatal(err)
			}
			s, err := task.Open(kv.On(&repaired{left}), o)
			if err != nil {
				if refused++; !errors.Is(err, holdfast.ErrCorrupt) {
					t.Errorf("kind %q, seed %d: %v", kind, seed, err)
				}
				if _, err := task.Open(kv.On(&repaired{left}), o); !errors.Is(err, holdfast.ErrCorrupt) {
					t.Errorf("kind %q, seed %d, the second time: %v", kind, seed, err)
				}
				continue
			}
			opened++
			found := 0
			for _, spec := range specs {
				got, err := s.Get(ctx, spec.ID)
				if errors.Is(err, holdfast.ErrNotFound) {
					continue
				}
				if found++; err != nil || len(got.Payload) != len(spec.Payload) {
					t.Errorf("kind %q, seed %d: %s: %d bytes, %v", kind, seed, spec.ID, len(got.Payload), err)
				}
				again := spec
				if again.ID = ""; spec.Unique != "" {
					if r := enqueue(t, s, again); !r[0].Existing || r[0].ID != spec.ID {
						t.Errorf("kind %q, seed %d: %q is not unique: %+v", kind, seed, spec.Unique, r)
					}
				}
			}
			listed := 0
			for _, queue := range []string{task.DefaultQueue, "slow"} {
				counts, err := s.Count(ctx, queue)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range counts {
					listed += n
				}
			}
			if found != records || listed != records {
				t.Errorf("kind %q, seed %d: %d tasks, %d found, %d listed", kind, seed, records, found, listed)
			}
			closed(s)
			closed(openStore(t, &repaired{left}, o))
		}
	}
	if refused == 0 || opened == 0 {
		t.Errorf("%d refused, %d opened", refused, opened)
	}
}
