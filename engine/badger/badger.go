// Package badger is an engine over github.com/dgraph-io/badger/v4: a log-structured merge
// tree whose log is a mapped file.
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
// goes to the block cache; see configure, and the caveats for what was measured.
//
// The library makes and removes files by name, in the background too. So that it does nothing to another directory
// that has come to have the name, on Linux it works through a handle; see handle. Elsewhere it is given up, not
// closed, when Close finds that the directory was replaced; until then it may make files there.
//
// A directory of the engine has the library's files in its subdirectory data. User keys
// are stored behind one byte, because the library keeps the keys that begin with "!badger!"
// for itself.
package badger

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	lib "github.com/dgraph-io/badger/v4"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/gate"
	"github.com/holdfastdb/holdfast/engine/internal/groupcommit"
	"github.com/holdfastdb/holdfast/engine/internal/intervals"
	"github.com/holdfastdb/holdfast/engine/internal/losswindow"
	"github.com/holdfastdb/holdfast/internal/datadir"
)

// Name is the engine's name in engine/all.
const Name = "badger"

// format is the engine's own, see package datadir.
const format = 1

// keyspace is the byte before every user key.
const keyspace = 'k'

type engine struct {
	home   *datadir.Handle
	data   handle
	db     *lib.DB
	caps   holdfast.Capabilities
	gate   gate.Gate
	group  *groupcommit.Committer
	window *losswindow.Window
	flush  *flushes

	// Used by the one who commits, see groupcommit.Commit.
	logs  *logs
	room  room
	arena arena

	torn     int64        // bytes cut off by Open
	txns     atomic.Int64 // library transactions
	barriers atomic.Int64 // empty batches of our own
}

// hooks are what tests put in the place of the operating system.
type hooks struct {
	write     func(path string) error // asked before a transaction goes to the log at path
	sync      func(path string) error // asked before a file or directory is synced
	freeSpace func(dir string) (uint64, error)
}

// Open opens the engine in dir, which it makes if need be. Errors are those of package
// holdfast: ErrLocked, ErrForeign, ErrVersion, ErrCorrupt, ErrBadOption, ErrLevel, or the
// operating system's.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return open(dir, o, hooks{})
}

func open(dir string, o holdfast.Options, h hooks) (_ holdfast.Engine, err error) {
	if o.MemoryBytes != 0 && o.MemoryBytes < minMemory {
		return nil, &holdfast.Error{Op: "open", Engine: Name, Path: dir, Class: holdfast.ErrBadOption,
			Detail: fmt.Sprintf("a memory budget of %d bytes, which Badger would exceed", o.MemoryBytes),
			Remedy: fmt.Sprintf("use %d or more, or 0 for the default", minMemory)}
	}
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, gate.NoReadOnly(Name, dir)
	}
	if h.freeSpace == nil {
		h.freeSpace = freeSpace
	}
	hm, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: format, Keeps: filepath.Join("data", lib.ManifestFilename)})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, hm.Close())
		}
	}()
	data := filepath.Join(hm.Dir, "data")
	if err := datadir.MkdirAll(data); err != nil {
		return nil, failed("open", data, err)
	}
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
	db, err := openLibrary(configure(held, o, flush))
	if err != nil {
		return nil, openFailed(data, held.err(err))
	}
	e := &engine{home: hm, data: held, db: db, flush: flush, caps: Describe(), torn: left.torn}
	e.gate.Name(Name, hm.Dir)
	e.caps.Settings, e.caps.Lost = settings(db), hm.Lost
	if e.logs, err = newLogs(data, h); err != nil {
		return nil, errors.Join(failed("open", data, err), db.Close())
	}
	if err := hm.Made(); err != nil {
		return nil, errors.Join(err, e.logs.close(), db.Close())
	}
	e.room = room{dir: data, freeSpace: h.freeSpace, check: hm.Check}
	e.group = groupcommit.New(Name, maxGroupBytes, e.commit)
	e.group.LimitOps(maxGroupOps)
	poison := func(cause error) { _ = e.group.Fail(failed("write", data, held.err(cause))) }
	flush.poison.Store(&poison)
	every := o.SyncEvery
	if !canSync {
		every = 0
	}
	e.window = losswindow.New(every, e.barrier)
	e.caps.LossWindow = e.window.Every()
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

// Apply implements [holdfast.Engine].
func (e *engine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := e.gate.Enter(); err != nil {
		return holdfast.Receipt{}, err
	}
	defer e.gate.Leave()
	if err := e.caps.CheckLevel(level); err != nil {
		return holdfast.Receipt{}, err
	}
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	var r holdfast.Receipt
	var err error
	if b.HasRange() {
		x := expansion{}
		x.covered, x.ops = intervals.Split(slices.Collect(b.Ops()))
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

// barrier returns when everything applied before is on the device.
func (e *engine) barrier() error {
	e.barriers.Add(1)
	r, err := e.group.Apply(new(holdfast.Batch), holdfast.Power)
	if err != nil {
		e.barriers.Add(-1)
		return err
	}
	return r.Wait()
}

// Sync implements [holdfast.Engine].
func (e *engine) Sync() error {
	if err := e.gate.Enter(); err != nil {
		return err
	}
	defer e.gate.Leave()
	if err := e.caps.CheckLevel(holdfast.Power); err != nil {
		return err
	}
	return e.barrier()
}

// Get implements [holdfast.Reader].
func (e *engine) Get(dst, key []byte) ([]byte, error) {
	if err := e.gate.Enter(); err != nil {
		return dst, err
	}
	defer e.gate.Leave()
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	txn := e.db.NewTransaction(false)
	defer txn.Discard()
	return e.get(txn, dst, key)
}

// Scan implements [holdfast.Reader].
func (e *engine) Scan(r holdfast.Range) holdfast.Iterator {
	if err := e.gate.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer e.gate.Leave()
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}
	v := newView(e)
	defer v.release() // the iterator holds it too
	return newIterator(v, r)
}

// Snapshot implements [holdfast.Engine].
func (e *engine) Snapshot() (holdfast.Snapshot, error) {
	if err := e.gate.Enter(); err != nil {
		return nil, err
	}
	defer e.gate.Leave()
	e.gate.AddSnapshot(1)
	return &snapshot{view: newView(e)}, nil
}

// Capabilities implements [holdfast.Engine].
func (e *engine) Capabilities() holdfast.Capabilities { return e.caps }

// Metrics implements [holdfast.Engine]. Syncs counts the engine's own; the library adds two for
// every table it makes in the background. MemoryBytes is the cache and the memtables, each of which has
// a log; the library does not say how large its buffers for making tables are.
func (e *engine) Metrics() holdfast.Metrics {
	m := holdfast.UnknownMetrics()
	e.gate.Fill(&m)
	e.group.Fill(&m)
	m.Commits -= e.barriers.Load()
	m.Groups = e.txns.Load()
	m.Syncs = e.logs.syncs.Load()
	m.Files, m.DiskBytes = datadir.Usage(e.home.Dir)
	m.TornBytes = e.torn
	if memtables, err := numbered(e.logs.dir, ".mem"); err == nil {
		m.MemoryBytes = int64(len(memtables)) * arenaBytes
	} else {
		m.MemoryBytes = 0
	}
	if b := e.db.BlockCacheMetrics(); b != nil {
		m.MemoryBytes += int64(b.CostAdded() - b.CostEvicted())
	}
	return m
}

// Close implements [holdfast.Engine].
func (e *engine) Close() error {
	err := e.gate.Close(func() error {
		if canSync {
			return e.barrier()
		}
		return e.group.Flush()
	})
	if !e.gate.Closed() || errors.Is(err, holdfast.ErrClosed) {
		return err
	}
	e.window.Stop()
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
	if err := e.home.Check(); err != nil && e.data.file == nil {
		// The library would remove its logs by name, which are another's now.
		return errors.Join(err, e.logs.close(), e.home.Close())
	}
	closed := make(chan error, 1)
	go func() {
		for {
			err := e.room.need(uint64(e.logs.fill.bound()) + openFree)
			if !errors.Is(err, syscall.ENOSPC) {
				break
			}
			e.flush.report(err)
			time.Sleep(time.Second)
		}
		err := failed("close", e.home.Dir, e.data.err(e.db.Close()))
		closed <- errors.Join(err, failed("close", e.home.Dir, e.logs.close()), e.data.close(), e.home.Close())
	}()
	for failures := 0; ; {
		select {
		case err := <-closed:
			return err
		case cause := <-e.flush.failed:
			if failures++; failures == 2 { // the first may be old
				return failed("close", e.home.Dir, e.data.err(cause))
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
	return &holdfast.Error{Op: op, Engine: Name, Path: path, Cause: systemError(err)}
}

// openFailed is failed for what the library says of its files on opening: if it is not the
// operating system that refuses something, the files are damaged.
func openFailed(path string, err error) error {
	cause := systemError(err)
	if cause == err {
		return corrupt("open", path, 0, err)
	}
	return failed("open", path, cause)
}

func corrupt(op, path string, offset int64, cause error) error {
	return &holdfast.Error{Op: op, Engine: Name, Path: path, Offset: offset, Class: holdfast.ErrCorrupt, Cause: cause,
		Remedy: "restore the directory from a backup"}
}

// systemError makes err unwrap to the error number that its text tells of: the library keeps
// only texts.
func systemError(err error) error {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EACCES, syscall.EPERM, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO} {
		if !errors.Is(err, errno) && strings.Contains(err.Error(), errno.Error()) {
			return &textError{err, errno}
		}
	}
	return err
}

type textError struct {
	error
	errno syscall.Errno
}

func (e *textError) Unwrap() error { return e.errno }
