package badger

import (
	"os"

	"golang.org/x/sys/unix"
)

const (
	canSync = true
	syncHow = "fdatasync"
)

// syncFile brings a file to the device, and with it what was written through any mapping of
// it: a mapping and its file share their pages. fdatasync leaves out the modification time,
// which would cost a journal commit, but not the file's size or blocks.
func syncFile(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// freeSpace is what an unprivileged process may still write in dir.
func freeSpace(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}
