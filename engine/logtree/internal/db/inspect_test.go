package db

import (
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
)

// Layout is what a database consists of at one moment. Tests look through it, so that the fields can change.
type Layout struct {
	Tiers    []policy.Tier    // newest first
	Tables   []TableLayout    // each once
	Refs     int              // parts of tables that the manifest names
	Segments []policy.Segment // that tables name, by id
	Alive    []policy.Segment // all, by id; Live is not set

	Memtable struct{ Held, Weight int64 } // bytes of the present one in memory, and what counts
	Waiting  int                          // full memtables that wait to be flushed

	Log, Next SegmentLayout // the segment that is written to, and the one prepared to follow it

	Compacting []CompactionLayout // oldest first; the last one goes on
	Requested  bool               // Compact is under way

	OtherBytes int64 // written to other files than the log's
}

// TableLayout is a table.
type TableLayout struct {
	ID                uint64
	Smallest, Largest string
}

// SegmentLayout is a segment of the log; its ID is 0 where there is none.
type SegmentLayout struct {
	ID        uint32
	Name      string
	Size, End int64 // bytes of the file, and where the next frame goes
	Written   bool  // it is filled with zeros
}

// CompactionLayout is a compaction under way.
type CompactionLayout struct {
	Sweep bool
	From  string // keys before it are done
}

// Used is how many bytes the segments have that tables name.
func (l *Layout) Used() (n int64) {
	for _, s := range l.Segments {
		n += s.Used
	}
	return n
}

// InSweep reports whether a sweep is under way that has done some of its steps.
func (l *Layout) InSweep() bool {
	return len(l.Compacting) > 0 && l.Compacting[0].Sweep && l.Compacting[0].From != ""
}

// Inspect returns the layout of this moment. It takes edit and mu.
func (d *DB) Inspect() *Layout {
	d.edit.Lock()
	defer d.edit.Unlock()
	st := d.latest()
	v := st.view
	defer v.release()
	l := &Layout{Tiers: tiersOf(v.ver.Tiers), Segments: d.segmentNumbers(v.ver), Waiting: len(v.imm),
		OtherBytes: d.otherBytes.Load()}
	for _, t := range v.ver.Tables {
		l.Tables = append(l.Tables, TableLayout{t.ID, string(t.Info.Smallest), string(t.Info.Largest)})
	}
	for _, t := range v.ver.Tiers {
		l.Refs += len(t.Refs)
	}
	for _, c := range d.compactor.edit.running {
		l.Compacting = append(l.Compacting, CompactionLayout{c.sweep != nil, string(c.from)})
	}

	d.mu.Lock()
	defer d.mu.Unlock()
	l.Memtable.Held, l.Memtable.Weight = v.mem.image.Bytes(), v.mem.weight()
	l.Requested = d.compactor.mu.request != nil
	for _, id := range d.segmentIDs() {
		s := d.mu.segs[id]
		moved := s.Kind == format.SegmentMoved
		l.Alive = append(l.Alive, policy.Segment{ID: id, Moved: moved, InLog: !moved && id >= d.edit.from.Segment,
			Open: s.Open.Load(), Damaged: s.Damaged.Load(), Used: s.Used.Load(), Payload: s.Payload.Load()})
	}
	if s := d.log.Current(); s != nil {
		l.Log = SegmentLayout{s.ID, s.File.Name(), s.Size, d.log.End().Offset, s.Flags == format.FlagWritten}
	}
	if s := d.mu.next; s != nil {
		l.Next = SegmentLayout{s.ID, s.File.Name(), s.Size, 0, s.Flags == format.FlagWritten}
	}
	return l
}

// isAlive reports whether there is a segment of that id.
func (l *Layout) isAlive(id uint32) bool {
	return slices.ContainsFunc(l.Alive, func(s policy.Segment) bool { return s.ID == id })
}
