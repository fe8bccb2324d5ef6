package all_test

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// benchEngines runs f on every engine at each of the levels that it gives as asked for, in a new directory.
func benchEngines(b *testing.B, levels []holdfast.Level,
	f func(b *testing.B, e holdfast.Engine, level holdfast.Level)) {
	for _, entry := range all.Engines() {
		for _, level := range levels {
			if entry.Describe().Promise(level).Given != level {
				continue
			}
			b.Run(fmt.Sprintf("%s/%v", entry.Name, level), func(b *testing.B) {
				dir := ""
				if entry.Describe().Strongest() > holdfast.Memory {
					dir = filepath.Join(b.TempDir(), "db")
				}
				e, err := entry.Open(dir, holdfast.Options{Level: level})
				if err != nil {
					b.Fatal(err)
				}
				f(b, e, level)
				b.StopTimer()
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func benchKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// BenchmarkCommit commits values of 100 bytes under ascending keys: one or a hundred a batch, from one goroutine or 64.
// An operation is a batch.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct{ clients, keys int }{{1, 1}, {1, 100}, {64, 1}} {
		b.Run(fmt.Sprintf("clients=%d/keys=%d", c.clients, c.keys), func(b *testing.B) {
			benchEngines(b, holdfast.Levels(), func(b *testing.B, e holdfast.Engine, level holdfast.Level) {
				var next atomic.Uint64
				var clients sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for range c.clients {
					clients.Go(func() {
						var batch holdfast.Batch
						value := make([]byte, 100)
						for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
							batch.Reset()
							for i := range c.keys {
								batch.Set(benchKey(n*uint64(c.keys)+uint64(i)), value)
							}
							if err := holdfast.Commit(e, &batch, level); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				clients.Wait()
				if m := e.Metrics(); m.Groups > 0 {
					b.ReportMetric(float64(m.Commits)/float64(m.Groups), "commits/group")
				}
			})
		})
	}
}

// BenchmarkRead reads single keys, and ranges of a hundred, of 100,000. Reading does not depend on the level.
func BenchmarkRead(b *testing.B) {
	const keys = 100_000
	benchEngines(b, []holdfast.Level{holdfast.Process}, func(b *testing.B, e holdfast.Engine, level holdfast.Level) {
		var batch holdfast.Batch
		for n := range uint64(keys) {
			if batch.Set(benchKey(n), make([]byte, 100)); batch.Len() == 1000 {
				try(b, holdfast.Commit(e, &batch, level))
				batch.Reset()
			}
		}
		n := uint64(0)
		b.Run("get", func(b *testing.B) {
			var value []byte
			for b.Loop() {
				n = (n + 7919) % keys
				var err error
				if value, err = e.Get(value[:0], benchKey(n)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("scan", func(b *testing.B) {
			for b.Loop() {
				n = (n + 7919) % (keys - 100)
				it, found := e.Scan(holdfast.Range{Lo: benchKey(n), Hi: benchKey(n + 100)}), 0
				for it.Next() {
					found++
				}
				if err := it.Close(); err != nil || found != 100 {
					b.Fatal(found, err)
				}
			}
		})
	})
}
