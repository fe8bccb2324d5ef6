package db

import (
	"sync"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// obsoleteFiles is what is to be removed once no lock is held: references are given up under any lock, and removing a
// file takes time. mu is the last of all locks, removing the last but it.
type obsoleteFiles struct {
	removing sync.Mutex // while files are removed
	mu       sync.Mutex
	names    []string
}

// makeObsolete has a file removed by the next removeObsolete. It may be called with any lock held, but for those of
// obsoleteFiles.
func (d *DB) makeObsolete(name string) {
	d.obsolete.mu.Lock()
	d.obsolete.names = append(d.obsolete.names, name)
	d.obsolete.mu.Unlock()
	d.wake(d.prepare)
}

// removeObsolete removes the files that have become obsolete, and reports whether there were any. Those that another
// goroutine is removing are gone too when it returns: its caller counts on the room.
func (d *DB) removeObsolete() bool {
	d.obsolete.removing.Lock()
	defer d.obsolete.removing.Unlock()
	d.obsolete.mu.Lock()

	// The names are taken under mu, and the files removed without it: references are given up under any lock, and must not
	// wait for a disk.
	todo := d.obsolete.names
	d.obsolete.names = nil
	d.obsolete.mu.Unlock()

	// A crash here leaves files that no manifest names. The next opening removes them.
	for _, name := range todo {
		d.files.Remove(name)
	}

	return len(todo) > 0
}

// freeSegment is called with any lock held when the last reference to a dead segment is gone.
func (d *DB) freeSegment(s *wal.Segment) { d.makeObsolete(s.File.Name()) }

// freeTable is called with any lock held when the last reference to an obsolete table is gone.
func (d *DB) freeTable(t *tree.Table) { d.makeObsolete(format.TableName(d.files.Dir, t.ID)) }
