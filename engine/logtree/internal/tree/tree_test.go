package tree

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/vfs"
)

// values is a segment that has "v" and N at offset N, and counts its references.
type values struct{ refs int }

func (s *values) Acquire() { s.refs++ }
func (s *values) Release() { s.refs-- }

func (s *values) Filled() int64 { return 1 << 30 }

func (s *values) Read(dst []byte, off int64, n int) ([]byte, error) {
	return fmt.Appendf(dst, "v%0*d", n-1, off), nil
}

func (s *values) Mapped(int64, int) []byte { return nil }

func (s *values) Prefetch(int64, int) {}

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
	f.Files = &Files{FS: mem, Dir: "d", Open: files.NewSet(8), Cache: table.NewCache(1 << 20),
		Number: func() (uint32, error) { n++; return n, nil }, Return: func(uint32) {},
		Synced: func(int64) {},
		Remove: func(name string) { mem.Remove(name) },
		Free:   func(table *Table) { f.removed = append(f.removed, table.ID) },
	}
	f.Limit.Store(1 << 20)
	return f
}

// tier is one whose table has the keys from lo up to, not including, hi; their values are at the offset of the key plus
// 100000 times the tier's number.
func (f *forest) tier(id uint64, lo, hi int) Tier {
	f.t.Helper()
	w := f.NewWriter()
	for i := lo; i < hi; i++ {
		e := table.Entry{Place: 7<<32 | id*100000 + uint64(i), Len: 7}
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
func (f *forest) compact(v *Version, m Compaction) (*Version, []*Table) {
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
	merged, made := f.compact(v, Compaction{})
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
	merged, made := f.compact(v, Compaction{Small: 1 << 20})
	if len(merged.Tables) != 1 || len(made) != 1 {
		t.Errorf("%d tables, %d made", len(merged.Tables), len(made))
	}
	f.check(merged, 1000, from)
	merged, made = f.compact(v, Compaction{Small: 1})
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
	merged, _ := f.compact(v, Compaction{Victims: map[uint32]bool{}})
	f.check(merged, 3000, from)
	f.check(old, 3000, func(i int) uint64 {
		if i < 500 {
			return 1
		}
		return 2
	})
}

// TestNeededRangeDeletes: range deletes that no table has a key in do not cut tables in two.
func TestNeededRangeDeletes(t *testing.T) {
	f := newForest(t)
	v := f.version(f.tier(2, 200, 300), f.tier(1, 0, 1000))
	behind := func(i int) []byte { return append(testKey(i), 0) }
	before := func(i int) []byte { k := testKey(i); return append(k[:len(k)-1], k[len(k)-1]-1, 0xff) }
	for _, x := range []struct {
		name   string
		lo, hi []byte
		needed bool
	}{
		{"between two keys", behind(101), before(102), false},
		{"between two keys of both tables", behind(251), before(252), false},
		{"up to a key", behind(101), testKey(102), false},
		{"a key", testKey(101), behind(101), true},
		{"up to behind a key", behind(101), behind(102), true},
		{"a key of both tables", testKey(251), behind(251), true},
		{"all from a key on", testKey(999), nil, true},
		{"all up to a key", nil, testKey(1), true},
	} {
		ts := v.Needed(with(nil, []RangeTombstone{{x.lo, x.hi, 1}}))
		if ts.Empty() == x.needed || ts.Seq != 1 {
			t.Errorf("%s: %d ranges, up to %d", x.name, ts.Len(), ts.Seq)
		}
	}
	var mixed *RangeTombstones
	for i := range 900 { // every tenth has a key
		lo, hi := behind(i), before(i+1)
		if i%10 == 0 {
			lo = testKey(i)
		}
		mixed = mixed.With([]RangeTombstone{{lo, hi, uint64(i) + 1}}, func(lo, hi []byte, after uint64) bool { return false })
	}
	needed := v.Needed(mixed)
	if mixed.Len() != 900 || needed.Len() != 90 || needed.valid() != nil {
		t.Errorf("%d of %d ranges are needed, %v", needed.Len(), mixed.Len(), needed.valid())
	}
	f.check(f.version(DeleteRanges(v.CopyTiers(), needed)...), 1000, func(i int) uint64 {
		switch {
		case i < 900 && i%10 == 0:
			return 0
		case i >= 200 && i < 300:
			return 2
		}
		return 1
	})
	f = newForest(t)
	v = f.version(f.tier(1, 0, 1000))
	f.FS.(*vfs.Mem).SetHook(vfs.Faults(vfs.Fault{Kind: vfs.OpRead}))
	ts := with(nil, []RangeTombstone{{behind(101), before(102), 1}})
	if needed := v.Needed(ts); needed.Len() != 1 {
		t.Error("what cannot be read has no key in a range")
	}
}

// TestWornTables: a table whose cuts have cost as much as writing it again is rewritten, others of its tier are not.
func TestWornTables(t *testing.T) {
	f := newForest(t)
	first, second := f.tier(1, 0, 2000), f.tier(1, 2000, 4000)
	tiers := []Tier{f.tier(2, 100, 110), {1, slices.Concat(first.Refs, second.Refs)}}
	var ts *RangeTombstones
	for i := 1; i < 2000; i += 2 {
		ts = with(ts, []RangeTombstone{{testKey(i), testKey(i + 1), uint64(i)}})
	}
	ts = with(ts, []RangeTombstone{{testKey(3000), testKey(3001), 2000}})
	v := f.version(DeleteRanges(tiers, ts)...)
	from := func(i int) uint64 {
		switch {
		case i < 2000 && i%2 == 1 || i == 3000:
			return 0
		case i >= 100 && i < 110:
			return 2
		}
		return 1
	}
	f.check(v, 4000, from)
	if v.Tiers[1].Worn() {
		t.Error("the tier is worn already")
	}
	table := first.Refs[0].Table
	for n := int64(1); ; n++ {
		v.Wear(1)
		if !v.Tiers[1].Worn() {
			continue
		} else if n*999*cutCost > table.mostWear+1<<20 {
			t.Errorf("the tier is worn after %d manifests", n)
		}
		break
	}
	if v.Tiers[0].Worn() {
		t.Error("the tier above the worn one is worn")
	}
	table.Damaged.Store(true)
	if v.Tiers[1].Worn() {
		t.Error("the tier, which is damaged, is worn")
	}
	table.Damaged.Store(false)
	s := v.Plan(Compaction{Oldest: 1, Newest: 1})
	w := f.NewWriter()
	never := func() bool { return false }
	if err := errors.Join(s.Rewrite(w, Control{Full: never, Stopped: never}), w.Close()); err != nil {
		t.Fatal(err)
	}
	merged := f.version(s.Tiers(v, w)...)
	stays := merged.Has(second.Refs[0].Table)
	if n := len(merged.Tiers[1].Refs); n != 3 || len(w.Tables) != 1 || !stays {
		t.Errorf("%d refs, %d tables made; the other table stays: %v", n, len(w.Tables), stays)
	}
	f.check(v, 4000, from)
	f.check(merged, 4000, from)
	for i := range merged.Tiers {
		if merged.Tiers[i].Worn() {
			t.Errorf("tier %d is worn still", merged.Tiers[i].ID)
		}
	}
}

// TestAbandon: nothing is left of what was written.
func TestAbandon(t *testing.T) {
	f := newForest(t)
	f.Limit.Store(8 << 10)
	w := f.NewWriter()
	for i := range 5000 {
		if err := w.Add(testKey(i), table.Entry{Place: 7<<32 | uint64(i*100), Len: 7}); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.Tables) < 2 || w.Written() < int64(len(w.Tables))*f.Limit.Load() {
		t.Errorf("%d tables, %d bytes", len(w.Tables), w.Written())
	}
	w.Abandon()
	if names, err := f.FS.List(f.Dir); err != nil || len(names) > 0 {
		t.Errorf("%v, %v are left", names, err)
	}
	if _, err := f.OpenTable(1); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("opening %s: %v", format.TableName(f.Dir, 1), err)
	}
}

// TestWriterSyncs: Close returns when all tables are synced, or with the error of one that is not.
func TestWriterSyncs(t *testing.T) {
	for failing := range 4 {
		for _, inTurn := range []bool{true, false} {
			f := newForest(t)
			f.Limit.Store(8 << 10)
			f.InTurn = inTurn
			fsys, syncs := f.FS.(*vfs.Mem), atomic.Int64{}
			fault := vfs.Faults(vfs.Fault{Kind: vfs.OpSync, Skip: int64(failing), Count: 1})
			fsys.SetHook(func(op vfs.Op) error {
				if op.Kind == vfs.OpSync {
					syncs.Add(1)
				}
				return fault(op)
			})
			w := f.NewWriter()
			for i := 0; len(w.Tables) < 2; i++ {
				if err := w.Add(testKey(i), table.Entry{Place: 7<<32 | uint64(i*100), Len: 7}); err != nil {
					t.Fatal(err)
				}
			}
			err := w.Close()
			if n := int(syncs.Load()); n != 3 || errors.Is(err, syscall.EIO) != (failing < 3) {
				t.Errorf("sync %d of %d fails: %v", failing, n, err)
			}
			w.Abandon()
			if names, err := f.FS.List(f.Dir); err != nil || len(names) > 0 {
				t.Errorf("%v, %v are left", names, err)
			}
		}
	}
}

// TestAfterLastWritten: a compaction goes on behind the table of the oldest tier that was written last, all of it where
// that is cut, and with the first key where it is the tier's last.
func TestAfterLastWritten(t *testing.T) {
	f := newForest(t)
	c, b, a := f.tier(1, 2000, 2100), f.tier(1, 1000, 1100), f.tier(1, 0, 100) // a was written last
	ts := with(nil, []RangeTombstone{{testKey(50), testKey(60), 1}})
	for _, x := range []struct {
		oldest []Tier
		want   []byte
	}{
		{nil, nil}, {[]Tier{a}, nil}, {[]Tier{b, c}, testKey(2000)}, {[]Tier{a, b, c}, testKey(1000)},
		{DeleteRanges([]Tier{a, b}, ts), testKey(1000)},
	} {
		tiers := []Tier{f.tier(2, 0, 3000)}
		if len(x.oldest) > 0 {
			oldest := Tier{ID: 1}
			for _, t := range x.oldest {
				oldest.Refs = append(oldest.Refs, t.Refs...)
			}
			tiers = append(tiers, oldest)
		}
		if got := f.version(tiers...).AfterLastWritten(); !bytes.Equal(got, x.want) {
			t.Errorf("%q, want %q", got, x.want)
		}
	}
	if got := f.version().AfterLastWritten(); got != nil {
		t.Errorf("%q in an empty database", got)
	}
}

// TestNextVersion: what a version says of its segments does not depend on whether it was made of the one before or of
// nothing, through tables that come, are cut, counted and go; and it holds each segment that it names once.
func TestNextVersion(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 7))
	f := newForest(t)
	segs := map[uint32]*values{}
	find := func(id uint32) Segment {
		if segs[id] == nil {
			segs[id] = new(values)
		}
		return segs[id]
	}
	v := NewVersion(nil, find)
	for step := range 300 {
		tiers := v.CopyTiers()
		switch n := rnd.IntN(10); {
		case n < 4 || len(tiers) == 0:
			w := f.NewWriter()
			at, most := rnd.IntN(500), 1+rnd.IntN(20)
			for i := range 1 + rnd.IntN(100) {
				e := table.Entry{Place: uint64(1+step/20+rnd.IntN(most))<<32 | uint64(i*10), Len: 7}
				if err := w.Add(testKey(at+i), e); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			tiers = slices.Insert(tiers, 0, Tier{uint64(step), Refs(w.Tables)})
		case n < 7:
			at := rnd.IntN(600)
			tiers = DeleteRanges(tiers, with(nil, []RangeTombstone{{testKey(at), testKey(at + 1 + rnd.IntN(60)), 1}}))
		case n < 8:
			v.CountCuts()
		default:
			i := rnd.IntN(len(tiers))
			tiers = slices.Delete(tiers, i, i+1)
		}
		next := v.Next(tiers, func(id uint32) Segment {
			if v.Segment(id) != nil {
				t.Fatalf("step %d: segment %d is looked for, which the version before has", step, id)
			}
			return find(id)
		})
		v.Release()
		v = next
		anew := NewVersion(tiers, find)
		if got, want := v.Live(), anew.Live(); !maps.Equal(got, want) {
			t.Fatalf("step %d: live are %v, want %v", step, got, want)
		}
		anew.Release()
		live := map[uint32]int64{}
		for i := range v.Tiers {
			for r := range v.Tiers[i].counted() {
				for _, u := range r.uses() {
					live[u.ID] += u.Bytes
				}
			}
		}
		for id, s := range segs {
			n, named := v.Live()[id]
			if held := v.Segment(id) == s; n != live[id] || held != named || held != (s.refs == 1) || s.refs > 1 {
				t.Fatalf("step %d: segment %d has %d bytes, want %d, and %d references; named: %v", step, id, n, live[id],
					s.refs, named)
			}
		}
	}
	v.Release()
	for id, s := range segs {
		if s.refs != 0 {
			t.Errorf("%d references to segment %d are left", s.refs, id)
		}
	}
}

// TestFindSegments: a version finds each of its segments, whatever numbers they have, and no others.
func TestFindSegments(t *testing.T) {
	for _, step := range []uint32{1, 2, 7, 8, 1 << 10, 1 << 22} {
		f := newForest(t)
		w := f.NewWriter()
		for i := range 300 {
			e := table.Entry{Place: uint64(step)*uint64(i+1)<<32 | format.SegmentHeaderSize, Len: 1}
			if err := w.Add(testKey(i), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		v := NewVersion([]Tier{{ID: 1, Refs: Refs(w.Tables)}}, func(uint32) Segment { return new(stored) })
		for i := range uint32(300) {
			if at := v.find(step * (i + 1)); at != int(i) {
				t.Errorf("segment %d of those %d apart is found at %d", i, step, at)
			}
			if at := v.find(step*(i+1) + 1); step > 1 && at >= 0 {
				t.Errorf("segment %d is found, which is none of the version's", step*(i+1)+1)
			}
		}
		v.Release()
	}
}
