//go:build !linux

package bench

import (
	"os"
	"syscall"
)

// fdatasync asks the device to keep what was written to f, by the strongest call that the
// system has.
func fdatasync(f *os.File) error { return f.Sync() }

// peakRSS is not known here.
func peakRSS() int64 { return -1 }

// rss is not known here.
func rss() int64 { return -1 }

// childAttributes are the system's defaults: a child notices the end of its parent by the end of its
// input.
func childAttributes() *syscall.SysProcAttr { return nil }
