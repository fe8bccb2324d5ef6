package sqlite

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The bytes of the database file that SQLite locks for writing when the last connection
// closes (unix VFS: SHARED_FIRST, SHARED_SIZE).
const (
	sharedFirst = 0x40000000 + 2
	sharedSize  = 510
)

// keepLog keeps SQLite from checkpointing and removing the log when its last connection
// closes, until release is called after that. After a failed write or sync, what the log has
// in the page cache, and what an earlier checkpoint wrote without a sync, cannot be trusted:
// only recovery from the log's own checksums can tell.
//
// It holds a lock that conflicts with the one SQLite takes first. The lock belongs to the
// open file, not to the process, so it counts although SQLite is in the same one.
func keepLog(path string) (release func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return func() {}, err
	}

	// A read lock is enough to keep a write lock out, and the file is open for reading only.
	lock := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Start: sharedFirst, Len: sharedSize}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		f.Close()
		return func() {}, err
	}

	// Closing the file gives the lock back.
	return func() { f.Close() }, nil
}
