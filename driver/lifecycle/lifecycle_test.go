package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
)

func nothing() error { return nil }

func TestCloseWaitsForThoseInside(t *testing.T) {
	var g lifecycle.Engine
	var wg sync.WaitGroup
	inside := make(chan struct{}, 8)
	release := make(chan struct{})
	left := 0
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			if err := g.Enter(); err != nil {
				t.Error(err)
				return
			}
			inside <- struct{}{}
			<-release
			mu.Lock()
			left++
			mu.Unlock()
			g.Leave()
		})
	}
	for range 8 {
		<-inside
	}
	go close(release)
	var gone int // when it settled last
	closed, err := g.Close(func() error {
		mu.Lock()
		defer mu.Unlock()
		gone = left
		return nil
	})
	if err != nil || !closed {
		t.Fatal(closed, err)
	}
	if gone != 8 {
		t.Errorf("Close went on with %d inside", 8-gone)
	}
	wg.Wait()
	if err := g.Enter(); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Enter after Close: %v", err)
	}
	if closed, err := g.Close(nothing); closed || !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("second Close: %v, %v", closed, err)
	}
}

func TestCloseRefusesWhileInUse(t *testing.T) {
	var g lifecycle.Engine
	g.AddIterator(1)
	g.AddSnapshot(1)
	settled := false
	if closed, err := g.Close(func() error { settled = true; return nil }); closed || !errors.Is(err, holdfast.ErrBusy) {
		t.Fatalf("Close with an open iterator: %v", err)
	}
	if !settled {
		t.Error("Close did not settle before it refused")
	}
	if err := g.Enter(); err != nil {
		t.Fatalf("a refused Close has shut it: %v", err)
	}
	g.Leave()
	g.AddIterator(-1)
	g.AddSnapshot(-1)
	cause := errors.New("device gone")
	if closed, err := g.Close(func() error { return cause }); !errors.Is(err, cause) || !closed || !g.Closed() {
		t.Errorf("Close that could not settle: %v, closed %v", err, closed)
	}
}

// An engine's life that has a name gives it in every error, and a refused Enter allocates nothing.
func TestName(t *testing.T) {
	var g lifecycle.Engine
	g.Name("bbolt", "/data/x")
	g.AddIterator(1)
	if _, err := g.Close(nothing); !errors.Is(err, holdfast.ErrBusy) ||
		!strings.HasPrefix(err.Error(), "bbolt close /data/x: in use: 1 iterators") {
		t.Errorf("Close while in use: %v", err)
	}
	g.AddIterator(-1)
	if _, err := g.Close(nothing); err != nil {
		t.Fatal(err)
	}
	_, again := g.Close(nothing)
	for _, err := range []error{g.Enter(), again} {
		if !errors.Is(err, holdfast.ErrClosed) || err.Error() != "bbolt /data/x: closed" {
			t.Errorf("after Close: %v", err)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = g.Enter() }); n > 0 {
		t.Errorf("Enter after Close allocates %v times", n)
	}
}

// While Close brings to the device what was applied, others go in and out, whether it then closes or
// refuses; once it has, no new call enters while the rest is synced.
func TestCloseSettlesBesideOthers(t *testing.T) {
	var g lifecycle.Engine
	pass := func() error {
		passed := make(chan error)
		go func() {
			err := g.Enter()
			if err == nil {
				g.Leave()
			}
			passed <- err
		}()
		return <-passed
	}
	g.AddSnapshot(1)
	if _, err := g.Close(pass); !errors.Is(err, holdfast.ErrBusy) || errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("Close with an open snapshot: %v", err)
	}
	g.AddSnapshot(-1)
	settles := 0
	_, err := g.Close(func() error {
		if settles++; settles == 1 {
			return pass()
		}
		return nil
	})
	if err != nil || settles != 2 {
		t.Errorf("Close: %v, settled %d times", err, settles)
	}
	// A snapshot that is opened while Close settles keeps it from closing.
	var late lifecycle.Engine
	if _, err := late.Close(func() error {
		late.AddSnapshot(1)
		return nil
	}); !errors.Is(err, holdfast.ErrBusy) || late.Closed() {
		t.Errorf("Close with a snapshot opened during it: %v, closed %v", err, late.Closed())
	}
}

// While some go in and out, one of many who shut a life did; once Wait returns no call is inside, and none enters.
func TestShut(t *testing.T) {
	own := errors.New("over")
	for _, want := range []error{holdfast.ErrClosed, own} {
		for range 25 {
			var l lifecycle.Life
			if want == own {
				l.Err = own
			}
			var inside, shut, in atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for l.Enter() == nil {
						in.Add(1)
						inside.Add(1)
						inside.Add(-1)
						l.Leave()
					}
				})
			}
			for in.Load() < 10 {
				if l.Closed() {
					t.Fatal("a new life is shut")
				}
			}
			for range 3 {
				wg.Go(func() {
					if l.Shut() {
						shut.Add(1)
					}
					l.Wait()
					if n := inside.Load(); n != 0 {
						t.Errorf("%d are inside after Wait", n)
					}
				})
			}
			wg.Wait()
			if shut.Load() != 1 || !l.Closed() || l.Enter() != want {
				t.Fatalf("%d have shut it", shut.Load())
			}
		}
	}
}

// A snapshot that is closed while an iterator in it goes on keeps the life open until the iterator ends, whenever Close
// looks.
func TestCloseSeesWhatASnapshotLeaves(t *testing.T) {
	var g lifecycle.Engine
	g.AddSnapshot(1)
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() { // at every moment there is a snapshot, or an iterator
		for !stop.Load() {
			g.AddIterator(1)
			g.AddSnapshot(-1)
			if err := g.Enter(); err != nil {
				t.Error(err)
				return
			}
			g.AddSnapshot(1)
			g.Leave()
			g.AddIterator(-1)
		}
	})
	for range 200_000 {
		if closed, err := g.Close(nothing); closed || !errors.Is(err, holdfast.ErrBusy) {
			t.Errorf("Close with an open snapshot or iterator: %v, closed %v", err, closed)
			break
		}
	}
	stop.Store(true)
	wg.Wait()
}

// Close ends long calls, those that begin while it settles too, and then closes; one that is refused at once ends none,
// and after one that ended some in vain others can begin.
func TestCloseEndsLongCalls(t *testing.T) {
	var g lifecycle.Engine
	inside := make(chan error, 1)
	begin := func() chan error {
		result := make(chan error, 1)
		go func() {
			result <- g.Long(context.Background(), func(ctx context.Context) error {
				inside <- nil
				<-ctx.Done()
				return fmt.Errorf("stopped: %w", ctx.Err())
			})
		}()
		<-inside
		return result
	}
	first := begin()
	g.AddIterator(1)
	if _, err := g.Close(nothing); !errors.Is(err, holdfast.ErrBusy) || len(first) > 0 {
		t.Fatalf("a Close that was refused: %v, and a long call has ended: %v", err, len(first) > 0)
	}
	g.AddIterator(-1)
	var late chan error
	_, err := g.Close(func() error {
		if late == nil {
			g.AddIterator(1)
			late = begin()
		}
		return nil
	})
	ended := errors.Is(<-first, holdfast.ErrClosed) && errors.Is(<-late, holdfast.ErrClosed)
	if !errors.Is(err, holdfast.ErrBusy) || !ended {
		t.Fatal("long calls were not ended, or closed:", err)
	}
	g.AddIterator(-1)
	again := begin()
	if len(again) > 0 {
		t.Fatal("a Close that is over has ended it:", <-again)
	}
	if closed, err := g.Close(nothing); err != nil || !closed || !errors.Is(<-again, holdfast.ErrClosed) {
		t.Fatal(closed, err)
	}
	if err := g.Long(context.Background(), nil); !errors.Is(err, holdfast.ErrClosed) {
		t.Fatal(err)
	}
}

// What ends a long call before Close does is what it returns, and so is its own error.
func TestLongCallsOwnErrors(t *testing.T) {
	var g lifecycle.Engine
	ctx, end := context.WithCancel(context.Background())
	defer end()
	own := errors.New("own")
	for _, want := range []error{nil, own, context.Canceled} {
		err := g.Long(ctx, func(inside context.Context) error {
			if want == context.Canceled {
				end()
				<-inside.Done()
			}
			return want
		})
		if err != want {
			t.Errorf("%v, not %v", err, want)
		}
	}
	err := g.Long(ctx, func(context.Context) error { t.Error("it was called"); return nil })
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	var none context.Context
	if err := g.Long(none, nil); !errors.Is(err, holdfast.ErrBadOption) {
		t.Error(err)
	}
}

// TestCloseOfWhatIsNoLongerInUse: an iterator that is closed while Close settles does not refuse it.
func TestCloseOfWhatIsNoLongerInUse(t *testing.T) {
	var e lifecycle.Engine
	e.Name("engine", "dir")
	e.AddIterator(1)
	settled := 0
	closed, err := e.Close(func() error {
		if settled++; settled == 1 {
			e.AddIterator(-1)
		}
		return nil
	})
	if !closed || err != nil || settled != 2 {
		t.Errorf("closed %t, %v; settled %d times", closed, err, settled)
	}
}
