//go:build unix

package db

import "syscall"

// allocated is what a file takes on the device; 0 if it is just being removed.
func allocated(name string) int64 {
	var st syscall.Stat_t
	if syscall.Stat(name, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}
