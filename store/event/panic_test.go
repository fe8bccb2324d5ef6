package event_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/internal/wrapped"
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

// panicking is an engine of which one read panics.
type panicking struct {
	wrapped.Engine
	left *atomic.Int64 // reads before that one
}

func (e panicking) read() {
	if e.left.Add(-1) == 0 {
		panic("on purpose")
	}
}

func (e panicking) Get(dst, key []byte) ([]byte, error) {
	e.read()
	return e.Engine.Get(dst, key)
}

func (e panicking) Scan(r holdfast.Range) holdfast.Iterator {
	e.read()
	return e.Engine.Scan(r)
}

// TestPanicAsADraftBegins: an engine that panics as a draft begins, at whatever read, does not keep the log's turn.
func TestPanicAsADraftBegins(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	eng := panicking{wrapped.Engine{Engine: mem.New()}, new(atomic.Int64)}
	s, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory, IDWindow: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	for _, id := range []string{"a", "b", "c"} {
		if _, err := s.Append(ctx, event.Event{Type: "a", ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	panics := 0
	for i, f := range []func() (*event.Draft, error){
		func() (*event.Draft, error) {
			return s.DraftAppend(ctx, keyspace.Messages, event.Event{Type: "a", ID: "a"})
		},
		func() (*event.Draft, error) {
			return s.DraftImport(ctx, keyspace.Messages, event.Event{Type: "b", ID: "a", Position: 99})
		},
		func() (*event.Draft, error) { return s.DraftRemove(ctx, keyspace.Messages, 1) },
	} {
		for n, again := int64(1), true; again; n++ {
			again = false
			func() {
				defer func() {
					if v := recover(); v == "on purpose" {
						panics, again = panics+1, true
					} else if v != nil {
						panic(v)
					}
				}()
				eng.left.Store(n)
				if d, err := f(); err == nil {
					d.Close()
				}
				eng.left.Store(0)
			}()
			if _, err := s.Append(ctx, event.Event{Type: "c"}); err != nil {
				t.Fatalf("after draft %d, whose read %d panicked: %v", i, n, err)
			}
		}
	}
	if panics < 3 {
		t.Errorf("%d panics", panics)
	}
}
