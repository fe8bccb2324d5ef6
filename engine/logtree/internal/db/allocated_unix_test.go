//go:build unix

package db

import (
	"syscall"
	"time"
)

// allocated is what a file takes on the device; 0 if it is just being removed.
func allocated(name string) int64 {
	var st syscall.Stat_t
	if syscall.Stat(name, &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// cpuTime is what the process has taken of processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
