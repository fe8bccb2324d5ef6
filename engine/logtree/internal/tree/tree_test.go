package tree

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/vfs"
)

// values is a segment that has "v" and N at offset N, and counts its references.
type values struct{ refs int }

func (s *values) Acquire() { s.refs++ }
func (s *values) Release() { s.refs-- }

func (s *values) Read(dst []byte, off int64, n int) ([]byte, error) {
	return fmt.Appendf(dst, "v%0*d", n-1, off), nil
}

func (s *values) Value(dst []byte, off int64, n int, _ uint32) ([]byte, error) {
	return s.Read(dst, off, n)
}

// forest makes tiers on a file system in memory.
type forest struct {
	*Files
	t       *testing.T
	seg     values
	removed []uint64
}

func newForest(t *testing.T) *forest {
	f := &forest{t: t}
	n := uint32(0)
	mem := vfs.NewMem()
	if err := mem.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	f.Files = &Files{FS: mem, Dir: "d", Cache: run.NewCache(1 << 20), Limit: 1 << 20,
		Number: func() (uint32, error) { n++; return n, nil },
		Synced: func(int64) {},
		Remove: func(name string) { mem.Remove(name) },
		Free:   func(table *Table) { f.removed = append(f.removed, table.ID) },
	}
	return f
}

// tier is one whose table has the keys from lo up to, not including, hi; their values are at the offset of the key plus
// 100000 times the tier's number.
func (f *forest) tier(id uint64, lo, hi int) Tier {
	f.t.Helper()
	w := f.NewWriter()
	for i := lo; i < hi; i++ {
		e := run.Entry{Place: 7<<32 | id*100000 + uint64(i), Len: 7}
		if err := w.Add(testKey(i), e); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.t.Fatal(err)
	}
	return Tier{ID: id, Refs: Refs(w.Tables)}
}

func (f *forest) version(tiers ...Tier) *Version {
	return NewVersion(tiers, func(uint32) Segment { return &f.seg })
}

func testKey(i int) []byte { return fmt.Appendf(nil, "key %06d", i) }

// merge does a merge of all tiers, and returns what it made and the tables that it wrote.
func (f *forest) merge(v *Version, m Merge) (*Version, []*Table) {
	f.t.Helper()
	m.Newest, m.Oldest = v.Tiers[0].ID, v.Tiers[len(v.Tiers)-1].ID
	s := v.Plan(m)
	w := f.NewWriter()
	never := func() bool { return false }
	if err := s.Rewrite(w, Control{Full: never, Stopped: never}); err != nil {
		f.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.t.Fatal(err)
	}
	if _, more := s.Next(); more {
		f.t.Error("the merge has not come to its end")
	}
	tiers := s.Tiers(v, w)
	if bad := Overlapping(tiers); bad != nil {
		f.t.Errorf("refs overlap in tier %d", bad.ID)
	}
	return f.version(tiers...), w.Tables
}

// check expects the keys of [0, n), each with the value of the tier that from says, 0 for none.
func (f *forest) check(v *Version, n int, from func(i int) uint64) {
	f.t.Helper()
	var it Iterator
	it.Begin(holdfast.Range{})
	it.Start(v)
	for i := range n {
		id := from(i)
		got, err := v.Get(nil, testKey(i))
		if id == 0 {
			if !errors.Is(err, holdfast.ErrNotFound) {
				f.t.Fatalf("key %d: %q, %v; it is deleted", i, got, err)
			}
			continue
		}
		want := fmt.Sprintf("v%06d", id*100000+uint64(i))
		if string(got) != want || err != nil {
			f.t.Fatalf("key %d: %q, %v, want %q", i, got, err, want)
		}
		if !it.Next() || string(it.Key()) != string(testKey(i)) {
			f.t.Fatalf("the walk has %q, %v, not key %d", it.Key(), it.Err(), i)
		}
	}
	if it.Next() {
		f.t.Errorf("the walk has %q, too", it.Key())
	}
	it.Close()
}

// TestMergeMoves: tables that overlap nothing are moved as they are, others are rewritten.
func TestMergeMoves(t *testing.T) {
	f := newForest(t)
	v := f.version(f.tier(4, 2500, 3000), f.tier(3, 2000, 3000), f.tier(2, 1000, 2000), f.tier(1, 0, 1000))
	old := slices.Clone(v.Tables)
	merged, made := f.merge(v, Merge{})
	if len(merged.Tiers) != 1 || merged.Tiers[0].ID != 1 || len(made) != 1 || made[0].Info.Entries != 1000 {
		t.Errorf("%d tiers, %d tables made", len(merged.Tiers), len(made))
	}
	for _, table := range old[2:] {
		if !slices.Contains(merged.Tables, table) {
			t.Errorf("table %d was rewritten", table.ID)
		}
	}
	from := func(i int) uint64 {
		if i >= 2500 {
			return 4
		}
		return uint64(i/1000) + 1
	}
	f.check(v, 3000, from)
	f.check(merged, 3000, from)
	for _, table := range old {
		table.Obsolete.Store(!slices.Contains(merged.Tables, table))
	}
	v.Release()
	if !slices.Equal(f.removed, []uint64{old[0].ID, old[1].ID}) || f.seg.refs != 1 {
		t.Errorf("tables %d were given up; %d references to the segment are left", f.removed, f.seg.refs)
	}
	f.check(merged, 3000, from)
	merged.Release()
	if f.seg.refs != 0 {
		t.Errorf("%d references to the segment are left", f.seg.refs)
	}
}

// TestMergeJoinsSmall: neighbours that are small become one table.
func TestMergeJoinsSmall(t *testing.T) {
	f := newForest(t)
	var tiers []Tier
	for id := uint64(10); id > 0; id-- {
		tiers = append(tiers, f.tier(id, int(id-1)*100, int(id)*100))
	}
	v := f.version(tiers...)
	from := func(i int) uint64 { return uint64(i/100) + 1 }
	merged, made := f.merge(v, Merge{Small: 1 << 20})
	if len(merged.Tables) != 1 || len(made) != 1 {
		t.Errorf("%d tables, %d made", len(merged.Tables), len(made))
	}
	f.check(merged, 1000, from)
	merged, made = f.merge(v, Merge{Small: 1})
	if len(merged.Tables) != 10 || len(made) != 0 {
		t.Errorf("%d tables, %d made", len(merged.Tables), len(made))
	}
	f.check(merged, 1000, from)
}

// TestRangeDeletes: a range delete cuts tables, and what is cut off is neither read, nor merged, nor counted.
func TestRangeDeletes(t *testing.T) {
	f := newForest(t)
	var ts *RangeTombstones
	ts = with(ts, []RangeTombstone{{testKey(100), testKey(1900), 1}, {testKey(2500), nil, 2}})
	old := f.version(f.tier(2, 500, 3000), f.tier(1, 0, 1000))
	v := f.version(DeleteRanges(old.CopyTiers(), ts)...)
	from := func(i int) uint64 {
		switch {
		case i < 100:
			return 1
		case i >= 1900 && i < 2500:
			return 2
		}
		return 0
	}
	f.check(v, 3000, from)
	v.CountCuts()
	if _, entries := v.Tiers[0].Values(); entries != 600 {
		t.Errorf("%d entries are left in the newer tier", entries)
	}
	if v.MayHave(testKey(1500)) || !v.MayHave(testKey(2000)) {
		t.Error("it may have a key that was cut off, or not one that was not")
	}
	merged, _ := f.merge(v, Merge{Victims: map[uint32]bool{}})
	f.check(merged, 3000, from)
	f.check(old, 3000, func(i int) uint64 {
		if i < 500 {
			return 1
		}
		return 2
	})
}

// TestAbandon: nothing is left of what was written.
func TestAbandon(t *testing.T) {
	f := newForest(t)
	f.Limit = 8 << 10
	w := f.NewWriter()
	for i := range 5000 {
		if err := w.Add(testKey(i), run.Entry{Place: 7<<32 | uint64(i*100), Len: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.Tables) < 2 || w.Written() < int64(len(w.Tables))*f.Limit {
		t.Errorf("%d tables, %d bytes", len(w.Tables), w.Written())
	}
	w.Abandon()
	if names, err := f.FS.List(f.Dir); err != nil || len(names) > 0 {
		t.Errorf("%v, %v are left", names, err)
	}
	if _, err := f.Open(1); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("opening %s: %v", format.TableName(f.Dir, 1), err)
	}
}
