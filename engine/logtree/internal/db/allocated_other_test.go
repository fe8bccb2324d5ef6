//go:build !unix

package db

import (
	"os"
	"time"
)

func allocated(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

// cpuTime is what the process has taken of processors; 0: it is not known here.
func cpuTime() time.Duration { return 0 }
