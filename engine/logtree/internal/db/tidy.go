package db

import (
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// tidyAfter is how long after a delete its space is looked at, if nothing else has brought it back.
const tidyAfter = time.Second

// armTidy makes tidy run in a while, and again as long as it has something to do. It is called with mu held, when
// something was deleted.
func (co *compactor) armTidy() {
	d := co.d
	if co.mu.tidyArmed || d.manual {
		return
	}
	co.mu.tidyArmed = true

	// Whether anything is committed in that time tells an idle log, whose segment may be given back, from a busy one.
	before := d.commits.Load()
	time.AfterFunc(tidyAfter, func() {
		// The timer may fire while the database is being closed, which waits for those who have entered.
		if d.Life.Enter() != nil {
			return
		}
		defer d.Life.Leave()
		idle := d.commits.Load() == before
		did := co.tidy(idle)

		d.edit.Lock()
		busy := len(co.edit.running) > 0

		// The two locks are taken one after the other: edit comes before mu, and nothing here needs both at once.
		d.edit.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		co.mu.tidyArmed = false
		if did || busy || !idle || len(d.view.Load().imm) > 0 {
			co.armTidy()
		}
	})
}

// tidy makes what was deleted give its space back though nothing else brings that about: it ends the memtable if
// deletes in it, once flushed, are worth it, and the log's segment if it is much larger than what is left, which an
// idle log does not need. It reports whether it did.
func (co *compactor) tidy(idle bool) bool {
	d := co.d
	v := d.latest().view
	defer v.release()

	mem := v.mem
	numbers := policy.Tidy{Tiers: tiersOf(v.ver.Tiers)}
	for r := range mem.rangeTombstones.Load().Ranges() {
		for i := range v.ver.Tiers {
			numbers.Covered += v.ver.Tiers[i].Covered(r.Lo, r.Hi)
		}
	}
	d.mu.Lock()
	numbers.Disk, numbers.Deletes, numbers.Tail = d.logBytes(), mem.deletes, int64(d.log.End().LSN-mem.start.LSN)
	d.mu.Unlock()

	// The memtable's live bytes are counted without a lock, and only where it may be worth it.
	live := numbers.Tail
	if numbers.Promising() {
		live = mem.live()
	}
	flush := numbers.Flush(live)

	d.mu.Lock()
	defer d.mu.Unlock()

	// The numbers are of a moment ago. If the memtable has been ended meanwhile, there is nothing to do.
	if d.view.Load().mem != mem || len(v.imm) >= policy.MaxFull || d.log.Err() != nil {
		return false
	}
	old := d.log.Current()
	shrink := old != nil && (flush || idle && len(v.imm) == 0) && numbers.Shrinks(old.Size, live)
	if !flush && !shrink {
		return false
	}
	if shrink {
		d.leaveSegment()
	}
	d.rotateMemtable()

	return true
}

// leaveSegment begins a small segment of the log, since one is freed only when the log has left it. It is called with
// mu held, before the memtable is ended.
func (d *DB) leaveSegment() {
	old := d.log.Current()

	// A size of 0 makes the next segment the smallest there is. The prepared one has the old size, so it is dropped.
	d.mu.lastSize = 0
	d.dropNext()
	tight, kept := d.compactor.tight.Load(), d.mu.kept
	err := d.rotateSegment(0, true)
	d.compactor.tight.Store(tight) // that the segment is small says nothing of the disk
	d.mu.kept = kept
	if err != nil {
		d.logger.Warn("cannot begin a new log segment to give back the old one", "error", err)
	} else if old == nil { // there is none but those that Open has read
	} else if err := old.File.Truncate(d.endOf(old)); err != nil { // what was reserved for it
		d.logger.Warn("cannot give back the room reserved for a log segment", "path", old.File.Name(), "error", err)
	}
}

// endOf is where the frames of a segment end that the log has just left. It is called with mu held.
func (d *DB) endOf(s *wal.Segment) int64 {
	return format.SegmentHeaderSize + int64(d.log.Current().Start-s.Start)
}

// live is how many bytes of log the table's newest versions take, without what its own range deletes cover.
func (t *memTable) live() (n int64) {
	ts := t.rangeTombstones.Load()
	it := t.index.Iter(1<<64 - 1)
	for ok := it.First(); ok; ok = it.Next() {
		v := it.Version()
		if v.Kind != holdfast.KindSet || ts.Covers(v.Key) > v.Seq {
			continue
		}
		n += int64(len(v.Key)) + 4
		if v.InLog {
			n += int64(v.Pointer.Len)
		} else {
			n += int64(len(v.Value))
		}
	}

	return n
}
