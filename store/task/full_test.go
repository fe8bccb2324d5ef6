package task_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/storetest"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestOpenOnFullDisk: where there is no room, a store is opened for reading, and no number is given twice later.
func TestOpenOnFullDisk(t *testing.T) {
	var c clock // which stands still: numbers do not follow from it
	disk, o := storetest.NewDisk(t), c.options(holdfast.Power)
	first := enqueue(t, openStore(t, disk.Engine, o), task.Spec{Queue: "q", Kind: "k"})
	ids := map[string]bool{first[0].ID: true}
	for n := 1; n < 4; n++ {
		disk.Restart(true)
		other := o
		other.Name = "new"
		_, err := task.Open(disk.Engine, other)
		storetest.WantError(t, err, holdfast.ErrFull)
		s := openStore(t, disk.Engine, o)
		list, _, err := s.List(ctx, task.Filter{})
		if err != nil || len(list) != n {
			t.Fatalf("%d tasks, %v; want %d", len(list), err, n)
		}
		_, err = s.Enqueue(ctx, task.Spec{Queue: "q", Kind: "k"})
		storetest.WantError(t, err, holdfast.ErrFull)
		_, err = s.Claim(ctx, task.ClaimOptions{Queues: []string{"q"}})
		storetest.WantError(t, err, holdfast.ErrFull)
		disk.MakeRoom()
		got := enqueue(t, s, task.Spec{Queue: "q", Kind: "k"})
		if ids[got[0].ID] {
			t.Fatalf("the id %s was given twice", got[0].ID)
		}
		ids[got[0].ID] = true
	}
	disk.Restart(false)
	storetest.Close(t, openStore(t, disk.Engine, o))
}

// TestWorkOnFullDisk: on a full disk of an engine that goes on, what waits can be worked off, many tasks at a time too,
// and then there is room again.
func TestWorkOnFullDisk(t *testing.T) {
	const size, tasks = 24 << 20, 1000
	disk := storetest.NewSmallDisk(t, size)
	s := openStore(t, disk.Engine, task.Options{Level: holdfast.Power, Keep: -1})
	for range tasks {
		enqueue(t, s, task.Spec{Queue: "q", Kind: "k", Payload: make([]byte, 10_000)})
	}
	disk.Fill()
	_, err := s.Enqueue(ctx, task.Spec{Queue: "q", Kind: "k", Payload: make([]byte, 10_000)})
	storetest.WantError(t, err, holdfast.ErrFull)
	done := 0
	for {
		leases, err := s.Claim(ctx, task.ClaimOptions{Queues: []string{"q"}, N: 100})
		if err != nil {
			t.Fatalf("claim after %d: %v", done, err)
		}
		if len(leases) == 0 {
			break
		}
		if err := s.Complete(ctx, leases...); err != nil {
			t.Fatalf("complete after %d: %v", done, err)
		}
		done += len(leases)
	}
	if done != tasks {
		t.Errorf("%d of %d tasks", done, tasks)
	}
	for range 500 {
		disk.Freed(func() error {
			_, err := s.Enqueue(ctx, task.Spec{Queue: "q", Kind: "k", Payload: make([]byte, 10_000)})
			return err
		})
	}
	storetest.Close(t, s)
}
