//go:build windows

package console

import (
	"os"

	"golang.org/x/sys/windows"
)

// columns is the width of the terminal f.
func columns(f *os.File) int {
	var info windows.ConsoleScreenBufferInfo
	if err := windows.GetConsoleScreenBufferInfo(windows.Handle(f.Fd()), &info); err != nil || info.Size.X <= 0 {
		return defaultColumns
	}
	return int(info.Window.Right-info.Window.Left) + 1
}
