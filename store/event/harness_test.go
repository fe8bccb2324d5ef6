package event_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

func TestMain(m *testing.M) { storetest.Main(m, child) }

var ctx = context.Background()

type (
	fakeEngine = storetest.FakeEngine
	target     = storetest.Target
)

var (
	newFakeEngine = storetest.NewFakeEngine
	fakeEngines   = storetest.FakeEngines
	targets       = storetest.Targets

	wantError = storetest.WantError
)

func openLog(t testing.TB, eng holdfast.Engine, o event.Options) *event.Store {
	t.Helper()
	s, err := event.Open(kv.On(eng), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeLog(t testing.TB, s *event.Store) {
	t.Helper()
	storetest.Close(t, s)
}

// memLog is a log in a new engine in memory, closed at the end of the test.
func memLog(t testing.TB) *event.Store {
	t.Helper()
	s := openLog(t, mem.New(), event.Options{Level: holdfast.Memory})
	storetest.CloseAtEnd(t, s)
	return s
}

func appendOK(t testing.TB, s *event.Store, events ...event.Event) event.Result {
	t.Helper()
	r, err := s.Append(ctx, events...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func typed(types ...string) []event.Event {
	var events []event.Event
	for _, typ := range types {
		events = append(events, event.Event{Type: typ, Data: []byte("data of " + typ)})
	}
	return events
}

func named(ids ...string) []event.Event {
	var events []event.Event
	for _, id := range ids {
		events = append(events, event.Event{Type: "t", ID: id})
	}
	return events
}

func readOK(t testing.TB, s *event.Store, from uint64, limit int) []event.Event {
	t.Helper()
	events, err := s.Read(ctx, from, limit)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// wantTypes checks the types of all events from position from on, and that positions have
// no gap.
func wantTypes(t testing.TB, s *event.Store, from uint64, want ...string) {
	t.Helper()
	var got []string
	for i, e := range readOK(t, s, from, 0) {
		if e.Position != from+uint64(i) {
			t.Fatalf("event %d after position %d is at %d", i, from, e.Position)
		}
		got = append(got, e.Type)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("from position %d: got %q, want %q", from, got, want)
	}
}

func wantHead(t testing.TB, s *event.Store, first, last uint64) {
	t.Helper()
	if s.First() != first || s.Last() != last {
		t.Fatalf("the log goes from %d to %d, want %d to %d", s.First(), s.Last(), first, last)
	}
}

// same compares events as the store promises to return them.
func same(a, b event.Event) error {
	if a.Position != b.Position || !a.Time.Equal(b.Time) || a.Type != b.Type || a.ID != b.ID || a.Origin != b.Origin ||
		string(a.Metadata) != string(b.Metadata) || string(a.Data) != string(b.Data) {
		return fmt.Errorf("got %+v, want %+v", a, b)
	}
	return nil
}
