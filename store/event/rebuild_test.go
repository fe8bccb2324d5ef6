package event_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/event"
)

// Whatever keys of a log are lost, after Rebuild what is left is read as it was, ids are known if and only if their
// events are there, and no position that was given is given again. A rebuild that ended early can be done again.
func TestRebuild(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		st := newFakeEngine()
		o := event.Options{Name: "log", Level: holdfast.Memory}
		s := openLog(t, st, o)
		ids := 0
		for range 30 {
			switch r.IntN(5) {
			case 0:
				_, err := s.Import(ctx, at(named(fmt.Sprint("i", ids))[0], s.Last()+1+r.Uint64N(9)))
				fatal(t, err)
			case 1:
				_, err := s.Remove(ctx, 1+r.Uint64N(s.Last()+1))
				if err != nil && !errors.Is(err, event.ErrAhead) {
					t.Fatal(err)
				}
			default:
				var events []event.Event
				for i := range 1 + r.IntN(4) {
					events = append(events, named(fmt.Sprint("a", ids, "-", i))...)
				}
				appendOK(t, s, events...)
			}
			ids++
		}
		if r.IntN(2) == 0 {
			_, err := s.TruncateBefore(ctx, 1+r.Uint64N(s.Last()))
			fatal(t, err)
		}
		fatal(t, s.SaveOffset(ctx, "sub", s.Last()))
		before, last := readOK(t, s, 0, 0), s.Last()
		closeLog(t, s)

		// Lose some keys, but for the offset, which tells where the log ended.
		var b holdfast.Batch
		it := st.Scan(holdfast.Range{})
		for it.Next() {
			if r.IntN(4) == 0 && event.KeyName(it.Key()) != `offset "sub" of log "log"` {
				b.Delete(it.Key())
			}
		}
		fatal(t, errors.Join(it.Close(), holdfast.Commit(st, &b, holdfast.Memory)))
		was := copyOf(t, st)
		st.Record = true
		report, err := event.Rebuild(ctx, st, o, last+5)
		fatal(t, err)
		if n := len(st.Batches); n > 1 { // as if killed in between, and done again
			broken := newFakeEngine()
			broken.Engine = was
			for _, b := range st.Batches[:r.IntN(n)] {
				fatal(t, holdfast.Commit(was, b, holdfast.Memory))
			}
			again, err := event.Rebuild(ctx, broken, o, last+5)
			if err != nil || again.Events != report.Events || again.Last != report.Last {
				t.Fatalf("seed %d: %+v and then %+v, %v", seed, report, again, err)
			}
			checkRebuilt(t, broken, o, seed, again, before)
		}
		checkRebuilt(t, st, o, seed, report, before)
	}
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func copyOf(t testing.TB, from holdfast.Engine) holdfast.Engine {
	to := mem.New()
	var b holdfast.Batch
	it := from.Scan(holdfast.Range{})
	for it.Next() {
		b.Set(it.Key(), it.Value())
	}
	fatal(t, errors.Join(it.Close(), holdfast.Commit(to, &b, holdfast.Memory)))
	return to
}

func checkRebuilt(t testing.TB, eng holdfast.Engine, o event.Options, seed uint64, report event.Report,
	before []event.Event) {
	t.Helper()
	found, err := event.Examine(eng)
	if err != nil || len(found) != 1 || len(found[0].Lost) > 0 || found[0].Undescribed || found[0].Last != report.Last ||
		found[0].Events != report.Events {
		t.Fatalf("seed %d: %+v, %v, after %+v", seed, found, err, report)
	}
	s := openLog(t, eng, o)
	defer closeLog(t, s)
	there := map[string]uint64{}
	for _, e := range readOK(t, s, 0, 0) {
		there[e.ID] = e.Position
	}
	if uint64(len(there)) != report.Events || s.Last() != report.Last {
		t.Fatalf("seed %d: %d events up to %d, %+v", seed, len(there), s.Last(), report)
	}
	for _, e := range before {
		pos := there[e.ID]
		if pos != 0 && pos != e.Position {
			t.Fatalf("seed %d: %q was at %d, is at %d", seed, e.ID, e.Position, pos)
		}
		r, err := s.Append(ctx, e)
		if err != nil || r.Repeated != (pos != 0) || !r.Repeated && r.First <= report.Last {
			t.Fatalf("seed %d: %q, at %d of %+v, appended again: %+v, %v", seed, e.ID, e.Position, report, r, err)
		}
		delete(there, e.ID)
	}
	for id := range there { // truncated before, or removed: it is there again because the description, or a hole, was lost
		if _, err := s.Append(ctx, named(id)...); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.LoadOffset(ctx, "sub"); err != nil || got > report.Last {
		t.Fatal(got, err)
	}
}

func TestRebuildErrors(t *testing.T) {
	eng := mem.New()
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	_, err := event.Rebuild(ctx, eng, event.Options{Level: holdfast.Memory}, 0)
	wantError(t, err, holdfast.ErrLocked)
	closeLog(t, s)
	_, err = event.Rebuild(ctx, storetest.Torn(), event.Options{Level: holdfast.Memory}, 0)
	wantError(t, err, holdfast.ErrBadOption)
}
