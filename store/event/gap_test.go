package event_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/event"
)

// keyOf is the key of the events that end at pos, in the log of that name.
func keyOf(name string, pos uint64) []byte {
	key := append([]byte{'e', byte(len(name))}, name...)
	return binary.BigEndian.AppendUint64(append(key, 'e'), pos)
}

// lose removes the keys from that of position first to that of last, as a repair of the engine can.
func lose(t *testing.T, tg *target, name string, first, last uint64) {
	t.Helper()
	var b holdfast.Batch
	b.DeleteRange(keyOf(name, first), keyOf(name, last+1))
	if err := holdfast.Commit(tg.Engine, &b, tg.Level); err != nil {
		t.Fatal(err)
	}
}

// around reads a log in spite of its gaps.
func around(t *testing.T, s *event.Store, from uint64) (seen []uint64, gaps []event.Gap) {
	t.Helper()
	for range 100 {
		var failed error
		for e, err := range s.Events(ctx, from, 0) {
			if failed = err; err == nil {
				seen = append(seen, e.Position)
			}
		}
		if failed == nil {
			return seen, gaps
		}
		wantError(t, failed, holdfast.ErrCorrupt)
		var gap *event.Gap
		if !errors.As(failed, &gap) || gap.Next <= gap.Position {
			t.Fatalf("the error is %v", failed)
		}
		gaps = append(gaps, *gap)
		from = gap.Next
	}
	t.Fatal("reading does not come to an end")
	return nil, nil
}

func span(spans ...uint64) (all []uint64) {
	for i := 0; i < len(spans); i += 2 {
		for pos := spans[i]; pos <= spans[i+1]; pos++ {
			all = append(all, pos)
		}
	}
	return all
}

// testGaps is of a log that has lost events: reading stops there, every time, and says where it can go on.
func testGaps(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	for i := range 10 {
		appendOK(t, s, typed(fmt.Sprint(i+1))...)
	}
	for range 3 { // packs: 11 to 60, 61 to 110, 111 to 160
		appendOK(t, s, make([]event.Event, 50)...)
	}
	closeLog(t, s)
	lose(t, tg, o.Name, 1, 2)
	lose(t, tg, o.Name, 6, 8)
	lose(t, tg, o.Name, 110, 110)
	s = openLog(t, tg.Engine, o)
	wantHead(t, s, 1, 160)
	for range 2 {
		seen, gaps := around(t, s, 0)
		if !slices.Equal(gaps, []event.Gap{{1, 3}, {6, 9}, {61, 111}}) || !slices.Equal(seen, span(3, 5, 9, 60, 111, 160)) {
			t.Fatalf("gaps %v, events %v", gaps, seen)
		}
	}
	// Wherever in the gap reading begins, it is told the same.
	for pos := uint64(61); pos <= 110; pos++ {
		_, err := s.Read(ctx, pos, 1)
		var gap *event.Gap
		if wantError(t, err, holdfast.ErrCorrupt); !errors.As(err, &gap) || *gap != (event.Gap{Position: pos, Next: 111}) {
			t.Fatalf("from position %d: %v", pos, err)
		}
	}
	// A follower stops there too, and goes on where it is told.
	var followed []uint64
	var failed error
	for e, err := range s.Follow(ctx, 9) {
		if failed = err; err == nil {
			followed = append(followed, e.Position)
		}
	}
	var gap *event.Gap
	if !errors.As(failed, &gap) || !slices.Equal(followed, span(9, 60)) {
		t.Fatalf("a follower saw %v and then %v", followed, failed)
	}
	for e, err := range s.Follow(ctx, gap.Next) {
		if err != nil || e.Position != 111 {
			t.Fatal(e, err)
		}
		break
	}
	// Truncation lets go of what cannot be read.
	if _, err := s.TruncateBefore(ctx, gap.Next); err != nil {
		t.Fatal(err)
	}
	if got := readOK(t, s, 0, 0); len(got) != 50 || got[0].Position != 111 {
		t.Fatalf("%d events after truncation", len(got))
	}
	appendOK(t, s, typed("next")...)
	closeLog(t, s)
}

// What is there and makes no sense is passed over as a whole, the pack that it is in.
func TestDamagedEvents(t *testing.T) {
	eng := mem.New()
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	appendOK(t, s, typed("1", "2")...)
	appendOK(t, s, typed("3", "4", "5")...)
	appendOK(t, s, typed("6")...)
	appendOK(t, s, typed("7")...)
	appendOK(t, s, typed("8")...)
	set := func(pos uint64, value []byte) {
		t.Helper()
		var b holdfast.Batch
		b.Set(eventKey(pos), value)
		commitOK(t, eng, &b)
	}
	pack, err := eng.Get(nil, eventKey(5))
	if err != nil {
		t.Fatal(err)
	}
	set(5, pack[:len(pack)-2])
	set(6, nil)
	set(8, []byte{7})
	seen, gaps := around(t, s, 1)
	// As much of the pack as makes sense is shown.
	if !slices.Equal(gaps, []event.Gap{{5, 6}, {6, 7}, {8, 9}}) || !slices.Equal(seen, []uint64{1, 2, 3, 4, 7}) {
		t.Errorf("gaps %v, events %v", gaps, seen)
	}
	// A log of nothing but damage: the end is where it goes on.
	for _, pos := range []uint64{2, 7} {
		set(pos, []byte{7})
	}
	set(5, []byte{7})
	if seen, gaps = around(t, s, 1); len(seen) > 0 || gaps[len(gaps)-1].Next != 9 {
		t.Errorf("gaps %v, events %v", gaps, seen)
	}
	if r := appendOK(t, s, typed("9")...); r.First != 9 {
		t.Fatal(r)
	}
	if seen, _ = around(t, s, 1); !slices.Equal(seen, []uint64{9}) {
		t.Errorf("events %v", seen)
	}
}
