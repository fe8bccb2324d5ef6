//go:build linux || darwin

package vfs

import (
	"math"

	"golang.org/x/sys/unix"
)

// Free implements [FS] with statfs. Some network and user-space file systems tell nothing.
func (osFS) Free(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return math.MaxInt64
	}

	return free(st.Blocks, st.Bavail, uint64(st.Bsize))
}

// free is how many bytes that many available blocks are. A full file system may have fewer than none: XFS does when it
// has taken from what it keeps for itself.
func free(blocks, available, size uint64) int64 {
	if short := -available; short > 0 && short <= blocks {
		return 0
	}
	if blocks == 0 || available > math.MaxInt64/size {
		return math.MaxInt64
	}

	return int64(available * size)
}
