//go:build !linux

package measure

import "errors"

// RAM is a limit of memory, which is there on Linux only.
type RAM struct{}

// LimitRAM fails.
func LimitRAM(int64) (*RAM, error) { return nil, errors.ErrUnsupported }

// Add fails.
func (*RAM) Add(int) error { return errors.ErrUnsupported }

// Close does nothing.
func (*RAM) Close() error { return nil }
