package sqlite

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// view is a connection that reads: one state, for an iterator, or a snapshot and its
// iterators.
type view struct {
	e    *Engine
	refs atomic.Int64 // the connection goes back when it drops to 0

	mu     sync.Mutex // guards conn, which several may share
	conn   *conn
	begun  bool // in a transaction
	broken bool // an error happened: the connection is not used again
}

// borrow returns a connection to read with.
func (e *Engine) borrow() (c *conn, err error) {
	e.mu.Lock()
	if n := len(e.idle); n > 0 {
		c, e.idle = e.idle[n-1], e.idle[:n-1]
		e.lend(c)
		e.mu.Unlock()
		return c, nil
	}
	e.mu.Unlock()
	if err = e.home.Check(); err != nil { // SQLite might make files there
		return nil, err
	}
	if c, err = e.connect(e.path(), e.cache); err != nil {
		return nil, err
	}
	_, err = c.exec("PRAGMA query_only=1; PRAGMA user_version") // the second opens the log
	if err == nil {
		err = e.home.Check() // it may be another's that was opened
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	e.mu.Lock()
	e.lend(c)
	e.mu.Unlock()
	return c, nil
}

// lend counts c as borrowed, before it reads anything. It is called with mu held.
func (e *Engine) lend(c *conn) {
	c.turn = e.turn
	e.borrowed++
}

func (e *Engine) giveBack(c *conn, broken bool) {
	if broken {
		_ = c.close() // it has written nothing
	}
	e.mu.Lock()
	e.borrowed--
	if c.turn != e.turn {
		if e.earlier--; e.earlier == 0 && e.gone != nil {
			close(e.gone)
			e.gone = nil
		}
	}
	keep := len(e.idle) < maxIdle
	if keep && !broken {
		e.idle = append(e.idle, c)
	}
	e.mu.Unlock()
	if !keep && !broken {
		_ = c.close()
	}
}

// awaitReaders returns when all who read now are done, or enough is closed.
func (e *Engine) awaitReaders(enough <-chan struct{}) {
	gone := make(chan struct{})
	e.mu.Lock()
	e.turn++
	e.earlier, e.gone = e.borrowed, gone
	if e.earlier == 0 {
		close(gone)
		e.gone = nil
	}
	e.mu.Unlock()
	select {
	case <-gone:
	case <-enough:
	}
}

func (e *Engine) view() (*view, error) {
	c, err := e.borrow()
	if err != nil {
		return nil, err
	}
	v := &view{e: e, conn: c}
	v.refs.Store(1)
	return v, nil
}

// acquire fails once everybody has released.
func (v *view) acquire() bool {
	for {
		n := v.refs.Load()
		if n == 0 {
			return false
		}
		if v.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (v *view) release() {
	if v.refs.Add(-1) != 0 {
		return
	}
	if v.begun {
		if err := v.conn.run(kindCommit); err != nil {
			v.broken = true
		}
	}
	v.e.giveBack(v.conn, v.broken)
}

// get is called with the connection for the caller alone.
func (e *Engine) get(c *conn, dst, key []byte) ([]byte, error) {
	s, err := c.stmt(kindGet)
	if err != nil {
		return dst, e.fail("get", err)
	}
	defer c.done(s)
	if err := s.query(key); err != nil {
		return dst, e.fail("get", err)
	}
	err = s.next()
	if err == nil {
		value, ok := s.blob(0)
		if ok {
			dst = append(dst, value...)
		} else {
			err = e.corrupt("get", "a value is no blob", nil)
		}
	}
	if ended := s.end(); err == nil || err == io.EOF && ended != nil {
		err = ended
	}
	switch err {
	case nil:
		return dst, nil
	case io.EOF:
		return dst, holdfast.ErrNotFound
	}
	return dst, e.fail("get", err)
}

// Get implements [holdfast.Reader].
func (e *Engine) Get(dst, key []byte) ([]byte, error) {
	if err := e.gate.Enter(); err != nil {
		return dst, err
	}
	defer e.gate.Leave()
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	e.gets <- struct{}{}
	defer func() { <-e.gets }()
	c, err := e.borrow()
	if err != nil {
		return dst, e.fail("get", err)
	}
	dst, err = e.get(c, dst, key)
	e.giveBack(c, err != nil && err != holdfast.ErrNotFound)
	return dst, err
}

// Scan implements [holdfast.Reader].
func (e *Engine) Scan(r holdfast.Range) holdfast.Iterator {
	if err := e.gate.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer e.gate.Leave()
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}
	v, err := e.view()
	if err != nil {
		return holdfast.FailedIterator(e.fail("scan", err))
	}
	return v.scan(r)
}

// Snapshot implements [holdfast.Engine].
func (e *Engine) Snapshot() (holdfast.Snapshot, error) {
	if err := e.gate.Enter(); err != nil {
		return nil, err
	}
	defer e.gate.Leave()
	v, err := e.view()
	if err != nil {
		return nil, e.fail("snapshot", err)
	}
	// BEGIN alone fixes nothing: the first read does.
	_, err = v.conn.exec("BEGIN")
	if err == nil {
		v.begun = true
		_, err = v.conn.text("SELECT 1 FROM kv LIMIT 1")
	}
	if err != nil {
		v.broken = true
		v.release()
		return nil, e.fail("snapshot", err)
	}
	e.gate.AddSnapshot(1)
	return &snapshot{v: v}, nil
}

type snapshot struct {
	v      *view
	closed atomic.Bool
}

// acquire keeps the view for one call; a snapshot that was closed while iterators still
// hold its view is closed all the same.
func (s *snapshot) acquire() bool { return !s.closed.Load() && s.v.acquire() }

func (s *snapshot) Get(dst, key []byte) ([]byte, error) {
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	if err := s.v.e.gate.Enter(); err != nil {
		return dst, err
	}
	defer s.v.e.gate.Leave()
	if !s.acquire() {
		return dst, s.v.e.gate.ErrSnapshotClosed()
	}
	defer s.v.release()
	s.v.mu.Lock()
	defer s.v.mu.Unlock()
	return s.v.e.get(s.v.conn, dst, key)
}

func (s *snapshot) Scan(r holdfast.Range) holdfast.Iterator {
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}
	// Inside, so that the engine is not closed between the snapshot and its iterator.
	if err := s.v.e.gate.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer s.v.e.gate.Leave()
	if !s.acquire() {
		return holdfast.FailedIterator(s.v.e.gate.ErrSnapshotClosed())
	}
	return s.v.scan(r)
}

func (s *snapshot) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		s.v.release()
		s.v.e.gate.AddSnapshot(-1)
	}
	return nil
}

type iterator struct {
	v          *view
	s          *stmt
	ahead      bool // the next row has been stepped to already
	done       bool
	closed     bool
	key, value []byte
	err        error
}

// scan takes over one reference to v. It steps to the first row at once, which fixes the
// state it sees.
func (v *view) scan(r holdfast.Range) holdfast.Iterator {
	v.e.gate.AddIterator(1)
	it := &iterator{v: v}
	v.mu.Lock()
	defer v.mu.Unlock()
	k, args := kindForwardFrom, [][]byte{append([]byte{}, r.Lo...)}
	if r.Reverse {
		k = kindReverseFrom
	}
	if len(r.Hi) > 0 {
		k--
		args = append(args, bytes.Clone(r.Hi))
	}
	var err error
	if it.s, err = v.conn.stmt(k); err == nil {
		err = it.s.query(args...)
	}
	if err != nil {
		it.stop(err)
		return it
	}
	it.step()
	it.ahead = true
	return it
}

// step is called with v.mu held.
func (it *iterator) step() {
	err := it.s.next()
	if err == nil {
		var isKey, isValue bool
		it.key, isKey = it.s.blob(0)
		it.value, isValue = it.s.blob(1)
		if isKey && isValue {
			return
		}
		err = it.v.e.corrupt("scan", "a key or value is no blob", nil)
	}
	it.stop(err)
}

// stop ends the statement, because of err or io.EOF. It is called with v.mu held.
func (it *iterator) stop(err error) {
	it.done, it.key, it.value = true, nil, nil
	if it.s != nil {
		if ended := it.s.end(); ended != nil && err == io.EOF {
			err = ended
		}
		it.v.conn.done(it.s)
		it.s = nil
	}
	if err != io.EOF {
		it.err = it.v.e.fail("scan", err)
		it.v.broken = true
	}
}

func (it *iterator) Next() bool {
	if it.ahead {
		it.ahead = false
		return !it.done
	}
	if it.done {
		return false
	}
	it.v.mu.Lock()
	defer it.v.mu.Unlock()
	it.step()
	return !it.done
}

func (it *iterator) Key() []byte {
	if it.ahead {
		return nil
	}
	return it.key
}

func (it *iterator) Value() []byte {
	if it.ahead {
		return nil
	}
	return it.value
}

func (it *iterator) Err() error {
	if it.ahead {
		return nil
	}
	return it.err
}

func (it *iterator) Close() error {
	if it.closed {
		return it.err
	}
	it.closed, it.ahead = true, false
	it.v.mu.Lock()
	if !it.done {
		it.stop(io.EOF)
	}
	it.v.mu.Unlock()
	it.v.release()
	it.v.e.gate.AddIterator(-1)
	return it.err
}
