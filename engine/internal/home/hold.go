package home

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
)

// Hold keeps others from opening dir for writing until release is called, and fails with ErrLocked if somebody has.
// It changes nothing, and many can hold a directory, and have it open for reading, at once. In one that was never
// open it holds nothing.
func Hold(dir string) (release func() error, err error) { return hold(dir, true) }

func hold(dir string, shared bool) (release func() error, err error) {
	lock, err := openLock(dir)
	if err != nil {
		return nil, &holdfast.Error{Op: "lock", Path: dir, Cause: err}
	}
	if lock == nil {
		return func() error { return nil }, nil
	}
	if err := lockFile(lock, shared); err != nil {
		lock.Close()
		e := &holdfast.Error{Op: "lock", Path: dir, Cause: err, Remedy: "the file system must support file locks"}
		if errors.Is(err, errLocked) {
			e.Class, e.Cause, e.Remedy = holdfast.ErrLocked, nil, "close it there first"
			e.Detail = Holder(filepath.Join(dir, lockName))
		}
		return nil, e
	}
	return func() error { return errors.Join(unlockFile(lock), lock.Close()) }, nil
}

// openLock opens the file that is locked, without making it: nil if there is none.
func openLock(dir string) (*os.File, error) {
	lock, err := os.Open(filepath.Join(dir, lockName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return lock, err
}

// Accept takes from the mark of dir what a repair could not salvage, and returns it: somebody has seen it. Nobody
// may have dir open.
func Accept(dir string) (lost string, err error) {
	release, err := hold(dir, false)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, release()) }()
	id, making, err := identify(dir)
	if err != nil || id.Lost == "" {
		return "", err
	}
	lost, id.Lost = id.Lost, ""
	if err := writeMark(dir, id, making); err != nil {
		return "", &holdfast.Error{Op: "accept", Path: dir, Cause: err, Remedy: "the directory must be writable"}
	}
	return lost, nil
}

// hidden is what the mark is called in a directory that must not be opened yet.
const hidden = markName + ".partial"

// Hide makes a directory that is being filled look foreign: nobody can open it until Show,
// whatever becomes of this process.
func Hide(dir string) error { return rename(dir, markName, hidden) }

// Show is the opposite of Hide. If something is lost that dir should hold, the mark says so from then on.
func Show(dir, lost string) error {
	if lost == "" {
		return rename(dir, hidden, markName)
	}
	text, err := os.ReadFile(filepath.Join(dir, hidden))
	if err != nil {
		return err
	}
	id, _, making, err := parseMark(string(text))
	if err != nil {
		return err
	}
	id.Lost = lost
	if err := writeMark(dir, id, making); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, hidden)); err != nil {
		return err
	}
	return SyncDir(dir)
}

func rename(dir, from, to string) error {
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		return err
	}
	return SyncDir(dir)
}

// Unmarked reports whether dir has files but neither a mark nor a hidden one.
func Unmarked(dir string) bool {
	held, err := foreign(dir)
	return err == nil && held != "" && held != hidden
}
