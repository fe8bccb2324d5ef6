//go:build unix && !linux

package badger

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const (
	canSync = true
	syncHow = "msync, fsync"
)

// syncFile brings a file to the device, and with it what was written through any mapping of
// it. Outside Linux a sync of the file alone need not see the pages of a mapping, but msync
// of any mapping does; it need not reach the device, which the sync of the file does.
func syncFile(f *os.File) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}

	// A mapping of no bytes is an error.
	if st.Size() > 0 {
		m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return os.NewSyscallError("mmap", err)
		}
		err = unix.Msync(m, unix.MS_SYNC)
		if err := errors.Join(os.NewSyscallError("msync", err), unix.Munmap(m)); err != nil {
			return err
		}
	}
	return f.Sync()
}
