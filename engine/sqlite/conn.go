package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// kind is a statement that is kept prepared.
type kind int

const (
	kindGet kind = iota
	kindForward
	kindForwardFrom // without an upper bound
	kindReverse
	kindReverseFrom
	kindSet
	kindSetMany
	kindDelete
	kindDeleteRange
	kindDeleteFrom
	kindBegin
	kindCommit
	kindLogLength
	kindCheckpoint
	kinds
)

// manyRows is the number of rows of kindSetMany; more gain nothing.
const manyRows = 32

// The order of the scans in kind matters: Walk finds the one with an upper bound just before the one without.
var statements = [kinds]string{
	kindGet:         "SELECT v FROM kv WHERE k=?",
	kindForward:     "SELECT k,v FROM kv WHERE k>=? AND k<? ORDER BY k",
	kindForwardFrom: "SELECT k,v FROM kv WHERE k>=? ORDER BY k",
	kindReverse:     "SELECT k,v FROM kv WHERE k>=? AND k<? ORDER BY k DESC",
	kindReverseFrom: "SELECT k,v FROM kv WHERE k>=? ORDER BY k DESC",
	kindSet:         "REPLACE INTO kv(k,v) VALUES(?,?)",
	kindSetMany:     "REPLACE INTO kv(k,v) VALUES(?,?)" + strings.Repeat(",(?,?)", manyRows-1),
	kindDelete:      "DELETE FROM kv WHERE k=?",
	kindDeleteRange: "DELETE FROM kv WHERE k>=? AND k<?",
	kindDeleteFrom:  "DELETE FROM kv WHERE k>=?",
	kindBegin:       "BEGIN IMMEDIATE",
	kindCommit:      "COMMIT",
	kindLogLength:   "PRAGMA main.wal_checkpoint(noop)",
	kindCheckpoint:  "PRAGMA main.wal_checkpoint(passive)",
}

// conn is one connection, with the statements prepared on it that are not in use. One that is borrowed is a view of one
// state, for a Get, for an iterator, or for a snapshot and its iterators.
type conn struct {
	c    sqldriver.Conn
	free [kinds][]*stmt
	turn uint64    // when it was borrowed; guarded by engine.mu
	op   driver.Op // for which it was borrowed; a snapshot is in a transaction

	mu     sync.Mutex // held by each of those who share a view while they use c
	broken bool       // an error happened: the connection is not used again
}

// stmt is a prepared statement with room for its arguments and results.
type stmt struct {
	s    sqldriver.Stmt
	kind kind
	args []sqldriver.NamedValue
	row  [3]sqldriver.Value
	rows sqldriver.Rows // while it is being stepped through
	cols int
}

// busyTimeout is how long SQLite waits, in ms: the directory is locked, and only recovery and closing lock the
// database.
const busyTimeout = "busy_timeout=60000"

// connect opens a connection to the database at path.
func (e *engine) connect(path string, cache int64) (*conn, error) {
	// The path is given as a URL: a plain one with a question mark in it would be cut there.
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/dir
	}
	dc, err := e.lib.driver.Open("file://" + (&url.URL{Path: slashed}).EscapedPath() + e.lib.params)
	if err != nil {
		return nil, err
	}
	c := &conn{c: dc}

	// Each holds for a connection and is not stored in the file, so every connection sets all of them.
	pragmas := []string{
		busyTimeout,
		// The log is copied by e.checkpoint, which sees whether that fails.
		"wal_autocheckpoint=0",
		"journal_size_limit=67108864", // gives the space back that a long snapshot has cost
		// Unless asked for: a page that cannot be read is an error, not a signal.
		fmt.Sprintf("mmap_size=%d", max(e.tuning.MapBytes, 0)),
		"cell_size_check=1",
		"trusted_schema=0",
		// On macOS fsync does not reach the device; elsewhere these do nothing.
		"fullfsync=1",
		"checkpoint_fullfsync=1",
	}
	if cache > 0 {
		pragmas = append(pragmas, fmt.Sprintf("cache_size=%d", -max(cache>>10, 64))) // KiB
	}

	for _, p := range pragmas {
		if _, err := c.exec("PRAGMA " + p); err != nil {
			c.close()
			return nil, err
		}
	}

	return c, nil
}

// close also checkpoints and removes the log if it is the last connection.
func (c *conn) close() error {
	// A connection cannot be closed while statements are prepared on it.
	for _, list := range c.free {
		for _, s := range list {
			s.s.Close()
		}
	}

	return c.c.Close()
}

// exec runs sql, which may be several statements.
func (c *conn) exec(sql string) (sqldriver.Result, error) {
	return c.c.(sqldriver.ExecerContext).ExecContext(context.Background(), sql, nil)
}

// text returns the first column of sql's first row as text, "" if there is no row.
func (c *conn) text(sql string) (string, error) {
	rows, err := c.c.(sqldriver.QueryerContext).QueryContext(context.Background(), sql, nil)
	if err != nil {
		return "", err
	}
	row := make([]sqldriver.Value, len(rows.Columns()))
	if err = rows.Next(row); err == io.EOF {
		return "", rows.Close()
	}
	if err := errors.Join(err, rows.Close()); err != nil {
		return "", err
	}
	if b, ok := row[0].([]byte); ok {
		return string(b), nil
	}

	return fmt.Sprint(row[0]), nil
}

// settings reads back what the connection runs with.
func (c *conn) settings(checkpointAt int64) ([]holdfast.Setting, error) {
	var list []holdfast.Setting
	for _, name := range []string{"journal_mode", "synchronous", "page_size", "cache_size", "mmap_size",
		"wal_autocheckpoint",
		"journal_size_limit", "fullfsync", "checkpoint_fullfsync", "locking_mode", "auto_vacuum"} {
		value, err := c.text("PRAGMA " + name)
		if err != nil {
			return nil, err
		}
		list = append(list, holdfast.Setting{Name: name, Value: value})
	}
	table, err := c.text("SELECT sql FROM sqlite_schema WHERE name='kv'")
	if err != nil {
		return nil, err
	}
	version, err := c.text("SELECT sqlite_version()")
	if err != nil {
		return nil, err
	}
	options, err := c.text("SELECT group_concat(compile_options, ' ') FROM pragma_compile_options WHERE compile_options " +
		"GLOB 'THREADSAFE*' OR compile_options GLOB 'DEFAULT_*SYNC*' OR compile_options GLOB 'COMPILER*'")
	if err != nil {
		return nil, err
	}

	return append(list,
		holdfast.Setting{Name: "checkpoint", Value: fmt.Sprintf("passive, from %d pages", checkpointAt)},
		holdfast.Setting{Name: "table", Value: strings.TrimPrefix(table, "CREATE TABLE ")},
		holdfast.Setting{Name: "sqlite_version", Value: version},
		holdfast.Setting{Name: "compile_options", Value: options}), nil
}

// stmt returns a prepared statement that is not in use; done gives it back.
func (c *conn) stmt(k kind) (*stmt, error) {
	// The last one given back is taken: what it holds in memory is warm.
	if n := len(c.free[k]); n > 0 {
		s := c.free[k][n-1]
		c.free[k] = c.free[k][:n-1]

		return s, nil
	}
	prepared, err := c.c.(sqldriver.ConnPrepareContext).PrepareContext(context.Background(), statements[k])
	if err != nil {
		return nil, err
	}

	s := &stmt{s: prepared, kind: k, args: make([]sqldriver.NamedValue, strings.Count(statements[k], "?"))}
	for i := range s.args {
		s.args[i].Ordinal = i + 1
	}

	return s, nil
}

// done takes a statement back. It drops arguments and results: they are the caller's memory, which must not stay alive
// here.
func (c *conn) done(s *stmt) {
	for i := range s.args {
		s.args[i].Value = nil
	}
	s.row = [3]sqldriver.Value{}
	c.free[s.kind] = append(c.free[s.kind], s)
}

// run executes a statement that returns no rows.
func (c *conn) run(k kind, args ...[]byte) error {
	s, err := c.stmt(k)
	if err != nil {
		return err
	}

	// The driver copies what it is given before it returns.
	for i, a := range args {
		s.args[i].Value = a
	}
	err = s.exec()
	c.done(s)

	return err
}

// exec executes a statement that returns no rows.
func (s *stmt) exec() error {
	_, err := s.s.(sqldriver.StmtExecContext).ExecContext(context.Background(), s.args)
	return err
}

// query begins to step through a statement's rows; end must follow.
func (s *stmt) query(args ...[]byte) (err error) {
	for i, a := range args {
		s.args[i].Value = a
	}
	s.rows, err = s.s.(sqldriver.StmtQueryContext).QueryContext(context.Background(), s.args)
	if err == nil {
		s.cols = len(s.rows.Columns())
	}

	return err
}

// next steps to the next row, in s.row; it returns io.EOF after the last.
func (s *stmt) next() error {
	// The driver may leave a column as it was.
	s.row = [3]sqldriver.Value{}
	return s.rows.Next(s.row[:s.cols])
}

// end resets the statement, so that the state it has read may go.
func (s *stmt) end() error {
	if s.rows == nil {
		return nil
	}
	err := s.rows.Close()
	s.rows = nil

	return err
}

// blob returns a column of the row.
func (s *stmt) blob(column int) ([]byte, bool) {
	b, ok := s.row[column].([]byte)
	return b, ok
}

// ints runs a statement and returns the numbers in its first row.
func (c *conn) ints(k kind) (n [3]int64, err error) {
	s, err := c.stmt(k)
	if err != nil {
		return n, err
	}
	defer c.done(s)
	if err = s.query(); err != nil {
		return n, err
	}

	// A column that is no number counts as 0.
	err = s.next()
	for i := range n {
		n[i], _ = s.row[i].(int64)
	}

	return n, errors.Join(err, s.end())
}
