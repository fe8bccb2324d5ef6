//go:build unix

package console

import (
	"os"

	"golang.org/x/sys/unix"
)

// columns is the width of the terminal f.
func columns(f *os.File) int {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return defaultColumns
	}

	return int(size.Col)
}
