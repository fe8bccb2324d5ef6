//go:build unix

package bare

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes the shared lock that keeps writers of bbolt and Badger out. free is false if one is there. On
// Linux, Pebble and SQLite have locks of another kind: datadir.Holder and files that change show these.
func tryLock(path string) (release func(), free bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return func() {}, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, false, nil
		}
		return func() {}, true, nil // the file system has no such locks
	}
	return func() { f.Close() }, true, nil
}
