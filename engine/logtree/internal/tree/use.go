package tree

import (
	"bytes"
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// Live returns how many bytes of keys and values the version names in each of its segments. A ref that was cut and is
// not counted yet counts as its whole table.
func (v *Version) Live() map[uint32]int64 {
	live := make(map[uint32]int64, len(v.segments))
	for i, n := range v.live() {
		live[v.segments[i].id] = n
	}

	return live
}

// Usage yields the version's segments, by id, each with what [Version.Live] says of it.
func (v *Version) Usage() func(yield func(Segment, int64) bool) {
	return func(yield func(Segment, int64) bool) {
		for i, n := range v.live() {
			if !yield(v.segments[i].Segment, n) {
				return
			}
		}
	}
}

// live is Live, in the order of v.segments.
func (v *Version) live() []int64 {
	live := make([]int64, len(v.segments))
	for i := range v.segments {
		live[i] = v.segments[i].live
	}

	// Whole tables were added up when the version was made. What cut refs name changes when they are counted, so it is
	// added here.
	for i := range v.Tiers {
		for r := range v.Tiers[i].counted() {
			if r.cut == nil {
				continue // it is in the segments' sums
			}

			for _, u := range r.uses() {
				if at := v.find(u.ID); at >= 0 {
					live[at] += u.Bytes
				}
			}
		}
	}

	return live
}

// counted yields the refs, of those of one table that are not counted yet only the first.
func (t *Tier) counted() func(yield func(*Ref) bool) {
	return func(yield func(*Ref) bool) {
		seen := map[*Table]bool{}
		for i := range t.Refs {
			r := &t.Refs[i]
			if r.cut != nil && r.cut.Load() == nil {
				if seen[r.Table] {
					continue
				}
				seen[r.Table] = true
			}
			if !yield(r) {
				return
			}
		}
	}
}

// uses is what the ref names, if it is counted; else what its table does.
func (r *Ref) uses() []table.SegmentUse {
	if r.cut != nil {
		if counted := r.cut.Load(); counted != nil {
			return *counted
		}
	}

	return r.Table.Info.Segments
}

// values is how many bytes of keys and values the ref names, and in how many entries.
func (r *Ref) values() (bytes, entries int64) {
	if r.cut == nil {
		return r.Table.valueBytes, r.Table.values
	}

	return sum(r.uses())
}

// sum adds up the bytes and the entries of all segments.
func sum(uses []table.SegmentUse) (bytes, entries int64) {
	for _, u := range uses {
		bytes += u.Bytes
		entries += u.Entries
	}

	return bytes, entries
}

// Values returns how many bytes of keys and values the tier names, and in how many entries.
func (t *Tier) Values() (bytes, entries int64) {
	for r := range t.counted() {
		b, n := r.values()
		bytes, entries = bytes+b, entries+n
	}

	return bytes, entries
}

// Covered is how many bytes of values the refs name that lie wholly in [lo, hi), and half of what they name that lie
// there in part.
func (t *Tier) Covered(lo, hi []byte) (n int64) {
	for i := t.find(lo); i < len(t.Refs); i++ {
		r := &t.Refs[i]

		if len(hi) > 0 && bytes.Compare(r.Lo, hi) >= 0 {
			break
		}
		bytesOf, _ := r.values()
		if bytes.Compare(r.Lo, lo) < 0 || len(hi) > 0 && !r.EndsBefore(hi) {
			bytesOf /= 2
		}
		n += bytesOf
	}

	return n
}

// CountCuts reads what is left of the tables that range deletes have cut, once for each cut, so that Live knows what
// they deleted. Damaged tables are left out.
func (v *Version) CountCuts() {
	for _, t := range v.Tiers {
		for i := range t.Refs {
			r := &t.Refs[i]
			if r.cut == nil || r.cut.Load() != nil || r.Table.Damaged.Load() {
				continue
			}
			uses, err := r.count()
			if err != nil {
				uses = r.Table.Info.Segments // a compaction will say more
			}
			r.cut.Store(&uses)
		}
	}
}

// UsesIn returns how many bytes of keys and values the version names for keys in [lo, hi), in each of those segments,
// or more where a table cannot be read.
func (v *Version) UsesIn(lo, hi []byte, segments map[uint32]bool, stop func() error) (map[uint32]int64, error) {
	named := map[uint32]int64{}
	for i := range v.Tiers {
		t := &v.Tiers[i]
		for j := t.find(lo); j < len(t.Refs); j++ {
			if len(hi) > 0 && bytes.Compare(t.Refs[j].Lo, hi) >= 0 {
				break
			}
			r := t.Refs[j].within(lo, hi)
			if r.Empty() || !slices.ContainsFunc(r.Table.Info.Segments,
				func(u table.SegmentUse) bool { return segments[u.ID] }) {
				continue
			}
			if err := stop(); err != nil {
				return nil, err
			}
			uses := r.uses()
			if r.cut != nil {
				if counted, err := r.count(); err == nil {
					uses = counted
				} // else a compaction will say more
			}

			for _, u := range uses {
				named[u.ID] += u.Bytes
			}
		}
	}

	return named, nil
}

// Whole widens [lo, hi) to whole tables of the oldest tier, so that what is rewritten there leaves none in part.
func (v *Version) Whole(lo, hi []byte) (from, to []byte) {
	if len(v.Tiers) == 0 {
		return lo, hi
	}
	oldest := &v.Tiers[len(v.Tiers)-1]
	if r := oldest.holding(lo); len(lo) > 0 && r != nil {
		lo = r.Lo
	}
	if r := oldest.holding(hi); len(hi) > 0 && r != nil && bytes.Compare(r.Lo, hi) < 0 {
		hi = r.Span().Exclusive()
	}

	return lo, hi
}

// EntriesIn is how many entries the tables have that a compaction of [lo, hi) reads, as Whole widens it, and how many
// of them are tombstones.
func (v *Version) EntriesIn(lo, hi []byte) (n, tombstones int64) {
	lo, hi = v.Whole(lo, hi)
	for i := range v.Tiers {
		t := &v.Tiers[i]
		for j := t.find(lo); j < len(t.Refs) && (len(hi) == 0 || bytes.Compare(t.Refs[j].Lo, hi) < 0); j++ {
			n += t.Refs[j].Table.Info.Entries
			tombstones += t.Refs[j].Table.Info.Tombstones
		}
	}

	return n, tombstones
}

// count sums up what is left of a cut table.
func (r *Ref) count() (uses []table.SegmentUse, err error) {
	s := source{tier: &Tier{Refs: []Ref{*r}}}
	sums := map[uint32]table.SegmentUse{}

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

// NewerFrom looks at the oldest tier's tables from the one with that key on, as many as have so many bytes, and returns
// how many bytes of keys and values newer tiers name among their keys for each that they name themselves. Newer tables
// are taken to hold the same of all keys that they span. A tombstone counts as a value of the usual size.
func (v *Version) NewerFrom(from []byte, most int64) (share float64, tables []*Table) {
	if len(v.Tiers) == 0 {
		return 0, nil
	}

	oldest := &v.Tiers[len(v.Tiers)-1]
	sums := make([]int64, len(oldest.Refs)+1) // of what the refs before name
	entries := int64(0)
	for i := range oldest.Refs {
		b, n := oldest.Refs[i].values()
		sums[i+1] = sums[i] + b
		entries += n
	}

	// The share is an estimate: what a newer table names is spread over the keys that it spans as the oldest tier's bytes
	// are.
	usual := sums[len(oldest.Refs)] / max(entries, 1)
	lo := oldest.find(from)
	hi := lo
	for n := int64(0); hi < len(oldest.Refs) && n < most; hi++ {
		t := oldest.Refs[hi].Table
		n += t.Info.FileBytes
		tables = append(tables, t)
	}
	// reach returns the refs that a span meets.
	reach := func(first, last []byte) (int, int) {
		a, b := oldest.find(first), oldest.find(last)
		return a, min(b+1, len(oldest.Refs))
	}

	newer := 0.0
	for _, t := range v.Tiers[:len(v.Tiers)-1] {
		for i := range t.Refs {
			r := &t.Refs[i]
			a, b := reach(r.Table.Info.Smallest, r.Table.Info.Largest)
			c, d := reach(r.Lo, r.last)
			if c, d = max(c, lo), min(d, hi); c < d && sums[b] > sums[a] {
				values := r.Table.valueBytes + usual*r.Table.Info.Tombstones
				newer += float64(values) * float64(sums[d]-sums[c]) / float64(sums[b]-sums[a])
			}
		}
	}

	return newer / float64(max(sums[hi]-sums[lo], 1)), tables
}
