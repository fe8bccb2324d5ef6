//go:build !linux

package kinds

import (
	"context"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

// machineSession returns ErrUnavailable.
func (r *Runner) machineSession(context.Context, Row, uint64, int, time.Duration, Tally) error {
	return machines.Check(machines.Options{})
}

// OpenOnMachine returns ErrUnavailable.
func OpenOnMachine(string, string, holdfast.Options) (holdfast.Engine, error) {
	return nil, machines.Check(machines.Options{})
}

// losses is none.
func (c Row) losses() []struct{} { return nil }
