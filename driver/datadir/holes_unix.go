//go:build linux || darwin || freebsd

package datadir

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// dataAfter finds the next part of f from at to size that holds data, empty at size if there is none. Where the file
// system does not tell, all of it does.
func dataAfter(f *os.File, at, size int64) (from, to int64, err error) {
	from, err = f.Seek(at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) || from > size {
		return size, size, nil
	}
	if err == nil {
		to, err = f.Seek(from, unix.SEEK_HOLE)
	}
	if err != nil {
		return at, size, nil
	}

	return from, min(to, size), nil
}
