package pebble

import (
	"os"

	"golang.org/x/sys/unix"
)

// trim gives back the space that was reserved behind the first size bytes of a file.
func trim(fd uintptr, size int64) error {
	return os.NewSyscallError("ftruncate", unix.Ftruncate(int(fd), size))
}
