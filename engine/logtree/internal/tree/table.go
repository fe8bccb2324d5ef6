package tree

import (
	"bytes"
	"sync/atomic"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// Table is an open table. It is closed when the last version that has it is released. Its methods may be called
// from many goroutines.
type Table struct {
	ID     uint64
	Reader *table.Reader
	Info   table.Info // of the file

	valueBytes, values int64 // bytes of keys and values that the file names, and in how many entries

	Damaged  atomic.Bool // a part of it cannot be read: compactions leave it alone
	Obsolete atomic.Bool // no manifest names it any more: free is called when it is closed

	refs atomic.Int32 // of versions
	free func(*Table)

	// Under the lock of whoever makes the next version.
	wear     int64 // what its cuts have cost
	mostWear int64 // what they may cost before it is rewritten
}

// A ref that a range delete has cut is written to each manifest and copied into each version, and its keys are counted.
// That is taken for cutCost bytes each time. When the cuts of a table have cost as much as writing it once more does,
// compactions rewrite it: then nothing is left of its cuts. Syncs and a manifest are taken for an eighth of a full
// file.
const cutCost = 1 << 10

// Wear notes that cuts have cost so many manifests. It is called by those who make versions, one at a time.
func (v *Version) Wear(manifests int64) {
	for i := range v.Tiers {
		for _, r := range v.Tiers[i].Refs {
			if r.cut != nil {
				r.Table.wear += manifests * cutCost
			}
		}
	}
}

// worn reports whether it costs less to rewrite the table than to keep it as it was cut.
func (t *Table) worn() bool { return t.wear >= t.mostWear }

// Worn reports whether the tier has a table that a compaction should rewrite because of its cuts. Where a damaged one
// is among its tables, the tier is left as it is: keys around that cannot be joined. It is called by those who make
// versions, one at a time.
func (t *Tier) Worn() bool {
	worn := false
	for i := range t.Refs {
		if t.Refs[i].Table.Damaged.Load() {
			return false
		}
		worn = worn || t.Refs[i].Table.worn()
	}

	return worn
}

// NewTable returns the table of a reader, which it closes. No version has it yet: see Close. free is called once, by
// any goroutine, with any lock held.
func NewTable(id uint64, r *table.Reader, free func(*Table)) *Table {
	t := &Table{ID: id, Reader: r, Info: r.Info(), free: free}
	t.valueBytes, t.values = sum(t.Info.Segments)

	return t
}

// Unused reports whether no version has the table.
func (t *Table) Unused() bool { return t.refs.Load() == 0 }

// Close closes a table that no version has.
func (t *Table) Close() { _ = t.Reader.Close() } // nothing was written through it

// release gives up a version's reference. With the last one the file is closed, and freed if no manifest names it.
func (t *Table) release() {
	if t.refs.Add(-1) > 0 {
		return
	}
	t.Close()

	// It is closed first: some systems do not remove a file that is open.
	if t.Obsolete.Load() {
		t.free(t)
	}
}

// Ref is the part of a table that is alive: its keys in [Lo, Hi). Range deletes cut tables without rewriting
// them; a table that is cut in the middle has two refs. A Ref is never changed.
type Ref struct {
	Table  *Table
	Lo, Hi []byte  // Hi is empty where it cuts nothing; Lo is never below the smallest key
	last   []byte  // the greatest key that can be in it; not a key of it where Hi cuts
	cutHi  bool    // last is Hi itself, which is outside
	cut    *cutUse // nil: it is the whole table
}

// cutUse is what a cut ref names, nil until it is counted.
type cutUse = atomic.Pointer[[]table.SegmentUse]

// NewRef returns the part of a table with an entry at least that has keys in [lo, hi); an empty bound cuts nothing.
func NewRef(t *Table, lo, hi []byte) Ref {
	r := Ref{Table: t, Lo: t.Info.Smallest, last: t.Info.Largest}
	if len(lo) > 0 && bytes.Compare(lo, r.Lo) > 0 {
		r.Lo, r.cut = lo, new(cutUse)
	}

	// A bound that cuts nothing off leaves the ref whole, which costs no counting.
	if len(hi) > 0 && bytes.Compare(hi, r.last) <= 0 {
		r.Hi, r.last, r.cutHi, r.cut = hi, hi, true, new(cutUse)
	}

	return r
}

// Refs returns refs to the whole of tables.
func Refs(tables []*Table) (refs []Ref) {
	for _, t := range tables {
		refs = append(refs, NewRef(t, nil, nil))
	}

	return refs
}

// Empty reports whether nothing can be left of the table.
func (r *Ref) Empty() bool {
	c := bytes.Compare(r.Lo, r.last)
	return c > 0 || c == 0 && r.cutHi
}

// EndsBefore reports whether all of the ref lies before key.
func (r *Ref) EndsBefore(key []byte) bool {
	c := bytes.Compare(r.last, key)
	return c < 0 || c == 0 && r.cutHi
}

// Span is where keys of the ref can be.
func (r *Ref) Span() Span { return Span{r.Lo, r.last, r.cutHi} }

// without returns what is left of r when [lo, hi) is deleted.
func (r Ref) without(lo, hi []byte) []Ref {
	if r.EndsBefore(lo) || len(hi) > 0 && bytes.Compare(hi, r.Lo) <= 0 {
		return []Ref{r}
	}
	var left []Ref

	// At most two parts are left: what lies before the range, and what lies behind it.
	if bytes.Compare(r.Lo, lo) < 0 {
		if a := NewRef(r.Table, r.Lo, lo); !a.Empty() {
			left = append(left, a)
		}
	}
	if len(hi) > 0 && !r.EndsBefore(hi) {
		if b := NewRef(r.Table, hi, r.Hi); !b.Empty() {
			left = append(left, b)
		}
	}

	return left
}

// within returns what of r lies in [lo, hi).
func (r Ref) within(lo, hi []byte) Ref {
	if bytes.Compare(lo, r.Lo) < 0 {
		lo = r.Lo
	}
	if len(r.Hi) > 0 && (len(hi) == 0 || bytes.Compare(r.Hi, hi) < 0) {
		hi = r.Hi
	}

	return NewRef(r.Table, lo, hi)
}

// Span is an interval of keys; Hi is in it unless Open.
type Span struct {
	Lo, Hi []byte
	Open   bool
}

// EndsBefore reports whether all of the span lies before key.
func (s Span) EndsBefore(key []byte) bool {
	c := bytes.Compare(s.Hi, key)
	return c < 0 || c == 0 && s.Open
}

// Overlaps reports whether a key can be in both.
func (s Span) Overlaps(o Span) bool { return !s.EndsBefore(o.Lo) && !o.EndsBefore(s.Lo) }

// extend makes the span reach as far as o.
func (s *Span) extend(o Span) {
	if c := bytes.Compare(o.Hi, s.Hi); c > 0 || c == 0 && !o.Open {
		s.Hi, s.Open = o.Hi, o.Open
	}
}

// Exclusive returns the bound that lies just behind the span.
func (s Span) Exclusive() []byte {
	if s.Open {
		return s.Hi
	}

	return append(bytes.Clone(s.Hi), 0)
}
