package bbolt

import (
	"bytes"
	"runtime/debug"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
)

// view is one read transaction, shared by a snapshot and its iterators. bbolt's read
// transactions only read the mapped file, so many goroutines may share one as long as each
// has its own cursor.
type view struct {
	e    *Engine
	db   *bbolt.DB
	used *atomic.Int64 // see Engine.users
	tx   *bbolt.Tx
	kv   *bbolt.Bucket
	refs atomic.Int64 // tx is ended, and used left, when it drops to 0
}

func (e *Engine) view(op string) (v *view, err error) {
	e.swap.RLock()
	v = &view{e: e, db: e.db, used: e.users}
	v.used.Add(1)
	e.swap.RUnlock()
	if v.tx, err = v.db.Begin(false); err != nil {
		leave(v.db, v.used)
		return nil, e.fail(op, err)
	}
	v.refs.Store(1)
	defer func() {
		if err != nil {
			v.release()
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer e.catch(op, &err)
	if v.kv = v.tx.Bucket(bucketName); v.kv == nil {
		return nil, e.corrupt(op, `bucket "kv" is missing`, nil)
	}
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
	if v.refs.Add(-1) == 0 {
		_ = v.tx.Rollback() // cannot fail: it is open and reads only
		leave(v.db, v.used)
	}
}

// get reads one key of kv.
func (e *Engine) get(kv *bbolt.Bucket, dst, key []byte) (out []byte, err error) {
	out = dst
	// A page outside the file, or one that the device cannot read, is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer e.catch("get", &err)
	value := kv.Get(key)
	if value == nil {
		return dst, holdfast.ErrNotFound
	}
	return append(dst, value...), nil
}

// scan takes over one reference to v.
func (v *view) scan(r holdfast.Range) holdfast.Iterator {
	if err := holdfast.CheckRange(r); err != nil {
		v.release()
		return holdfast.FailedIterator(err)
	}
	v.e.gate.AddIterator(1)
	return &iterator{v: v, c: v.kv.Cursor(), lo: bytes.Clone(r.Lo), hi: bytes.Clone(r.Hi), reverse: r.Reverse}
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
	v, err := e.view("get")
	if err != nil {
		return dst, err
	}
	defer v.release()
	return e.get(v.kv, dst, key)
}

// Scan implements [holdfast.Reader].
func (e *Engine) Scan(r holdfast.Range) holdfast.Iterator {
	if err := e.gate.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer e.gate.Leave()
	v, err := e.view("scan")
	if err != nil {
		return holdfast.FailedIterator(err)
	}
	return v.scan(r)
}

// Snapshot implements [holdfast.Engine].
func (e *Engine) Snapshot() (holdfast.Snapshot, error) {
	if err := e.gate.Enter(); err != nil {
		return nil, err
	}
	defer e.gate.Leave()
	v, err := e.view("snapshot")
	if err != nil {
		return nil, err
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
	return s.v.e.get(s.v.kv, dst, key)
}

func (s *snapshot) Scan(r holdfast.Range) holdfast.Iterator {
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
	c          *bbolt.Cursor
	lo, hi     []byte
	reverse    bool
	begun      bool
	done       bool
	closed     bool
	key, value []byte // in the mapped file
	err        error
	touched    byte // keeps touch from being optimised away
}

func (it *iterator) Next() bool {
	it.key, it.value = nil, nil
	if it.done {
		return false
	}
	k, v, err := it.step()
	switch {
	case err != nil:
		it.err, it.done = err, true
	case k == nil,
		it.reverse && bytes.Compare(k, it.lo) < 0,
		!it.reverse && len(it.hi) > 0 && bytes.Compare(k, it.hi) >= 0:
		it.done = true
	default:
		it.key, it.value = k, v
	}
	return !it.done
}

func (it *iterator) step() (k, v []byte, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer it.v.e.catch("scan", &err)
	switch {
	case it.begun && it.reverse:
		k, v = it.c.Prev()
	case it.begun:
		k, v = it.c.Next()
	case it.reverse:
		k, v = it.before()
	case len(it.lo) > 0:
		k, v = it.c.Seek(it.lo)
	default:
		k, v = it.c.First()
	}
	it.begun = true
	if k != nil && len(k) == 0 {
		return nil, nil, it.v.e.corrupt("scan", "a key is empty", nil)
	}
	it.touched |= touch(k) | touch(v)
	return k, v, nil
}

// before moves to the last key below hi.
func (it *iterator) before() (k, v []byte) {
	if len(it.hi) > 0 {
		if k, _ := it.c.Seek(it.hi); k != nil {
			return it.c.Prev()
		}
	}
	return it.c.Last()
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

func (it *iterator) Key() []byte   { return it.key }
func (it *iterator) Value() []byte { return it.value }
func (it *iterator) Err() error    { return it.err }

func (it *iterator) Close() error {
	if !it.closed {
		it.closed, it.done, it.key, it.value = true, true, nil, nil
		it.v.release()
		it.v.e.gate.AddIterator(-1)
	}
	return it.err
}
