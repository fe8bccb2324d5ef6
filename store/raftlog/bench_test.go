package raftlog_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/raft"
	raftbench "github.com/hashicorp/raft/bench"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// benchTargets calls f for an empty store on every engine at every level.
func benchTargets(b *testing.B, f func(b *testing.B, s *raftlog.Store)) {
	storetest.Benchmarks(b, func(b *testing.B, tg *target) {
		s := openStore(b, tg.Engine, raftlog.Options{Level: tg.Level})
		f(b, s)
		b.StopTimer()
		closeStore(b, s)
	})
}

// The library's own suite, its calls as they are, on every engine at every level.

func BenchmarkFirstIndex(b *testing.B) { logSuite(b, raftbench.FirstIndex) }
func BenchmarkLastIndex(b *testing.B)  { logSuite(b, raftbench.LastIndex) }
func BenchmarkGetLog(b *testing.B)     { logSuite(b, raftbench.GetLog) }
func BenchmarkStoreLog(b *testing.B)   { logSuite(b, raftbench.StoreLog) }
func BenchmarkStoreLogs(b *testing.B)  { logSuite(b, raftbench.StoreLogs) }
func BenchmarkDeleteRange(b *testing.B) {
	logSuite(b, raftbench.DeleteRange)
}
func BenchmarkSet(b *testing.B)       { stableSuite(b, raftbench.Set) }
func BenchmarkGet(b *testing.B)       { stableSuite(b, raftbench.Get) }
func BenchmarkSetUint64(b *testing.B) { stableSuite(b, raftbench.SetUint64) }
func BenchmarkGetUint64(b *testing.B) { stableSuite(b, raftbench.GetUint64) }

func logSuite(b *testing.B, run func(*testing.B, raft.LogStore)) {
	benchTargets(b, func(b *testing.B, s *raftlog.Store) { run(b, s) })
}

func stableSuite(b *testing.B, run func(*testing.B, raft.StableStore)) {
	benchTargets(b, func(b *testing.B, s *raftlog.Store) { run(b, s) })
}

// logs of n entries of 128 bytes, from index first on.
func batchOf(first uint64, n int) []*raft.Log {
	logs := make([]*raft.Log, n)
	data := make([]byte, 128)
	for i := range logs {
		logs[i] = &raft.Log{Index: first + uint64(i), Term: 7, Data: data, AppendedAt: entry(1, 1).AppendedAt}
	}
	return logs
}

// BenchmarkAppend stores 1, 16 and 128 entries of 128 bytes a call on logtree.
func BenchmarkAppend(b *testing.B) {
	for _, level := range holdfast.Levels()[:3] {
		for _, n := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("%s/%d", level, n), func(b *testing.B) {
				s := benchStore(b, level)
				logs := batchOf(1, n)
				b.ReportAllocs()
				for b.Loop() {
					try(b, s.StoreLogs(logs))
					for _, log := range logs {
						log.Index += uint64(n)
					}
				}
				b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
			})
		}
	}
}

// BenchmarkGetLogRandom gets entries at random out of a million of 128 bytes on logtree.
func BenchmarkGetLogRandom(b *testing.B) {
	const n = 1_000_000
	s := benchStore(b, holdfast.Process)
	for first := uint64(1); first <= n; first += 1000 {
		try(b, s.StoreLogs(batchOf(first, 1000)))
	}
	r := rand.New(rand.NewPCG(1, 2))
	var log raft.Log
	b.ReportAllocs()
	for b.Loop() {
		try(b, s.GetLog(1+r.Uint64N(n), &log))
	}
}

// BenchmarkStable reads and writes 11 stable values of 256 bytes on logtree.
func BenchmarkStable(b *testing.B) {
	keys := make([][]byte, 11)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%026d", i)
	}
	value := make([]byte, 256)
	for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power} {
		s := benchStore(b, level)
		b.Run(level.String()+"/set", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				try(b, s.Set(keys[i%11], value))
			}
		})
		b.Run(level.String()+"/get", func(b *testing.B) {
			for _, key := range keys {
				try(b, s.Set(key, value))
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := s.Get(keys[i%11]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchStore(b *testing.B, level holdfast.Level) *raftlog.Store {
	eng, err := logtree.Open(b.TempDir(), holdfast.Options{})
	try(b, err)
	s := openStore(b, eng, raftlog.Options{Level: level})
	b.Cleanup(func() {
		closeStore(b, s)
		try(b, eng.Close())
	})
	return s
}
