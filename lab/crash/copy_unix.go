//go:build linux || darwin || freebsd

package crash

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// dataAfter finds the next part of f from at on that holds data; where the file system does not tell, all of
// it does. The end is io.EOF.
func dataAfter(f *os.File, at int64) (from, to int64, err error) {
	from, err = f.Seek(at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) {
		return 0, 0, io.EOF
	}
	if err != nil {
		return wholeAfter(f, at)
	}
	if to, err = f.Seek(from, unix.SEEK_HOLE); err != nil {
		return wholeAfter(f, at)
	}
	return from, to, nil
}
