//go:build !unix

package rundir

import "os"

// claim does nothing where there are no locks that end with a process.
func claim(string) (*os.File, error) { return nil, nil }

// CleanUp does nothing, see claim.
func CleanUp(string, Options) []string { return nil }
