package txn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Who waits inside a transaction waits for itself if nobody is served meanwhile, and only then: a transaction that joins
// a store may find a queue there.
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
					if err := turn.Hold(ctx); err != nil {
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

// A transaction does not wait for itself where it waits for a call, however long that takes to begin.
func TestWaitingForACallInATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turn Turn
		ctx := context.Background()
		if err := turn.Hold(ctx); err != nil {
			t.Fatal(err)
		}
		mine := make(chan struct{}) // of a call that is handed the turn, and not scheduled for long
		turn.Lock()
		turn.queue = append(turn.queue, mine)
		turn.Unlock()
		turn.Release()
		<-mine
		joined := make(chan error)
		go func() { joined <- Call(func() error { return turn.Hold(ctx) }) }()
		time.Sleep(10 * patience)
		turn.leave(mine)
		if err := <-joined; err != nil {
			t.Error(err)
		}
		turn.Release()
	})
}
