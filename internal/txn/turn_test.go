package txn

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hold takes the turn for a while.
func hold(t *testing.T, turn *Turn, long time.Duration) {
	if err := turn.Hold(context.Background()); err != nil {
		t.Error(err)
		return
	}
	time.Sleep(long)
	turn.Release()
}

// TestTurnOrder: those who wait are served in the order in which they came.
func TestTurnOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Turn
		if err := turn.Hold(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 20 {
			take, give := turn.Hold, turn.Release
			if i%2 > 0 {
				take, give = turn.Take, turn.Give
			}
			go func() {
				if err := take(context.Background()); err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // before the next one can be served
				give()
			}()
			synctest.Wait()
		}
		turn.Release()
		synctest.Wait()
		if len(order) != 20 || !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
	})
}

// TestTurnIsFair: who waits is passed by others for fairAfter at most, though another one takes the turn again as soon
// as it has released it.
func TestTurnIsFair(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the other one is always faster
	for _, waiters := range []int{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			const each = 100 * time.Microsecond
			var turn Turn
			var done atomic.Bool
			passed := 0
			var other sync.WaitGroup
			other.Go(func() {
				for !done.Load() {
					hold(t, &turn, each)
					passed++
				}
			})
			synctest.Wait()
			var wg sync.WaitGroup
			for range waiters {
				wg.Go(func() {
					began := time.Now()
					hold(t, &turn, each)
					if waited := time.Since(began) - each; waited > fairAfter+time.Duration(2*waiters)*each {
						t.Errorf("one of %d waited for %v", waiters, waited)
					}
				})
			}
			wg.Wait()
			done.Store(true)
			other.Wait()
			if passed < 2 {
				t.Error("nobody passed: the test tries nothing")
			}
		})
	}
}

// TestTurnIsPassedOn: whoever gives up waiting, and when, those behind get the turn, one at a time.
func TestTurnIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Turn
		var holders atomic.Int32
		served, left := atomic.Int32{}, atomic.Int32{}
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(i)))
				some := func(most int) time.Duration { return time.Duration(random.IntN(most)) * 50 * time.Microsecond }
				for range 300 {
					ctx, cancel := context.WithTimeout(context.Background(), some(60))
					take, end := turn.Hold, turn.Release
					if i%3 == 0 {
						take, end = turn.Take, turn.Give
					}
					if err := take(ctx); err != nil {
						left.Add(1)
					} else {
						if holders.Add(1) != 1 {
							t.Error("two have the turn")
						}
						if served.Add(1); i%3 != 0 {
							time.Sleep(some(5))
						}
						holders.Add(-1)
						end()
					}
					cancel()
					time.Sleep(some(40))
				}
			})
		}
		wg.Wait()
		if turn.held || turn.call || len(turn.queue) > 0 {
			t.Errorf("in the end it is %+v", &turn)
		}
		if served.Load() < 1000 || left.Load() < 1000 {
			t.Errorf("%d served, %d left: the test tries too little", served.Load(), left.Load())
		}
	})
}

// TestTurnOfOneWhoLeaves: one who gives up waiting just when the turn is free, or has just been given it, leaves it to
// the next.
func TestTurnOfOneWhoLeaves(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the waiter runs only after both
	for _, long := range []time.Duration{fairAfter / 2, 2 * fairAfter} {
		for range 100 {
			synctest.Test(t, func(t *testing.T) {
				var turn Turn
				ctx, cancel := context.WithCancel(t.Context())
				if err := turn.Hold(ctx); err != nil {
					t.Fatal(err)
				}
				go func() {
					if turn.Hold(ctx) == nil {
						t.Error("it has the turn, though it gave up before")
						turn.Release()
					}
				}()
				synctest.Wait()
				served := false
				go func() {
					hold(t, &turn, 0)
					served = true
				}()
				synctest.Wait()
				time.Sleep(long)
				cancel()
				turn.Release()
				if synctest.Wait(); !served {
					t.Fatal("the next one waits for a turn that is free")
				}
			})
		}
	}
}

// Who waits inside a transaction waits for itself if nobody is served meanwhile, and only then: a transaction that
// joins a store may find a queue there.
func TestWaitingInATransaction(t *testing.T) {
	for _, long := range []bool{false, true} { // one call that keeps the turn for long, or many, one after another
		synctest.Test(t, func(t *testing.T) {
			var turn Turn
			ctx := context.Background()
			if err := turn.Hold(ctx); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				go func() {
					if err := turn.Hold(ctx); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(patience - 1)
					turn.Release()
				}()
			}
			synctest.Wait()
			joined := make(chan error)
			go func() {
				joined <- Call(func() error {
					if err := turn.Begin(ctx); err != nil {
						return err
					}
					turn.Release()
					return nil
				})
			}()
			if long {
				time.Sleep(2 * patience)
			}
			turn.Release()
			if err := <-joined; errors.Is(err, ErrNested) != long {
				t.Errorf("%v", err)
			}
			time.Sleep(time.Second)
		})
	}
}

// A transaction does not wait for itself where the turn was given to a call, however long that takes to begin.
func TestWaitingForACallInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Turn
		ctx := context.Background()
		if err := turn.Hold(ctx); err != nil {
			t.Fatal(err)
		}
		turn.Lock()
		call := turn.waiter() // which is not scheduled for long
		turn.queue = append(turn.queue, call)
		turn.Unlock()
		time.Sleep(2 * fairAfter)
		turn.Release()
		if !call.given {
			t.Fatal("the turn was not given to the one who waits")
		}
		joined := make(chan error)
		go func() { joined <- Call(func() error { return turn.Begin(ctx) }) }()
		time.Sleep(10 * patience)
		turn.leave(call)
		if err := <-joined; err != nil {
			t.Error(err)
		}
		turn.Release()
	})
}

// A transaction that comes to a store waits for the one before, which has given its database's turn back and not yet
// the store's, for as long as it takes.
func TestHoldingDoesNotWaitForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Turn
		ctx := context.Background()
		if err := turn.Hold(ctx); err != nil {
			t.Fatal(err)
		}
		joined := make(chan error)
		go func() { joined <- Call(func() error { return turn.Hold(ctx) }) }()
		time.Sleep(10 * patience)
		turn.Release()
		if err := <-joined; err != nil {
			t.Error(err)
		}
		turn.Release()
	})
}
