package db

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
)

// pass is a merge of neighbouring tiers into the oldest of them, which can also move values out of segments that
// are to be emptied (victims). It is done in steps. A step takes the next keys in order, rewrites them, and
// installs the result: it is complete by itself. So a pass needs room for one step in addition to what it reads,
// can be stopped after any step, and does not keep flushes waiting. Its fields are used under edit or by the one
// goroutine that merges.
//
// A sweep is a pass over all tiers that takes in what is newer, and the log's new segments, when a step of it begins.
// So small tiers are merged between its steps, and what is written during one sweep is given back during the next one,
// and not at its end.
type pass struct {
	oldest, newest   uint64          // ids of the tiers; all between them take part
	victims          map[uint32]bool // segments to be emptied; if there are any, all tiers take part
	sweep            bool            // see above
	logFrom, movedTo uint32          // a sweep empties also the log's segments from here on, and moved ones up to there
	stepped          time.Time       // when the last step of a sweep ended
	urgent           bool            // the log waits for room
	next             []byte          // keys before it are done
	to               []byte          // keys from it on take no part; empty: all do
	only             bool            // nothing else is merged than what names a victim
	limit            int64           // bytes of index that a step may write
	mostMoved        int64           // bytes of values that it may move
	mover            *mover
	did              bool        // a step has changed something
	compaction       *compaction // what it is for, nil mostly
	dead             bool        // see passedDead
}

// plan makes the next step of a pass. It is called with edit held.
func (rc *reclaimer) plan(p *pass) *tree.Step {
	if p.sweep {
		rc.widen(p)
	}
	return rc.d.view.Load().ver.Plan(tree.Merge{Oldest: p.oldest, Newest: p.newest, Victims: p.victims, From: p.next,
		To: p.to, Only: p.only, Small: rc.d.tables.Limit.Load() / 32})
}

// takesIn reports whether the next step of a sweep takes in what is newer: not while a segment is open whose begin
// frame says that its values are no newer than when it was begun.
func (p *pass) takesIn() bool { return p.sweep && p.mover.seg == nil }

// widen makes a sweep take in what has come since its last step, and chooses segments of moved values for the next one.
// It is called with edit held.
func (rc *reclaimer) widen(p *pass) {
	d := rc.d
	ver := d.view.Load().ver
	if p.takesIn() && len(ver.Tiers) > 0 {
		p.newest, p.mover.seq = max(p.newest, ver.Tiers[0].ID), d.from.Seq
		for _, s := range segmentsOf(ver) {
			if s.Kind == format.SegmentLog && s.ID >= p.logFrom && s.ID < d.from.Segment && !s.Damaged.Load() {
				p.victims[s.ID] = true
			}
		}
	}
	share, tables := ver.NewerFrom(p.next, p.limit)
	share *= rc.replaced
	live := ver.Live()
	for _, t := range tables {
		for _, u := range t.Info.Segments {
			s := segmentOf(ver, u.ID)
			if s.Kind != format.SegmentMoved || u.ID > p.movedTo || s.Damaged.Load() || p.victims[u.ID] {
				continue
			}
			left := float64(live[u.ID]) / float64(max(s.Payload.Load(), 1))
			if left*(1-share) < 1-sweepLeast {
				p.victims[u.ID] = true
			}
		}
	}
}

// mergeOnce does one step of a merge, if one is due, and reports whether it did. A step that fails is undone. One
// that found no room is tried again with less, as long as there is less; one that met damage leaves out what is
// damaged.
func (rc *reclaimer) mergeOnce() (bool, error) {
	d := rc.d
	if err := d.log.Err(); err != nil {
		return false, err // a step of the present pass may not have been undone
	}
	rc.countCuts()
	d.edit.Lock()
	p := rc.nextPass()
	if p == nil {
		rc.noMerge()
		d.edit.Unlock()
		return false, nil
	}
	s := rc.plan(p)
	if s.Idle() {
		rc.endPass(p)
		d.edit.Unlock()
		return true, nil
	}
	ver := d.view.Load().ver
	ver.Acquire()
	defer ver.Release()
	rc.step = s
	d.edit.Unlock()

	out := d.tables.NewWriter()
	p.mover.begin(ver)
	err := rc.rewrite(p, s, ver, out)
	var unreadable *tree.Table
	if isUnreadable(err) {
		unreadable = s.Unreadable(isUnreadable)
	}
	d.edit.Lock()
	defer d.edit.Unlock()
	rc.step = nil
	if err == nil {
		err = d.install(s.Tiers(d.view.Load().ver, out), d.from, nil, p.mover.commit())
	}
	switch {
	case err == nil:
		p.did = true
		for _, f := range out.Tables {
			if f.Unused() { // range deletes have covered all of it meanwhile
				f.Close()
				d.freeTable(f)
			}
		}
		if p.sweep {
			rc.timed(p, s)
		}
		var more bool
		if p.next, more = s.Next(); !more {
			if p.sweep {
				rc.sweptFrom = p.logFrom
			}
			rc.endPass(p)
		}
		return true, nil
	case format.IsFatal(err):
		return false, err // the files may be in the manifest
	}
	out.Abandon()
	p.mover.undo()
	switch {
	case errors.Is(err, errHole):
		p.mover.careful = true
		return true, nil
	case unreadable != nil && unreadable.Damaged.CompareAndSwap(false, true):
		d.logger.Error("an index file is damaged: it is not merged any more, and reading what it names fails", "error", err)
		rc.damage.Store(&err)
		return true, nil
	case format.IsNoRoom(err) && rc.smaller(p):
		return true, nil
	}
	p.did = true // it is to be tried again
	rc.endPass(p)
	rc.endCompaction(err)
	d.restoreReserve()
	rc.noMerge()
	return false, err
}

// leastStep is the least limit of a step, in bytes.
const leastStep = 64 << 10

// smaller makes a pass that found no room need less, and reports whether it could. It is called with edit held.
func (rc *reclaimer) smaller(p *pass) bool {
	d := rc.d
	least := min(leastStep, d.tables.Limit.Load())
	p.sweep = false // what it has begun with is enough
	if p.limit > least {
		p.limit = max(p.limit/8, least)
		p.mostMoved = p.limit
		return true
	}
	if len(p.victims) > 1 { // one with little to move frees what the others need, later
		all, _, _ := rc.candidates(d.view.Load().ver)
		all = slices.DeleteFunc(all, func(c candidate) bool { return !p.victims[c.seg.ID] })
		clear(p.victims)
		if len(all) > 0 {
			least := slices.MinFunc(all, func(a, b candidate) int { return cmp.Compare(a.used-a.garbage, b.used-b.garbage) })
			p.victims[least.seg.ID] = true
			p.compaction.later(all, least.seg.ID)
		}
		return true
	}
	if d.giveRoom(rc.deleting.Load() && rc.reserveFor(p)) {
		return true
	}
	moves := len(p.victims) > 0
	if p.compaction != nil {
		p.compaction.short = true
	}
	clear(p.victims) // what is merged without moving anything shows at least where there is garbage
	return moves
}

// reserveFor reports whether the reserve is enough for what a pass moves: a segment that is emptied in part has taken
// room and gives none back. It is called with edit held.
func (rc *reclaimer) reserveFor(p *pass) bool {
	d := rc.d
	d.preparing.Lock()
	left := d.reserve.size
	d.preparing.Unlock()
	all, _, _ := rc.candidates(d.view.Load().ver)
	for _, c := range all {
		if p.victims[c.seg.ID] {
			left -= c.used - c.garbage
		}
	}
	return left >= 0
}

// mergeUnstopped is how many entries, and mergeBytes how many bytes of values moved, a merge goes on for before it
// looks whether the database is closed: small merges come to their end also where it is never open for long.
const (
	mergeUnstopped = 64 << 10
	mergeBytes     = 16 << 20
)

// rewrite writes what a step makes of its tables.
func (rc *reclaimer) rewrite(p *pass, s *tree.Step, ver *tree.Version, out *tree.Writer) error {
	entries, look := 0, int64(mergeBytes)
	err := s.Rewrite(out, tree.Control{
		Full: func() bool { return out.Written() >= p.limit || p.mover.moved >= p.mostMoved },
		Stopped: func() bool {
			if entries++; entries%mergeUnstopped != 0 && p.mover.moved < look {
				return false
			}
			look = p.mover.moved + mergeBytes
			select {
			case <-rc.d.stop:
				return true
			default:
				return false
			}
		},
		Move: func(key []byte, e run.Entry) (uint64, error) { return p.mover.move(key, e) },
	})
	if err != nil {
		return err
	}
	moved := p.mover.settle
	if _, more := s.Next(); !more { // the pass has come to its end
		moved = p.mover.seal
	} else if p.sweep && p.mover.at >= rc.d.sizes.segment.Load()/2 { // see takesIn
		moved = p.mover.seal
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
