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

// TestPanicInDraft: what has a draft and panics has written nothing, and the log goes on.
func TestPanicInDraft(t *testing.T) {
	ctx := t.Context()
	s, err := event.Open(kv.On(mem.New()), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	if _, err := s.Append(ctx, event.Event{Type: "a"}); err != nil {
		t.Fatal(err)
	}
	for i, f := range []func() (*event.Draft, error){
		func() (*event.Draft, error) { return s.DraftAppend(ctx, keyspace.Messages, event.Event{Type: "b"}) },
		func() (*event.Draft, error) {
			return s.DraftImport(ctx, keyspace.Messages, event.Event{Type: "b", Position: 7})
		},
		func() (*event.Draft, error) { return s.DraftRemove(ctx, keyspace.Messages, 1) },
	} {
		func() {
			defer func() {
				if v := recover(); v != "on purpose" {
					t.Errorf("call %d: %v", i, v)
				}
			}()
			d, err := f()
			if err != nil || len(d.Events) != 1 {
				t.Fatal(i, err)
			}
			defer d.Close()
			d.Keys.Set([]byte("key"), nil)
			panic("on purpose")
		}()
	}
	if r, err := s.Append(ctx, event.Event{Type: "c"}); err != nil || r.First != 2 {
		t.Errorf("%+v %v", r, err)
	}
	if events, err := s.Read(ctx, 1, 0); err != nil || len(events) != 2 {
		t.Errorf("%+v %v", events, err)
	}
}
