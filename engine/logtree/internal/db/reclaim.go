package db

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// When to merge.
const (
	// minMerge is how many tiers of like size are merged; fewer would rewrite too often.
	minMerge = 4
	// maxAbove is what newer tiers may hold, as a share of the oldest one's values, before they are
	// merged into it: garbage that no merge has met is at most that much.
	maxAbove = 0.2
	// maxGarbage is the share of the log that may be known garbage before segments are emptied, and leftGarbage
	// what is left then, if no more than maxMoved (a share of the log) has to be moved for that: a pass takes room
	// for what it moves until it is done. Less than minGarbage bytes are not worth the work.
	maxGarbage  = 0.2
	leftGarbage = 0.1
	minGarbage  = 1 << 20
	maxMoved    = 0.1
	// Keys and values of fewer than smallValue bytes are kept in the order of the keys: where sweepGarbage of the log is
	// taken to be garbage, a sweep moves all values of the log that are small, and those of moved segments of which
	// sweepLeast is. Segments of moved values are of a stretch of keys and go away one by one when it has passed them; the
	// log's segments have keys from anywhere and stay to its end, so that it takes not more than sweepMoved of them.
	smallValue   = 512
	sweepGarbage = 0.15
	sweepLeast   = 0.1
	sweepMoved   = 0.3
	// maxSmallSegments is the number of small segments, over one for each that is not small, before their values are moved
	// together: each time that a database is opened and little is written, it gets one.
	maxSmallSegments = 32
	smallSegment     = 1.0 / 16 // of a segment's usual size is small
	// manifestsAtOpen is how many manifests the cuts that an opened database has are taken to have cost already: a
	// program that never runs for long would keep them for ever otherwise.
	manifestsAtOpen = 16
)

// reclaimer gives back the space of values that were overwritten or deleted. It chooses which tiers to merge and which
// segments to empty (passes, see merge.go), brings deletes to where they free something (tidy), and slows writers down
// while there is more garbage than it should leave (debt).
//
// Invariants, while edit is not held by others:
//   - passes do not overlap: each is over newer tiers than all begun before it, and only the last goes on. A sweep
//     takes in what is newer when it is the last; between its steps others may have merged all but the oldest tier, and
//     that too for the compaction of a range, while the sweep has no segment open.
//   - step is the step that the merging goroutine is doing, of the last of passes, and nil between steps. Whatever
//     changes the version meanwhile adds only newer tiers and range deletes, those to the step too, and keeps the
//     segments that the step reads (step.Reads).
//   - a version in fruitless is not looked at again: a pass over it had nothing to do.
type reclaimer struct {
	d *DB

	// Under DB.edit.
	step      *tree.Step
	passes    []*pass
	replaced  float64          // the share of what is flushed that replaces what was there before, lately
	speed     float64          // keys a second that sweeps come to, with what goes on between their steps
	sweptFrom uint32           // the log's segments before it were there when the last sweep began
	fruitless [2]*tree.Version // the second one is of passes made while the log waited for room

	// Under DB.mu.
	needed     int64  // about how many bytes a merge of everything needs for its index
	installs   uint64 // changes of the version
	idleMerges uint64 // times that no merge was to be done, though a writer waited for room
	busy       bool   // merges have something to do, and can
	tidyArmed  bool   // tidy will run
	compaction *compaction
	dead       *holdfast.Range // where passedDead wants a merge, nil mostly

	walkedOver atomic.Int64 // see passedDead

	waiting    atomic.Int32          // writers that wait for room on the disk
	deleting   atomic.Bool           // deletes wait for room, or have got the last there was
	tight      atomic.Bool           // there was no room for the last segment, except for deletes
	damage     atomic.Pointer[error] // the last damage that a merge met
	debt       atomic.Pointer[debt]
	pacedUntil atomic.Int64 // nanoseconds since watch.began: when the next write that is slowed down may begin
}

// nextPass returns the pass to go on with: the newest begun, or a new one if it is due, nil if nothing is to be done.
// Passes over newer tiers do not wait for one over older tiers that is under way. It is called with edit held.
func (rc *reclaimer) nextPass() *pass {
	d := rc.d
	ver := d.view.Load().ver
	var under *pass
	floor := uint64(0)
	if n := len(rc.passes); n > 0 && rc.superseded(rc.passes[n-1]) {
		rc.endPass(rc.passes[n-1])
	}
	if n := len(rc.passes); n > 0 {
		under = rc.passes[n-1]
		if floor = under.newest; under.takesIn() {
			floor = under.oldest
		}
	}
	p := (*pass)(nil)
	if under != nil && rc.interrupts(under) {
		p = rc.pickCompaction(ver)
	}
	if p == nil {
		p = rc.pick(ver, floor)
	}
	if p != nil {
		p.limit, p.mostMoved = d.tables.Limit.Load(), d.tables.Limit.Load()
		p.mover = &mover{d: d, seq: d.from.Seq}
		if p.sweep {
			p.mostMoved = max(p.limit, d.sizes.segment.Load()*3/4)
			p.logFrom, p.stepped = d.from.Segment, time.Now()
			p.mover.old = cmp.Or(rc.sweptFrom, math.MaxUint32)
			d.mu.Lock()
			p.movedTo = uint32(d.nextFile)
			d.mu.Unlock()
		}
		rc.passes = append(rc.passes, p)
		under = p
	}
	d.mu.Lock()
	rc.busy = under != nil
	d.mu.Unlock()
	return under
}

// noMerge notes that no merge can be done now, for writers that wait for one. It is called with edit held.
func (rc *reclaimer) noMerge() {
	d := rc.d
	d.mu.Lock()
	defer d.mu.Unlock()
	rc.busy = false
	if rc.waiting.Load() > 0 {
		rc.idleMerges++
	}
	d.changed.Broadcast()
}

// endPass ends the newest pass. It is called with edit held.
func (rc *reclaimer) endPass(p *pass) {
	d := rc.d
	rc.passes = rc.passes[:len(rc.passes)-1]
	p.mover.end()
	if !p.did && p.compaction == nil && !p.dead {
		rc.fruitless[choose(p.urgent)] = d.view.Load().ver
	}
}

// pick decides what to merge next among the tiers newer than floor, nil if nothing. It is called with edit held.
func (rc *reclaimer) pick(ver *tree.Version, floor uint64) *pass {
	n := 0
	for n < len(ver.Tiers) && ver.Tiers[n].ID > floor {
		n++
	}
	if floor == 0 {
		if p := rc.pickCompaction(ver); p != nil {
			return p
		}
		if p := rc.pickDead(ver); p != nil {
			return p
		}
	}
	urgent := rc.waiting.Load() > 0 || rc.tight.Load()
	if n == 0 || ver == rc.fruitless[choose(urgent)] {
		return nil
	}
	all := func(victims map[uint32]bool) *pass {
		return &pass{oldest: ver.Tiers[n-1].ID, newest: ver.Tiers[0].ID, victims: victims, urgent: urgent}
	}
	if floor == 0 && urgent && n > 1 {
		return all(nil) // that takes the least room, and shows where there is garbage
	}
	if floor == 0 {
		if !urgent {
			if victims, due := rc.sweep(ver); due {
				p := all(victims)
				p.sweep = true
				return p
			}
		}
		victims := rc.victims(ver, urgent)
		if len(victims) > 0 || n > 1 && rc.above(ver) {
			return all(victims)
		}
	}
	sum, k := ver.Tiers[0].Bytes(), 1
	for k < n && ver.Tiers[k].Bytes() <= 2*sum {
		sum += ver.Tiers[k].Bytes()
		k++
	}
	if k >= minMerge {
		return &pass{oldest: ver.Tiers[k-1].ID, newest: ver.Tiers[0].ID}
	}
	if id, worn := ver.Worn(floor); worn && !urgent {
		return &pass{oldest: id, newest: id}
	}
	return nil
}

// choose is the index of what differs when the log waits for room.
func choose(urgent bool) int {
	if urgent {
		return 1
	}
	return 0
}

// newer returns how much newer tiers hold compared with the oldest one, and how many bytes a key and its value usually
// have together.
func (rc *reclaimer) newer(ver *tree.Version) (share float64, usual int64) {
	if len(ver.Tiers) == 0 {
		return 0, 0
	}
	oldest := len(ver.Tiers) - 1
	below, entries := ver.Tiers[oldest].Values()
	// What a tombstone deletes is garbage too, of the usual size.
	usual = below / max(entries, 1)
	newer := int64(0)
	for i := range ver.Tiers[:oldest] {
		values, _ := ver.Tiers[i].Values()
		newer += values + usual*ver.Tiers[i].Tombstones()
	}
	return float64(newer) / float64(max(below, 1)), usual
}

// above reports whether newer tiers hold too much compared with the oldest one.
func (rc *reclaimer) above(ver *tree.Version) bool {
	share, _ := rc.newer(ver)
	return share > maxAbove
}

// sampled notes what a flush has found out: for so many of its keys filters say whether they were there before. It is
// called with edit held.
func (rc *reclaimer) sampled(keys, replaced int64) {
	const weight = 0.2 // of one flush
	if keys > 0 {
		rc.replaced += weight * (float64(replaced)/float64(keys) - rc.replaced)
	}
}

// countCuts counts what is left of the tables that range deletes have cut, so that what they deleted is known to be
// garbage. While a pass is under way it does nothing: its steps cut what they have read.
func (rc *reclaimer) countCuts() {
	d := rc.d
	d.edit.Lock()
	v := d.latest().view
	under := len(rc.passes) > 0
	d.edit.Unlock()
	defer v.release()
	if !under {
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

// candidate is a segment that could be emptied.
type candidate struct {
	seg           *wal.Segment
	used, garbage int64 // bytes of the file
}

// candidates returns the segments that the log has left behind, those with the greatest share of known garbage first,
// and the bytes and the garbage of all.
func (rc *reclaimer) candidates(ver *tree.Version) (all []candidate, total, garbage int64) {
	d := rc.d
	live := ver.Live()
	for _, s := range segmentsOf(ver) {
		if s.ID >= d.from.Segment && s.Kind == format.SegmentLog || s.Open.Load() {
			continue // the log still needs it, or a merge writes to it
		}
		used, payload := s.Used.Load(), s.Payload.Load()
		c := candidate{s, used, 0}
		switch dead := payload - live[s.ID]; {
		case live[s.ID] == 0:
			c.garbage = used
		case payload > 0 && dead > 0:
			c.garbage = int64(float64(used) * float64(dead) / float64(payload))
		}
		total += used
		garbage += c.garbage
		if !s.Damaged.Load() {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(float64(b.garbage)/float64(b.used), float64(a.garbage)/float64(a.used)),
			cmp.Compare(a.seg.ID, b.seg.ID))
	})
	return all, total, garbage
}

// victims chooses segments to be emptied: the small ones if there are many; else none while the log holds little known
// garbage, otherwise the emptiest ones. Where there is no room for the log to go on, little is enough.
func (rc *reclaimer) victims(ver *tree.Version, urgent bool) map[uint32]bool {
	d := rc.d
	all, total, garbage := rc.candidates(ver)
	var smallOnes []candidate
	for _, c := range all {
		if float64(c.used) < smallSegment*float64(d.sizes.segment.Load()) {
			smallOnes = append(smallOnes, c)
		}
	}
	if 2*len(smallOnes)-len(segmentsOf(ver)) > maxSmallSegments {
		victims, sum := map[uint32]bool{}, int64(0)
		for _, c := range smallOnes {
			if sum += c.used; sum > d.sizes.segment.Load() {
				break
			}
			victims[c.seg.ID] = true
		}
		return victims
	}
	least := int64(10) // a share of a segment: less garbage is not worth moving the rest
	if urgent {
		least = 20
	} else if float64(garbage) < maxGarbage*float64(total) || garbage < min(minGarbage, 2*d.sizes.segment.Load()) {
		return nil
	}
	victims := map[uint32]bool{}
	left, moved, most := total, int64(0), max(int64(maxMoved*float64(total)), d.sizes.segment.Load())
	if urgent {
		most = d.tableLimit / 4 // of what segments leave; see leave
	}
	room := rc.roomToMove()
	for _, c := range all {
		if !urgent && float64(garbage) < leftGarbage*float64(left) || c.garbage*least < c.used {
			break
		}
		live := c.used - c.garbage
		if moved+live > room {
			continue // one that is emptied in part has taken room and gives none back
		}
		if moved += live; len(victims) > 0 && moved > most {
			break
		}
		victims[c.seg.ID] = true
		garbage -= c.garbage
		left -= c.garbage
	}
	return victims
}

// sweep reports whether a sweep is due: values are small, and there is much garbage. What newer tiers hold is taken to
// replace as much as it did lately. It returns the log's segments that are emptied, the worst first where they
// are too many; widen chooses the others.
func (rc *reclaimer) sweep(ver *tree.Version) (victims map[uint32]bool, due bool) {
	d := rc.d
	share, usual := rc.newer(ver)
	if usual == 0 || usual >= smallValue {
		return nil, false
	}
	all, _, _ := rc.candidates(ver)
	total, garbage := int64(0), int64(0) // without what is damaged
	for _, c := range all {
		total, garbage = total+c.used, garbage+c.garbage
	}
	below, _ := ver.Tiers[len(ver.Tiers)-1].Values()
	expected := float64(garbage) + share*rc.replaced*float64(below)
	room := rc.roomToMove()
	if expected < sweepGarbage*float64(total) || expected < float64(min(minGarbage, 2*d.sizes.segment.Load())) ||
		room < d.sizes.segment.Load() {
		return nil, false
	}
	victims = map[uint32]bool{}
	moved, most := int64(0), min(room, max(int64(sweepMoved*float64(total)), d.sizes.segment.Load()))
	for _, c := range all {
		if live := c.used - c.garbage; c.seg.Kind == format.SegmentLog && moved+live <= most {
			moved += live
			victims[c.seg.ID] = true
		}
	}
	return victims, true
}

// roomToMove is how many bytes of values can be moved, with room for the index that is written with them. It is
// called with edit held.
func (rc *reclaimer) roomToMove() int64 {
	d := rc.d
	room := d.files.FS.Free(d.files.Dir)
	if rc.deleting.Load() {
		d.preparing.Lock()
		room += min(d.reserve.size, math.MaxInt64-room)
		d.preparing.Unlock()
	}
	return room - min(room, leastStep/2, d.tables.Limit.Load())
}

// rotten notes that a value of a segment cannot be read: the segment is not emptied, and is kept as long as the value
// is named.
func (rc *reclaimer) rotten(s *wal.Segment, key []byte, err error) {
	d := rc.d
	if s != nil && !s.Damaged.CompareAndSwap(false, true) {
		return
	}
	rc.damage.Store(&err)
	d.logger.Error("a value is damaged: it stays where it is, and reading it fails", "key", string(key), "error", err)
}

// debt says how far the log is above what reclaim is happy with. It is measured at each change of the version, and
// grows with the log.
type debt struct {
	base  uint64  // lsn from which on writers are slowed down
	half  uint64  // so many bytes further they write rate bytes a second, all of them together
	width uint64  // so many bytes further than base they stop until reclaim has caught up
	rate  float64 // twice as far half of that, half as far twice as much
}

// measureDebt measures it. What is alive is estimated by what the oldest tier names, and newer ones do not replace. It
// is called with edit and mu held.
func (rc *reclaimer) measureDebt(ver *tree.Version) {
	d := rc.d
	rc.needed = 2 * d.tables.Limit.Load()
	for i := range ver.Tiers[:max(len(ver.Tiers)-1, 0)] {
		rc.needed += ver.Tiers[i].Bytes()
	}
	var sealed, payload, live int64
	for _, s := range segmentsOf(ver) {
		if s.Kind == format.SegmentMoved || s.ID < d.from.Segment {
			sealed += s.Used.Load()
			payload += s.Payload.Load()
		}
	}
	newer, usual := rc.newer(ver)
	if n := len(ver.Tiers); n > 0 {
		live, _ = ver.Tiers[n-1].Values()
		live += int64((1 - rc.replaced) * newer * float64(live))
		live = int64(float64(live) * max(float64(sealed)/float64(max(payload, 1)), 1)) // with its frames
	}
	// The segments' own size, and what is not flushed yet, is no debt; where there are sweeps, as far as it is more than
	// is allowed anyway.
	slack := 2*d.sizes.segment.Load() + int64(maxImm+1)*d.tableLimit
	start, half, rate := startPacing, halfPacing, float64(pacing)
	if usual > 0 && usual < smallValue && rc.replaced > 0.05 {
		// A sweep should come to its end while sweepWrites of what is alive is written.
		start, half, slack = startSweeping, halfSweeping, slack-2*(d.sizes.segment.Load()-d.segmentSize())
		rate = max(sweepWrites*float64(usual)*cmp.Or(rc.speed, usualSpeed), leastRate)
		if n := len(rc.passes); n > 0 {
			live += rc.passes[0].mover.oldMoved // is given back when the sweep ends
		}
		slack -= min(slack, int64((start-1)*float64(live)))
	}
	allowed, width := int64(start*float64(live))+slack, int64((stopPacing-start)*float64(live))+slack
	rc.debt.Store(&debt{
		base:  uint64(max(int64(d.from.LSN)+allowed-sealed, 0)),
		half:  uint64(int64(half*float64(live)) + slack/2),
		width: uint64(width),
		rate:  rate,
	})
}

// A log of startPacing times what is alive is as much as reclaim is happy with; the longer it is, the slower writers
// are, and at stopPacing times they stop. Where it is halfPacing further they write pacing bytes a second, all of them
// together. Where there are sweeps it is less, and so many bytes as make sweepWrites of what is alive in the time of a
// sweep.
const (
	startPacing   = 1.28
	halfPacing    = 0.36
	pacing        = 64 << 20
	startSweeping = 1.15
	halfSweeping  = 0.13
	sweepWrites   = 0.25
	usualSpeed    = 1e6 // keys a second, until it is measured
	leastRate     = 4 << 20
	stopPacing    = 2.0
	leastPause    = 200 * time.Microsecond // shorter ones are saved up
)

// pace slows writers down while reclaim is behind, so that space stays bounded: all of them together get the rate that
// follows from the debt, and nothing if it has grown to its bound and reclaim is at work.
func (rc *reclaimer) pace(n int) {
	d := rc.d
	if d.manual {
		return
	}
	for stopped := false; ; stopped = true {
		debt, at := rc.debt.Load(), d.log.Appended()
		if debt == nil || at <= debt.base {
			return
		}
		if over := at - debt.base; over < debt.width {
			far := float64(over) / float64(max(debt.half, 1))
			rc.paceAt(float64(n) * far / debt.rate)
			return
		}
		d.mu.Lock()
		if !rc.busy || d.log.Err() != nil {
			d.mu.Unlock() // nothing that would come of waiting
			return
		}
		if !stopped {
			d.stalls.Add(1)
		}
		d.wake(d.merges)
		start := time.Now()
		d.changed.Wait()
		d.mu.Unlock()
		if d.watch.Long(start) {
			d.watch.Waited(start, "a merge: garbage has to be removed first")
		}
	}
}

// timed measures how fast sweeps are. It is called with edit held, after a step.
func (rc *reclaimer) timed(p *pass, s *tree.Step) {
	now := time.Now()
	took := now.Sub(p.stepped).Seconds()
	p.stepped = now
	if took <= 0 || s.Entries == 0 {
		return
	}
	const weight = 0.1 // of one step
	if speed := float64(s.Entries) / took; rc.speed == 0 {
		rc.speed = speed
	} else {
		rc.speed = 1 / ((1-weight)/rc.speed + weight/speed)
	}
}

// paceAt waits for the turn of a write that takes so many seconds at the present rate.
func (rc *reclaimer) paceAt(seconds float64) {
	d := rc.d
	now := int64(time.Since(d.watch.began))
	cost := int64(seconds * float64(time.Second))
	for {
		next := rc.pacedUntil.Load()
		at := max(next, now)
		if !rc.pacedUntil.CompareAndSwap(next, at+cost) {
			continue
		}
		if pause := time.Duration(at + cost - now); pause >= leastPause {
			d.stalls.Add(1)
			time.Sleep(pause)
		}
		return
	}
}

// tidyAfter is how long after a delete its space is looked at, if nothing else has brought it back.
const tidyAfter = time.Second

// armTidy makes tidy run in a while, and again as long as it has something to do. It is called with mu held, when
// something was deleted.
func (rc *reclaimer) armTidy() {
	d := rc.d
	if rc.tidyArmed || d.manual {
		return
	}
	rc.tidyArmed = true
	before := d.commits.Load()
	time.AfterFunc(tidyAfter, func() {
		if d.Life.Enter() != nil {
			return
		}
		defer d.Life.Leave()
		idle := d.commits.Load() == before
		did := rc.tidy(idle)
		d.edit.Lock()
		busy := len(rc.passes) > 0
		d.edit.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		rc.tidyArmed = false
		if did || busy || !idle || len(d.view.Load().imm) > 0 {
			rc.armTidy()
		}
	})
}

// tidy makes what was deleted give its space back though nothing else brings that about: it ends the memtable if
// deletes in it, once flushed, are worth it, and the log's segment if it is much larger than what is left, which an
// idle log does not need. It reports whether it did.
func (rc *reclaimer) tidy(idle bool) bool {
	d := rc.d
	v := d.latest().view
	defer v.release()
	t := v.mem
	d.mu.Lock()
	var disk int64
	for _, s := range d.segs {
		disk += s.Used.Load()
	}
	deletes, tail := t.deletes, int64(d.log.End().LSN-t.start.LSN)
	d.mu.Unlock()
	var gain, named int64 // of what the tables name: what the memtable deletes, and all
	ranges := t.rangeTombstones.Load().Ranges()
	for i := range v.ver.Tiers {
		bytes, entries := v.ver.Tiers[i].Values()
		named += bytes
		if i == len(v.ver.Tiers)-1 {
			gain += bytes / max(entries, 1) * deletes
		}
		for r := range ranges {
			gain += v.ver.Tiers[i].Covered(r.Lo, r.Hi)
		}
	}
	least, live := max(minGarbage, disk/8), tail
	if deletes > 0 && gain+tail >= least {
		live = t.live()
	}
	flush := gain+tail-live >= least && deletes > 0
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.view.Load().mem != t || len(v.imm) >= maxImm || d.log.Err() != nil {
		return false
	}
	left := max(named-gain, 0) + live
	old := d.log.Current()
	shrink := old != nil && (flush || idle && len(v.imm) == 0) && old.Size >= 4*max(left, minSegment)
	if !flush && !shrink {
		return false
	}
	if shrink {
		d.leaveSegment()
	}
	d.rotateTable()
	return true
}

// leaveSegment begins a small segment of the log, since one is freed only when the log has left it. It is called with
// mu held, before the memtable is ended.
func (d *DB) leaveSegment() {
	old := d.log.Current()
	d.lastSize = 0
	d.dropNext()
	tight := d.reclaim.tight.Load()
	err := d.rotateSegment(0, true)
	d.reclaim.tight.Store(tight) // that the segment is small says nothing of the disk
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
func (t *table) live() (n int64) {
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

// awaitRoom waits until a merge may have made room for the log, and returns false if none can. It is called with mu
// held, and releases and takes it again.
func (rc *reclaimer) awaitRoom() bool {
	d := rc.d
	rc.waiting.Add(1)
	defer rc.waiting.Add(-1)
	did := false
	if d.manual {
		d.unlocked(func() {
			ok, err := rc.mergeOnce()
			did = d.worked(isMerging, err) == nil && ok
		})
	} else {
		installs, idle := rc.installs, rc.idleMerges
		d.wake(d.merges)
		for rc.installs == installs && rc.idleMerges == idle && d.log.Err() == nil {
			d.changed.Wait()
		}
		did = rc.installs != installs
	}
	d.unlocked(func() { d.removeObsolete() })
	return did
}
