package contender

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
)

// Bare returns the libraries below our engines as a program uses them that does not use this module: their own calls,
// their own promises. They keep keys; sets, deletes, gets and scans that go forwards are all that they do.
func Bare() []all.Entry {
	var list []all.Entry
	for _, b := range bareLibraries {
		list = append(list, all.Entry{Name: b.name, Describe: b.describe,
			Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) { return openBare(b, dir, o) }})
	}

	return list
}

// bareLibrary is a line of the table of bare libraries.
type bareLibrary struct {
	name     string
	about    func() holdfast.Capabilities // but for what all have
	perWrite bool                         // each write names its level; else it is that of opening

	transactions bool // that read; what it opens then has update
	open         func(dir string, o holdfast.Options) (bareStore, []holdfast.Setting, error)
}

// What the tables of SQLite are.
const (
	noRowIDs = "The table has no rowids, which small values want"
	rowIDs   = "The table has rowids, which large values want"
)

var bareLibraries = []bareLibrary{
	{pebbleBare, describePebbleBare, true, false, openPebbleBare},
	{badgerBare, describeBadgerBare(false), false, false, openBadgerBare(false)},
	{badgerConflicts, describeBadgerBare(true), false, true, openBadgerBare(true)},
	{bboltBare, describeBboltBare, false, true, openBboltBare(false, bbolt.FreelistMapType)},
	{bboltBatch, describeBboltBatch, false, true, openBboltBare(true, bbolt.FreelistMapType)},
	{bboltArray, describeBboltArray, false, true, openBboltBare(false, bbolt.FreelistArrayType)},
	{sqliteBare, describeSQLiteBare("sqlite3", noRowIDs), false, true, openSQLiteBare("sqlite3", " WITHOUT ROWID")},
	{sqliteRowID, describeSQLiteBare("sqlite3", rowIDs), false, true, openSQLiteBare("sqlite3", "")},
	{sqliteGoBare, describeSQLiteBare("sqlite", noRowIDs), false, true, openSQLiteBare("sqlite", " WITHOUT ROWID")},
}

func (l bareLibrary) describe() holdfast.Capabilities {
	c := l.about()
	c.Engine, c.AtomicBatches = l.name, true
	c.MaxKeySize = holdfast.MaxKeySize
	if c.MaxBatchSize == 0 {
		c.MaxValueSize, c.MaxBatchSize = holdfast.MaxValueSize, holdfast.MaxBatchSize
	}
	c.Caveats = append([]string{"It is the library without our engine: its own calls and its own promises, which " +
		"neither our laws nor our crash lab have tried."}, c.Caveats...)

	return c
}

// bareStore is a library that is open. All methods may be called from many goroutines at once.
type bareStore interface {
	// apply commits sets and deletes, and returns when they survive what level names.
	apply(b *holdfast.Batch, level holdfast.Level) error
	// get appends the value to dst; the error is ErrNotFound if there is none.
	get(dst, key []byte) ([]byte, error)
	// scan calls nothing before the first Next of what it returns.
	scan(r holdfast.Range) driver.Cursor
	// sync makes all that was committed safe from power loss.
	sync() error
	close() error
}

type bareEngine struct {
	peer
	store  bareStore
	handle *datadir.Handle
}

func openBare(l bareLibrary, dir string, o holdfast.Options) (holdfast.Engine, error) {
	c := l.describe()
	h, o, err := begin(c, dir, o, !l.perWrite)
	if err != nil {
		return nil, err
	}
	if !l.perWrite {
		level := c.Promise(o.Level).Given
		for _, p := range []*holdfast.Promise{&c.Memory, &c.Process, &c.Power} {
			if p.Given != level {
				*p = holdfast.Promise{Why: fmt.Sprintf("it was opened for %v", level)}
			}
		}
	}

	var store bareStore
	var settings []holdfast.Setting
	data := filepath.Join(h.Dir, "data")
	if err = os.MkdirAll(data, 0o755); err == nil {
		store, settings, err = l.open(data, o)
	}
	if err == nil {
		if err = h.Made(); err != nil {
			err = errors.Join(err, store.close())
		}
	}
	if err != nil {
		return nil, errors.Join(&holdfast.Error{Op: "open", Engine: l.name, Path: dir, Cause: err}, h.Close())
	}
	e := &bareEngine{store: store, handle: h}
	e.peer = peer{name: l.name, only: "does sets, deletes, gets and scans that go forwards only", dir: h.Dir,
		shut:     func() error { return errors.Join(store.close(), h.Close()) },
		describe: func() holdfast.Capabilities { return c },
		settings: settings, counts: &counts{}}
	if l.transactions {
		return bareTransactions{e, store.(bareUpdater)}, nil
	}
	return e, nil
}

// Apply implements [holdfast.Engine]. The batch is settled when it returns.
func (e *bareEngine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := e.describe().CheckLevel(level); err != nil {
		return holdfast.Receipt{}, err
	}
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	if b.HasRange() {
		return holdfast.Receipt{}, e.refuse("delete range")
	}

	return holdfast.Receipt{}, e.counts.commit(e.fail("apply", e.store.apply(b, level)))
}

func (e *bareEngine) fail(op string, err error) error {
	if err == nil || err == holdfast.ErrNotFound {
		return err
	}

	return &holdfast.Error{Op: op, Engine: e.name, Path: e.dir, Cause: err}
}

// Get implements [holdfast.Engine].
func (e *bareEngine) Get(dst, key []byte) ([]byte, error) {
	value, err := e.store.get(dst, key)
	return value, e.fail("get", err)
}

// Scan implements [holdfast.Engine], forwards only.
func (e *bareEngine) Scan(r holdfast.Range) holdfast.Iterator {
	if r.Reverse {
		return holdfast.FailedIterator(e.refuse("scan backwards"))
	}

	return driver.NewIterator(bareCursor{e.store.scan(r), e})
}

// bareCursor tells errors as the engine does.
type bareCursor struct {
	driver.Cursor
	engine *bareEngine
}

// Next implements [driver.Cursor].
func (c bareCursor) Next() (key, value []byte, err error) {
	key, value, err = c.Cursor.Next()
	return key, value, c.engine.fail("scan", err)
}

// Close implements [driver.Cursor].
func (c bareCursor) Close() error { return c.engine.fail("scan", c.Cursor.Close()) }

// Sync implements [holdfast.Engine].
func (e *bareEngine) Sync() error {
	if err := e.peer.Sync(); err != nil {
		return err
	}

	return e.fail("sync", e.store.sync())
}

// Metrics implements [holdfast.Engine]. A commit is a call; what the library makes of it is Unknown.
func (e *bareEngine) Metrics() holdfast.Metrics {
	m := holdfast.UnknownMetrics()
	m.Commits = e.counts.commits.Load()
	m.Files, m.DiskBytes = datadir.Usage(e.dir)

	return m
}
