package logtree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
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
