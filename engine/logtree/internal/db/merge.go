package db

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"runtime"
	"slices"
	"syscall"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
)

// pass is a merge of neighbouring tiers into the oldest of them, which can also move values out of segments that
// are to be emptied (victims). It is done in steps. A step takes the next keys in order, rewrites them, and
// installs the result: it is complete by itself. So a pass needs room for one step in addition to what it reads,
// can be stopped after any step, and does not keep flushes waiting. Its fields are used under edit or by the one
// goroutine that merges.
type pass struct {
	oldest, newest uint64          // ids of the tiers; all between them take part, also those that come to be there
	victims        map[uint32]bool // segments to be emptied; if there are any, all tiers take part
	join           bool            // neighbouring small runs are joined
	urgent         bool            // the log waits for room
	next           []byte          // keys before it are done
	limit          int64           // bytes of index, or of moved values, that a step may write
	mover          *mover
	did            bool // a step has changed something
}

// step is one step of a pass, as it is planned and while it is done.
type step struct {
	ver             *version
	clusters        []cluster
	known           map[*runFile]bool  // what took part when the step was planned
	bottom          bool               // no tier is older: tombstones are dropped
	rangeTombstones []*rangeTombstones // range deletes flushed since

	done int    // clusters that are done
	upto []byte // and of the next one the keys before upto, if it is not nil
}

// cluster is refs that cover a stretch of keys which no other ref of the same tiers overlaps.
type cluster struct {
	span    span
	above   uint64 // only newer tiers have a part in it: one that cannot be read lies between them and the others
	target  uint64 // the tier that it comes to: that of the pass, but above what is damaged
	rewrite bool
	tiers   []tier   // newest first
	files   [2]int   // the output's files from and to
	move    *runFile // what joins the target as it is, nil if that is nothing
}

// exclusive returns the bound that lies just behind the span.
func (s span) exclusive() []byte {
	if s.open {
		return s.hi
	}
	return append(bytes.Clone(s.hi), 0)
}

// occupies reports whether the step may put a run that overlaps s into that tier.
func (s *step) occupies(p *pass, id uint64, at span) bool {
	if s == nil || id < p.oldest || id > p.newest {
		return false
	}
	for i := range s.clusters { // not copied: the step writes to them meanwhile
		if g := &s.clusters[i]; (g.rewrite || g.move != nil && id == g.target) && g.span.overlaps(at) {
			return true
		}
	}
	return false
}

// reads reports whether what is merged needs that segment.
func (s *step) reads(id uint32) bool { return s != nil && s.ver.segment(id) != nil }

// plan makes the next step of a pass. It is called with edit held.
func (rc *reclaimer) plan(p *pass) *step {
	d := rc.d
	ver := d.view.Load().ver
	s := &step{ver: ver, known: map[*runFile]bool{}, bottom: true}
	type part struct {
		tier  uint64
		ref   ref
		whole bool
	}
	var all []part
	var damaged []part
	for _, t := range ver.tiers {
		s.bottom = s.bottom && t.id >= p.oldest
		if t.id < p.oldest || t.id > p.newest {
			continue
		}
		for _, r := range t.refs {
			if r.file.damaged.Load() {
				damaged = append(damaged, part{t.id, r, true})
				continue
			}
			s.known[r.file] = true
			all = append(all, part{t.id, r, true})
		}
	}
	// cut takes [lo, hi) out of all parts; what is newer than the tier above is put back as parts of their own.
	cut := func(lo, hi []byte, above uint64) {
		var left []part
		for _, a := range all {
			add := func(r ref) {
				left = append(left, part{a.tier, r, a.whole && bytes.Equal(r.lo, a.ref.lo) && bytes.Equal(r.last, a.ref.last)})
			}
			for _, r := range a.ref.without(lo, hi) {
				add(r)
			}
			if a.tier > above {
				if r := a.ref.within(lo, hi); !r.empty() {
					add(r)
				}
			}
		}
		all = left
	}
	if len(p.next) > 0 {
		cut(nil, p.next, math.MaxUint64)
	}
	for _, x := range damaged { // what cannot be read keeps its keys, and what is newer than it stays above it
		cut(x.ref.lo, x.ref.span().exclusive(), x.tier)
	}
	slices.SortStableFunc(all, func(a, b part) int { return bytes.Compare(a.ref.lo, b.ref.lo) })
	var groups [][]part
	var covered span // by the last group
	for _, a := range all {
		if k := len(groups); k > 0 && !covered.endsBefore(a.ref.lo) {
			groups[k-1] = append(groups[k-1], a)
			covered.extend(a.ref.span())
			continue
		}
		groups = append(groups, []part{a})
		covered = a.ref.span()
	}
	if len(damaged) == 0 {
		small := func(g []part) bool { return len(g) == 1 && rc.small(&g[0].ref) }
		due := func(g []part) bool { return len(g) > 1 || p.empties(g[0].ref.file) }
		groups = joinSmall(groups, p.join, small, due)
	}
	for _, g := range groups {
		out := cluster{span: g[0].ref.span(), target: p.oldest}
		for _, x := range damaged {
			if x.ref.span().overlaps(out.span) {
				out.above = max(out.above, x.tier)
				out.target = slices.MinFunc(g, func(a, b part) int { return cmp.Compare(a.tier, b.tier) }).tier
			}
		}
		if len(g) == 1 && !p.empties(g[0].ref.file) {
			if g[0].tier != out.target && g[0].whole {
				out.move = g[0].ref.file
			}
			s.clusters = append(s.clusters, out)
			continue
		}
		out.rewrite = true
		for _, t := range ver.tiers {
			x := tier{id: t.id}
			for _, a := range g {
				if a.tier == t.id {
					out.span.extend(a.ref.span())
					x.refs = append(x.refs, a.ref)
				}
			}
			if len(x.refs) > 0 {
				out.tiers = append(out.tiers, x)
			}
		}
		s.clusters = append(s.clusters, out)
	}
	return s
}

// empties reports whether the run names a segment that is to be emptied.
func (p *pass) empties(f *runFile) bool {
	return slices.ContainsFunc(f.info.Segments, func(u run.SegmentUse) bool { return p.victims[u.ID] })
}

// joinSmall makes one group of neighbours that are small, or due to be rewritten anyway, if one of them is due, or if
// there are many and join is set: runs would become smaller and smaller otherwise.
func joinSmall[G ~[]E, E any](groups []G, join bool, small, due func(G) bool) []G {
	var out []G
	for i := 0; i < len(groups); {
		var joined G
		k, rewrite := i, false
		for ; k < len(groups) && (due(groups[k]) || small(groups[k])); k++ {
			joined = append(joined, groups[k]...)
			rewrite = rewrite || due(groups[k])
		}
		if rewrite || join && k-i >= minMerge {
			out = append(out, joined)
			i = k
			continue
		}
		k = max(k, i+1)
		out = append(out, groups[i:k]...)
		i = k
	}
	return out
}

// mergeOnce does one step of a merge, if one is due, and reports whether it did. A step that fails is undone. One
// that found no room is tried again with less, as long as there is less; one that met damage leaves out what is
// damaged.
func (rc *reclaimer) mergeOnce() (bool, error) {
	d := rc.d
	if err := d.log.err(); err != nil {
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
	if !slices.ContainsFunc(s.clusters, func(g cluster) bool { return g.rewrite || g.move != nil }) {
		rc.endPass(p)
		d.edit.Unlock()
		return true, nil
	}
	s.ver.refs.Add(1)
	defer s.ver.release()
	rc.step, rc.stepPass = s, p
	d.edit.Unlock()

	out := d.newOutput()
	p.mover.begin()
	err := rc.rewrite(p, s, out)
	var unreadable *runFile
	if isUnreadable(err) {
		unreadable = s.unreadable()
	}
	d.edit.Lock()
	defer d.edit.Unlock()
	rc.step, rc.stepPass = nil, nil
	if err == nil {
		err = d.install(rc.result(p, s, out), d.from, nil, p.mover.commit())
	}
	switch {
	case err == nil:
		p.did = true
		for _, f := range out.files {
			if f.refs.Load() == 0 { // range deletes have covered all of it meanwhile
				f.r.Close()
				d.freeRun(f)
			}
		}
		switch {
		case s.upto != nil:
			p.next = s.upto
		case s.done < len(s.clusters):
			p.next = s.clusters[s.done].span.lo
		default:
			rc.endPass(p)
		}
		return true, nil
	case isFatal(err):
		return false, err // the files may be in the manifest
	}
	out.abandon()
	p.mover.undo()
	switch {
	case unreadable != nil && unreadable.damaged.CompareAndSwap(false, true):
		d.logger.Error("an index file is damaged: it is not merged any more, and reading what it names fails", "error", err)
		rc.damage.Store(&err)
		return true, nil
	case noRoom(err) && rc.smaller(p):
		return true, nil
	}
	p.did = true // it is to be tried again
	rc.endPass(p)
	d.restoreReserve()
	rc.noMerge()
	return false, err
}

// leastStep is the least limit of a step, in bytes.
const leastStep = 64 << 10

// smaller makes a pass that found no room need less, and reports whether it could. It is called with edit held.
func (rc *reclaimer) smaller(p *pass) bool {
	d := rc.d
	least := min(leastStep, d.runLimit)
	if p.limit > least {
		p.limit = max(p.limit/8, least)
		return true
	}
	if len(p.victims) > 1 { // one with little to move frees what the others need, later
		all, _, _ := rc.candidates(d.view.Load().ver)
		all = slices.DeleteFunc(all, func(c candidate) bool { return !p.victims[c.seg.id] })
		clear(p.victims)
		if len(all) > 0 {
			least := slices.MinFunc(all, func(a, b candidate) int { return cmp.Compare(a.used-a.garbage, b.used-b.garbage) })
			p.victims[least.seg.id] = true
		}
		return true
	}
	if d.giveRoom(rc.deleting.Load() && rc.reserveFor(p)) {
		return true
	}
	moves := len(p.victims) > 0
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
		if p.victims[c.seg.id] {
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

// rewrite writes what a step makes of its groups.
func (rc *reclaimer) rewrite(p *pass, s *step, out *output) (err error) {
	d := rc.d
	defer unguard(guard(), &err)
	entries, look := 0, int64(mergeBytes)
	for ; s.done < len(s.clusters); s.done++ {
		g := &s.clusters[s.done]
		if !g.rewrite {
			continue
		}
		if out.written() >= p.limit || p.mover.moved >= p.limit {
			break
		}
		g.files[0] = len(out.files)
		w := merged{}
		for k := range g.tiers {
			w.src = append(w.src, source{tier: &g.tiers[k]})
		}
		if err := w.seek(nil); err != nil {
			return err
		}
		for w.cur >= 0 {
			src := &w.src[w.cur]
			if (out.written() >= p.limit || p.mover.moved >= p.limit) && entries > 0 {
				s.upto = bytes.Clone(src.key)
				break
			}
			if entries++; entries%mergeUnstopped == 0 || p.mover.moved >= look {
				look = p.mover.moved + mergeBytes
				select {
				case <-d.stop:
					s.upto = bytes.Clone(src.key)
				default:
				}
				if s.upto != nil {
					break
				}
			}
			e := src.ri.Entry()
			if p.victims[uint32(e.Place>>32)] && !e.Tombstone {
				if e.Place, err = p.mover.move(src.key, s.ver, e); err != nil {
					return err
				}
			}
			if !e.Tombstone || !s.bottom || g.target != p.oldest {
				if err := out.add(src.key, e); err != nil {
					return err
				}
			}
			if err := w.next(); err != nil {
				return err
			}
			if entries%1024 == 0 {
				runtime.Gosched()
			}
		}
		if err := out.finish(); err != nil {
			return err
		}
		g.files[1] = len(out.files)
		if s.upto != nil {
			break
		}
	}
	moved := p.mover.settle
	if s.done == len(s.clusters) { // the pass has come to its end
		moved = p.mover.seal
	}
	if err := moved(); err != nil {
		return err
	}
	return out.close()
}

// isUnreadable reports whether an error says that something stored cannot be read any more.
func isUnreadable(err error) bool {
	return errors.Is(err, holdfast.ErrCorrupt) || errors.Is(err, syscall.EIO)
}

// unreadable returns a run that a step which met damage cannot read, nil if it can read all. The error does not tell:
// a memory fault has no name.
func (s *step) unreadable() *runFile {
	if s.done == len(s.clusters) {
		return nil
	}
	for _, t := range s.clusters[s.done].tiers {
		for i := range t.refs {
			if _, err := t.refs[i].count(); isUnreadable(err) {
				return t.refs[i].file
			}
		}
	}
	return nil
}

// result is the present tiers with a step done. They may have changed since it was planned: flushes have added runs,
// and cut some by range deletes. It is called with edit held.
func (rc *reclaimer) result(p *pass, s *step, out *output) []tier {
	d := rc.d
	var gone []cluster // what was rewritten
	moved := map[*runFile][]cluster{}
	come := map[uint64][]ref{} // to which tier
	for i, g := range s.clusters {
		switch {
		case i > s.done || i == s.done && s.upto == nil:
		case g.rewrite && i == s.done:
			g.span.hi, g.span.open = s.upto, true
			gone = append(gone, g)
		case g.rewrite:
			gone = append(gone, g)
		case g.move != nil:
			moved[g.move] = append(moved[g.move], g)
		}
		made := []tier{{}}
		for _, f := range out.files[g.files[0]:g.files[1]] {
			made[0].refs = append(made[0].refs, newRef(f, nil, nil))
		}
		for _, ts := range s.rangeTombstones {
			made = deleteRanges(made, ts)
		}
		if len(made) > 0 {
			come[g.target] = append(come[g.target], made[0].refs...)
		}
	}
	var tiers []tier
	for _, t := range d.view.Load().ver.tiers {
		if t.id < p.oldest || t.id > p.newest {
			tiers = append(tiers, tier{t.id, slices.Clone(t.refs)})
			continue
		}
		stays := tier{id: t.id}
		for _, r := range t.refs {
			switch {
			case !s.known[r.file]: // it came since; it may overlap what comes to the target from newer tiers
				stays.refs = append(stays.refs, r)
			default:
				if i := slices.IndexFunc(moved[r.file], func(g cluster) bool { return g.span.overlaps(r.span()) }); i >= 0 {
					to := moved[r.file][i].target
					come[to] = append(come[to], r)
					continue
				}
				stays.refs = append(stays.refs, without(r, t.id, gone)...)
			}
		}
		tiers = append(tiers, stays)
	}
	for id, refs := range come {
		i := slices.IndexFunc(tiers, func(t tier) bool { return t.id == id })
		if i < 0 {
			i = len(tiers)
			tiers = append(tiers, tier{id: id})
		}
		tiers[i].refs = append(tiers[i].refs, refs...)
		slices.SortFunc(tiers[i].refs, func(a, b ref) int { return bytes.Compare(a.lo, b.lo) })
	}
	slices.SortFunc(tiers, func(a, b tier) int {
		if a.id > b.id {
			return -1
		}
		return 1
	})
	return dropEmpty(tiers)
}

// without returns what is left of a tier's ref without the clusters that the tier had a part in. They are in order
// and do not overlap.
func without(r ref, tier uint64, gone []cluster) []ref {
	i, _ := slices.BinarySearchFunc(gone, r.lo, func(g cluster, key []byte) int {
		if g.span.endsBefore(key) {
			return -1
		}
		return 1
	})
	left := []ref{r}
	for ; i < len(gone) && len(left) > 0 && left[len(left)-1].span().overlaps(gone[i].span); i++ {
		if tier <= gone[i].above {
			continue
		}
		last := left[len(left)-1]
		left = append(left[:len(left)-1], last.without(gone[i].span.lo, gone[i].span.exclusive())...)
	}
	return left
}
