//go:build unix

package db

import "syscall"

// mostFiles is how many files are kept open for reading: no more than half of what the process may have.
func mostFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return usualFiles
	}

	return int(min(uint64(limit.Cur)/2, usualFiles))
}
