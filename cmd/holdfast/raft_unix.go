//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// chown gives dir the owner and group of another file, as far as this process may.
func chown(dir string, other fs.FileInfo) {
	if st, ok := other.Sys().(*syscall.Stat_t); ok {
		if os.Chown(dir, int(st.Uid), int(st.Gid)) != nil {
			_ = os.Chown(dir, -1, int(st.Gid)) // who is not root may give it to a group of his own
		}
	}
}
