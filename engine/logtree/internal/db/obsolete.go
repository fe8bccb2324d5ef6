package db

import (
	"errors"
	"io/fs"
	"sync"
)

// obsoleteFiles is what is to be removed once no lock is held: references are given up under any lock, and removing a
// file takes time. Its lock is the last of all.
type obsoleteFiles struct {
	mu       sync.Mutex
	removals []func()
}

// makeObsolete has f called, to remove a file, by the next removeObsolete.
func (d *DB) makeObsolete(f func()) {
	d.obsolete.mu.Lock()
	d.obsolete.removals = append(d.obsolete.removals, f)
	d.obsolete.mu.Unlock()
	d.wake(d.prepare)
}

// removeObsolete removes the files that have become obsolete, and reports whether there were any. It takes mu.
func (d *DB) removeObsolete() bool {
	d.obsolete.mu.Lock()
	todo := d.obsolete.removals
	d.obsolete.removals = nil
	d.obsolete.mu.Unlock()
	for _, f := range todo {
		f()
	}
	return len(todo) > 0
}

// maxSpare is the number of files that are kept to be used again.
const maxSpare = 1

// freeSegment is called with any lock held when the last reference to a dead segment is gone.
func (d *DB) freeSegment(s *segment) {
	d.makeObsolete(func() {
		size, err := d.fs.Size(segmentName(d.dir, s.id)) // the last one of a session was cut by Close
		d.mu.Lock()
		keep := err == nil && size == s.size && s.kind == kindLog && s.size == d.segmentSize() &&
			len(d.spare) < maxSpare && s.flags&flagWritten != 0
		if keep {
			d.spare = append(d.spare, s)
		}
		d.mu.Unlock()
		if !keep {
			d.remove(segmentName(d.dir, s.id))
		}
	})
}

// freeRun is called with any lock held when the last reference to a dead run is gone.
func (d *DB) freeRun(f *runFile) {
	d.makeObsolete(func() { d.remove(runName(d.dir, f.id)) })
}

// remove removes a file that is not needed. If it stays, opening the database removes it.
func (d *DB) remove(name string) {
	if err := d.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.logger.Warn("cannot remove a file that is not needed", "path", name, "error", err)
	}
}
