package pebble

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// observedFS lies below the engine's disk. It asks write and sync before every write and
// sync, where they are set, and notes the calls that change something.
type observedFS struct {
	vfs.FS
	write, sync func(path string) error

	mu    sync.Mutex
	calls []string
}

// note adds a call, with the name of the file in it.
func (o *observedFS) note(call, path string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, call+" "+filepath.Base(path))
}

// take returns the calls since the last take.
func (o *observedFS) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := o.calls
	o.calls = nil
	return calls
}

// logCalls returns those of the calls that concern logs or the directory.
func logCalls(calls []string) []string {
	return slices.DeleteFunc(slices.Clone(calls), func(c string) bool {
		return !strings.HasSuffix(c, ".log") && !strings.HasPrefix(c, "syncdir")
	})
}

func ask(f func(string) error, path string) error {
	if f == nil {
		return nil
	}
	return f(path)
}

func (o *observedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := ask(o.write, name); err != nil {
		return nil, err
	}
	f, err := o.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	o.note("create", name)
	return &observedFile{File: f, o: o, path: name}, nil
}

func (o *observedFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := ask(o.write, newname); err != nil {
		return nil, err
	}
	f, err := o.FS.ReuseForWrite(oldname, newname, c)
	if err != nil {
		return nil, err
	}
	o.note(fmt.Sprintf("reuse %s as", filepath.Base(oldname)), newname)
	return &observedFile{File: f, o: o, path: newname}, nil
}

func (o *observedFS) OpenDir(name string) (vfs.File, error) {
	f, err := o.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &observedFile{File: f, o: o, path: name, dir: true}, nil
}

func (o *observedFS) Remove(name string) error {
	o.note("remove", name)
	return o.FS.Remove(name)
}

type observedFile struct {
	vfs.File
	o    *observedFS
	path string
	dir  bool
}

func (f *observedFile) Write(p []byte) (int, error) {
	if err := ask(f.o.write, f.path); err != nil {
		return 0, err
	}
	f.o.note("write", f.path)
	return f.File.Write(p)
}

func (f *observedFile) synced(real func() error) error {
	if err := ask(f.o.sync, f.path); err != nil {
		return err
	}
	call := "sync"
	if f.dir {
		call = "syncdir"
	}
	f.o.note(call, f.path)
	return real()
}

func (f *observedFile) Sync() error     { return f.synced(f.File.Sync) }
func (f *observedFile) SyncData() error { return f.synced(f.File.SyncData) }

func (f *observedFile) SyncTo(n int64) (bool, error) {
	if err := ask(f.o.sync, f.path); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}

func (f *observedFile) Close() error {
	if !f.dir {
		f.o.note("close", f.path)
	}
	return f.File.Close()
}
