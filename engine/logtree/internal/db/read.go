package db

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
)

// View implements [driver.Core].
func (d *DB) View(driver.Op) (state, error) { return d.latest(), nil }

// Done implements [driver.Core].
func (d *DB) Done(st state) error {
	st.view.release()
	return nil
}

// Read implements [driver.Core].
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
			return t.Value(dst, &v)
		}
	}
	if len(st.view.ver.Tiers) == 0 {
		return dst, holdfast.ErrNotFound
	}
	return st.view.ver.Get(dst, key)
}

// iterator is a walk over what a state sees.
type iterator struct {
	tree.Iterator
	db   *DB
	hold driver.Hold[state]
}

// Walk implements [driver.Core].
func (d *DB) Walk(h driver.Hold[state], r holdfast.Range) (holdfast.Iterator, error) {
	it, st := &iterator{db: d, hold: h}, &h.View
	it.Begin(r)
	it.addTable(st.view.mem, st.rangeTombstones)
	for _, t := range st.view.imm {
		it.addTable(t, t.rangeTombstones.Load())
	}
	it.Start(st.view.ver)
	return it, nil
}

func (it *iterator) addTable(t *table, ts *tree.RangeTombstones) {
	if !t.empty() {
		it.AddMemtable(t.walked(ts), it.hold.View.seq)
	}
}

// Close implements [holdfast.Iterator].
func (it *iterator) Close() error {
	dead, where := it.Head()
	was, err := it.Iterator.Close()
	if was {
		if n := it.Passed(); n > 0 {
			it.db.passed(int64(n))
		}
		if dead > 0 {
			it.db.reclaim.passedDead(int64(dead), where)
		}
		it.hold.End()
	}
	return err
}

// mostPassed is how many deleted keys of memtables walks pass over before the memtable is flushed, which costs about as
// much as passing over them. A flush leaves out deleted keys that no table knows: walks from the head of a queue
// would otherwise pass over ever more of them.
const mostPassed = 256 << 10

// passed counts deleted keys that a walk has passed over.
func (d *DB) passed(n int64) {
	if d.readOnly || d.walkedOver.Add(n) < mostPassed {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	if d.walkedOver.Load() < mostPassed || len(v.imm) > 0 || d.log.Err() != nil {
		return // those that are deleted in a memtable that is being flushed will be gone soon
	}
	d.walkedOver.Store(0)
	if v.mem.deletes > 0 {
		d.rotateTable()
	}
}

// passedDead counts deleted keys of index tables that a walk has passed over before it found a key: all that was taken
// from a queue which had been in tables. Every walk from there on passes over them again, until they are merged with
// what they delete, which their tiers wait long for if that is much more. So once walks have passed over as many as are
// to be merged, that stretch is: it costs about as much.
func (rc *reclaimer) passedDead(n int64, where holdfast.Range) {
	d := rc.d
	if d.readOnly || rc.walkedOver.Add(n) < mostPassed {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n = rc.walkedOver.Load(); n < mostPassed || rc.dead != nil {
		return
	}
	entries, tombstones := d.view.Load().ver.EntriesIn(where.Lo, where.Hi)
	if n < entries {
		return
	}
	rc.walkedOver.Store(0)
	if tombstones > 0 { // else the walk was an old snapshot's
		rc.dead = &where
		d.wake(d.merges)
	}
}

// pickDead returns the pass that passedDead has asked for, nil if it has not. It is called with edit held.
func (rc *reclaimer) pickDead(ver *tree.Version) *pass {
	rc.d.mu.Lock()
	r := rc.dead
	rc.dead = nil
	rc.d.mu.Unlock()
	n := len(ver.Tiers)
	if r == nil || n < 2 {
		return nil
	}
	p := &pass{oldest: ver.Tiers[n-1].ID, newest: ver.Tiers[0].ID, dead: true}
	p.next, p.to = ver.Whole(r.Lo, r.Hi)
	return p
}
