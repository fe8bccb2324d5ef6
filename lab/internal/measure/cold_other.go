//go:build !linux

package measure

import "errors"

// CanDropPages tells whether [DropPages] works on this system.
const CanDropPages = false

// DropPages is for Linux only.
func DropPages(string) error { return errors.ErrUnsupported }

// DeviceBytes is not known here.
func DeviceBytes(int) (read, written int64) { return -1, -1 }
