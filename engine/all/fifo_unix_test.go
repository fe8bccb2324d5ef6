//go:build unix

package all_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
)

// TestPipeForFile: a pipe in the place of any file of any engine is refused by all that opens the directory, and never
// waited for.
func TestPipeForFile(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		made := filepath.Join(t.TempDir(), "db")
		eng, err := e.Open(made, holdfast.Options{})
		try(t, err)
		var b holdfast.Batch
		b.Set([]byte("key"), []byte("value"))
		try(t, errors.Join(holdfast.Commit(eng, &b, eng.Capabilities().Strongest()), eng.Close()))
		var names []string
		try(t, filepath.WalkDir(made, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				name, err = filepath.Rel(made, name)
				names = append(names, name)
			}
			return err
		}))
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				at := t.TempDir()
				dir := filepath.Join(at, "db")
				try(t, os.CopyFS(dir, os.DirFS(made)))
				try(t, errors.Join(os.Remove(filepath.Join(dir, name)), syscall.Mkfifo(filepath.Join(dir, name), 0o600)))
				refused := func(what string, err error) {
					t.Helper()
					if err == nil {
						t.Errorf("%s: no error", what)
					}
				}
				if eng, err := e.Open(dir, holdfast.Options{}); err == nil {
					t.Error("Open: no error")
					eng.Close()
				} else if !errors.Is(err, holdfast.ErrCorrupt) {
					t.Errorf("Open: %v", err)
				}
				_, _ = all.Inspect(dir) // which tells what it sees
				if v, err := all.Verify(dir); err == nil && len(v.Damage) == 0 {
					t.Error("Verify finds nothing")
				}
				_, _ = all.Repair(t.Context(), dir, filepath.Join(at, "repaired")) // which salvages what it can
				_, err := all.BackupDir(t.Context(), dir, filepath.Join(at, "backup"))
				refused("BackupDir", err)
				_, err = all.Copy(t.Context(), dir, filepath.Join(at, "copy"), all.CopyOptions{Engine: "mem"})
				refused("Copy", err)
				if e.Name == logtree.Name { // which has tools of its own
					if v, err := logtree.Verify(dir); err == nil && len(v.Damage) == 0 && name != "LOCK" && name != "HOLDFAST" {
						t.Error("logtree.Verify finds nothing")
					}
					_, _ = logtree.Inspect(dir)
					_, _ = logtree.Repair(t.Context(), dir, filepath.Join(at, "salvaged"), holdfast.Options{})
				}
			})
		}
	})
}

// TestPipeForDirectory: a pipe in the place of a directory is refused.
func TestPipeForDirectory(t *testing.T) {
	at := t.TempDir()
	pipe := filepath.Join(at, "pipe")
	try(t, syscall.Mkfifo(pipe, 0o600))
	_, err1 := all.Inspect(pipe)
	_, err2 := all.Verify(pipe)
	_, err3 := all.Repair(t.Context(), pipe, filepath.Join(at, "repaired"))
	_, err4 := all.BackupDir(t.Context(), pipe, filepath.Join(at, "backup"))
	_, err5 := all.Copy(t.Context(), pipe, filepath.Join(at, "copy"), all.CopyOptions{Engine: "mem"})
	for i, err := range []error{err1, err2, err3, err4, err5} {
		if err == nil {
			t.Errorf("%d: no error", i+1)
		}
	}
}
