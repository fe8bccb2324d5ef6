package tree

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// apart is a segment whose values lie far from each other. It answers with what the test wants.
type apart struct {
	refs    int
	mapped  func(off int64, n int) []byte
	pause   time.Duration // of a read call
	damaged int64         // the offset that cannot be read, 0 if there is none
	called  []int64
	fetched []int64
}

var errDamaged = errors.New("cannot be read")

func (s *apart) Acquire() { s.refs++ }
func (s *apart) Release() { s.refs-- }

func (s *apart) Filled() int64 { return 1 << 30 }

func (s *apart) Mapped(off int64, n int) []byte {
	if s.mapped == nil {
		return nil
	}
	return s.mapped(off, n)
}

func (s *apart) Prefetch(off int64, _ int) { s.fetched = append(s.fetched, off) }

func (s *apart) Read(dst []byte, _ int64, _ int) ([]byte, error) { return dst, errDamaged }

func (s *apart) Value(dst []byte, off int64, n int, _ uint32) ([]byte, error) {
	for start := time.Now(); time.Since(start) < s.pause; {
	}
	if s.called = append(s.called, off); off == s.damaged {
		return dst, errDamaged
	}
	return append(dst, apartValue(off, n)...), nil
}

func apartValue(off int64, n int) []byte { return fmt.Appendf(nil, "%0*d", n, off) }

// walkApart walks over 100 keys of a version, half of them in each of two tiers, whose values the segment has in an
// order of its own. It returns how many keys came, all with the right values, and the error.
func walkApart(t *testing.T, s *apart, reverse bool) (n int, err error) {
	t.Helper()
	f := newForest(t)
	place := func(i int) int64 { return int64(1+i*37%100) * 1_000_000 }
	var tiers []Tier
	for id := range 2 {
		w := f.NewWriter()
		for i := id; i < 100; i += 2 {
			size := 20
			e := table.Entry{Place: 7<<32 | uint64(place(i)), Len: uint32(size)}
			e.Sum = format.Checksum(apartValue(place(i), size))
			if err := w.Add(testKey(i), e); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		tiers = append(tiers, Tier{ID: uint64(2 - id), Refs: Refs(w.Tables)})
	}
	v := NewVersion(tiers, func(uint32) Segment { return s })
	defer v.Release()
	var it Iterator
	it.Begin(holdfast.Range{Reverse: reverse})
	it.Start(v)
	defer it.Close()
	for ; it.Next(); n++ {
		i := n
		if reverse {
			i = 99 - n
		}
		if !bytes.Equal(it.Key(), testKey(i)) || !bytes.Equal(it.Value(), apartValue(place(i), 20)) {
			t.Fatalf("number %d: %q has %q", n, it.Key(), it.Value())
		}
	}
	return n, it.Err()
}

// TestMappedValues: values that a mapping has are not read by calls, unless they are not what the index names, or
// cannot be touched.
func TestMappedValues(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		good := &apart{mapped: apartValue}
		if n, err := walkApart(t, good, reverse); n != 100 || err != nil || len(good.called) > 0 {
			t.Errorf("%d keys, error %v, %d read calls", n, err, len(good.called))
		}
		other := &apart{mapped: func(off int64, n int) []byte { return apartValue(off+off%3_000_000, n) }}
		n, err := walkApart(t, other, reverse)
		if k := len(other.called); n != 100 || err != nil || k < 50 || k > 80 {
			t.Errorf("two values of three have changed: %d keys, error %v, %d read calls", n, err, k)
		}
		gone := &apart{mapped: unreadable(t)}
		if n, err := walkApart(t, gone, reverse); n != 100 || err != nil || len(gone.called) != 100 {
			t.Errorf("the mapping faults: %d keys, error %v, %d read calls", n, err, len(gone.called))
		}
	}
}

// TestDamagedValueEndsWalk: what comes before a value that cannot be read is handed out, and then the error shows.
func TestDamagedValueEndsWalk(t *testing.T) {
	for i := range 100 {
		s := &apart{damaged: int64(1+i*37%100) * 1_000_000}
		if n, err := walkApart(t, s, false); n != i || !errors.Is(err, errDamaged) {
			t.Fatalf("value %d is damaged: %d keys came, and error %v", i, n, err)
		}
	}
}

// TestPrefetch: after two slow reads, values are asked for before they are read.
func TestPrefetch(t *testing.T) {
	s := &apart{pause: 2 * slowRead}
	if n, err := walkApart(t, s, false); n != 100 || err != nil {
		t.Fatalf("%d keys, error %v", n, err)
	}
	if !slices.Equal(s.called[manySlow:], s.fetched) {
		t.Errorf("read %v\nprefetched %v", s.called, s.fetched)
	}
}
