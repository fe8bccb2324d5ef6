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

// looked counts the readings of an engine and says that it is poisoned when it is told to.
type looked struct {
	holdfast.Engine
	gets   atomic.Int64
	poison atomic.Bool
}

func (l *looked) Get(dst, key []byte) ([]byte, error) {
	l.gets.Add(1)
	return l.Engine.Get(dst, key)
}

var errDisk = errors.New("input/output error")

func (l *looked) Metrics() holdfast.Metrics {
	m := l.Engine.Metrics()
	if l.poison.Load() {
		m.Poison = errDisk
	}
	return m
}

// Followers learn of it though nobody calls anything, and what finds it out costs little: a look a second for all of
// them, and none when there are none.
func TestFollowersLearnOfItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := &looked{Engine: mem.New()}
		s := openLog(t, eng, event.Options{Level: holdfast.Memory})
		appendOK(t, s, typed("1")...)
		stop, cancel := context.WithCancel(ctx)
		many := following(stop, s, 100)
		before := eng.gets.Load()
		time.Sleep(time.Minute)
		if n := eng.gets.Load() - before; n > 61 {
			t.Errorf("100 followers look %d times a minute", n)
		}
		cancel()
		storetest.Finished(t, context.Canceled, many...)
		time.Sleep(2 * time.Second)
		before = eng.gets.Load()
		time.Sleep(time.Hour)
		if n := eng.gets.Load() - before; n > 0 {
			t.Errorf("%d looks though nobody follows", n)
		}

		ends := following(ctx, s, 2)
		eng.poison.Store(true)
		storetest.Finished(t, errDisk, ends...)
		_, err := s.Append(ctx, typed("2")...)
		wantError(t, err, holdfast.ErrPoisoned)
		closeLog(t, s)

		s = openLog(t, eng, event.Options{Level: holdfast.Memory})
		ends = following(ctx, s, 1)
		if err := eng.Close(); err != nil {
			t.Fatal(err)
		}
		storetest.Finished(t, holdfast.ErrClosed, ends...)
		closeLog(t, s)
	})
}

// A store that is closed while followers wait leaves nothing behind: synctest sees to that. Close does not wait for
// the next look.
func TestCloseEndsTheLooking(t *testing.T) {
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
