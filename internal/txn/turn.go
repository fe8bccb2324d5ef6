// Package txn is how databases and the stores in them take part in one transaction: whose turn it is, and what becomes
// of each store's share when the transaction has its place or has failed.
package txn

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
)

// ErrNested: a transaction was begun, or a store was written to, inside the function of another transaction that has
// what it needs, and would have waited for itself.
var ErrNested = errors.New("holdfast: waits for its own transaction")

// Turn is the right to decide what is written next, to a database or a store. A call of a store has it for a moment,
// and with it the lock of what the store has in memory. A transaction keeps it while the caller's function runs, and
// takes the lock only for moments, so that others can look at that memory. Who waits is served in order, and no longer
// than the own context lasts. The zero Turn is free.
type Turn struct {
	mu    sync.Mutex
	held  bool            // by a transaction, or by a call that was waiting
	call  bool            // by a call that was waiting; it has mu, too
	tx    bool            // by a transaction, which knows it
	queue []chan struct{} // of those who wait; each is closed when its turn has come
	hands uint64          // how often it was handed over
}

// Lock locks what the store has in memory, for a moment, whoever's turn it is.
func (t *Turn) Lock() { t.mu.Lock() }

// Unlock ends what Lock began.
func (t *Turn) Unlock() { t.mu.Unlock() }

// Take returns when it is the call's turn, with the lock; Give ends both. The error is ctx's, or ErrNested.
func (t *Turn) Take(ctx context.Context) error {
	t.mu.Lock()
	if !t.held {
		return nil
	}
	if err := t.wait(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	t.call = true
	return nil
}

// Give ends what Take began.
func (t *Turn) Give() {
	if t.call {
		t.call = false
		t.next()
	}
	t.mu.Unlock()
}

// Hold returns when it is the transaction's turn, without the lock; Release ends it. Errors are those of Take.
func (t *Turn) Hold(ctx context.Context) error {
	t.mu.Lock()
	if t.held {
		if err := t.wait(ctx); err != nil {
			return err
		}
		t.mu.Lock()
	}
	t.held, t.tx = true, true
	t.mu.Unlock()
	return nil
}

// Release ends what Hold began.
func (t *Turn) Release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tx = false
	t.next()
}

// next hands the turn to the one that has waited the longest. It is called with the lock.
func (t *Turn) next() {
	if len(t.queue) == 0 {
		t.held, t.queue = false, nil
		return
	}
	close(t.queue[0])
	t.queue = t.queue[1:]
	t.hands++
}

// patience is how long the one that waits does not look whether it waits for itself: mostly it does not, and looking
// costs more than the usual wait. While calls have the turn, and as long as others are served, it does not.
const patience = 5 * time.Millisecond

// wait is called with the lock, and gives it up. When it returns nil, the turn has been handed over.
func (t *Turn) wait(ctx context.Context) error {
	mine := make(chan struct{})
	t.queue = append(t.queue, mine)
	hands := t.hands
	t.mu.Unlock()

	look := time.NewTimer(patience)
	defer look.Stop()
	for {
		select {
		case <-mine:
			return nil
		case <-ctx.Done():
			t.leave(mine)
			return ctx.Err()
		case <-look.C:
			if !inside() {
				continue
			}
			t.mu.Lock()
			other := !t.tx || t.hands != hands
			hands = t.hands
			t.mu.Unlock()
			if other {
				look.Reset(patience)
			} else {
				t.leave(mine)
				return &holdfast.Error{Op: "transaction", Class: ErrNested,
					Detail: "it is the turn of a transaction whose function has made this call",
					Remedy: "use the transaction: store.In(tx); or UpdateAll for several databases"}
			}
		}
	}
}

// leave gives up waiting.
func (t *Turn) leave(mine chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, mine); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
	} else { // it has just come
		t.next()
	}
}

// Call calls the function of a transaction. What it calls can be told by the stack.
//
//go:noinline
func Call(f func() error) error { return f() }

// inside reports whether the goroutine is inside Call.
func inside() bool {
	callers := make([]uintptr, 256)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for {
		frame, more := frames.Next()
		if frame.Function == "github.com/holdfastdb/holdfast/internal/txn.Call" {
			return true
		}
		if !more {
			return false
		}
	}
}
