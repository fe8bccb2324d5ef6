//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// columns is the width of the terminal.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return defaultColumns
	}
	return int(size.Col)
}
