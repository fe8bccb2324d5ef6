package kv

import (
	"bytes"
	"iter"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/layers"
)

// Cursor goes over the keys of a bucket, in both directions. First, Last and Seek place it in the state of that moment:
// what the transaction writes later it does not see before it is placed again. So keys can be deleted on the way. The
// slices that it returns are valid until it moves, and not to be written to; a nil key means that there is none, or an
// error: see Err. It is closed with the transaction.
type Cursor struct {
	b       *Bucket
	state   layers.State // that it goes over
	it      holdfast.Iterator
	reverse bool
	key     []byte // where it is, nil if nowhere
	err     error
}

// Cursor returns a cursor that is nowhere.
func (b *Bucket) Cursor() *Cursor { return &Cursor{b: b} }

// First moves to the first key.
func (c *Cursor) First() (key, value []byte) { return c.place(holdfast.Range{}) }

// Last moves to the last key.
func (c *Cursor) Last() (key, value []byte) { return c.place(holdfast.Range{Reverse: true}) }

// Seek moves to the first key that is not before seek.
func (c *Cursor) Seek(seek []byte) (key, value []byte) { return c.place(holdfast.Range{Lo: seek}) }

// Next moves to the next key; of a cursor that is nowhere, there is none.
func (c *Cursor) Next() (key, value []byte) { return c.move(false) }

// Prev moves to the key before.
func (c *Cursor) Prev() (key, value []byte) { return c.move(true) }

// Err is the error that has made a move return no key. It is also the transaction's.
func (c *Cursor) Err() error { return c.err }

func (c *Cursor) place(r holdfast.Range) (key, value []byte) {
	if err := c.b.begin(false); err != nil {
		c.err = err
		return nil, nil
	}
	defer c.b.tx.leave()
	c.state = c.b.tx.fixed()
	c.open(r)
	return c.step()
}

func (c *Cursor) move(reverse bool) (key, value []byte) {
	if err := c.b.begin(false); err != nil {
		c.err = err
		return nil, nil
	}
	defer c.b.tx.leave()
	if c.key == nil || c.err != nil {
		return nil, nil
	}
	if reverse != c.reverse {
		at := c.key
		if reverse {
			c.open(holdfast.Range{Hi: at, Reverse: true})
		} else {
			c.open(holdfast.Range{Lo: append(slices.Clip(at), 0)})
		}
	}
	return c.step()
}

// open places the cursor before the first key of a range.
func (c *Cursor) open(r holdfast.Range) {
	tx := c.b.tx
	if c.it == nil {
		tx.open = append(tx.open, c)
	} else {
		_ = c.it.Close()
	}
	c.reverse, c.err = r.Reverse, nil
	in, err := c.b.within(r)
	if err != nil {
		c.it = holdfast.FailedIterator(err)
		return
	}
	c.it = c.state.Scan(in)
}

// step moves on to the next key that has not expired.
func (c *Cursor) step() (key, value []byte) {
	tx := c.b.tx
	for c.it.Next() {
		value, _, there, err := tx.value(c.it.Value())
		if err != nil {
			c.err = tx.note(err)
			return nil, nil
		}
		if there {
			c.key = append(c.key[:0], c.it.Key()[len(c.b.prefix)+1:]...)
			return c.key, value
		}
	}
	c.key = nil
	if c.err = c.it.Err(); c.err != nil {
		tx.note(c.err)
	}
	return nil, nil
}

func (c *Cursor) close() {
	if c.it != nil {
		_ = c.it.Close()
	}
}

// All yields the keys of the bucket and their values, in order. Slices are valid until the next round of the loop. An
// error ends the loop, and is the transaction's.
func (b *Bucket) All() iter.Seq2[[]byte, []byte] { return b.Range(holdfast.Range{}) }

// Prefix is All of the keys that begin with a prefix.
func (b *Bucket) Prefix(prefix []byte) iter.Seq2[[]byte, []byte] {
	return b.Range(holdfast.Prefix(prefix))
}

// Range is All of the keys in a range, which may go backwards.
func (b *Bucket) Range(r holdfast.Range) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		if len(r.Hi) > 0 && bytes.Compare(r.Lo, r.Hi) >= 0 {
			return
		}
		c := b.Cursor()
		key, value := c.place(r)
		for key != nil && yield(key, value) {
			key, value = c.move(r.Reverse)
		}
		if c.err != nil {
			b.tx.note(c.err)
		}
	}
}
