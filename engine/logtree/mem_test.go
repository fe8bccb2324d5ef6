package logtree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/vfs"
)

// A database on a file system in memory is there after it is closed, and after a crash; it cannot be opened twice at a
// time; and nothing of it is on the real disk.
func TestOpenMem(t *testing.T) {
	t.Chdir(t.TempDir())
	fsys, dir := vfs.NewMem(), filepath.Join("a", "b")
	open := func() holdfast.Engine {
		t.Helper()
		e, err := OpenMem(fsys, dir, holdfast.Options{MemoryBytes: 1 << 20})
		try(t, err)
		return e
	}
	for round := range byte(4) {
		e := open()
		if _, err := OpenMem(fsys, dir+"/.", holdfast.Options{}); !errors.Is(err, holdfast.ErrLocked) {
			t.Fatalf("a second opener: %v", err)
		}
		if v, err := e.Get(nil, []byte("round")); round > 0 && (err != nil || v[0] != round-1) {
			t.Fatal(v, err)
		}
		var b holdfast.Batch
		b.Set([]byte("round"), []byte{round})
		try(t, holdfast.Commit(e, &b, holdfast.Power))
		if m := e.Metrics(); m.Files == 0 || m.DiskBytes == 0 {
			t.Errorf("%d files, %d bytes", m.Files, m.DiskBytes)
		}
		if round == 2 {
			fsys = fsys.CrashNothing() // the old one stays open
		} else if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	try(t, fsys.Remove(filepath.Join(dir, "MANIFEST")))
	if _, err := OpenMem(fsys, dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("without its manifest: %v", err)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) > 0 {
		t.Errorf("on the real disk: %v, %v", left, err)
	}
}

// A failure in the background that stops the database is told as it happens, with nobody calling anything: here a flush
// does not know which manifest is durable.
func TestDoneInTheBackground(t *testing.T) {
	fsys := vfs.NewMem()
	e, err := OpenMem(fsys, "db", holdfast.Options{MemoryBytes: 1 << 20, SyncEvery: -1})
	try(t, err)
	defer e.Close()
	var renamed, failed atomic.Bool
	fsys.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpRename && filepath.Base(op.To) == "MANIFEST" {
			renamed.Store(true)
		}
		if op.Kind == vfs.OpSyncDir && renamed.Load() && failed.CompareAndSwap(false, true) {
			return syscall.EIO
		}
		return nil
	})
	for n := 0; err == nil && !renamed.Load() && n < 1<<16; n++ { // until a memtable is full and its flush has come so far
		var b holdfast.Batch
		b.Set([]byte(fmt.Sprint("key", n)), make([]byte, 100))
		_, err = e.Apply(&b, holdfast.Memory)
	}
	testkit.Receive(t, "the end of Done", e.Done())
	if err := e.Err(); !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, syscall.EIO) || !failed.Load() {
		t.Error(err)
	}
	if _, err := e.Get(nil, []byte("key0")); err != nil {
		t.Error("reads go on:", err)
	}
}
