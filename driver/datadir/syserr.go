package datadir

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"github.com/holdfastdb/holdfast"
)

// MakeRoom is what to do about an error of the class ErrFull.
const MakeRoom = "make room on the disk, or raise the quota"

// NoRoom reports whether err says that a device, or what this user may take of it, is full.
func NoRoom(err error) bool {
	return errors.Is(err, holdfast.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		systemNoRoom(err)
}

// Full makes an error whose class is not known yet, and that NoRoom, one of the class ErrFull. The poison of an engine
// stays one: it has stopped, and an engine that answers ErrFull has not.
func Full(err error) error {
	e, ok := err.(*holdfast.Error)
	switch {
	case !NoRoom(err) || errors.Is(err, holdfast.ErrFull) || errors.Is(err, holdfast.ErrPoisoned):
		return err
	case ok && e.Class == nil:
		e.Class, e.Remedy = holdfast.ErrFull, MakeRoom
		return e
	}

	return &holdfast.Error{Class: holdfast.ErrFull, Cause: err, Remedy: MakeRoom}
}

// OfSystem reports whether err is the operating system's, which has refused something. It says nothing of what is
// stored, unless a file is missing.
func OfSystem(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist)
}

// SystemError makes err unwrap to the error number that its text names: some libraries keep only texts.
func SystemError(err error) error {
	var errno syscall.Errno
	if err == nil || errors.As(err, &errno) {
		return err
	}

	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EACCES, syscall.EPERM, syscall.EROFS,
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO} {
		if strings.Contains(err.Error(), errno.Error()) {
			return &textError{err, errno}
		}
	}

	return err
}

type textError struct {
	error
	errno syscall.Errno
}

// Unwrap returns the error number and the error whose text names it.
func (e *textError) Unwrap() []error { return []error{e.errno, e.error} }
