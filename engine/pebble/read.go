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

// iterator is a [holdfast.Iterator]. The engine cannot close while it is open.
type iterator struct {
	hold    driver.Hold[reader]
	it      *lib.Iterator // nil once closed
	reverse bool
	begun   bool
	valid   bool
	value   []byte
	err     error
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

	return &iterator{hold: h, it: it, reverse: r.Reverse}, nil
}

// Next implements [holdfast.Iterator].
func (it *iterator) Next() bool {
	if it.it == nil || it.err != nil || it.begun && !it.valid {
		return false
	}

	switch {
	case it.begun && it.reverse:
		it.valid = it.it.Prev()
	case it.begun:
		it.valid = it.it.Next()
	case it.reverse:
		it.valid = it.it.Last()
	default:
		it.valid = it.it.First()
	}
	it.begun = true

	// A value is fetched at once, for it may be in another file: an error then ends the walk before anybody has seen the
	// key.
	var err error
	if it.valid {
		it.value, err = it.it.ValueAndErr()
	} else {
		err = it.it.Error()
	}
	if err != nil {
		it.valid, it.err = false, readError("scan", err)
	}

	return it.valid
}

// Key implements [holdfast.Iterator].
func (it *iterator) Key() []byte {
	if !it.valid {
		return nil
	}

	return it.it.Key()
}

// Value implements [holdfast.Iterator].
func (it *iterator) Value() []byte {
	if !it.valid {
		return nil
	}

	return it.value
}

// Err implements [holdfast.Iterator].
func (it *iterator) Err() error { return it.err }

// Close implements [holdfast.Iterator]. A second one changes nothing.
func (it *iterator) Close() error {
	if it.it == nil {
		return it.err
	}
	if err := it.it.Close(); err != nil && it.err == nil {
		it.err = readError("scan", err)
	}
	it.it, it.valid, it.value = nil, false, nil

	// Last: Pebble's iterator must be closed before the snapshot, or the database, can be.
	it.hold.End()

	return it.err
}
