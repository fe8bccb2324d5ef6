package db

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
)

// View implements [driver.Core].
func (d *DB) View(driver.Op) (state, error) { return d.latest(), nil }

// Drop implements [driver.Core].
func (d *DB) Drop(st state) error {
	st.view.release()
	return nil
}

// Read implements [driver.Core].
func (d *DB) Read(st state, dst, key []byte) ([]byte, error) { return st.get(dst, key) }

// get appends the value of key to dst. The memtables are asked first, from the newest on, then
// the tiers; the first that knows the key decides.
func (st *state) get(dst, key []byte) ([]byte, error) {
	ts := st.rangeTombstones

	// The first one is still written to, so its range tombstones are those of the moment; full memtables do not change any
	// more.
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

	// The order of the sources, from the newest to the oldest, is what decides between versions of a key.
	it.Start(st.view.ver)

	return it, nil
}

// addTable adds a memtable as the walk sees it. An empty one is left out: it would cost a comparison for each key.
func (it *iterator) addTable(t *memTable, ts *tree.RangeTombstones) {
	if !t.empty() {
		it.AddMemtable(t.walked(ts), it.hold.View.seq)
	}
}

// Close implements [holdfast.Iterator].
func (it *iterator) Close() error {
	// Both are asked before the walk is closed, which resets it.
	dead, where := it.Head()
	was, err := it.Iterator.Close()

	// Close may be called twice. Only the first call counts what was passed and ends the hold.
	if was {
		if n := it.Passed(); n > 0 {
			it.db.passed(int64(n))
		}
		if dead > 0 {
			it.db.compactor.passedDead(int64(dead), where)
		}
		it.hold.End()
	}

	return err
}

// passed counts deleted keys of memtables that walks have passed over. Where they are many the memtable is flushed,
// which costs about as much as passing over them. A flush leaves out deleted keys that no table knows: walks from the
// head of a queue would otherwise pass over ever more of them.
func (d *DB) passed(n int64) {
	if d.readOnly || d.passedOver.Add(n) < policy.MostPassed {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()

	// Counting is done without the lock, so another walk may have come first.
	v := d.view.Load()
	if d.passedOver.Load() < policy.MostPassed || len(v.imm) > 0 || d.log.Err() != nil {
		return // those that are deleted in a memtable that is being flushed will be gone soon
	}
	d.passedOver.Store(0)
	if v.mem.deletes > 0 {
		d.rotateMemtable()
	}
}

// passedDead counts deleted keys of tables that a walk has passed over before it found a key: all that was taken from a
// queue which had been in tables. Every walk from there on passes over them again, until they are merged with what they
// delete, which their tiers wait long for if that is much more. So once walks have passed over as many as there are
// entries in that stretch, it is compacted: it costs about as much.
func (co *compactor) passedDead(n int64, where holdfast.Range) {
	d := co.d
	if d.readOnly || co.passedOver.Add(n) < policy.MostPassed {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if n = co.passedOver.Load(); n < policy.MostPassed || co.mu.deadKeys != nil {
		return
	}

	// A compaction reads whole tables of the oldest tier. It is due once walks have cost as much as it will.
	entries, tombstones := d.view.Load().ver.EntriesIn(where.Lo, where.Hi)
	if !policy.DeadKeys(n, entries) {
		return
	}
	co.passedOver.Store(0)
	if tombstones > 0 { // else the walk was an old snapshot's
		co.mu.deadKeys = &where
		d.wake(d.compactions)
	}
}

// forDeadKeys returns the compaction that passedDead has asked for, nil if it has not. It is called with edit held.
func (co *compactor) forDeadKeys(ver *tree.Version) *compaction {
	co.d.mu.Lock()
	r := co.mu.deadKeys

	// The wish is taken even where nothing comes of it: walks that go on will count up to the next one.
	co.mu.deadKeys = nil
	co.d.mu.Unlock()
	n := len(ver.Tiers)
	if r == nil || n < 2 {
		return nil
	}
	c := &compaction{deadKeys: true, oldest: ver.Tiers[n-1].ID, newest: ver.Tiers[0].ID, victims: map[uint32]bool{}}
	c.from, c.to = ver.Whole(r.Lo, r.Hi)

	return c
}
