package logtree

import (
	"errors"
	"os"
	"syscall"

	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/vfs"
)

// owned is a file system that refuses to make, rename or remove files by name once the directory was replaced.
type owned struct {
	vfs.FS
	datadir *datadir.Handle
	// held open, for a sync of it when there is no file descriptor left; nil where directories are not synced
	dir *os.File
}

// open opens a file by name, if the directory is still the one that was opened.
func (o owned) open(open func(string) (vfs.File, error), name string) (vfs.File, error) {
	if err := o.datadir.Check(); err != nil {
		return nil, err
	}

	return open(name)
}

// Create, Open and OpenWrite implement [vfs.FS].
func (o owned) Create(name string) (vfs.File, error)    { return o.open(o.FS.Create, name) }
func (o owned) Open(name string) (vfs.File, error)      { return o.open(o.FS.Open, name) }
func (o owned) OpenWrite(name string) (vfs.File, error) { return o.open(o.FS.OpenWrite, name) }

// Remove implements [vfs.FS]. The name may lead to another's file by now, so the directory is looked at first.
func (o owned) Remove(name string) error {
	if err := o.datadir.Check(); err != nil {
		return err
	}

	return o.FS.Remove(name)
}

// Rename implements [vfs.FS].
func (o owned) Rename(from, to string) error {
	if err := o.datadir.Check(); err != nil {
		return err
	}

	return o.FS.Rename(from, to)
}

// Link implements [vfs.FS].
func (o owned) Link(from, to string) error {
	if err := o.datadir.Check(); err != nil {
		return err
	}

	return o.FS.Link(from, to)
}

// SyncDir implements [vfs.FS].
func (o owned) SyncDir(dir string) error {
	if err := o.datadir.Check(); err != nil {
		return err
	}
	err := o.FS.SyncDir(dir)
	if o.dir != nil && dir == o.datadir.Dir && (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) {
		// The names exist already: an error now could not undo them.
		return o.dir.Sync()
	}

	return err
}
