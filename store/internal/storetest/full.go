package storetest

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/vfs"
)

// Disk is a disk in memory with one engine, which answers ErrFull and works on when the disk is full.
type Disk struct {
	t      testing.TB
	fsys   *vfs.Mem
	Engine holdfast.Engine
}

// NewDisk returns an empty disk, whose engine is closed at the end of the test. Stores that are open in it need not be
// closed.
func NewDisk(t testing.TB) *Disk {
	d := &Disk{t: t, fsys: vfs.NewMem()}
	d.open()
	t.Cleanup(func() { _ = d.Engine.Close() })

	return d
}

func (d *Disk) open() {
	d.t.Helper()
	var err error
	if d.Engine, err = logtree.OpenMem(d.fsys, "d", holdfast.Options{}); err != nil {
		d.t.Fatal(err)
	}
}

// Restart kills the process that has the engine open, and opens it again. full says that somebody else has taken the
// last byte of the disk meanwhile.
func (d *Disk) Restart(full bool) {
	d.t.Helper()
	d.fsys.Halt()
	_ = d.Engine.Close()
	d.fsys = d.fsys.Kill()
	if d.open(); full {
		d.fsys.SetCapacity(d.fsys.Used())
	}
}

// MakeRoom makes the disk as large as anybody wants.
func (d *Disk) MakeRoom() { d.fsys.SetCapacity(-1) }
