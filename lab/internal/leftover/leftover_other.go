//go:build !unix

package leftover

import "os"

// Claim and Sweep do nothing where there are no locks that end with a process.
func Claim(string) (*os.File, error) { return nil, nil }

// Sweep does nothing, see [Claim].
func Sweep(_, _ string, _ Options) []string { return nil }
