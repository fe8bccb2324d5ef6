package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

const (
	get = "SELECT v FROM holdfast_kv WHERE space = $1 AND k = $2"

	// Large values come one by one, so that a page stays small.
	columns = "SELECT k, CASE WHEN octet_length(v) <= 65536 THEN v END FROM holdfast_kv WHERE space = $1 AND "

	firstPage = 128
	pageRows  = 4096
	pageBytes = 1 << 20
)

// state is a transaction that reads one state, on a connection of its own. Its users take turns.
type state struct {
	at    int64           // commits that it shows, if none was under way when it began; -1 otherwise
	since int64           // what the cache calls the state, at least
	ctx   context.Context // ends when the space is elsewhere: its server may never answer
	users int             // counted under engine.sharing

	mu   sync.Mutex // one at a time reads from the connection
	conn *pgxpool.Conn
}

// view is what one Get, iterator or snapshot reads. It has no state if it is for a Get, which reads what there is at
// that moment, for an iterator that has not read its first page, or for one that has read its last.
type view struct {
	op driver.Op
	*state
}

// View implements [driver.Core].
func (e *engine) View(op driver.Op) (*view, error) {
	v := &view{op: op}
	if op != driver.Snapshot {
		return v, nil
	}
	if v.state = e.shared(); v.state != nil {
		return v, nil
	}
	// BEGIN alone fixes nothing: the first read does.
	err := e.begin(v, func(b *pgx.Batch) { b.Queue("SELECT 1") }, func(pgx.BatchResults) error { return nil })
	if err != nil {
		return nil, e.fail(string(op), err)
	}

	return v, nil
}

// shared returns the newest state if it still shows all that is visible, with a user more; otherwise nil. Whether
// another process has changed something, only the lease says.
func (e *engine) shared() *state {
	e.sharing.Lock()
	defer e.sharing.Unlock()
	s := e.newest
	if s == nil || s.at != e.begun.Load() || !e.lease.holds() {
		return nil
	}
	s.users++

	return s
}

// begin gives v a state: a transaction that begins with what first queues.
func (e *engine) begin(v *view, first func(*pgx.Batch), read func(pgx.BatchResults) error) error {
	select {
	case e.states <- struct{}{}:
	default:
		ctx, cancel := context.WithTimeout(context.Background(), e.patience)
		defer cancel()
		select {
		case e.states <- struct{}{}:
		case <-ctx.Done():
			return &holdfast.Error{Class: holdfast.ErrUnavailable, Remedy: "close some",
				Detail: fmt.Sprintf("%d states are being read, as many as there are connections for", maxStates)}
		}
	}

	s := &state{users: 1}
	var at *server
	release := func() { // the pool closes a connection that is in a transaction
		if s.conn != nil {
			s.conn.Release()
			s.conn = nil
		}
	}
	err := e.fresh(func(ctx context.Context, from *server) (err error) {
		release() // that of an attempt whose answer came too late
		at, s.ctx, s.since = from, from.ctx, e.cache.now()
		if s.at = e.begun.Load(); e.ended.Load() != s.at {
			s.at = -1 // it may show the commit that is under way, or not
		}
		s.conn, err = from.transaction(ctx, first, read)

		return err
	})
	if err != nil {
		release()
		<-e.states

		return err
	}

	v.state = s
	e.sharing.Lock()
	defer e.sharing.Unlock()
	if s.at >= 0 && at == e.server.Load() {
		e.newest = s
	}

	return nil
}

// transaction begins one that reads, on a connection of the pool.
func (s *server) transaction(ctx context.Context, first func(*pgx.Batch), read func(pgx.BatchResults) error) (
	*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	batch.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	first(batch)
	results := conn.SendBatch(ctx, batch)
	if _, err = results.Exec(); err == nil {
		err = read(results)
	}
	if err := errors.Join(err, results.Close()); err != nil {
		conn.Release() // the pool closes one that is in a transaction
		return nil, err
	}

	return conn, nil
}

// Drop implements [driver.Core].
func (e *engine) Drop(v *view) error {
	s := v.state
	if s == nil {
		return nil
	}
	v.state = nil
	e.sharing.Lock()
	if s.users--; s.users > 0 {
		e.sharing.Unlock()
		return nil
	}
	if e.newest == s {
		e.newest = nil
	}
	e.sharing.Unlock()
	_, _ = s.conn.Exec(s.ctx, "COMMIT") // it has only read
	s.conn.Release()
	<-e.states

	return nil
}

// Read implements [driver.Core].
func (e *engine) Read(v *view, dst, key []byte) ([]byte, error) {
	value, known := e.cached(v, key)
	if known && value == nil {
		return dst, holdfast.ErrNotFound
	}
	if known {
		return append(dst, value...), nil
	}

	value, since, err := e.value(v, key)
	if err != nil {
		return dst, e.fail("get", err)
	}
	e.cache.read(key, value, since)
	switch {
	case value == nil:
		return dst, holdfast.ErrNotFound
	case dst == nil:
		return value, nil
	}

	return append(dst, value...), nil
}

// cached looks up a key in the cache. A nil value means that it is absent.
func (e *engine) cached(v *view, key []byte) (value []byte, known bool) {
	if v.op != driver.Get {
		return e.cache.getIn(key, v.since)
	}

	// The lease is asked after the value was taken, as after the answer of a server: a process may pause at any time.
	value, known = e.cache.get(key)

	return value, known && e.lease.holds()
}

// value reads one from the server, in a state that has at least what was settled at since. It is nil if the key is
// absent.
func (e *engine) value(v *view, key []byte) (value []byte, since int64, err error) {
	if v.op == driver.Get {
		return e.get(key)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	err = v.conn.QueryRow(v.ctx, get, e.space, key).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}

	return value, v.since, err
}

// iterator reads pages.
type iterator struct {
	hold driver.Hold[*view]
	e    *engine
	r    holdfast.Range // that is left to read
	rows []pair
	at   int // of the next row
	more bool
	size int // rows of the next page

	closed     bool
	key, value []byte
	err        error
}

// pair is a row. Its value is nil if it is a large one.
type pair struct{ key, value []byte }

// Walk implements [driver.Core]. It reads the first page at once, which fixes the state it sees.
func (e *engine) Walk(h driver.Hold[*view], r holdfast.Range) (holdfast.Iterator, error) {
	it := &iterator{hold: h, e: e, size: firstPage}
	it.r = holdfast.Range{Lo: bytes.Clone(r.Lo), Hi: bytes.Clone(r.Hi), Reverse: r.Reverse}
	// Connections are shared when they get few: it is faster to have one's own.
	if h.View.op == driver.Scan && len(e.states) > maxStates/2 {
		h.View.state = e.shared()
	}
	if err := it.page(); err != nil {
		return nil, e.fail("scan", err)
	}

	return it, nil
}

// query is the statement of the next page.
func (it *iterator) query() (sql string, args []any) {
	lo := it.r.Lo
	if lo == nil {
		lo = []byte{}
	}
	sql, args = columns+"k >= $2", []any{it.e.space, lo}
	if len(it.r.Hi) > 0 {
		sql, args = sql+" AND k < $3", append(args, it.r.Hi)
	}
	if sql += " ORDER BY k"; it.r.Reverse {
		sql += " DESC"
	}
	args = append(args, it.size)

	return fmt.Sprintf("%s LIMIT $%d", sql, len(args)), args
}

// page reads the next page.
func (it *iterator) page() error {
	sql, args := it.query()
	collect := func(rows pgx.Rows) error {
		it.rows, it.at = it.rows[:0], 0
		for rows.Next() {
			raw := rows.RawValues()
			it.rows = append(it.rows, pair{bytes.Clone(raw[0]), bytes.Clone(raw[1])})
		}

		return rows.Err()
	}
	v, err := it.hold.View, error(nil)
	if v.state == nil {
		err = it.e.begin(v, func(b *pgx.Batch) { b.Queue(sql, args...) }, func(results pgx.BatchResults) error {
			rows, err := results.Query()
			if err != nil {
				return err
			}

			return collect(rows)
		})
	} else {
		v.mu.Lock()
		rows, failed := v.conn.Query(v.ctx, sql, args...)
		if err = failed; err == nil {
			err = collect(rows)
		}
		v.mu.Unlock()
	}
	if err != nil {
		return err
	}

	// The range that is left, and how many of such rows make a page.
	if it.more = len(it.rows) == it.size; !it.more {
		it.ended()
		return nil
	}
	last, bytes := it.rows[len(it.rows)-1].key, 0
	for _, p := range it.rows {
		bytes += len(p.key) + len(p.value)
	}
	if it.r.Reverse {
		it.r.Hi = last
	} else {
		it.r.Lo = append(append(make([]byte, 0, len(last)+1), last...), 0)
	}
	it.size = max(1, min(pageRows, 4*it.size, pageBytes/max(1, bytes/len(it.rows))))

	return nil
}

// ended gives back the state if it is the iterator's alone and nothing more is read from it.
func (it *iterator) ended() {
	if it.hold.View.op != driver.Scan {
		return
	}
	for _, p := range it.rows {
		if p.value == nil {
			return
		}
	}
	_ = it.e.Drop(it.hold.View)
}

func (it *iterator) Next() bool {
	if it.closed || it.err != nil {
		return false
	}
	it.key, it.value = nil, nil
	if it.at == len(it.rows) && it.more {
		it.err = it.e.fail("scan", it.page())
	}
	if it.err != nil || it.at == len(it.rows) {
		return false
	}
	p := it.rows[it.at]
	it.at++
	if p.value == nil {
		value, _, err := it.e.value(it.hold.View, p.key)
		if err != nil {
			it.err = it.e.fail("scan", err)
			return false
		}
		p.value = value
	}
	it.key, it.value = p.key, p.value

	return true
}

func (it *iterator) Key() []byte   { return it.key }
func (it *iterator) Value() []byte { return it.value }
func (it *iterator) Err() error    { return it.err }

func (it *iterator) Close() error {
	if it.closed {
		return it.err
	}
	it.closed, it.key, it.value, it.rows = true, nil, nil, nil
	it.hold.End()

	return it.err
}
