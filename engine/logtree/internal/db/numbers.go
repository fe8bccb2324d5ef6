package db

import (
	"math"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// What package policy is told: the numbers of a moment.

// full is how large files and memtables become.
func (d *DB) full() policy.Sizes {
	return policy.Sizes{Memtable: d.memtableLimit, Segment: d.sizes.segment.Load(), Table: d.tables.Limit.Load()}
}

// tiersOf are the numbers of tiers, but for whether they are worn.
func tiersOf(tiers []tree.Tier) []policy.Tier {
	all := make([]policy.Tier, len(tiers))
	for i := range tiers {
		n := tiers[i].Sums()
		all[i] = policy.Tier{ID: tiers[i].ID, FileBytes: n.FileBytes, Values: n.Values, Entries: n.Entries,
			Tombstones: n.Tombstones}
	}

	return all
}

// segmentNumbers are the numbers of the segments that a version's tables name. It is called with edit held.
func (d *DB) segmentNumbers(ver *tree.Version) []policy.Segment {
	var all []policy.Segment
	for x, live := range ver.Usage() {
		s := x.(*wal.Segment)
		moved, flushed := s.Kind == format.SegmentMoved, s.Flags&format.FlagFlushed != 0

		// A segment of the log is given up only when the position of replay has left it, whatever tables name.
		all = append(all, policy.Segment{ID: s.ID, Moved: moved, Flushed: flushed,
			InLog: !moved && s.ID >= d.edit.from.Segment, Open: s.Open.Load(), Damaged: s.Damaged.Load(),
			Used: s.Used.Load(), Payload: s.Payload.Load(), Live: live})
	}

	return all
}

// state is what a compaction is chosen by; floor is that of [policy.State]. It is called with edit held.
func (co *compactor) state(ver *tree.Version, floor uint64) *policy.State {
	s := &policy.State{Sizes: co.d.full(), Tiers: tiersOf(ver.Tiers), Floor: floor, Urgent: co.urgent(),
		Replaced: co.edit.replaced}
	for i := range s.Tiers {
		s.Tiers[i].Worn = ver.Tiers[i].Worn()
	}
	if floor == 0 {
		s.Segments, s.Room = co.d.segmentNumbers(ver), co.roomToMove(ver, s.Urgent)
	}

	return s
}

// urgent reports whether the log waits for room on the disk.
func (co *compactor) urgent() bool { return co.waiting.Load() > 0 || co.tight.Load() }

// needed is about how many bytes a compaction of everything needs for its tables.
func (d *DB) needed(ver *tree.Version) int64 {
	load := policy.Load{Sizes: d.full(), Tiers: tiersOf(ver.Tiers)}
	return load.NeededRoom()
}

// roomToMove is how many bytes of values can be moved. Where the log waits for room that is all there is: little is
// moved at a time then. It is called with edit held.
func (co *compactor) roomToMove(ver *tree.Version, urgent bool) int64 {
	d := co.d
	needed := int64(0)
	if !urgent {
		needed = d.needed(ver)
	}
	free := d.files.FS.Free(d.files.Dir)
	d.preparing.Lock()

	// The sum is cut at the greatest number: a file system that does not know its free room says that.
	free += min(d.preparing.reserve.share(class(co.removing.Load())), math.MaxInt64-free)
	d.preparing.Unlock()
	return d.full().RoomToMove(free, needed)
}

// logBytes is how long the segments are, all together. It is called with mu held, or by Open.
func (d *DB) logBytes() (n int64) {
	for _, s := range d.mu.segs {
		n += s.Used.Load()
	}

	return n
}

// nextSegmentSize is that of the log's next segment. It is called with mu held.
func (d *DB) nextSegmentSize() int64 { return d.full().NextSegment(d.mu.lastSize, d.logBytes()) }

// leave is how much room a new segment leaves on the disk; last says that it may take all there is. It is called with
// mu held.
func (d *DB) leave(last bool) int64 {
	if last {
		return 0
	}

	largest := int64(0)
	for _, s := range d.mu.segs {
		largest = max(largest, s.Used.Load())
	}

	return d.full().LeaveForOthers(largest, d.needed(d.view.Load().ver))
}
