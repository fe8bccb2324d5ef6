package db

import (
	"errors"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
)

// compaction merges neighbouring tiers into the oldest of them. It can also move values out of segments that are to be
// emptied, its victims; then all tiers take part.
//
// It is done in steps. A step takes the next keys in order, rewrites them, and installs the result, so that it is
// complete by itself: a compaction needs room for one step in addition to what it reads, can be stopped after any step,
// and does not keep flushes waiting.
//
// Its fields are used under edit or by the one goroutine that compacts.
type compaction struct {
	reason         policy.Reason // 0 for those that were not picked
	request        *request      // that it is a part of, mostly nil
	deadKeys       bool          // passedDead has asked for it
	urgent         bool          // the log waits for room
	oldest, newest uint64        // ids of the tiers; all between them take part
	victims        map[uint32]bool
	onlyVictims    bool   // tables that name no victim stay as they are
	from, to       []byte // keys before from are done, those from to on take no part; an empty to cuts nothing
	limits         policy.Limits
	mover          *mover
	sweep          *sweep // nil if it is none
	did            bool   // a step has changed something
}

// sweep is what a compaction of the whole database needs that moves small values into the order of their keys. It takes
// in newer tiers, and the log's new segments, when a step of it begins. So small tiers are merged between its steps,
// and what is written during one sweep is given back during the next one, and not at its end.
type sweep struct {
	logFrom uint32    // the log's segments from here on are taken in
	movedTo uint32    // segments of moved values after it are the sweep's own
	stepped time.Time // when its last step ended
}

// takesIn reports whether the next step takes in what is newer: only that of a sweep does, and not while a segment is
// open whose begin frame says that its values are no newer than when it was begun.
func (c *compaction) takesIn() bool { return c.sweep != nil && c.mover.seg == nil }

// plan makes the next step of a compaction. It is called with edit held.
func (co *compactor) plan(c *compaction) *tree.Step {
	if c.sweep != nil {
		co.widen(c)
	}

	// Tables below a thirty-second of a full one are joined with neighbours that are rewritten or as small.
	return co.d.view.Load().ver.Plan(tree.Compaction{Oldest: c.oldest, Newest: c.newest, Victims: c.victims, From: c.from,
		To: c.to, Only: c.onlyVictims, Small: co.d.tables.Limit.Load() / 32})
}

// widen makes a sweep take in what has come since its last step, and chooses segments of moved values for the next one.
// It is called with edit held.
func (co *compactor) widen(c *compaction) {
	d := co.d
	ver := d.view.Load().ver

	// The log's segments that were flushed since the last step become victims of this one. The newest operation in them is
	// what a segment begun now must state.
	if c.takesIn() && len(ver.Tiers) > 0 {
		c.newest, c.mover.seq = max(c.newest, ver.Tiers[0].ID), d.edit.from.Seq
		for _, s := range segmentsOf(ver) {
			fresh := s.Kind == format.SegmentLog && s.ID >= c.sweep.logFrom && s.ID < d.edit.from.Segment ||
				s.Flags&format.FlagFlushed != 0 && s.ID > c.sweep.movedTo
			if fresh && !s.Damaged.Load() {
				c.victims[s.ID] = true
			}
		}
	}

	// Of the segments with moved values, those are taken that this step comes to and that have enough garbage. Each holds
	// a range of keys, so it is empty once the sweep has passed it.
	share, tables := ver.NewerFrom(c.from, c.limits.Written)
	live := ver.Live()

	// Damaged segments stay, and so do the sweep's own: they hold what this sweep has moved already.
	for _, t := range tables {
		for _, u := range t.Info.Segments {
			s := segmentOf(ver, u.ID)
			if s.Kind != format.SegmentMoved || s.Flags&format.FlagFlushed != 0 || u.ID > c.sweep.movedTo ||
				s.Damaged.Load() || c.victims[u.ID] {
				continue
			}
			numbers := policy.Segment{Payload: s.Payload.Load(), Live: live[u.ID]}
			if policy.Takes(&numbers, share, co.edit.replaced) {
				c.victims[u.ID] = true
			}
		}
	}
}

// step does one step of a compaction, if one is due, and reports whether it did. A step that fails is undone. One that
// found no room is tried again with less, as long as there is less; one that met damage leaves out what is damaged.
func (co *compactor) step() (bool, error) {
	d := co.d
	if err := d.log.Err(); err != nil {
		return false, err // a step of the last compaction may not have been undone
	}

	// What range deletes have cut is counted outside the lock, because it reads tables.
	co.countCuts()

	d.edit.Lock()
	c := co.next()
	if c == nil {
		co.nothing()
		d.edit.Unlock()

		return false, nil
	}

	// The step is planned, and announced, under one hold of edit: a flush that comes after adds its range deletes to it,
	// and keeps the segments that it reads.
	s := co.plan(c)
	if s.Idle() {
		co.finish(c)
		d.edit.Unlock()

		return true, nil
	}
	ver := d.view.Load().ver
	ver.Acquire()
	defer ver.Release()
	co.edit.step = s
	d.edit.Unlock()

	// Flushes go on while the step is written. The version keeps the files that the step reads, also those that a flush
	// replaces meanwhile.
	out := d.tables.NewWriter()
	c.mover.begin(ver)
	err := co.rewrite(c, s, ver, out)

	// Finding the damaged table reads, so it is done before the lock is taken again.
	var unreadable *tree.Table
	if isUnreadable(err) {
		unreadable = s.Unreadable(isUnreadable)
	}

	d.edit.Lock()
	defer d.edit.Unlock()

	// From here on flushes add their range deletes to the version alone. What they added to the step before is in s,
	// which Tiers applies.
	co.edit.step = nil
	if err == nil {
		err = d.install(s.Tiers(d.view.Load().ver, out), d.edit.from, nil, c.mover.commit())
	}

	switch {
	case err == nil:
		co.stepped(c, s, out)
		return true, nil
	case format.IsFatal(err):
		return false, err // the files may be in the manifest
	}

	// Nothing of the step is in a manifest. Its files are removed, and the moved segment is cut back to where the step
	// began.
	out.Abandon()
	c.mover.undo()

	return co.failed(c, unreadable, err)
}

// stepped follows a step that was installed. It is called with edit held.
func (co *compactor) stepped(c *compaction, s *tree.Step, out *tree.Writer) {
	d := co.d
	c.did = true

	// A range delete that was flushed while the step was written may leave nothing of a table: no version has it, so
	// nobody else will remove its file.
	for _, f := range out.Tables {
		if f.Unused() { // range deletes have covered all of it meanwhile
			f.Close()
			d.freeTable(f)
		}
	}
	if c.sweep != nil {
		now := time.Now()
		co.edit.speed = policy.Speed(co.edit.speed, s.Entries, now.Sub(c.sweep.stepped).Seconds())
		c.sweep.stepped = now
	}

	// The next step begins behind the last key of this one, whatever was flushed meanwhile.
	var more bool
	if c.from, more = s.Next(); !more {
		if c.sweep != nil {
			co.edit.sweptFrom = c.sweep.logFrom
		}
		co.finish(c)
	}
}

// failed follows a step that was undone: where something can be done about the error the step is tried again, and
// otherwise the compaction ends. It is called with edit held.
func (co *compactor) failed(c *compaction, unreadable *tree.Table, err error) (bool, error) {
	d := co.d
	switch {
	case errors.Is(err, errHole):
		c.mover.careful = true
		return true, nil
	case unreadable != nil && unreadable.Damaged.CompareAndSwap(false, true):
		d.logger.Error("a table is damaged: it is not compacted any more, and reading what it names fails", "error", err)
		co.damage.Store(&err)

		return true, nil
	case format.IsNoRoom(err) && co.smaller(c):
		return true, nil
	}

	// Nothing helps now. The goroutine tries again after a pause; a request learns of the error, and writers that wait for
	// room learn that none will come.
	c.did = true // it is to be tried again
	co.finish(c)
	co.endRequest(err)
	d.restoreReserve()
	co.nothing()

	return false, err
}

// smaller makes a compaction that found no room need less, and reports whether it could. It is called with edit held.
//
// The ladder: a smaller step; one victim instead of many; room that was kept for later; no victims at all.
func (co *compactor) smaller(c *compaction) bool {
	// The order is that of what it costs: the first rungs only delay, the last gives up what the compaction was for.
	d := co.d
	c.sweep = nil // what it has begun with is enough
	if less, ok := d.full().Shrink(c.limits); ok {
		c.limits = less
		return true
	}

	// One with little to move frees what the others need, later.
	if len(c.victims) > 1 {
		all := co.victims(c)
		clear(c.victims)
		if len(all) > 0 {
			least := policy.LeastToMove(all).ID
			c.victims[least] = true
			c.request.later(all, least)
		}

		return true
	}

	// The reserve is for those that delete. Until one of them has waited for room the class is ordinary, which has
	// nothing of it.
	may := class(co.removing.Load())
	if !co.reserveFor(c, may) {
		may = ordinary
	}
	if d.giveRoom(may) {
		return true
	}

	// What is merged without moving anything shows at least where there is garbage.
	moves := len(c.victims) > 0
	clear(c.victims)
	if c.request != nil {
		c.request.short = true
	}

	return moves
}

// reserveFor reports whether what a class may have of the reserve is enough for what a compaction moves: a segment that
// is emptied in part has taken room and gives none back. It is called with edit held.
func (co *compactor) reserveFor(c *compaction, may class) bool {
	d := co.d
	d.preparing.Lock()

	// The reserve is given up for deletes only if all victims can then be emptied whole.
	left := d.preparing.reserve.share(may)
	d.preparing.Unlock()

	for _, x := range co.victims(c) {
		left -= x.ToMove()
	}

	return left >= 0
}

// A compaction looks whether the database is closed after every lookEntries entries, and every lookBytes bytes of
// values moved: small ones come to their end also where it is never open for long.
const (
	lookEntries = 64 << 10
	lookBytes   = 16 << 20
)

// rewrite writes what a step makes of its tables.
func (co *compactor) rewrite(c *compaction, s *tree.Step, ver *tree.Version, out *tree.Writer) error {
	// The closure below is asked for each entry, so it looks at the channel only now and then.
	entries, look := 0, int64(lookBytes)
	err := s.Rewrite(out, tree.Control{
		Full: func() bool { return out.Written() >= c.limits.Written || c.mover.moved >= c.limits.Moved },
		Stopped: func() bool {
			if entries++; entries%lookEntries != 0 && c.mover.moved < look {
				return false
			}

			look = c.mover.moved + lookBytes

			select {
			case <-co.d.stop:
				return true
			default:
				return false
			}
		},
		Move: func(key []byte, e table.Entry) (uint64, error) { return c.mover.move(key, e) },
	})
	if err != nil {
		return err
	}

	// Values go on in the same segment with the next step. A sweep begins another one early: see takesIn. What the
	// tables name is durable before they are in a manifest: values are synced here, the tables by Close.
	moved := c.mover.settle
	if _, more := s.Next(); !more || c.sweep != nil && c.mover.at >= co.d.sizes.segment.Load()/2 {
		moved = c.mover.seal
	}
	if err := moved(); err != nil {
		return err
	}

	return out.Close()
}

// isUnreadable reports whether an error says that something stored cannot be read any more.
func isUnreadable(err error) bool {
	return errors.Is(err, holdfast.ErrCorrupt) || errors.Is(err, syscall.EIO)
}
