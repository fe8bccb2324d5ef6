package task_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// What a transaction removes is found again when the engine has refused it, also what an earlier call of it removed.
func TestRefusedTransactionHidesNothing(t *testing.T) {
	defer task.SetLowStep(1)()
	storetest.FakeEngines(t, func(t *testing.T, eng *storetest.FakeEngine) {
		db := on(eng, holdfast.Memory)
		s, err := task.Open(db, newClock().options(holdfast.Memory))
		if err != nil {
			t.Fatal(err)
		}
		defer storetest.Close(t, s)
		enqueue(t, s, task.Spec{Kind: "k", ID: "a"}, task.Spec{Kind: "k", ID: "b"}, task.Spec{Kind: "k", ID: "c"})
		eng.Locked(func() { eng.Refuse, eng.Spare = holdfast.ErrFull, 0 })
		storetest.WantError(t, db.Update(ctx, func(tx *kv.Tx) error {
			for _, id := range []string{"a", "b"} {
				if err := s.In(tx).Cancel(id); err != nil {
					return err
				}
			}
			_, err := s.In(tx).Get("c")
			return err
		}), holdfast.ErrFull)
		eng.Locked(func() { eng.Refuse = nil })
		list, _, err := s.List(ctx, task.Filter{State: task.Waiting})
		if err != nil || len(list) != 3 {
			t.Errorf("%d of 3 tasks wait, %v", len(list), err)
		}
		claim(t, s, task.ClaimOptions{N: 3})
	})
}

// What the engine shows is not kept: however much has been written, changes do not wait for each other.
func TestWhatIsShownIsNotKept(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, eng *storetest.FakeEngine) {
		s := openStore(t, eng, newClock().options(holdfast.Memory))
		defer storetest.Close(t, s)
		for range 100 {
			enqueue(t, s, task.Spec{Kind: "k", Payload: make([]byte, 200_000)})
		}
		eng.Hold()
		defer eng.Release(-1)
		applied := eng.Applied
		var last []chan error
		for n := range uint64(2) {
			last = append(last, storetest.Async(func() error {
				_, err := s.Enqueue(ctx, task.Spec{Kind: "k"})
				return err
			}))
			storetest.Finished(t, nil, storetest.Async(func() error {
				eng.AwaitApplied(applied + n + 1)
				return nil
			}))
		}
		eng.Release(-1)
		storetest.Finished(t, nil, last...)
	})
}
