//go:build cgo

package sqlite

import (
	"errors"
	"syscall"

	sqlite3 "github.com/mattn/go-sqlite3"

	"github.com/holdfastdb/holdfast"
)

var cLibrary = sqliteLibrary{
	name:   Name,
	module: module,
	driver: &sqlite3.SQLiteDriver{},
	// A connection here has one user at a time; SQLite need not lock it.
	params: "?_mutex=no",
	code: func(err error) (int, syscall.Errno) {
		var e sqlite3.Error
		if errors.As(err, &e) {
			if extended := int(e.ExtendedCode); extended&0xff == int(e.Code) {
				return extended, e.SystemErrno
			}

			return int(e.Code), e.SystemErrno
		}

		return 0, 0
	},
}

// Open opens or makes the store in dir with the C library. Without cgo it returns
// ErrUnavailable; [OpenGo] then opens the same directory.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return OpenWith(dir, o, Tuning{})
}

// OpenWith is [Open] with other choices.
func OpenWith(dir string, o holdfast.Options, t Tuning) (holdfast.Engine, error) {
	return open(&cLibrary, dir, o, t)
}

// Describe says what the engine that [Open] opens gives.
func Describe() holdfast.Capabilities { return describe(Name, module) }
