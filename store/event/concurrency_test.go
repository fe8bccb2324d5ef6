package event_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
)

// TestConcurrent has appenders of all kinds, followers, readers and truncation at work at
// once: every follower sees every event once, in order, at the place its appender was
// told.
func TestConcurrent(t *testing.T) {
	const workers = 6
	targets(t, func(t *testing.T, tg *target) {
		rounds := map[holdfast.Level]int{holdfast.Memory: 150, holdfast.Process: 60, holdfast.Power: 25}[tg.Level]
		s := openLog(t, tg.Engine, event.Options{Level: tg.Level})
		all, giveUp := context.WithCancel(ctx)
		defer giveUp()
		var told sync.Map // position -> type
		var done atomic.Bool
		var appenders, followers, others sync.WaitGroup
		tell := func(r event.Result, typ string) {
			for pos := r.First; pos <= r.Last; pos++ {
				if was, twice := told.Swap(pos, typ); twice {
					t.Errorf("position %d was given to %v and %v", pos, was, typ)
				}
			}
		}
		for w := range workers {
			appenders.Go(func() {
				for i := range rounds {
					typ := fmt.Sprint(w, " ", i)
					var r event.Result
					var err error
					switch w % 3 {
					case 0:
						r, err = s.Append(ctx, event.Event{Type: typ}, event.Event{Type: typ})
					case 1:
						var p event.Pending
						p, err = s.Submit(ctx, event.Event{Type: typ, ID: typ})
						r = p.Result()
					case 2: // try until nobody comes in between
						after := s.Last()
						for {
							if r, err = s.AppendAfter(ctx, after, event.Event{Type: typ}); !errors.Is(err, event.ErrConflict) {
								break
							}
							var c *event.Conflict
							errors.As(err, &c)
							after = c.Actual
						}
					}
					if err != nil {
						t.Error(err)
						giveUp() // or followers would wait for what does not come
						return
					}
					tell(r, typ)
				}
			})
		}
		total := uint64(workers/3) * uint64(rounds) * (2 + 1 + 1)
		seen := make([]atomic.Uint64, 4) // how far each follower is
		types := make([][]string, len(seen))
		for f := range seen {
			types[f] = make([]string, total+1)
			followers.Go(func() {
				next := uint64(1)
				for next <= total {
					stop, cancel := context.WithCancel(all)
					for r, err := range s.FollowRecords(stop, next) {
						if err != nil {
							t.Errorf("follower %d at %d: %v", f, next, err)
							break
						}
						if r.Position != next || r.Position > s.Last() {
							t.Errorf("follower %d saw position %d where %d was due, the log ends at %d", f, r.Position, next, s.Last())
						}
						types[f][r.Position] = string(r.Type)
						seen[f].Store(next)
						next++
						if next > total || next%100 == 0 { // leave and come back
							break
						}
					}
					cancel()
					if t.Failed() {
						return
					}
				}
			})
		}
		// Truncation follows the slowest follower; readers from the beginning see a whole
		// log or are told what is gone.
		others.Go(func() {
			for !done.Load() {
				slowest := seen[0].Load()
				for f := range seen {
					slowest = min(slowest, seen[f].Load())
				}
				if _, err := s.TruncateBefore(ctx, slowest+1); err != nil {
					t.Error(err)
					return
				}
			}
		})
		others.Go(func() {
			for !done.Load() {
				pos := uint64(0)
				for r, err := range s.Records(ctx, 0, 0) {
					if errors.Is(err, event.ErrTruncated) {
						break
					}
					if err != nil {
						t.Error(err)
						return
					}
					if pos != 0 && r.Position != pos+1 {
						t.Errorf("position %d follows %d", r.Position, pos)
						return
					}
					pos = r.Position
				}
			}
		})
		appenders.Wait()
		followers.Wait() // they need no more appends to get to the end, nor anybody to wait
		done.Store(true)
		others.Wait()
		for f := range types {
			for pos := uint64(1); pos <= total && !t.Failed(); pos++ {
				if want, _ := told.Load(pos); types[f][pos] != want {
					t.Errorf("follower %d saw %q at position %d, its appender was told of %q", f, types[f][pos], pos, want)
				}
			}
		}
		if s.Last() != total {
			t.Errorf("the log ends at %d, want %d", s.Last(), total)
		}
		closeLog(t, s)
	})
}

// No goroutine is left when followers have gone and the log is closed, even if what was
// submitted was never waited for.
func TestNoLeaks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	st := newFakeEngine()
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	st.Hold()
	for range 3 {
		if _, err := s.Submit(ctx, typed("x")...); err != nil {
			t.Fatal(err)
		}
	}
	stop, cancel := context.WithCancel(ctx)
	var followers sync.WaitGroup
	for range 20 {
		followers.Go(func() {
			for _, err := range s.Follow(stop, 1) {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}
		})
	}
	st.AwaitWaiters(1) // one waits for all
	cancel()
	followers.Wait() // though the receipt is not in
	st.Release(-1)
	closeLog(t, s)
}
