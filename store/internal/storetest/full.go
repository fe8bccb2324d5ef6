package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

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
func NewDisk(t testing.TB) *Disk { return NewSmallDisk(t, -1) }

// NewSmallDisk is NewDisk of that many bytes, which [Disk.Fill] fills.
func NewSmallDisk(t testing.TB, bytes int64) *Disk {
	d := &Disk{t: t, fsys: vfs.NewMem()}
	d.fsys.SetCapacity(bytes)
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

// Fill fills the disk with keys that belong to nobody, until none is admitted.
func (d *Disk) Fill() {
	d.t.Helper()
	for i, size := 0, 4000; size > 0; i++ {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "\xf0 of nobody %d", i), make([]byte, size))
		switch err := holdfast.Commit(d.Engine, &b, holdfast.Power); {
		case errors.Is(err, holdfast.ErrFull):
			size /= 2
		case err != nil:
			d.t.Fatal(err)
		}
	}
}

// Freed makes a write again and again that a full disk refuses, until there is room, which is made in the background.
func (d *Disk) Freed(write func() error) {
	d.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := write()
		if err == nil {
			return
		}
		if !errors.Is(err, holdfast.ErrFull) || time.Now().After(end) {
			d.t.Fatal(err)
		}
	}
}

// MakeRoom makes the disk as large as anybody wants.
func (d *Disk) MakeRoom() { d.fsys.SetCapacity(-1) }
