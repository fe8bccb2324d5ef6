package bbolt

import (
	"bytes"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// view is one read transaction. bbolt's read transactions only read the mapped file, so many goroutines may share one
// as long as each has its own cursor.
type view struct {
	db   *bbolt.DB
	used *atomic.Int64 // see engine.users
	tx   *bbolt.Tx
	kv   *bbolt.Bucket
}

// View implements [driver.Core].
func (e *engine) View(op driver.Op) (v *view, err error) {
	// Counted before the lock is given back, so that the file stays open until leave.
	e.swap.RLock()
	v = &view{db: e.db, used: e.users}
	v.used.Add(1)
	e.swap.RUnlock()
	if v.tx, err = v.db.Begin(false); err != nil {
		leave(v.db, v.used)
		return nil, e.fail(string(op), err)
	}
	defer func() {
		if err != nil {
			_ = e.Drop(v)
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer e.catch(string(op), &err)

	// Finding the bucket reads pages, so it can panic.
	if v.kv = v.tx.Bucket(bucketName); v.kv == nil {
		return nil, e.corrupt(string(op), `bucket "kv" is missing`, nil)
	}

	return v, nil
}

// Drop implements [driver.Core].
func (e *engine) Drop(v *view) error {
	// The transaction ends before the last user closes the file.
	err := v.tx.Rollback()
	leave(v.db, v.used)

	return err
}

// Read implements [driver.Core].
func (e *engine) Read(v *view, dst, key []byte) (out []byte, err error) {
	out = dst
	// A page outside the file, or one that the device cannot read, is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer e.catch("get", &err)

	// The value lies in the mapped file, and is copied while a fault is still caught.
	value := v.kv.Get(key)
	if value == nil {
		return dst, holdfast.ErrNotFound
	}

	return append(dst, value...), nil
}

// Walk implements [driver.Core].
func (e *engine) Walk(h driver.Hold[*view], r holdfast.Range) (holdfast.Iterator, error) {
	lo, hi := bytes.Clone(r.Lo), bytes.Clone(r.Hi)
	return driver.NewIterator(&walk{hold: h, e: e, c: h.View.kv.Cursor(), lo: lo, hi: hi, reverse: r.Reverse}), nil
}

// walk is a [driver.Cursor]. Its view, and so the file that keys and values lie in, stays until Close.
type walk struct {
	hold    driver.Hold[*view]
	e       *engine
	c       *bbolt.Cursor
	lo, hi  []byte
	reverse bool
	begun   bool
	touched byte // keeps touch from being optimised away
}

// Next implements [driver.Cursor]. It turns a panic or fault of damaged pages into ErrCorrupt.
func (c *walk) Next() (k, v []byte, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer c.e.catch("scan", &err)

	switch {
	case c.begun && c.reverse:
		k, v = c.c.Prev()
	case c.begun:
		k, v = c.c.Next()
	case c.reverse:
		k, v = c.before()
	case len(c.lo) > 0:
		k, v = c.c.Seek(c.lo)
	default:
		k, v = c.c.First()
	}
	c.begun = true

	// The engine stores no empty key. A damaged size would show as one.
	if k != nil && len(k) == 0 {
		return nil, nil, c.e.corrupt("scan", "a key is empty", nil)
	}

	// The other bound was kept by where the walk began.
	if c.reverse && bytes.Compare(k, c.lo) < 0 || !c.reverse && len(c.hi) > 0 && bytes.Compare(k, c.hi) >= 0 {
		return nil, nil, nil
	}
	c.touched |= touch(k) | touch(v)

	return k, v, nil
}

// before moves to the last key below hi.
func (c *walk) before() (k, v []byte) {
	// Seek goes to the first key from hi on, which is outside, so the one before it is wanted. If there is none from hi
	// on, the last key of all is below c.
	if len(c.hi) > 0 {
		if k, _ := c.c.Seek(c.hi); k != nil {
			return c.c.Prev()
		}
	}

	return c.c.Last()
}

// touch reads a byte of every page of b, so that what cannot be read faults here and not in
// the caller's hands.
func touch(b []byte) (sum byte) {
	const page = 4096
	for i := 0; i < len(b); i += page {
		sum |= b[i]
	}
	if len(b) > 0 {
		sum |= b[len(b)-1]
	}

	return sum
}

// Close implements [driver.Cursor].
func (c *walk) Close() error {
	c.hold.End()
	return nil
}
