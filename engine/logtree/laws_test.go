package logtree

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest"
	"github.com/holdfastdb/holdfast/vfs"
)

func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Open:     Open,
		Describe: Describe,
		Tail: func(dir string) string {
			segs, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
			tail := ""
			for _, name := range segs { // in order: their names are numbers of eight digits
				if b, err := os.ReadFile(name); err == nil && len(bytes.TrimRight(b, "\x00")) > 64 {
					tail = name // the ones behind it are prepared, and hold nothing but a header
				}
			}
			return tail
		},
		OpenFaulty: func(dir string, o holdfast.Options, faults *enginetest.Faults) (holdfast.Engine, error) {
			return openIn(faultyFS{vfs.OS(), faults}, dir, o)
		},
	})
}

// faultyFS asks faults before every write and sync.
type faultyFS struct {
	vfs.FS
	faults *enginetest.Faults
}

func (f faultyFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return faultyFile{file, f.faults}, nil
}

func (f faultyFS) Create(name string) (vfs.File, error)    { return f.wrap(f.FS.Create(name)) }
func (f faultyFS) OpenWrite(name string) (vfs.File, error) { return f.wrap(f.FS.OpenWrite(name)) }

func (f faultyFS) SyncDir(dir string) error {
	if err := f.faults.Sync(dir); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

// faultyFile hides that the file can be mapped, so that writes are calls.
type faultyFile struct {
	vfs.File
	faults *enginetest.Faults
}

func (f faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.faults.Write(f.Name()); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f faultyFile) Datasync() error {
	if err := f.faults.Sync(f.Name()); err != nil {
		return err
	}
	return f.File.Datasync()
}

func (f faultyFile) Sync() error {
	if err := f.faults.Sync(f.Name()); err != nil {
		return err
	}
	return f.File.Sync()
}
