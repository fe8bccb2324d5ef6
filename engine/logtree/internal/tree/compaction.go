package tree

import (
	"bytes"
	"cmp"
	"math"
	"runtime"
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// Compaction says what is compacted: neighbouring tiers, which are merged into the oldest of them.
type Compaction struct {
	Oldest, Newest uint64          // ids of the tiers; all between them take part
	Victims        map[uint32]bool // segments that are emptied; if there are any, all tiers take part
	From           []byte          // keys before it are done
	To             []byte          // keys from it on take no part; empty: all do
	Only           bool            // nothing else is rewritten than what names a segment that is to be emptied
	Small          int64           // neighbouring tables of fewer bytes are joined
}

// empties reports whether the table names a segment that is to be emptied.
func (c *Compaction) empties(t *Table) bool {
	return slices.ContainsFunc(t.Info.Segments, func(u table.SegmentUse) bool { return c.Victims[u.ID] })
}

// Step is one step of a compaction: [Version.Plan], then Rewrite, which takes the next keys in order, up to a limit,
// and Tiers, which says what the tiers are then. It is complete by itself: a compaction can end after any step. It is
// for one goroutine, but for Reads. The caller holds a reference to the version until the last of them has returned.
type Step struct {
	// Tombstones are range deletes that were flushed since the step was planned. The caller adds them.
	Tombstones []*RangeTombstones

	Entries int64 // keys that Rewrite came to

	compaction Compaction
	ver        *Version
	bottom     bool // no tier is older: tombstones are dropped
	joins      bool // neighbours are joined: nothing that is damaged lies between them

	// The first so many clusters are done. If upto is not nil, the keys of the next one that lie before it are done too.
	clusters []cluster
	done     int
	upto     []byte
}

// cluster is refs that cover a stretch of keys which no other ref of the same tiers overlaps. It is rewritten, or it is
// one table that moves to the target as it is, or it stays where it is.
//
// Where a damaged table lies under it, only tiers newer than that, those above, have a part in it, and the oldest of
// them is the target. Otherwise above is 0, and the target is that of the compaction.
type cluster struct {
	span          Span
	above, target uint64 // ids of tiers

	rewrite bool
	tiers   []Tier // what is rewritten, newest first
	made    [2]int // from which to which of the writer's tables that became

	move *Table // nil unless one moves
}

// Reads reports whether the step needs that segment.
func (s *Step) Reads(id uint32) bool { return s != nil && s.ver.Segment(id) != nil }

// Idle reports whether the step would change nothing.
func (s *Step) Idle() bool {
	return !slices.ContainsFunc(s.clusters, func(c cluster) bool { return c.rewrite || c.move != nil })
}

// Next returns where the compaction goes on after the step, and false if it has come to its end.
func (s *Step) Next() (from []byte, more bool) {
	switch {
	case s.upto != nil:
		return s.upto, true
	case s.done < len(s.clusters):
		return s.clusters[s.done].span.Lo, true
	}

	return nil, false
}

// rewrites reports whether the table is rewritten though it overlaps no other. Where neighbours are not joined, a worn
// one would become as many tables as it has refs.
func (s *Step) rewrites(t *Table) bool { return s.compaction.empties(t) || s.joins && t.worn() }

// left reports whether the tables of a group stay as they are.
func (s *Step) left(g []part) bool {
	return s.compaction.Only && !slices.ContainsFunc(g, func(a part) bool { return s.compaction.empties(a.ref.Table) })
}

// part is a ref that takes part in a step, or what is left of one.
type part struct {
	tier  uint64
	ref   Ref
	whole bool
}

// Plan makes the next step of a compaction. Tables that overlap others, that name a segment that is to be emptied, or
// that are worn, are rewritten, and so are neighbours that are small; others move as they are. Damaged ones stay where
// they are.
func (v *Version) Plan(c Compaction) *Step {
	s := &Step{compaction: c, ver: v, bottom: true}
	var all, damaged []part

	for _, t := range v.Tiers {
		s.bottom = s.bottom && t.ID >= c.Oldest
		if t.ID < c.Oldest || t.ID > c.Newest {
			continue
		}

		for _, r := range t.Refs {
			if r.Table.Damaged.Load() {
				damaged = append(damaged, part{t.ID, r, true})
			} else {
				all = append(all, part{t.ID, r, true})
			}
		}
	}

	// What the compaction has done, and what it is not to touch, is cut away before groups are made. Whatever is cut
	// counts as not whole, and does not move as it is.
	if len(c.From) > 0 {
		all = cut(all, nil, c.From, math.MaxUint64)
	}
	if len(c.To) > 0 {
		all = cut(all, c.To, nil, math.MaxUint64)
	}

	for _, x := range damaged { // what cannot be read keeps its keys, and what is newer than it stays above it
		all = cut(all, x.ref.Lo, x.ref.Span().Exclusive(), x.tier)
	}

	// The order is stable, so refs with one begin stay in the order of their tiers.
	slices.SortStableFunc(all, func(a, b part) int { return bytes.Compare(a.ref.Lo, b.ref.Lo) })

	var groups [][]part
	var covered Span // by the last group
	for _, a := range all {
		if k := len(groups); k > 0 && !covered.EndsBefore(a.ref.Lo) {
			groups[k-1] = append(groups[k-1], a)
			covered.extend(a.ref.Span())
			continue
		}
		groups = append(groups, []part{a})
		covered = a.ref.Span()
	}

	// Where something is damaged, neighbours may have different targets. So they are not joined.
	s.joins = len(damaged) == 0
	if s.joins {
		groups = join(groups, func(g []part) bool {
			if s.left(g) {
				return false
			}

			return len(g) > 1 || s.rewrites(g[0].ref.Table) || g[0].ref.Table.Info.FileBytes < c.Small
		})
	}

	for _, g := range groups {
		s.clusters = append(s.clusters, s.cluster(g, damaged))
	}

	return s
}

// cut takes [lo, hi) out of all parts; what is newer than the tier above is put back as parts of their own.
func cut(all []part, lo, hi []byte, above uint64) (left []part) {
	for _, a := range all {
		refs := a.ref.without(lo, hi)
		if a.tier > above {
			if r := a.ref.within(lo, hi); !r.Empty() {
				refs = append(refs, r)
			}
		}

		for _, r := range refs {
			whole := a.whole && bytes.Equal(r.Lo, a.ref.Lo) && bytes.Equal(r.last, a.ref.last)
			left = append(left, part{a.tier, r, whole})
		}
	}

	return left
}

// join makes one group of neighbours that are to be rewritten or so small that they had better be: tables would become
// smaller and smaller otherwise.
func join(groups [][]part, rewrite func([]part) bool) (out [][]part) {
	open := false
	for _, g := range groups {
		also := rewrite(g)
		if open && also {
			out[len(out)-1] = append(out[len(out)-1], g...)
		} else {
			out = append(out, g)
		}
		open = also
	}

	return out
}

// cluster makes one of a group.
func (s *Step) cluster(g, damaged []part) cluster {
	out := cluster{span: g[0].ref.Span(), target: s.compaction.Oldest}
	for _, x := range damaged {
		// What lies above a damaged table must stay above it: an older value might else win over a newer one.
		if x.ref.Span().Overlaps(out.span) {
			out.above = max(out.above, x.tier)
			out.target = slices.MinFunc(g, func(a, b part) int { return cmp.Compare(a.tier, b.tier) }).tier
		}
	}
	if s.left(g) {
		return out
	}

	// One table that needs no rewriting at most gets another tier, and none of its bytes are read.
	if len(g) == 1 && !s.rewrites(g[0].ref.Table) {
		if g[0].tier != out.target && g[0].whole {
			out.move = g[0].ref.Table
		}

		return out
	}

	out.rewrite = true

	// In the order of the tiers, newest first, because the newest version of a key wins.
	for _, t := range s.ver.Tiers {
		x := Tier{ID: t.ID}
		for _, a := range g {
			if a.tier == t.ID {
				out.span.extend(a.ref.Span())
				x.Refs = append(x.Refs, a.ref)
			}
		}
		if len(x.Refs) > 0 {
			out.tiers = append(out.tiers, x)
		}
	}

	return out
}

// Control is what a step asks its caller while it rewrites.
type Control struct {
	Full    func() bool // so much was written that the step ends
	Stopped func() bool // it ends in any case; asked once for each entry
	// Move gives the value of an entry in a segment that is to be emptied a new place, and returns it.
	Move func(key []byte, e table.Entry) (place uint64, err error)
}

// Rewrite writes what the step makes of its clusters; the writer stays open. An error leaves the step of no use but for
// Unreadable.
func (s *Step) Rewrite(w *Writer, c Control) (err error) {
	entries := 0
	for ; s.done < len(s.clusters); s.done++ {
		g := &s.clusters[s.done]
		if !g.rewrite {
			continue
		}
		if c.Full() {
			break
		}

		// The tables of a cluster are its own: Tiers puts them where the cluster goes.
		g.made[0] = len(w.Tables)

		m := merged{}
		for k := range g.tiers {
			m.src = append(m.src, source{tier: &g.tiers[k]})
		}
		if err := m.seek(nil); err != nil {
			return err
		}

		for m.cur >= 0 {
			src := &m.src[m.cur]

			// At least one entry is done in each step, or a compaction would never end. Where it stops, the next step begins
			// with this key.
			if entries > 0 && c.Full() || c.Stopped() {
				s.upto = bytes.Clone(src.key)
				break
			}

			entries++
			e := src.ri.Entry()
			s.Entries++

			// A value in a victim moves; one that cannot be read keeps its place, and the victim stays.
			if s.compaction.Victims[uint32(e.Place>>32)] && !e.Tombstone {
				if e.Place, err = c.Move(src.key, e); err != nil {
					return err
				}
			}

			// A tombstone is dropped when nothing older can have its key: no older tier, and no damaged table under the cluster.
			if !e.Tombstone || !s.bottom || g.target != s.compaction.Oldest {
				if err := w.Add(src.key, e); err != nil {
					return err
				}
			}
			if err := m.next(); err != nil {
				return err
			}
			if entries%yieldEvery == 0 {
				runtime.Gosched()
			}
		}

		// Each cluster ends its last table: the tables of one cluster must not reach into the next.
		if err := w.finish(); err != nil {
			return err
		}
		g.made[1] = len(w.Tables)
		if s.upto != nil {
			break
		}
	}

	return nil
}

// Unreadable returns a table that a step which met damage cannot read, nil if it can read all. bad says which errors
// tell of damage.
func (s *Step) Unreadable(bad func(error) bool) *Table {
	if s.done == len(s.clusters) {
		return nil
	}

	for _, t := range s.clusters[s.done].tiers {
		for i := range t.Refs {
			if _, err := t.Refs[i].count(); bad(err) {
				return t.Refs[i].Table
			}
		}
	}

	return nil
}

// Tiers returns the tiers of now, the present version, with the step done. They may differ from those that it was
// planned for: flushes have added newer ones, and cut tables by range deletes.
func (s *Step) Tiers(now *Version, w *Writer) []Tier {
	var gone []cluster // what was rewritten
	moved := map[*Table][]cluster{}
	come := map[uint64][]Ref{} // to which tier
	for i, g := range s.clusters {
		switch {
		// Clusters that the step has not come to stay as they are.
		case i > s.done || i == s.done && s.upto == nil:
		case g.rewrite && i == s.done:
			g.span.Hi, g.span.Open = s.upto, true
			gone = append(gone, g)
		case g.rewrite:
			gone = append(gone, g)
		case g.move != nil:
			moved[g.move] = append(moved[g.move], g)
		}

		// What flushes have deleted since the step was planned is cut out of what it wrote. Its tables were written
		// without knowing of it.
		made := []Tier{{Refs: Refs(w.Tables[g.made[0]:g.made[1]])}}
		for _, ts := range s.Tombstones {
			made = DeleteRanges(made, ts)
		}
		if len(made) > 0 {
			come[g.target] = append(come[g.target], made[0].Refs...)
		}
	}

	var tiers []Tier

	for _, t := range now.Tiers {
		if t.ID < s.compaction.Oldest || t.ID > s.compaction.Newest {
			tiers = append(tiers, Tier{t.ID, slices.Clone(t.Refs)})
			continue
		}

		stays := Tier{ID: t.ID}
		for _, r := range t.Refs {
			if r.Table.Damaged.Load() { // it took no part
				stays.Refs = append(stays.Refs, r)
			} else if i := slices.IndexFunc(moved[r.Table],
				func(g cluster) bool { return g.span.Overlaps(r.Span()) }); i >= 0 {
				to := moved[r.Table][i].target
				come[to] = append(come[to], r)
			} else {
				stays.Refs = append(stays.Refs, left(r, t.ID, gone)...)
			}
		}
		tiers = append(tiers, stays)
	}

	// A target may have no refs of its own left, or be gone from the version: it is made again under its id.
	for id, refs := range come {
		i := slices.IndexFunc(tiers, func(t Tier) bool { return t.ID == id })
		if i < 0 {
			i = len(tiers)
			tiers = append(tiers, Tier{ID: id})
		}
		tiers[i].Refs = append(tiers[i].Refs, refs...)
		slices.SortFunc(tiers[i].Refs, func(a, b Ref) int { return bytes.Compare(a.Lo, b.Lo) })
	}
	slices.SortFunc(tiers, func(a, b Tier) int { return cmp.Compare(b.ID, a.ID) })

	return dropEmpty(tiers)
}

// left returns what is left of a tier's ref without the clusters that the tier had a part in. They are in order
// and do not overlap.
func left(r Ref, tier uint64, gone []cluster) []Ref {
	i, _ := slices.BinarySearchFunc(gone, r.Lo, func(g cluster, key []byte) int {
		if g.span.EndsBefore(key) {
			return -1
		}

		return 1
	})

	left := []Ref{r}
	for ; i < len(gone) && len(left) > 0 && left[len(left)-1].Span().Overlaps(gone[i].span); i++ {
		if tier <= gone[i].above {
			continue
		}
		last := left[len(left)-1]
		left = append(left[:len(left)-1], last.without(gone[i].span.Lo, gone[i].span.Exclusive())...)
	}

	return left
}
