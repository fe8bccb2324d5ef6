package aggregate_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// BenchmarkWriters has 64 writers, each with an aggregate of its own, each of whose writes expects the version that it
// has read. In an event log that is the position of the whole log, in a message store that of the aggregate's stream.
func BenchmarkWriters(b *testing.B) {
	const writers = 64
	data := []byte(fmt.Sprintf(`{"data": "%0112d"}`, 0))
	run := func(b *testing.B, write func(w, i int) (conflicts int, err error)) {
		var conflicts, next atomic.Int64
		var wg sync.WaitGroup
		begun := time.Now()
		b.ResetTimer()
		for w := range writers {
			wg.Go(func() {
				for i := 0; next.Add(1) <= int64(b.N); i++ {
					n, err := write(w, i)
					if err != nil {
						b.Error(err)
						return
					}
					conflicts.Add(int64(n))
				}
			})
		}
		wg.Wait()
		seconds := time.Since(begun).Seconds()
		b.ReportMetric(float64(b.N)/seconds, "writes/s")
		b.ReportMetric(float64(conflicts.Load())/seconds, "conflicts/s")
	}
	for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power} {
		open := func(b *testing.B) holdfast.Engine {
			eng, err := logtree.Open(b.TempDir(), holdfast.Options{})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { storetest.Close(b, eng) })
			return eng
		}
		log := func(b *testing.B, write func(log *event.Store) (int, error)) {
			log, err := event.Open(kv.On(open(b)), event.Options{Level: level})
			if err != nil {
				b.Fatal(err)
			}
			defer storetest.Close(b, log)
			run(b, func(int, int) (int, error) { return write(log) })
		}
		b.Run(level.String()+"/event.Append", func(b *testing.B) {
			log(b, func(log *event.Store) (int, error) {
				_, err := log.Append(ctx, event.Event{Type: "Changed", Data: data})
				return 0, err
			})
		})
		b.Run(level.String()+"/event.AppendAfter", func(b *testing.B) {
			log(b, func(log *event.Store) (conflicts int, err error) {
				for last := log.Last(); ; conflicts++ {
					_, err = log.AppendAfter(ctx, last, event.Event{Type: "Changed", Data: data})
					if !errors.Is(err, event.ErrConflict) {
						return conflicts, err
					}
					last = log.Last()
				}
			})
		})
		b.Run(level.String()+"/message.WriteAfter", func(b *testing.B) {
			s, n := openStore(b, open(b), level)
			defer storetest.Close(b, s)
			run(b, func(w, i int) (int, error) {
				m := message.Message{Type: "Changed", Data: data}
				_, err := n.WriteAfter(ctx, fmt.Sprint("aggregate-", w), int64(i)-1, m)
				return 0, err
			})
		})
	}
}
