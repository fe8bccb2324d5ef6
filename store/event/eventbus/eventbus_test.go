package eventbus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/event/eventbus"
)

// The bus's own declarations, as far as a store meets them.
type (
	Offset string

	Event struct {
		ID        string            `json:"id,omitempty"`
		Origin    string            `json:"origin,omitempty"`
		Type      string            `json:"type"`
		Data      json.RawMessage   `json:"data"`
		Metadata  map[string]string `json:"metadata,omitempty"`
		Timestamp time.Time         `json:"timestamp"`
	}
	StoredEvent struct {
		Offset    Offset            `json:"offset"`
		ID        string            `json:"id,omitempty"`
		Origin    string            `json:"origin,omitempty"`
		Type      string            `json:"type"`
		Data      json.RawMessage   `json:"data"`
		Metadata  map[string]string `json:"metadata,omitempty"`
		Timestamp time.Time         `json:"timestamp"`
	}

	EventStore interface {
		Append(ctx context.Context, event *Event) (Offset, error)
		Read(ctx context.Context, from Offset, limit int) ([]*StoredEvent, Offset, error)
	}
	EventStoreStreamer interface {
		ReadStream(ctx context.Context, from Offset) iter.Seq2[*StoredEvent, error]
	}
	EventStoreTailer interface {
		Tail(ctx context.Context, from Offset) iter.Seq2[*StoredEvent, error]
	}
	EventStoreOffsetComparer interface {
		CompareOffsets(left, right Offset) (int, error)
	}
	SubscriptionStore interface {
		SaveOffset(ctx context.Context, subscriptionID string, offset Offset) error
		LoadOffset(ctx context.Context, subscriptionID string) (Offset, error)
	}
	SubscriptionStoreLookup interface {
		LookupOffset(ctx context.Context, subscriptionID string) (offset Offset, found bool, err error)
	}
	EventStoreSnapshotter interface {
		SaveSnapshot(ctx context.Context, snapshotID string, atOffset Offset, blob json.RawMessage) error
		LoadSnapshot(ctx context.Context, snapshotID string) (atOffset Offset, blob json.RawMessage, err error)
	}
	EventStoreTruncator interface {
		TruncateBefore(ctx context.Context, beforeOffset Offset) (deleted int64, err error)
	}
)

const (
	OffsetOldest Offset = ""
	OffsetNewest Offset = "$"
)

type Store = eventbus.Store[Event, StoredEvent, Offset]

var (
	_ EventStore               = (*Store)(nil)
	_ EventStoreStreamer       = (*Store)(nil)
	_ EventStoreTailer         = (*Store)(nil)
	_ EventStoreOffsetComparer = (*Store)(nil)
	_ SubscriptionStore        = (*Store)(nil)
	_ SubscriptionStoreLookup  = (*Store)(nil)
	_ EventStoreSnapshotter    = (*Store)(nil)
	_ EventStoreTruncator      = (*Store)(nil)
)

var ctx = context.Background()

// open returns a store in a new engine in memory, and a function that closes the log and
// opens it again.
func open(t *testing.T) (s *Store, reopen func()) {
	eng := mem.New()
	o := event.Options{Name: "bus", Level: holdfast.Memory}
	log, err := event.Open(kv.On(eng), o)
	if err != nil {
		t.Fatal(err)
	}
	s = eventbus.New[Event, StoredEvent, Offset](log)
	t.Cleanup(func() { _ = log.Close() })
	return s, func() {
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if log, err = event.Open(kv.On(eng), o); err != nil {
			t.Fatal(err)
		}
		*s = *eventbus.New[Event, StoredEvent, Offset](log)
	}
}

func appendN(t *testing.T, s *Store, n int) (offsets []Offset) {
	t.Helper()
	for i := range n {
		at, err := s.Append(ctx, &Event{Type: "n", Data: fmt.Append(nil, i), Timestamp: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, at)
	}
	return offsets
}

func read(t *testing.T, s *Store, from Offset, limit int) ([]Offset, Offset) {
	t.Helper()
	events, next, err := s.Read(ctx, from, limit)
	if err != nil {
		t.Fatal(err)
	}
	return offsetsOf(events), next
}

func offsetsOf(events []*StoredEvent) (offsets []Offset) {
	for _, e := range events {
		offsets = append(offsets, e.Offset)
	}
	return offsets
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func wantAll[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// Every field comes back as it went in, whatever it is.
func TestFields(t *testing.T) {
	s, reopen := open(t)
	in := []Event{
		{},
		{ID: "id-1", Origin: "bus-a", Type: "order.placed", Data: json.RawMessage(`{"n": 1}`),
			Metadata: map[string]string{"b": "2", "a": "1", "": ""}, Timestamp: time.Now()},
		{ID: "id-2", Data: json.RawMessage{}, Metadata: map[string]string{},
			Timestamp: time.Date(2026, 7, 1, 1, 2, 3, 4, time.FixedZone("", -3*3600-1800))},
		{Type: "old", Timestamp: time.Date(1066, 10, 14, 9, 0, 0, 5, time.UTC)},
		{Type: "far", Timestamp: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.FixedZone("", 3600))},
		{Type: "epoch", Timestamp: time.Unix(0, 0).UTC(), Data: json.RawMessage("null")},
		{Type: "first", Timestamp: time.Unix(0, -1<<63)},
		{Type: "last", Timestamp: time.Unix(0, 1<<63-1)},
	}
	for i := range in {
		if _, err := s.Append(ctx, &in[i]); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		out, _, err := s.Read(ctx, OffsetOldest, 0)
		if err != nil || len(out) != len(in) {
			t.Fatal(len(out), err)
		}
		for i, e := range out {
			w := in[i]
			_, zone := e.Timestamp.Zone()
			_, wantZone := w.Timestamp.Zone()
			if e.ID != w.ID || e.Origin != w.Origin || e.Type != w.Type || string(e.Data) != string(w.Data) ||
				(e.Data == nil) != (w.Data == nil) ||
				!maps.Equal(e.Metadata, w.Metadata) || (e.Metadata == nil) != (w.Metadata == nil) ||
				!e.Timestamp.Equal(w.Timestamp) || zone != wantZone {
				t.Errorf("event %d: got %+v, want %+v", i, *e, w)
			}
		}
	}
	check()
	reopen()
	check()
}

func TestRead(t *testing.T) {
	s, _ := open(t)
	for _, from := range []Offset{OffsetOldest, OffsetNewest} {
		events, next := read(t, s, from, 0)
		wantAll(t, "an empty log", events, nil)
		want(t, "the end of an empty log", next, OffsetOldest)
	}
	all := appendN(t, s, 1200)
	if !slices.IsSorted(all) {
		t.Fatal("offsets do not sort as they stand")
	}
	for _, c := range []struct {
		from     Offset
		limit    int
		lo, hi   int // events
		wantNext Offset
	}{
		{OffsetOldest, 0, 0, 1200, all[1199]},
		{OffsetOldest, 5, 0, 5, all[4]},
		{all[4], 1000, 5, 1005, all[1004]},
		{all[1198], 5, 1199, 1200, all[1199]},
		{all[1199], 5, 1200, 1200, all[1199]},
		{OffsetNewest, 0, 1200, 1200, all[1199]},
		{OffsetNewest, 7, 1200, 1200, all[1199]},
	} {
		events, next := read(t, s, c.from, c.limit)
		wantAll(t, fmt.Sprintf("Read(%q, %d)", c.from, c.limit), events, all[c.lo:c.hi])
		want(t, "next", next, c.wantNext)
	}
	for _, from := range []Offset{"x", "7", "-0000000000000000001", "99999999999999999999", "0000000000000000000", "$$"} {
		if _, _, err := s.Read(ctx, from, 0); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("Read(%q): %v", from, err)
		}
	}
	if _, _, err := s.Read(ctx, "00000000000000009999", 0); !errors.Is(err, event.ErrAhead) {
		t.Errorf("reading ahead of the log: %v", err)
	}
	if _, err := s.Append(ctx, nil); !errors.Is(err, event.ErrBadEvent) {
		t.Errorf("appending nil: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := s.Append(gone, &Event{})
	if _, _, err2 := s.Read(gone, OffsetOldest, 0); !errors.Is(err, context.Canceled) ||
		!errors.Is(err2, context.Canceled) {
		t.Error(err, err2)
	}
}

// The id is the idempotency key.
func TestAppendAgain(t *testing.T) {
	s, reopen := open(t)
	e := &Event{ID: "01J", Type: "t"}
	first, err := s.Append(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	appendN(t, s, 3)
	for range 2 {
		again, err := s.Append(ctx, e)
		if err != nil || again != first {
			t.Fatal(again, err)
		}
		reopen()
	}
	events, _ := read(t, s, OffsetOldest, 0)
	want(t, "events", len(events), 4)
}

func TestReadStream(t *testing.T) {
	s, _ := open(t)
	all := appendN(t, s, 10)
	stream := func(ctx context.Context, from Offset, stop int, f func(int)) (got []Offset, err error) {
		for e, failed := range s.ReadStream(ctx, from) {
			if failed != nil {
				return got, failed
			}
			if got = append(got, e.Offset); len(got) == stop {
				break
			}
			f(len(got))
		}
		return got, nil
	}
	nothing := func(int) {}
	for _, c := range []struct {
		from Offset
		stop int
		want []Offset
	}{{OffsetOldest, 0, all}, {all[3], 0, all[4:]}, {all[3], 2, all[4:6]}, {all[9], 0, nil}, {OffsetNewest, 0, nil}} {
		got, err := stream(ctx, c.from, c.stop, nothing)
		if err != nil {
			t.Fatal(err)
		}
		wantAll(t, "stream", got, c.want)
	}
	// It ends where the log ended, though the loop appends.
	got, err := stream(ctx, all[7], 0, func(int) { appendN(t, s, 1) })
	if err != nil {
		t.Fatal(err)
	}
	wantAll(t, "stream", got, all[8:])
	stopping, cancel := context.WithCancel(ctx)
	got, err = stream(stopping, OffsetOldest, 0, func(n int) {
		if n == 3 {
			cancel()
		}
	})
	if wantAll(t, "stream", got, all[:3]); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := stream(ctx, "nonsense", 0, nothing); !errors.Is(err, holdfast.ErrBadOption) {
		t.Fatal(err)
	}
}

func TestTail(t *testing.T) {
	s, _ := open(t)
	all := appendN(t, s, 5)
	// "$" is resolved when Tail is called.
	fromNewest, fromOldest := s.Tail(ctx, OffsetNewest), s.Tail(ctx, OffsetOldest)
	appended := make(chan bool)
	go func() {
		defer close(appended)
		for range 5 {
			if _, err := s.Append(ctx, &Event{Type: "n"}); err != nil {
				t.Error(err)
			}
		}
	}()
	<-appended
	later, _ := read(t, s, all[4], 0)
	for _, c := range []struct {
		tail iter.Seq2[*StoredEvent, error]
		want []Offset
	}{{fromNewest, later}, {fromOldest, append(all, later...)}, {s.Tail(ctx, all[3]), append(all[4:5:5], later...)}} {
		var got []Offset
		for e, err := range c.tail {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, e.Offset); len(got) == len(c.want) {
				break
			}
		}
		wantAll(t, "tail", got, c.want)
	}
	// It waits for what comes, and ends in silence.
	stop, cancel := context.WithCancel(ctx)
	live := s.Tail(stop, OffsetNewest)
	go func() { _, _ = s.Append(ctx, &Event{Type: "live"}) }()
	for e, err := range live {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "live" {
			cancel()
		}
	}
	cancel()
	for range s.Tail(stop, OffsetOldest) {
		t.Fatal("something came after the context had ended")
	}
	for _, err := range s.Tail(ctx, "nonsense") {
		if !errors.Is(err, holdfast.ErrBadOption) {
			t.Fatal(err)
		}
	}
}

func TestCompareOffsets(t *testing.T) {
	s, _ := open(t)
	all := append([]Offset{OffsetOldest}, appendN(t, s, 12)...)
	for i, l := range all {
		for j, r := range all {
			got, err := s.CompareOffsets(l, r)
			if err != nil || (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Fatalf("%q and %q: %d, %v", l, r, got, err)
			}
		}
	}
	for _, bad := range []Offset{OffsetNewest, "nonsense"} {
		_, err := s.CompareOffsets(bad, all[1])
		_, err2 := s.CompareOffsets(all[1], bad)
		if !errors.Is(err, holdfast.ErrBadOption) || !errors.Is(err2, holdfast.ErrBadOption) {
			t.Fatal(err, err2)
		}
	}
}

func TestSubscriptions(t *testing.T) {
	s, reopen := open(t)
	all := appendN(t, s, 3)
	at, found, err := s.LookupOffset(ctx, "sub")
	if at != OffsetOldest || found || err != nil {
		t.Fatal(at, found, err)
	}
	if at, err := s.LoadOffset(ctx, "sub"); at != OffsetOldest || err != nil {
		t.Fatal(at, err)
	}
	// Offsets of other stores are kept as they are; "$" becomes a place.
	for _, c := range []struct{ save, want Offset }{
		{OffsetOldest, OffsetOldest}, {all[1], all[1]}, {all[0], all[0]}, {OffsetNewest, all[2]},
		{"another/store_77", "another/store_77"},
	} {
		if err := s.SaveOffset(ctx, "sub", c.save); err != nil {
			t.Fatal(err)
		}
		if err := s.SaveOffset(ctx, "sub2", "other"); err != nil {
			t.Fatal(err)
		}
		reopen()
		at, found, err := s.LookupOffset(ctx, "sub")
		if at != c.want || !found || err != nil {
			t.Fatal(at, found, err)
		}
		if at, err := s.LoadOffset(ctx, "sub"); at != c.want || err != nil {
			t.Fatal(at, err)
		}
	}
	if err := s.SaveOffset(ctx, strings.Repeat("n", 5000), all[0]); err == nil {
		t.Fatal("a name that long was kept")
	}
}

func TestSnapshotsAndTruncation(t *testing.T) {
	s, reopen := open(t)
	all := appendN(t, s, 10)
	if at, blob, err := s.LoadSnapshot(ctx, "sum"); at != OffsetOldest || blob != nil || err != nil {
		t.Fatal(at, blob, err)
	}
	if err := s.SaveSnapshot(ctx, "sum", OffsetNewest, nil); !errors.Is(err, holdfast.ErrBadOption) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   Offset
		blob string
	}{{OffsetOldest, "0"}, {all[5], `{"sum": 15}`}} {
		if err := s.SaveSnapshot(ctx, "sum", c.at, json.RawMessage(c.blob)); err != nil {
			t.Fatal(err)
		}
		if at, blob, err := s.LoadSnapshot(ctx, "sum"); at != c.at || string(blob) != c.blob || err != nil {
			t.Fatal(at, blob, err)
		}
	}
	for _, c := range []struct {
		before Offset
		want   int64
	}{{OffsetOldest, 0}, {all[2], 3}, {all[2], 0}, {all[0], 0}, {all[5], 3}} {
		if n, err := s.TruncateBefore(ctx, c.before); n != c.want || err != nil {
			t.Fatalf("TruncateBefore(%q) removed %d: %v", c.before, n, err)
		}
	}
	if _, err := s.TruncateBefore(ctx, OffsetNewest); !errors.Is(err, holdfast.ErrBadOption) {
		t.Fatal(err)
	}
	reopen()
	at, _, err := s.LoadSnapshot(ctx, "sum")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []Offset{at, OffsetOldest, all[0]} { // what is gone is passed over
		got, next := read(t, s, from, 0)
		wantAll(t, "after truncation", got, all[6:])
		want(t, "next", next, all[9])
	}
	for e, err := range s.Tail(ctx, all[0]) {
		if err != nil || e.Offset != all[6] {
			t.Fatal(e, err)
		}
		break
	}
	if n, err := s.TruncateBefore(ctx, all[9]); n != 4 || err != nil {
		t.Fatal(n, err)
	}
	reopen()
	got, next := read(t, s, OffsetNewest, 0)
	wantAll(t, "an emptied log", got, nil)
	want(t, "the end of an emptied log", next, all[9])
	if next := appendN(t, s, 1)[0]; next <= all[9] {
		t.Fatalf("the offset %q was given again", next)
	}
}

// TestConsumers plays what the bus does: replaying in batches and following with a saved
// offset, over a restart.
func TestConsumers(t *testing.T) {
	s, reopen := open(t)
	all := appendN(t, s, 250)
	var replayed []Offset
	for at := OffsetOldest; ; {
		events, next, err := s.Read(ctx, at, 100)
		if err != nil {
			t.Fatal(err)
		}
		if next == at {
			break
		}
		replayed, at = append(replayed, offsetsOf(events)...), next
	}
	wantAll(t, "replayed", replayed, all)

	var followed []Offset
	for range 5 { // five lives of a follower, each ended after 50 events
		from, err := s.LoadOffset(ctx, "follower")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for e, err := range s.Tail(ctx, from) {
			if err != nil {
				t.Fatal(err)
			}
			followed = append(followed, e.Offset)
			if err := s.SaveOffset(ctx, "follower", e.Offset); err != nil {
				t.Fatal(err)
			}
			if n++; n == 50 {
				break
			}
		}
		reopen()
	}
	wantAll(t, "followed", followed, all)
}

// Events that something else appended to the log are an error, not a guess.
func TestForeignEvents(t *testing.T) {
	for _, metadata := range []string{"\x00", "\xeb", "\xeb\x02\x00", "\xeb\x01\xff", "\xeb\x01\x00more",
		"\xeb\x01\x04\xff\xff\xff\xff\x0f", "\xeb\x01\x04\x01\x05a", "\xeb\x01\x02"} {
		log, err := event.Open(kv.On(mem.New()), event.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(ctx, event.Event{Metadata: []byte(metadata)}); err != nil {
			t.Fatal(err)
		}
		s := eventbus.New[Event, StoredEvent, Offset](log)
		if _, _, err := s.Read(ctx, OffsetOldest, 0); !errors.Is(err, holdfast.ErrCorrupt) {
			t.Errorf("metadata %q: %v", metadata, err)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzMetadata reads anything as metadata: an event or an error, never a panic.
func FuzzMetadata(f *testing.F) {
	for _, seed := range []string{"", "\xeb\x01\x0f\x01\x02\x03\x01\x01a\x01b",
		"\xeb\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xeb\x01\x02\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, metadata []byte) {
		log, err := event.Open(kv.On(mem.New()), event.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if _, err := log.Append(ctx, event.Event{Metadata: metadata}); err != nil {
			t.Fatal(err)
		}
		s := eventbus.New[Event, StoredEvent, Offset](log)
		events, next, err := s.Read(ctx, OffsetOldest, 0)
		switch {
		case err == nil && (len(events) != 1 || events[0].Offset != next):
			t.Fatalf("%q became %d events", metadata, len(events))
		case err != nil && !errors.Is(err, holdfast.ErrCorrupt):
			t.Fatal(err)
		case err == nil:
			// What is read can be appended again.
			if _, err := s.Append(ctx, &Event{Metadata: events[0].Metadata, Timestamp: events[0].Timestamp,
				Data: events[0].Data}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A nil context is an error.
func TestNilContext(t *testing.T) {
	s, _ := open(t)
	var none context.Context
	if _, _, err := s.Read(none, OffsetNewest, 0); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("Read: %v", err)
	}
	seen := 0
	for _, err := range s.Tail(none, OffsetOldest) {
		if seen++; !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("Tail: %v", err)
		}
	}
	if seen != 1 {
		t.Errorf("Tail yields %d errors", seen)
	}
}
