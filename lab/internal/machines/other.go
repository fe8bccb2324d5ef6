//go:build !linux

package machines

import "context"

// Lab is three machines. There is none on this system.
type Lab struct{}

// Check returns ErrUnavailable: labs are made on Linux only.
func Check(Options) error { return failure("machines", "it needs Linux", nil) }

// New returns ErrUnavailable.
func New(context.Context, Options) (*Lab, error) { return nil, Check(Options{}) }

// CleanUp finds nothing.
func CleanUp(string) {}

// Close does nothing.
func (*Lab) Close() error { return nil }
