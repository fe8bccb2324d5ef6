//go:build unix && !linux

package datadir

import (
	"errors"

	"golang.org/x/sys/unix"
)

// askLock asks for locks of other processes.
const askLock = unix.F_GETLK

// listDescriptors is an error: not every system has a list.
func listDescriptors() ([]string, error) { return nil, errors.ErrUnsupported }
