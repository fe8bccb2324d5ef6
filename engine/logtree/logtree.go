// Package logtree is Holdfast's own engine: a log that is the database. Every value has one
// home, in an append-only log; everything else only helps to find it and can be rebuilt.
// There is no second log, no compaction rewrites a value that is alive among others that are, and space
// is given back by whole files. All three levels are given per commit, in one open directory.
//
//	Memory   copied to the log's tail in memory and indexed
//	Process  the tail is in the log's file, by a store to its mapping or a write call
//	Power    the file is synced as well, one fdatasync for all that wait
//
// The file format is in docs/format-logtree.md, the reasons for what is chosen in docs/decisions.
package logtree

import (
	"crypto/rand"
	"errors"
	"fmt"
	"runtime"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/home"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/vfs"
)

// Name is the engine's name in engine/all.
const Name = db.Name

// format is that of the directory; its files have versions of their own.
const format = 1

// DefaultMemory is the budget in bytes when none is named.
const DefaultMemory = 128 << 20

// Describe says what the engine gives.
func Describe() holdfast.Capabilities {
	how := "write to the log's file"
	if runtime.GOOS == "linux" {
		how = "store to the mapping of the log's file"
	}
	return holdfast.Capabilities{
		Engine:            Name,
		Memory:            holdfast.Promise{Given: holdfast.Memory, How: "copied to the log's tail in memory and indexed"},
		Process:           holdfast.Promise{Given: holdfast.Process, How: how},
		Power:             holdfast.Promise{Given: holdfast.Power, How: "write to the log and fdatasync, shared by all that wait"},
		LossWindow:        holdfast.DefaultSyncEvery,
		AtomicBatches:     true,
		NativeDeleteRange: true,
		Checksums:         true,
		MaxKeySize:        holdfast.MaxKeySize,
		MaxValueSize:      holdfast.MaxValueSize,
		MaxBatchSize:      db.MaxBatch,
		Caveats: []string{
			"After a crash, damage to commits that nothing written later says to have been synced cannot be told from a torn tail, and is cut off.",
			"A failed write or sync of any file, also in the background, poisons the engine.",
		},
	}
}

// Engine is an open logtree; see [Open].
type Engine struct {
	*db.DB
	home *home.Home
	caps holdfast.Capabilities
}

// Open opens or makes the database in dir. Options.Level is ignored: every level is given.
//
// Options.MemoryBytes, 128 MiB unless named, is shared by the memtables (up to three of a fifth of
// it each) and what is kept of runs, the indexes of keys (three tenths). What else is kept of files is the
// operating system's.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return OpenFS(vfs.OS(), dir, o)
}

// OpenFS is Open with the engine's files, but not the identity and the lock of the directory, on
// another file system. It is for tests that make it fail; dir must be there, or possible to
// make, on the real one too.
func OpenFS(fsys vfs.FS, dir string, o holdfast.Options) (_ holdfast.Engine, err error) {
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemory
	}
	h, err := home.Open(dir, home.Identity{Engine: Name, Format: format, Keeps: "MANIFEST", Salvage: "salvage what is intact: holdfast repair"})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	c := db.Config{FS: fsys, Dir: h.Dir, New: h.New, Memory: o.MemoryBytes, Logger: o.Logger, SyncEvery: o.SyncEvery}
	rand.Read(c.ID[:])
	d, err := db.Open(c)
	if err != nil {
		return nil, err
	}
	if err := h.Made(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	e := &Engine{DB: d, home: h, caps: Describe()}
	e.caps.LossWindow = max(o.SyncEvery, 0)
	e.caps.Settings = append(d.Settings(), holdfast.Setting{Name: "memory", Value: fmt.Sprint(o.MemoryBytes)})
	return e, nil
}

// Capabilities implements [holdfast.Engine].
func (e *Engine) Capabilities() holdfast.Capabilities { return e.caps }

// Metrics implements [holdfast.Engine].
func (e *Engine) Metrics() holdfast.Metrics {
	m := e.DB.Metrics()
	m.Files, m.DiskBytes = home.Usage(e.home.Dir)
	return m
}

// Close implements [holdfast.Engine].
func (e *Engine) Close() error {
	err := e.DB.Close()
	if !e.DB.Closed() || errors.Is(err, holdfast.ErrClosed) {
		return err
	}
	return errors.Join(err, e.home.Close())
}
