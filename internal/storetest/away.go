package storetest

import (
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// Away is an engine whose server goes away in the middle of every other scan, once it is On.
type Away struct {
	holdfast.Engine
	After int // entries
	On    atomic.Bool
	scans atomic.Int64
	Lost  atomic.Int64 // scans that were cut off
}

// Scan implements [holdfast.Engine].
func (a *Away) Scan(r holdfast.Range) holdfast.Iterator {
	it := a.Engine.Scan(r)
	if !a.On.Load() || a.scans.Add(1)%2 == 0 {
		return it
	}

	return &away{Iterator: it, of: a, left: a.After}
}

type away struct {
	holdfast.Iterator
	of   *Away
	left int
	err  error
}

func (it *away) Next() bool {
	if it.err != nil || !it.Iterator.Next() {
		return false
	}
	if it.left--; it.left < 0 {
		it.of.Lost.Add(1)
		it.err = &holdfast.Error{Op: "scan", Engine: "away", Class: holdfast.ErrUnavailable}

		return false
	}

	return true
}

func (it *away) Err() error {
	if it.err != nil {
		return it.err
	}

	return it.Iterator.Err()
}
