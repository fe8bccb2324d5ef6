// Package txn is how databases and the stores in them take part in one transaction: whose turn it is, and what becomes
// of each store's share when the transaction has its place or has failed.
package txn

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/crowded"
)

// ErrNested: in the function of a transaction, another one was begun, or a store was written to without this one.
var ErrNested = errors.New("holdfast: inside the function of a transaction")

// Turn is the right to decide what is written next, to a database or a store. A call of a store has it for a moment,
// and with it the lock of what the store has in memory. A transaction keeps it while the caller's function runs, and
// takes the lock only for moments, so that others can look at that memory. Who waits does so no longer than the own
// context lasts. The zero Turn is free.
//
// Those who wait are served in order. One who comes when the turn is free takes it at once, though others wait: the
// first of them has been woken and does not run yet, and keeping the turn for it would leave it unused for as long as
// waking takes, once for each transaction. But one who has waited for fairAfter is given the turn when it is released,
// and nobody passes it by.
type Turn struct {
	mu    crowded.Mutex
	held  bool      // by a transaction, or by a call that was waiting
	call  bool      // by a call that was waiting; it has mu, too
	tx    bool      // by a transaction, which runs: it has not just been given the turn
	queue []*waiter // in order; if the turn is free, the first has been woken
	ended uint64    // how many turns have ended that others waited for
	spare []*waiter // that wait no more

	of      *Turn       // that of the database, where this one is a store's; nil if none is known
	running atomic.Bool // a transaction has the turn
}

// Of makes the turn one of a store in the database of another turn: whoever takes it in a function of that without a
// part in its transaction is told so. It is called before any other method.
func (t *Turn) Of(database *Turn) { t.of = database }

// waiter is one who waits for a turn.
type waiter struct {
	wake  chan struct{} // has room for one
	look  *time.Timer
	since time.Time
	given bool // the turn: it has left the queue
}

// waiter returns one that has just come. It is called with the lock.
func (t *Turn) waiter() *waiter {
	n := len(t.spare)
	if n == 0 {
		return &waiter{wake: make(chan struct{}, 1), look: time.NewTimer(patience), since: time.Now()}
	}
	w := t.spare[n-1]
	t.spare = t.spare[:n-1]
	w.look.Reset(patience)
	w.since, w.given = time.Now(), false
	return w
}

// free ends the waiting of one who is in no queue any more. It is called with the lock.
func (t *Turn) free(w *waiter) {
	w.look.Stop()
	select {
	case <-w.wake: // it was woken twice
	default:
	}
	if len(t.spare) < maxSpare {
		t.spare = append(t.spare, w)
	}
}

// maxSpare is how many waiters are kept to be used again.
const maxSpare = 64

// fairAfter is how long others may pass one who waits.
const fairAfter = time.Millisecond

// Lock locks what the store has in memory, for a moment, whoever's turn it is.
func (t *Turn) Lock() { t.mu.Lock() }

// Unlock ends what Lock began.
func (t *Turn) Unlock() { t.mu.Unlock() }

// Outside is ErrNested in the function of a transaction, while a transaction has the turn. What such a function does
// without its transaction would stay when that fails, or wait for its own end. While no transaction has the turn, this
// costs nothing.
func (t *Turn) Outside() error {
	if t.running.Load() && inside() {
		return nested()
	}
	return nil
}

// Plain is ErrNested for a call of a store, whose turn this is, in the function of a transaction of its database.
func (t *Turn) Plain() error {
	if t.of == nil {
		return nil
	}
	return t.of.Outside()
}

// Take returns when it is the call's turn, with the lock; Give ends both. The error is ctx's, or ErrNested.
func (t *Turn) Take(ctx context.Context) error {
	if err := t.Plain(); err != nil {
		return err
	}
	t.mu.Enter()
	if !t.held {
		return nil
	}
	if err := t.wait(ctx, true); err != nil {
		return err
	}
	t.call = true
	return nil
}

// Give ends what Take began.
func (t *Turn) Give() {
	// A call that came when the turn was free has only the lock, and nobody else has been told of a turn.
	if t.call {
		t.call = false
		t.next()
	}
	t.mu.Leave()
}

// Begin returns when it is the turn of a transaction that begins, of its database, without the lock; Release ends it.
// Errors are those of Take.
func (t *Turn) Begin(ctx context.Context) error { return t.hold(ctx, true) }

// Hold is Begin for a store that a transaction comes to in its database's turn. No other transaction of that runs, so
// it does not wait for itself: the one before may not have given the store's turn back yet. The error is ctx's.
func (t *Turn) Hold(ctx context.Context) error { return t.hold(ctx, false) }

func (t *Turn) hold(ctx context.Context, check bool) error {
	t.mu.Lock()
	if t.held {
		if err := t.wait(ctx, check); err != nil {
			return err
		}
	}
	t.held, t.tx = true, true
	t.running.Store(true)
	t.mu.Unlock()
	return nil
}

// Release ends what Begin or Hold began.
func (t *Turn) Release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tx = false
	t.running.Store(false)
	t.next()
}

// next ends the holder's turn. It is called with the lock.
func (t *Turn) next() {
	t.ended++
	if len(t.queue) > 0 && time.Since(t.queue[0].since) >= fairAfter {
		t.queue[0].given = true
		t.queue[0].signal()
		t.queue = t.queue[1:]
		return
	}

	// The turn stays free until somebody takes it: the one that is woken here, or one that comes first.
	t.held = false
	t.wakeFirst()
}

// wakeFirst wakes the first of those who wait for a turn that is free.
func (t *Turn) wakeFirst() {
	if len(t.queue) > 0 {
		t.queue[0].signal()
	} else {
		t.queue = nil
	}
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it has not yet seen the last one
	}
}

// claim reports whether a waiter that was woken has the turn. If another one was faster, it goes on waiting. It is
// called with the lock.
func (t *Turn) claim(w *waiter) bool {
	if !w.given && !t.held { // it is the first
		t.held, w.given, t.queue = true, true, t.queue[1:]
	}
	return w.given
}

// patience is how long the one that waits does not look whether it waits for itself: mostly it does not, and looking
// costs more than the usual wait. It does not as long as no transaction has the turn, or turns end meanwhile.
const patience = 5 * time.Millisecond

// wait is called with the lock, and gives it up meanwhile. When it returns nil, the caller has the turn, and the lock
// again. check says that the caller may wait for itself.
func (t *Turn) wait(ctx context.Context, check bool) error {
	w := t.waiter()
	t.queue = append(t.queue, w)
	ended := t.ended
	t.mu.Unlock()

	for {
		select {
		case <-w.wake:
			t.mu.Lock()
			if t.claim(w) {
				t.free(w)
				return nil
			}
			t.mu.Unlock()
		case <-ctx.Done():
			t.leave(w)
			return ctx.Err()
		case <-w.look.C:
			if !check || !inside() {
				continue
			}
			t.mu.Lock()
			others := t.ended != ended || !t.tx
			ended = t.ended
			t.mu.Unlock()
			if others {
				w.look.Reset(patience)
			} else {
				t.leave(w)
				return nested()
			}
		}
	}
}

func nested() error {
	return &holdfast.Error{Op: "transaction", Class: ErrNested,
		Detail: "its function has made this call, which is no part of it",
		Remedy: "use the transaction: store.In(tx); or UpdateAll for several databases"}
}

// leave gives up waiting, and the turn if it has just come.
func (t *Turn) leave(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.free(w)

	// The turn may have come in the moment when ctx ended. It is passed on, or everybody behind would wait for ever.
	if w.given {
		t.next()
		return
	}
	t.queue = slices.DeleteFunc(t.queue, func(other *waiter) bool { return other == w })

	// The signal may have been meant for this waiter, which leaves. The next one has to hear of the free turn.
	if !t.held {
		t.wakeFirst()
	}
}

// Call calls the function of a transaction. What it calls can be told by the stack.
//
//go:noinline
func Call(f func() error) error { return f() }

// inside reports whether the goroutine is inside Call.
func inside() bool {
	var callers [256]uintptr
	for skip, n := 1, len(callers); n == len(callers); skip += n {
		n = runtime.Callers(skip, callers[:])
		for _, pc := range callers[:n] {
			if f := runtime.FuncForPC(pc - 1); f != nil && f.Entry() == called { // a return address is behind its call
				return true
			}
		}
	}
	return false
}

var called = reflect.ValueOf(Call).Pointer()
