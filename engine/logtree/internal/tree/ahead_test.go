package tree

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// stored is a segment in memory that counts reads, and has a place that cannot be read.
type stored struct {
	b       []byte
	damaged int64 // 0: none
	reads   int
	bytes   int64 // of reads
}

func (s *stored) Acquire()                 {}
func (s *stored) Release()                 {}
func (s *stored) Prefetch(int64, int)      {}
func (s *stored) Filled() int64            { return int64(len(s.b)) }
func (s *stored) Mapped(int64, int) []byte { return nil }

func (s *stored) Read(dst []byte, off int64, n int) ([]byte, error) {
	s.bytes += int64(n)
	if s.reads++; off <= s.damaged && s.damaged < off+int64(n) {
		return dst, errDamaged
	}
	return append(dst, s.b[off:off+int64(n)]...), nil
}

func (s *stored) Value(dst []byte, off int64, n int, sum uint32) ([]byte, error) {
	old := len(dst)
	dst, err := s.Read(dst, off, n)
	if err == nil && format.Checksum(dst[old:]) != sum {
		return dst[:old], errDamaged
	}
	return dst, err
}

// TestReadAhead: a long walk over values that lie in the order of their keys in many segments takes few reads, both
// ways, and one over values that lie anywhere none but theirs. What is damaged is named, and what lies before it read.
func TestReadAhead(t *testing.T) {
	const size, keys, segments = 100, 20_000, 40
	build := func(order func(i int) int) (*Version, []*stored) {
		f := newForest(t)
		list := make([]*stored, segments)
		for i := range list {
			list[i] = &stored{b: make([]byte, format.SegmentHeaderSize)}
		}
		entries := make([]table.Entry, keys)
		for n := range keys {
			i := order(n)
			// Which segment has a key follows from nothing that its neighbours tell.
			id := int(uint64(i) * 2654435761 >> 7 % segments)
			s := list[id]
			value := fmt.Appendf(nil, "%0*d", size, i)
			entries[i] = table.Entry{Place: uint64(id+1)<<32 | uint64(len(s.b)), Len: uint32(size), Sum: format.Checksum(value)}
			s.b = append(append(s.b, value...), "a key and more"...)
		}
		w := f.NewWriter()
		for i, e := range entries {
			if err := w.Add(testKey(i), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		v := NewVersion([]Tier{{ID: 1, Refs: Refs(w.Tables)}}, func(id uint32) Segment { return list[id-1] })
		t.Cleanup(v.Release)
		return v, list
	}
	walk := func(v *Version, reverse bool) (n int, err error) {
		var it Iterator
		it.Begin(holdfast.Range{Reverse: reverse})
		it.Start(v)
		for it.Next() {
			i := n
			if reverse {
				i = keys - 1 - n
			}
			if !bytes.Equal(it.Key(), testKey(i)) || !bytes.Equal(it.Value(), fmt.Appendf(nil, "%0*d", size, i)) {
				t.Fatalf("%q = %q at %d", it.Key(), it.Value(), i)
			}
			n++
		}
		_, err = it.Close()
		return n, err
	}
	reads := func(list []*stored) (n int) {
		for _, s := range list {
			n += s.reads
			s.reads = 0
		}
		return n
	}

	v, list := build(func(i int) int { return i })
	for _, reverse := range []bool{false, true, false} {
		if n, err := walk(v, reverse); n != keys || err != nil {
			t.Fatalf("%d keys, %v", n, err)
		}
		if n := reads(list); n > keys/8 {
			t.Errorf("%d reads for %d keys in order", n, keys)
		}
	}
	apart, places := build(func(i int) int { return i * 7919 % keys })
	if n, err := walk(apart, false); n != keys || err != nil {
		t.Fatalf("%d keys, %v", n, err)
	}
	if n := reads(places); n > keys*21/20 {
		t.Errorf("%d reads for %d keys that lie apart", n, keys)
	}

	// Of the value that cannot be read, and of no other one, the walk says so.
	bad := keys * 3 / 4
	it := v.Tiers[0].Refs[0].Table.Reader.Iter()
	it.SeekGE(testKey(bad))
	place := it.Entry().Place
	list[place>>32-1].damaged = int64(uint32(place))
	if n, err := walk(v, false); n != bad || !errors.Is(err, errDamaged) {
		t.Errorf("%d keys before damage at %d, %v", n, bad, err)
	}
	list[place>>32-1].damaged = 0
	list[place>>32-1].b[uint32(place)]++
	if n, err := walk(v, false); n != bad || !errors.Is(err, errDamaged) {
		t.Errorf("%d keys before a changed byte at %d, %v", n, bad, err)
	}
}

// TestFirstReadOfScan: the first values of a walk to a known end are read by one call, as far as a page of events goes,
// both ways. A walk without an end reads little, and a get its value alone. What is damaged among them is named, behind
// all that comes before it.
func TestFirstReadOfScan(t *testing.T) {
	const keys = 1000
	for _, size := range []int{0, 100, 2000, 7500, 12_000, 40_000} {
		f, s := newForest(t), &stored{b: make([]byte, format.SegmentHeaderSize)}
		w := f.NewWriter()
		value := func(i int) []byte {
			if size == 0 {
				return nil
			}
			return fmt.Appendf(nil, "%0*d", size, i)
		}
		places := make([]int64, keys)
		for i := range keys {
			places[i] = int64(len(s.b))
			e := table.Entry{Place: 1<<32 | uint64(len(s.b)), Len: uint32(size), Sum: format.Checksum(value(i))}
			s.b = append(append(s.b, value(i)...), "a key and more"...)
			if err := w.Add(testKey(i), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		v := NewVersion([]Tier{{ID: 1, Refs: Refs(w.Tables)}}, func(uint32) Segment { return s })

		// walk returns what was read until the first key came, and goes on to the end.
		walk := func(r holdfast.Range, lo, hi int) (reads int, bytes int64, err error) {
			t.Helper()
			s.reads, s.bytes = 0, 0
			var it Iterator
			it.Begin(r)
			it.Start(v)
			n := 0
			for ; it.Next(); n++ {
				if n == 0 {
					reads, bytes = s.reads, s.bytes
				}
				i := lo + n
				if r.Reverse {
					i = hi - 1 - n
				}
				if string(it.Key()) != string(testKey(i)) || string(it.Value()) != string(value(i)) {
					t.Fatalf("%d bytes: %q with %d bytes at %d", size, it.Key(), len(it.Value()), i)
				}
			}
			if _, err = it.Close(); err == nil && n != hi-lo {
				t.Fatalf("%d bytes: %d keys of %d", size, n, hi-lo)
			}
			return reads, bytes, err
		}
		for lo := 0; lo < keys-100; lo += 37 {
			for _, n := range []int{1, 2, 3, 100} {
				for _, reverse := range []bool{false, true} {
					r := holdfast.Range{Lo: testKey(lo), Hi: testKey(lo + n), Reverse: reverse}
					reads, bytes, err := walk(r, lo, lo+n)

					// As many values as begin within the reach, and no byte of any other.
					got := min(n, maxAhead)
					for got > 1 && (got-1)*(size+len(testKey(0))) >= firstReach {
						got--
					}
					most := int64(got * (size + len("a key and more")))
					if err != nil || reads > 1 && bytes > firstReach+int64(size) || bytes > most || size > 0 &&
						(reads != 1 && got*(size+14) <= mostTogether || bytes < int64(got*size)) {
						t.Fatalf("%d keys of %d bytes, reverse %v: %d reads of %d bytes, %v", n, size, reverse, reads, bytes, err)
					}
				}
			}
			if _, bytes, err := walk(holdfast.Range{Lo: testKey(lo)}, lo, keys); err != nil ||
				bytes > int64(max(minArena, firstAhead*14))+int64(size) {
				t.Fatalf("without an end: %d bytes, %v", bytes, err)
			}
			s.reads, s.bytes = 0, 0
			if got, err := v.Get(nil, testKey(lo)); err != nil || string(got) != string(value(lo)) || s.bytes != int64(size) {
				t.Fatalf("a get has read %d bytes, %v", s.bytes, err)
			}
		}

		// Damage in the middle of what is read at once: what comes before it is handed out, then the error.
		for bad := 10; bad < 14 && size > 0; bad++ {
			r := holdfast.Range{Lo: testKey(10), Hi: testKey(20)}
			var it Iterator
			check := func(what string) {
				t.Helper()
				n := 0
				it.Begin(r)
				it.Start(v)
				for ; it.Next(); n++ {
					if string(it.Value()) != string(value(10+n)) {
						t.Fatalf("a wrong value of %d bytes", size)
					}
				}
				if _, err := it.Close(); n != bad-10 || !errors.Is(err, errDamaged) {
					t.Errorf("%d bytes, %s at %d: %d keys, %v", size, what, bad, n, err)
				}
				it = Iterator{}
			}
			s.damaged = places[bad]
			check("cannot be read")
			s.damaged = 0
			s.b[places[bad]]++
			check("changed")
			s.b[places[bad]]--
		}
		v.Release()
	}
}

// TestKeysBeyondRoom: of long keys that are near, a walk copies those that it has room for, and no others.
func TestKeysBeyondRoom(t *testing.T) {
	const keys, size = 500, 100
	f, s := newForest(t), &stored{b: make([]byte, format.SegmentHeaderSize)}
	w := f.NewWriter()
	prefix := bytes.Repeat([]byte("k"), 1000)
	key := func(i int) []byte { return append(bytes.Clone(prefix), testKey(i)...) }
	value := func(i int) []byte { return fmt.Appendf(nil, "%0*d", size, i) }
	for i := range keys {
		e := table.Entry{Place: 1<<32 | uint64(len(s.b)), Len: size, Sum: format.Checksum(value(i))}
		s.b = append(append(s.b, value(i)...), make([]byte, farStream+1)...)
		if err := w.Add(key(i), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	v := NewVersion([]Tier{{ID: 1, Refs: Refs(w.Tables)}}, func(uint32) Segment { return s })
	defer v.Release()

	for _, reverse := range []bool{false, true} {
		var it Iterator
		it.Begin(holdfast.Range{Reverse: reverse})
		it.Start(v)
		for n, room := 0, 0; ; n++ {
			if it.at+1 >= len(it.items) {
				room = it.w.bytes
			}
			if !it.Next() {
				if n != keys {
					t.Errorf("%d keys of %d, %v", n, keys, it.Err())
				}
				break
			}
			i := n
			if reverse {
				i = keys - 1 - n
			}
			if !bytes.Equal(it.Key(), key(i)) || !bytes.Equal(it.Value(), value(i)) {
				t.Fatalf("%.20q... = %q at %d", it.Key(), it.Value(), i)
			}
			if taken := len(it.items) * (len(prefix) + len(testKey(0)) + size); taken > room+2*len(prefix) {
				t.Fatalf("%d bytes were taken where there was room for %d", taken, room)
			}
			if got := len(it.w.arena); !reverse && got > room+2*len(prefix) {
				t.Fatalf("%d bytes were copied where there was room for %d", got, room)
			}
		}
		if _, err := it.Close(); err != nil {
			t.Error(err)
		}
	}
}
