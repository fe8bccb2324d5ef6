//go:build linux || darwin

package vfs

import (
	"math"

	"golang.org/x/sys/unix"
)

// Free implements [FS] with statfs. Some network and user-space file systems tell nothing.
func (osFS) Free(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Blocks == 0 || st.Bavail > math.MaxInt64/uint64(st.Bsize) {
		return math.MaxInt64
	}

	return int64(st.Bavail * uint64(st.Bsize))
}
