package logtree

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
)

func open(tb testing.TB) holdfast.Engine {
	tb.Helper()
	e, err := Open(tb.TempDir(), holdfast.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := e.Close(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// BenchmarkAppend is the event store's append over the engine, by level and events in a batch.
func BenchmarkAppend(b *testing.B) {
	for _, level := range holdfast.Levels() {
		for _, n := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d", level, n), func(b *testing.B) {
				store, err := event.Open(open(b), event.Options{Level: level})
				if err != nil {
					b.Fatal(err)
				}
				events := make([]event.Event, n)
				for i := range events {
					events[i] = event.Event{Type: "BenchEvent", Data: fmt.Appendf(nil, `{"index": %d}`, i)}
				}
				ctx := context.Background()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := store.Append(ctx, events...); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
				if err := store.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkCommit is the engine alone: one commit of one small key.
func BenchmarkCommit(b *testing.B) {
	for _, level := range holdfast.Levels() {
		b.Run(level.String(), func(b *testing.B) {
			e := open(b)
			var batch holdfast.Batch
			key := make([]byte, 0, 16)
			value := make([]byte, 100)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				batch.Reset()
				i++
				key = fmt.Appendf(key[:0], "key_%012d", i)
				batch.Set(key, value)
				if err := holdfast.Commit(e, &batch, level); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
