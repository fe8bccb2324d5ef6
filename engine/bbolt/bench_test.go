package bbolt

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
)

var benchValue = make([]byte, 128)

func benchKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func openBench(b *testing.B, level holdfast.Level) *engine {
	e, err := Open(b.TempDir(), holdfast.Options{Level: level})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := e.Close(); err != nil {
			b.Error(err)
		}
	})
	return e.(*engine)
}

// bare opens bbolt as a program would that does not use this package.
func bare(b *testing.B, o *bbolt.Options) *bbolt.DB {
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "bare"), 0o644, o)
	if err == nil {
		err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(bucketName); return err })
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	return db
}

func put(db *bbolt.DB, key []byte) error {
	return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketName).Put(key, benchValue) })
}

// writers runs commit b.N times in n goroutines, with keys in ascending order.
func writers(b *testing.B, n int, commit func(key []byte) error) {
	var next atomic.Uint64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range n {
		wg.Go(func() {
			for {
				key := next.Add(1)
				if key > uint64(b.N) {
					return
				}
				if err := commit(benchKey(key)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkCommit is one set per commit: through the engine, and without it.
func BenchmarkCommit(b *testing.B) {
	for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power} {
		for _, clients := range []int{1, 64} {
			b.Run(fmt.Sprintf("%v/clients=%d/engine", level, clients), func(b *testing.B) {
				e := openBench(b, level)
				writers(b, clients, func(key []byte) error {
					var batch holdfast.Batch
					batch.Set(key, benchValue)
					return holdfast.Commit(e, &batch, level)
				})
				m := e.Metrics()
				b.ReportMetric(float64(m.Commits)/float64(m.Groups), "commits/group")
			})
			b.Run(fmt.Sprintf("%v/clients=%d/bare", level, clients), func(b *testing.B) {
				db := bare(b, &bbolt.Options{NoSync: level < holdfast.Power})
				writers(b, clients, func(key []byte) error { return put(db, key) })
			})
		}
	}
}

func BenchmarkGet(b *testing.B) {
	const keys = 100_000
	load := func(db *bbolt.DB) {
		err := db.Update(func(tx *bbolt.Tx) error {
			for n := range uint64(keys) {
				if err := tx.Bucket(bucketName).Put(benchKey(n), benchValue); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("engine", func(b *testing.B) {
		e := openBench(b, holdfast.Process)
		load(e.db)
		var dst []byte
		n := uint64(0)
		for b.Loop() {
			n += 7919
			var err error
			if dst, err = e.Get(dst[:0], benchKey(n%keys)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		db := bare(b, &bbolt.Options{NoSync: true})
		load(db)
		var dst []byte
		n := uint64(0)
		for b.Loop() {
			n += 7919
			err := db.View(func(tx *bbolt.Tx) error {
				dst = append(dst[:0], tx.Bucket(bucketName).Get(benchKey(n%keys))...)
				return nil
			})
			if err != nil || len(dst) == 0 {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFreelist is why the free list is an array: small transactions in a file with some
// thousand free pages that do not lie together.
func BenchmarkFreelist(b *testing.B) {
	for _, kind := range []bbolt.FreelistType{bbolt.FreelistArrayType, bbolt.FreelistMapType} {
		b.Run(string(kind), func(b *testing.B) {
			db := bare(b, &bbolt.Options{NoSync: true, FreelistType: kind})
			const keys = 200_000
			err := db.Update(func(tx *bbolt.Tx) error {
				for n := range uint64(keys) {
					if err := tx.Bucket(bucketName).Put(benchKey(n), benchValue); err != nil {
						return err
					}
				}
				return nil
			})
			if err == nil {
				err = db.Update(func(tx *bbolt.Tx) error {
					for n := range uint64(keys) {
						if n/64%2 == 0 {
							if err := tx.Bucket(bucketName).Delete(benchKey(n)); err != nil {
								return err
							}
						}
					}
					return nil
				})
			}
			if err != nil {
				b.Fatal(err)
			}
			n := uint64(0)
			for b.Loop() {
				n += 7919
				if err := put(db, benchKey(n%keys)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRandomBatch is why large transactions are applied in key order.
func BenchmarkRandomBatch(b *testing.B) {
	for _, size := range []int{1000, 30_000} {
		var batch holdfast.Batch
		for n := range uint64(size) {
			batch.Set(benchKey(n*0x9e3779b97f4a7c15), benchValue)
		}
		b.Run(fmt.Sprintf("sets=%d/engine", size), func(b *testing.B) {
			e := openBench(b, holdfast.Process)
			for b.Loop() {
				if err := holdfast.Commit(e, &batch, holdfast.Process); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				var clear holdfast.Batch
				clear.DeleteRange(nil, nil)
				if err := holdfast.Commit(e, &clear, holdfast.Process); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("sets=%d/unsorted", size), func(b *testing.B) {
			db := bare(b, &bbolt.Options{NoSync: true})
			for b.Loop() {
				err := db.Update(func(tx *bbolt.Tx) error {
					for op := range batch.Ops() {
						if err := tx.Bucket(bucketName).Put(op.Key, op.Value); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				err = db.Update(func(tx *bbolt.Tx) error {
					if err := tx.DeleteBucket(bucketName); err != nil {
						return err
					}
					_, err := tx.CreateBucket(bucketName)
					return err
				})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
