package storetest

import (
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/groupcommit"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/engine/logtree"
)

// late is logtree made to show a batch only when it is durable, as engines over libraries with transactions do: the
// batches that wait are one commit.
type late struct {
	driver.Engine[holdfast.Snapshot]
	below     holdfast.Engine
	committer *groupcommit.Committer
	window    *losswindow.Window
}

func describeLate() holdfast.Capabilities { return asLate(logtree.Describe()) }

func asLate(c holdfast.Capabilities) holdfast.Capabilities {
	c.Engine, c.ShownAtApply = "late", false
	return c
}

func openLate(dir string, o holdfast.Options) (holdfast.Engine, error) {
	below, err := logtree.Open(dir, o)
	if err != nil {
		return nil, err
	}
	const maxGroupSize = 1 << 20
	e := &late{below: below}
	e.committer = groupcommit.New("late", maxGroupSize, func(b *holdfast.Batch, level holdfast.Level) error {
		return holdfast.Commit(below, b, level)
	})
	e.committer.OnPoison(e.Life.Poison)
	go func() { // until it is closed: what fails in the background poisons it
		if <-below.Done(); errors.Is(below.Err(), holdfast.ErrPoisoned) {
			_ = e.committer.Fail(below.Err())
		}
	}()
	e.window = losswindow.New(o.SyncEvery, e.Settle)
	e.Init(e, asLate(below.Capabilities()), dir)

	return e, nil
}

// View implements [driver.Core].
func (e *late) View(driver.Op) (holdfast.Snapshot, error) { return e.below.Snapshot() }

// Read implements [driver.Core].
func (e *late) Read(v holdfast.Snapshot, dst, key []byte) ([]byte, error) { return v.Get(dst, key) }

// Walk implements [driver.Core].
func (e *late) Walk(h driver.Hold[holdfast.Snapshot], r holdfast.Range) (holdfast.Iterator, error) {
	return &lateIterator{Iterator: h.View.Scan(r), hold: h}, nil
}

// Drop implements [driver.Core].
func (e *late) Drop(v holdfast.Snapshot) error { return v.Close() }

// Write implements [driver.Core].
func (e *late) Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	r, err := e.committer.Apply(b, level)
	if err == nil {
		e.window.Dirty()
	}

	return r, err
}

// Settle implements [driver.Core].
func (e *late) Settle() error { return e.committer.Sync() }

// Measure implements [driver.Core].
func (e *late) Measure(m *holdfast.Metrics) { e.committer.Fill(m) }

// Release implements [driver.Core].
func (e *late) Release(settled error) error {
	e.window.Stop()
	_ = e.committer.Close() // its poison is in settled

	return errors.Join(settled, e.below.Close())
}

type lateIterator struct {
	holdfast.Iterator
	hold   driver.Hold[holdfast.Snapshot]
	closed bool
}

func (it *lateIterator) Close() error {
	if it.closed {
		return nil
	}
	it.closed = true
	err := it.Iterator.Close()
	it.hold.End()

	return err
}
