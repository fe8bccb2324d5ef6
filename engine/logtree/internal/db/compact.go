package db

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
)

// compaction is a Compact under way: a pass over all tiers, which shows where there is garbage, and passes that empty
// the segments which have some, each of them once. That of a range is two, one for each: what is to be emptied is found
// out in between.
type compaction struct {
	part    *holdfast.Range  // nil: everything
	garbage map[uint32]int64 // of a range, what it has in which segments; the others stay

	below  uint32      // segments with smaller ids are emptied; the others are newer than the call
	over   atomic.Bool // set under mu
	err    error       // under mu
	merged bool        // under edit, as are the rest
	tried  map[uint32]bool
	short  bool // there was no room to empty some
}

// compactGarbage is how many bytes a segment may have for each of garbage in it and not be emptied.
const compactGarbage = 20

// compactMoved is the part of the log that one pass moves at most: it takes room for that until it is done.
const compactMoved = 4

// Compact implements [holdfast.Compactor]. What was written before the call is flushed and merged, and segments of
// which a twentieth or more is garbage are emptied: that takes room for what is moved until they are gone, a quarter of
// the log at most. What is damaged stays, and keeps what it names; Metrics.Trouble tells of it. Readers and writers go
// on. Several at a time follow one another. Close ends it with ErrClosed, and a merge that fails meanwhile, its own or
// not, with that error.
//
// Of a range, index tables are merged as far as they overlap it, and segments are emptied of which a twentieth or more
// is garbage of keys in the range. To find them, segments with so much garbage of any keys are read, but of segments of
// moved values little more than the range. All else that lies in a segment which is emptied moves too. Memtables
// without a key in the range are not flushed. What it does not give back is garbage that is thinly spread over
// segments, and the log's present segment if no memtable has a key in the range.
func (d *DB) Compact(ctx context.Context, r holdfast.Range) error {
	return d.Compacting(ctx, r, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.changed.Broadcast()
		})()
		d.mu.Lock()
		var part *holdfast.Range
		if len(r.Lo)+len(r.Hi) > 0 {
			part = &r
		}
		err := d.compact(ctx, part)
		d.mu.Unlock()
		d.removeObsolete()
		if format.IsNoRoom(err) {
			err = d.noRoomToCompact(err)
		}
		return err
	})
}

func (d *DB) noRoomToCompact(cause error) error {
	return &holdfast.Error{Op: "compact", Engine: format.Name, Path: d.files.Dir, Class: holdfast.ErrFull, Cause: cause,
		Detail: "there is no room for what has to be moved", Remedy: "make room on the disk; nothing is lost"}
}

// compact is Compact with mu held, which it releases and takes again.
func (d *DB) compact(ctx context.Context, part *holdfast.Range) error {
	rc := &d.reclaim
	// await waits for a change, or in a database without goroutines does one step of what would bring it.
	await := func(c chan struct{}, a activity, step func() (bool, error)) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := d.log.Err(); err != nil {
			return err
		}
		if d.manual {
			d.mu.Unlock()
			defer d.mu.Lock()
			_, err := step()
			return d.worked(a, err)
		}
		d.wake(c)
		d.changed.Wait()
		return nil
	}
	flush := func() error {
		err := await(d.work, isFlushing, d.flushOnce)
		if err == nil {
			err = d.stuck
		}
		return err
	}
	merge := func() error { return await(d.merges, isMerging, rc.mergeOnce) }

	d.stuck = nil
	for len(d.view.Load().imm) >= maxImm {
		if err := flush(); err != nil {
			return err
		}
	}
	mem := d.view.Load().mem
	if part == nil {
		written := d.log.Current() != nil && d.log.End().Offset > format.SegmentHeaderSize+format.BeginSize
		if written || !mem.empty() {
			d.leaveSegment()
			d.rotateTable()
		}
	} else if mem.touches(part) {
		d.leaveSegment()
		d.rotateTable()
	} else if i := slices.IndexFunc(d.view.Load().imm, func(t *table) bool { return t.touches(part) }); i >= 0 {
		mem = d.view.Load().imm[i] // and all that are older
	}
	for slices.Contains(d.view.Load().imm, mem) {
		if err := flush(); err != nil {
			return err
		}
	}
	run := func(c *compaction) error {
		for rc.compaction != nil {
			if err := merge(); err != nil {
				return err
			}
		}
		c.part, c.below, c.tried = part, uint32(d.nextFile+1), map[uint32]bool{}
		if s := d.log.Current(); s != nil {
			c.below = s.ID
		}
		rc.compaction = c
		for !c.over.Load() {
			if err := merge(); err != nil {
				rc.end(c, err)
			}
		}
		return c.err
	}
	err := run(new(compaction))
	if err == nil && part != nil {
		var garbage map[uint32]int64
		d.unlocked(func() { garbage, err = rc.garbageIn(ctx, part) })
		if err == nil && len(garbage) > 0 {
			err = run(&compaction{garbage: garbage, merged: true})
		}
	}
	return err
}

// touches reports whether there is an operation on a key of the range.
func (t *table) touches(r *holdfast.Range) bool {
	behind := func(key []byte) bool { return len(r.Hi) > 0 && bytes.Compare(key, r.Hi) >= 0 }
	for x := range t.rangeTombstones.Load().Ranges() {
		if !behind(x.Lo) && (len(x.Hi) == 0 || bytes.Compare(r.Lo, x.Hi) < 0) {
			return true
		}
	}
	it := t.index.Iter(math.MaxUint64)
	return it.SeekGE(r.Lo) && !behind(it.Key())
}

// garbageIn returns how many bytes of segments are garbage of keys in the range, where it is so much that it is worth
// emptying them.
func (rc *reclaimer) garbageIn(ctx context.Context, r *holdfast.Range) (map[uint32]int64, error) {
	d := rc.d
	d.edit.Lock()
	v := d.latest().view
	all, _, _ := rc.candidates(v.ver)
	d.edit.Unlock()
	defer v.release()
	all = slices.DeleteFunc(all, func(c candidate) bool { return c.garbage*compactGarbage < c.used })
	ids := map[uint32]bool{}
	for _, c := range all {
		ids[c.seg.ID] = true
	}
	named, err := v.ver.UsesIn(r.Lo, r.Hi, ids, ctx.Err)
	if err != nil {
		return nil, err
	}
	garbage := map[uint32]int64{}
	for _, c := range all {
		there, err := c.seg.PayloadIn(r.Lo, r.Hi, ctx.Err)
		if isUnreadable(err) {
			continue // what is damaged stays
		}
		if err != nil {
			return nil, err
		}
		// With its share of what frames need besides.
		n := float64(there-named[c.seg.ID]) * float64(c.used) / float64(max(c.seg.Payload.Load(), 1))
		if int64(n)*compactGarbage >= c.used {
			garbage[c.seg.ID] = int64(n)
		}
	}
	return garbage, nil
}

// end ends a compaction, once. It is called with mu held.
func (rc *reclaimer) end(c *compaction, err error) {
	if c != nil && !c.over.Load() {
		c.err = err
		c.over.Store(true)
		rc.compaction = nil
		rc.d.changed.Broadcast()
	}
}

// endCompaction ends the compaction under way, if there is one, without mu held.
func (rc *reclaimer) endCompaction(err error) {
	rc.d.mu.Lock()
	defer rc.d.mu.Unlock()
	rc.end(rc.compaction, err)
}

// superseded reports whether the pass is not to go on: it is for a compaction that has ended, or it is a sweep, and a
// compaction waits, which does all that it does. It is called with edit held.
func (rc *reclaimer) superseded(p *pass) bool {
	if p.compaction != nil {
		return p.compaction.over.Load()
	}
	rc.d.mu.Lock()
	defer rc.d.mu.Unlock()
	return p.sweep && rc.compaction != nil && rc.compaction.part == nil
}

// interrupts reports whether a compaction under way goes before a pass that has begun: that of a range before the next
// step of a sweep, which it would not replace, and which may take long. It is called with edit held.
func (rc *reclaimer) interrupts(under *pass) bool {
	rc.d.mu.Lock()
	defer rc.d.mu.Unlock()
	return rc.compaction != nil && rc.compaction.part != nil && under.takesIn()
}

// later leaves all segments but one to a later pass. It is called with edit held; c may be nil.
func (c *compaction) later(all []candidate, but uint32) {
	for _, x := range all {
		if c != nil && x.seg.ID != but {
			delete(c.tried, x.seg.ID)
		}
	}
}

// pickCompaction returns the next pass of the compaction under way, nil if there is none, or it has come to its end. It
// is called with edit held, while there is no pass.
func (rc *reclaimer) pickCompaction(ver *tree.Version) *pass {
	d := rc.d
	d.mu.Lock()
	c := rc.compaction
	d.mu.Unlock()
	if c == nil {
		return nil
	}
	n := len(ver.Tiers)
	all := func(victims map[uint32]bool) *pass {
		p := &pass{oldest: ver.Tiers[n-1].ID, newest: ver.Tiers[0].ID, victims: victims, compaction: c}
		if c.part != nil && victims == nil {
			p.next, p.to = ver.Whole(c.part.Lo, c.part.Hi)
		}
		p.only = c.part != nil && victims != nil
		return p
	}
	if !c.merged {
		if c.merged = true; n > 1 {
			return all(nil)
		}
	}
	segments, total, _ := rc.candidates(ver)
	victims, moved := map[uint32]bool{}, int64(0)
	room, most := rc.roomToMove(), max(total/compactMoved, d.sizes.segment.Load())
	for _, x := range segments {
		if x.seg.ID >= c.below || x.garbage*compactGarbage < x.used {
			continue
		}
		if c.part != nil && c.garbage[x.seg.ID] == 0 {
			continue
		}
		switch live := x.used - x.garbage; {
		case c.tried[x.seg.ID]: // a table that is damaged keeps it
		case live > room:
			c.short = true
		case len(victims) == 0 || moved+live <= min(room, most):
			victims[x.seg.ID], c.tried[x.seg.ID] = true, true
			moved += live
		}
	}
	if len(victims) == 0 || n == 0 {
		var err error
		if c.short {
			err = d.noRoomToCompact(nil)
		}
		rc.endCompaction(err)
		return nil
	}
	return all(victims)
}
