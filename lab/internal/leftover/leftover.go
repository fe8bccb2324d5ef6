// Package leftover finds and removes the directories of runs of the lab that were killed: a run holds a lock in its own as
// long as it lives, and the next run in the same place sweeps those without one.
package leftover

// Lock is the name of the file that is locked.
const Lock = "RUNNING"

// Options are what a kind of run needs besides. Both may be nil.
type Options struct {
	// Dead reports that the run which made a directory is dead though its lock is held still.
	Dead func(dir string) bool
	// Undo does what must be done before a directory can be removed. After an error it stays.
	Undo func(dir string) error
}
