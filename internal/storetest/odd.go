package storetest

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// Torn returns an engine in memory that says that its batches are not atomic.
func Torn() holdfast.Engine { return &torn{mem.New()} }

type torn struct{ holdfast.Engine }

func (t *torn) Capabilities() holdfast.Capabilities {
	c := t.Engine.Capabilities()
	c.AtomicBatches = false

	return c
}

// Nothing returns an engine that takes every batch and keeps none of it, to see what a store itself allocates.
func Nothing() holdfast.Engine { return &nothing{mem.New()} }

type nothing struct{ holdfast.Engine }

func (*nothing) Apply(*holdfast.Batch, holdfast.Level) (holdfast.Receipt, error) {
	return holdfast.Receipt{}, nil
}
