package db

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
)

// When to merge.
const (
	// minMerge is how many tiers of like size are merged; fewer would rewrite too often.
	minMerge = 4
	// maxAbove is what newer tiers may hold, as a share of the oldest one's values, before they are
	// merged into it: garbage that no merge has met is at most that much.
	maxAbove = 0.2
	// maxGarbage is the share of the log that may be known garbage before segments are emptied, and leftGarbage what
	// is left then, if no more than maxMoved (a share of the log) has to be moved for that: what a pass moves is
	// there beside what it replaces until the pass is done. Less than minGarbage bytes are not worth the work.
	maxGarbage  = 0.2
	leftGarbage = 0.1
	minGarbage  = 1 << 20
	maxMoved    = 0.1
	// maxSmall is the number of small runs in one tier before neighbours are joined.
	maxSmall = 64
	// maxScraps is the number of small segments, besides one for each that is not small, before their values are moved
	// together: each time that a database is opened and little is written, it gets one.
	maxScraps = 32
	scrap     = 1.0 / 16 // of a segment's usual size is small
)

// nextPass returns the pass to go on with: the newest begun, or a new one if it is due, nil if nothing is to be done.
// Passes over newer tiers do not wait for one over older tiers that is under way. It is called with edit held.
func (d *DB) nextPass() *pass {
	ver := d.view.Load().ver
	var under *pass
	floor := uint64(0)
	if n := len(d.passes); n > 0 {
		under = d.passes[n-1]
		floor = under.newest
	}
	if p := d.pick(ver, floor); p != nil {
		p.limit = d.runLimit
		p.mover = &mover{d: d, seq: d.from.seq}
		d.passes = append(d.passes, p)
		under = p
	}
	d.mu.Lock()
	d.reclaiming = under != nil
	d.mu.Unlock()
	return under
}

// noMerge notes that no merge can be done now, for writers that wait for one. It is called with edit held.
func (d *DB) noMerge() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reclaiming = false
	if d.wanting.Load() > 0 {
		d.idleMerges++
	}
	d.changed.Broadcast()
}

// endPass ends the newest pass. It is called with edit held.
func (d *DB) endPass(p *pass) {
	d.passes = d.passes[:len(d.passes)-1]
	p.mover.end()
	if !p.did {
		d.fruitless[choose(p.urgent)] = d.view.Load().ver
	}
}

// pick decides what to merge next among the tiers newer than floor, nil if nothing. It is called with edit held.
func (d *DB) pick(ver *version, floor uint64) *pass {
	n := 0
	for n < len(ver.tiers) && ver.tiers[n].id > floor {
		n++
	}
	urgent := d.wanting.Load() > 0 || d.tight.Load()
	if n == 0 || ver == d.fruitless[choose(urgent)] {
		return nil
	}
	all := func(victims map[uint32]bool, join bool) *pass {
		return &pass{oldest: ver.tiers[n-1].id, newest: ver.tiers[0].id, victims: victims, join: join, urgent: urgent}
	}
	if floor == 0 && urgent && n > 1 {
		return all(nil, false) // that takes the least room, and shows where there is garbage
	}
	if floor == 0 {
		victims := d.victims(ver, urgent)
		if len(victims) > 0 || n > 1 && d.above(ver) {
			return all(victims, false)
		}
	}
	sum, k := ver.tiers[0].bytes(), 1
	for k < n && ver.tiers[k].bytes() <= 2*sum {
		sum += ver.tiers[k].bytes()
		k++
	}
	if k >= minMerge {
		return &pass{oldest: ver.tiers[k-1].id, newest: ver.tiers[0].id}
	}
	if floor > 0 {
		return nil
	}
	for i := range ver.tiers {
		small, joined := 0, 0
		for j := range ver.tiers[i].refs {
			if !d.small(&ver.tiers[i].refs[j]) {
				joined = 0
				continue
			}
			small++
			if joined++; small > maxSmall && joined >= minMerge {
				return all(nil, true)
			}
		}
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

// small reports whether a run is so small that it had better be joined with its neighbours.
func (d *DB) small(r *ref) bool { return r.file.info.FileBytes < d.runLimit/32 }

// above reports whether newer tiers hold too much beside the oldest one.
func (d *DB) above(ver *version) bool {
	oldest := len(ver.tiers) - 1
	below, entries := ver.tiers[oldest].values()
	// What a tombstone deletes is garbage too, of the usual size.
	usual := below / max(entries, 1)
	newer := int64(0)
	for i := range ver.tiers[:oldest] {
		values, _ := ver.tiers[i].values()
		newer += values + usual*ver.tiers[i].tombstones()
	}
	return float64(newer) > maxAbove*float64(below)
}

// values returns how many bytes of keys and values the tier names, and in how many entries.
func (t *tier) values() (bytes, entries int64) {
	for use := range liveIn(t.refs) {
		bytes += use.Bytes
		entries += use.Entries
	}
	return bytes, entries
}

func (t *tier) tombstones() (n int64) {
	seen := map[*runFile]bool{}
	for i := range t.refs {
		if f := t.refs[i].file; !seen[f] {
			seen[f] = true
			n += f.info.Tombstones
		}
	}
	return n
}

// liveIn yields what the refs name in segments. A ref that was cut and is not counted yet stands for its whole run.
func liveIn(refs []ref) func(yield func(run.SegmentUse) bool) {
	return func(yield func(run.SegmentUse) bool) {
		seen := map[*runFile]bool{}
		for i := range refs {
			r := &refs[i]
			uses := r.file.info.Segments
			if r.cut != nil {
				if counted := r.cut.Load(); counted != nil {
					uses = *counted
				} else if seen[r.file] {
					continue
				}
				seen[r.file] = true
			}
			for _, u := range uses {
				if !yield(u) {
					return
				}
			}
		}
	}
}

// count sums up what is left of a cut run.
func (r *ref) count() (uses []run.SegmentUse, err error) {
	defer unguard(guard(), &err)
	s := source{tier: &tier{refs: []ref{*r}}}
	sums := map[uint32]run.SegmentUse{}
	for err = s.seek(nil, false); err == nil && s.ok; err = s.move(false) {
		if e := s.ri.Entry(); !e.Tombstone {
			u := sums[uint32(e.Place>>32)]
			u.ID = uint32(e.Place >> 32)
			u.Entries++
			u.Bytes += int64(len(s.key)) + int64(e.Len)
			sums[u.ID] = u
		}
	}
	for _, u := range sums {
		uses = append(uses, u)
	}
	return uses, err
}

// countCuts counts what is left of the runs that range deletes have cut, so that what they deleted is known to be
// garbage. While a pass is under way it does nothing: its steps cut what they have read.
func (d *DB) countCuts() {
	d.edit.Lock()
	v := d.latest().view
	under := len(d.passes) > 0
	d.edit.Unlock()
	defer v.release()
	if under {
		return
	}
	for _, t := range v.ver.tiers {
		for i := range t.refs {
			r := &t.refs[i]
			if r.cut == nil || r.cut.Load() != nil || r.file.damaged.Load() {
				continue
			}
			uses, err := r.count()
			if err != nil {
				uses = r.file.info.Segments // a merge will say more
			}
			r.cut.Store(&uses)
		}
	}
}

// cutUse is what a cut ref names, nil until it is counted.
type cutUse = atomic.Pointer[[]run.SegmentUse]

// candidate is a segment that could be emptied.
type candidate struct {
	seg           *segment
	used, garbage int64 // bytes of the file
}

// candidates returns the segments that the log has left behind, those with the greatest share of known garbage first,
// and the bytes and the garbage of all.
func (d *DB) candidates(ver *version) (all []candidate, total, garbage int64) {
	live := map[uint32]int64{}
	for i := range ver.tiers {
		for u := range liveIn(ver.tiers[i].refs) {
			live[u.ID] += u.Bytes
		}
	}
	for _, s := range ver.segs {
		if s.id >= d.from.seg && s.kind == kindLog || s.open.Load() {
			continue // the log still needs it, or a merge writes to it
		}
		used, payload := s.used.Load(), s.payload.Load()
		c := candidate{s, used, 0}
		switch dead := payload - live[s.id]; {
		case live[s.id] == 0:
			c.garbage = used
		case payload > 0 && dead > 0:
			c.garbage = int64(float64(used) * float64(dead) / float64(payload))
		}
		total += used
		garbage += c.garbage
		if !s.damaged.Load() {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(float64(b.garbage)/float64(b.used), float64(a.garbage)/float64(a.used)), cmp.Compare(a.seg.id, b.seg.id))
	})
	return all, total, garbage
}

// victims chooses segments to be emptied: the small ones if there are many; else none while the log holds little known
// garbage, otherwise the emptiest ones. Where there is no room for the log to go on, little is enough.
func (d *DB) victims(ver *version, urgent bool) map[uint32]bool {
	all, total, garbage := d.candidates(ver)
	var scraps []candidate
	for _, c := range all {
		if float64(c.used) < scrap*float64(d.segmentLimit) {
			scraps = append(scraps, c)
		}
	}
	if 2*len(scraps)-len(ver.segs) > maxScraps {
		victims, sum := map[uint32]bool{}, int64(0)
		for _, c := range scraps {
			if sum += c.used; sum > d.segmentLimit {
				break
			}
			victims[c.seg.id] = true
		}
		return victims
	}
	least := int64(10) // a share of a segment: less garbage is not worth moving the rest
	if urgent {
		least = 20
	} else if float64(garbage) < maxGarbage*float64(total) || garbage < min(minGarbage, 2*d.segmentLimit) {
		return nil
	}
	victims := map[uint32]bool{}
	left, moved, most := total, int64(0), max(int64(maxMoved*float64(total)), d.segmentLimit)
	if urgent {
		most = d.tableLimit / 4 // of what segments leave; see leave
	}
	room := d.roomToMove()
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
		victims[c.seg.id] = true
		garbage -= c.garbage
		left -= c.garbage
	}
	return victims
}

// roomToMove is how many bytes of values can be moved beside the index that is written with them. It is called with
// edit held.
func (d *DB) roomToMove() int64 {
	room := d.fs.Free(d.dir)
	if d.deleting.Load() {
		d.preparing.Lock()
		room += min(d.reserve, math.MaxInt64-room)
		d.preparing.Unlock()
	}
	return room - min(room, leastStep/2, d.runLimit)
}

// rotten notes that a value of a segment cannot be read: the segment is not emptied, and is kept as long as the value
// is named.
func (d *DB) rotten(s *segment, key []byte, err error) {
	if s != nil && !s.damaged.CompareAndSwap(false, true) {
		return
	}
	d.rot.Store(&err)
	d.logger.Error("a value is damaged: it stays where it is, and reading it fails", "key", string(key), "error", err)
}

// debt says how far the log is above what reclaim is happy with. It is measured at each change of the version, and
// grows with the log.
type debt struct {
	base  uint64 // lsn from which on writers are slowed down
	width uint64 // so many bytes further they stop until reclaim has caught up
}

// measureDebt measures it. What is alive is estimated by what the oldest tier names. It is called with edit and mu
// held.
func (d *DB) measureDebt(ver *version) {
	d.needed = 2 * d.runLimit
	for i := range ver.tiers[:max(len(ver.tiers)-1, 0)] {
		d.needed += ver.tiers[i].bytes()
	}
	var sealed, live int64
	for _, s := range ver.segs {
		if s.kind == kindMoved || s.id < d.from.seg {
			sealed += s.used.Load()
		}
	}
	if n := len(ver.tiers); n > 0 {
		live, _ = ver.tiers[n-1].values()
	}
	slack := 2*d.segmentLimit + int64(maxImm+1)*d.tableLimit
	allowed := int64(startPacing*float64(live)) + slack
	d.debt.Store(&debt{
		base:  uint64(max(int64(d.from.lsn)+allowed-sealed, 0)),
		width: uint64(int64((stopPacing-startPacing)*float64(live)) + slack),
	})
}

// A log of startPacing times what is alive is as much as reclaim is happy with; the longer it is, the slower writers
// are, and at stopPacing times they stop. Halfway they write pacing bytes a second, all of them together.
const (
	startPacing = 1.28
	stopPacing  = 2.0
	pacing      = 64 << 20
	leastPause  = time.Millisecond // shorter ones are saved up
)

// pace slows writers down while reclaim is behind, so that space stays bounded: all of them together get the rate that
// follows from the debt, and nothing if it has grown to its bound and reclaim is at work.
func (d *DB) pace(n int) {
	if d.manual {
		return
	}
	for stopped := false; ; stopped = true {
		over := d.over()
		if over <= 0 {
			return
		}
		if over < 1 {
			d.paceAt(float64(n) / (pacing * (1 - over) / over))
			return
		}
		d.mu.Lock()
		if !d.reclaiming || d.log.err() != nil {
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
		if d.watch.long(start) {
			d.watch.waited(start, "a merge: garbage has to be removed first")
		}
	}
}

// over is the debt as a share of its bound.
func (d *DB) over() float64 {
	debt, at := d.debt.Load(), d.log.appended.Load()
	if debt == nil || at <= debt.base {
		return 0
	}
	return min(float64(at-debt.base)/float64(max(debt.width, 1)), 1)
}

// paceAt waits for the turn of a write that takes so many seconds at the present rate.
func (d *DB) paceAt(seconds float64) {
	now := int64(time.Since(d.watch.began))
	cost := int64(seconds * float64(time.Second))
	for {
		next := d.paced.Load()
		at := max(next, now)
		if !d.paced.CompareAndSwap(next, at+cost) {
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
func (d *DB) armTidy() {
	if d.tidying || d.manual {
		return
	}
	d.tidying = true
	before := d.commits.Load()
	time.AfterFunc(tidyAfter, func() {
		if d.Life.Enter() != nil {
			return
		}
		defer d.Life.Leave()
		idle := d.commits.Load() == before
		did := d.tidy(idle)
		d.edit.Lock()
		busy := len(d.passes) > 0
		d.edit.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.tidying = false
		if did || busy || !idle || len(d.view.Load().imm) > 0 {
			d.armTidy()
		}
	})
}

// tidy makes what was deleted give its space back though nothing else brings that about: it ends the memtable if
// deletes in it, once flushed, are worth it, and the log's segment if it is much larger than what is left, which an
// idle log does not need. It reports whether it did.
func (d *DB) tidy(idle bool) bool {
	v := d.latest().view
	defer v.release()
	t := v.mem
	d.mu.Lock()
	var disk int64
	for _, s := range d.segs {
		disk += s.used.Load()
	}
	deletes, tail := t.deletes, int64(d.lsn-t.start.lsn)
	d.mu.Unlock()
	var gain, named int64 // of what the runs name: what the memtable deletes, and all
	ranges := t.tombs.Load().ranges()
	for i := range v.ver.tiers {
		bytes, entries := v.ver.tiers[i].values()
		named += bytes
		if i == len(v.ver.tiers)-1 {
			gain += bytes / max(entries, 1) * deletes
		}
		for _, r := range ranges {
			gain += v.ver.tiers[i].covered(r.lo, r.hi)
		}
	}
	least, live := max(minGarbage, disk/8), tail
	if deletes > 0 && gain+tail >= least {
		live = t.live()
	}
	flush := gain+tail-live >= least && deletes > 0
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.view.Load().mem != t || len(v.imm) >= maxImm || d.log.err() != nil {
		return false
	}
	left := max(named-gain, 0) + live
	shrink := d.cur != nil && (flush || idle && len(v.imm) == 0) && d.cur.size >= 4*max(left, minSegment)
	if !flush && !shrink {
		return false
	}
	if shrink { // a segment is freed only when the log has left it
		d.lastSize = 0
		d.drop(d.next)
		d.next = nil
		for _, s := range d.spare {
			d.discard(func() { d.remove(segmentName(d.dir, s.id)) })
		}
		d.spare = nil
		old := d.cur
		if err := d.rotateSegment(0, true); err != nil {
			d.logger.Warn("cannot begin a new log segment to give back the old one", "error", err)
		} else if err := old.file.Truncate(d.endOf(old)); err != nil { // what was reserved for it
			d.logger.Warn("cannot give back the room reserved for a log segment", "path", old.file.Name(), "error", err)
		}
	}
	d.rotateTable()
	return true
}

// endOf is where the frames of a segment end that the log has just left. It is called with mu held.
func (d *DB) endOf(s *segment) int64 { return segmentHeader + int64(d.cur.start-s.start) }

// live is how many bytes of log the table's newest versions take, without what its own range deletes cover.
func (t *table) live() (n int64) {
	ts := t.tombs.Load()
	it := t.index.Iter(1<<64 - 1)
	for ok := it.First(); ok; ok = it.Next() {
		v := it.Version()
		if v.Kind != holdfast.KindSet || ts.covers(v.Key) > v.Seq {
			continue
		}
		n += int64(len(v.Key)) + 4
		if v.Far {
			n += int64(v.Place.Len)
		} else {
			n += int64(len(v.Value))
		}
	}
	return n
}

// awaitRoom waits until a merge may have made room for the log, and returns false if none can. It is called with mu
// held, and releases and takes it again.
func (d *DB) awaitRoom() bool {
	d.wanting.Add(1)
	defer d.wanting.Add(-1)
	did := false
	if d.manual {
		d.mu.Unlock()
		ok, err := d.mergeOnce()
		did = d.worked(isMerging, err) == nil && ok
		d.mu.Lock()
	} else {
		installs, idle := d.installs, d.idleMerges
		d.wake(d.merges)
		for d.installs == installs && d.idleMerges == idle && d.log.err() == nil {
			d.changed.Wait()
		}
		did = d.installs != installs
	}
	d.mu.Unlock()
	d.sweep()
	d.mu.Lock()
	return did
}

// giveRoom gives back files that were made for later, and reports whether there were any: a flush or merge that finds
// no room for itself may make more with it. The reserve is for deletes, and what follows from them.
func (d *DB) giveRoom(reserve bool) bool {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	gave := d.sweep()
	if d.making != nil {
		d.undo(d.making)
		d.making, gave = nil, true
	}
	d.mu.Lock()
	spare, next := d.spare, d.next
	d.spare, d.next = nil, nil
	d.mu.Unlock()
	for _, s := range spare {
		d.remove(segmentName(d.dir, s.id))
	}
	if next != nil {
		d.drop(next)
		d.sweep()
	}
	return reserve && d.releaseReserve() || gave || next != nil || len(spare) > 0
}
