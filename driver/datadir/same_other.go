//go:build !linux

package datadir

import "os"

// quick is never sure here.
type quick struct{}

func newQuick(string, *os.File) quick { return quick{} }

func (*quick) same() bool { return false }
