//go:build !unix

package tree

import "testing"

// unreadable returns nothing: files are not mapped here.
func unreadable(*testing.T) func(off int64, n int) []byte {
	return func(int64, int) []byte { return nil }
}
