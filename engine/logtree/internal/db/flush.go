package db

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// flush turns the oldest full memtable into a tier of tables, and reports whether there was one. After an error,
// unless it is fatal, everything is as it was before. It is called from one goroutine at a time, but for databases
// opened with Config.Manual by any.
func (d *DB) flush() (bool, error) {
	d.flushing.Lock()
	defer d.flushing.Unlock()

	v := d.latest().view
	defer v.release()
	if len(v.imm) == 0 {
		return false, nil
	}

	// The oldest goes first: the position from which the log is replayed moves over it.
	t := v.imm[len(v.imm)-1]

	// Range deletes of newer memtables cover what is flushed, too. They have to be as durable as the table is.
	newer, upto := []*tree.RangeTombstones{v.mem.rangeTombstones.Load()}, t.end.LSN
	for _, x := range v.imm[:len(v.imm)-1] {
		newer = append(newer, x.rangeTombstones.Load())
	}
	if newer = slices.DeleteFunc(newer, (*tree.RangeTombstones).Empty); len(newer) > 0 {
		upto = d.log.Appended()
	}

	// A table must not be in use that names what a power cut can take away. The log is synced while it is written.
	var syncing sync.WaitGroup
	var syncErr error
	if d.manual {
		syncErr = d.log.Sync(upto)
	} else {
		syncing.Go(func() { syncErr = d.log.Sync(upto) })
	}
	out, w, err := d.writeTier(t, newer, v.ver)
	// No key comes into a range that has none meanwhile: compactions move keys, and only flushes add some.
	ts := v.ver.Needed(t.rangeTombstones.Load())
	syncing.Wait()

	// A table whose values may be lost must not be named by a manifest, so a failed sync fails the flush.
	if err = errors.Join(err, syncErr); err != nil {
		out.Abandon()
		w.undo()

		return false, err
	}

	// What range deletes cover goes from the tables that are there, and from those that a step is writing.
	d.edit.Lock()
	defer d.edit.Unlock()
	co := &d.compactor
	co.edit.replaced = policy.Replaced(co.edit.replaced, out.Sampled, out.Replaced)

	// The version may be another one than the flush began with, so the new tier is put on what there is now.
	tiers := d.view.Load().ver.CopyTiers()
	nextTier := d.edit.nextTier
	if !ts.Empty() {
		tiers = tree.DeleteRanges(tiers, ts)
		if s := co.edit.step; s != nil {
			s.Tombstones = append(s.Tombstones, ts)
		}
	}

	// Where range deletes have left nothing of the memtable there is no tier, but the position in the log moves all the
	// same.
	if len(out.Tables) > 0 {
		d.edit.nextTier++
		tiers = slices.Insert(tiers, 0, tree.Tier{ID: d.edit.nextTier, Refs: tree.Refs(out.Tables)})
	}
	if err := d.install(tiers, t.end, t, w.commit()); err != nil {
		// If it is unknown which manifest is durable, the new files may be named by it: they must stay.
		if !format.IsFatal(err) {
			d.edit.nextTier = nextTier
			out.Abandon()
			w.undo()
		}

		return false, err
	}
	d.wake(d.compactions)

	return true, nil
}

// writeTier writes the tables of a memtable, and the values too where that is worth it, see [policy.Sizes.Orders].
// Where there is no room for them they stay in the log. After an error the caller undoes both.
func (d *DB) writeTier(t *memTable, newer []*tree.RangeTombstones, ver *tree.Version) (*tree.Writer, *mover, error) {
	m := t.walked(t.rangeTombstones.Load())
	write := func(place func(*memtable.Version) (uint64, error)) (*tree.Writer, *mover, error) {
		out, w := d.tables.NewWriter(), &mover{d: d, seq: t.end.Seq, flags: format.FlagFlushed}
		w.begin(ver)
		if place == nil {
			place = func(x *memtable.Version) (uint64, error) { return w.put(x.Key, x.Value) }
		}
		err := out.Flush(m, place, newer, ver)

		// What the tables name is durable before they are.
		if err == nil {
			err = w.seal()
		}
		if err == nil {
			err = out.Close()
		}

		return out, w, err
	}
	if d.orders(t) {
		out, w, err := write(nil)
		if !format.IsNoRoom(err) {
			return out, w, err
		}
		out.Abandon()
		w.undo()
	}
	at := placer{t: t}

	return write(func(x *memtable.Version) (uint64, error) { return at.of(x.ValueAddr), nil })
}

// orders reports whether the memtable's values are written in the order of their keys.
func (d *DB) orders(t *memTable) bool {
	// What is not read yet of the log may name a next segment that is lost: one of that number would be taken for it.
	if !d.replayed {
		return false
	}

	d.edit.Lock()
	m := policy.Memtable{Bytes: int64(t.end.LSN-t.start.LSN) - t.large, Large: t.large,
		Replaced: d.compactor.edit.replaced, Urgent: d.compactor.urgent() || d.scarce.Load()}
	d.edit.Unlock()
	if !d.full().MayOrder(&m, d.files.FS.Free(d.files.Dir)) {
		return false
	}

	// Only now is it worth looking at all keys.
	it := t.index.Iter(math.MaxUint64)
	m.Keys, m.Ascending = it.Ascending()

	return m.Orders()
}

// flushOnce is flush in the background. If it cannot be done now, writers that wait for its memory learn of it: they
// are refused, and it is tried again.
func (d *DB) flushOnce() (did bool, err error) {
	// What is given up is for the flush. Nothing is made for later meanwhile: where the last inode is at stake, the next
	// segment would take it, be given up, and take it again, without end.
	for did, err = d.flush(); format.IsNoRoom(err); did, err = d.flush() {
		d.scarce.Store(true)

		// Without deletes in the way the reserve stays: what a flush writes would then only grow the database.
		c := ordinary
		if d.deletes() {
			c = class(d.compactor.removing.Load())
		}
		if !d.giveRoom(c) {
			break
		}
	}

	if d.scarce.Swap(false) {
		d.restoreReserve() // what it has left is for deletes again
	}
	if format.IsFatal(err) {
		return did, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()

	// A writer that waits for memory tells by this error, which the next successful flush removes, that waiting is of no
	// use.
	d.mu.stuck = err
	if err != nil {
		d.mu.changed.Broadcast()
	}

	return did, err
}

// Flush writes everything that was applied before the call to tables. Damage to a value is then known by its key, and
// opening has no log to read.
func (d *DB) Flush() error {
	if err := d.Life.Enter(); err != nil {
		return err
	}
	defer d.Life.Leave()
	if err := d.log.Err(); err != nil || d.readOnly {
		return err
	}

	d.mu.Lock()

	// What comes later belongs to another memtable, so the loop below ends beside busy writers.
	if !d.view.Load().mem.empty() {
		d.rotateMemtable()
	}
	d.mu.Unlock()

	// The caller's goroutine flushes. Where the one in the background is at it, flush waits for it and takes the next
	// memtable.
	for {
		did, err := d.flush()
		if format.IsFatal(err) {
			return d.log.Fail(err)
		}
		if err != nil || !did {
			return err
		}
	}
}

// deletes reports whether a memtable holds deletes, or some wait to get into one.
func (d *DB) deletes() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	return d.mu.removing > 0 || v.mem.deletes > 0 ||
		slices.ContainsFunc(v.imm, func(t *memTable) bool { return t.deletes > 0 })
}

// install makes tiers the present version, which the log completes from that position on: it writes the
// manifest, publishes a view without the memtable flushed, if any, and gives up what is not
// needed any more. moved are new segments that the tiers refer to. It is called with edit held.
func (d *DB) install(tiers []tree.Tier, from format.Position, flushed *memTable, moved []*wal.Segment) error {
	if t := tree.Overlapping(tiers); t != nil {
		// A directory with such a manifest could not be opened.
		return fmt.Errorf("tables overlap in tier %d: this is a bug in %s", t.ID, format.Name)
	}

	// The next version refers to the new segments, which must be known for that.
	old := d.view.Load().ver // only we replace it
	d.mu.Lock()
	for _, s := range moved {
		d.mu.segs[s.ID] = s
	}
	d.mu.Unlock()

	ver := old.Next(tiers, func(id uint32) tree.Segment {
		d.mu.Lock()
		defer d.mu.Unlock()

		return d.mu.segs[id]
	})

	defer ver.Release() // the view has it

	// From here on the manifest is the new one, or the old one still.
	if err := d.saveManifest(ver, from); err != nil {
		// The caller removes the new segments. Where the manifest may name them they stay, and Close closes them.
		if !format.IsFatal(err) {
			d.mu.Lock()
			for _, s := range moved {
				delete(d.mu.segs, s.ID)
			}
			d.mu.Unlock()
		}

		return err
	}
	d.edit.from = from
	ver.Wear(1)

	// Tables that it has left are removed with the last version that has them. It is done after the manifest is durable.
	// A table marked before could lose its file while the old manifest names it.
	for _, f := range old.Tables {
		if !ver.Has(f) {
			f.Obsolete.Store(true)
		}
	}

	// Readers see it from here on.
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	imm := v.imm
	if flushed != nil {
		// The oldest memtable is the last one. The slice is cut with its capacity, because views that readers have share
		// it.
		imm = imm[: len(imm)-1 : len(imm)-1]
	}
	d.publish(v.mem, imm, ver)
	d.retireSegments(ver, from)

	// What was decided from numbers is decided again, for those who wait for a change.
	d.compactor.measure(ver)
	d.compactor.mu.installs++
	d.mu.changed.Broadcast()

	return nil
}

// retireSegments gives up the segments that neither the version nor the log from that position on needs. It is called
// with edit and mu held.
func (d *DB) retireSegments(ver *tree.Version, from format.Position) {
	var dead []*wal.Segment

	// A segment is in one of three states: the log still needs it, some table names it, or it is dead. While a compaction
	// writes to it, it is none of them yet.
	for id, s := range d.mu.segs {
		moved := s.Kind == format.SegmentMoved
		// Nobody writes to it any more: it was synced when the memtable was flushed, or when the compaction's step settled.
		if !s.Shared() && !s.Open.Load() && (moved || id < from.Segment) {
			s.Share()
		}
		// A compaction may write tables with values in segments that nothing else needs any more.
		if (moved && !s.Open.Load() || s.Kind == format.SegmentLog && id < from.Segment) &&
			ver.Segment(id) == nil && !d.compactor.edit.step.Reads(id) {
			dead = append(dead, s)
		}
	}
	slices.SortFunc(dead, func(a, b *wal.Segment) int { return cmp.Compare(a.ID, b.ID) }) // the same seed must do the same

	for _, s := range dead {
		delete(d.mu.segs, s.ID)

		// Dead is set before the reference is given up: whoever gives up the last one, a reader perhaps, then has the file
		// removed.
		s.Dead.Store(true)
		s.Release()
	}
}

// saveManifest writes the manifest for that version. It is called with edit held.
func (d *DB) saveManifest(ver *tree.Version, from format.Position) error {
	m := d.manifest(ver, from)
	d.otherSyncs.Add(2)

	return writeManifest(d.files.FS, d.files.Dir, m)
}

// manifest is that for a version. It is called with edit held.
func (d *DB) manifest(ver *tree.Version, from format.Position) *format.Manifest {
	m := &format.Manifest{DB: d.files.DB, NextTier: d.edit.nextTier, From: from}
	for _, t := range ver.Tiers {
		mt := format.ManifestTier{ID: t.ID}
		for i := range t.Refs {
			r := &t.Refs[i]
			mr := format.ManifestRef{Table: r.Table.ID, Hi: r.Hi}

			// A table that is not cut at its lower end has no bound there: most have none, which keeps the manifest small.
			if !bytes.Equal(r.Lo, r.Table.Info.Smallest) {
				mr.Lo = r.Lo
			}
			mt.Refs = append(mt.Refs, mr)
		}
		m.Tiers = append(m.Tiers, mt)
	}
	d.mu.Lock()
	m.NextFile = d.mu.nextFile
	d.mu.Unlock()
	// What is not needed any more is removed once the manifest does not name it.
	for _, s := range segmentsOf(ver) {
		if s.Kind == format.SegmentMoved || s.ID < from.Segment {
			m.Segments = append(m.Segments, format.ManifestSegment{ID: s.ID, Size: s.Used.Load(), Payload: s.Payload.Load()})
		}
	}

	m.Synced = max(d.log.Synced(), d.edit.promised) // a replay may stop short of it yet

	return m
}

// manifestPath is for errors.
func (d *DB) manifestPath() string { return filepath.Join(d.files.Dir, format.ManifestName) }
