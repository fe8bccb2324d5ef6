package logtree

import (
	"github.com/holdfastdb/holdfast/engine/internal/home"
	"github.com/holdfastdb/holdfast/vfs"
)

// owned is a file system on which nothing is done by name to a directory that was replaced.
type owned struct {
	vfs.FS
	home *home.Home
}

func (o owned) open(open func(string) (vfs.File, error), name string) (vfs.File, error) {
	if err := o.home.Check(); err != nil {
		return nil, err
	}
	return open(name)
}

func (o owned) Create(name string) (vfs.File, error)    { return o.open(o.FS.Create, name) }
func (o owned) Open(name string) (vfs.File, error)      { return o.open(o.FS.Open, name) }
func (o owned) OpenWrite(name string) (vfs.File, error) { return o.open(o.FS.OpenWrite, name) }

func (o owned) Remove(name string) error {
	if err := o.home.Check(); err != nil {
		return err
	}
	return o.FS.Remove(name)
}

func (o owned) Rename(from, to string) error {
	if err := o.home.Check(); err != nil {
		return err
	}
	return o.FS.Rename(from, to)
}

func (o owned) SyncDir(dir string) error {
	if err := o.home.Check(); err != nil {
		return err
	}
	return o.FS.SyncDir(dir)
}
