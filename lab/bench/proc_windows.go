//go:build windows

package bench

import (
	"os"
	"syscall"
	"time"
)

// cpuTime is what this process has used up to now, user and system.
func cpuTime() time.Duration {
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

// maxRSS is not told of a process that has ended.
func maxRSS(*os.ProcessState) int64 { return -1 }
