package badger

import (
	"bytes"
	"errors"

	lib "github.com/dgraph-io/badger/v4"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// spaced returns the key as the library has it.
func spaced(key []byte) []byte {
	return append(append(make([]byte, 0, len(key)+1), keyspace), key...)
}

var errNoValue = errors.New("the value log does not hold the value that the key points to")

// View implements [driver.Core]. A read-only transaction may be used by many goroutines at once: the library's reads
// change nothing in it.
func (e *engine) View(driver.Op) (*lib.Txn, error) { return e.db.NewTransaction(false), nil }

// Drop implements [driver.Core].
func (e *engine) Drop(txn *lib.Txn) error {
	txn.Discard()
	return nil
}

// Read implements [driver.Core].
func (e *engine) Read(txn *lib.Txn, dst, key []byte) ([]byte, error) {
	item, err := txn.Get(spaced(key))
	if errors.Is(err, lib.ErrKeyNotFound) {
		return dst, holdfast.ErrNotFound
	}
	if err != nil {
		return dst, unreadable("get", e.logs.dir, 0, e.data.err(err))
	}
	value := dst
	err = item.Value(func(v []byte) error {
		value = append(dst, v...)
		return nil
	})
	// The library answers a value it cannot read with an empty one and no error. ValueSize is stored with the key, so it
	// tells an empty value from one that is missing.
	if err == nil && len(value) == len(dst) && item.ValueSize() > 0 {
		err = errNoValue
	}
	if err != nil {
		return dst, unreadable("get", e.logs.dir, 0, e.data.err(err))
	}

	return value, nil
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

// openCursor returns a cursor before the first key of r in txn; close must follow.
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

// next goes to the next key that is not deleted, and reports whether there is one.
func (c *cursor) next() bool {
	for !c.ended {
		// Backward the iterator is behind the current key already, because skip has passed over all its versions.
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

		// Forward the newest version of a key comes first and the older ones are passed over. Backward it comes last, so that
		// skip looks at all of them.
		item := c.it.Item()
		older := c.begun && !c.reverse && bytes.Equal(item.Key(), c.at)

		// The key is copied: the library uses its memory again when the iterator moves.
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
	// The iterator has left the key; the transaction still sees the same version.
	if c.reverse {
		return c.txn.Get(c.at)
	}

	return c.it.Item(), nil
}

// close ends the iterator. The transaction stays open.
func (c *cursor) close() { c.it.Close() }

// iterator is a [holdfast.Iterator] over a cursor. The view stays open until Close calls hold.End.
type iterator struct {
	hold   driver.Hold[*lib.Txn]
	e      *engine
	cursor *cursor
	at     bool
	value  []byte // of the current key, if loaded
	loaded bool
	buf    []byte
	err    error
	closed bool
}

// Walk implements [driver.Core].
func (e *engine) Walk(h driver.Hold[*lib.Txn], r holdfast.Range) (holdfast.Iterator, error) {
	return &iterator{hold: h, e: e, cursor: openCursor(h.View, r)}, nil
}

// Next implements [holdfast.Iterator].
func (i *iterator) Next() bool {
	// The value of the last key is gone: its buffer is used for the next.
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
	// As in Read.
	if err == nil && len(buf) == 0 && item.ValueSize() > 0 {
		err = errNoValue
	}
	if err != nil {
		i.err = unreadable("scan", i.e.logs.dir, 0, i.e.data.err(err))
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

		// The iterator before the transaction: the library panics if a transaction ends with one open.
		i.cursor.close()
		i.hold.End()
	}

	return i.err
}
