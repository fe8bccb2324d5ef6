package db

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/holdfastdb/holdfast"
)

// This part of a repair reads the log, and the segments of moved values, where the runs do not tell.

// logPart is the part of a log segment that belongs to the log.
type logPart struct {
	p    *part
	lsn  uint64 // of its begin frame
	base uint64 // number of the last operation before it
	size int64  // of the file, up to where a later segment goes on
	last bool   // no segment goes on from it
	why  string // base is a guess
}

// logParts are the log's segments in order. A segment made later begins where the log ended at that time: what older
// ones hold beyond that had been cut off.
func (k *disk) logParts() (all []logPart) {
	var before *part // begun or placed
	for _, id := range k.segs {
		p := k.parts[id]
		if p.moved() {
			continue
		}
		l := logPart{p: p, size: p.size, lsn: p.begin.lsn, base: p.begin.seq}
		if !p.begun && !k.place(&l, before, all) {
			continue // nothing was written to it, or nothing is left
		}
		if k.m != nil {
			if i := k.behind(id); i >= 0 {
				l.size = min(l.size, k.m.segs[i].size)
			}
		}
		before = p
		all = append(all, l)
	}
	least := uint64(math.MaxUint64)
	for i, l := range slices.Backward(all) {
		switch {
		case least == math.MaxUint64:
			all[i].last = true
		case l.lsn >= least: // all of it had been cut off
			all[i].size = segmentHeader
		default:
			all[i].size = segmentHeader + int64(min(uint64(l.size-segmentHeader), least-l.lsn))
		}
		least = min(least, l.lsn)
	}
	return slices.DeleteFunc(all, func(l logPart) bool { return l.size <= segmentHeader })
}

// place finds out where a segment belongs whose first frame is damaged. It reports false if there is no whole frame
// in it.
func (k *disk) place(l *logPart, before *part, all []logPart) bool {
	if _, _, frames := k.extentOf(l.p); frames == 0 {
		return false
	}
	from := k.from()
	within := from.seg == l.p.id && from.off > segmentHeader
	if within {
		if seq, ok := k.seqAt(l.p, from.off); ok {
			l.lsn, l.base = from.lsn-uint64(from.off-segmentHeader), from.seq-uint64(seq)
			return true
		}
	}
	var named uint32
	if before != nil {
		b := all[len(all)-1]
		end, next, _ := k.extentOf(before)
		l.lsn, l.base, named = b.lsn+uint64(end.off-segmentHeader), b.base+end.seq, next
	}
	if within {
		l.lsn = from.lsn - uint64(from.off-segmentHeader)
	}
	if from.seg < l.p.id { // it is not older than that
		l.lsn, l.base = max(l.lsn, from.lsn), max(l.base, from.seq)
	}
	if named != l.p.id {
		l.why = "its first frame is damaged, and none before names it: where it belongs is a guess"
	}
	return true
}

func (k *disk) from() position {
	if k.m == nil {
		return position{}
	}
	return k.m.from
}

// extentOf is where the last whole frame of a segment ends, with the seq there, the segment that it names, and how
// many there are.
func (k *disk) extentOf(p *part) (end position, named uint32, frames int) {
	end.off = segmentHeader
	data, _ := k.read(p, segmentHeader, p.size)
	for s := range stretches(data, segmentHeader, p.epoch) {
		if s.kind == 0 {
			continue
		}
		frames++
		named = 0
		if next, ok := parseEnd(s.frame); ok {
			named = next.id
		}
		end.off, end.seq = s.off+int64(s.size()), uint64(s.next)
	}
	return end, named, frames
}

// seqAt is how many operations a segment has before the offset off; false if the frames on both sides of it are
// damaged.
func (k *disk) seqAt(p *part, off int64) (seq uint32, ok bool) {
	data, _ := k.read(p, segmentHeader, p.size)
	for s := range stretches(data, segmentHeader, p.epoch) {
		switch {
		case s.off == off && s.kind != 0:
			return s.seq, true
		case s.off >= off:
			return seq, ok
		}
		seq, ok = s.next, s.kind != 0 && s.off+int64(s.size()) == off
	}
	return seq, ok
}

// fromLog takes over the operations of the log numbered above from and up to upTo. Those up to the manifest's
// position are about keys in holes only.
func (r *repairer) fromLog(from, upTo uint64) error {
	g := logReplay{r: r, from: from, upTo: upTo, at: from, tail: r.m != nil && from == r.m.from.seq &&
		upTo == math.MaxUint64}
	var moved []*part
	if !g.tail {
		for _, id := range r.segs {
			p := r.parts[id]
			named := r.m == nil || r.behind(id) >= 0
			if named && p.moved() && p.begun && p.begin.seq <= upTo {
				moved = append(moved, p)
			}
		}
		slices.SortStableFunc(moved, func(a, b *part) int { return cmp.Compare(a.begin.seq, b.begin.seq) })
	}
	if !g.tail && r.m != nil {
		r.weighSegments()
	}
	for i := range r.log {
		l := &r.log[i]
		if i+1 < len(r.log) && r.log[i+1].base <= from || l.base >= upTo || g.tail && l.p.id < r.m.from.seg {
			continue
		}
		if l.why != "" {
			r.out.Unsure = append(r.out.Unsure, l.p.name+": "+l.why)
			if clear(r.sure); g.tail {
				r.doubtAll()
			}
		}
		if err := g.movedUpTo(&moved, l.base); err != nil {
			return err
		}
		g.guessed = l.why != ""
		if err := g.logPart(l, &moved); err != nil {
			return err
		}
	}
	if err := g.movedUpTo(&moved, math.MaxUint64); err != nil {
		return err
	}
	if upTo != math.MaxUint64 {
		g.gap(upTo, "", false)
	}
	return nil
}

// weighSegments notes which segments are needed in the place of damaged runs and tell nothing, or nothing that has
// a place in time.
func (r *repairer) weighSegments() {
	for _, s := range r.m.segs {
		p, name, why := r.parts[s.id], segmentName(r.dir, s.id), ""
		switch {
		case p == nil:
			why = "the file is missing"
		case p.moved() && !p.begun:
			why = "the first frame is damaged, and how old the values in it are is not known"
		case p.begun || slices.ContainsFunc(r.log, func(l logPart) bool { return l.p == p }):
			continue
		default:
			why = "nothing can be read of it"
		}
		r.lost(Loss{Path: name, Why: why})
		r.out.Unsure = append(r.out.Unsure, name+": "+why+"; it may have held keys of damaged runs")
	}
}

// logReplay goes through the log.
type logReplay struct {
	r          *repairer
	from, upTo uint64
	at         uint64 // number of the last operation seen
	tail       bool   // behind the manifest's position: it is about all keys
	guessed    bool   // at is too low, perhaps
	broken     bool   // the last that was read of a segment is damaged
}

// gap notes that the operations up to seq were not all found. What was found before them, in the place of damaged
// runs, is in doubt. They are lost if needed says so; otherwise their segment may have been removed because all of
// them were garbage.
func (g *logReplay) gap(seq uint64, name string, needed bool) {
	if seq <= g.at {
		return
	}
	clear(g.r.sure)
	if needed || g.broken {
		why := fmt.Sprintf("operation %d of the log is lost", seq)
		if n := seq - g.at; n > 1 {
			why = fmt.Sprintf("operations %d to %d of the log, %d in all, are lost", g.at+1, seq, n)
		}
		g.r.out.Lost = append(g.r.out.Lost, Loss{Path: name, Why: why, Operations: int64(seq - g.at)})
		g.r.out.Gone += int64(seq - g.at)
		if g.tail {
			g.r.doubtAll()
		}
	}
	g.at, g.broken = seq, false
}

func (g *logReplay) logPart(l *logPart, moved *[]*part) error {
	r := g.r
	start, size := int64(segmentHeader), l.size
	if g.tail && l.p.id == r.m.from.seg {
		start = max(start, r.m.from.off)
	}
	if l.lsn+uint64(size-segmentHeader) > r.stop {
		if size = segmentHeader + int64(max(r.stop, l.lsn)-l.lsn); size == segmentHeader { // and it is not where the log ends
			torn, _ := r.read(l.p, segmentHeader, l.size)
			r.out.TornBytes += extent(torn)
		}
	}
	data, err := r.read(l.p, start, size)
	if err != nil {
		r.lose(err)
	}
	if len(data) == 0 {
		return nil
	}
	if g.gap(min(l.base, g.upTo), l.p.name, g.tail); l.p.headerErr != nil {
		r.lose(l.p.headerErr)
	}
	for s := range stretches(data, start, l.p.epoch) {
		seq := l.base + uint64(s.seq)
		if s.kind != 0 {
			r.end, r.named = l.lsn+uint64(s.off-segmentHeader)+uint64(s.size()), 0
			if next, ok := parseEnd(s.frame); ok {
				r.named = next.id
			}
		}
		switch {
		case s.kind == 0:
			b := data[s.off-start:]
			switch left := extent(b); {
			case left == 0: // room that was never used
			case l.last && s.n == int64(len(b)) && (r.m == nil || g.tail && r.end >= r.m.synced):
				// Nothing says that it had been synced.
				r.out.TornBytes, r.tornEnd = left, r.m == nil
			default:
				r.tornEnd = l.last && s.n == int64(len(b))
				r.lost(Loss{Path: l.p.name, Offset: s.off, Bytes: min(s.n, left), Why: s.why, Maybe: mayBeKeys(b[:s.n])})
				g.broken = true
			}
			continue
		case seq >= g.upTo && s.kind == frameBatch:
			return nil
		}
		if g.tail { // its place says so, whatever its number is
			seq = max(seq, g.at)
		}
		if s.kind != frameBatch || seq+uint64(s.ops) <= g.from {
			continue
		}
		if err := g.movedUpTo(moved, seq); err != nil {
			return err
		}
		g.gap(seq, l.p.name, true)
		g.broken = false
		if err := r.takeFrame(s, g.tail, true); err != nil {
			return err
		}
		r.out.Batches++
		r.out.Operations += int64(s.ops)
		g.at = seq + uint64(s.ops)
	}
	return nil
}

// maxMaybe bounds Loss.Maybe.
const maxMaybe = 10

// mayBeKeys are the keys in what seem to be frames of batches at the beginning of b, whose checksums are wrong.
func mayBeKeys(b []byte) (keys [][]byte) {
	for len(b) >= frameHeader {
		word := binary.LittleEndian.Uint32(b[4:])
		n := int(word >> 2)
		if frameKind(word&3) != frameBatch || n > len(b)-frameHeader {
			return keys
		}
		body := b[frameHeader : frameHeader+n]
		if _, err := checkBody(body); err != nil {
			return keys
		}
		for at := 0; at < n; {
			rec, _ := parseRecord(body[at:])
			at += rec.size
			if len(keys) == maxMaybe {
				return keys
			}
			if rec.kind != holdfast.KindDeleteRange && !slices.ContainsFunc(keys,
				func(k []byte) bool { return bytes.Equal(k, rec.key) }) {
				keys = append(keys, bytes.Clone(rec.key))
			}
		}
		b = b[min(frameSize(n), len(b)):]
	}
	return keys
}

// movedUpTo takes over the moved segments whose values are no newer than seq.
func (g *logReplay) movedUpTo(moved *[]*part, seq uint64) error {
	r := g.r
	for len(*moved) > 0 && (*moved)[0].begin.seq <= seq {
		p := (*moved)[0]
		*moved = (*moved)[1:]
		end := p.size
		if r.m != nil {
			if i := r.behind(p.id); i >= 0 {
				end = r.m.segs[i].size
			}
		}
		if p.headerErr != nil {
			r.lose(p.headerErr)
		}
		data, err := r.read(p, segmentHeader, end)
		if err != nil {
			r.lose(err)
		}
		damaged := r.m != nil && segmentHeader+int64(len(data)) < end
		for s := range stretches(data, segmentHeader, p.epoch) {
			switch {
			case s.kind == 0 && (r.m != nil || extent(data[s.off-segmentHeader:]) > 0):
				r.lost(Loss{Path: p.name, Offset: s.off, Bytes: s.n, Why: s.why})
				damaged = true
			case s.kind == frameBatch:
				// Its keys had these values when operation begin.seq had been made. Whether that was before what was
				// found in a segment of which the place is a guess is not known.
				g.gap(min(p.begin.seq, g.upTo), p.name, false)
				if err := r.takeFrame(s, false, !g.guessed); err != nil {
					return err
				}
				r.out.Moved++
			}
		}
		if damaged {
			r.out.Unsure = append(r.out.Unsure, p.name+": values are lost of keys that are not known")
		}
	}
	return nil
}

// takeFrame takes over the operations of a batch: all of them, or those about keys in holes. latest says that
// nothing which was taken over before is later.
func (r *repairer) takeFrame(s stretch, all, latest bool) error {
	holed := r.holed()
	for at := 0; at < len(s.body); {
		rec, _ := parseRecord(s.body[at:])
		at += rec.size
		if rec.kind == holdfast.KindDeleteRange {
			// Where there is no hole nothing was written yet, and what is written later is right.
			r.batch.DeleteRange(rec.key, rec.value)
			continue
		}
		within := holed && r.inHole(rec.key)
		if holed && !all && !within {
			continue
		}
		switch {
		case !within && !r.allDoubtful:
		case latest:
			r.trust(rec.key)
		default:
			delete(r.sure, maphash.Bytes(r.seed, rec.key))
		}
		if rec.kind == holdfast.KindSet {
			r.batch.Set(rec.key, rec.value)
		} else {
			r.batch.Delete(rec.key)
		}
	}
	return r.flush()
}

// count looks at the result: how many keys it has, which of them are in doubt, and which got a value after one that
// is damaged.
func (r *repairer) count() error {
	holed := r.holed()
	it := r.into.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		r.out.Keys++
		if !r.allDoubtful && !(holed && r.inHole(it.Key())) {
			continue
		}
		if _, ok := r.sure[maphash.Bytes(r.seed, it.Key())]; ok {
			continue
		}
		if r.out.Doubtful++; r.out.Doubtful <= maxExamples {
			r.out.Examples = append(r.out.Examples, bytes.Clone(it.Key()))
		}
	}
	if err := it.Err(); err != nil || r.out.LostKeys == 0 {
		return err
	}
	var failed error
	r.out.Lost = slices.DeleteFunc(r.out.Lost, func(l Loss) bool {
		if l.Key == nil || failed != nil {
			return false
		}
		_, err := r.into.Get(nil, l.Key)
		switch {
		case err == nil: // the log has a newer one
			r.out.LostKeys--
			return true
		case !errors.Is(err, holdfast.ErrNotFound):
			failed = err
		}
		return false
	})
	return failed
}
