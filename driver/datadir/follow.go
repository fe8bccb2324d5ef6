package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastdb/holdfast"
)

// A reader waits while a copy that is kept up to date is changed, which takes a moment each time.
const (
	followedWaits = 1000
	followedWait  = 10 * time.Millisecond
)

// follows reports whether dir says that it is kept up to date.
func follows(dir string) bool {
	m, err := loadMark(dir)
	return err == nil && m.Follows != ""
}

// Follow makes dir, which another program keeps up to date with source, say so: from then on it is opened for reading
// only. mark is the text of the mark of what it is a copy of. A directory that is not ready cannot be opened at all.
// The caller is in [Change].
func Follow(dir string, mark []byte, source string, ready bool) error {
	m, err := parseMark(string(mark))
	if err != nil {
		return err
	}
	m.Follows, m.making = source, !ready

	return writeMark(dir, m)
}

// Unfollow makes dir, which [Follow] has made follow something, a directory of its own. The caller is in [Change].
func Unfollow(dir string) error {
	m, err := loadMark(dir)
	if err != nil {
		return err
	}
	m.Follows, m.making = "", false

	return writeMark(dir, m)
}

// Change keeps everybody else from opening dir, for reading, too, until release is called. ErrLocked: somebody has it
// open. Where nobody ever had, it makes what is locked.
func Change(dir string) (release func() error, err error) {
	return LockName(filepath.Join(dir, lockName))
}

// LockName makes the file name if it is not there, and locks it against all others until release is called, or the
// process ends. ErrLocked: another has.
func LockName(name string) (release func() error, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, Full(&holdfast.Error{Op: "lock", Path: name, Cause: err, Remedy: "the directory must be writable"})
	}
	if err := lockFile(f, false); err != nil {
		f.Close()
		e := &holdfast.Error{Op: "lock", Path: name, Cause: err, Remedy: "the file system must support file locks"}
		if errors.Is(err, errLocked) {
			e.Class, e.Cause, e.Remedy, e.Detail = holdfast.ErrLocked, nil, "close it there first", Holder(name)
		}

		return nil, e
	}

	return func() error { return errors.Join(unlockFile(f), f.Close()) }, nil
}

// Replace replaces a file durably: a crash leaves the old one or the new one, whole.
func Replace(name string, data []byte) (err error) {
	f, err := os.Create(name + ".tmp")
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, removeIfThere(name+".tmp"))
	}

	return Rename(name+".tmp", name)
}

func removeIfThere(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	return nil
}
