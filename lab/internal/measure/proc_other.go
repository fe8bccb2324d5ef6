//go:build !linux

package measure

import (
	"os"
	"time"
)

// Fdatasync asks the device to keep what was written to f, by the strongest call that the
// system has.
func Fdatasync(f *os.File) error { return f.Sync() }

// CPUTimeOf is not known here.
func CPUTimeOf(int) time.Duration { return -1 }

// PeakRSS is not known here.
func PeakRSS(int) int64 { return -1 }

// Memory is not known here.
func Memory(int) (resident, own int64) { return -1, -1 }
