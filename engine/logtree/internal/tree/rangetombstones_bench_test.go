package tree

import (
	"encoding/binary"
	"fmt"
	"testing"
)

// rangeDeletes are shapes of range deletes: the i-th of them.
var rangeDeletes = []struct {
	name string
	of   func(i int) (lo, hi uint64)
}{
	{"scattered", func(i int) (lo, hi uint64) { lo = uint64(i+1) * 0x9E3779B97F4A7C15; return lo, lo + 1 }},
	{"adjacent", func(i int) (lo, hi uint64) { return uint64(i), uint64(i) + 1 }},
	{"head", func(i int) (lo, hi uint64) { return 0, uint64(i) + 1 }},
	{"sliding", func(i int) (lo, hi uint64) { return uint64(i), uint64(i) + 10 }},
}

// deleteRanges adds n range deletes one by one, to what no key is in.
func deleteRanges(n int, of func(i int) (lo, hi uint64)) (ts *RangeTombstones) {
	for i := range n {
		lo, hi := of(i)
		ts = with(ts, []RangeTombstone{{binary.BigEndian.AppendUint64(nil, lo), binary.BigEndian.AppendUint64(nil, hi),
			uint64(i) + 1}})
	}
	return ts
}

// BenchmarkRangeDelete measures a range delete, one of n in a memtable, on average.
func BenchmarkRangeDelete(b *testing.B) {
	for _, shape := range rangeDeletes {
		for _, n := range []int{1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", shape.name, n), func(b *testing.B) {
				for range b.N {
					deleteRanges(n, shape.of)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/delete")
			})
		}
	}
}

// BenchmarkCovers measures what a read pays for n scattered range deletes.
func BenchmarkCovers(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ts := deleteRanges(n, rangeDeletes[0].of)
			var key [8]byte
			for i := 0; b.Loop(); i++ {
				binary.BigEndian.PutUint64(key[:], uint64(i)*0x9E3779B97F4A7C15+uint64(i&1))
				ts.Covers(key[:])
			}
		})
	}
}
