package message_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

var (
	benchData = []byte(`{"orderId":"o-1234567","customer":{"id":"c-987654","name":"Ann Example"},"items":[{"sku":"a-1",` +
		`"count":2},{"sku":"b-22","count":1}],"total":1234.56,"currency":"EUR","note":"leave at the door please"}`)
	benchMetadata = []byte(`{"correlationStreamName":"workflow-123","userId":"u-77"}`)
)

func openBench(b *testing.B, name string) holdfast.Engine {
	b.Helper()
	entry, err := storetest.Lookup(name)
	if err != nil {
		b.Fatal(err)
	}
	e, err := entry.Open(b.TempDir(), holdfast.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	return e
}

// BenchmarkWrite writes one message to one of 100 streams, and for comparison appends the same as an event without
// streams.
func BenchmarkWrite(b *testing.B) {
	for _, name := range []string{"logtree", "late"} {
		for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power} {
			for _, clients := range []int{1, 64} {
				b.Run(fmt.Sprintf("%s/%v/clients=%d/message", name, level, clients), func(b *testing.B) {
					s := openStore(b, openBench(b, name), message.Options{Level: level})
					n := namespace(b, s, message.Default)
					run(b, clients, func(i int64) error {
						_, err := n.Write(ctx, fmt.Sprint("order-", i%100), message.Message{Type: "Placed", Data: benchData,
							Metadata: benchMetadata})
						return err
					})
					closeStore(b, s)
				})
				b.Run(fmt.Sprintf("%s/%v/clients=%d/event", name, level, clients), func(b *testing.B) {
					s, err := event.Open(kv.On(openBench(b, name)), event.Options{Level: level})
					if err != nil {
						b.Fatal(err)
					}
					run(b, clients, func(i int64) error {
						_, err := s.Append(ctx, event.Event{Type: "Placed", ID: fmt.Sprintf("%036d", i), Data: benchData,
							Metadata: benchMetadata, Origin: fmt.Sprint("12345678-order-", i%100)})
						return err
					})
					_ = s.Close()
				})
			}
		}
	}
}

// run calls f b.N times from clients.
func run(b *testing.B, clients int, f func(i int64) error) {
	var next atomic.Int64
	b.SetParallelism(max(clients/2, 1)) // on two processors
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := f(next.Add(1)); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
}

// BenchmarkClaim claims messages and acknowledges them, by a call or in a transaction. An operation is one message;
// besides those, consumers have as many as pending says.
func BenchmarkClaim(b *testing.B) {
	for _, each := range []int{1, 32} {
		for _, pending := range []int{0, 500} {
			for _, by := range []string{"call", "tx"} {
				b.Run(fmt.Sprintf("each=%d/pending=%d/%s", each, pending, by), func(b *testing.B) {
					s := openStore(b, openBench(b, "logtree"), message.Options{Level: holdfast.Process})
					n := namespace(b, s, message.Default)
					m := message.Message{Type: "Placed", Data: benchData, Metadata: benchMetadata}
					for left := b.N + pending + each; left > 0; left -= 1000 {
						write(b, n, "order-1", slices.Repeat([]message.Message{m}, min(left, 1000))...)
					}
					sub := subscribe(b, n, "sub", message.SubscriptionOptions{Lease: time.Hour})
					for left := pending; left > 0; {
						got, err := sub.Claim(ctx, left)
						if err != nil {
							b.Fatal(err)
						}
						left -= len(got)
					}
					b.ReportAllocs()
					b.ResetTimer()
					for left := b.N; left > 0; left -= each {
						got, err := sub.Claim(ctx, each)
						if err == nil && by == "call" {
							err = sub.Ack(ctx, got...)
						} else if err == nil {
							err = n.DB().Update(ctx, func(tx *kv.Tx) error { return sub.In(tx).Ack(got...) })
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					b.StopTimer()
					closeStore(b, s)
				})
			}
		}
	}
}

// BenchmarkWriteInTransaction writes a message to each of 10 streams in one transaction.
func BenchmarkWriteInTransaction(b *testing.B) {
	s := openStore(b, openBench(b, "logtree"), message.Options{Level: holdfast.Process})
	n := namespace(b, s, message.Default)
	var writes []streamWrite
	for i := range 10 {
		writes = append(writes, streamWrite{Stream: fmt.Sprint("order-", i),
			Messages: []message.Message{{Type: "Placed", Data: benchData, Metadata: benchMetadata}}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := writeAll(ctx, n, writes...); err != nil {
			b.Fatal(err)
		}
	}
	closeStore(b, s)
}

// BenchmarkRead reads 1,000 messages: of the namespace, of a category that has all, half, or a hundredth of them, and
// of a stream.
func BenchmarkRead(b *testing.B) {
	for _, name := range []string{"logtree", "pebble"} {
		s := openStore(b, openBench(b, name), message.Options{Level: holdfast.Process})
		n := namespace(b, s, message.Default)
		const messages = 200_000
		for i := 0; i < messages; i += 10 {
			var writes []streamWrite
			for j := range 10 {
				category := "every"
				if (i+j)%2 == 1 {
					category = "half"
				}
				if (i+j)%100 == 0 {
					category = "rare"
				}
				writes = append(writes, streamWrite{Stream: fmt.Sprint(category, "-", j, "-", i/10%10),
					Messages: []message.Message{{Type: "Placed", Data: benchData, Metadata: benchMetadata}}})
			}
			if _, err := writeAll(ctx, n, writes...); err != nil {
				b.Fatal(err)
			}
		}
		for _, c := range []struct {
			name string
			q    message.Query
		}{
			{"all", message.Query{From: 50_000}},
			{"category/half", message.Query{Category: "half", From: 50_000}},
			{"category/rare", message.Query{Category: "rare", From: 50_000}},
			{"stream", message.Query{Stream: "half-1-3"}},
		} {
			c.q.Limit = 1000
			b.Run(name+"/"+c.name, func(b *testing.B) {
				for range b.N {
					found := 0
					for _, err := range n.Read(ctx, c.q) {
						if err != nil {
							b.Fatal(err)
						}
						found++
					}
					if found != c.q.Limit {
						b.Fatal(found)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.q.Limit), "ns/message")
			})
		}
		closeStore(b, s)
	}
}
