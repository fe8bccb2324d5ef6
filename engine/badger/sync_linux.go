package badger

import (
	"io"
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
		// The runtime's signals may interrupt it before it has done anything.
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

// nextData returns where data begins in f, at at or behind it, or io.EOF.
func nextData(f *os.File, at int64) (int64, error) {
	next, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	if err == unix.ENXIO {
		return at, io.EOF
	}

	return next, os.NewSyscallError("lseek", err)
}
