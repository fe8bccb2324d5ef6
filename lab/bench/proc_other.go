//go:build !linux

package bench

import (
	"os"
)

// fdatasync asks the device to keep what was written to f, by the strongest call that the
// system has.
func fdatasync(f *os.File) error { return f.Sync() }

// peakRSS is not known here.
func peakRSS() int64 { return -1 }

// rss is not known here.
func rss() int64 { return -1 }
