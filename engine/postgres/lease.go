package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
)

const (
	// takeOver is how long a space must not have moved before it is taken from a holder that may still live, by the
	// clock of the process that takes it.
	takeOver = 3 * time.Second
	// serves is for how long the holder answers reads after the last sign of its life that the server had, by the clock
	// of the holder. No clocks are compared: both measure how much time passes, and may differ by a third in that.
	serves = 2 * time.Second
	// beat is how long the holder does nothing before it gives a sign of life.
	beat = time.Second
)

// lease says for how long reads may be answered. The epoch keeps a holder that has lost its space from writing. It does
// not keep it from reading an old state, as on a server that is cut off from the others: the lease does.
type lease struct {
	began time.Time
	until atomic.Int64 // since began
}

// extend is called when a sign of life has been given that was begun at from.
func (l *lease) extend(from time.Time) {
	if until := int64(from.Add(serves).Sub(l.began)); until > l.until.Load() {
		l.until.Store(until)
	}
}

func (l *lease) holds() bool { return int64(time.Since(l.began)) < l.until.Load() }

// idle is for how long no sign of life has been given.
func (l *lease) idle() time.Duration {
	return time.Since(l.began) + serves - time.Duration(l.until.Load())
}

// beats gives a sign of life whenever there were no commits for a while, until the engine ends.
func (e *engine) beats(ctx context.Context) {
	tick := time.NewTicker(beat / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.Done():
			return
		case <-tick.C:
		}
		if e.lease.idle() >= beat {
			_ = e.Settle() // the committer keeps the error
		}
	}
}

// Confirm returns nil as soon as it is known that what was read before the call, also of what a store keeps in memory,
// was so when it was read: the lease held all the while. Otherwise it is the error that a read of the engine has.
func (e *engine) Confirm() error {
	return e.fail("confirm", e.fresh(func(context.Context, *server) error { return nil }))
}

// fresh calls read until it is known that its answer is not of a state that another process may have changed. While
// another server takes over it waits, for as long as commits do, and for a large commit or value as long as it moves.
func (e *engine) fresh(read func(context.Context, *server) error) error {
	until := time.Now().Add(e.patience)
	for {
		server := e.server.Load()
		err := read(server.ctx, server)
		held := e.lease.holds()
		if held && server == e.server.Load() && !broken(err) {
			return err
		}

		// Another process may have it, or only the connection was lost.
		if poison := e.Err(); poison != nil {
			return poison
		}

		// A commit that is under way will extend the lease. While the lease holds, the read waits for its own connection.
		detail := "the server has not confirmed for too long that the space is this process's"
		late := time.Now().After(until)
		if held {
			detail, late = "the server does not answer readers", late && broken(err)
		} else {
			late = late && e.writing.idle() > e.patience
		}
		if late {
			return &holdfast.Error{Class: holdfast.ErrUnavailable, Cause: err, Detail: detail}
		}
		select {
		case <-e.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}
