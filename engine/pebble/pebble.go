// Package pebble is the engine over CockroachDB's Pebble, with the level that Pebble
// itself does not have: Process, between its NoSync and its Sync. All levels of one machine are
// given per commit, in one open directory.
//
//	engine, err := pebble.Open("/var/lib/orders", holdfast.Options{})
//
// What commits get at each level:
//
//	Memory   Pebble keeps the commit in its write-ahead log's buffer
//	Process  the buffer is written to the log file
//	Power    the log file is synced as well
//
// Pebble knows only the first and the last. Commits at Process ask it for a sync too, and
// the file system it is given leaves that sync out unless a commit at Power waits for it;
// see log. A log is synced for real before the next one is begun.
//
// A failed write or sync freezes the directory; see disk.
//
// How it is built: open and start (pebble.go) take the directory, look for damage that Pebble would not see
// (inspect.go), and open the library on a disk (disk.go), which is the file system it gets. The engine (engine.go)
// encodes batches for it, and hands out tickets as receipts. A log file (log.go) belongs to the disk, and decides with
// demand which syncs are real. Reading is in read.go; logger.go passes on what the library says.
package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	lib "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/engine/internal/modversion"
)

// Name is the engine's name in engine/all.
const Name = "pebble"

// format is that of what the engine adds to Pebble's own, which has a version of its own.
const format = 1

// defaultMemory holds a block cache of 128 MiB and four memtables.
const defaultMemory = 384 << 20

// Describe says what the engine gives.
func Describe() holdfast.Capabilities {
	return holdfast.Capabilities{
		Engine:  Name,
		Library: modversion.Version("github.com/cockroachdb/pebble/v2"),
		Memory:  holdfast.Promise{Given: holdfast.Memory, How: "copied to the log's buffer and the memtable"},
		Process: holdfast.Promise{Given: holdfast.Process, How: "write to the log, shared by all that wait"},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "write to the log and fdatasync, shared by all that wait"},
		LossWindow:        holdfast.DefaultSyncEvery,
		AtomicBatches:     true,
		NativeDeleteRange: true,
		ShownAtApply:      true,
		Checksums:         true,
		MaxKeySize:        holdfast.MaxKeySize,
		MaxValueSize:      holdfast.MaxValueSize,
		MaxBatchSize:      holdfast.MaxBatchSize,
		Caveats: []string{
			"After a crash, damage to the last 32 KiB of the log, or to the last record of the manifest, cannot be told from " +
				"a torn tail, and is cut off.",
			"A failed write or sync of any file, also in the background, poisons the engine.",
			"A directory on a full disk cannot be opened, not even to read: opening writes a log, a manifest and an options " +
				"file, and a table of what the last log holds.",
		},
	}
}

// Open opens or makes the database in dir. Options.Level is ignored: every level is given.
//
// Options.MemoryBytes, 384 MiB by default, is shared by the block cache and up to four memtables of a sixth of it
// each; what memtables do not take is the cache's.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return OpenWith(dir, o)
}

// OpenWith is Open with Pebble's options changed by tune, for work that Open's are not right for. What the engine
// relies on stays: the file system, the format, the events, the comparer and the write-ahead log.
func OpenWith(dir string, o holdfast.Options, tune ...func(*lib.Options)) (holdfast.Engine, error) {
	e, err := open(vfs.Default, dir, o, tune...)
	if err != nil {
		return nil, err
	}

	return e, nil
}

// open is OpenWith over any file system, which tests replace. It holds the directory's lock from datadir.Open on, and
// gives it back if it fails.
func open(below vfs.FS, dir string, o holdfast.Options, tune ...func(*lib.Options)) (_ *engine, err error) {
	defer func() { err = datadir.Full(err) }()
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if err := driver.CheckLevel(Describe(), dir, o.Level); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, driver.NoReadOnly(Name, dir)
	}
	h, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: format, Keeps: "data"})

	// The lock is held from here on.
	if err != nil {
		return nil, err
	}

	// Pebble's files are in a directory of their own, so that nothing of it meets the mark and the lock.
	e, err := start(below, filepath.Join(h.Dir, "data"), h.Check, o, tune...)
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	e.datadir, e.Caps.Lost, e.Caps.Accepted = h, h.Lost, h.Accepted

	// Last, when the database is on the device: a crash before it leaves a mark that says that the directory is still
	// being made.
	if err := h.Made(); err != nil {
		return nil, errors.Join(err, e.Close())
	}

	return e, nil
}

// start opens the database in data. check is that of the directory that has it.
func start(below vfs.FS, data string, check func() error, o holdfast.Options,
	tune ...func(*lib.Options)) (e *engine, err error) {
	d := newDisk(below, data, check)
	e = &engine{disk: d}
	d.poisoned = e.Life.Poison
	options := settings(o, e, tune...)
	defer func() {
		// Pebble meets some kinds of damage with a panic.
		if r := recover(); r != nil {
			e, err = nil, openError(data, holdfast.ErrCorrupt, fmt.Errorf("%v", r))
		}
		if err != nil {
			// What Pebble has begun may go on: nothing of it may reach the directory, which is no longer ours.
			d.fail("open", data, err)
			if full := (*holdfast.Error)(nil); errors.As(err, &full) && full.Class == holdfast.ErrFull {
				d.abandon()
				full.Remedy = fmt.Sprintf("make about %d MiB of room on the disk, or raise the quota: as much as its logs have",
					d.logBytes()>>20+1)
			} else {
				d.enter(abandoned)
			}
		}
	}()

	// Some damage reads to Pebble as an older state, or as a database that is not there. That is looked for before it
	// opens anything.
	found, err := inspect(below, data)
	if err != nil {
		return nil, err
	}

	// Without it a lost manifest would look like a new database, and Pebble would make an empty one over the data.
	options.ErrorIfNotExists = found.database
	e.torn = found.torn
	e.db, err = lib.Open(data, options)

	// A failed write while opening was hidden from Pebble, so lib.Open may have succeeded on files in memory.
	if d.frozen() {
		// Pebble may have come this far in memory.
		if err == nil {
			_ = e.db.Close()
		}

		return nil, openError(data, nil, d.cause.Load().Cause)
	}
	if err != nil {
		return nil, openError(data, classify(err), err)
	}
	if !found.database {
		// The first log of a new database was begun in Pebble's oldest format, which has no
		// synced offsets.
		if err := e.db.Flush(); err != nil || d.frozen() {
			return nil, openError(data, nil, errors.Join(err, d.poison(), e.db.Close()))
		}
	}
	caps := Describe()
	caps.LossWindow = max(o.SyncEvery, 0)
	if caps.Settings, err = readSettings(below, data); err != nil {
		return nil, openError(data, nil, errors.Join(err, e.db.Close()))
	}
	e.tickets.New = func() any { return &ticket{e: e} }
	e.Init(e, caps, filepath.Dir(data))
	e.window = losswindow.New(o.SyncEvery, e.Sync)

	// From here on a compaction on a frozen disk waits until a writer needs it; see merge.
	d.enter(serving)

	return e, nil
}

// settings are Pebble's options. Memtables, filters and the sizes of blocks are those of its authors' own tool for
// measuring (cmd/pebble); decision 38 has what of the tool's was not taken, and why.
func settings(o holdfast.Options, e *engine, tune ...func(*lib.Options)) *lib.Options {
	budget := o.MemoryBytes
	if budget == 0 {
		budget = defaultMemory
	}

	options := &lib.Options{
		// Pebble counts memtables against the cache. A sixth each for up to four leaves a third or more to the rest of it.
		CacheSize:                   budget,
		MemTableSize:                uint64(min(max(budget/6, 1<<20), 256<<20)),
		MemTableStopWritesThreshold: 4,

		L0CompactionThreshold: 4,
		L0StopWritesThreshold: 20,
		LBaseMaxBytes:         512 << 20,
		CompactionConcurrencyRange: func() (int, int) {
			return 1, min(4, runtime.GOMAXPROCS(0))
		},
		BytesPerSync: 1 << 20,
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		options.Levels[i].BlockSize, options.Levels[i].IndexBlockSize = 32<<10, 256<<10
	}

	// The caller's changes come first, and then what the engine relies on, which they cannot change.
	for _, change := range tune {
		change(options)
	}
	options.FS, options.Logger, options.FormatMajorVersion = e.disk, logger{o.Logger, e.disk}, lib.FormatNewest
	options.Comparer, options.DisableWAL, options.WALFailover = nil, false, nil
	options.EventListener = &lib.EventListener{
		WriteStallBegin: func(info lib.WriteStallBeginInfo) {
			e.disk.stall(1)
			o.Logger.Warn("pebble: writers wait", "reason", info.Reason)
		},
		WriteStallEnd:   func() { e.disk.stall(-1) },
		BackgroundError: func(err error) { o.Logger.Error("pebble: background work failed", "error", err) },
		DataCorruption: func(info lib.DataCorruptionInfo) {
			damage := readError("read", info.Details)
			e.disk.fail("read", info.Path, damage)
			o.Logger.Error("pebble: damaged file", "path", info.Path, "error", damage)
		},
	}

	return options
}

// classify finds the class of an error of lib.Open. What Pebble refuses in files that it wrote itself is corruption.
// The order matters: a lock that is taken shows as EAGAIN, which is an error of the system too.
func classify(err error) error {
	switch {
	case strings.Contains(err.Error(), "lock held by current process"), errors.Is(err, syscall.EAGAIN):
		return holdfast.ErrLocked
	case datadir.OfSystem(err):
		return nil
	case lib.IsCorruptionError(err), errors.Is(err, fs.ErrNotExist):
		return holdfast.ErrCorrupt
	case strings.Contains(err.Error(), "unknown format major version"):
		return holdfast.ErrVersion
	}

	return holdfast.ErrCorrupt
}

// openError returns an error of Open as the caller gets it.
func openError(path string, class, cause error) error {
	switch {
	case class != nil:
	case errors.Is(cause, holdfast.ErrCorrupt):
		class = holdfast.ErrCorrupt
	case datadir.NoRoom(cause):
		class = holdfast.ErrFull
	}

	e := &holdfast.Error{Op: "open", Engine: Name, Path: path, Class: class, Cause: oneLine(cause)}
	switch class {
	case holdfast.ErrCorrupt:
		damaged(e, cause)
	case holdfast.ErrVersion:
		e.Remedy = "use a newer holdfast"
	case holdfast.ErrLocked: // by another program, or by an engine that had the directory's name before
		e.Remedy = "close it there first"
	case holdfast.ErrFull:
		e.Remedy = datadir.MakeRoom
	case nil:
		e.Remedy = "the directory must be writable"
	}

	return e
}

// readError returns an error of a read as the caller gets it.
func readError(op string, err error) error {
	e := &holdfast.Error{Op: op, Engine: Name, Cause: oneLine(err)}

	// An error of the operating system is no proof of damage, even where Pebble calls it corruption.
	if lib.IsCorruptionError(err) && !datadir.OfSystem(err) {
		damaged(e, err)
	}

	return e
}

// damaged says which file err found damaged, and what to do.
func damaged(e *holdfast.Error, err error) {
	e.Class, e.Remedy = holdfast.ErrCorrupt, "restore the directory from a backup"
	if info := lib.ExtractDataCorruptionInfo(err); info != nil {
		e.Path = info.Path
	}
}

// oneLine returns err with the first line of its text: Pebble appends stack traces.
func oneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}

	return firstLine{err}
}

// firstLine is an error whose text is cut after the first line.
type firstLine struct{ error }

func (f firstLine) Error() string {
	line, _, _ := strings.Cut(f.error.Error(), "\n")
	return line
}

func (f firstLine) Unwrap() error { return f.error }
