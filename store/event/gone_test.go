package event_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/event"
)

// following returns a channel for each of n followers of what comes after the last event, which gets the error that
// the follower ends with. It returns when all of them have begun.
func following(ctx context.Context, s *event.Store, n int) []chan error {
	ends, begun := make([]chan error, n), make(chan bool, n)
	for i := range ends {
		ends[i] = storetest.Async(func() (last error) {
			for _, err := range s.Follow(ctx, s.Last()) { // which is there
				if last = err; err == nil {
					begun <- true
				}
			}
			return last
		})
	}
	for range n {
		<-begun
	}
	return ends
}

// testEngineGone is of an engine that is closed before the store: followers end, whatever the engine, and so does
// every call.
func testEngineGone(t *testing.T, tg *target, o event.Options) {
	own := storetest.NewTarget(t, tg.Entry, tg.Level)
	s := openLog(t, own.Engine, o)
	appendOK(t, s, typed("1")...)
	ends := following(ctx, s, 3)
	wantError(t, own.Engine.Close(), holdfast.ErrStoresOpen)
	// The append tells the followers, who would find it out within a second: see TestFollowersLearnOfItAlone.
	_, err := s.Append(ctx, typed("2")...)
	wantError(t, err, holdfast.ErrClosed)
	storetest.Finished(t, holdfast.ErrClosed, ends...)
	_, err = s.AppendAfter(ctx, 7, typed("2")...)
	wantError(t, err, holdfast.ErrClosed)
	_, err = s.Read(ctx, 1, 0)
	wantError(t, err, holdfast.ErrClosed)
	wantError(t, s.SaveOffset(ctx, "sub", 1), holdfast.ErrClosed)
	_, err = s.TruncateBefore(ctx, 2)
	wantError(t, err, holdfast.ErrClosed)
	storetest.Finished(t, holdfast.ErrClosed, storetest.Async(func() error {
		var last error
		for _, err := range s.Follow(ctx, 2) {
			last = err
		}
		return last
	}))
	closeLog(t, s)
}

// Whatever call meets it first, a closed or poisoned engine ends the followers, at once.
func TestFollowersLearnOfIt(t *testing.T) {
	poison := &holdfast.Error{Op: "sync", Class: holdfast.ErrPoisoned, Cause: errors.New("input/output error")}
	for name, c := range map[string]struct {
		refuse error // what Apply returns; nil closes the engine
		call   func(s *event.Store) error
	}{
		"append to a poisoned engine": {poison, func(s *event.Store) error {
			_, err := s.Append(ctx, typed("2")...)
			return err
		}},
		"submit to a poisoned engine": {poison, func(s *event.Store) error {
			_, err := s.Submit(ctx, named("2")...)
			return err
		}},
		"save an offset in a poisoned engine": {poison, func(s *event.Store) error { return s.SaveOffset(ctx, "sub", 1) }},
		"truncate in a poisoned engine": {poison, func(s *event.Store) error {
			_, err := s.TruncateBefore(ctx, 2)
			return err
		}},
		"append to a closed engine": {nil, func(s *event.Store) error {
			_, err := s.Append(ctx, typed("2")...)
			return err
		}},
		"append with an id to a closed engine": {nil, func(s *event.Store) error {
			_, err := s.Append(ctx, named("2")...)
			return err
		}},
		"read in a closed engine": {nil, func(s *event.Store) error { _, err := s.Read(ctx, 1, 0); return err }},
		"load an offset in a closed engine": {nil, func(s *event.Store) error {
			_, err := s.LoadOffset(ctx, "sub")
			return err
		}},
		"truncate in a closed engine": {nil, func(s *event.Store) error {
			_, err := s.TruncateBefore(ctx, 1)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := newFakeEngine()
				s := openLog(t, st, event.Options{Level: holdfast.Memory})
				appendOK(t, s, typed("1")...)
				ends := following(ctx, s, 3)
				synctest.Wait() // they wait for the next event
				begun, want := time.Now(), error(holdfast.ErrClosed)
				if c.refuse != nil {
					want = c.refuse
					st.Locked(func() { st.Refuse = c.refuse })
				} else if err := st.Engine.Close(); err != nil {
					t.Fatal(err)
				}
				wantError(t, c.call(s), want)
				storetest.Finished(t, want, ends...)
				if passed := time.Since(begun); passed > 0 {
					t.Errorf("the followers took %v to learn of it", passed)
				}
				wantError(t, c.call(s), want)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Followers learn of it at once though nobody calls anything, and while they wait nothing looks at the engine.
func TestFollowersLearnOfItAlone(t *testing.T) {
	for want, end := range map[error]func(st *fakeEngine){
		holdfast.ErrPoisoned: func(st *fakeEngine) {
			st.Locked(func() { st.Fail = errors.New("input/output error") })
		},
		holdfast.ErrClosed: func(st *fakeEngine) {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			st := newFakeEngine()
			eng := &looked{Engine: st}
			s := openLog(t, eng, event.Options{Level: holdfast.Memory})
			appendOK(t, s, typed("1")...)
			ends := following(ctx, s, 100)
			synctest.Wait()
			before := eng.looks.Load()
			time.Sleep(time.Hour)
			if n := eng.looks.Load() - before; n > 0 {
				t.Errorf("100 followers look at the engine %d times an hour", n)
			}
			begun := time.Now()
			end(st)
			storetest.Finished(t, want, ends...)
			if passed := time.Since(begun); passed > 0 {
				t.Errorf("the followers took %v to learn of %v", passed, want)
			}
			_, err := s.Append(ctx, typed("2")...)
			wantError(t, err, want)
			closeLog(t, s)
		})
	}
}

// looked counts what an engine is asked.
type looked struct {
	holdfast.Engine
	looks atomic.Int64
}

func (l *looked) Get(dst, key []byte) ([]byte, error) {
	l.looks.Add(1)
	return l.Engine.Get(dst, key)
}

func (l *looked) Metrics() holdfast.Metrics {
	l.looks.Add(1)
	return l.Engine.Metrics()
}

// A store that is closed while followers wait leaves nothing behind: synctest sees to that. Close does not wait.
func TestCloseEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openLog(t, mem.New(), event.Options{Level: holdfast.Memory})
		appendOK(t, s, typed("1")...)
		ends := following(ctx, s, 3)
		synctest.Wait()
		begun := time.Now()
		closeLog(t, s)
		storetest.Finished(t, holdfast.ErrClosed, ends...)
		if passed := time.Since(begun); passed > 0 {
			t.Errorf("Close took %v", passed)
		}
	})
}
