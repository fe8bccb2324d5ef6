package db

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// compactor gives back the space of values that were overwritten or deleted, and keeps the number of tiers small. It
// runs compactions (compaction.go), which package policy chooses; brings deletes to where they free something
// (tidy.go); and slows writers down while there is more garbage than it should leave (stall.go).
//
// Invariants, while edit is not held by others:
//   - Compactions do not overlap: each is over newer tiers than all begun before it, and only the last goes on. A sweep
//     takes in what is newer when it is the last; between its steps others may have merged all but the oldest tier, and
//     that too for the request of a range, while the sweep has no segment open.
//   - step is the step that the compacting goroutine is doing, of the last compaction, and nil between steps. Whatever
//     changes the version meanwhile adds only newer tiers and range deletes, those to the step too, and keeps the
//     segments that the step reads (step.Reads).
//   - A version in fruitless is not looked at again: a compaction of it had nothing to do.
type compactor struct {
	d *DB

	// edit is used with DB.edit held.
	edit struct {
		step      *tree.Step
		running   []*compaction
		replaced  float64                // the share of what is flushed that replaces what was there before, lately
		speed     float64                // keys a second that sweeps come to, with what goes on between their steps
		sweptFrom uint32                 // the log's segments before it were there when the last sweep began
		resumed   [policy.LikeSizes]bool // by reason: one was begun since opening, see resume
		fruitless [2]*tree.Version       // the second one is of compactions begun while the log waited for room
	}

	// mu is used with DB.mu held.
	mu struct {
		installs  uint64 // changes of the version
		idle      uint64 // times that there was nothing to compact, though a writer waited for room
		busy      bool   // there is something to compact, and it can be
		tidyArmed bool   // tidy will run
		request   *request
		deadKeys  *holdfast.Range // a stretch that passedDead wants compacted, nil mostly
	}

	passedOver atomic.Int64                 // deleted keys of tables, see passedDead
	waiting    atomic.Int32                 // writers that wait for room on the disk
	removing   atomic.Int32                 // the class of those that waited for room last, or have got the last there was
	tight      atomic.Bool                  // there was no room for the last segment, except for deletes
	damage     atomic.Pointer[error]        // the last damage that a compaction met
	stall      atomic.Pointer[policy.Stall] // how far writers are slowed down
	pacedUntil atomic.Int64                 // nanoseconds since watch.began: when the next slowed-down write may begin
}

// next returns the compaction to go on with: the newest begun, or a new one if it is due, nil if nothing is to be done.
// Compactions of newer tiers do not wait for one of older tiers that is under way. It is called with edit held.
func (co *compactor) next() *compaction {
	d := co.d
	last := co.last()

	// At most the last compaction is given up: those below it are of older tiers, and go on when they are the last again.
	if last != nil && co.superseded(last) {
		co.finish(last)
		last = co.last()
	}

	// A new one takes tiers that are newer than those of the last.
	floor := uint64(0)
	if last != nil {
		if floor = last.newest; last.takesIn() {
			floor = last.oldest
		}
	}

	ver := d.view.Load().ver

	// A request for a range may go before the next step of a sweep. Otherwise something new begins only over newer tiers.
	c := (*compaction)(nil)
	if last != nil && co.interrupts(last) {
		c = co.forRequest(ver)
	}
	if c == nil {
		c = co.pick(ver, floor)
	}
	if c != nil {
		co.begin(c)
		last = c
	}

	d.mu.Lock()

	// Writers that had to stop go on if there is nothing to wait for.
	co.mu.busy = last != nil
	d.mu.Unlock()

	return last
}

// last is the compaction begun last, nil if there is none. It is called with edit held.
func (co *compactor) last() *compaction {
	if n := len(co.edit.running); n > 0 {
		return co.edit.running[n-1]
	}

	return nil
}

// pick returns the compaction that is due of the tiers newer than floor, nil if none is. It is called with edit held.
func (co *compactor) pick(ver *tree.Version, floor uint64) *compaction {
	// With a compaction under way neither of these two can be done: they take all tiers.
	if floor == 0 {
		if c := co.forRequest(ver); c != nil {
			return c
		}
		if c := co.forDeadKeys(ver); c != nil {
			return c
		}
	}

	// A version may have nothing to do for an idle log and something for one that waits for room, so there are two
	// marks.
	urgent := co.urgent()
	if ver == co.edit.fruitless[index(urgent)] {
		return nil
	}
	picked, due := policy.Pick(co.state(ver, floor))
	if !due {
		return nil
	}

	c := &compaction{reason: picked.Reason, oldest: picked.Oldest, newest: picked.Newest, victims: set(picked.Victims),
		urgent: urgent && picked.All()}
	if picked.All() && !urgent {
		co.resume(c, ver)
	}

	return c
}

// resume has the first compaction of everything go on where one was cut short when the database was last open: one that
// always began with the first key would never come to its end in a database that is often closed, or killed, and no
// segment would ever be given back. It is called with edit held.
func (co *compactor) resume(c *compaction, ver *tree.Version) {
	if !co.edit.resumed[c.reason] {
		co.edit.resumed[c.reason] = true
		c.from = ver.AfterLastWritten()
		c.did = c.from != nil // if nothing is to be done from there on, there may be before
	}
}

// index is 1 for what is due while the log waits for room.
func index(urgent bool) int {
	if urgent {
		return 1
	}

	return 0
}

// set returns the ids as a set. An empty one is not nil: a sweep adds to it.
func set(ids []uint32) map[uint32]bool {
	m := map[uint32]bool{}
	for _, id := range ids {
		m[id] = true
	}

	return m
}

// begin begins a compaction. It is called with edit held.
func (co *compactor) begin(c *compaction) {
	d := co.d
	c.limits = d.full().StepLimits(c.reason)
	c.mover = &mover{d: d, seq: d.edit.from.Seq}

	// A sweep takes what lies in the log and what was moved before, but not what it moves itself: the numbers of its own
	// segments are higher than all that were given out before.
	if c.reason == policy.Sweep {
		c.sweep = &sweep{logFrom: d.edit.from.Segment, stepped: time.Now()}
		c.mover.old = cmp.Or(co.edit.sweptFrom, math.MaxUint32)
		d.mu.Lock()
		c.sweep.movedTo = uint32(d.mu.nextFile)
		d.mu.Unlock()
	}
	co.edit.running = append(co.edit.running, c)
}

// finish ends the newest compaction. It is called with edit held.
func (co *compactor) finish(c *compaction) {
	co.edit.running = co.edit.running[:len(co.edit.running)-1]
	c.mover.end()

	// A version in which it found nothing to do is not looked at again, or the goroutine would go round for ever.
	if !c.did && c.request == nil && !c.deadKeys {
		co.edit.fruitless[index(c.urgent)] = co.d.view.Load().ver
	}
}

// nothing notes that nothing can be compacted now, for writers that wait for it. It is called with edit held.
func (co *compactor) nothing() {
	d := co.d
	d.mu.Lock()
	defer d.mu.Unlock()
	co.mu.busy = false

	// A writer that waits in awaitRoom counts these: nothing to compact means that it is refused.
	if co.waiting.Load() > 0 {
		co.mu.idle++
	}
	d.mu.changed.Broadcast()
}

// countCuts counts what is left of the tables that range deletes have cut, so that what they deleted is known to be
// garbage. While a compaction is under way it does nothing: its steps cut what they have read.
func (co *compactor) countCuts() {
	d := co.d

	// The view is taken together with the look at what is running, so that no compaction begins in between unseen.
	d.edit.Lock()
	v := d.latest().view
	under := len(co.edit.running) > 0
	d.edit.Unlock()
	defer v.release()
	if !under {
		// The view keeps the tables open while they are read without a lock.
		v.ver.CountCuts()
	}
}

// segmentOf returns a version's segment of that id, nil if it has none.
func segmentOf(v *tree.Version, id uint32) *wal.Segment {
	s, _ := v.Segment(id).(*wal.Segment)
	return s
}

// segmentsOf returns a version's segments, by id.
func segmentsOf(v *tree.Version) (all []*wal.Segment) {
	for _, s := range v.Segments() {
		all = append(all, s.(*wal.Segment))
	}

	return all
}

// victims returns the candidates that a compaction empties. It is called with edit held.
func (co *compactor) victims(c *compaction) (all []policy.Candidate) {
	candidates, _, _ := policy.Candidates(co.d.segmentNumbers(co.d.view.Load().ver))
	for _, x := range candidates {
		if c.victims[x.ID] {
			all = append(all, x)
		}
	}

	return all
}

// rotten notes that a value of a segment cannot be read: the segment is not emptied, and is kept as long as the value
// is named.
func (co *compactor) rotten(s *wal.Segment, key []byte, err error) {
	d := co.d

	// The first value of a segment is reported; the others would fill the log of a program with the same line.
	if s != nil && !s.Damaged.CompareAndSwap(false, true) {
		return
	}
	co.damage.Store(&err)
	d.logger.Error("a value is damaged: it stays where it is, and reading it fails", "key", string(key), "error", err)
}

// awaitRoom waits until a compaction may have made room for the log, and returns false if none can. It is called with
// mu held, and releases and takes it again.
func (co *compactor) awaitRoom() bool {
	d := co.d
	co.waiting.Add(1)
	defer co.waiting.Add(-1)
	did := false
	if d.manual {
		d.unlocked(func() {
			ok, err := co.step()
			did = d.worked(isCompacting, err) == nil && ok
		})
	} else {
		// A broadcast may be for something else. The two counters tell whether a compaction has changed something, or found
		// nothing to do, since this writer began to wait.
		installs, idle := co.mu.installs, co.mu.idle
		d.wake(d.compactions)

		for co.mu.installs == installs && co.mu.idle == idle && d.log.Err() == nil {
			d.mu.changed.Wait()
		}
		did = co.mu.installs != installs
	}

	// A version that was replaced gives its files up, but another goroutine may not have removed them yet: the room is
	// there only once they are gone.
	d.unlocked(func() { d.removeObsolete() })

	return did
}
