// Package logtree is Holdfast's own engine: a log that is the database. Values are stored in an append-only log;
// everything else is an index to it and can be rebuilt. There is no second log, and space is freed by whole files. All
// levels of one machine are given per commit, in one open directory.
//
//	engine, err := logtree.Open("/var/lib/orders", holdfast.Options{})
//	keys, err := logtree.Backup(ctx, engine, "/var/backups/orders") // while others write
//
// What commits get at each level:
//
//	Memory   copied to the log's tail in memory and indexed
//	Process  the tail is in the log's file, by a store to its mapping or a write call
//	Power    the file is synced as well, one fdatasync for all waiters
//
// The file format is in docs/format-logtree.md, the reasons for what is chosen in docs/decisions.
package logtree

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// Name is the engine's name in engine/all.
const Name = format.Name

// dirFormat is the format of the directory; its files have versions of their own.
const dirFormat = 1

// defaultMemory is the budget in bytes when none is named.
const defaultMemory = 128 << 20

// Describe says what the engine gives.
func Describe() holdfast.Capabilities { return db.Describe() }

// engine is what [Open] opens.
type engine struct {
	*database
	dir     string // "" where it is in memory
	usage   func() (files, bytes int64)
	release func() error // of the directory
	// makes the directory of a checkpoint, which fill fills
	publish func(ctx context.Context, dir string, fill func(dir string) error) error
}

type database = db.DB

// Open opens or makes the database in dir. Options.Level is ignored: every level is given.
//
// Options.MemoryBytes, 128 MiB by default, is shared by the memtables (up to three of a fifth of it each, of which the
// memory of two is kept while it is used) and the cache of tables of keys (three tenths), which has values too that
// short scans have read. All other caching of files is the operating system's.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return openIn(vfs.OS(), dir, o)
}

// openIn is Open on fsys, which may wrap the operating system's files. The lock and the mark of the directory are
// always on the real file system.
func openIn(fsys vfs.FS, dir string, o holdfast.Options) (_ holdfast.Engine, err error) {
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if err := driver.CheckLevel(Describe(), dir, o.Level); err != nil {
		return nil, err
	}
	h, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: dirFormat, Keeps: "MANIFEST", Recognize: IsDatabase,
		Salvage: "salvage what is intact: holdfast repair", ReadOnly: o.ReadOnly})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()

	// Held for syncs of the directory, which must work also when the process has no descriptor left. Windows syncs no
	// directories.
	var held *os.File
	release := h.Close
	if runtime.GOOS != "windows" {
		if held, err = os.Open(h.Dir); err != nil {
			return nil, &holdfast.Error{Op: "open", Engine: Name, Path: h.Dir, Cause: err}
		}
		release = func() error { return errors.Join(held.Close(), h.Close()) }
		defer func() {
			if err != nil {
				held.Close()
			}
		}()
	}
	e, err := openDB(owned{fsys, h, held}, h.Check, h.Dir, h.New, o)
	if err != nil {
		return nil, err
	}

	// A directory that counts as made must have its manifest, which is on the device by now.
	if err := h.Made(); err != nil {
		return nil, errors.Join(err, e.database.Close())
	}
	e.Caps.Lost, e.Caps.Accepted, e.publish = h.Lost, h.Accepted, h.Checkpoint
	e.dir = h.Dir
	e.usage, e.release = func() (int64, int64) { return datadir.Usage(h.Dir) }, release

	return e, nil
}

// memDir is a directory of a file system in memory.
type memDir struct {
	fsys *vfs.Mem
	dir  string
}

var openMem sync.Map // the memDirs that are open

// OpenMem is Open on a file system in memory, for tests that crash it, fill it, and make it fail. Nothing is on the
// real one, and the directory has no HOLDFAST file. A simulated crash returns a new file system; the engine on the old
// one need not be closed first.
func OpenMem(fsys *vfs.Mem, dir string, o holdfast.Options) (_ holdfast.Engine, err error) {
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if err := driver.CheckLevel(Describe(), dir, o.Level); err != nil {
		return nil, err
	}
	fail := func(class, cause error, remedy string) error {
		return &holdfast.Error{Op: "open", Engine: Name, Path: dir, Class: class, Cause: cause, Remedy: remedy}
	}
	if fsys == nil {
		return nil, fail(holdfast.ErrBadOption, nil, "pass a file system")
	}
	at := memDir{fsys, filepath.Clean(dir)}
	if _, taken := openMem.LoadOrStore(at, true); taken {
		return nil, fail(holdfast.ErrLocked, nil, "close it there first, or choose another directory")
	}
	defer func() {
		if err != nil {
			openMem.Delete(at)
		}
	}()
	names, err := at.make()
	if err != nil {
		return nil, fail(nil, err, "")
	}
	// A segment is made after the manifest.
	made := slices.ContainsFunc(names, func(name string) bool { return filepath.Ext(name) == ".seg" })
	e, err := openDB(fsys, nil, at.dir, !made, o)
	if err != nil {
		return nil, err
	}
	e.usage = func() (files, _ int64) {
		names, _ := fsys.List(at.dir)
		return int64(len(names)), fsys.Used()
	}
	e.release = func() error { openMem.Delete(at); return nil }
	e.publish = at.publish

	return e, nil
}

// make makes the directory and its parents durably, and returns what is in it.
func (m memDir) make() (names []string, err error) {
	err = m.fsys.MkdirAll(m.dir)
	for parent := m.dir; err == nil && filepath.Dir(parent) != parent; {
		parent = filepath.Dir(parent)
		err = m.fsys.SyncDir(parent)
	}
	names, listed := m.fsys.List(m.dir)

	return names, errors.Join(err, listed)
}

// publish makes the directory of a checkpoint.
func (m memDir) publish(_ context.Context, dir string, fill func(dir string) error) error {
	to := memDir{m.fsys, filepath.Clean(dir)}
	names, err := to.make()
	if err == nil && len(names) == 0 {
		return fill(to.dir)
	}
	e := &holdfast.Error{Op: "checkpoint", Engine: Name, Path: dir, Cause: err}
	if err == nil {
		e.Class, e.Detail, e.Remedy = holdfast.ErrBadOption, "it is not empty", "name a directory that is new or empty"
	}

	return e
}

// openDB opens the files of a directory that this engine made. check, if not nil, returns an error once the directory
// was replaced.
func openDB(fsys vfs.FS, check func() error, dir string, making bool, o holdfast.Options) (*engine, error) {
	if o.MemoryBytes == 0 {
		o.MemoryBytes = defaultMemory
	}
	c := db.Config{FS: fsys, Check: check, Dir: dir, New: making, Memory: o.MemoryBytes, Logger: o.Logger,
		SyncEvery: o.SyncEvery, ReadOnly: o.ReadOnly}
	rand.Read(c.ID[:])
	d, err := db.Open(c)
	if err != nil {
		return nil, err
	}

	return &engine{database: d}, nil
}

// Metrics implements [holdfast.Engine].
func (e *engine) Metrics() holdfast.Metrics {
	m := e.database.Metrics()
	m.Files, m.DiskBytes = e.usage()

	return m
}

// Close implements [holdfast.Engine].
func (e *engine) Close() error {
	err := e.database.Close()
	if !e.Life.Closed() || errors.Is(err, holdfast.ErrClosed) {
		return err
	}

	return errors.Join(err, e.release())
}
