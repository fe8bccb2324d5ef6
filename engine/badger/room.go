package badger

import (
	"fmt"
	"syscall"
)

// minFree is how much must be free for commits to be accepted: the library writes through mappings of files with
// holes, and a process that touches a hole on a full disk is killed. It is enough for the rest of the log in use and
// a table made of it.
const minFree = 2 * memTableSize

// room refuses transactions while little is free. It asks again before another page of the log can have been touched.
// credit is how many bytes may still be written before the disk is asked again.
type room struct {
	dir       string
	freeSpace func(dir string) (uint64, error)
	check     func() error // see datadir.Handle.Check
	credit    int
}

const pageSize = 4096

// take asks for room for n bytes of a batch, and returns ENOSPC if there is too little. It is called before they are
// written.
func (r *room) take(n int) error {
	// Asking costs a system call, so it is done once for a page, not for each batch.
	if r.credit -= n; r.credit > 0 {
		return nil
	}

	// The space is asked for by the directory's name, which must still lead to it.
	if err := r.check(); err != nil {
		return err
	}
	if err := r.need(minFree + uint64(n)); err != nil {
		return err
	}

	// Set only on success, so that a refused batch is followed by another look.
	r.credit = pageSize

	return nil
}

// need returns ENOSPC unless n bytes are free.
func (r *room) need(n uint64) error {
	free, err := r.freeSpace(r.dir)
	if err == nil && free < n {
		err = fmt.Errorf("%w: %d bytes are free, and %d must be", syscall.ENOSPC, free, n)
	}

	return err
}
