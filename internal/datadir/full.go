package datadir

import (
	"errors"
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

// Full makes an error whose class is not known yet, and that NoRoom, one of the class ErrFull.
func Full(err error) error {
	e, ok := err.(*holdfast.Error)
	switch {
	case !NoRoom(err) || errors.Is(err, holdfast.ErrFull):
		return err
	case ok && e.Class == nil:
		e.Class, e.Remedy = holdfast.ErrFull, MakeRoom
		return e
	}
	return &holdfast.Error{Class: holdfast.ErrFull, Cause: err, Remedy: MakeRoom}
}
