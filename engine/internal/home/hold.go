package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
)

// Hold keeps others from opening dir until release is called, and fails with ErrLocked if
// somebody has it open. It changes nothing: in a directory that was never open it holds nothing.
func Hold(dir string) (release func() error, err error) {
	lock, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, &holdfast.Error{Op: "lock", Path: dir, Cause: err}
	}
	if err := lockFile(lock); err != nil {
		lock.Close()
		e := &holdfast.Error{Op: "lock", Path: dir, Cause: err, Remedy: "the file system must support file locks"}
		if errors.Is(err, errLocked) {
			e.Class, e.Cause, e.Remedy = holdfast.ErrLocked, nil, "close it there first"
		}
		return nil, e
	}
	return func() error { return errors.Join(unlockFile(lock), lock.Close()) }, nil
}

// hidden is what the mark is called in a directory that must not be opened yet.
const hidden = markName + ".partial"

// Hide makes a directory that is being filled look foreign: nobody can open it until Show,
// whatever becomes of this process.
func Hide(dir string) error { return rename(dir, markName, hidden) }

// Show is the opposite of Hide.
func Show(dir string) error { return rename(dir, hidden, markName) }

func rename(dir, from, to string) error {
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		return err
	}
	return SyncDir(dir)
}
