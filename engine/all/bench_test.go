package all_test

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	cockroach "github.com/cockroachdb/pebble/v2"
	dgraph "github.com/dgraph-io/badger/v4"
	bolt "go.etcd.io/bbolt"

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

// clients commits batches 1 to b.N from that many goroutines, each with a function of its own from newClient.
func clients(b *testing.B, many int, newClient func() func(n uint64) error) {
	var next atomic.Uint64
	var running sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range many {
		running.Go(func() {
			commit := newClient()
			for n := next.Add(1); n <= uint64(b.N); n = next.Add(1) {
				if err := commit(n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}

// BenchmarkCommit commits values of 100 bytes under ascending keys: one or a hundred a batch, from one goroutine or 64.
// An operation is a batch.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct{ clients, keys int }{{1, 1}, {1, 100}, {64, 1}} {
		b.Run(fmt.Sprintf("clients=%d/keys=%d", c.clients, c.keys), func(b *testing.B) {
			benchEngines(b, holdfast.Levels()[:3], func(b *testing.B, e holdfast.Engine, level holdfast.Level) {
				clients(b, c.clients, func() func(uint64) error {
					var batch holdfast.Batch
					value := make([]byte, 100)
					return func(n uint64) error {
						batch.Reset()
						for i := range c.keys {
							batch.Set(benchKey(n*uint64(c.keys)+uint64(i)), value)
						}
						return holdfast.Commit(e, &batch, level)
					}
				})
				if m := e.Metrics(); m.Groups > 0 {
					b.ReportMetric(float64(m.Commits)/float64(m.Groups), "commits/group")
				}
			})
		})
	}
}

// bare opens the libraries below the engines as a program would that does not use this module. What it returns commits
// one key. Commits of pebble that are not synced stay in its memory.
var bare = map[string]func(b *testing.B, dir string, synced bool) func(key, value []byte) error{
	"pebble": func(b *testing.B, dir string, synced bool) func(key, value []byte) error {
		db, err := cockroach.Open(dir, &cockroach.Options{Logger: quiet{}})
		try(b, err)
		b.Cleanup(func() { db.Close() })
		return func(key, value []byte) error { return db.Set(key, value, &cockroach.WriteOptions{Sync: synced}) }
	},
	"badger": func(b *testing.B, dir string, synced bool) func(key, value []byte) error {
		db, err := dgraph.Open(dgraph.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(synced))
		try(b, err)
		b.Cleanup(func() { db.Close() })
		return func(key, value []byte) error {
			return db.Update(func(tx *dgraph.Txn) error { return tx.Set(key, value) })
		}
	},
	"bbolt": func(b *testing.B, dir string, synced bool) func(key, value []byte) error {
		db, err := bolt.Open(filepath.Join(dir, "bare"), 0o644, &bolt.Options{NoSync: !synced})
		try(b, err)
		b.Cleanup(func() { db.Close() })
		return func(key, value []byte) error {
			return db.Update(func(tx *bolt.Tx) error {
				bucket, err := tx.CreateBucketIfNotExists([]byte("kv"))
				if err != nil {
					return err
				}
				return bucket.Put(key, value)
			})
		}
	},
	"sqlite-go": func(b *testing.B, dir string, synced bool) func(key, value []byte) error {
		db, err := sql.Open("sqlite", filepath.Join(dir, "bare"))
		try(b, err)
		b.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(1)
		level := map[bool]string{false: "NORMAL", true: "FULL"}[synced]
		_, err = db.Exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=" + level +
			"; CREATE TABLE kv(k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID")
		try(b, err)
		insert, err := db.Prepare("INSERT INTO kv VALUES(?, ?)")
		try(b, err)
		return func(key, value []byte) error {
			_, err := insert.Exec(key, value)
			return err
		}
	},
}

// BenchmarkBareCommit is BenchmarkCommit, with one key a batch, without the engines: the difference is what they cost.
func BenchmarkBareCommit(b *testing.B) {
	for _, many := range []int{1, 64} {
		for name, open := range bare {
			for _, synced := range []bool{false, true} {
				b.Run(fmt.Sprintf("clients=%d/keys=1/%s/synced=%v", many, name, synced), func(b *testing.B) {
					commit := open(b, b.TempDir(), synced)
					clients(b, many, func() func(uint64) error {
						value := make([]byte, 100)
						return func(n uint64) error { return commit(benchKey(n), value) }
					})
				})
			}
		}
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
