package event_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// TestPanicInCallback: a commit whose callback panics has failed, and the log goes on.
func TestPanicInCallback(t *testing.T) {
	ctx := t.Context()
	s, err := event.Open(kv.On(mem.New()), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	if _, err := s.Append(ctx, event.Event{Type: "a"}); err != nil {
		t.Fatal(err)
	}
	applied := 0
	add := func(c *event.Commit) error {
		c.Applied(func() { applied++ })
		panic("on purpose")
	}
	for i, f := range []func(){
		func() { _, _ = s.AppendFor(ctx, keyspace.Messages, add, event.Event{Type: "b"}) },
		func() { _, _ = s.ImportFor(ctx, keyspace.Messages, add, event.Event{Type: "b", Position: 7}) },
		func() { _, _ = s.RemoveFor(ctx, keyspace.Messages, add, 1) },
	} {
		func() {
			defer func() {
				if v := recover(); v != "on purpose" {
					t.Errorf("call %d: %v", i, v)
				}
			}()
			f()
		}()
		if applied != 0 {
			t.Fatalf("call %d: told that it is applied", i)
		}
	}
	if r, err := s.Append(ctx, event.Event{Type: "c"}); err != nil || r.First != 2 {
		t.Errorf("%+v %v", r, err)
	}
}
