package badger

import (
	"os"

	"golang.org/x/sys/windows"
)

const (
	// canSync is false: FlushFileBuffers does not see what was written through a mapping,
	// FlushViewOfFile wants the address of the mapping, which is the library's, and the
	// library itself does neither.
	canSync = false
	syncHow = "nothing"
)

// syncFile does what the system offers for a file: everything but the mapped pages.
func syncFile(f *os.File) error { return f.Sync() }

// freeSpace is what this process's user may still write in dir.
func freeSpace(dir string) (uint64, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, os.NewSyscallError("GetDiskFreeSpaceEx", err)
	}
	return free, nil
}
