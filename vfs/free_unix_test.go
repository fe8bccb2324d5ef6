//go:build linux || darwin

package vfs

import (
	"math"
	"testing"
)

// TestFreeOfAll: less than nothing is nothing, and what is said by file systems that do not know is no bound.
func TestFreeOfAll(t *testing.T) {
	const minus = ^uint64(0) // -1
	for _, c := range []struct {
		blocks, available uint64
		want              int64
	}{
		{100, 7, 7 << 12}, {100, 0, 0}, {100, 100, 100 << 12}, {100, minus, 0}, {100, minus - 98, 0},
		{0, 0, math.MaxInt64}, {0, minus, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
	} {
		if got := free(c.blocks, c.available, 4096); got != c.want {
			t.Errorf("%d of %d blocks: %d bytes, want %d", int64(c.available), c.blocks, got, c.want)
		}
	}
}
