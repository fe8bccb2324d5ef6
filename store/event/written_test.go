package event_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// oldLog makes a log as programs did that knew neither stamps nor folded ids: its events have these ids, and times.
func oldLog(t testing.TB, o event.Options, ids []string, times ...time.Time) holdfast.Engine {
	t.Helper()
	eng := mem.New()
	keys := format.NewPrefix(o.Name)
	var b holdfast.Batch
	b.Set(keys.Meta(), format.Meta{Window: 1 << 62, First: 1}.Encode())
	for i, at := range times {
		pos, id := uint64(i)+1, ""
		if i < len(ids) {
			id = ids[i]
			b.Set(keys.ID(nil, 0, id), format.AppendPosition(nil, pos))
		}
		b.Set(keys.Event(nil, pos), format.AppendRecord(nil, at.UnixNano(), "t", id, "", nil, []byte(fmt.Sprint(pos))))
	}
	if err := holdfast.Commit(eng, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	return eng
}

// Retention by age goes by the time of writing, whatever the times of the events are, alone or in packs, imported or
// appended, after a removal beside them, and after the log was rebuilt.
func TestAgeIsThatOfWriting(t *testing.T) {
	future, past := time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
	given := map[string]func(i int) time.Time{
		"none":   func(int) time.Time { return time.Time{} },
		"future": func(int) time.Time { return future },
		"past":   func(int) time.Time { return past },
		"mixed":  func(i int) time.Time { return []time.Time{{}, future, past}[i%3] },
	}
	for name, given := range given {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eng := mem.New()
				o := event.Options{Level: holdfast.Memory}
				s := openLog(t, eng, o)
				// Ten hours: a large event, two small ones that share a pack, and one that is imported.
				for i := range 10 {
					at := given(i)
					appendOK(t, s, event.Event{Time: at, Type: "large", Data: make([]byte, 10<<10)})
					appendOK(t, s, event.Event{Time: at, Type: "a"}, event.Event{Type: "b", Time: given(i + 1)})
					imported := event.Event{Position: s.Last() + 1, ID: fmt.Sprint(i), Type: "i", Time: at}
					if _, err := s.Import(ctx, imported); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Hour)
				}
				// What of packs is left beside something removed keeps its time.
				if _, err := s.Remove(ctx, 4*7+2, 4*8+3); err != nil {
					t.Fatal(err)
				}
				for hours := 11; hours >= 5; hours-- {
					retain(t, s, event.Retention{MaxAge: time.Duration(hours)*time.Hour + time.Minute},
						uint64(4*max(10-hours, 0))+1, 40)
				}
				for r, err := range s.Records(ctx, 0, 0) {
					if err != nil {
						t.Fatal(err)
					}
					age := 10 - time.Duration(r.Position-1)/4
					if got := time.Since(r.Written()); got != age*time.Hour {
						t.Fatalf("event %d is %v old, want %d hours", r.Position, got, age)
					}
				}
				closeLog(t, s)
				if _, err := event.Rebuild(ctx, eng, o, 0); err != nil {
					t.Fatal(err)
				}
				s = openLog(t, eng, o)
				for hours := 5; hours >= 2; hours-- {
					retain(t, s, event.Retention{MaxAge: time.Duration(hours)*time.Hour + time.Minute}, uint64(4*(10-hours))+1, 40)
				}
				retain(t, s, event.Retention{MaxAge: time.Minute}, 41, 40)
				closeLog(t, s)
			})
		})
	}
}

// What a clock wrote that was ahead counts from when that was found out, also after a restart, and does not keep what
// is behind it.
func TestClockWasAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		o := event.Options{Level: holdfast.Memory}
		eng := oldLog(t, o, nil, now.Add(-time.Hour), now.AddDate(1, 0, 0), now.Add(-time.Minute), now.AddDate(1, 0, 1))
		s := openLog(t, eng, o)
		retain(t, s, event.Retention{MaxAge: 2 * time.Hour}, 1, 4)
		time.Sleep(90 * time.Minute) // the first is 150 minutes old, the third 91
		retain(t, s, event.Retention{MaxAge: 2 * time.Hour}, 2, 4)
		closeLog(t, s)
		s = openLog(t, eng, o)
		time.Sleep(30 * time.Minute) // the third is 121 minutes old, and the one ahead before it at least as old
		retain(t, s, event.Retention{MaxAge: 2 * time.Hour}, 4, 4)
		closeLog(t, s)
		s = openLog(t, eng, o)
		time.Sleep(time.Hour)
		retain(t, s, event.Retention{MaxAge: 2 * time.Hour}, 4, 4)
		time.Sleep(61 * time.Minute) // two hours since it was the one behind which nothing came
		retain(t, s, event.Retention{MaxAge: 2 * time.Hour}, 5, 4)
		closeLog(t, s)
	})
}

// A log with stamps is not taken for a damaged one by programs that do not know them.
func TestStampsHaveAVersion(t *testing.T) {
	o := event.Options{Level: holdfast.Memory}
	eng := oldLog(t, o, nil, time.Unix(1, 0))
	version := func() int {
		t.Helper()
		meta, err := eng.Get(nil, format.NewPrefix("").Meta())
		if err != nil {
			t.Fatal(err)
		}
		return format.MetaVersion(meta)
	}
	s := openLog(t, eng, o)
	appendOK(t, s, event.Event{Type: "t"})
	if v := version(); v != 3 {
		t.Fatalf("version %d without need", v)
	}
	appendOK(t, s, event.Event{Type: "t", Time: time.Unix(2, 0)})
	if v := version(); v != 5 {
		t.Fatalf("version %d, and there are stamps", v)
	}
	closeLog(t, s)
	s = openLog(t, eng, o)
	if list := readOK(t, s, 1, 0); len(list) != 3 || !list[2].Time.Equal(time.Unix(2, 0)) {
		t.Fatal(list)
	}
	closeLog(t, s)
}

// An event as large as there may be is written with a time, too, and can be put elsewhere.
func TestLargestWithTime(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes it slow, and there is one goroutine")
	}
	s := memLog(t)
	e := event.Event{ID: "x", Type: "t", Time: time.Unix(7, 0)}
	at := uint64(0)
	for _, left := range []int{31, 30, 22, 21} { // 31 bytes are for the rest with both times, 22 for that with one
		size := int(holdfast.MaxValueSize) - left
		e.Data, e.ID = bytes.Repeat([]byte("x"), size), fmt.Sprint(size)
		if _, err := s.Append(ctx, e); err != nil {
			if wantError(t, err, holdfast.ErrTooLarge); left != 21 {
				t.Fatal(left, err)
			}
			break
		}
		at++
		got := readOK(t, s, at, 1)[0]
		if err := same(got, event.Event{Position: at, ID: e.ID, Type: "t", Time: e.Time.UTC(), Data: e.Data}); err != nil {
			t.Fatal(err)
		}
		other := memLog(t)
		if n, err := other.Import(ctx, got); n != 1 || err != nil {
			t.Fatal(size, n, err)
		}
		closeLog(t, other)
	}
	wantHead(t, s, 1, 3)
	closeLog(t, s)
}

// Known ids with another content are refused, and say where they are; with the same they are a repeat.
func TestOtherContent(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *storetest.Target) {
		o := event.Options{Name: "content", Level: tg.Level}
		s := openLog(t, tg.Engine, o)
		first := event.Event{ID: "x", Type: "Paid", Metadata: []byte("m"), Data: []byte("1"), Origin: "a"}
		second := event.Event{ID: "y", Type: "Paid"}
		appendOK(t, s, event.Event{Type: "before"})
		appendOK(t, s, first, second)
		try := func(events ...event.Event) {
			t.Helper()
			appended, err1 := s.Append(ctx, events...)
			after, err2 := s.AppendAfter(ctx, 0, events...)
			d, err := s.DraftAppend(ctx, keyspace.Messages, events...)
			if err != nil || len(d.Events) > 0 {
				t.Fatal(d, err)
			}
			drafted, err3 := d.Wait()
			p, err4 := s.Submit(ctx, events...)
			for i := range events { // what the caller does with its events after Submit does not count
				events[i].Data = []byte("changed")
			}
			submitted, err5 := p.Wait()
			if err4 != nil {
				t.Fatal(err4)
			}
			for _, got := range []struct {
				r   event.Result
				err error
			}{{appended, err1}, {after, err2}, {drafted, err3}, {submitted, err5}} {
				var known *event.Known
				if !errors.Is(got.err, event.ErrIDTaken) || !errors.As(got.err, &known) || known.First < 2 || known.Last > 3 {
					t.Fatal(got.r, got.err)
				}
			}
			wantHead(t, s, 1, 3)
		}
		change := func(what func(e *event.Event)) event.Event {
			e := first
			what(&e)
			return e
		}
		try(change(func(e *event.Event) { e.Type = "Cancelled" }))
		try(change(func(e *event.Event) { e.Data = []byte("2") }))
		try(change(func(e *event.Event) { e.Data = nil }))
		try(change(func(e *event.Event) { e.Data = []byte("1m"); e.Metadata = nil }))
		try(first, change(func(e *event.Event) { e.ID = "y" }))
		repeated := func(first uint64, events ...event.Event) {
			t.Helper()
			r := appendOK(t, s, events...)
			if !r.Repeated || r.First != first {
				t.Fatal(r)
			}
		}
		closeLog(t, s)
		tg.Reopen(t)
		s = openLog(t, tg.Engine, o)
		repeated(2, first, second)
		repeated(3, second)
		repeated(2, change(func(e *event.Event) { e.Metadata = nil }))
		repeated(2, change(func(e *event.Event) { e.Origin, e.Time = "b", time.Unix(5, 0) }))
		// Of what is truncated only the id is known.
		if _, err := s.TruncateBefore(ctx, 3); err != nil {
			t.Fatal(err)
		}
		repeated(2, change(func(e *event.Event) { e.Data = nil }))
		closeLog(t, s)
	})
}

// In a log that folds ids they are the same whatever the case of their letters, everywhere; their text stays. One that
// did not fold them from the beginning knows those that it has.
func TestFoldedIDs(t *testing.T) {
	o := event.Options{Level: holdfast.Memory, FoldIDs: true}
	long := strings.Repeat("Long", 200)
	ids := []string{"ABC", "abD", "xyz", "Twice", "tWICE", long, "É"}
	at := time.Unix(1, 0).UTC()
	old := oldLog(t, o, ids, at, at, at, at, at, at, at)
	fresh := mem.New()
	s := openLog(t, fresh, o)
	for i, id := range ids {
		if id == "tWICE" { // known
			appendOK(t, s, event.Event{Type: "t", Data: []byte("5")})
			continue
		}
		appendOK(t, s, event.Event{ID: id, Type: "t", Data: []byte(fmt.Sprint(i + 1))})
	}
	closeLog(t, s)
	rebuilt := oldLog(t, o, slices.Delete(slices.Clone(ids), 4, 5), at, at, at, at, at, at)
	if _, err := event.Rebuild(ctx, rebuilt, o, 0); err != nil {
		t.Fatal(err)
	}
	for name, eng := range map[string]holdfast.Engine{"old": old, "new": fresh, "rebuilt": rebuilt} {
		for _, again := range []string{"", " opened again"} {
			t.Run(name+again, func(t *testing.T) {
				s := openLog(t, eng, o)
				for id, pos := range map[string]uint64{"abc": 1, "ABC": 1, "aBc": 1, "ABD": 2, "abd": 2, "XYZ": 3, "xyz": 3,
					"twice": 4, "TWICE": 4, strings.ToUpper(long): 6, "É": 7} {
					if name == "rebuilt" && pos > 4 {
						pos-- // there is one "Twice" in it
					}
					r, err := s.Append(ctx, event.Event{ID: id, Type: "t", Data: []byte(fmt.Sprint(pos))})
					if err != nil || !r.Repeated || r.First != pos {
						t.Errorf("id %.20q: %+v, %v", id, r, err)
					}
				}
				if list := readOK(t, s, 1, 1); list[0].ID != "ABC" {
					t.Error(list)
				}
				closeLog(t, s)
			})
		}
	}

	s = openLog(t, old, event.Options{Level: holdfast.Memory}) // it is kept with the log
	if r := appendOK(t, s, event.Event{ID: "é", Type: "t"}); r.Repeated {
		t.Error(r) // letters beyond ASCII are others
	}
	_, err := s.Append(ctx, event.Event{ID: "new"}, event.Event{ID: "NEW"})
	wantError(t, err, event.ErrBadEvent)
	p, err := s.Submit(ctx, event.Event{ID: "New"})
	if err != nil {
		t.Fatal(err)
	}
	if again := appendOK(t, s, event.Event{ID: "nEW"}); !again.Repeated || again.First != p.Result().First {
		t.Error(again)
	}
	_, err = s.Import(ctx, event.Event{Position: 100, ID: "aBC", Type: "t"})
	wantError(t, err, event.ErrTaken)
	if n, err := s.Import(ctx, event.Event{Position: 1, ID: "abc", Type: "t", Data: []byte("1")}); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := s.Import(ctx, event.Event{Position: 100, ID: "Imported", Type: "t"}); n != 1 || err != nil {
		t.Error(n, err)
	}
	if r := appendOK(t, s, event.Event{ID: "IMPORTED", Type: "t"}); !r.Repeated || r.First != 100 {
		t.Error(r)
	}
	// Of two with the same id, the first one keeps it when the other goes.
	if n, err := s.Remove(ctx, 1, 5); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if r := appendOK(t, s, event.Event{ID: "twice", Type: "t", Data: []byte("4")}); !r.Repeated || r.First != 4 {
		t.Error(r)
	}
	if r := appendOK(t, s, event.Event{ID: "abc"}); r.Repeated {
		t.Error("the id of a removed event is known", r)
	}
	closeLog(t, s)
}
