//go:build unix

package tree

import (
	"testing"

	"golang.org/x/sys/unix"
)

// unreadable returns memory that faults when it is touched.
func unreadable(t *testing.T) func(off int64, n int) []byte {
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	return func(_ int64, n int) []byte { return b[:n] }
}
