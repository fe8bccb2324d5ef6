package datadir

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
)

// SQLite and Pebble lock their files with locks of the process (fcntl), which bring two difficulties. They do not keep
// the process itself out, and it gives them all up when it closes any descriptor of the file, whoever opened it. So a
// file that this process has open must not be opened again to copy it, or even to ask for its locks: that it is open
// says that it is in use. What this package has open itself, to copy it, is left out of account; see [OpenToRead].

// HoldFile keeps others from writing to the file of a library, or to its directory if that is what it locks, as far as
// the library's locks let it, until release is called. ErrLocked: another program, or this one, uses it. A path that is
// not there is held by doing nothing.
//
// Writers of SQLite and Pebble are found, but not kept out: their locks cannot be taken without harm to a program that
// comes now.
func HoldFile(op, path string) (release func() error, err error) { return holdFile(op, path) }

// CheckUnused returns ErrLocked if a file in dir, or dir if it is a file, is in use as [HoldFile] finds it. The LOCK
// in dir is left to [Hold].
func CheckUnused(op, dir string) error {
	open, err := openHere()
	if err != nil {
		return &holdfast.Error{Op: op, Path: dir, Cause: err}
	}

	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return &holdfast.Error{Op: op, Path: name, Cause: err}
		}
		if d.IsDir() || name == filepath.Join(dir, lockName) { // which is locked by Hold
			return nil
		}

		return checkUnused(op, name, open)
	})
}

// inUse returns ErrLocked for path, with what is known of who has it.
func inUse(op, path, holder string) error {
	return &holdfast.Error{Op: op, Path: path, Class: holdfast.ErrLocked, Detail: holder, Remedy: "close it there first"}
}

// thisProcess is the holder of a file that is open here.
var thisProcess = describeHolders([]int{os.Getpid()})
