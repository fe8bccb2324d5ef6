package badger

import (
	"bytes"
	"errors"
	"sync/atomic"

	lib "github.com/dgraph-io/badger/v4"

	"github.com/holdfastdb/holdfast"
)

// spaced returns the key as the library has it.
func spaced(key []byte) []byte {
	return append(append(make([]byte, 0, len(key)+1), keyspace), key...)
}

var errNoValue = errors.New("the value log does not hold the value that the key points to")

// get appends the value of key to dst. A read-only transaction may be used by many goroutines
// at once: the library's reads change nothing in it.
func (e *engine) get(txn *lib.Txn, dst, key []byte) ([]byte, error) {
	item, err := txn.Get(spaced(key))
	if errors.Is(err, lib.ErrKeyNotFound) {
		return dst, holdfast.ErrNotFound
	}
	if err != nil {
		return dst, corrupt("get", e.logs.dir, 0, e.data.err(err))
	}
	value := dst
	err = item.Value(func(v []byte) error {
		value = append(dst, v...)
		return nil
	})
	// The library answers a value it cannot read with an empty one and no error.
	if err == nil && len(value) == len(dst) && item.ValueSize() > 0 {
		err = errNoValue
	}
	if err != nil {
		return dst, corrupt("get", e.logs.dir, 0, e.data.err(err))
	}
	return value, nil
}

// view is a read-only transaction that its users share; the last one ends it.
type view struct {
	e    *engine
	txn  *lib.Txn
	refs atomic.Int64
}

// newView is called inside the gate.
func newView(e *engine) *view {
	v := &view{e: e, txn: e.db.NewTransaction(false)}
	v.refs.Store(1)
	return v
}

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
	if v.refs.Add(-1) == 0 {
		v.txn.Discard()
	}
}

type snapshot struct {
	view   *view
	closed atomic.Bool
}

// enter keeps the snapshot and the engine open until leave.
func (s *snapshot) enter() error {
	if err := s.view.e.gate.Enter(); err != nil {
		return err
	}
	if s.closed.Load() || !s.view.acquire() {
		s.view.e.gate.Leave()
		return s.view.e.gate.ErrSnapshotClosed()
	}
	return nil
}

func (s *snapshot) leave() {
	s.view.release()
	s.view.e.gate.Leave()
}

// Get implements [holdfast.Reader].
func (s *snapshot) Get(dst, key []byte) ([]byte, error) {
	if err := s.enter(); err != nil {
		return dst, err
	}
	defer s.leave()
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	return s.view.e.get(s.view.txn, dst, key)
}

// Scan implements [holdfast.Reader].
func (s *snapshot) Scan(r holdfast.Range) holdfast.Iterator {
	if err := s.enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer s.leave()
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}
	return newIterator(s.view, r)
}

// Close implements [holdfast.Snapshot].
func (s *snapshot) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		s.view.release()
		s.view.e.gate.AddSnapshot(-1)
	}
	return nil
}

// cursor walks over the keys of a range. It sorts out by itself what is deleted: the library would look for the next
// key that is not, and for one more, beyond the range too, over as many tombstones as lie there.
type cursor struct {
	txn     *lib.Txn
	it      *lib.Iterator // of all versions, the newest first, or last if reverse
	lo, hi  []byte        // as the library has them
	reverse bool
	begun   bool
	ended   bool
	at      []byte // the current key; if reverse, the iterator is behind it
}

func openCursor(txn *lib.Txn, r holdfast.Range) *cursor {
	c := &cursor{txn: txn, lo: spaced(r.Lo), hi: []byte{keyspace + 1}, reverse: r.Reverse}
	shared := c.lo[:1]
	if len(r.Hi) > 0 {
		c.hi = spaced(r.Hi)
		for n := 1; n <= len(c.lo) && n <= len(c.hi) && c.lo[n-1] == c.hi[n-1]; n++ {
			shared = c.lo[:n]
		}
	}
	c.ended = bytes.Compare(c.lo, c.hi) >= 0
	// The prefix that all keys of the range share leaves out tables without it. Values are
	// not fetched ahead: the library starts a goroutine for each.
	c.it = txn.NewIterator(lib.IteratorOptions{Reverse: r.Reverse, Prefix: shared, AllVersions: true})
	return c
}

func (c *cursor) next() bool {
	for !c.ended {
		switch {
		case c.begun && !c.reverse:
			c.it.Next()
		case c.begun:
		case c.reverse:
			c.it.Seek(c.hi)
			c.skip(c.hi) // the bound itself is outside
		default:
			c.it.Seek(c.lo)
		}
		if c.ended = !c.inside(); c.ended {
			break
		}
		item := c.it.Item()
		older := c.begun && !c.reverse && bytes.Equal(item.Key(), c.at)
		c.begun, c.at = true, append(c.at[:0], item.Key()...)
		deleted := item.IsDeletedOrExpired()
		if c.reverse {
			deleted = c.skip(c.at)
		}
		if !older && !deleted {
			return true
		}
	}
	return false
}

// inside reports whether the iterator is at a key of the range.
func (c *cursor) inside() bool {
	if !c.it.Valid() {
		return false
	}
	if c.reverse {
		return bytes.Compare(c.it.Item().Key(), c.lo) >= 0
	}
	return bytes.Compare(c.it.Item().Key(), c.hi) < 0
}

// skip moves the iterator behind all versions of key, and reports whether the last of them is a deletion.
func (c *cursor) skip(key []byte) (deleted bool) {
	for ; c.it.Valid() && bytes.Equal(c.it.Item().Key(), key); c.it.Next() {
		deleted = c.it.Item().IsDeletedOrExpired()
	}
	return deleted
}

// key is valid until next.
func (c *cursor) key() []byte { return c.at[1:] }

// item is that of the current key.
func (c *cursor) item() (*lib.Item, error) {
	if c.reverse {
		return c.txn.Get(c.at)
	}
	return c.it.Item(), nil
}

func (c *cursor) close() { c.it.Close() }

type iterator struct {
	view   *view
	cursor *cursor
	at     bool
	value  []byte // of the current key, if loaded
	loaded bool
	buf    []byte
	err    error
	closed bool
}

// newIterator is called inside the gate, with a view that somebody holds.
func newIterator(v *view, r holdfast.Range) *iterator {
	v.acquire()
	v.e.gate.AddIterator(1)
	return &iterator{view: v, cursor: openCursor(v.txn, r)}
}

// Next implements [holdfast.Iterator].
func (i *iterator) Next() bool {
	i.loaded, i.value = false, nil
	i.at = !i.closed && i.err == nil && i.cursor.next()
	return i.at
}

// Key implements [holdfast.Iterator].
func (i *iterator) Key() []byte {
	if !i.at {
		return nil
	}
	return i.cursor.key()
}

// Value implements [holdfast.Iterator]. It reads the value when it is first asked for it; if
// that fails it returns nil, and the walk is at its end.
func (i *iterator) Value() []byte {
	if !i.at || i.loaded {
		return i.value
	}
	i.loaded = true
	var buf []byte
	item, err := i.cursor.item()
	if err == nil {
		buf, err = item.ValueCopy(i.buf)
	}
	// As in get.
	if err == nil && len(buf) == 0 && item.ValueSize() > 0 {
		err = errNoValue
	}
	if err != nil {
		i.err = corrupt("scan", i.view.e.logs.dir, 0, i.view.e.data.err(err))
		return nil
	}
	i.buf, i.value = buf, buf
	return buf
}

// Err implements [holdfast.Iterator].
func (i *iterator) Err() error { return i.err }

// Close implements [holdfast.Iterator].
func (i *iterator) Close() error {
	if !i.closed {
		i.closed, i.at, i.value = true, false, nil
		i.cursor.close()
		i.view.release()
		i.view.e.gate.AddIterator(-1)
	}
	return i.err
}
