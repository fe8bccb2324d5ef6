package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// borrow returns a connection to read with. It takes one that is idle or opens another, and is called without mu:
// opening reads files. giveBack must follow.
func (e *engine) borrow() (c *conn, err error) {
	e.mu.Lock()

	// A connection that is kept has its statements and its cache. It is lent under mu, so that awaitReaders counts it or
	// it sees all that is committed.
	if n := len(e.idle); n > 0 {
		c, e.idle = e.idle[n-1], e.idle[:n-1]
		e.lend(c)
		e.mu.Unlock()

		return c, nil
	}
	e.mu.Unlock()
	if err = e.datadir.Check(); err != nil { // SQLite might make files there
		return nil, err
	}
	if c, err = e.connect(e.path(), e.cache); err != nil {
		return nil, err
	}
	_, err = c.exec("PRAGMA query_only=1; PRAGMA user_version") // the second opens the log
	if err == nil {
		err = e.datadir.Check() // it may be another's that was opened
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}

	// A connection that awaitReaders does not count because it was opening sees the newest state: it holds no older one.
	e.mu.Lock()
	e.lend(c)
	e.mu.Unlock()

	return c, nil
}

// lend counts c as borrowed, before it reads anything. It is called with mu held.
func (e *engine) lend(c *conn) {
	c.turn = e.turn
	e.borrowed++
}

// giveBack ends the use of c. It is kept for later if it works and there are not too many already.
func (e *engine) giveBack(c *conn) {
	broken := c.broken

	// Closed before it is counted as given back: until then it may keep the log from restarting.
	if broken {
		_ = c.close() // it has written nothing
	}
	e.mu.Lock()
	e.borrowed--
	if c.turn != e.turn {
		// It is one of those for which awaitReaders waits.
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
func (e *engine) awaitReaders(enough <-chan struct{}) {
	gone := make(chan struct{})
	e.mu.Lock()

	// Readers who come from here on are of a later turn, and are not waited for.
	e.turn++
	e.earlier, e.gone = e.borrowed, gone

	// Nobody would close it otherwise.
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

// View implements [driver.Core].
func (e *engine) View(op driver.Op) (*conn, error) {
	// A Get takes one of few places, so that a thousand of them do not open as many files.
	if op == driver.Get {
		e.gets <- struct{}{}
	}
	c, err := e.borrow()
	if err != nil {
		if op == driver.Get {
			<-e.gets
		}

		return nil, e.fail(string(op), err)
	}
	if c.op = op; op == driver.Snapshot {
		// BEGIN alone fixes nothing: the first read does.
		if _, err = c.exec("BEGIN"); err == nil {
			_, err = c.text("SELECT 1 FROM kv LIMIT 1")
		}
		if err != nil {
			c.broken = true
			_ = e.Drop(c)
			return nil, e.fail(string(op), err)
		}
	}

	return c, nil
}

// Drop implements [driver.Core].
func (e *engine) Drop(c *conn) error {
	op := c.op

	// A connection that stays in its transaction would show an old state to the next who borrows it.
	if op == driver.Snapshot && c.run(kindCommit) != nil {
		c.broken = true
	}
	e.giveBack(c)

	// Given back last, so that there are never more connections for Gets than places.
	if op == driver.Get {
		<-e.gets
	}

	return nil
}

// Read implements [driver.Core].
func (e *engine) Read(c *conn, dst, key []byte) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := e.get(c, dst, key)
	if err == nil || err == holdfast.ErrNotFound {
		if wrong := e.whole(); wrong != nil {
			return dst, wrong
		}
	}
	c.broken = c.broken || err != nil && err != holdfast.ErrNotFound

	return out, err
}

// get is called with c.mu held.
func (e *engine) get(c *conn, dst, key []byte) ([]byte, error) {
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

	// The statement ends before the result counts: SQLite tells some errors only then.
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

// whole returns an error if what was just read may be of an older state than was acknowledged. SQLite's connections
// find each other's commits by a file that they map (-shm) and never sync. A file system that has failed may drop its
// pages, as btrfs does when a flush fails: it is then as it was when the system last wrote it, and what was committed
// since is not found, though it is in the log. Only a write that fails tells of such a file system, so readers look
// from then on. The error stays until the engine is opened again, which reads the log itself.
func (e *engine) whole() error {
	if !e.stopped.Load() {
		return nil
	}
	c, err := e.borrow()
	if err != nil {
		return e.fail("read", err)
	}
	n, err := c.ints(kindLogLength)
	c.broken = err != nil
	e.giveBack(c)
	if err != nil {
		return e.fail("read", err)
	}

	// Nothing is committed any more. Where the last commit was not looked at, the log is longer than is known.
	last, pages, copied := e.log.Load(), max(n[1], 0), max(n[2], 0)
	if last == nil || pages >= last.pages && copied >= last.copied && (pages == last.pages || !last.exact) {
		return nil
	}

	return &holdfast.Error{Op: "read", Engine: e.lib.name, Path: e.path(), Class: holdfast.ErrUnavailable,
		Detail: fmt.Sprintf("the file system lost what connections share (%s-shm): of %d pages of the log they find %d",
			fileName, last.pages, pages),
		Remedy: "close the engine and open it again: what was acknowledged is in the log"}
}

// cursor is a [driver.Cursor]. Its statement may share the connection with others of the same snapshot, so each step
// holds the connection's mu.
type cursor struct {
	hold       driver.Hold[*conn]
	e          *engine
	s          *stmt // nil once it has ended
	ahead      bool  // the next row has been stepped to already
	key, value []byte
}

// Walk implements [driver.Core]. It steps to the first row at once, which fixes the state it sees.
func (e *engine) Walk(h driver.Hold[*conn], r holdfast.Range) (holdfast.Iterator, error) {
	c := &cursor{hold: h, e: e, ahead: true}
	h.View.mu.Lock()
	defer h.View.mu.Unlock()

	// The bounds are copied, because the statement steps through rows after Walk has returned.
	k, args := kindForwardFrom, [][]byte{append([]byte{}, r.Lo...)}
	if r.Reverse {
		k = kindReverseFrom
	}
	if len(r.Hi) > 0 {
		k--
		args = append(args, bytes.Clone(r.Hi))
	}
	var err error
	if c.s, err = h.View.stmt(k); err == nil {
		err = c.s.query(args...)
	}
	if err != nil {
		err = c.stop(err)
	} else {
		err = c.step()
	}
	if err != nil {
		return nil, err
	}

	return driver.NewIterator(c), nil
}

// step goes to the next row, or stops at the last or at an error. It is called with the connection's mu held.
func (c *cursor) step() error {
	err := c.s.next()
	if err == nil {
		var isKey, isValue bool
		c.key, isKey = c.s.blob(0)
		c.value, isValue = c.s.blob(1)
		if isKey && isValue && len(c.key) > 0 {
			if err = c.e.whole(); err == nil {
				return nil
			}
		} else {
			err = c.e.corrupt("scan", "a key or value is no blob, or a key is empty", nil)
		}
	}

	return c.stop(err)
}

// stop ends the statement, because of err or io.EOF. It is called with the connection's mu held.
func (c *cursor) stop(err error) error {
	c.key, c.value = nil, nil
	if c.s != nil {
		if ended := c.s.end(); ended != nil && err == io.EOF {
			err = ended
		}
		c.hold.View.done(c.s)
		c.s = nil
	}
	if err == io.EOF {
		return c.e.whole()
	}
	c.hold.View.broken = true

	return c.e.fail("scan", err)
}

// Next implements [driver.Cursor]. The row that Walk has stepped to is shown first.
func (c *cursor) Next() (key, value []byte, err error) {
	if !c.ahead {
		c.hold.View.mu.Lock()
		err = c.step()
		c.hold.View.mu.Unlock()
	}
	c.ahead = false

	return c.key, c.value, err
}

// Close implements [driver.Cursor].
func (c *cursor) Close() (err error) {
	if c.s != nil {
		c.hold.View.mu.Lock()
		err = c.stop(io.EOF)
		c.hold.View.mu.Unlock()
	}

	// End gives the connection back, so it comes when the statement has ended.
	c.hold.End()

	return err
}
