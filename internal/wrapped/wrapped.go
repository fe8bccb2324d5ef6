// Package wrapped is for what stands before an engine, and hands on all that it does not do itself.
package wrapped

import (
	"context"

	"github.com/holdfastdb/holdfast"
)

// Engine hands on to the engine below what engines may have besides the contract. It is embedded.
type Engine struct{ holdfast.Engine }

// Compact implements [holdfast.Compactor], if the engine below does.
func (e Engine) Compact(ctx context.Context, r holdfast.Range) error {
	return holdfast.Compact(ctx, e.Engine, r)
}

// Verify implements [holdfast.Verifier], if the engine below does.
func (e Engine) Verify(ctx context.Context) ([]error, error) { return holdfast.Verify(ctx, e.Engine) }

// Checkpoint implements [holdfast.Checkpointer], if the engine below does.
func (e Engine) Checkpoint(ctx context.Context, dir string) error {
	return holdfast.Checkpoint(ctx, e.Engine, dir)
}

// Confirm says whether the data is still this process's, if the engine below is one whose data another process can take
// over; nil if it is, or nobody can. It waits while that is not known. What was read before, also of what a store keeps
// in memory, was so then.
func (e Engine) Confirm() error {
	if below, ok := e.Engine.(interface{ Confirm() error }); ok {
		return below.Confirm()
	}

	return nil
}

// Below is the engine below.
func (e Engine) Below() holdfast.Engine { return e.Engine }

// StoreOpened tells the engine below of a store that is opened in this one, until closed is called.
func (e Engine) StoreOpened(what string) (closed func()) {
	if below, ok := e.Engine.(interface {
		StoreOpened(what string) (closed func())
	}); ok {
		return below.StoreOpened(what)
	}

	return func() {}
}
