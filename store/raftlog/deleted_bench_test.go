package raftlog_test

import (
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// deletedEntries is how many entries are deleted before, or while, what follows is measured.
const deletedEntries = 200_000

func fillBench(b *testing.B, s *raftlog.Store, from uint64) {
	b.Helper()
	for at := from; at <= deletedEntries; at += 1000 {
		try(b, s.StoreLogs(batchOf(at, 1000)))
	}
}

// BenchmarkAfterDeletion opens a store whose log has lost its end, all but one entry, and one whose log was emptied
// and goes on in the middle of what it was. What that takes must not depend on how much was deleted. -benchtime=20x
// is enough.
func BenchmarkAfterDeletion(b *testing.B) {
	weakest(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
		s := openStore(b, eng, raftlog.Options{Level: level})
		open := func(b *testing.B) {
			for b.Loop() {
				closeStore(b, s)
				s = openStore(b, eng, raftlog.Options{Level: level})
			}
		}
		fillBench(b, s, 1)
		remove(b, s, 2, deletedEntries)
		b.Run("open/suffix", open)
		fillBench(b, s, 2)
		remove(b, s, 1, deletedEntries-1)
		b.Run("open/prefix", open)
		remove(b, s, 0, 2*deletedEntries)
		store(b, s, batchOf(deletedEntries/2, 1)...)
		b.Run("open/wiped", open)
		closeStore(b, s)
	})
}

// BenchmarkStoreWhileWiping empties a log and stores one entry in the middle of what it was, and one above it, while
// the removal goes on. -benchtime=3x is enough: each iteration fills a log.
func BenchmarkStoreWhileWiping(b *testing.B) {
	weakest(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
		for name, at := range map[string]uint64{"middle": deletedEntries / 2, "above": 2 * deletedEntries} {
			b.Run(name, func(b *testing.B) {
				s := openStore(b, eng, raftlog.Options{Name: name, Level: level})
				var longest time.Duration
				for b.Loop() {
					b.StopTimer()
					fillBench(b, s, 1)
					wiped := storetest.Async(func() error { return s.DeleteRange(0, 4*deletedEntries) })
					for last := uint64(1); last != 0; {
						last, _ = s.LastIndex()
					}
					b.StartTimer()
					began := time.Now()
					store(b, s, batchOf(at, 1)...)
					b.StopTimer()
					longest = max(longest, time.Since(began))
					for next := at + 1; len(wiped) == 0; next++ { // and on, during the removal
						began := time.Now()
						store(b, s, batchOf(next, 1)...)
						longest = max(longest, time.Since(began))
					}
					try(b, <-wiped)
					remove(b, s, 0, 8*deletedEntries)
					b.StartTimer()
				}
				b.ReportMetric(float64(longest.Microseconds())/1e3, "ms-longest")
				closeStore(b, s)
			})
		}
	})
}

// weakest calls f for every engine at the weakest level that it gives.
func weakest(b *testing.B, f func(b *testing.B, eng holdfast.Engine, level holdfast.Level)) {
	seen := map[string]bool{}
	storetest.Benchmarks(b, func(b *testing.B, tg *target) {
		if !seen[tg.Entry.Name] {
			seen[tg.Entry.Name] = true
			f(b, tg.Engine, tg.Level)
		}
	})
}
