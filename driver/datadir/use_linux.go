package datadir

import (
	"os"

	"golang.org/x/sys/unix"
)

// askLock asks for locks of other owners than the open file, so also for those of this process.
const askLock = unix.F_OFD_GETLK

// listDescriptors lists the numbers of this process's open files.
func listDescriptors() ([]string, error) {
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	defer d.Close()

	return d.Readdirnames(-1)
}
