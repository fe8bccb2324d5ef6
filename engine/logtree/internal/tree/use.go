package tree

import (
	"bytes"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
)

// LiveIn yields what the tier names in segments, one or more times for each. A ref that was cut and is not counted yet
// counts as its whole table.
func (t *Tier) LiveIn() func(yield func(run.SegmentUse) bool) { return liveIn(t.Refs) }

func liveIn(refs []Ref) func(yield func(run.SegmentUse) bool) {
	return func(yield func(run.SegmentUse) bool) {
		seen := map[*Table]bool{}
		for i := range refs {
			r := &refs[i]
			uses := r.Table.Info.Segments
			if r.cut != nil {
				if counted := r.cut.Load(); counted != nil {
					uses = *counted
				} else if seen[r.Table] {
					continue
				}
				seen[r.Table] = true
			}
			for _, u := range uses {
				if !yield(u) {
					return
				}
			}
		}
	}
}

// Values returns how many bytes of keys and values the tier names, and in how many entries.
func (t *Tier) Values() (bytes, entries int64) {
	for use := range t.LiveIn() {
		bytes += use.Bytes
		entries += use.Entries
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
		var bytesOf int64
		for u := range liveIn(t.Refs[i : i+1]) {
			bytesOf += u.Bytes
		}
		if bytes.Compare(r.Lo, lo) < 0 || len(hi) > 0 && !r.EndsBefore(hi) {
			bytesOf /= 2
		}
		n += bytesOf
	}
	return n
}

// CountCuts reads what is left of the tables that range deletes have cut, once for each cut, so that LiveIn knows what
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
				uses = r.Table.Info.Segments // a merge will say more
			}
			r.cut.Store(&uses)
		}
	}
}

// count sums up what is left of a cut table.
func (r *Ref) count() (uses []run.SegmentUse, err error) {
	s := source{tier: &Tier{Refs: []Ref{*r}}}
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
