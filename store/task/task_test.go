package task_test

import (
	"testing"

	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// A task lives its life on every engine at every level.
func TestLife(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *storetest.Target) {
		s, err := task.Open(kv.On(tg.Engine), task.Options{Level: tg.Level})
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Enqueue(ctx, task.Spec{Kind: "k", Payload: []byte("p")}, task.Spec{Kind: "k", ID: "own", MaxAttempts: 1,
			Payload: make([]byte, 3000)})
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Claim(ctx, task.ClaimOptions{N: 3, Worker: "w"})
		if err != nil || len(l) != 2 || l[0].Task.ID != r[0].ID || l[1].Task.ID != "own" || len(l[1].Task.Payload) != 3000 {
			t.Fatal(l, err)
		}
		if err := s.Complete(ctx, l[0]); err != nil {
			t.Fatal(err)
		}
		if err := s.Fail(ctx, l[1], task.Failure{Message: "why"}, task.FailOptions{}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(ctx, "own")
		if err != nil || got.State != task.Dead || got.Failures[0].Message != "why" {
			t.Fatalf("%+v, %v", got, err)
		}
		storetest.Close(t, s)
		tg.Reopen(t)
		if s, err = task.Open(kv.On(tg.Engine), task.Options{Level: tg.Level}); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(ctx, r[0].ID); tg.OnDisk() && (err != nil || got.State != task.Completed) {
			t.Fatalf("%+v, %v", got, err)
		}
		storetest.Close(t, s)
	})
}
