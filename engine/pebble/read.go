package pebble

import (
	"errors"
	"io"

	lib "github.com/cockroachdb/pebble/v2"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// reader is what a database and a snapshot have in common.
type reader interface {
	Get(key []byte) ([]byte, io.Closer, error)
	NewIter(*lib.IterOptions) (*lib.Iterator, error)
}

// View implements [driver.Core].
func (e *engine) View(op driver.Op) (reader, error) {
	if op == driver.Snapshot {
		return e.db.NewSnapshot(), nil
	}

	return e.db, nil // an iterator of it keeps what it sees
}

// Drop implements [driver.Core].
func (e *engine) Drop(r reader) error {
	if s, ok := r.(*lib.Snapshot); ok {
		return s.Close()
	}

	return nil
}

// Read implements [driver.Core].
func (e *engine) Read(from reader, dst, key []byte) ([]byte, error) {
	value, closer, err := from.Get(key)
	if errors.Is(err, lib.ErrNotFound) {
		return dst, holdfast.ErrNotFound
	}
	if err != nil {
		return dst, readError("get", err)
	}

	// The value lies in Pebble's memory until closer is closed, so it is copied before.
	dst = append(dst, value...)
	if err := closer.Close(); err != nil {
		return dst, readError("get", err)
	}

	return dst, nil
}

// cursor is a [driver.Cursor]. The engine cannot close while it is open.
type cursor struct {
	hold    driver.Hold[reader]
	it      *lib.Iterator
	reverse bool
	begun   bool
}

// Walk implements [driver.Core].
func (e *engine) Walk(h driver.Hold[reader], r holdfast.Range) (holdfast.Iterator, error) {
	// An empty bound means none. Pebble takes bounds as the range has them: Lo is inside, Hi is not.
	var o lib.IterOptions
	if len(r.Lo) > 0 {
		o.LowerBound = r.Lo
	}
	if len(r.Hi) > 0 {
		o.UpperBound = r.Hi
	}
	it, err := h.View.NewIter(&o)
	if err != nil {
		return nil, readError("scan", err)
	}

	return driver.NewIterator(&cursor{hold: h, it: it, reverse: r.Reverse}), nil
}

// Next implements [driver.Cursor].
func (c *cursor) Next() (key, value []byte, err error) {
	valid := false
	switch {
	case c.begun && c.reverse:
		valid = c.it.Prev()
	case c.begun:
		valid = c.it.Next()
	case c.reverse:
		valid = c.it.Last()
	default:
		valid = c.it.First()
	}
	c.begun = true

	// A value is fetched at once, for it may be in another file: an error then ends the walk before anybody has seen the
	// key.
	if valid {
		key = c.it.Key()
		value, err = c.it.ValueAndErr()
	} else {
		err = c.it.Error()
	}
	if err != nil {
		return nil, nil, readError("scan", err)
	}

	return key, value, nil
}

// Close implements [driver.Cursor].
func (c *cursor) Close() error {
	err := c.it.Close()

	// Last: Pebble's iterator must be closed before the snapshot, or the database, can be.
	c.hold.End()
	if err != nil {
		return readError("scan", err)
	}

	return nil
}
