//go:build windows

package home

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

var errLocked = errors.New("locked")

// lockFile takes an exclusive lock that belongs to the open file and goes with the
// process.
func lockFile(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, new(windows.Overlapped))
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}

// unlockFile gives up the lock.
func unlockFile(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}

// SyncDir does nothing: Windows has no sync of a directory, and NTFS logs its entries.
func SyncDir(string) error { return nil }

func allocated(info fs.FileInfo) int64 { return info.Size() }
