// Package tree is the order of keys: tables in tiers, the versions of them that readers hold, and walks over
// memtables and tiers together. It knows where values lie, and reads them through [Segment]; it writes no manifest and
// holds no lock.
//
// A [Version] never changes. Flushes and compactions make the tiers of the next one out of it; what they made takes
// effect when their caller has published it.
package tree

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// Segment is a file that holds values. Its methods are called from many goroutines.
type Segment interface {
	// Acquire takes a reference, while the caller or somebody that it waits for holds another. The file stays open until
	// as many calls of Release.
	Acquire()
	Release()
	// Filled is how many bytes of the file can be read.
	Filled() int64
	// Read appends the n bytes at off, unchecked, to dst. After an error, dst is returned as it was.
	Read(dst []byte, off int64, n int) ([]byte, error)
	// Mapped returns the n bytes at off, unchecked, in a mapping of the file, if they are likely to be in memory, and else
	// nil. They may change, and touching them may fault: see [format.Guarded].
	Mapped(off int64, n int) []byte
	// Prefetch has the n bytes at off read soon, if the system can do that, and does not wait for it.
	Prefetch(off int64, n int)
	// Value is Read for a value with that checksum: another one is ErrCorrupt.
	Value(dst []byte, off int64, n int, sum uint32) ([]byte, error)
}

// Tier is a sequence of refs that do not overlap, in order of keys. A tier is newer than those
// with smaller ids: where two have the same key, the newer one is right.
type Tier struct {
	ID   uint64
	Refs []Ref
}

// Sums are what the tables and refs of a tier come to.
type Sums struct {
	FileBytes  int64 // of the tables' files
	Tombstones int64 // in them
	Values     int64 // bytes of keys and values that the refs name
	Entries    int64 // how many those are
}

// Sums adds up the tier.
func (t *Tier) Sums() (n Sums) {
	for table := range t.tables() {
		n.FileBytes += table.Info.FileBytes
		n.Tombstones += table.Info.Tombstones
	}
	n.Values, n.Entries = t.Values()

	return n
}

// tables yields each table of the tier once. One that is not cut has a single ref.
func (t *Tier) tables() func(yield func(*Table) bool) {
	return func(yield func(*Table) bool) {
		seen := map[*Table]bool{}
		for i := range t.Refs {
			r := &t.Refs[i]
			if r.cut != nil && seen[r.Table] {
				continue
			}
			if r.cut != nil {
				seen[r.Table] = true
			}
			if !yield(r.Table) {
				return
			}
		}
	}
}

// Overlapping returns the first tier in which refs overlap, which none may; nil if there is none.
func Overlapping(tiers []Tier) *Tier {
	for i := range tiers {
		for j := 1; j < len(tiers[i].Refs); j++ {
			if !tiers[i].Refs[j-1].EndsBefore(tiers[i].Refs[j].Lo) {
				return &tiers[i]
			}
		}
	}

	return nil
}

// find returns the index of the first ref that does not end before key.
func (t *Tier) find(key []byte) int {
	lo, hi := 0, len(t.Refs)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if t.Refs[m].EndsBefore(key) {
			lo = m + 1
		} else {
			hi = m
		}
	}

	return lo
}

// holding returns the ref that key would be in, nil if there is none.
func (t *Tier) holding(key []byte) *Ref {
	if i := t.find(key); i < len(t.Refs) && bytes.Compare(t.Refs[i].Lo, key) <= 0 {
		return &t.Refs[i]
	}

	return nil
}

// Version is the tables of a moment, and the segments that they name. It is never changed. All its methods may
// be called from many goroutines, by those who hold a reference.
type Version struct {
	Tiers  []Tier   // newest first
	Tables []*Table // each once

	segments []segment       // by id
	slots    []int32         // their indexes, and one more, by hashes of their ids; see find
	whole    map[*Table]bool // the tables; whether none of their keys is cut off
	refs     atomic.Int32
}

// segment is one that tables name.
type segment struct {
	id uint32
	Segment
	tables int   // how many name it
	live   int64 // bytes of keys and values that whole tables name in it
}

// NewVersion returns a version of those tiers, with a reference of the caller's. It takes a reference to its tables
// and to the segments that find returns, which has all that the tables name.
func NewVersion(tiers []Tier, find func(id uint32) Segment) *Version {
	return new(Version).Next(tiers, find)
}

// Next is NewVersion where v is the version before: it looks only at what differing tables name, and finds only
// segments that v does not have. The caller holds a reference to v.
func (v *Version) Next(tiers []Tier, find func(id uint32) Segment) *Version {
	next := &Version{Tiers: tiers, whole: map[*Table]bool{}}
	next.refs.Store(1)

	// First the tables: each once, with a reference, and whether all of its keys are left.
	for _, t := range tiers {
		for i := range t.Refs {
			table := t.Refs[i].Table
			if _, seen := next.whole[table]; !seen {
				next.Tables = append(next.Tables, table)
				table.refs.Add(1)
			}
			next.whole[table] = t.Refs[i].cut == nil // one that is cut has no other refs than such
		}
	}

	// Then the segments. Only tables that came, went, or were cut for the first time change the sums: what the others name
	// need not be looked at.
	changes := map[uint32]segment{}
	change := func(t *Table, tables int, live int64) {
		for _, u := range t.Info.Segments {
			c := changes[u.ID]
			changes[u.ID] = segment{id: u.ID, tables: c.tables + tables, live: c.live + live*u.Bytes}
		}
	}
	for _, t := range next.Tables {
		was, old := v.whole[t]
		switch now := next.whole[t]; {
		case !old && now:
			change(t, 1, 1)
		case !old:
			change(t, 1, 0)
		case was && !now: // it never becomes whole again
			change(t, 0, -1)
		}
	}

	for _, t := range v.Tables {
		if _, still := next.whole[t]; still {
			continue
		}
		if v.whole[t] {
			change(t, -1, -1)
		} else {
			change(t, -1, 0)
		}
	}
	next.segments = make([]segment, 0, len(v.segments)+len(changes))

	add := func(s segment) {
		s.Acquire()
		next.segments = append(next.segments, s)
	}

	// A segment that no table names any more is left out, and with the last version that has it, it is gone.
	for _, s := range v.segments {
		c := changes[s.id]
		delete(changes, s.id)
		if s.tables, s.live = s.tables+c.tables, s.live+c.live; s.tables > 0 {
			add(s)
		}
	}

	// What is left of the changes are segments that the version before does not have.
	for id, s := range changes {
		s.Segment = find(id)
		add(s)
	}
	if len(changes) > 0 {
		slices.SortFunc(next.segments, func(a, b segment) int { return cmp.Compare(a.id, b.id) })
	}

	// Most slots stay free, so that few ids share one.
	next.slots = make([]int32, 4<<bits.Len(uint(len(next.segments))))
	for i := range next.segments {
		h := next.hash(next.segments[i].id)
		for next.slots[h] != 0 {
			h = (h + 1) & uint64(len(next.slots)-1)
		}
		next.slots[h] = int32(i + 1)
	}

	return next
}

// Acquire takes a reference, for a caller who holds one.
func (v *Version) Acquire() { v.refs.Add(1) }

// Release gives up a reference; the last one gives up the tables and segments.
func (v *Version) Release() {
	if v.refs.Add(-1) > 0 {
		return
	}

	for _, t := range v.Tables {
		t.release()
	}

	for _, s := range v.segments {
		s.Release()
	}
}

// Has reports whether the table is one of the version's.
func (v *Version) Has(t *Table) bool {
	_, has := v.whole[t]
	return has
}

// Segments yields the version's segments, by id.
func (v *Version) Segments() func(yield func(uint32, Segment) bool) {
	return func(yield func(uint32, Segment) bool) {
		for _, s := range v.segments {
			if !yield(s.id, s.Segment) {
				return
			}
		}
	}
}

// Segment returns the segment of that id, nil if the version has none.
func (v *Version) Segment(id uint32) Segment {
	if i := v.find(id); i >= 0 {
		return v.segments[i].Segment
	}

	return nil
}

// find returns the index of the segment of that id, -1 if the version has none. A walk asks for each value.
func (v *Version) find(id uint32) int {
	for h := v.hash(id); ; h = (h + 1) & uint64(len(v.slots)-1) {
		if i := int(v.slots[h]) - 1; i < 0 || v.segments[i].id == id {
			return i
		}
	}
}

// hash returns the slot of that id. Files that were made alike have numbers that lie as far apart, so that their lowest
// bits may be the same.
func (v *Version) hash(id uint32) uint64 {
	return uint64(id*0x9e3779b1) * uint64(len(v.slots)) >> 32
}

// Get appends the value of key to dst: the newest tier that has the key decides. A key that is not there, or deleted,
// is ErrNotFound. After an error, dst is returned as it was.
func (v *Version) Get(dst, key []byte) ([]byte, error) {
	for i := range v.Tiers {
		r := v.Tiers[i].holding(key)
		if r == nil {
			continue
		}

		e, found, err := r.Table.Reader.Get(key)
		switch {
		case err != nil:
			return dst, err
		case !found:
			continue
		case e.Tombstone:
			return dst, holdfast.ErrNotFound
		}

		return v.Value(dst, e)
	}

	return dst, holdfast.ErrNotFound
}

// Value appends the value that an entry names to dst. After an error, dst is returned as it was.
func (v *Version) Value(dst []byte, e table.Entry) ([]byte, error) {
	// An empty value needs no file, and earlier versions gave some of them places that are not their own.
	if e.Len == 0 && e.Sum == format.Checksum(nil) {
		return dst, nil
	}

	s := v.Segment(uint32(e.Place >> 32))
	if s == nil {
		return dst, format.Corrupt("", 0,
			fmt.Sprintf("a table names segment %d, which it does not list", e.Place>>32), nil)
	}

	return s.Value(dst, int64(uint32(e.Place)), int(e.Len), e.Sum)
}

// MayHave reports whether a table may have an entry for key: seldom wrongly. What cannot be read may.
func (v *Version) MayHave(key []byte) bool {
	return slices.ContainsFunc(v.Tiers, func(t Tier) bool {
		r := t.holding(key)
		return r != nil && r.Table.Reader.MayContain(key)
	})
}

// AfterLastWritten returns where the oldest tier goes on behind the table that was written last, nil if that is its
// end. A compaction of all tiers that was cut short, by a crash perhaps, has come so far.
func (v *Version) AfterLastWritten() []byte {
	if len(v.Tiers) == 0 {
		return nil
	}
	last, from := uint64(0), []byte(nil)
	for _, r := range v.Tiers[len(v.Tiers)-1].Refs {
		switch {
		case r.Table.ID >= last:
			last, from = r.Table.ID, nil
		case from == nil:
			from = r.Lo
		}
	}

	return from
}

// CopyTiers returns tiers that can be changed without changing v.
func (v *Version) CopyTiers() []Tier {
	tiers := make([]Tier, len(v.Tiers))
	for i, t := range v.Tiers {
		tiers[i] = Tier{t.ID, slices.Clone(t.Refs)}
	}

	return tiers
}

// Needed returns ts without the ranges that would cut a table in two and that no table has a key in. What cannot be
// read may have one.
func (v *Version) Needed(ts *RangeTombstones) *RangeTombstones {
	var s source
	return ts.without(func(d RangeTombstone) bool { return v.splits(d) && !v.hasKeyIn(d, &s) })
}

// splits reports whether a ref begins before the range and goes on behind it.
func (v *Version) splits(d RangeTombstone) bool {
	return len(d.Hi) > 0 && slices.ContainsFunc(v.Tiers, func(t Tier) bool {
		r := t.holding(d.Lo)
		return r != nil && bytes.Compare(r.Lo, d.Lo) < 0 && !r.EndsBefore(d.Hi)
	})
}

// hasKeyIn reports whether a table may have a key in the range, which ends somewhere. s is memory for it.
func (v *Version) hasKeyIn(d RangeTombstone, s *source) bool {
	for i := range v.Tiers {
		s.tier = &v.Tiers[i]
		if err := s.seek(d.Lo, false); err != nil || s.ok && bytes.Compare(s.key, d.Hi) < 0 {
			return true
		}
	}

	return false
}

// DeleteRanges cuts the ranges out of all refs, in place, and returns the tiers that are not empty then.
func DeleteRanges(tiers []Tier, ts *RangeTombstones) []Tier {
	for i := range tiers {
		tiers[i].deleteRanges(ts)
	}

	return dropEmpty(tiers)
}

// deleteRanges cuts the ranges out of the tier's refs, which are replaced by new ones: versions share the old.
func (t *Tier) deleteRanges(ts *RangeTombstones) {
	var out []Ref
	rest := t.Refs // behind those that are in out, or gone

	for d := range ts.Ranges() {
		// Ranges and refs are both in order, so one walk over the two is enough.
		n := (&Tier{Refs: rest}).find(d.Lo)
		out, rest = append(out, rest[:n]...), rest[n:]
		for len(rest) > 0 && (len(d.Hi) == 0 || bytes.Compare(rest[0].Lo, d.Hi) < 0) {
			left := rest[0].without(d.Lo, d.Hi)
			if k := len(left) - 1; k >= 0 && len(d.Hi) > 0 && bytes.Compare(left[k].Lo, d.Hi) >= 0 {
				out, rest[0] = append(out, left[:k]...), left[k] // the next range may cut it again
				break
			}
			out, rest = append(out, left...), rest[1:]
		}
	}
	t.Refs = append(out, rest...)
}

// dropEmpty leaves out tiers without refs. An empty one would count where it is decided what to compact.
func dropEmpty(tiers []Tier) []Tier {
	return slices.DeleteFunc(tiers, func(t Tier) bool { return len(t.Refs) == 0 })
}
