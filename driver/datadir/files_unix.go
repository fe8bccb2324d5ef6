//go:build unix

package datadir

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFile takes a lock, exclusive or shared, that belongs to the open file: it also keeps this process from opening
// the directory twice, and ends with the process.
func lockFile(f *os.File, shared bool) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}

	return err
}

// unlockFile gives up the lock. If the file were only closed, a child process that is just being started could keep the
// lock for a moment: it has a copy of the file until it runs its program.
func unlockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// lockDir and unlockDir are lockFile and unlockFile for a directory. Some file systems cannot lock one.
func lockDir(dir *os.File) error   { return lockFile(dir, false) }
func unlockDir(dir *os.File) error { return unlockFile(dir) }

// SyncDir makes the entries of dir durable.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}

	return errors.Join(f.Sync(), f.Close())
}

// allocated is the space a file takes on the device: less than its length where it has
// holes.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}

	return info.Size()
}

// chown gives dir the owner and group of another file, as far as this process may.
func chown(dir string, other fs.FileInfo) {
	if st, ok := other.Sys().(*syscall.Stat_t); ok {
		if os.Chown(dir, int(st.Uid), int(st.Gid)) != nil {
			_ = os.Chown(dir, -1, int(st.Gid)) // a user other than root may give it to a group of his own
		}
	}
}
