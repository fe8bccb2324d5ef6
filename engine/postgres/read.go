package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

const (
	get = "SELECT v FROM holdfast_kv WHERE space = $1 AND k = $2"

	// Large values come one by one, so that a page stays small.
	columns = "SELECT k, CASE WHEN octet_length(v) <= 65536 THEN v END FROM holdfast_kv WHERE space = $1 AND "

	// fetchKeys is how many keys are fetched at once.
	fetchKeys = 512

	firstPage = 128
	pageRows  = 4096
	pageBytes = 1 << 20
	// lingers is how long a page may still take to arrive that nobody waits for.
	lingers = time.Second
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
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := paceOf(conn.Conn()).within(ctx, s.patience)
	defer cancel()
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
	if e.unused(s) {
		go e.end(s) // it has only read: nobody waits for the answer
	}

	return nil
}

// unused ends a use of a state, and reports whether that was the last one.
func (e *engine) unused(s *state) (last bool) {
	e.sharing.Lock()
	defer e.sharing.Unlock()
	s.users--
	if s.users == 0 && e.newest == s {
		e.newest = nil
	}

	return s.users == 0
}

// end gives back the connection of a state that nobody uses.
func (e *engine) end(s *state) {
	_ = e.in(s.ctx, s, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, "COMMIT")
		return err
	})
	s.conn.Release()
	<-e.states
}

// giveUp ends a read of a state that nobody needs any more, unless others use the state: it ends the connection. So a
// page that is on its way may arrive.
func (e *engine) giveUp(s *state, stop func()) {
	e.sharing.Lock()
	defer e.sharing.Unlock()
	if s.users > 1 {
		return
	}
	if e.newest == s {
		e.newest = nil
	}
	time.AfterFunc(lingers, stop)
}

// in calls read when it is its turn to use the connection of a state. Reads of a state cannot be made elsewhere, so a
// server that does not answer is given up.
func (e *engine) in(ctx context.Context, s *state, read func(context.Context, *pgxpool.Conn) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := paceOf(s.conn.Conn()).within(ctx, e.patience)
	defer cancel()

	return read(ctx, s.conn)
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
	err = e.in(v.ctx, v.state, func(ctx context.Context, conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, get, e.space, key).Scan(&value)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}

	return value, v.since, err
}

// Fetch reads keys that are not in the cache. It implements [fetch.Fetcher].
func (e *engine) Fetch(keys [][]byte) {
	if e.Life.Enter() != nil {
		return
	}
	defer e.Life.Leave()
	keys = e.cache.unknown(keys)
	if len(keys) < 2 { // Get does it as well
		return
	}
	for some := range slices.Chunk(keys, fetchKeys) {
		g := gathering{keys: some}
		if e.gather(&g) != nil {
			return
		}
		for i, key := range some {
			e.cache.read(key, g.values[i], g.since)
		}
	}
}

// iterator reads pages. While the caller has one, the next is fetched.
type iterator struct {
	hold  driver.Hold[*view]
	e     *engine
	r     holdfast.Range // that is left to read
	rows  []pair
	at    int // of the next row
	more  bool
	size  int        // rows of the next page
	pages int        // that have arrived
	ahead chan *page // the next one, which is being fetched; nil if none is
	stop  context.CancelFunc

	closed     bool
	key, value []byte
	err        error
}

// pair is a row. Its value is nil if it is a large one.
type pair struct{ key, value []byte }

type page struct {
	rows []pair
	err  error
}

// Walk implements [driver.Core]. It reads the first page at once, which fixes the state it sees.
func (e *engine) Walk(h driver.Hold[*view], r holdfast.Range) (holdfast.Iterator, error) {
	it := &iterator{hold: h, e: e, size: firstPage}
	it.r = holdfast.Range{Lo: bytes.Clone(r.Lo), Hi: bytes.Clone(r.Hi), Reverse: r.Reverse}
	// Connections are shared when they get few: it is faster to have one's own.
	if h.View.op == driver.Scan && len(e.states) > maxStates/2 {
		h.View.state = e.shared()
	}
	var first page
	sql, args := it.query()
	if h.View.state != nil {
		first.read(h.View.ctx, e, h.View.state, sql, args)
	} else {
		first.err = e.begin(h.View, func(b *pgx.Batch) { b.Queue(sql, args...) }, func(results pgx.BatchResults) error {
			rows, err := results.Query()
			if err != nil {
				return err
			}

			return first.collect(rows)
		})
	}
	if err := it.take(&first); err != nil {
		return nil, err
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

// read reads a page in a state.
func (p *page) read(ctx context.Context, e *engine, s *state, sql string, args []any) {
	p.err = e.in(ctx, s, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			return err
		}

		return p.collect(rows)
	})
}

func (p *page) collect(rows pgx.Rows) error {
	p.rows = nil // of an attempt whose answer came too late
	for rows.Next() {
		raw := rows.RawValues()
		p.rows = append(p.rows, pair{bytes.Clone(raw[0]), bytes.Clone(raw[1])})
	}

	return rows.Err()
}

// take goes on with a page that has arrived.
func (it *iterator) take(p *page) error {
	if p.err != nil {
		return it.e.fail("scan", p.err)
	}
	it.rows, it.at = p.rows, 0
	it.pages++

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

// fetch begins to fetch the next page. That is a use of the state of its own, so nobody who closes the iterator waits.
func (it *iterator) fetch() {
	e, s := it.e, it.hold.View.state
	sql, args := it.query()
	e.sharing.Lock()
	s.users++
	e.sharing.Unlock()
	ctx, stop := context.WithCancel(s.ctx)
	arrived := make(chan *page, 1)
	it.ahead, it.stop = arrived, stop
	go func() {
		defer stop()
		var p page
		p.read(ctx, e, s, sql, args)
		arrived <- &p
		if e.unused(s) {
			e.end(s)
		}
	}()
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
		next := <-it.ahead
		it.ahead = nil
		it.err = it.take(next)
	}
	if it.err != nil || it.at == len(it.rows) {
		return false
	}
	p := it.rows[it.at]
	it.at++

	// Who reads half of the first page is about to read on.
	if it.more && it.ahead == nil && (it.pages > 1 || 2*it.at >= len(it.rows)) {
		it.fetch()
	}
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
	s := it.hold.View.state
	it.hold.End()
	if it.ahead != nil {
		it.e.giveUp(s, it.stop)
	}

	return it.err
}
