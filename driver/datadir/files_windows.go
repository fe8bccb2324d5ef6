//go:build windows

package datadir

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile takes a lock, exclusive or shared, that belongs to the open file and ends with the process.
func lockFile(f *os.File, shared bool) error {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if !shared {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}

// unlockFile gives up the lock.
func unlockFile(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}

// lockDir fails: Windows locks no directories, and renames none that is open.
func lockDir(*os.File) error   { return errors.ErrUnsupported }
func unlockDir(*os.File) error { return nil }

// SyncDir does nothing: Windows has no sync of a directory, and NTFS logs its entries.
func SyncDir(string) error { return nil }

func allocated(info fs.FileInfo) int64 { return info.Size() }

// chown does nothing: a directory gets its owner from the one above it.
func chown(string, fs.FileInfo) {}
