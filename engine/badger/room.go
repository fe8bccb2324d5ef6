package badger

import (
	"fmt"
	"syscall"
)

// minFree is how much must be free for commits to be accepted: the library writes through mappings of files with
// holes, and a process that touches a hole on a full disk is killed. It is enough for the rest of the log in use and
// a table made of it.
const minFree = 2 * memTableSize

// room refuses transactions while little is free. It asks again before another page of the log can
// have been touched.
type room struct {
	dir       string
	freeSpace func(dir string) (uint64, error)
	check     func() error // see datadir.Handle.Check
	credit    int
}

const pageSize = 4096

func (r *room) take(n int) error {
	if r.credit -= n; r.credit > 0 {
		return nil
	}
	if err := r.check(); err != nil {
		return err
	}
	if err := r.need(minFree + uint64(n)); err != nil {
		return err
	}
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
