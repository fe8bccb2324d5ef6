package db

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
)

// request is a call of Compact under way: a compaction of all tiers, which shows where there is garbage, and
// compactions that empty the segments which have some, each of them once. That of a range is two requests, one for
// each: what is to be emptied is found out in between.
type request struct {
	part *holdfast.Range // nil: everything
	over atomic.Bool     // set under mu

	// Under mu.
	err error

	// Under edit. Segments are as in [policy.Request]; the map of garbage is nil for everything, and for the first request
	// of a range.
	merged  bool
	short   bool // there was no room to empty some
	below   uint32
	tried   map[uint32]bool
	garbage map[uint32]int64
}

// Compact implements [holdfast.Compactor]. What was written before the call is flushed and merged, and segments of
// which a twentieth or more is garbage are emptied: that takes room for what is moved until they are gone, a quarter of
// the log at most. What is damaged stays, and keeps what it names; Metrics.Trouble tells of it. Readers and writers go
// on. Several at a time follow one another. Close ends it with ErrClosed, and a compaction that fails meanwhile, its
// own or not, with that error.
//
// Of a range, tables are merged as far as they overlap it, and segments are emptied of which a twentieth or more
// is garbage of keys in the range. To find them, segments with so much garbage of any keys are read, but of segments of
// moved values little more than the range. All else that lies in a segment which is emptied moves too. Memtables
// without a key in the range are not flushed. What it does not give back is garbage that is thinly spread over
// segments, and the log's present segment if no memtable has a key in the range.
func (d *DB) Compact(ctx context.Context, r holdfast.Range) error {
	return d.Compacting(ctx, r, func(ctx context.Context) error {
		// Those who wait for a change look at the context when they are woken: the end of the context wakes them.
		defer context.AfterFunc(ctx, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.mu.changed.Broadcast()
		})()
		d.mu.Lock()

		// A range without bounds is everything, for which no segment has to be read.
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

// noRoomToCompact is the error of a Compact that left out what there was no room to move. What it has done so far
// stays done.
func (d *DB) noRoomToCompact(cause error) error {
	return &holdfast.Error{Op: "compact", Engine: format.Name, Path: d.files.Dir, Class: holdfast.ErrFull, Cause: cause,
		Detail: "there is no room for what has to be moved", Remedy: "make room on the disk; nothing is lost"}
}

// compact is Compact with mu held, which it releases and takes again.
func (d *DB) compact(ctx context.Context, part *holdfast.Range) error {
	if err := d.flushBefore(ctx, part); err != nil {
		return err
	}
	if err := d.compactor.run(ctx, &request{part: part}); err != nil || part == nil {
		return err
	}

	// The index of the range is merged now, so what it still names is alive. All else that segments hold of the range is
	// garbage.
	var garbage map[uint32]int64
	var err error
	d.unlocked(func() { garbage, err = d.compactor.garbageIn(ctx, part) })
	if err != nil || len(garbage) == 0 {
		return err
	}

	return d.compactor.run(ctx, &request{part: part, garbage: garbage, merged: true})
}

// await waits for a change that the work behind c brings, or in a database without goroutines does one step of it. It
// is called with mu held, and releases and takes it again.
func (d *DB) await(ctx context.Context, c chan struct{}, a activity, step func() (bool, error)) error {
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

	// A change may be of another kind than the caller waits for, so the caller looks again.
	d.wake(c)
	d.mu.changed.Wait()

	return nil
}

// flushBefore flushes what a request is to compact: everything, or the memtables with an operation on a key of the part
// and those that are older. It is called with mu held, and releases and takes it again.
func (d *DB) flushBefore(ctx context.Context, part *holdfast.Range) error {
	flush := func() error {
		err := d.await(ctx, d.work, isFlushing, d.flushOnce)
		if err == nil {
			err = d.mu.stuck
		}

		return err
	}

	// A failure of before this call is not its own. If the disk is still full, the next flush says so again.
	d.mu.stuck = nil
	for len(d.view.Load().imm) >= policy.MaxFull {
		if err := flush(); err != nil {
			return err
		}
	}

	// The log's segment is left even where the memtable is empty: what it holds is garbage then.
	v := d.view.Load()
	upto := v.mem
	if part == nil {
		written := d.log.Current() != nil && d.log.End().Offset > format.SegmentHeaderSize+format.BeginSize

		// Rotating the segment first lets the flush free it: a segment is given up once the position of replay has
		// left it.
		if written || !upto.empty() {
			d.leaveSegment()
			d.rotateMemtable()
		}
	} else if upto.touches(part) {
		d.leaveSegment()
		d.rotateMemtable()
	} else if i := slices.IndexFunc(v.imm, func(t *memTable) bool { return t.touches(part) }); i >= 0 {
		upto = v.imm[i]
	}

	// Memtables are flushed from the oldest on: once this one has left the view, all older ones have.
	for slices.Contains(d.view.Load().imm, upto) {
		if err := flush(); err != nil {
			return err
		}
	}

	return nil
}

// run has a request done when those before it are. It is called with mu held, and releases and takes it again.
func (co *compactor) run(ctx context.Context, r *request) error {
	d := co.d
	step := func() error { return d.await(ctx, d.compactions, isCompacting, co.step) }

	// Requests follow one another; the loop helps the one under way in a database without goroutines.
	for co.mu.request != nil {
		if err := step(); err != nil {
			return err
		}
	}

	// What is written from here on is not the request's: segments with higher numbers are left alone, or it would never
	// end beside a busy writer.
	r.below, r.tried = uint32(d.mu.nextFile+1), map[uint32]bool{}
	if s := d.log.Current(); s != nil {
		r.below = s.ID
	}

	// The compacting goroutine sees it in forRequest. An error here is that of the context, or of a failed log: it ends
	// the request, and what was begun for it is superseded.
	co.mu.request = r
	for !r.over.Load() {
		if err := step(); err != nil {
			co.end(r, err)
		}
	}

	return r.err
}

// touches reports whether there is an operation on a key of the range.
func (t *memTable) touches(r *holdfast.Range) bool {
	behind := func(key []byte) bool { return len(r.Hi) > 0 && bytes.Compare(key, r.Hi) >= 0 }
	for x := range t.rangeTombstones.Load().Ranges() {
		if !behind(x.Lo) && (len(x.Hi) == 0 || bytes.Compare(r.Lo, x.Hi) < 0) {
			return true
		}
	}

	// It is enough to find one key: the first from the beginning of the range on.
	it := t.index.Iter(math.MaxUint64)

	return it.SeekGE(r.Lo) && !behind(it.Key())
}

// garbageIn returns how many bytes of segments are garbage of keys in the range, where it is so much that it is worth
// emptying them.
func (co *compactor) garbageIn(ctx context.Context, r *holdfast.Range) (map[uint32]int64, error) {
	d := co.d
	d.edit.Lock()

	// The view keeps the segments of the candidates from being removed while they are read without a lock.
	v := d.latest().view
	all, _, _ := policy.Candidates(d.segmentNumbers(v.ver))
	d.edit.Unlock()
	defer v.release()

	all = slices.DeleteFunc(all, func(c policy.Candidate) bool { return !c.Worth(c.Garbage) })
	ids := map[uint32]bool{}

	for _, c := range all {
		ids[c.ID] = true
	}
	named, err := v.ver.UsesIn(r.Lo, r.Hi, ids, ctx.Err)
	if err != nil {
		return nil, err
	}

	garbage := map[uint32]int64{}

	// What the segment holds of the range, less what tables still name of it, is the garbage.
	for _, c := range all {
		there, err := segmentOf(v.ver, c.ID).PayloadIn(r.Lo, r.Hi, ctx.Err)
		if isUnreadable(err) {
			continue // what is damaged stays
		}
		if err != nil {
			return nil, err
		}
		// With its share of what frames need besides.
		n := float64(there-named[c.ID]) * float64(c.Used) / float64(max(c.Payload, 1))
		if c.Worth(int64(n)) {
			garbage[c.ID] = int64(n)
		}
	}

	return garbage, nil
}

// end ends a request, once. It is called with mu held.
func (co *compactor) end(r *request, err error) {
	if r != nil && !r.over.Load() {
		r.err = err
		r.over.Store(true)
		co.mu.request = nil
		co.d.mu.changed.Broadcast()
	}
}

// endRequest ends the request under way, if there is one, without mu held.
func (co *compactor) endRequest(err error) {
	co.d.mu.Lock()
	defer co.d.mu.Unlock()
	co.end(co.mu.request, err)
}

// superseded reports whether the compaction is not to go on: it is for a request that has ended, or it is a sweep, and
// a request waits which does all that it does. It is called with edit held.
func (co *compactor) superseded(c *compaction) bool {
	if c.request != nil {
		return c.request.over.Load()
	}
	co.d.mu.Lock()
	defer co.d.mu.Unlock()

	return c.sweep != nil && co.mu.request != nil && co.mu.request.part == nil
}

// interrupts reports whether a request goes before a compaction that has begun: that of a range before the next step of
// a sweep, which it would not replace, and which may take long. It is called with edit held.
func (co *compactor) interrupts(under *compaction) bool {
	co.d.mu.Lock()
	defer co.d.mu.Unlock()

	return co.mu.request != nil && co.mu.request.part != nil && under.takesIn()
}

// later leaves all segments but one to a later compaction. It is called with edit held; r may be nil.
func (r *request) later(all []policy.Candidate, but uint32) {
	for _, x := range all {
		if r != nil && x.ID != but {
			delete(r.tried, x.ID)
		}
	}
}

// forRequest returns the next compaction for the request under way, nil if there is none, or it has come to its end. It
// is called with edit held, while none but a sweep is under way.
func (co *compactor) forRequest(ver *tree.Version) *compaction {
	d := co.d
	d.mu.Lock()
	r := co.mu.request
	d.mu.Unlock()
	if r == nil {
		return nil
	}

	// First all tiers are merged, which shows where there is garbage.
	n := len(ver.Tiers)
	if !r.merged {
		if r.merged = true; n > 1 {
			c := &compaction{request: r, oldest: ver.Tiers[n-1].ID, newest: ver.Tiers[0].ID, victims: map[uint32]bool{}}
			if r.part != nil {
				c.from, c.to = ver.Whole(r.part.Lo, r.part.Hi)
			}

			return c
		}
	}

	// Then the segments that have some are emptied, a part of the log at a time.
	only := r.garbage
	if r.part != nil && only == nil {
		only = map[uint32]int64{}
	}
	victims, short := policy.PickRequested(
		&policy.State{Sizes: d.full(), Segments: d.segmentNumbers(ver), Room: co.roomToMove(ver, false)},
		&policy.Request{Below: r.below, Garbage: only, Tried: r.tried})

	r.short = r.short || short
	for _, id := range victims {
		r.tried[id] = true
	}
	if len(victims) == 0 || n == 0 {
		var err error
		if r.short {
			err = d.noRoomToCompact(nil)
		}
		co.endRequest(err)

		return nil
	}

	return &compaction{request: r, oldest: ver.Tiers[n-1].ID, newest: ver.Tiers[0].ID, victims: set(victims),
		onlyVictims: r.part != nil}
}
