//go:build unix

package format

import (
	"syscall"
	"testing"
)

// TestIntoCache: memory that nobody may touch is no fault, and none at all is neither.
func TestIntoCache(t *testing.T) {
	b, err := syscall.Mmap(-1, 0, 3*syscall.Getpagesize(), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	err = Guarded(func() {
		IntoCache(nil)
		IntoCache(b[:0])
		for i := range 200 {
			IntoCache(b[i : len(b)-i])
			IntoCache(b[i : i+1])
		}
		if err := syscall.Munmap(b); err != nil {
			t.Error(err)
		}
		IntoCache(b)
	})
	if err != nil {
		t.Error(err)
	}
}
