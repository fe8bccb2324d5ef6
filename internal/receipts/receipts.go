// Package receipts waits for the writes of a store that names a level for each of them.
//
// A receipt brings all that was applied before it to its own level, and no further: after a write at Power that is
// still on its way, the receipt of one at Process is in before the device has the first. Whoever shows the second must
// wait for both.
package receipts

import (
	"context"
	"slices"

	"github.com/holdfastdb/holdfast"
)

// Tail holds, of all that a store has applied, the receipts that have to be waited for: the last at each level, but for
// those that one at a stronger level covers. The zero Tail is settled. A copy waits for what had been added by then. It
// is not for several goroutines at once; copies are.
type Tail struct {
	last  [holdfast.Quorum]holdfast.Receipt
	there [holdfast.Quorum]bool
}

// Add adds the receipt of what was applied last, at a valid level.
func (t *Tail) Add(r holdfast.Receipt, level holdfast.Level) {
	for i, there := range t.there[:level-1] {
		if there {
			t.last[i], t.there[i] = holdfast.Receipt{}, false
		}
	}
	t.last[level-1], t.there[level-1] = r, true
}

// Wait returns nil once all that was added is visible and survives what it named, as [holdfast.Receipt.Wait] does.
func (t Tail) Wait() error {
	for i := len(t.last) - 1; i >= 0; i-- {
		if err := t.last[i].Wait(); err != nil {
			return err
		}
	}

	return nil
}

// Raise lets Wait return when all that was added survives what level names: that of something may be weaker. Then it
// applies a barrier to the engine, after which nobody else has applied what is to be added.
func (t *Tail) Raise(e holdfast.Engine, level holdfast.Level) error {
	if !slices.Contains(t.there[:level-1], true) {
		return nil
	}
	r, err := e.Apply(new(holdfast.Batch), level)
	if err == nil {
		t.Add(r, level)
	}
	return err
}

// WaitFor returns what wait returns, or ctx's error when that ends first: that takes nothing back, and wait goes on.
func WaitFor(ctx context.Context, wait func() error) error {
	if ctx.Done() == nil {
		return wait()
	}
	done := make(chan error, 1)
	go func() { done <- wait() }() // it ends when the engine has settled, at the latest by its Close
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
