package db

import (
	"bytes"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/front"
)

// View implements [front.Core].
func (d *DB) View(front.Op) (state, error) { return d.latest(), nil }

// Done implements [front.Core].
func (d *DB) Done(st state) error {
	st.view.release()
	return nil
}

// Read implements [front.Core].
func (d *DB) Read(st state, dst, key []byte) ([]byte, error) { return st.get(dst, key) }

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
