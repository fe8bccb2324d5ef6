package db

import (
	"bytes"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// Get implements [holdfast.Reader].
func (d *DB) Get(dst, key []byte) ([]byte, error) {
	if err := d.gate.Enter(); err != nil {
		return dst, err
	}
	defer d.gate.Leave()
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	st := d.latest()
	defer st.view.release()
	return st.get(dst, key)
}

// get appends the value of key to dst. The memtables are asked first, from the newest on, then
// the tiers; the first that knows the key decides.
func (st *state) get(dst, key []byte) ([]byte, error) {
	ts := st.rangeTombstones
	for i := -1; i < len(st.view.imm); i++ {
		t := st.view.mem
		if i >= 0 {
			t = st.view.imm[i]
			ts = t.rangeTombstones.Load()
		}
		if v, live, decided := t.get(key, st.seq, ts); decided {
			if !live {
				return dst, holdfast.ErrNotFound
			}
			if v.Far {
				return t.getFar(dst, &v)
			}
			return append(dst, v.Value...), nil
		}
	}
	if len(st.view.ver.tiers) == 0 {
		return dst, holdfast.ErrNotFound
	}
	return st.view.ver.get(dst, key)
}

func (v *version) get(dst, key []byte) (_ []byte, err error) {
	defer unguard(guard(), &err)
	for i := range v.tiers {
		t := &v.tiers[i]
		k := t.find(key)
		if k == len(t.refs) || bytes.Compare(t.refs[k].lo, key) > 0 {
			continue
		}
		e, found, err := t.refs[k].file.r.Get(key)
		switch {
		case err != nil:
			return dst, err
		case !found:
			continue
		case e.Tombstone:
			return dst, holdfast.ErrNotFound
		}
		return v.value(dst, e)
	}
	return dst, holdfast.ErrNotFound
}

// Scan implements [holdfast.Reader].
func (d *DB) Scan(r holdfast.Range) holdfast.Iterator {
	if err := d.gate.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer d.gate.Leave()
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}
	return d.scan(d.latest(), r)
}

// Snapshot implements [holdfast.Engine].
func (d *DB) Snapshot() (holdfast.Snapshot, error) {
	if err := d.gate.Enter(); err != nil {
		return nil, err
	}
	defer d.gate.Leave()
	d.gate.AddSnapshot(1)
	return &snapshot{d: d, st: d.latest()}, nil
}

type snapshot struct {
	d      *DB
	st     state
	closed atomic.Bool
}

// enter returns the snapshot's state with a reference to its view of the caller's, or an ErrClosed.
func (s *snapshot) enter() (state, error) {
	if s.closed.Load() || !s.st.view.tryAcquire() {
		return state{}, s.d.gate.ErrSnapshotClosed()
	}
	return s.st, nil
}

func (s *snapshot) Get(dst, key []byte) ([]byte, error) {
	if err := s.d.gate.Enter(); err != nil {
		return dst, err
	}
	defer s.d.gate.Leave()
	if err := holdfast.CheckKey(key); err != nil {
		return dst, err
	}
	st, err := s.enter()
	if err != nil {
		return dst, err
	}
	defer st.view.release()
	return st.get(dst, key)
}

func (s *snapshot) Scan(r holdfast.Range) holdfast.Iterator {
	if err := s.d.gate.Enter(); err != nil {
		return holdfast.FailedIterator(err)
	}
	defer s.d.gate.Leave()
	if err := holdfast.CheckRange(r); err != nil {
		return holdfast.FailedIterator(err)
	}
	st, err := s.enter()
	if err != nil {
		return holdfast.FailedIterator(err)
	}
	return s.d.scan(st, r)
}

func (s *snapshot) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		s.st.view.release()
		s.d.gate.AddSnapshot(-1)
	}
	return nil
}
