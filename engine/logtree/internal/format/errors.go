package format

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/holdfastdb/holdfast"
)

// Corrupt is the error of bytes that are not what they should be, at offset off of a file.
func Corrupt(name string, off int64, detail string, cause error) error {
	return &holdfast.Error{Op: "read", Engine: Name, Path: name, Offset: off, Class: holdfast.ErrCorrupt,
		Detail: detail, Cause: cause,
		Remedy: "restore a backup, or salvage what is intact: holdfast repair"}
}

// Newer is the error of a file that a later release wrote.
func Newer(name string, version uint32) error {
	return &holdfast.Error{Op: "open", Engine: Name, Path: name, Class: holdfast.ErrVersion,
		Detail: fmt.Sprintf("format %d", version),
		Remedy: "use the release of holdfast that wrote it, or a later one"}
}

// IOError says what was being done to which file. It has no class: the poison, or Open, says
// more.
func IOError(op, name string, err error) error {
	return &holdfast.Error{Op: op, Engine: Name, Path: name, Cause: err}
}

// ReadError is for a read that failed where the file should have had bytes. What only passes says nothing of them.
func ReadError(name string, off int64, err error) error {
	if IsTransient(err) {
		return IOError("read", name, err)
	}

	return Corrupt(name, off, "it cannot be read", err)
}

// IsNoRoom reports whether an error says that the disk is full, or the user's share of it, and nothing worse.
func IsNoRoom(err error) bool {
	return (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && !IsFatal(err)
}

// IsTransient reports whether an error says that the process or the system is short of something, which passes.
func IsTransient(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// IsShortage reports whether an error says that there is not enough of something for now, and nothing worse.
func IsShortage(err error) bool { return IsNoRoom(err) || IsTransient(err) && !IsFatal(err) }

// fatal is what [Fatal] makes.
type fatal struct{ error }

// Fatal makes err one that stops the database: it is not known which of two manifests is the durable one.
func Fatal(err error) error { return &fatal{err} }

// Unwrap returns the cause, so that its class is found too.
func (e *fatal) Unwrap() error { return e.error }

// IsFatal reports whether an error stops the database.
func IsFatal(err error) bool {
	var f *fatal
	return errors.As(err, &f)
}
