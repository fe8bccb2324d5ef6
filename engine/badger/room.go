package badger

import (
	"fmt"
	"syscall"
)

// minFree is how much must be free for commits to go on: the library writes through mappings
// of files with holes, and a process that touches a hole on a full disk is killed. It is
// enough for the log in use and for tables made of all memtables.
const minFree = (memTables + 2) * memTableSize

// room refuses transactions while little is free. It asks once for every roomStep bytes.
type room struct {
	dir       string
	freeSpace func(dir string) (uint64, error)
	credit    int
}

const roomStep = 1 << 20

func (r *room) take(n int) error {
	if r.credit -= n; r.credit > 0 {
		return nil
	}
	free, err := r.freeSpace(r.dir)
	if err != nil {
		return err
	}
	if free < minFree+uint64(n) {
		return fmt.Errorf("%w: %d bytes are free, and %d are kept free", syscall.ENOSPC, free, int64(minFree))
	}
	r.credit = roomStep
	return nil
}
