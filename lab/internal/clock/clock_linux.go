package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since some moment that is the same for every process.
func Now() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it cannot fail

	return time.Duration(ts.Nano())
}
