package event_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/event"
)

// kept returns how much more memory is in use after f, in MiB, while what f returns is needed.
func kept[T any](f func() T) int {
	inUse := func() uint64 {
		for range 3 { // pools keep what they have over two collections
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	v := f()
	after := inUse()
	runtime.KeepAlive(v)
	return int(int64(after-before) >> 20)
}

// A follower that waits keeps nothing of what it has read, neither a page nor a large event, nor the text of one.
func TestWaitingFollowersKeepNothing(t *testing.T) {
	const followers, large = 20, 4 << 20
	for name, e := range map[string]event.Event{
		"page":  {Data: make([]byte, 200<<10)},
		"large": {Data: make([]byte, large)},
		"text":  {Type: "t", Origin: strings.Repeat("o", event.MaxTypeSize)},
	} {
		follow := map[string]func(s *event.Store, ctx context.Context) iter.Seq2[*event.Record, error]{
			"FollowRecords": func(s *event.Store, ctx context.Context) iter.Seq2[*event.Record, error] {
				return s.FollowRecords(ctx, 1)
			},
			"Follow": func(s *event.Store, ctx context.Context) iter.Seq2[*event.Record, error] {
				return func(yield func(*event.Record, error) bool) {
					for _, err := range s.Follow(ctx, 1) {
						if !yield(nil, err) {
							return
						}
					}
				}
			},
		}
		for how, follow := range follow {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := openLog(t, mem.New(), event.Options{Level: holdfast.Memory})
					appendOK(t, s, e)
					stop, cancel := context.WithCancel(ctx)
					var ends []chan error
					got := kept(func() any {
						for range followers {
							ends = append(ends, storetest.Async(func() (last error) {
								for _, err := range follow(s, stop) {
									last = err
								}
								return last
							}))
						}
						synctest.Wait() // they wait for the next event
						return nil
					})
					if limit := followers * (200 << 10) >> 21; got > limit {
						t.Errorf("%d followers keep %d MiB", followers, got)
					}
					cancel()
					storetest.Finished(t, context.Canceled, ends...)
					closeLog(t, s)
				})
			})
		}
	}
}

// The store remembers ids, and not what its caller has cut them out of.
func TestIDsPinNothing(t *testing.T) {
	s := memLog(t)
	if got := kept(func() any {
		for i := range 64 {
			large := strings.Repeat(fmt.Sprintf("%063d.", i), 1<<14)
			appendOK(t, s, named(large[:64], large[63:127])...)
		}
		return s
	}); got > 8 {
		t.Errorf("128 ids keep %d MiB", got)
	}
}

// After a failed save the offsets and snapshots of others are loaded as before. What is kept under the name itself is
// not known.
func TestLoadsAfterAFailedSave(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		appendOK(t, s, typed("1")...)
		if err := errors.Join(s.SaveOffset(ctx, "a", 1), s.SaveSnapshot(ctx, "a", 1, []byte("state")),
			s.SaveOffset(ctx, "b", 0)); err != nil {
			t.Fatal(err)
		}
		st.Hold()
		saved := storetest.Async(func() error { return s.SaveOffset(ctx, "b", 1) })
		st.AwaitWaiters(1)
		loaded := storetest.Async(func() error { _, err := s.LoadOffset(ctx, "b"); return err })
		storetest.Unfinished(t, saved, loaded)
		cause := errors.New("input/output error")
		st.Locked(func() { st.Fail = cause })
		storetest.Finished(t, cause, saved, loaded)
		for range 2 {
			if pos, err := s.LoadOffset(ctx, "a"); pos != 1 || err != nil {
				t.Error(pos, err)
			}
			if pos, state, err := s.LoadSnapshot(ctx, "a"); pos != 1 || string(state) != "state" || err != nil {
				t.Error(pos, state, err)
			}
			_, err := s.LoadOffset(ctx, "c")
			wantError(t, err, holdfast.ErrNotFound)
			_, err = s.LoadOffset(ctx, "b")
			wantError(t, err, holdfast.ErrPoisoned)
		}
		closeLog(t, s)
	})
}

// onScan calls a function, once, before a Scan of events, when so many others have been.
type onScan struct {
	holdfast.Engine
	others int
	call   func()
}

func (o *onScan) Scan(r holdfast.Range) holdfast.Iterator {
	if call := o.call; call != nil && bytes.HasPrefix(r.Lo, []byte("e\x00e")) {
		if o.others--; o.others < 0 {
			o.call = nil
			call()
		}
	}
	return o.Engine.Scan(r)
}

// Whoever reads from the first event on reads from the one that is the first by then, if it is truncated meanwhile.
func TestReadFirstBesideTruncation(t *testing.T) {
	const n = 1000
	for pages := range 2 {
		eng := &onScan{Engine: mem.New()}
		s := openLog(t, eng, event.Options{Level: holdfast.Memory})
		for range n {
			appendOK(t, s, event.Event{})
		}
		overtake := func() {
			eng.others, eng.call = pages, func() {
				if _, err := s.TruncateBefore(ctx, s.First()+200); err != nil {
					t.Error(err)
				}
			}
		}
		for _, limit := range []int{0, 300} {
			overtake()
			events := readOK(t, s, 0, limit)
			want := min(max(uint64(limit), s.Last()*uint64(1-limit/300)), s.Last()-s.First()+1)
			if events[0].Position != s.First() || uint64(len(events)) != want {
				t.Errorf("%d events from position %d, want %d from %d", len(events), events[0].Position, want, s.First())
			}
		}
		// Who has been shown an event is told of what is missing behind it.
		overtake()
		next := uint64(0)
		for r, err := range s.Records(ctx, 0, 0) {
			if next != 0 && pages > 0 && err != nil {
				wantError(t, err, event.ErrTruncated)
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if next != 0 && r.Position != next || next == 0 && pages == 0 && r.Position != s.First() {
				t.Fatalf("position %d where %d was due, the log begins at %d", r.Position, next, s.First())
			}
			next = r.Position + 1
		}
		// Who names a position is told at once.
		overtake()
		_, err := s.Read(ctx, s.First(), 0)
		wantError(t, err, event.ErrTruncated)
		closeLog(t, s)
	}
}

// Whatever waits before it has its place, or for another, ends with its context.
func TestContextEndsWaiting(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		synctest.Test(t, func(t *testing.T) { testContextEndsWaiting(t, st) })
	})
}

func testContextEndsWaiting(t *testing.T, st *fakeEngine) {
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	appendOK(t, s, typed("1", "2", "3")...)
	st.Hold()

	stop, cancel := context.WithCancel(ctx)
	before := st.Applied
	giveUp := storetest.Async(func() error { _, err := s.TruncateBefore(stop, 2); return err })
	st.AwaitApplied(before + 1)
	// it waits for the first one
	other := storetest.Async(func() error { _, err := s.TruncateBefore(stop, 3); return err })
	storetest.Unfinished(t, giveUp, other)
	cancel()
	storetest.Finished(t, context.Canceled, giveUp, other)
	wantHead(t, s, 1, 3)
	st.Release(-1)
	// the first one has come through all the same
	if removed, err := s.TruncateBefore(ctx, 2); removed != 0 || err != nil {
		t.Fatal(removed, err)
	}
	wantHead(t, s, 2, 3)

	st.Hold()
	stop, cancel = context.WithCancel(ctx)
	placed := 0
	crowd := storetest.Async(func() error {
		for ; ; placed++ {
			if _, err := s.Submit(stop, event.Event{ID: fmt.Sprint(placed)}); err != nil {
				return err
			}
		}
	})
	st.AwaitWaiters(1) // on behalf of the crowd
	storetest.Unfinished(t, crowd)
	cancel()
	storetest.Finished(t, context.Canceled, crowd)
	st.Release(-1)
	if r := appendOK(t, s, named("last")...); r.First != 4+uint64(placed) || placed < 1000 {
		t.Errorf("%d were placed, and the next one is at position %d", placed, r.First)
	}
	closeLog(t, s)
}
