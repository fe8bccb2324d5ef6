package contender

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/mattn/go-sqlite3" // the driver sqlite3

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task"
)

// The names of SQLite with a table of tasks.
const (
	SQLiteSQL       = "sqlite-sql"        // each change is a transaction
	SQLiteSQLMerged = "sqlite-sql-merged" // changes that wait for the writer are merged into one
)

// DescribeSQLiteSQL says what SQLite with a table of tasks gives.
func DescribeSQLiteSQL() holdfast.Capabilities {
	return describeSQLiteSQL(SQLiteSQL, "Each change is a transaction of its own, as in the study.")
}

// DescribeSQLiteSQLMerged says the same of the one that merges.
func DescribeSQLiteSQLMerged() holdfast.Capabilities {
	return describeSQLiteSQL(SQLiteSQLMerged, "Changes that wait for the writer are merged into one transaction.")
}

func describeSQLiteSQL(name, how string) holdfast.Capabilities {
	c := sqliteCapabilities(name, "sqlite3", "github.com/mattn/go-sqlite3")
	c.Caveats = []string{
		how,
		"It holds tasks only: the study's table, with an index by status and due time. All changes go through one " +
			"connection, with prepared statements; who waits for its turn does so in Go, without SQLite's busy timeout.",
		"It has no leases, attempts or limits: a task that was claimed by a process that died stays claimed.",
	}

	return c
}

// sqliteCapabilities are those of a database in WAL mode that is written through a driver of database/sql.
func sqliteCapabilities(name, driver, module string) holdfast.Capabilities {
	c := holdfast.Capabilities{
		Engine: name, Library: version(module), AtomicBatches: true,
		MaxKeySize: holdfast.MaxKeySize, MaxValueSize: holdfast.MaxValueSize, MaxBatchSize: holdfast.MaxBatchSize,
	}
	if err := sqliteDriver(driver)(); err != nil {
		c.Memory = holdfast.Promise{Why: err.Error()}
		c.Process, c.Power = c.Memory, c.Memory

		return c
	}
	c.Process = holdfast.Promise{Given: holdfast.Process, How: "a transaction in the write-ahead log, synchronous=NORMAL"}
	c.Memory = c.Process
	c.Memory.Why = "a transaction is written to the log before it is visible"
	c.Power = holdfast.Promise{Given: holdfast.Power,
		How: "a transaction in the write-ahead log, synchronous=FULL: fsync"}

	return c
}

// sqliteDriver returns what says whether a driver works: one that needs cgo does not without.
func sqliteDriver(name string) func() error {
	works, _ := sqliteDrivers.LoadOrStore(name, sync.OnceValue(func() error {
		db, err := sql.Open(name, ":memory:")
		if err != nil {
			return err
		}

		return errors.Join(db.Ping(), db.Close())
	}))

	return works.(func() error)
}

var sqliteDrivers sync.Map

// sqliteSettings are those of a database that is opened at that level: the study's, and what guides add to them.
func sqliteSettings(o holdfast.Options) []holdfast.Setting {
	synchronous := "NORMAL"
	if o.Level == holdfast.Power {
		synchronous = "FULL"
	}
	cache := int64(64 << 20)
	if o.MemoryBytes > 0 {
		cache = o.MemoryBytes
	}

	return []holdfast.Setting{
		{Name: "journal_mode", Value: "WAL"},
		{Name: "synchronous", Value: synchronous},
		{Name: "cache_size", Value: fmt.Sprint(-max(cache>>10, 64))}, // KiB
		{Name: "temp_store", Value: "MEMORY"},
		{Name: "busy_timeout", Value: "60000"},
		// On macOS fsync does not reach the device; elsewhere these do nothing.
		{Name: "fullfsync", Value: "1"},
		{Name: "checkpoint_fullfsync", Value: "1"},
	}
}

// sqliteURL is the address of the database in dir.
func sqliteURL(dir string) string {
	path := filepath.ToSlash(filepath.Join(dir, "data.sqlite"))
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/dir
	}

	return "file://" + (&url.URL{Path: path}).EscapedPath()
}

// sqliteSchema is the study's table and its index.
//
//go:embed tasks.sql
var sqliteSchema string

// sqliteStatement is a statement that is kept prepared.
type sqliteStatement int

const (
	sqliteInsert sqliteStatement = iota
	sqliteClaim
	sqliteOutput
	sqliteComplete
	sqliteDelete
	sqliteBegin
	sqliteCommit
	sqliteRollback
	sqliteStatements
)

var sqliteTexts = [sqliteStatements]string{
	sqliteInsert: `INSERT INTO tasks (id, cmd, args, status, output, scheduled_at, discard)
		VALUES (?, 'example', ?, 'pending', '', ?, ?)`,
	sqliteClaim: `UPDATE tasks SET status = 'processing' WHERE id = (
			SELECT id FROM tasks WHERE status = 'pending' AND scheduled_at <= ? ORDER BY scheduled_at LIMIT 1)
		RETURNING id, args, discard`,
	sqliteOutput:   `UPDATE tasks SET output = ? WHERE id = ? AND status = 'processing'`,
	sqliteComplete: `UPDATE tasks SET status = 'completed' WHERE id = ? AND status = 'processing'`,
	sqliteDelete:   `DELETE FROM tasks WHERE id = ? AND status = 'processing'`,
	sqliteBegin:    `BEGIN IMMEDIATE`,
	sqliteCommit:   `COMMIT`,
	sqliteRollback: `ROLLBACK`,
}

// sqliteTasks is a queue in a table.
type sqliteTasks struct {
	levelPeer
	db     *sql.DB
	merge  int // changes of one transaction
	merged atomic.Int64

	writer     sync.Mutex // held by who uses these
	conn       *sql.Conn
	statements [sqliteStatements]*sql.Stmt

	waitingMu sync.Mutex
	waiting   []*sqliteChange // for the writer
	enqueued  chan struct{}   // closed at the next Enqueue; nil if nobody waits for that
}

// sqliteChange is a change that waits for the writer.
type sqliteChange struct {
	do   func() error // with the writer; if it is a single statement, it changes nothing where it fails
	many bool         // it has several statements
	done bool         // guarded by writer
	err  error
}

// OpenSQLiteSQL opens or makes a table of tasks in dir.
func OpenSQLiteSQL(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return openSQLiteTasks(DescribeSQLiteSQL, 1, dir, o)
}

// OpenSQLiteSQLMerged opens or makes a table of tasks in dir; it merges changes.
func OpenSQLiteSQLMerged(dir string, o holdfast.Options) (holdfast.Engine, error) {
	const most = 1024
	return openSQLiteTasks(DescribeSQLiteSQLMerged, most, dir, o)
}

func openSQLiteTasks(describe func() holdfast.Capabilities, merge int, dir string, o holdfast.Options) (
	holdfast.Engine, error) {
	h, o, err := begin(describe(), dir, o, true)
	if err != nil {
		return nil, err
	}
	q := &sqliteTasks{merge: merge}
	q.init(onlyTasks, h, o.Level, describe)
	q.shut, q.groups, q.settings = q.stop, &q.merged, sqliteSettings(o)
	if err := q.start(); err != nil {
		if q.db != nil {
			err = errors.Join(err, q.db.Close())
		}

		return nil, errors.Join(&holdfast.Error{Op: "open", Engine: q.name, Path: dir, Cause: err}, h.Close())
	}

	return q, nil
}

func (q *sqliteTasks) start() (err error) {
	ctx := context.Background()
	if q.db, err = sql.Open("sqlite3", sqliteURL(q.dir)); err != nil {
		return err
	}
	if q.conn, err = q.db.Conn(ctx); err != nil {
		return err
	}

	for _, s := range q.settings {
		if _, err := q.conn.ExecContext(ctx, "PRAGMA "+s.Name+"="+s.Value); err != nil {
			return err
		}
	}
	if q.handle.New {
		if _, err = q.conn.ExecContext(ctx, sqliteSchema); err == nil {
			err = q.handle.Made()
		}
		if err != nil {
			return err
		}
	}

	for i, text := range sqliteTexts {
		if q.statements[i], err = q.conn.PrepareContext(ctx, text); err != nil {
			return err
		}
	}

	return nil
}

func (q *sqliteTasks) stop() error {
	q.beginClose()
	q.calls.Wait()

	var errs []error
	for _, s := range q.statements {
		errs = append(errs, s.Close())
	}

	return errors.Join(append(errs, q.conn.Close(), q.db.Close(), q.handle.Close())...)
}

// change makes a change. Whoever has the writer makes those of others too, if they are to be merged.
func (q *sqliteTasks) change(ctx context.Context, op string, c *sqliteChange) error {
	_, end, err := q.use(ctx, op)
	if err != nil {
		return err
	}
	defer end()
	q.waitingMu.Lock()
	q.waiting = append(q.waiting, c)
	q.waitingMu.Unlock()
	q.writer.Lock()
	defer q.writer.Unlock()

	for !c.done {
		q.waitingMu.Lock()
		n := min(q.merge, len(q.waiting))
		group := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		q.waitingMu.Unlock()

		err := q.commit(group)
		for _, c := range group {
			c.done = true
			if c.err == nil {
				c.err = err
			}
			_ = q.counts.commit(c.err)
		}
	}

	return q.fail(op, c.err)
}

// commit makes the changes in one transaction. One that fails does not concern the others.
func (q *sqliteTasks) commit(group []*sqliteChange) error {
	q.merged.Add(1)
	if len(group) == 1 && !group[0].many {
		group[0].err = group[0].do()
		return nil
	}
	if _, err := q.exec(sqliteBegin); err != nil {
		return err
	}
	err := q.all(group)
	if err == nil {
		_, err = q.exec(sqliteCommit)
	}
	if err != nil {
		_, failed := q.exec(sqliteRollback)
		return errors.Join(err, failed)
	}

	return nil
}

// all makes the changes in the open transaction.
func (q *sqliteTasks) all(group []*sqliteChange) error {
	// A context that can end would have each call watched by a goroutine.
	ctx := context.Background()
	for _, c := range group {
		if !c.many {
			c.err = c.do()
			continue
		}
		if _, err := q.conn.ExecContext(ctx, "SAVEPOINT change"); err != nil {
			return err
		}
		end := "RELEASE change"
		if c.err = c.do(); c.err != nil {
			end = "ROLLBACK TO change; RELEASE change"
		}
		if _, err := q.conn.ExecContext(ctx, end); err != nil {
			return err
		}
	}

	return nil
}

// exec runs a statement that returns no rows.
func (q *sqliteTasks) exec(s sqliteStatement, args ...any) (sql.Result, error) {
	return q.statements[s].Exec(args...)
}

// Enqueue implements [Tasks].
func (q *sqliteTasks) Enqueue(ctx context.Context, specs ...TaskSpec) (ids []string, err error) {
	for range specs {
		var id [16]byte
		_, _ = rand.Read(id[:]) // never fails
		ids = append(ids, hex.EncodeToString(id[:]))
	}
	err = q.change(ctx, "enqueue", &sqliteChange{many: len(specs) > 1, do: func() error {
		now := time.Now().UnixMicro()
		for i, s := range specs {
			if _, err := q.exec(sqliteInsert, ids[i], string(s.Args), now, s.Discard); err != nil {
				return err
			}
		}

		return nil
	}})
	if err != nil {
		return nil, err
	}
	q.waitingMu.Lock()
	if q.enqueued != nil {
		close(q.enqueued)
		q.enqueued = nil
	}
	q.waitingMu.Unlock()

	return ids, nil
}

// Work implements [Tasks].
func (q *sqliteTasks) Work(int) error { return nil }

// Claim implements [Tasks]. The lease is whether the task is discarded.
func (q *sqliteTasks) Claim(ctx context.Context) (c TaskClaim, err error) {
	for {
		q.waitingMu.Lock()
		if q.enqueued == nil {
			q.enqueued = make(chan struct{})
		}
		enqueued := q.enqueued
		q.waitingMu.Unlock()
		err = q.change(ctx, "claim", &sqliteChange{do: func() error {
			var discard bool
			err := q.statements[sqliteClaim].QueryRow(time.Now().UnixMicro()).Scan(&c.ID, &c.Args, &discard)
			c.Lease = discard

			return err
		}})
		if !errors.Is(err, sql.ErrNoRows) {
			return c, err
		}

		select {
		case <-enqueued:
		case <-q.closing.Done():
			return c, q.isClosed("claim")
		case <-ctx.Done():
			return c, ctx.Err()
		}
	}
}

// SetOutput implements [Tasks].
func (q *sqliteTasks) SetOutput(ctx context.Context, c TaskClaim, output []byte) error {
	return q.changeClaimed(ctx, "set output", sqliteOutput, string(output), c.ID)
}

// Complete implements [Tasks].
func (q *sqliteTasks) Complete(ctx context.Context, c TaskClaim) error {
	statement := sqliteComplete
	if c.Lease.(bool) {
		statement = sqliteDelete
	}

	return q.changeClaimed(ctx, "complete", statement, c.ID)
}

// changeClaimed runs a statement on a task, which must be claimed.
func (q *sqliteTasks) changeClaimed(ctx context.Context, op string, statement sqliteStatement, args ...any) error {
	return q.change(ctx, op, &sqliteChange{do: func() error {
		result, err := q.exec(statement, args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 1 {
			return err
		}

		return lostClaim(op, q.name)
	}})
}

// lostClaim is the error where a task is not claimed.
func lostClaim(op, engine string) error {
	return &holdfast.Error{Op: op, Engine: engine, Class: task.ErrLeaseLost, Detail: "the task is not claimed any more"}
}

// List implements [Tasks].
func (q *sqliteTasks) List(ctx context.Context, yield func(Task) error) error {
	ctx, end, err := q.use(ctx, "list")
	if err != nil {
		return err
	}
	defer end()
	q.writer.Lock()
	defer q.writer.Unlock()
	rows, err := q.conn.QueryContext(ctx, "SELECT id, args, status, output FROM tasks")
	if err != nil {
		return q.fail("list", err)
	}
	defer rows.Close()

	states := map[string]task.State{"pending": task.Waiting, "processing": task.Running, "completed": task.Completed}
	for rows.Next() {
		var t Task
		var status string
		if err := rows.Scan(&t.ID, &t.Args, &status, &t.Output); err != nil {
			return q.fail("list", err)
		}
		t.State = states[status]
		if err := yield(t); err != nil {
			return err
		}
	}

	return q.fail("list", rows.Err())
}
