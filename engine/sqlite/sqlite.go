// Package sqlite is two engines over SQLite: "sqlite" is the C library through cgo
// (github.com/mattn/go-sqlite3), "sqlite-go" the same library translated to Go
// (modernc.org/sqlite). They run the same code here and share one file format: a directory
// made by one can be opened by the other.
//
//	engine, err := sqlite.Open("/var/lib/orders", holdfast.Options{}) // OpenGo needs no C compiler
//
// The store is one table in write-ahead-log mode,
//
//	CREATE TABLE kv(k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID
//
// or, with [Tuning.RowID], the same with rowids,
// in data.sqlite, which any tool for SQLite reads. SQLite has one writer at a time, so
// batches of concurrent writers are merged into one transaction. A group at Power is
// committed with synchronous=FULL, a weaker one with NORMAL.
//
// # Why a later commit cannot put an earlier one at risk
//
// Under FULL a commit ends with a sync of the log, which covers everything that was ever
// appended to it, commits under NORMAL too. Under both, a checkpoint syncs the log before it
// copies pages into the database, syncs the database before the log may restart, and a restarted log has its header,
// with new salts, synced before anything follows. Frames carry a running checksum, so what a power cut leaves of an
// unsynced tail is a prefix. (SQLite's documents: "PRAGMA synchronous", "Write-Ahead Logging", "Database File Format",
// 4.)
//
// # How it is built
//
// sqlite.go opens and closes; library.go and library_cgo.go name the two libraries. conn.go is one connection with its
// prepared statements. write.go has the one that writes, used by the leader of a groupcommit.Committer alone, and the
// checkpoints that copy the log into the database. read.go lends connections to readers and counts them, so that a
// checkpoint can wait for those who are in its way. compact.go is VACUUM, and keep_linux.go keeps the log after a
// failure.
package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/driver/groupcommit"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/engine/internal/modversion"
)

// The engines' names in engine/all.
const (
	Name   = "sqlite"    // with cgo, see [Open]
	NameGo = "sqlite-go" // without, see [OpenGo]
)

const (
	format   = 1
	fileName = "data.sqlite"

	// maxGroupSize bounds what is merged: far above what 64 writers queue up, and written
	// in some tens of milliseconds.
	maxGroupSize = 8 << 20
	// checkpointPages is the length of the log from which it is copied into the database: 16 MiB, four times SQLite's
	// own default for wal_autocheckpoint, for a quarter of the syncs.
	checkpointPages = 4000
	// pausePages is the length of the log from which commits pause for readers, so that it can restart: 64 MiB, which is
	// what journal_size_limit leaves of the file.
	pausePages = 16 << 10
	// longestPause is a few scans of some thousand keys.
	longestPause = 250 * time.Millisecond
	// maxIdle is how many connections are kept open for later readers, and how many Gets read at a time.
	maxIdle = 32
)

// engine is what [Open] and [OpenGo] open.
type engine struct {
	driver.Engine[*conn]
	lib       *sqliteLibrary
	tuning    Tuning
	datadir   *datadir.Handle
	committer *groupcommit.Committer
	window    *losswindow.Window
	cache     int64 // bytes of page cache per connection, 0 for SQLite's default
	w         writer
	raw       *os.File     // the database, read besides SQLite; closed last, because that ends SQLite's locks
	readable  atomic.Int64 // when all of it was last read, in nanoseconds since 1970; 0 if it never was
	hold      func()       // set by tests: called before a commit at Power; nil otherwise

	syncs  atomic.Int64
	stalls atomic.Int64

	stopped atomic.Bool              // a write has failed; readers then look whether their state is still whole
	log     atomic.Pointer[logState] // as it was seen last

	trouble atomic.Pointer[error] // why the log could not be copied into the database; nil if it could

	gets chan struct{} // holds one for each Get that has a connection

	mu       sync.Mutex
	idle     []*conn       // readers
	borrowed int           // connections that readers have
	turn     uint64        // of readers: those of earlier turns are awaited
	earlier  int           // connections that readers of earlier turns have
	gone     chan struct{} // closed when earlier becomes 0; nil if there is no waiter
}

// Tuning is what a user may choose for work that the defaults are not right for.
type Tuning struct {
	// RowID makes the table of a new directory one with rowids. It is right where most values are over some 200 bytes:
	// they take up to 1.4 times their size, not up to 4.6 times. Every key is stored twice then, and a scan goes by way of
	// the index. A directory keeps the table that it was made with.
	RowID bool
	// MapBytes is how much of the database is read through a mapping (mmap_size). A page of it that the disk cannot read
	// then ends the process by a signal. 0: nothing.
	MapBytes int64
	// CheckpointPages is the length of the log, in pages of 4 KiB, from which it is copied into the database. 0: 4,000.
	CheckpointPages int64
}

// open is Open for either library.
func open(lib *sqliteLibrary, dir string, o holdfast.Options, t Tuning) (_ holdfast.Engine, err error) {
	defer func() { err = datadir.Full(err) }()
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if err := driver.CheckLevel(describe(lib.name, ""), dir, o.Level); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, driver.NoReadOnly(lib.name, dir)
	}
	h, err := datadir.Open(dir, datadir.Spec{Engine: lib.name, Mark: Name, Format: format, Keeps: fileName})
	if err != nil {
		return nil, err
	}
	// The writer takes half of the budget, the readers that are kept share the rest.
	e := &engine{lib: lib, tuning: t, datadir: h, cache: o.MemoryBytes / 2 / maxIdle, gets: make(chan struct{}, maxIdle)}
	e.w.pauseAt, e.w.pause, e.w.checkpointAt = pausePages, longestPause, cmp.Or(max(t.CheckpointPages, 0), checkpointPages)
	settings, err := e.openWriter(o.MemoryBytes/2, o.Level)
	if err != nil {
		// The connection was closed by openWriter. raw is closed after it, and the lock of the directory at the end.
		if e.raw != nil {
			e.raw.Close()
		}
		h.Close()

		return nil, err
	}

	// The database is on the device since create has renamed it.
	if err := h.Made(); err != nil {
		return nil, errors.Join(err, e.w.conn.close(), e.raw.Close(), h.Close())
	}

	// From here on commits and readers may come.
	e.committer = groupcommit.New(lib.name, maxGroupSize, e.commit)
	e.committer.OnPoison(func(err error) {
		e.stopped.Store(true)
		e.Life.Poison(err)
	})
	e.window = losswindow.New(o.SyncEvery, e.Settle)
	caps := describe(lib.name, lib.module)
	caps.LossWindow, caps.Lost, caps.Accepted = e.window.Every(), h.Lost, h.Accepted
	caps.Settings = settings
	e.Init(e, caps, h.Dir)

	return e, nil
}

// openWriter opens the database on the connection that will write, making it under another
// name first: a file that is there under its own name was whole and synced. It returns what the connection runs with
// for commits at level.
func (e *engine) openWriter(cache int64, level holdfast.Level) (settings []holdfast.Setting, err error) {
	path := e.path()
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = e.create(path)
	}
	if err != nil {
		return nil, e.fail("open", err)
	}

	// It is opened before SQLite opens the file, and closed after it: closing any descriptor gives up all locks that this
	// process has on the file.
	if e.raw, err = os.Open(path); err != nil {
		return nil, e.fail("open", err)
	}

	// Asked before SQLite opens the file, which changes the log.
	st, err := os.Stat(path + "-wal")
	crashed := err == nil && st.Size() > 0

	// A log that is there and not empty was left by a process that died: SQLite recovers it when the file is opened.
	c, err := e.connect(path, cache)
	if err != nil {
		return nil, e.fail("open", err)
	}
	e.w.conn = c
	err = e.check(c)
	if err == nil && crashed {
		// What a process left in the log that died may be in the page cache alone. The checkpoint syncs it before it
		// copies it.
		e.w.unsynced = true
		err = e.checkpoint()
	}
	if err == nil {
		err = e.synchronous(level)
	}
	if err == nil {
		settings, err = c.settings(e.w.checkpointAt)
	}
	if err != nil {
		c.close()
		return nil, e.fail("open", err)
	}

	return settings, nil
}

// create makes a new database, all of it on the device.
func (e *engine) create(path string) error {
	// What a process has left that was killed while it made one is of no use.
	making := path + ".new"
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(making + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}

	// A crash from here on leaves files of the name .new, which the next try removes.
	c, err := e.connect(making, 0)
	if err != nil {
		return err
	}
	// The last connection that closes checkpoints the log, with a sync, and removes it.
	_, err = c.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; " + e.schema())
	if err := errors.Join(err, c.close()); err != nil {
		return err
	}

	// A database with part of it in a log would lose that part when it is renamed alone.
	if _, err := os.Stat(making + "-wal"); err == nil {
		return errors.New("sqlite could not complete the new database")
	}

	return datadir.Rename(making, path)
}

// The tables that a directory may have. All statements work on either.
const (
	schemaRowID = "CREATE TABLE kv(k BLOB PRIMARY KEY, v BLOB NOT NULL)"
	schema      = schemaRowID + " WITHOUT ROWID"
)

// schema is that of a new directory.
func (e *engine) schema() string {
	if e.tuning.RowID {
		return schemaRowID
	}

	return schema
}

// check finds out whether the file is what create made.
func (e *engine) check(c *conn) error {
	mode, err := c.text("PRAGMA journal_mode")
	if err != nil {
		return err
	}
	table, err := c.text("SELECT sql FROM sqlite_schema WHERE name='kv'")
	if err != nil {
		return err
	}
	version, err := c.text("PRAGMA user_version")
	if err != nil {
		return err
	}
	if e.w.version, err = strconv.ParseInt(version, 10, 64); err != nil || mode != "wal" ||
		table != schema && table != schemaRowID {
		return e.corrupt("open", fmt.Sprintf("it should have the table kv in journal mode wal, and has %q in %q", table,
			mode), err)
	}

	return nil
}

// path is the database's. SQLite puts the log and its index beside it, as -wal and -shm.
func (e *engine) path() string { return filepath.Join(e.datadir.Dir, fileName) }

// describe is Describe for either library.
func describe(name, module string) holdfast.Capabilities {
	const how = "one transaction per group in the write-ahead log, synchronous=NORMAL"

	return holdfast.Capabilities{
		Engine:  name,
		Library: modversion.Version(module),
		Memory: holdfast.Promise{Given: holdfast.Process, How: how,
			Why: "a transaction is written to the log before it is visible"},
		Process: holdfast.Promise{Given: holdfast.Process, How: how},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "one transaction per group in the write-ahead log, synchronous=FULL: fsync"},

		AtomicBatches: true,
		MaxKeySize:    holdfast.MaxKeySize,
		MaxValueSize:  holdfast.MaxValueSize,
		MaxBatchSize:  holdfast.MaxBatchSize,
		Caveats: []string{
			"An open snapshot or iterator keeps the write-ahead log from being begun anew: it grows with all that is written " +
				"meanwhile. When it reaches 64 MiB, and whenever it has doubled since, commits pause for up to 250 ms until the " +
				"readers of that moment are done, which is enough where many overlap and none lasts longer than some 100 ms.",
			"Every open snapshot and iterator has a connection, with two file descriptors and a page cache, of its own; Gets " +
				"share 32.",
			"Pages of the database carry no checksums: damage is found when it breaks the tree, damage inside a value is not " +
				"found. Damage in the log reads as its end.",
			"The file shrinks only by Compact: freed pages are used again.",
			"A key with its value, if over some 1,000 bytes, gets pages of 4 KiB of its own: 1,000 bytes take 4.6 times " +
				"their size, 2,000 bytes 2.3 times, 3,000 bytes 1.6 times, where 960 take 1.05 times and 5,000 take 1.02. " +
				"A directory that is made with Tuning.RowID takes 1.4 times at most.",
			"On a full disk it opens to be read, and for what fits in its files, unless the index of its log is missing: that " +
				"takes 32 KiB of room.",
			"After its directory was replaced, reads that need a new connection fail with ErrReplaced: SQLite opens its files " +
				"by name.",
		},
	}
}

// Write implements [driver.Core].
func (e *engine) Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	r, err := e.committer.Apply(b, level)
	if err == nil {
		e.window.Dirty() // also at Power: the receipt may never be waited for
	}

	return r, err
}

// Settle implements [driver.Core].
func (e *engine) Settle() error { return e.committer.Sync() }

// Measure implements [driver.Core].
func (e *engine) Measure(m *holdfast.Metrics) {
	e.committer.Fill(m)
	m.Syncs, m.Stalls = e.syncs.Load(), e.stalls.Load()
	m.Files, m.DiskBytes = datadir.Usage(e.datadir.Dir)
	if trouble := e.trouble.Load(); trouble != nil {
		m.Trouble = *trouble
	}
}

// Release implements [driver.Core].
func (e *engine) Release(err error) error {
	e.window.Stop()
	if replaced := e.datadir.Check(); replaced != nil {
		// The connection is left as it is: SQLite would remove the log by its name, which is another's now.
		return errors.Join(e.committer.Fail(replaced), e.datadir.Close())
	}

	// The log stays for the next Open to recover; see keepLog.
	if e.committer.Close() != nil { // the poison, which is in err
		release, kept := keepLog(e.path())
		defer release()
		err = errors.Join(err, kept)
	}
	e.mu.Lock()
	defer e.mu.Unlock()

	// Readers go first: the last connection to close, the writer's, then copies the log and removes it.
	for _, c := range e.idle {
		err = errors.Join(err, c.close())
	}
	e.idle = nil

	return errors.Join(err, e.w.conn.close(), e.raw.Close(), e.datadir.Close())
}

// corrupt returns ErrCorrupt for the database. cause may be nil.
func (e *engine) corrupt(op, detail string, cause error) error {
	return &holdfast.Error{Op: op, Engine: e.lib.name, Path: e.path(), Class: holdfast.ErrCorrupt, Detail: detail,
		Cause:  cause,
		Remedy: "restore it from a backup, or try what the sqlite3 shell's .recover can save"}
}

// The result codes of SQLite that mean something to us (https://www.sqlite.org/rescode.html). The low byte of an
// extended one is its primary one.
const (
	codeInterrupt = 9
	codeIO        = 10
	codeCorrupt   = 11
	codeFull      = 13
	codeCannot    = 14 // open a file
	codeNotDB     = 26

	codeWrite     = 778
	codeIndexSize = 4874 // the index of the log cannot grow, with which opening on a full disk ends
)

// fail wraps err in a [holdfast.Error]. A disk or quota that is full is its cause as the operating system's error
// number, whatever SQLite calls it; what else the operating system refuses is no damage.
func (e *engine) fail(op string, err error) error {
	var known *holdfast.Error

	// It was wrapped where it happened, with more detail.
	if errors.As(err, &known) {
		return err
	}

	wrapped := &holdfast.Error{Op: op, Engine: e.lib.name, Path: e.path(), Cause: err}

	// What SQLite calls damaged, full or unreadable is looked at once more, because it does not tell the operating
	// system's errors from its own.
	code, errno := e.lib.code(err)
	switch code & 0xff {
	case codeCorrupt, codeNotDB:
		// SQLite also says so of a page that the device cannot read.
		if errno = e.unreadable(); errno == 0 {
			return e.corrupt(op, "", err)
		}
	case codeFull:
		errno = syscall.ENOSPC
	case codeIO, codeCannot:
		if errno == 0 {
			errno = e.probe()
		}
	}
	if errno != 0 && !errors.Is(err, errno) {
		wrapped.Cause = &systemError{err, errno}
	}

	// Here the directory cannot be opened even to read, so the usual advice would be too much.
	if code == codeIndexSize && op == "open" && datadir.NoRoom(errno) {
		wrapped.Class, wrapped.Detail = holdfast.ErrFull, "no room for the index of the log"
		wrapped.Remedy = "make 32 KiB of room on the disk, which SQLite needs even to read"
	}

	return wrapped
}

// systemError is an error of SQLite with the operating system's error number.
type systemError struct {
	error
	errno syscall.Errno
}

// Unwrap returns both.
func (s *systemError) Unwrap() []error { return []error{s.error, s.errno} }

// readableFor is for how long a database that could be read is taken to be readable. A damaged one is asked for each
// key, by Verify.
const readableFor = time.Minute

// unreadable reads the database and its log, and returns the error number with which the operating system refuses that,
// 0 if it does not.
func (e *engine) unreadable() (errno syscall.Errno) {
	if e.raw == nil || time.Since(time.Unix(0, e.readable.Load())).Abs() < readableFor {
		return 0
	}

	// The pages that are in memory are read without the device; the one it cannot read is not among them.
	_, err := io.Copy(io.Discard, io.NewSectionReader(e.raw, 0, math.MaxInt64))
	if log, opened := os.Open(e.path() + "-wal"); opened == nil { // which has no locks of SQLite
		_, read := io.Copy(io.Discard, log)
		err = errors.Join(err, read, log.Close())
	}
	if !errors.As(err, &errno) {
		e.readable.Store(time.Now().UnixNano())
	}

	return errno
}

// probe finds out why a file of the database could not be written, where the library keeps that to itself: it returns
// the error number with which another file cannot be written either, 0 if it can.
func (e *engine) probe() (errno syscall.Errno) {
	f, err := os.CreateTemp(e.datadir.Dir, fileName+".probe-*")
	if err == nil {
		_, err = f.Write(make([]byte, 64<<10))

		// A quota or a full disk may show only when the data is allocated, at the sync.
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	}
	errors.As(err, &errno)

	return errno
}
