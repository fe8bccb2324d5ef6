package pebble

import (
	"bytes"
	"errors"
	"io"
	"sync"

	lib "github.com/cockroachdb/pebble/v2"
	"github.com/holdfastdb/holdfast"
)

// reader is what a database and a snapshot have in common.
type reader interface {
	Get(key []byte) ([]byte, io.Closer, error)
	NewIter(*lib.IterOptions) (*lib.Iterator, error)
}

// Get implements [holdfast.Reader].
func (e *Engine) Get(dst, key []byte) ([]byte, error) {
	if err := e.gate.Enter(); err != nil {
		return dst, err
	}
	defer e.gate.Leave()
	return get(e.db, dst, key)
}

// Scan implements [holdfast.Reader].
func (e *Engine) Scan(r holdfast.Range) holdfast.Iterator {
	if err := e.gate.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer e.gate.Leave()
	return e.scan(e.db, r)
}

// Snapshot implements [holdfast.Engine].
func (e *Engine) Snapshot() (holdfast.Snapshot, error) {
	if err := e.gate.Enter(); err != nil {
		return nil, err
	}
	defer e.gate.Leave()
	e.gate.AddSnapshot(1)
	return &snapshot{e: e, snap: e.db.NewSnapshot()}, nil
}

func get(from reader, dst, key []byte) ([]byte, error) {
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	value, closer, err := from.Get(key)
	if errors.Is(err, lib.ErrNotFound) {
		return dst, holdfast.ErrNotFound
	}
	if err != nil {
		return dst, readError("get", err)
	}
	dst = append(dst, value...)
	if err := closer.Close(); err != nil {
		return dst, readError("get", err)
	}
	return dst, nil
}

// snapshot is a [holdfast.Snapshot]. The engine cannot close while it is open.
type snapshot struct {
	e    *Engine
	mu   sync.RWMutex // held for writing by Close
	snap *lib.Snapshot
}

func (s *snapshot) Get(dst, key []byte) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snap == nil {
		return dst, s.e.gate.ErrSnapshotClosed()
	}
	return get(s.snap, dst, key)
}

func (s *snapshot) Scan(r holdfast.Range) holdfast.Iterator {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.snap == nil {
		return holdfast.FailedIterator(s.e.gate.ErrSnapshotClosed())
	}
	return s.e.scan(s.snap, r)
}

func (s *snapshot) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snap == nil {
		return nil
	}
	err := s.snap.Close()
	s.snap = nil
	s.e.gate.AddSnapshot(-1)
	return err
}

// iterator is a [holdfast.Iterator]. The engine cannot close while it is open.
type iterator struct {
	e       *Engine
	it      *lib.Iterator // nil once closed
	reverse bool
	begun   bool
	valid   bool
	value   []byte
	err     error
}

func (e *Engine) scan(from reader, r holdfast.Range) holdfast.Iterator {
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}
	if len(r.Hi) > 0 && bytes.Compare(r.Lo, r.Hi) >= 0 {
		return holdfast.FailedIterator(nil)
	}
	var o lib.IterOptions
	if len(r.Lo) > 0 {
		o.LowerBound = r.Lo
	}
	if len(r.Hi) > 0 {
		o.UpperBound = r.Hi
	}
	it, err := from.NewIter(&o)
	if err != nil {
		return holdfast.FailedIterator(readError("scan", err))
	}
	e.gate.AddIterator(1)
	return &iterator{e: e, it: it, reverse: r.Reverse}
}

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

func (it *iterator) Key() []byte {
	if !it.valid {
		return nil
	}
	return it.it.Key()
}

func (it *iterator) Value() []byte {
	if !it.valid {
		return nil
	}
	return it.value
}

func (it *iterator) Err() error { return it.err }

func (it *iterator) Close() error {
	if it.it == nil {
		return it.err
	}
	if err := it.it.Close(); err != nil && it.err == nil {
		it.err = readError("scan", err)
	}
	it.it, it.valid, it.value = nil, false, nil
	it.e.gate.AddIterator(-1)
	return it.err
}
