package db

import (
	"bytes"
	"encoding/binary"
	"math"
	"runtime"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
)

// merge is one in progress: the tiers that take part become one, the oldest of them. Runs of
// theirs that overlap no other are moved there as they are; only clusters of runs that do overlap
// are rewritten, and runs with values in segments that are to be emptied.
type merge struct {
	ver      *version          // what is merged, as it was when the merge was planned
	target   uint64            // the tier that the others join
	tiers    map[uint64]bool   // those that take part
	clusters []cluster         // to be rewritten
	moves    []span            // of refs that come to the target as they are
	bottom   bool              // no tier is older: tombstones are dropped
	victims  map[uint32]bool   // segments to be emptied
	known    map[*runFile]bool // what was in those tiers when the merge was planned
	seq      uint64            // nothing that takes part is newer
	tombs    []*tombs          // range deletes flushed since the merge began
}

// cluster is refs that cover a stretch of keys which no ref outside of it, in the same tiers,
// overlaps.
type cluster struct {
	span  span
	tiers []tier // newest first
}

// occupies reports whether the merge may put a run that overlaps s into that tier.
func (m *merge) occupies(id uint64, s span) bool {
	if m == nil || !m.tiers[id] {
		return false
	}
	if id == m.target && slices.ContainsFunc(m.moves, s.overlaps) {
		return true
	}
	return slices.ContainsFunc(m.clusters, func(c cluster) bool { return c.span.overlaps(s) })
}

// reads reports whether what is merged needs that segment.
func (m *merge) reads(id uint32) bool { return m != nil && m.ver.segment(id) != nil }

// When to merge.
const (
	// minMerge is how many tiers of like size are merged; fewer would rewrite too often.
	minMerge = 4
	// maxAbove is what newer tiers may hold, as a share of the oldest one's values, before they are
	// merged into it: garbage that no merge has met is at most that much.
	maxAbove = 0.2
	// maxGarbage is the share of the log that may be known garbage before segments are emptied, and
	// leftGarbage what is left then, if maxVictims (a share of the log, and at least minVictims segments) are
	// enough for that: what a merge writes is there beside what it replaces until it is done. Less than
	// minGarbage bytes are not worth the work.
	maxGarbage  = 0.2
	leftGarbage = 0.1
	minGarbage  = 8 << 20
	maxVictims  = 0.15
	minVictims  = 2
	// maxSmall is the number of small runs in one tier before neighbours are joined.
	maxSmall = 64
	// maxScraps is the number of small segments, besides one for each that is not small, before their values are moved
	// together: each time that a database is opened and little is written, it gets one.
	maxScraps = 32
	scrap     = 1.0 / 16 // of a segment's usual size is small
)

// pick decides what to merge next, nil if nothing. It is called with edit held.
func (d *DB) pick() *merge {
	ver := d.view.Load().ver
	n := len(ver.tiers)
	if n == 0 {
		return nil
	}
	victims := d.victims(ver)
	if len(victims) > 0 || n > 1 && d.above(ver) {
		return d.plan(ver, n, victims, false)
	}
	sum, k := ver.tiers[0].bytes(), 1
	for k < n && ver.tiers[k].bytes() <= 2*sum {
		sum += ver.tiers[k].bytes()
		k++
	}
	if k >= minMerge {
		return d.plan(ver, k, nil, false)
	}
	for i := range ver.tiers {
		small := 0
		for j := range ver.tiers[i].refs {
			if d.small(&ver.tiers[i].refs[j]) {
				small++
			}
		}
		if small > maxSmall {
			if m := d.plan(ver, n, nil, true); len(m.clusters) > 0 {
				return m
			}
		}
	}
	return nil
}

// small reports whether a run is so small that it had better be joined with its neighbours.
func (d *DB) small(r *ref) bool { return r.file.info.FileBytes < d.runLimit/32 }

// above reports whether newer tiers hold too much beside the oldest one.
func (d *DB) above(ver *version) bool {
	var newer, oldest int64
	seen := map[*runFile]bool{}
	for i := range ver.tiers {
		for j := range ver.tiers[i].refs {
			f := ver.tiers[i].refs[j].file
			if seen[f] {
				continue
			}
			seen[f] = true
			// Tombstones stand for values of the usual size: what they delete is garbage too.
			n := valueBytes(f) + f.info.Tombstones*100
			if i < len(ver.tiers)-1 {
				newer += n
			} else {
				oldest += n
			}
		}
	}
	return float64(newer) > maxAbove*float64(oldest)
}

func valueBytes(f *runFile) (n int64) {
	for _, u := range f.info.Segments {
		n += u.Bytes
	}
	return n
}

// victims chooses segments to be emptied: the small ones if there are many; else none while the log holds little known
// garbage, otherwise the emptiest ones.
func (d *DB) victims(ver *version) map[uint32]bool {
	live := map[uint32]int64{}
	for _, f := range ver.files {
		for _, u := range f.info.Segments {
			live[u.ID] += u.Bytes
		}
	}
	type candidate struct {
		id            uint32
		used, garbage int64
	}
	var all []candidate
	var total, garbage int64
	var scraps []*segment
	for _, s := range ver.segs {
		used, payload := s.used.Load(), s.payload.Load()
		if s.id >= d.from.seg && s.kind == kindLog {
			continue // the log still needs it
		}
		if float64(used) < scrap*float64(d.segmentLimit) {
			scraps = append(scraps, s)
		}
		dead := max(payload-live[s.id], 0)
		c := candidate{s.id, used, 0}
		if payload > 0 {
			c.garbage = int64(float64(used) * float64(dead) / float64(payload))
		}
		total += used
		garbage += c.garbage
		all = append(all, c)
	}
	if 2*len(scraps)-len(ver.segs) > maxScraps {
		victims, sum := map[uint32]bool{}, int64(0)
		for _, s := range scraps {
			if sum += s.used.Load(); sum > d.segmentLimit {
				break
			}
			victims[s.id] = true
		}
		return victims
	}
	if float64(garbage) < maxGarbage*float64(total) || garbage < min(minGarbage, 2*d.segmentLimit) {
		return nil
	}
	slices.SortFunc(all, func(a, b candidate) int {
		switch x, y := float64(a.garbage)/float64(a.used), float64(b.garbage)/float64(b.used); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return int(int64(a.id) - int64(b.id))
	})
	victims := map[uint32]bool{}
	left, chosen := total, int64(0)
	for _, c := range all {
		if float64(garbage) < leftGarbage*float64(left) || c.garbage*10 < c.used ||
			len(victims) >= minVictims && float64(chosen) > maxVictims*float64(total) {
			break
		}
		victims[c.id] = true
		chosen += c.used
		garbage -= c.garbage
		left -= c.garbage
	}
	return victims
}

// plan makes a merge of the newest n tiers.
func (d *DB) plan(ver *version, n int, victims map[uint32]bool, join bool) *merge {
	m := &merge{target: ver.tiers[n-1].id, tiers: map[uint64]bool{}, bottom: n == len(ver.tiers), victims: victims, known: map[*runFile]bool{}, seq: d.from.seq}
	type piece struct {
		tier int
		ref  ref
	}
	var all []piece
	for i := range ver.tiers[:n] {
		m.tiers[ver.tiers[i].id] = true
		for _, r := range ver.tiers[i].refs {
			all = append(all, piece{i, r})
			m.known[r.file] = true
		}
	}
	slices.SortFunc(all, func(a, b piece) int { return bytes.Compare(a.ref.lo, b.ref.lo) })
	var groups [][]piece
	var covered span // by the last group
	for _, p := range all {
		if k := len(groups); k > 0 && !covered.endsBefore(p.ref.lo) {
			groups[k-1] = append(groups[k-1], p)
			covered.extend(p.ref.span())
			continue
		}
		groups = append(groups, []piece{p})
		covered = p.ref.span()
	}
	if join {
		groups = joinSmall(groups, func(g []piece) bool { return len(g) == 1 && d.small(&g[0].ref) })
	}
	for _, g := range groups {
		if len(g) == 1 && !slices.ContainsFunc(g[0].ref.file.info.Segments, func(u run.SegmentUse) bool { return victims[u.ID] }) {
			if g[0].tier != n-1 {
				m.moves = append(m.moves, g[0].ref.span())
			}
			continue // it can stay as it is
		}
		c := cluster{span: g[0].ref.span()}
		byTier := make([]tier, n)
		for _, p := range g {
			c.span.extend(p.ref.span())
			byTier[p.tier].refs = append(byTier[p.tier].refs, p.ref)
		}
		for i := range byTier {
			byTier[i].id = ver.tiers[i].id
		}
		c.tiers = dropEmpty(byTier)
		m.clusters = append(m.clusters, c)
	}
	return m
}

// joinSmall makes one group of several neighbours for which small holds.
func joinSmall[G ~[]E, E any](groups []G, small func(G) bool) []G {
	var out []G
	for i := 0; i < len(groups); {
		k := i
		var joined G
		for k < len(groups) && small(groups[k]) {
			joined = append(joined, groups[k]...)
			k++
		}
		if k-i >= minMerge {
			out = append(out, joined)
			i = k
			continue
		}
		if k == i {
			k++
		}
		out = append(out, groups[i:k]...)
		i = k
	}
	return out
}

// mergeOnce does one merge, if one is due, and reports whether it did.
func (d *DB) mergeOnce() (bool, error) {
	d.edit.Lock()
	if d.merging != nil {
		d.edit.Unlock()
		return false, nil
	}
	m := d.pick()
	if m == nil {
		d.edit.Unlock()
		return false, nil
	}
	ver := d.view.Load().ver
	ver.refs.Add(1)
	m.ver = ver
	d.merging = m
	d.edit.Unlock()
	defer ver.release()

	out, home := d.newOutput(), &mover{d: d, seq: m.seq}
	err := d.rewrite(m, ver, out, home)
	d.edit.Lock()
	defer d.edit.Unlock()
	d.merging = nil
	if err == nil {
		err = d.install(d.result(m, out), d.from, nil, home.done)
		if err != nil {
			return false, err // the files may be in the manifest
		}
		for _, f := range out.files {
			if f.refs.Load() == 0 { // range deletes have covered all of it meanwhile
				f.r.Close()
				d.freeRun(f)
			}
		}
		return true, nil
	}
	out.abandon()
	home.abandon()
	if err = d.roomless(err); noRoom(err) {
		// What it would have made room for can still be deleted, which may let the next one be done.
		d.logger.Warn("no room to merge", "error", err)
		return false, nil
	}
	return false, err
}

// mergeUnstopped is how many entries, and mergeBytes how many bytes of values moved, a merge goes on for before it looks whether the
// database is closed: small merges come to their end also where it is never open for long.
const (
	mergeUnstopped = 64 << 10
	mergeBytes     = 16 << 20
)

// rewrite writes the clusters of a merge.
func (d *DB) rewrite(m *merge, ver *version, out *output, home *mover) (err error) {
	defer unguard(guard(), &err)
	entries, look := 0, int64(mergeBytes)
	for i := range m.clusters {
		c := &m.clusters[i]
		w := merged{}
		for k := range c.tiers {
			w.src = append(w.src, source{tier: &c.tiers[k]})
		}
		if err := w.seek(nil); err != nil {
			return err
		}
		for w.cur >= 0 {
			s := &w.src[w.cur]
			e := s.ri.Entry()
			if m.victims[uint32(e.Place>>32)] && !e.Tombstone {
				if e.Place, err = home.move(s.key, ver, e); err != nil {
					return err
				}
			}
			if !e.Tombstone || !m.bottom {
				if err := out.add(s.key, e); err != nil {
					return err
				}
			}
			if err := w.next(); err != nil {
				return err
			}
			if entries++; entries%1024 == 0 {
				runtime.Gosched()
			}
			if entries%mergeUnstopped == 0 || home.moved >= look {
				look = home.moved + mergeBytes
				select {
				case <-d.stop:
					return errStopped
				default:
				}
			}
		}
		if err := out.finish(); err != nil {
			return err
		}
	}
	if err := home.close(); err != nil {
		return err
	}
	return out.close()
}

// result is the present tiers with the merge done. They may have changed since it was planned:
// flushes have added runs, and cut some by range deletes. It is called with edit held.
func (d *DB) result(m *merge, out *output) []tier {
	rewritten := map[*runFile]bool{}
	for _, c := range m.clusters {
		for _, t := range c.tiers {
			for i := range t.refs {
				rewritten[t.refs[i].file] = true
			}
		}
	}
	target := tier{id: m.target}
	var tiers []tier
	for _, t := range d.view.Load().ver.tiers {
		if !m.tiers[t.id] {
			tiers = append(tiers, tier{t.id, slices.Clone(t.refs)})
			continue
		}
		stays := tier{id: t.id}
		for _, r := range t.refs {
			switch {
			case rewritten[r.file] && slices.ContainsFunc(m.clusters, func(c cluster) bool { return c.span.overlaps(r.span()) }):
			case m.known[r.file] || t.id == m.target:
				target.refs = append(target.refs, r)
			default: // it came since; it may overlap what comes to the target from older tiers
				stays.refs = append(stays.refs, r)
			}
		}
		tiers = append(tiers, stays)
	}
	made := []tier{{refs: nil}}
	for _, f := range out.files {
		made[0].refs = append(made[0].refs, newRef(f, nil, nil))
	}
	for _, ts := range m.tombs {
		made = deleteRanges(made, ts)
	}
	if len(made) > 0 {
		target.refs = append(target.refs, made[0].refs...)
	}
	slices.SortFunc(target.refs, func(a, b ref) int { return bytes.Compare(a.lo, b.lo) })
	tiers = append(tiers, target)
	slices.SortFunc(tiers, func(a, b tier) int {
		if a.id > b.id {
			return -1
		}
		return 1
	})
	return dropEmpty(tiers)
}

// mover gives values a new home, in segments of their own.
type mover struct {
	d    *DB
	seq  uint64 // the values are no newer
	seg  *segment
	buf  []byte // a frame in the making: its header, still empty, and records
	val  []byte
	done []*segment

	moved int64 // bytes of values
}

// moveFrame is the size in bytes at which a frame of moved values is written.
const moveFrame = 64 << 10

// move copies a value and returns its new place.
func (w *mover) move(key []byte, ver *version, e run.Entry) (uint64, error) {
	var err error
	if w.val, err = ver.value(w.val[:0], e); err != nil {
		return 0, err
	}
	d := w.d
	size := int64(frameSize(len(key) + len(w.val) + 16))
	if w.seg != nil && w.seg.used.Load()+int64(frameSize(len(w.buf)))+size > d.segmentLimit {
		if err := w.finish(); err != nil {
			return 0, err
		}
	}
	if w.seg == nil {
		d.mu.Lock()
		id, err := d.number()
		d.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if w.seg, err = d.createMoved(id, w.seq); err != nil {
			return 0, err
		}
	}
	if len(w.buf) == 0 {
		w.buf = append(w.buf, make([]byte, frameHeader)...)
	}
	w.buf = append(w.buf, byte(holdfast.KindSet))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)))
	w.buf = append(w.buf, key...)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(w.val)))
	at := w.seg.used.Load() + int64(len(w.buf))
	w.buf = append(w.buf, w.val...)
	w.seg.payload.Add(int64(len(key) + len(w.val)))
	w.moved += int64(len(w.val))
	place := uint64(w.seg.id)<<32 | uint64(at)
	if len(w.buf) >= moveFrame {
		err = w.flush()
	}
	return place, err
}

// flush writes the present frame.
func (w *mover) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.d.appendMoved(w.seg, frameBatch, w.buf); err != nil {
		return err
	}
	w.buf = w.buf[:0]
	if cap(w.buf) > 4*moveFrame {
		w.buf = nil
	}
	return nil
}

// appendMoved writes a frame, whose body stands in b behind room for the header.
func (d *DB) appendMoved(s *segment, kind frameKind, b []byte) error {
	body := b[frameHeader:]
	putFrameHeader(b, s.epoch, kind, len(body), checksum(body), 0, math.MaxUint32)
	at := s.used.Load()
	n := frameSize(len(body))
	b = append(b, make([]byte, n-len(b))...)
	if err := s.write(b, at, false); err != nil {
		return err
	}
	d.otherBytes.Add(int64(n))
	s.used.Store(at + int64(n))
	return nil
}

// createMoved begins a segment of moved values that are no newer than the operation seq.
func (d *DB) createMoved(id uint32, seq uint64) (*segment, error) {
	name := segmentName(d.dir, id)
	d.fs.Remove(name)
	f, err := d.fs.Create(name)
	if err != nil {
		return nil, ioError("create", name, err)
	}
	s := &segment{id: id, kind: kindMoved, epoch: d.id.epoch(id), file: f, free: d.freeSegment}
	s.refs.Store(1)
	s.used.Store(segmentHeader)
	b := make([]byte, frameHeader+beginBody)
	begin{seq: seq}.put(b[frameHeader:])
	if err := d.appendMoved(s, frameBegin, b); err != nil {
		s.close()
		d.remove(name)
		return nil, err
	}
	return s, nil
}

// finish completes the present segment and syncs it.
func (w *mover) finish() error {
	if w.seg == nil {
		return nil
	}
	if err := w.flush(); err != nil {
		return err
	}
	s := w.seg
	s.size = s.used.Load()
	s.flags = flagWritten
	if _, err := s.file.WriteAt(s.header(w.d.id), 0); err != nil {
		return ioError("write", s.file.Name(), err)
	}
	w.d.otherSyncs.Add(1)
	if err := s.file.Sync(); err != nil {
		return ioError("sync", s.file.Name(), err)
	}
	s.durable = true
	if !w.d.noMap {
		s.mapIn(s.size)
	}
	w.done = append(w.done, s)
	w.seg = nil
	return nil
}

// close completes the last segment and makes the names durable.
func (w *mover) close() error {
	if err := w.finish(); err != nil {
		return err
	}
	if len(w.done) == 0 {
		return nil
	}
	if err := w.d.fs.SyncDir(w.d.dir); err != nil {
		return ioError("sync", w.d.dir, err)
	}
	return nil
}

// abandon removes what was written, after a failure.
func (w *mover) abandon() {
	if w.seg != nil {
		w.done = append(w.done, w.seg)
	}
	for _, s := range w.done {
		s.close()
		w.d.remove(segmentName(w.d.dir, s.id))
	}
}
