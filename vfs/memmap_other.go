//go:build !unix

package vfs

import "errors"

// Like the operating system's files, those of a Mem cannot be mapped here.
func allocateRegion(int) ([]byte, error) { return nil, errors.ErrUnsupported }
func freeRegion([]byte) error            { return errors.ErrUnsupported }
func protectRegion([]byte, access) error { return errors.ErrUnsupported }
