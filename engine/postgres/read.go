package postgres

import (
	"bytes"
	"context"
	"errors"
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

	firstPage = 64
	pageRows  = 4096
	pageBytes = 1 << 20
)

// view is a state: a connection with a transaction that reads it, once there is one. A Get has none.
type view struct {
	op   driver.Op
	mu   sync.Mutex // one at a time reads from the connection
	conn *pgxpool.Conn
}

// View implements [driver.Core].
func (e *engine) View(op driver.Op) (*view, error) {
	v := &view{op: op}
	if op != driver.Snapshot {
		return v, nil
	}
	// BEGIN alone fixes nothing: the first read does.
	if err := e.begin(v, func(b *pgx.Batch) { b.Queue("SELECT 1") }, func(pgx.BatchResults) error { return nil }); err != nil {
		return nil, e.fail(string(op), err)
	}

	return v, nil
}

// begin takes a connection, and begins a transaction on it with what first queues.
func (e *engine) begin(v *view, first func(*pgx.Batch), read func(pgx.BatchResults) error) error {
	release := func() { // the pool closes one that is in a transaction
		if v.conn != nil {
			v.conn.Release()
			v.conn = nil
		}
	}
	err := e.fresh(func(ctx context.Context) error {
		release() // that of an attempt whose answer came too late
		conn, err := e.pool.Acquire(ctx)
		if err != nil {
			return unavailable(err)
		}
		batch := &pgx.Batch{}
		batch.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		first(batch)
		results := conn.SendBatch(ctx, batch)
		_, err = results.Exec()
		if err == nil {
			err = read(results)
		}
		v.conn = conn

		return errors.Join(err, results.Close())
	})
	if err != nil {
		release()
	}

	return err
}

// Drop implements [driver.Core].
func (e *engine) Drop(v *view) error {
	if v.conn == nil {
		return nil
	}
	_, err := v.conn.Exec(context.Background(), "COMMIT")
	v.conn.Release()
	v.conn = nil
	_ = err // it has only read

	return nil
}

// Read implements [driver.Core].
func (e *engine) Read(v *view, dst, key []byte) ([]byte, error) {
	out, err := e.read(v, dst, key)
	if errors.Is(err, pgx.ErrNoRows) {
		return dst, holdfast.ErrNotFound
	}

	return out, e.fail("get", err)
}

func (e *engine) read(v *view, dst, key []byte) (_ []byte, err error) {
	var value []byte
	if v.op == driver.Get {
		err = e.fresh(func(ctx context.Context) error { return e.pool.QueryRow(ctx, get, e.space, key).Scan(&value) })
	} else {
		v.mu.Lock()
		defer v.mu.Unlock()
		err = v.conn.QueryRow(context.Background(), get, e.space, key).Scan(&value)
	}
	if err == nil && value == nil {
		value = []byte{}
	}
	if dst == nil {
		return value, err
	}

	return append(dst, value...), err
}

// iterator reads pages.
type iterator struct {
	hold driver.Hold[*view]
	e    *engine
	r    holdfast.Range
	rows []pair
	at   int // of the next row
	more bool
	size int // rows of the next page

	started, closed bool
	key, value      []byte
	err             error
}

type pair struct{ key, value []byte }

// Walk implements [driver.Core]. It reads the first page at once, which fixes the state it sees.
func (e *engine) Walk(h driver.Hold[*view], r holdfast.Range) (holdfast.Iterator, error) {
	it := &iterator{hold: h, e: e, size: firstPage}
	it.r = holdfast.Range{Lo: bytes.Clone(r.Lo), Hi: bytes.Clone(r.Hi), Reverse: r.Reverse}
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

	return sql + " LIMIT $" + string(rune('0'+len(args))), args
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
	v := it.hold.View
	v.mu.Lock()
	defer v.mu.Unlock()
	var err error
	if v.conn == nil {
		err = it.e.begin(v, func(b *pgx.Batch) { b.Queue(sql, args...) }, func(results pgx.BatchResults) error {
			rows, err := results.Query()
			if err != nil {
				return err
			}

			return collect(rows)
		})
	} else {
		var rows pgx.Rows
		if rows, err = v.conn.Query(context.Background(), sql, args...); err == nil {
			err = collect(rows)
		}
	}
	if err != nil {
		return err
	}

	// The range that is left, and how many of such rows make a page.
	if it.more = len(it.rows) == it.size; it.more {
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
	}

	return nil
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
	if p.value == nil { // a large one
		value, err := it.e.read(it.hold.View, nil, p.key)
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
