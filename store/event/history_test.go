package event_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/event"
)

// again returns an engine with the same keys, as one that was closed and opened again, or a copy of it.
func again(t testing.TB, eng holdfast.Engine) holdfast.Engine { return copyOf(t, eng) }

// appendN appends so many events.
func appendN(t testing.TB, s *event.Store, n int) {
	t.Helper()
	for range n {
		appendOK(t, s, event.Event{Type: "t"})
	}
}

// A reader goes on where it was after any number of openings, and is told if the log is not the one that it has read,
// also if that has got as long.
func TestHistory(t *testing.T) {
	o := event.Options{Level: holdfast.Memory}
	eng := mem.New()
	s := openLog(t, eng, o)
	appendN(t, s, 10)
	first := s.History()
	fatal(t, s.CheckHistory(first, 11))
	wantError(t, s.CheckHistory(first, 12), event.ErrAhead)
	wantError(t, s.CheckHistory("", 12), event.ErrAhead)
	closeLog(t, s)

	// Opened again and again, it goes on.
	live := again(t, eng)
	for range 3 {
		s = openLog(t, live, o)
		fatal(t, s.CheckHistory(first, 11))
		closeLog(t, s)
		live = again(t, live)
	}
	backup := again(t, live) // of 10 events
	s = openLog(t, live, o)
	fatal(t, s.CheckHistory(first, 11))
	if s.History() == first {
		t.Error("two openings have one history")
	}
	appendN(t, s, 5)
	second := s.History()
	fatal(t, s.CheckHistory(second, 16))
	fatal(t, s.CheckHistory(first, 11))
	wantError(t, s.CheckHistory(first, 12), event.ErrAhead) // what it has read there is not here
	closeLog(t, s)

	// The backup is restored, and gets longer than the log was.
	s = openLog(t, backup, o)
	wantError(t, s.CheckHistory(second, 16), event.ErrAhead)
	appendN(t, s, 9)
	fatal(t, s.CheckHistory(first, 11))
	fatal(t, s.CheckHistory(s.History(), 20))
	for _, from := range []uint64{2, 11, 16, 19} {
		wantError(t, s.CheckHistory(second, from), event.ErrAhead) // nobody here knows the second
	}
	fatal(t, s.CheckHistory(second, 1)) // it has read nothing
	third := s.History()
	closeLog(t, s)

	// A power cut takes the last two events of the third.
	cut := again(t, backup)
	var b holdfast.Batch
	it := cut.Scan(holdfast.Range{Reverse: true})
	for n := 0; n < 2 && it.Next(); {
		if strings.HasPrefix(event.KeyName(it.Key()), "event ") {
			b.Delete(it.Key())
			n++
		}
	}
	it.Close()
	fatal(t, holdfast.Commit(cut, &b, holdfast.Memory))
	s = openLog(t, cut, o)
	appendN(t, s, 2)
	fatal(t, s.CheckHistory(third, 18))
	err := s.CheckHistory(third, 20)
	wantError(t, err, event.ErrAhead)
	if !strings.Contains(err.Error(), "differs from position 18 on") {
		t.Error(err)
	}
	if common, err := s.Common(third); common != 18 || err != nil {
		t.Error(common, err)
	}
	closeLog(t, s)

	// A log that was made anew has another history, also in the same engine.
	fatal(t, event.Delete(ctx, cut, "", holdfast.Memory))
	s = openLog(t, cut, o)
	appendN(t, s, 30)
	for _, history := range []string{first, second, third, "", "no history"} {
		err := s.CheckHistory(history, 20)
		if (err == nil) != (history == "") {
			t.Errorf("%q: %v", history, err)
		}
	}
	closeLog(t, s)
}

// A log that is opened again in an open engine goes on with its part of the history, and only so many are kept.
func TestHistoryParts(t *testing.T) {
	o := event.Options{Level: holdfast.Memory}
	eng := mem.New()
	other := openLog(t, eng, event.Options{Name: "other", Level: holdfast.Memory})
	s := openLog(t, eng, o)
	first := s.History()
	for range 3 {
		closeLog(t, s)
		s = openLog(t, eng, o)
		appendN(t, s, 1)
	}
	if s.History() != first {
		t.Error("a log that is opened again in an open engine has another history")
	}
	closeLog(t, s)
	closeLog(t, other)
	var second string
	for i := range 1001 {
		s = openLog(t, eng, o)
		if s.History() == first {
			t.Fatal("no history of its own, the engine may have been opened again")
		}
		if i == 2 {
			second = s.History()
		}
		closeLog(t, s)
	}
	s = openLog(t, eng, o)
	defer closeLog(t, s)
	wantError(t, s.CheckHistory(first, 4), event.ErrAhead)
	fatal(t, s.CheckHistory(second, 4)) // of 1,003 openings the last 1,000 are known
	parts := 0
	it := eng.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		if strings.Contains(event.KeyName(it.Key()), `of the history of log ""`) {
			parts++
		}
	}
	if parts != 1000 {
		t.Errorf("%d parts are kept", parts)
	}
}

// Whatever becomes of a log between two openings, a reader that names its history never misses an event silently: it
// is told, or it has read just what is there.
func TestHistoryModel(t *testing.T) {
	o := event.Options{Level: holdfast.Memory}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		type reader struct {
			history string
			read    []string // the events, from position 1
		}
		var eng holdfast.Engine = mem.New()
		var backups []holdfast.Engine
		readers := make([]reader, 4)
		told, went := 0, 0
		for step := range 60 {
			switch r.IntN(6) {
			case 0:
				backups = append(backups, again(t, eng))
			case 1:
				if len(backups) > 0 {
					eng = backups[r.IntN(len(backups))]
				}
			case 2:
				eng = mem.New()
			}
			eng = again(t, eng)
			s := openLog(t, eng, o)
			for range r.IntN(6) {
				appendOK(t, s, event.Event{Type: fmt.Sprint(seed, step, s.Last(), r.Uint64())})
			}
			now := readOK(t, s, 0, 0)
			for i := range readers {
				one := &readers[i]
				if r.IntN(3) == 0 {
					continue
				}
				err := s.CheckHistory(one.history, uint64(len(one.read))+1)
				common := len(one.read) <= len(now)
				for at := 0; common && at < len(one.read); at++ {
					common = now[at].Type == one.read[at]
				}
				if one.history != "" && err == nil && !common {
					t.Fatalf("seed %d, step %d: a reader of %d other events than the first of %d goes on", seed, step,
						len(one.read), len(now))
				}
				if err != nil {
					one.read, told = nil, told+1
				} else {
					went++
				}
				for _, e := range now[len(one.read):] {
					if one.read = append(one.read, e.Type); r.IntN(8) == 0 {
						break
					}
				}
				one.history = s.History()
			}
			closeLog(t, s)
		}
		if told == 0 || went == 0 {
			t.Errorf("seed %d: %d times told, %d times gone on", seed, told, went)
		}
	}
}

// A directory of an earlier version has no history. It gets one, and its readers are checked by their positions.
func TestNoHistory(t *testing.T) {
	eng := mem.New()
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	appendN(t, s, 3)
	closeLog(t, s)
	var b holdfast.Batch
	it := eng.Scan(holdfast.Range{})
	for it.Next() {
		if strings.Contains(event.KeyName(it.Key()), "history") {
			b.Delete(it.Key())
		}
	}
	it.Close()
	if b.Len() != 1 {
		t.Fatalf("%d parts of the history", b.Len())
	}
	fatal(t, holdfast.Commit(eng, &b, holdfast.Memory))
	s = openLog(t, eng, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	fatal(t, s.CheckHistory("", 4))
	fatal(t, s.CheckHistory(s.History(), 4))
	c, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, err := range s.Follow(c, 5) {
		wantError(t, err, event.ErrAhead)
	}
}
