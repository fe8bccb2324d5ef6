package event_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/event"
)

// What was deleted long ago is not walked over again: by Open, by the next truncation, by the next removal of ids,
// and by what comes after the log is opened anew.
func TestTheDeletedIsLeftBehind(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) {
			eng := storetest.NewBuried(!keyed)
			o := event.Options{Level: holdfast.Memory, IDWindow: 500}
			s := openLog(t, eng, o)
			fill := func(n int) {
				for i := range n {
					appendOK(t, s, named(fmt.Sprint(s.Last(), " ", i))...)
				}
			}
			fill(5000)
			if len(eng.Dead) < 3000 {
				t.Fatalf("only %d ids are gone", len(eng.Dead))
			}
			eng.Walked = 0
			if _, err := s.TruncateBefore(ctx, 5001); err != nil {
				t.Fatal(err)
			}
			again := func() {
				fill(1)
				if _, err := s.TruncateBefore(ctx, s.Last()+1); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				again()
				closeLog(t, s)
				s = openLog(t, eng, o)
				again()
				fill(2000) // ids are removed
			}
			// Some are met: those below the end of a span that is removed in chunks.
			if eng.Walked > 100 {
				t.Errorf("%d deleted keys were walked over, of %d", eng.Walked, len(eng.Dead))
			}
			if left := storetest.Keys(eng.Engine, holdfast.Range{Lo: []byte("e\x00i"), Hi: []byte("e\x00j")}); left > 4*500 {
				t.Errorf("%d ids are left", left)
			}
			closeLog(t, s)
		})
	}
}

// Where a range costs the same for any number of keys, a few are deleted singly, and a range is used for many.
func TestFewAreDeletedSingly(t *testing.T) {
	st := newFakeEngine()
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	for range 200 {
		appendOK(t, s, event.Event{})
	}
	for _, c := range []struct {
		before uint64
		ranges int
	}{{2, 0}, {10, 0}, {150, 1}, {152, 1}} {
		if _, err := s.TruncateBefore(ctx, c.before); err != nil {
			t.Fatal(err)
		}
		if left := len(entries(t, st)); left != 201-int(c.before) || st.Ranges != c.ranges {
			t.Errorf("before %d: %d events are left, after %d ranges", c.before, left, st.Ranges)
		}
	}
}

// A small window costs no batch every few events.
func TestSmallWindow(t *testing.T) {
	for _, native := range []bool{false, true} {
		st := newFakeEngine()
		st.Native = native
		s := openLog(t, st, event.Options{Level: holdfast.Memory, IDWindow: 16})
		const n = 20_000
		for i := range n {
			appendOK(t, s, named(fmt.Sprint(i))...)
		}
		if more := int(st.Applied) - n; more > n/100 || native && st.Ranges > n/1000 || !native && st.Ranges > 0 {
			t.Errorf("native %v: %d batches more, %d ranges", native, more, st.Ranges)
		}
		if left := storetest.Keys(st, holdfast.Range{Lo: []byte("e\x00i"), Hi: []byte("e\x00j")}); left > 3000 {
			t.Errorf("native %v: %d ids are left", native, left)
		}
		closeLog(t, s)
	}
}

// Ids are removed though all that are to go at once do not fit into one batch of the engine.
func TestManyIDsAreRemoved(t *testing.T) {
	st := newFakeEngine()
	st.Native, st.Ops = false, 200
	s := openLog(t, st, event.Options{Level: holdfast.Memory, IDWindow: 300})
	defer closeLog(t, s)
	for i := range 100 {
		events := make([]event.Event, 90)
		for j := range events {
			events[j].ID = fmt.Sprint(i, " ", j)
		}
		appendOK(t, s, events...)
	}
	if left := storetest.Keys(st, holdfast.Range{Lo: []byte("e\x00i"), Hi: []byte("e\x00j")}); left > 3000 {
		t.Errorf("%d ids are left of 9000", left)
	}
}

// An append whose ids would be forgotten before it can be repeated is refused; the longest one that is not can be
// repeated.
func TestAppendLongerThanTheWindow(t *testing.T) {
	targets(t, func(t *testing.T, tg *target) {
		s := openLog(t, tg.Engine, event.Options{Level: tg.Level, IDWindow: 7})
		defer closeLog(t, s)
		for i := range 20 {
			var ids []string
			for j := range 8 {
				ids = append(ids, fmt.Sprint(i, " ", j))
			}
			_, err := s.Append(ctx, named(ids...)...)
			wantError(t, err, holdfast.ErrTooLarge)
			for range 2 {
				if r := appendOK(t, s, named(ids[1:]...)...); r.First != uint64(7*i)+1 {
					t.Fatal(r)
				}
			}
			if i%3 == 0 { // ids, not events, are what is limited
				wantHead(t, s, 1, uint64(7*i)+7)
			}
		}
		appendOK(t, s, typed(strings.Split("a b c d e f g h i", " ")...)...)
	})
}
