//go:build !unix

package rundir

import "os"

// claim does nothing where there are no locks that end with a process.
func claim(string) (*os.File, error) { return nil, nil }

// Sweep does nothing, see claim.
func Sweep(string, Options) []string { return nil }
