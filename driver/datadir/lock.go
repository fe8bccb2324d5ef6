package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
)

const lockName = "LOCK"

var errLocked = errors.New("locked")

// Hold keeps others from opening dir for writing until release is called, and fails with ErrLocked if dir is open for
// writing. It changes nothing. A directory can have many holders and readers at once. In a directory that was never
// open Hold does nothing.
func Hold(dir string) (release func() error, err error) { return hold(dir, true) }

// hold is Hold with a shared lock, or with one that also keeps readers and other holders out.
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
	name := filepath.Join(dir, lockName)
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // to open a pipe could take for ever
		return nil, fmt.Errorf("%s is no file but a %s", name, describeKind(info.Mode().Type()))
	}

	// Opened for reading: it may be on a file system that is read-only.
	lock, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	return lock, err
}
