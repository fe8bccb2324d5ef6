// Package bbolt is the engine over go.etcd.io/bbolt, a copy-on-write B+ tree in one
// memory-mapped file with one writer at a time.
//
//	engine, err := bbolt.Open("/var/lib/orders", holdfast.Options{Level: holdfast.Power})
//
// bbolt syncs twice per transaction, so batches of concurrent writers are merged into one
// transaction and share its syncs.
//
// A directory is bound to a level when it is made, by [holdfast.Options.Level]:
//
//   - power (the default): every transaction is synced, whatever level its batches ask
//     for. After any crash the last synced state is there, whole.
//   - process (also made by memory): bbolt's NoSync. Pages and the meta page that names them
//     go to the operating system without order between them, so a power cut may leave a
//     meta page that names pages which never arrived: the store is then lost as a whole,
//     with everything that had been synced before. Commits at Power are refused, since they
//     could not be kept safe from the next commit.
//
// The directory holds data.bbolt, which any tool for bbolt reads: one bucket, "kv".
//
// How it is built: Open has the file's structure checked (boltpages), opens it, and hands batches to a
// groupcommit.Committer, whose leader calls engine.commit; all of that is in bbolt.go. Reading is in read.go.
// compact.go replaces the file by a copy without its free pages. map_unix.go and map_windows.go say how much of the
// file is mapped.
package bbolt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/driver/groupcommit"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/engine/bbolt/boltpages"
	"github.com/holdfastdb/holdfast/engine/internal/modversion"
	"github.com/holdfastdb/holdfast/internal/intervals"
)

// Name is the engine's name in engine/all.
const Name = "bbolt"

const (
	format   = 1
	fileName = "data.bbolt"

	// maxBatchSize bounds the memory of one transaction, which holds a copy of every page
	// it changes until it is written: about three times the batch.
	maxBatchSize = 256 << 20
	// maxGroupSize bounds what is merged: far above what 64 writers queue up, and written
	// in some milliseconds.
	maxGroupSize = 8 << 20
	// sortFrom is the number of operations from which a transaction is applied in key
	// order: bbolt splits a leaf only at commit, so random inserts into one leaf cost the
	// square of their number, ascending ones do not.
	sortFrom = 128
	// rangeChunk is how many keys of a DeleteRange are held at a time: 24 bytes each, in addition to the pages, which
	// bbolt holds until the transaction ends.
	rangeChunk = 4096
)

var bucketName = []byte("kv")

// engine implements [driver.Core]. bbolt lets readers go on while it writes; all writes pass through committer.
type engine struct {
	driver.Engine[*view]
	tune      []func(*bbolt.Options)
	datadir   *datadir.Handle
	swap      sync.RWMutex // guards db and users, which the committer's leader replaces
	db        *bbolt.DB
	users     *atomic.Int64 // of db: the engine and each view; the last one closes it
	file      *os.File      // db's own
	level     holdfast.Level
	readOnly  bool
	mapped    int // bytes of address space reserved at Open
	pageSize  int
	committer *groupcommit.Committer
	window    *losswindow.Window
	hold      func() // set by tests: called before a commit at Power; nil otherwise

	// Only the committer's leader touches these.
	ops        []holdfast.Op
	unsynced   bool // a transaction was committed without a sync
	stuck      bool // bbolt's write lock is taken: during a commit, or after a panic that left it locked
	fileSize   int64
	looked     int64 // bytes written when the free pages were counted last
	sparseFrom int64 // free pages from which the file may be copied without them

	syncs   atomic.Int64
	written atomic.Int64
}

// Open opens or makes the store in dir. o.Level binds a new directory; an old one must be
// opened with the level it was made for, or the error is ErrForeign.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) { return OpenWith(dir, o) }

// OpenWith is [Open] with bbolt's options changed by tune, for work that Open's are not right for. What the engine
// relies on stays: the level, the lock, the mapping and the page size. With NoFreelistSync, opening reads every page in
// use, twice, and only Compact replaces the file by a copy without its free pages.
func OpenWith(dir string, o holdfast.Options, tune ...func(*bbolt.Options)) (_ holdfast.Engine, err error) {
	defer func() { err = datadir.Full(err) }()
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if err := driver.CheckLevel(Describe(), dir, o.Level); err != nil {
		return nil, err
	}
	level := max(o.Level, holdfast.Process)
	h, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: format, Level: level, Keeps: fileName,
		ReadOnly: o.ReadOnly})
	if err != nil {
		return nil, err
	}
	e := &engine{tune: tune, datadir: h, level: level, users: new(atomic.Int64), sparseFrom: compactFrom,
		readOnly: o.ReadOnly}

	// The engine's own use: db is not closed while it is 1 or more.
	e.users.Store(1)
	if err := e.open(); err != nil {
		if e.file != nil {
			e.file.Close() // after a panic bbolt does not close it
		}
		h.Close()

		return nil, err
	}

	// The file was whole and on the device before it got its name.
	if err := h.Made(); err != nil {
		return nil, errors.Join(err, e.db.Close(), h.Close())
	}
	e.committer = groupcommit.New(Name, maxGroupSize, e.commit)
	e.committer.OnPoison(e.Life.Poison)
	e.window = losswindow.New(o.SyncEvery, e.Settle)
	e.Init(e, e.describe(), h.Dir)

	return e, nil
}

// open opens the data file, making it under another name first: a file that is there under
// its own name was whole and synced.
func (e *engine) open() (err error) {
	// A page that the device cannot read is a fault of the mapping, which ends the process unless it is made a panic.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer e.catch("open", &err)
	path := e.path()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := e.create(path); err != nil {
			return e.fail("open", err)
		}
	}
	_ = os.Remove(path + ".new") // of a process that died while it copied the file

	// Before bbolt reads the file: some damage would end the process in a way that nothing can catch.
	if err := boltpages.CheckFile(path, boltpages.Inline); err != nil {
		return e.fail("open", err)
	}
	// bbolt waits for all readers when it must map more of the file, so enough address
	// space is reserved for that never to happen. It falls back where the system limits it.
	e.mapped = mapSize(path)

	// Where the system limits address space, half is tried, and half of that, and at last none.
	for {
		e.db, err = bbolt.Open(path, 0o644, e.options(e.mapped))
		if err == nil {
			break
		}
		if !outOfAddressSpace(err) || e.mapped == 0 {
			return e.fail("open", err)
		}
		e.mapped /= 2
		if e.mapped < 1<<20 {
			e.mapped = 0
		}
	}
	err = e.db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketName) == nil {
			return e.corrupt("open", `bucket "kv" is missing`, nil)
		}

		return nil
	})
	if err == nil && !e.readOnly {
		// A process that died in the middle of a commit may have left its last meta page
		// in the page cache alone.
		err = e.db.Sync()
		e.syncs.Add(1)
	}
	if err == nil {
		// The page size is the file's, which another machine may have made with another one.
		e.pageSize = e.db.Info().PageSize
		e.fileSize, err = e.size()
	}
	if err == nil {
		err = e.compactIfSparse(compactLiveOpening)
	}
	if err != nil {
		return errors.Join(e.fail("open", err), e.db.Close())
	}

	return nil
}

// create makes a new data file, all of it on the device.
func (e *engine) create(path string) error {
	// It has another name until it is whole: a crash leaves a file that the next try removes.
	making := path + ".new"
	if err := os.Remove(making); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o := e.options(0)

	// A new file is synced in a directory made for process too, or its name could come to the device before its pages.
	o.NoSync = false
	db, err := bbolt.Open(making, 0o644, o)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket(bucketName)
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}

	return datadir.Rename(making, path) // bbolt never syncs the directory
}

// options are bbolt's for the file in use or a new one, with mapped bytes of address space. Opening with them sets
// e.file.
func (e *engine) options(mapped int) *bbolt.Options {
	o := &bbolt.Options{
		// Every commit writes the list of free pages in order, which the array keeps it in and
		// the hash map must sort; decision 10 has the figures.
		FreelistType: bbolt.FreelistArrayType,
		NoStatistics: true, // they take a lock that readers share
	}
	for _, change := range e.tune {
		change(o)
	}
	// The directory is locked already: the program that holds the file does not use Holdfast.
	o.Timeout = time.Millisecond
	o.NoSync, o.ReadOnly, o.InitialMmapSize, o.PageSize = e.level < holdfast.Power, e.readOnly, mapped, 0

	// bbolt keeps its file to itself, and the engine asks for its size and reads its meta pages.
	o.OpenFile = func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
		f, err = os.OpenFile(name, flag, mode)
		e.file = f

		return f, err
	}

	return o
}

// path is that of the data file.
func (e *engine) path() string { return filepath.Join(e.datadir.Dir, fileName) }

// size is how long the file is now.
func (e *engine) size() (int64, error) {
	st, err := e.file.Stat()
	if err != nil {
		return 0, err
	}

	return st.Size(), nil
}

// Describe says what the engine gives; what an open one gives depends on its directory.
func Describe() holdfast.Capabilities {
	return holdfast.Capabilities{
		Engine:  Name,
		Library: modversion.Version("go.etcd.io/bbolt"),
		Memory: holdfast.Promise{Given: holdfast.Process,
			How: "one NoSync transaction per group, in a directory made for process",
			Why: "a transaction is written to the file before it is visible", CutMayCorrupt: true},
		Process: holdfast.Promise{Given: holdfast.Process,
			How: "one NoSync transaction per group, in a directory made for process", CutMayCorrupt: true},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "one transaction per group: pages, fdatasync, meta page, fdatasync; in a directory made for power"},

		AtomicBatches: true,
		MaxKeySize:    holdfast.MaxKeySize,
		MaxValueSize:  holdfast.MaxValueSize,
		MaxBatchSize:  maxBatchSize,
		ReadOnly:      true,
		Caveats: []string{
			"A directory is made for level process or for level power, and stays so.",
			"In a directory made for process a power cut may leave the whole store unreadable. Sync and the loss window make " +
				"it safe only until the next commit; Close makes it safe until it is opened.",
			"Only the two meta pages carry checksums: damage to other pages is found when it breaks the tree, damage inside a " +
				"value is not found, and damage to the newest meta page brings back the state before the last commit.",
			"Every commit writes the list of free pages, those that an open snapshot or iterator needs among them: some MiB " +
				"where GiB are free. When 128 MiB are free and twice as many pages as are live, the file is replaced by a copy " +
				"without them: while commits wait if 64 MiB or less are live, and at opening if 256 MiB or less are, which takes " +
				"some seconds. Otherwise it never shrinks. The old file takes its room until those who read from it are done.",
			mapCaveat,
		},
	}
}

// describe says what the open engine gives.
func (e *engine) describe() holdfast.Capabilities {
	c := Describe()
	c.LossWindow, c.Lost, c.Accepted = e.window.Every(), e.datadir.Lost, e.datadir.Accepted
	if e.readOnly {
		c = c.ForReading()
	} else if e.level == holdfast.Power {
		const why = "the directory was made for power: without a sync, a power cut could take earlier commits too"
		c.Memory, c.Process = c.Power, c.Power
		c.Memory.Why, c.Process.Why = why, why
	} else {
		c.Power = holdfast.Promise{Why: "the directory was made for process: the next commit could put a synced one at risk"}
	}
	c.Settings = []holdfast.Setting{
		{Name: "level", Value: e.level.String()},
		{Name: "no_sync", Value: strconv.FormatBool(e.db.NoSync)},
		{Name: "no_grow_sync", Value: strconv.FormatBool(e.db.NoGrowSync)},
		{Name: "no_freelist_sync", Value: strconv.FormatBool(e.db.NoFreelistSync)},
		{Name: "freelist_type", Value: string(e.db.FreelistType)},
		{Name: "page_size", Value: strconv.Itoa(e.pageSize)},
		{Name: "alloc_size", Value: strconv.Itoa(e.db.AllocSize)},
		{Name: "initial_mmap_size", Value: strconv.Itoa(e.mapped)},
		{Name: "memory_budget", Value: "none: bbolt reads through the page cache"},
	}

	return c
}

// Write implements [driver.Core].
func (e *engine) Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	r, err := e.committer.Apply(b, level)
	if err == nil {
		e.window.Dirty() // also at power: the receipt may never be waited for
	}

	return r, err
}

// commit makes one transaction of a group, if there is anything in it. In a directory made for
// process only sync asks for Power.
func (e *engine) commit(b *holdfast.Batch, level holdfast.Level) error {
	if e.hold != nil && level == holdfast.Power {
		e.hold()
	}

	// An empty batch only asks for a sync.
	if b.Len() > 0 {
		tx, err := e.transact(b)

		// A panic has left bbolt's write lock taken. It is given back where that works, so that Close does not wait for
		// it.
		if err != nil {
			if e.stuck && tx != nil {
				e.abandon(tx)
			}

			return e.fail("commit", err)
		}

		// Looking costs two reads, so it is done now and then, and here, where no transaction is open.
		e.count(tx.Stats())
		if written := e.written.Load(); written-e.looked > lookEvery {
			e.looked = written
			if err := e.compactIfSparse(compactLive); err != nil {
				return e.fail("compact", err)
			}
		}
	}
	if level < holdfast.Power {
		return nil
	}
	if e.unsynced {
		if err := e.db.Sync(); err != nil {
			return e.fail("sync", err)
		}
		e.syncs.Add(1)
		e.unsynced = false
	}

	return e.datadir.Check() // bbolt has its one file open, which may no longer be in the directory
}

// transact makes one transaction of b, and turns a panic into ErrCorrupt. After one stuck says that bbolt's write lock
// is still taken; tx can then be rolled back.
func (e *engine) transact(b *holdfast.Batch) (tx *bbolt.Tx, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer e.catch("commit", &err)

	// Until bbolt has come back, its write lock is held: a panic leaves it so, and then nothing may wait for it.
	e.stuck = true
	if tx, err = e.db.Begin(true); err == nil {
		if err = e.change(tx.Bucket(bucketName), b); err == nil {
			err = tx.Commit() // which rolls back if it fails
		} else {
			_ = tx.Rollback()
		}
	}
	e.stuck = false

	return tx, err
}

// abandon releases the write lock after a panic, if bbolt still can.
func (e *engine) abandon(tx *bbolt.Tx) {
	// A second panic, in Rollback, leaves stuck as it is: the lock cannot be had back.
	var err error
	defer e.catch("roll back", &err)
	_ = tx.Rollback()
	e.stuck = false
}

// count derives from what bbolt tells how often it has synced and how much it has written: two
// syncs for each transaction unless NoSync, and one when the file grew; every page that was
// allocated, and the meta page.
func (e *engine) count(s bbolt.TxStats) {
	e.written.Add(s.GetPageAlloc() + int64(e.pageSize))
	if e.db.NoSync {
		e.unsynced = true
	} else {
		e.syncs.Add(2)
	}

	// bbolt syncs the file after it has made it longer.
	if size, err := e.size(); err == nil && size != e.fileSize {
		e.fileSize = size
		e.syncs.Add(1)
	}
}

// change carries out b's operations, the ranges first and in key order where that makes no
// difference to the outcome but to the time.
func (e *engine) change(kv *bbolt.Bucket, b *holdfast.Batch) error {
	if b.Len() < sortFrom && !b.HasRange() {
		for op := range b.Ops() {
			if err := apply(kv, op); err != nil {
				return err
			}
		}

		return nil
	}

	e.ops = e.ops[:0]
	for op := range b.Ops() {
		e.ops = append(e.ops, op)
	}

	all := e.ops

	// The operations lie in the batch's memory, which must not stay alive with the slice.
	defer clear(all)

	// Split drops what a later range covers, so that ranges may go first.
	if b.HasRange() {
		var covered intervals.Union
		covered, e.ops = intervals.Split(all)
		for _, r := range covered {
			if err := e.deleteRange(kv.Cursor(), kv.Delete, r); err != nil {
				return err
			}
		}
	}

	// Keys in order touch each page once. A later operation on the same key comes later, and wins.
	slices.SortStableFunc(e.ops, func(a, b holdfast.Op) int { return bytes.Compare(a.Key, b.Key) })

	for i, op := range e.ops {
		if i+1 < len(e.ops) && bytes.Equal(op.Key, e.ops[i+1].Key) {
			continue // a later one wins
		}
		if err := apply(kv, op); err != nil {
			return err
		}
	}

	return nil
}

// apply carries out sets and deletes of single keys.
func apply(kv *bbolt.Bucket, op holdfast.Op) error {
	if op.Kind == holdfast.KindSet {
		return kv.Put(op.Key, op.Value)
	}

	return kv.Delete(op.Key)
}

// cursor is the part of bbolt.Cursor that deleteRange needs.
type cursor interface {
	Seek(key []byte) (k, v []byte)
	Next() (k, v []byte)
}

// deleteRange deletes the keys in r one by one. c and remove belong to the same bucket.
//
// A cursor loses its place when a key is deleted, and an emptied leaf stays in the tree until commit: searching from
// the beginning each time would walk over all emptied leaves. So deleteRange collects up to rangeChunk keys, deletes
// them, and goes on from the last of them.
func (e *engine) deleteRange(c cursor, remove func([]byte) error, r intervals.Interval) error {
	var keys [][]byte // in the mapped file or in bbolt's nodes, for as long as the transaction lasts
	from := r.Lo

	for {
		k, _ := c.Seek(from)

		// A damaged tree may lead back, and the loop would never end.
		if len(keys) > 0 && k != nil && bytes.Compare(k, from) <= 0 {
			return e.corrupt("commit", "keys are out of order", nil)
		}

		for keys = keys[:0]; k != nil && (len(r.Hi) == 0 || bytes.Compare(k, r.Hi) < 0) && len(keys) < rangeChunk; k,
			_ = c.Next() {
			keys = append(keys, k)
		}
		if len(keys) == 0 {
			return nil
		}
		// The last first: deleting a key moves all keys behind it in its leaf.
		for _, key := range slices.Backward(keys) {
			if err := remove(key); err != nil {
				return err
			}
		}
		from = keys[len(keys)-1]
	}
}

// Settle implements [driver.Core]. In a directory made for process, the next commit puts at risk again what Settle made
// safe; see [Describe].
func (e *engine) Settle() error { return e.committer.Sync() }

// Measure implements [driver.Core].
func (e *engine) Measure(m *holdfast.Metrics) {
	e.committer.Fill(m)
	m.Syncs, m.BytesWritten = e.syncs.Load(), e.written.Load()
	m.Files, m.DiskBytes = datadir.Usage(e.datadir.Dir)
	m.Stalls = 0    // there is no background work
	m.TornBytes = 0 // an unfinished transaction leaves no tail
}

// Release implements [driver.Core].
func (e *engine) Release(settled error) error {
	e.window.Stop()
	_ = e.committer.Close() // its poison is in settled

	// The file is closed under bbolt; what is mapped stays until the process ends.
	if e.stuck {
		// bbolt's Close would wait for the write lock forever.
		return errors.Join(settled, e.file.Close(), e.datadir.Close())
	}

	return errors.Join(settled, e.db.Close(), e.datadir.Close())
}

// catch turns a panic into an error: bbolt panics on malformed pages.
// It must be deferred itself.
func (e *engine) catch(op string, err *error) {
	if p := recover(); p != nil {
		*err = e.corrupt(op, fmt.Sprint(p), nil)
	}
}

// corrupt returns ErrCorrupt for the data file. cause may be nil.
func (e *engine) corrupt(op, detail string, cause error) error {
	return &holdfast.Error{Op: op, Engine: Name, Path: e.path(), Class: holdfast.ErrCorrupt, Detail: detail, Cause: cause,
		Remedy: "restore it from a backup, or try what `bbolt surgery` can save"}
}

// fail wraps err in a [holdfast.Error].
func (e *engine) fail(op string, err error) error {
	var known *holdfast.Error
	var damage boltpages.Damage
	wrapped := &holdfast.Error{Op: op, Engine: Name, Path: e.path(), Cause: datadir.SystemError(err)}
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &damage):
		return e.corrupt(op, string(damage), nil)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum):
		return e.corrupt(op, "both meta pages are damaged", err)
	case errors.Is(err, berrors.ErrVersionMismatch):
		wrapped.Class, wrapped.Remedy = holdfast.ErrVersion, "use a newer holdfast"
	case errors.Is(err, berrors.ErrTimeout):
		wrapped.Class, wrapped.Cause, wrapped.Remedy = holdfast.ErrLocked, nil, "close the file in the other program first"
	}

	return wrapped
}
