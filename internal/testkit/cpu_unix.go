//go:build unix

package testkit

import (
	"syscall"
	"testing"
	"time"
)

// CPU begins to measure what an operation takes of the processors, whatever else runs on the machine, and returns what
// reports it, as cpu-ns/op, once the operations are done.
func CPU(b *testing.B) (report func(ops int)) {
	b.Helper()
	begun := cpuTime(b)

	return func(ops int) {
		b.Helper()
		b.ReportMetric(float64(cpuTime(b)-begun)/float64(max(ops, 1)), "cpu-ns/op")
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}

	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
