package event_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/event"
)

// testConflicts is of writers who decide on what they read and try again after a conflict: what they conflict with is
// there to be read, so that each has at most one conflict for every append of another.
func testConflicts(t *testing.T, tg *target, o event.Options) {
	s := openLog(t, tg.Engine, o)
	defer closeLog(t, s)
	const writers, each = 4, 25
	var conflicts atomic.Int64
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			last := uint64(0)
			for done := 0; done < each; {
				for e, err := range s.Events(ctx, last+1, 0) {
					if err != nil {
						t.Error(err)
						return
					}
					last = e.Position
				}
				r, err := s.AppendAfter(ctx, last, event.Event{Type: "decided"})
				var c *event.Conflict
				switch {
				case err == nil:
					if r.First != last+1 {
						t.Errorf("an append after %d is at %d", last, r.First)
						return
					}
					done, last = done+1, r.Last
				case errors.As(err, &c):
					if conflicts.Add(1); s.Last() < c.Actual || c.Actual <= c.Expected {
						t.Errorf("%v, and readers see the log up to %d", err, s.Last())
						return
					}
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	wantHead(t, s, 1, writers*each)
	if n := conflicts.Load(); n > (writers-1)*writers*each {
		t.Errorf("%d conflicts for %d appends of %d writers", n, writers*each, writers)
	}
}

// A conflict is told once what was found can be read; SubmitAfter tells at once.
func TestConflictWaits(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		defer closeLog(t, s)
		appendOK(t, s, typed("1")...)
		after := func(ctx context.Context, last uint64) chan error {
			return storetest.Async(func() error { _, err := s.AppendAfter(ctx, last, typed("x")...); return err })
		}
		st.Hold()
		defer st.Release(-1)
		for range 2 { // nobody waits for these but the store
			if _, err := s.Submit(ctx, typed("2")...); err != nil {
				t.Fatal(err)
			}
		}
		stop, cancel := context.WithCancel(ctx)
		early, late, stopped := after(ctx, 1), after(ctx, 9), after(stop, 1)
		_, err := s.SubmitAfter(ctx, 1, typed("x")...)
		wantError(t, err, event.ErrConflict)
		storetest.Unfinished(t, early, late, stopped)
		cancel()
		storetest.Finished(t, context.Canceled, stopped)
		st.Release(1)
		storetest.Unfinished(t, early, late)
		st.Release(-1)
		storetest.Finished(t, event.ErrConflict, early, late)
		wantHead(t, s, 1, 3)
		storetest.Finished(t, event.ErrConflict, after(ctx, 1))
		wantTypes(t, s, 1, "1", "2", "2")
	})
}

// A conflict with what never becomes durable ends with the reason.
func TestConflictInFailure(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		appendOK(t, s, typed("1")...)
		st.Hold()
		if _, err := s.Submit(ctx, typed("2")...); err != nil {
			t.Fatal(err)
		}
		conflict := storetest.Async(func() error { _, err := s.AppendAfter(ctx, 1, typed("x")...); return err })
		st.AwaitWaiters(1)
		cause := errors.New("input/output error")
		st.Locked(func() { st.Fail = cause })
		storetest.Finished(t, cause, conflict)
		wantError(t, s.Close(), holdfast.ErrPoisoned)
	})
}
