package event_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/event"
)

// Positions that lie apart are read as each of them is alone: events with an entry of their own, in packs, too large
// for a page together, removed, truncated, lost and not there yet.
func TestRecordsAt(t *testing.T) {
	eng := mem.New()
	o := event.Options{Name: "at", Level: holdfast.Memory}
	s := openLog(t, eng, o)
	for i := range 20 {
		appendOK(t, s, event.Event{Type: fmt.Sprint(i + 1), Data: make([]byte, 40<<10)})
	}
	appendOK(t, s, make([]event.Event, 30)...) // a pack: 21 to 50
	for range 10 {
		appendOK(t, s, make([]event.Event, 1)...)
	}
	if _, err := s.Remove(ctx, 15, 16, 17, 30, 55); err != nil {
		t.Fatal(err)
	}
	if _, err := s.TruncateBefore(ctx, 3); err != nil {
		t.Fatal(err)
	}
	closeLog(t, s)
	lose(t, &target{Engine: eng, Level: holdfast.Memory}, o.Name, 57, 57)
	s = openLog(t, eng, o)

	alone := func(positions []uint64) (seen []string) {
		for _, pos := range positions {
			for r, err := range s.Records(ctx, pos, 1) {
				if err != nil {
					return append(seen, err.Error())
				}
				if r.Position == pos {
					seen = append(seen, fmt.Sprint(r.Position, string(r.Type), len(r.Data), r.Time))
				}
			}
		}
		return seen
	}
	together := func(ctx context.Context, positions []uint64) (seen []string) {
		for r, err := range s.RecordsAt(ctx, keyspace.Events, positions) {
			if err != nil {
				seen = append(seen, err.Error())
				continue
			}
			seen = append(seen, fmt.Sprint(r.Position, string(r.Type), len(r.Data), r.Time))
		}
		return seen
	}
	for _, positions := range [][]uint64{
		nil, {3}, {60}, span(3, 14, 18, 29, 31, 54), {60, 3, 21, 50, 49}, span(3, 56), {15, 4, 16, 17, 5},
		{1}, {4, 1, 5}, {56, 57, 58}, {57}, {60, 61}, {61, 60}, {60, 62, 3}, {0, 4},
	} {
		if got, want := fmt.Sprint(together(ctx, positions)), fmt.Sprint(alone(positions)); got != want {
			t.Errorf("%v: %s, want %s", positions, got, want)
		}
	}
	ended, end := context.WithCancel(ctx)
	defer end()
	n := 0
	for r, err := range s.RecordsAt(ended, keyspace.Events, []uint64{58, 59, 60}) {
		if n++; err == nil && r.Position == 58 {
			end()
		} else if err == nil || n != 2 {
			t.Errorf("%d: %v, %v", n, r, err)
		}
	}
	for range s.RecordsAt(ctx, keyspace.Events, []uint64{58, 59}) {
		closeLog(t, s)
		break
	}
	if got := together(ctx, []uint64{58, 59}); len(got) != 1 || got[0] != fmt.Sprint(holdfast.ErrClosed) {
		t.Errorf("after Close: %v", got)
	}
}
