package contender

import (
	"bytes"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// The names of the bare libraries that are trees of pages.
const (
	bboltBare    = "bbolt:bare"
	bboltBatch   = "bbolt:bare-batch"
	bboltArray   = "bbolt:bare-array"
	sqliteBare   = "sqlite:bare"
	sqliteRowID  = "sqlite:bare-rowid"
	sqliteGoBare = "sqlite-go:bare"
)

func describeBboltBare() holdfast.Capabilities {
	return describeBolt("DB.Update", "a map", "Each commit is a transaction: writers wait for each other.")
}

func describeBboltBatch() holdfast.Capabilities {
	return describeBolt("DB.Batch", "a map", "Commits of several clients share transactions; a client that is alone "+
		"waits 10 ms for others, the library's MaxBatchDelay.")
}

func describeBboltArray() holdfast.Capabilities {
	return describeBolt("DB.Update", "an array", "Each commit is a transaction: writers wait for each other. The list of "+
		"free pages is as etcd had it up to 3.4, and as bbolt has it by default.")
}

func describeBolt(call, freelist, caveat string) holdfast.Capabilities {
	process := holdfast.Promise{Given: holdfast.Process, How: call + " with NoSync", CutMayCorrupt: true}
	c := holdfast.Capabilities{
		Library: version("go.etcd.io/bbolt"), Memory: process, Process: process,
		Power: holdfast.Promise{Given: holdfast.Power, How: call + ": pages, fdatasync, meta page, fdatasync"},
		Caveats: []string{"Its options are etcd's: NoFreelistSync, the list of free pages as " + freelist +
			", 10 GB mapped.", caveat},
	}
	c.Memory.Why = "a transaction is written to the file before it is visible"

	return c
}

type bareBbolt struct {
	db     *bbolt.DB
	commit func(func(*bbolt.Tx) error) error
}

var bareBucket = []byte("kv")

func openBboltBare(batch bool, freelist bbolt.FreelistType) func(string, holdfast.Options) (bareStore,
	[]holdfast.Setting, error) {
	return func(dir string, o holdfast.Options) (bareStore, []holdfast.Setting, error) {
		db, err := bbolt.Open(filepath.Join(dir, "data.bbolt"), 0o644, &bbolt.Options{NoSync: o.Level != holdfast.Power,
			NoFreelistSync: true, FreelistType: freelist, InitialMmapSize: bareMap})
		if err != nil {
			return nil, nil, err
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists(bareBucket)
			return err
		})
		if err != nil {
			return nil, nil, errors.Join(err, db.Close())
		}
		s := bareBbolt{db, db.Update}
		if batch {
			s.commit = db.Batch
		}

		return s, []holdfast.Setting{
			{Name: "no_sync", Value: fmt.Sprint(db.NoSync)}, {Name: "no_freelist_sync", Value: fmt.Sprint(db.NoFreelistSync)},
			{Name: "freelist_type", Value: string(db.FreelistType)}, {Name: "page_size", Value: fmt.Sprint(db.Info().PageSize)},
			{Name: "max_batch_size", Value: fmt.Sprint(db.MaxBatchSize)},
			{Name: "max_batch_delay", Value: fmt.Sprint(db.MaxBatchDelay)},
			{Name: "memory_budget", Value: "none: bbolt reads through the page cache"},
		}, nil
	}
}

func (s bareBbolt) apply(b *holdfast.Batch, _ holdfast.Level) error {
	return s.commit(func(tx *bbolt.Tx) error {
		kv := tx.Bucket(bareBucket)
		for op := range b.Ops() {
			var err error
			if op.Kind == holdfast.KindSet {
				err = kv.Put(op.Key, op.Value)
			} else {
				err = kv.Delete(op.Key)
			}
			if err != nil {
				return err
			}
		}

		return nil
	})
}

func (s bareBbolt) get(dst, key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		v := tx.Bucket(bareBucket).Get(key)
		if v == nil {
			return holdfast.ErrNotFound
		}
		value = append(dst, v...)

		return nil
	})
	if err != nil {
		value = dst
	}

	return value, err
}

func (s bareBbolt) scan(r holdfast.Range) driver.Cursor {
	c := &bboltCursor{lo: bytes.Clone(r.Lo), hi: bytes.Clone(r.Hi)}
	if c.tx, c.err = s.db.Begin(false); c.err == nil {
		c.c = c.tx.Bucket(bareBucket).Cursor()
	}

	return c
}

func (s bareBbolt) sync() error { return s.db.Sync() }

func (s bareBbolt) close() error {
	err := s.db.Sync()
	return errors.Join(err, s.db.Close())
}

type bboltCursor struct {
	tx     *bbolt.Tx
	c      *bbolt.Cursor
	lo, hi []byte
	begun  bool
	err    error
}

// Next implements [driver.Cursor].
func (c *bboltCursor) Next() (key, value []byte, err error) {
	switch {
	case c.err != nil:
		return nil, nil, c.err
	case c.begun:
		key, value = c.c.Next()
	default:
		key, value = c.c.Seek(c.lo)
	}
	if c.begun = true; len(c.hi) > 0 && bytes.Compare(key, c.hi) >= 0 {
		return nil, nil, nil
	}

	return key, value, nil
}

// Close implements [driver.Cursor].
func (c *bboltCursor) Close() error {
	if c.tx == nil {
		return nil
	}

	return c.tx.Rollback()
}

// describeSQLiteBare says what SQLite gives through a driver of database/sql.
func describeSQLiteBare(driver, table string) func() holdfast.Capabilities {
	return func() holdfast.Capabilities {
		module := map[string]string{"sqlite3": "github.com/mattn/go-sqlite3", "sqlite": "modernc.org/sqlite"}[driver]
		c := sqliteCapabilities("", driver, module)
		c.Caveats = append(c.Caveats, "It is used through database/sql with prepared statements: one connection writes, "+
			"others read. Each commit is a transaction. "+
			table+"; half of the budget is a mapping, and half the caches.")

		return c
	}
}

const sqliteOne = "SELECT v FROM kv WHERE k=?"

// bareReaders is how many connections of database/sql read at the same time.
const bareReaders = 8

type bareSQLite struct {
	write, read      *sql.DB
	mu               sync.Mutex // one transaction at a time
	conn             *sql.Conn
	set, remove, one *sql.Stmt
	own              *sql.Stmt // as one is, of the connection that writes

	begin, commit, rollback *sql.Stmt
}

func openSQLiteBare(library, options string) func(string, holdfast.Options) (bareStore, []holdfast.Setting, error) {
	return func(dir string, o holdfast.Options) (_ bareStore, _ []holdfast.Setting, err error) {
		memory := o.MemoryBytes
		if memory == 0 {
			memory = 128 << 20
		}
		q := o
		q.MemoryBytes = memory / 4
		pragmas := append(sqliteSettings(q), holdfast.Setting{Name: "mmap_size", Value: fmt.Sprint(memory / 2)})

		s := &bareSQLite{}
		defer func() {
			if err != nil {
				err = errors.Join(err, s.close())
			}
		}()
		ctx := context.Background()
		if s.write, err = sql.Open(library, sqliteURL(dir)); err != nil {
			return nil, nil, err
		}
		s.write.SetMaxOpenConns(1)
		if s.conn, err = s.write.Conn(ctx); err != nil {
			return nil, nil, err
		}

		for _, p := range pragmas {
			if _, err = s.conn.ExecContext(ctx, "PRAGMA "+p.Name+"="+p.Value); err != nil {
				return nil, nil, err
			}
		}
		const table = "CREATE TABLE IF NOT EXISTS kv(k BLOB PRIMARY KEY, v BLOB NOT NULL)"
		if _, err = s.conn.ExecContext(ctx, table+options); err != nil {
			return nil, nil, err
		}
		for text, statement := range map[string]**sql.Stmt{
			"REPLACE INTO kv(k,v) VALUES(?,?)": &s.set, "DELETE FROM kv WHERE k=?": &s.remove, sqliteOne: &s.own,
			"BEGIN IMMEDIATE": &s.begin, "COMMIT": &s.commit, "ROLLBACK": &s.rollback,
		} {
			if *statement, err = s.conn.PrepareContext(ctx, text); err != nil {
				return nil, nil, err
			}
		}
		s.read = sql.OpenDB(pragmaConnector{s.write.Driver(), sqliteURL(dir), fmt.Sprintf(
			"PRAGMA busy_timeout=60000; PRAGMA mmap_size=%d; PRAGMA cache_size=%d", memory/2, -(memory/4/bareReaders)>>10)})
		s.read.SetMaxOpenConns(bareReaders)
		s.read.SetMaxIdleConns(bareReaders)
		if s.one, err = s.read.PrepareContext(ctx, sqliteOne); err != nil {
			return nil, nil, err
		}
		settings, err := s.settings(ctx, pragmas)

		return s, settings, err
	}
}

// pragmaConnector opens connections on which pragmas are executed first.
type pragmaConnector struct {
	driver  sqldriver.Driver
	name    string
	pragmas string
}

// Driver implements [sqldriver.Connector].
func (c pragmaConnector) Driver() sqldriver.Driver { return c.driver }

// Connect implements [sqldriver.Connector].
func (c pragmaConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.driver.Open(c.name)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(sqldriver.ExecerContext).ExecContext(ctx, c.pragmas, nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}

	return conn, nil
}

// settings reads back what the writing connection runs with.
func (s *bareSQLite) settings(ctx context.Context, set []holdfast.Setting) (list []holdfast.Setting, err error) {
	for _, p := range append(set, holdfast.Setting{Name: "wal_autocheckpoint"}, holdfast.Setting{Name: "page_size"}) {
		var value string
		if err := s.conn.QueryRowContext(ctx, "PRAGMA "+p.Name).Scan(&value); err != nil {
			return nil, err
		}
		list = append(list, holdfast.Setting{Name: p.Name, Value: value})
	}

	return list, nil
}

func (s *bareSQLite) apply(b *holdfast.Batch, _ holdfast.Level) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Len() > 1 { // one operation is a transaction by itself
		return s.inTransaction(func() error { return s.all(b) })
	}
	return s.all(b)
}

func (s *bareSQLite) all(b *holdfast.Batch) (err error) {
	ctx := context.Background()
	for op := range b.Ops() {
		if op.Kind == holdfast.KindSet {
			_, err = s.set.ExecContext(ctx, op.Key, op.Value)
		} else {
			_, err = s.remove.ExecContext(ctx, op.Key)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

func (s *bareSQLite) get(dst, key []byte) ([]byte, error) { return readRow(s.one, dst, key) }

func (s *bareSQLite) scan(r holdfast.Range) driver.Cursor {
	c := &sqliteCursor{}
	if len(r.Hi) == 0 {
		c.rows, c.err = s.read.Query("SELECT k,v FROM kv WHERE k>=? ORDER BY k", append([]byte{}, r.Lo...))
	} else {
		c.rows, c.err = s.read.Query("SELECT k,v FROM kv WHERE k>=? AND k<? ORDER BY k", append([]byte{}, r.Lo...), r.Hi)
	}

	return c
}

// sync copies the log into the database, which syncs both.
func (s *bareSQLite) sync() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.conn.ExecContext(context.Background(), "PRAGMA wal_checkpoint(FULL)")

	return err
}

func (s *bareSQLite) close() (err error) {
	if s.read != nil {
		err = s.read.Close()
	}
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	if s.write != nil {
		err = errors.Join(err, s.write.Close())
	}

	return err
}

type sqliteCursor struct {
	rows *sql.Rows
	k, v sql.RawBytes
	err  error
}

// Next implements [driver.Cursor].
func (c *sqliteCursor) Next() (key, value []byte, err error) {
	if c.err != nil || !c.rows.Next() {
		if c.err == nil {
			c.err = c.rows.Err()
		}

		return nil, nil, c.err
	}
	err = c.rows.Scan(&c.k, &c.v)

	return c.k, c.v, err
}

// Close implements [driver.Cursor].
func (c *sqliteCursor) Close() error {
	if c.rows == nil {
		return nil
	}

	return c.rows.Close()
}
