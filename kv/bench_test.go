package kv_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// What the benchmarks work on: a table of so many keys.
const (
	benchKeys  = 100_000
	benchValue = 100
	benchBatch = 10_000 // keys that one transaction loads
)

func benchKey(b []byte, number int) []byte { return fmt.Appendf(b[:0], "key_%08d", number) }

// benchDB is a database in a logtree with the table.
func benchDB(b *testing.B, level holdfast.Level, load bool) *kv.DB {
	b.Helper()
	engine, err := logtree.Open(b.TempDir(), holdfast.Options{Level: level})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := engine.Close(); err != nil {
			b.Error(err)
		}
	})
	db, err := kv.Open(engine, kv.Options{Level: level})
	if err != nil {
		b.Fatal(err)
	}
	if load {
		for first := 0; first < benchKeys; first += benchBatch {
			if err := benchLoad(db, first); err != nil {
				b.Fatal(err)
			}
		}
	}
	return db
}

// benchLoad puts benchBatch keys in one transaction.
func benchLoad(db *kv.DB, first int) error {
	var key []byte
	value := make([]byte, benchValue)
	return db.Update(ctx, func(tx *kv.Tx) error {
		table := tx.Bucket("table")
		for i := range benchBatch {
			key = benchKey(key, first+i)
			_ = table.Put(key, value)
		}
		return nil
	})
}

// BenchmarkTransaction reads a key, counts in its value, and puts a new one beside it.
func BenchmarkTransaction(b *testing.B) {
	for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power} {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("%v/%d-clients", level, clients), func(b *testing.B) {
				db := benchDB(b, level, true)
				b.ReportAllocs()
				b.ResetTimer()
				var done atomic.Int64
				var wg sync.WaitGroup
				for client := range clients {
					wg.Go(func() {
						random := rand.New(rand.NewPCG(1, uint64(client)))
						var key, fresh []byte
						for n := uint64(0); done.Add(1) <= int64(b.N); n++ {
							key = benchKey(key, random.IntN(benchKeys))
							fresh = binary.BigEndian.AppendUint64(append(fresh[:0], "new_"...), uint64(client)<<32|n)
							err := db.Update(ctx, func(tx *kv.Tx) error {
								table := tx.Bucket("table")
								value, err := table.Get(key)
								if err != nil {
									return err
								}
								binary.LittleEndian.PutUint64(value, binary.LittleEndian.Uint64(value)+1)
								if err := table.Put(key, value); err != nil {
									return err
								}
								return table.Put(fresh, value)
							})
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}

// BenchmarkOpen opens a database that is open, as a server does for a request.
func BenchmarkOpen(b *testing.B) {
	db := benchDB(b, holdfast.Process, false)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := kv.Open(db.Engine(), kv.Options{Level: holdfast.Process}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLoad puts many keys in each transaction.
func BenchmarkLoad(b *testing.B) {
	db := benchDB(b, holdfast.Process, false)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += benchBatch { // it is per key
		if err := benchLoad(db, i); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkGet gets random keys in one View.
func BenchmarkGet(b *testing.B) {
	db := benchDB(b, holdfast.Process, true)
	random := rand.New(rand.NewPCG(1, 1))
	var key []byte
	b.ReportAllocs()
	b.ResetTimer()
	err := db.View(ctx, func(tx *kv.Tx) error {
		table := tx.Bucket("table")
		for range b.N {
			key = benchKey(key, random.IntN(benchKeys))
			if _, err := table.Get(key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkView is a View for each key.
func BenchmarkView(b *testing.B) {
	db := benchDB(b, holdfast.Process, true)
	random := rand.New(rand.NewPCG(1, 1))
	var key []byte
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		key = benchKey(key, random.IntN(benchKeys))
		err := db.View(ctx, func(tx *kv.Tx) error {
			_, err := tx.Bucket("table").Get(key)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkScan goes over all keys; it is per key.
func BenchmarkScan(b *testing.B) {
	db := benchDB(b, holdfast.Process, true)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		err := db.View(ctx, func(tx *kv.Tx) error {
			for range tx.Bucket("table").All() {
				if n++; n >= b.N {
					break
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOrder is a message, a task and a key of one's own: in one transaction, as one call after another, and each
// of them alone, which shows what the transaction costs beside its parts.
func BenchmarkOrder(b *testing.B) {
	const level = holdfast.Process
	placed := message.Message{Type: "Placed", Data: []byte(`{"customer":"ada","goods":"a book and two pens"}`)}
	spec := task.Spec{Kind: "mail", Payload: []byte(`{"order":17}`)}
	row := make([]byte, benchValue)
	for _, parts := range []string{"transaction", "calls", "message", "task", "key"} {
		b.Run(parts, func(b *testing.B) {
			db := benchDB(b, level, false)
			messages, err := message.Open(db, message.Options{Level: level})
			if err != nil {
				b.Fatal(err)
			}
			defer messages.Close()
			space, err := messages.Namespace(ctx, message.Default)
			if err != nil {
				b.Fatal(err)
			}
			mails, err := task.Open(db, task.Options{Level: level})
			if err != nil {
				b.Fatal(err)
			}
			defer mails.Close()

			write := func(n int64) error { _, err := space.WriteAfter(ctx, "order-1", n-1, placed); return err }
			enqueue := func(int64) error { _, err := mails.Enqueue(ctx, spec); return err }
			put := func(n int64) error {
				return db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("orders").Put(fmt.Append(nil, n), row) })
			}
			once := map[string][]func(int64) error{
				"calls": {write, enqueue, put}, "message": {write}, "task": {enqueue}, "key": {put},
				"transaction": {func(n int64) error {
					return db.Update(ctx, func(tx *kv.Tx) error {
						if _, err := space.In(tx).WriteAfter("order-1", n-1, placed); err != nil {
							return err
						}
						if _, err := mails.In(tx).Enqueue(spec); err != nil {
							return err
						}
						return tx.Bucket("orders").Put(fmt.Append(nil, n), row)
					})
				}},
			}[parts]
			b.ReportAllocs()
			b.ResetTimer()
			for n := range int64(b.N) {
				for _, do := range once {
					if err := do(n); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
