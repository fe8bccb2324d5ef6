//go:build unix

package measure

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// CPUTime is what this process has used up to now, user and system.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return -1
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// MaxRSS is the most memory a process that has ended had resident, in bytes.
func MaxRSS(p *os.ProcessState) int64 {
	u, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return -1
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(u.Maxrss)
	}

	return int64(u.Maxrss) << 10
}
