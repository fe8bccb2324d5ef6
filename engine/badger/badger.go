// Package badger is an engine over github.com/dgraph-io/badger/v4: a log-structured merge
// tree whose log is a mapped file.
//
//	engine, err := badger.Open("/var/lib/orders", holdfast.Options{}) // takes 1.5 GiB of memory
//
// The library runs with SyncWrites off, so a commit is a copy into a shared mapping, which
// survives the process: that is what Memory and Process commits get. For Power the engine
// syncs the library's files itself, once for all batches that were merged into one
// transaction; type logs says which files and in which order, and why DB.Sync is not enough.
//
// Large values live in the library's value log, whose space is never given back: the
// library's collection copies values that a newer tombstone covers, and once a compaction has
// dropped the tombstone with the version it knew of, the copy is alive again.
//
// Options.MemoryBytes below 1.5 GiB is refused: memtables have a fixed size, because a batch of 8 MiB and a log that a
// crash leaves must fit into one, and the library keeps the buffers in which it makes tables. What is named above that
// changes nothing, for there is no block cache; see configure, and the caveats for what was measured.
//
// The library makes and removes files by name, in the background too. If another directory takes the name, the library
// must not touch it: on Linux it works through a handle; see handle. Elsewhere it is given up, not closed, when Close
// finds that the directory was replaced; until then it may make files there.
//
// A directory of the engine has the library's files in its subdirectory data. User keys
// are stored behind one byte, because the library keeps the keys that begin with "!badger!"
// for itself.
//
// How it is built: Open (badger.go) takes the directory, has the library's files looked at and mended (inspect.go),
// and opens the library with the options of describe.go. Writes go through a groupcommit.Committer, which calls
// engine.commit (commit.go) from one goroutine at a time: room.go says whether the disk has room, the library writes
// the transaction, and logs.go syncs. Reading is in read.go. handle.go gives the library a name of the directory that
// cannot be taken by another, and logger.go finds failures that the library only logs.
package badger

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	lib "github.com/dgraph-io/badger/v4"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/driver/groupcommit"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/internal/intervals"
)

// Name is the engine's name in engine/all.
const Name = "badger"

// format is the engine's own, see package datadir.
const format = 1

// keyspace is the byte before every user key.
const keyspace = 'k'

// engine implements [driver.Core]. Reads go to the library at once; all writes pass through group.
type engine struct {
	driver.Engine[*lib.Txn]
	datadir *datadir.Handle
	data    handle
	db      *lib.DB
	group   *groupcommit.Committer
	window  *losswindow.Window
	flush   *flushes

	// Used only by the committing goroutine, see groupcommit.Commit.
	logs  *logs
	room  room
	arena arena

	torn int64        // bytes cut off by Open
	txns atomic.Int64 // library transactions
}

// hooks change the library's options, and let tests replace calls of the operating system.
type hooks struct {
	tune      []func(lib.Options) lib.Options
	write     func(path string) error // asked before a transaction goes to the log at path
	sync      func(path string) error // asked before a file or directory is synced
	freeSpace func(dir string) (uint64, error)
}

// Open opens the engine in dir, which it makes if need be. Errors are those of package
// holdfast: ErrLocked, ErrForeign, ErrVersion, ErrCorrupt, ErrBadOption, ErrLevel, ErrFull, or the
// operating system's.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return OpenWith(dir, o)
}

// OpenWith is [Open] with Badger's options changed by tune, for work that Open's are not right for. What the engine
// relies on stays: the directory, that it syncs by itself, the size of memtables and of the value log's files, and from
// which size values are in it. Memory may then exceed what Capabilities say.
func OpenWith(dir string, o holdfast.Options, tune ...func(lib.Options) lib.Options) (holdfast.Engine, error) {
	return open(dir, o, hooks{tune: tune})
}

// open is OpenWith with hooks. What it has opened it closes again if it fails, the last first: the library before the
// handle, and the directory's lock at the end.
func open(dir string, o holdfast.Options, h hooks) (_ holdfast.Engine, err error) {
	defer func() { err = datadir.Full(err) }()

	// Looked at before anything is made: a refused budget leaves no directory behind.
	if o.MemoryBytes != 0 && o.MemoryBytes < minMemory {
		return nil, &holdfast.Error{Op: "open", Engine: Name, Path: dir, Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("a memory budget of %d bytes, which Badger would exceed", o.MemoryBytes),
			Remedy: fmt.Sprintf("use %d MiB or more, or 0 for the default", minMemory>>20)}
	}
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if err := driver.CheckLevel(Describe(), dir, o.Level); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, driver.NoReadOnly(Name, dir)
	}
	if h.freeSpace == nil {
		h.freeSpace = freeSpace
	}
	hm, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: format,
		Keeps: filepath.Join("data", lib.ManifestFilename)})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, hm.Close())
		}
	}()

	// The library's files have a directory of their own, apart from the mark and the lock.
	data := filepath.Join(hm.Dir, "data")
	if err := datadir.MkdirAll(data); err != nil {
		return nil, failed("open", data, err)
	}

	// What the library would silently cut off, or take for an older state, is looked for before it opens anything.
	left, err := inspect(data, h)
	if err != nil {
		return nil, err
	}
	held, err := openHandle(data)
	if err != nil {
		return nil, failed("open", data, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, held.close())
		}
	}()
	flush := newFlushes()
	db, err := openLibrary(configure(held, o, flush, h.tune))
	if err != nil {
		return nil, openFailed(data, held.err(err))
	}
	e := &engine{datadir: hm, data: held, db: db, flush: flush, torn: left.torn}

	// The library may have made new files, and replayed logs that a crash has left: newLogs syncs them all.
	if e.logs, err = newLogs(data, h); err != nil {
		return nil, errors.Join(failed("open", data, err), db.Close())
	}

	// All is on the device, so the directory may count as made.
	if err := hm.Made(); err != nil {
		return nil, errors.Join(err, e.logs.close(), db.Close())
	}
	e.room = room{dir: data, freeSpace: h.freeSpace, check: hm.Check}

	// Groups are merged only to far below the limits of a transaction, which the library refuses to exceed.
	e.group = groupcommit.New(Name, maxGroupBytes, e.commit)
	e.group.OnPoison(e.Life.Poison)
	e.group.LimitOps(maxGroupOps)

	// From here on a flush that fails in the background poisons the engine.
	poison := func(cause error) { _ = e.group.Fail(failed("write", data, held.err(cause))) }

	// Failures before this line are in flush.failed alone; there is no group yet that could be poisoned.
	flush.poison.Store(&poison)
	every := o.SyncEvery
	if !canSync {
		every = 0
	}
	e.window = losswindow.New(every, e.Settle)
	caps := Describe()
	caps.Settings, caps.LossWindow = settings(db), e.window.Every()
	caps.Lost, caps.Accepted = hm.Lost, hm.Accepted
	e.Init(e, caps, hm.Dir)

	return e, nil
}

// openLibrary opens the library and turns a panic on damaged files into an error.
func openLibrary(o lib.Options) (db *lib.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()

	return lib.Open(o)
}

// Write implements [driver.Core].
func (e *engine) Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	var r holdfast.Receipt
	var err error
	if b.HasRange() {
		// The library has no range deletes. The keys in the ranges are looked up when everything before is known: committed,
		// or pending.
		x := expansion{}
		x.covered, x.ops = intervals.Split(slices.Collect(b.Ops()))

		// The size is checked only then, because it depends on what the ranges hold.
		r, err = e.group.ApplyChecked(&x.plain, level, x.pending, func() error {
			e.expand(&x)
			return fits(&x.plain, true)
		})
	} else {
		if err := fits(b, false); err != nil {
			return holdfast.Receipt{}, err
		}
		r, err = e.group.Apply(b, level)
	}
	if err == nil && level < holdfast.Power {
		e.window.Dirty()
	}

	return r, err
}

// Sync implements [holdfast.Engine].
func (e *engine) Sync() error {
	if !canSync && !e.Life.Closed() {
		return e.Caps.CheckLevel(holdfast.Power)
	}

	return e.Engine.Sync()
}

// Settle implements [driver.Core].
func (e *engine) Settle() error {
	if canSync {
		return e.group.Sync()
	}

	return e.group.Flush()
}

// Measure implements [driver.Core]. Syncs counts the engine's own; the library adds two for
// every table it makes in the background. MemoryBytes is the memtables, each of which has a log; the library does not
// say how large its buffers for making tables are.
func (e *engine) Measure(m *holdfast.Metrics) {
	e.group.Fill(m)
	m.Groups = e.txns.Load()
	m.Syncs = e.logs.syncs.Load()

	// A log of the library has its full size from the beginning, most of it a hole; Usage counts what is allocated.
	m.Files, m.DiskBytes = datadir.Usage(e.datadir.Dir)
	m.TornBytes = e.torn
	if memtables, err := numbered(e.logs.dir, ".mem"); err == nil {
		m.MemoryBytes = int64(len(memtables)) * arenaBytes
	} else {
		m.MemoryBytes = 0
	}
}

// Release implements [driver.Core].
func (e *engine) Release(err error) error {
	// The window's sync goes through the group, so it ends first.
	e.window.Stop()

	// Close waits for what is queued. Nothing is committed from here on, so that logs and room have no other user.
	if poison := e.group.Close(); err == nil {
		err = poison
	}

	return errors.Join(err, e.release())
}

// release closes the library and gives the directory back. If the library cannot make a table of
// what is in memory, or has no room to try it, release gives up on it: the log of it stays,
// and the next Open replays it. But the library goes on trying, and keeps the directory until
// it succeeds or the process ends.
func (e *engine) release() error {
	if err := e.datadir.Check(); err != nil && e.data.file == nil {
		// The library would remove its logs by name, and the name now leads to another directory.
		return errors.Join(err, e.logs.close(), e.datadir.Close())
	}

	// The channel has room for the result: if release gives up, the goroutine can still end later.
	closed := make(chan error, 1)
	go func() {
		for {
			// The library tries a flush that fails again without end. So it is not closed before there is room.
			err := e.room.need(uint64(e.logs.fill.bound()) + openFree)
			if !datadir.NoRoom(err) {
				break
			}
			e.flush.report(err)
			time.Sleep(time.Second)
		}
		err := failed("close", e.datadir.Dir, e.data.err(e.db.Close()))
		closed <- errors.Join(err, failed("close", e.datadir.Dir, e.logs.close()), e.data.close(), e.datadir.Close())
	}()

	for failures := 0; ; {
		select {
		case err := <-closed:
			return err
		case cause := <-e.flush.failed:
			if failures++; failures == 2 { // the first may be old
				return failed("close", e.datadir.Dir, e.data.err(cause))
			}
		}
	}
}

// failed wraps an error of the operating system or the library.
func failed(op, path string, err error) error {
	var known *holdfast.Error
	if err == nil || errors.As(err, &known) {
		return err
	}

	return &holdfast.Error{Op: op, Engine: Name, Path: path, Cause: datadir.SystemError(err)}
}

// openFailed is failed for what the library says of its files on opening: if it is not the
// operating system that refuses something, the files are damaged.
func openFailed(path string, err error) error {
	return unreadable("open", path, 0, err)
}

// unreadable is failed for what cannot be read.
func unreadable(op, path string, offset int64, err error) error {
	if err = datadir.SystemError(err); datadir.OfSystem(err) {
		return failed(op, path, err)
	}

	return corrupt(op, path, offset, err)
}

// corrupt returns ErrCorrupt for damage at offset of path.
func corrupt(op, path string, offset int64, cause error) error {
	return &holdfast.Error{Op: op, Engine: Name, Path: path, Offset: offset, Class: holdfast.ErrCorrupt, Cause: cause,
		Remedy: "restore the directory from a backup"}
}
