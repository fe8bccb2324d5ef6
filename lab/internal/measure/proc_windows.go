//go:build windows

package measure

import (
	"os"
	"syscall"
	"time"
)

// CPUTime is what this process has used up to now, user and system.
func CPUTime() time.Duration {
	self, err := syscall.GetCurrentProcess()
	if err != nil {
		return -1
	}
	var created, ended, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(self, &created, &ended, &kernel, &user); err != nil {
		return -1
	}
	ticks := func(f syscall.Filetime) time.Duration {
		return time.Duration(int64(f.HighDateTime)<<32+int64(f.LowDateTime)) * 100
	}
	return ticks(kernel) + ticks(user)
}

// MaxRSS is not told of a process that has ended.
func MaxRSS(*os.ProcessState) int64 { return -1 }
