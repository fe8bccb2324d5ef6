package driver

import "github.com/holdfastdb/holdfast"

// Cursor is what an iterator walks with.
type Cursor interface {
	// Next goes to the next key and returns it, or nil behind the last. What it returns is valid until the next call.
	// Nothing but Close is called after the last key or an error.
	Next() (key, value []byte, err error)
	// Close is called once.
	Close() error
}

// NewIterator returns an iterator over what c walks over, which closes c.
func NewIterator(c Cursor) holdfast.Iterator { return &iterator{cursor: c} }

type iterator struct {
	cursor     Cursor // nil once it is closed
	done       bool
	key, value []byte
	err        error
}

// Next implements [holdfast.Iterator].
func (it *iterator) Next() bool {
	it.key, it.value = nil, nil
	if it.done || it.cursor == nil {
		return false
	}
	if it.key, it.value, it.err = it.cursor.Next(); it.err != nil {
		it.key, it.value = nil, nil
	}
	it.done = it.key == nil

	return !it.done
}

// Key, Value and Err implement [holdfast.Iterator].
func (it *iterator) Key() []byte   { return it.key }
func (it *iterator) Value() []byte { return it.value }
func (it *iterator) Err() error    { return it.err }

// Close implements [holdfast.Iterator]. A second one changes nothing.
func (it *iterator) Close() error {
	if it.cursor == nil {
		return it.err
	}
	if err := it.cursor.Close(); it.err == nil {
		it.err = err
	}
	it.cursor, it.key, it.value = nil, nil, nil

	return it.err
}
