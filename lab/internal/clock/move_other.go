//go:build !linux || !amd64

package clock

import (
	"time"

	"github.com/holdfastdb/holdfast"
)

// Move returns ErrUnavailable, unless the clock is to be right.
func Move(ahead time.Duration, slow int) error {
	if ahead == 0 && slow == 1 {
		return nil
	}

	return &holdfast.Error{Op: "move clock", Class: holdfast.ErrUnavailable,
		Detail: "the clock of one process can be moved on Linux and amd64 alone"}
}
