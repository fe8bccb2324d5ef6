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

func (o owned) open(open func(string) (vfs.File, error), name string) (vfs.File, error) {
	if err := o.datadir.Check(); err != nil {
		return nil, err
	}

	return open(name)
}

func (o owned) Create(name string) (vfs.File, error)    { return o.open(o.FS.Create, name) }
func (o owned) Open(name string) (vfs.File, error)      { return o.open(o.FS.Open, name) }
func (o owned) OpenWrite(name string) (vfs.File, error) { return o.open(o.FS.OpenWrite, name) }

func (o owned) Remove(name string) error {
	if err := o.datadir.Check(); err != nil {
		return err
	}

	return o.FS.Remove(name)
}

func (o owned) Rename(from, to string) error {
	if err := o.datadir.Check(); err != nil {
		return err
	}

	return o.FS.Rename(from, to)
}

func (o owned) Link(from, to string) error {
	if err := o.datadir.Check(); err != nil {
		return err
	}

	return o.FS.Link(from, to)
}

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
