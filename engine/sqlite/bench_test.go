package sqlite

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
)

var benchValue = make([]byte, 128)

func benchKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// eachBench runs a benchmark on every engine of this build.
func eachBench(b *testing.B, f func(b *testing.B, name string)) {
	for _, name := range []string{Name, NameGo} {
		if engines[name] != nil {
			b.Run(name, func(b *testing.B) { f(b, name) })
		}
	}
}

func openBench(b *testing.B, name string) *engine {
	e, err := engines[name](b.TempDir(), holdfast.Options{})
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

// bare opens SQLite as a program would that does not use this package: database/sql, one
// connection for writing.
func bare(b *testing.B, name string, level holdfast.Level) *sql.DB {
	driver := map[string]string{Name: "sqlite3", NameGo: "sqlite"}[name]
	db, err := sql.Open(driver, filepath.Join(b.TempDir(), "bare"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	for _, q := range []string{
		"PRAGMA journal_mode=WAL",
		map[holdfast.Level]string{holdfast.Process: "PRAGMA synchronous=NORMAL",
			holdfast.Power: "PRAGMA synchronous=FULL"}[level],
		schema,
	} {
		if _, err := db.Exec(q); err != nil {
			b.Fatal(err)
		}
	}
	return db
}

func prepare(b *testing.B, db *sql.DB, query string) *sql.Stmt {
	s, err := db.Prepare(query)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
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
			b.Run(fmt.Sprintf("%v/clients=%d", level, clients), func(b *testing.B) {
				eachBench(b, func(b *testing.B, name string) {
					b.Run("engine", func(b *testing.B) {
						e := openBench(b, name)
						writers(b, clients, func(key []byte) error {
							var batch holdfast.Batch
							batch.Set(key, benchValue)
							return holdfast.Commit(e, &batch, level)
						})
						m := e.Metrics()
						b.ReportMetric(float64(m.Commits)/float64(m.Groups), "commits/group")
						b.ReportMetric(float64(m.Syncs)/float64(m.Groups), "syncs/group")
					})
					b.Run("bare", func(b *testing.B) {
						insert := prepare(b, bare(b, name, level), statements[kindSet])
						writers(b, clients, func(key []byte) error {
							_, err := insert.Exec(key, benchValue)
							return err
						})
					})
				})
			})
		}
	}
}

// BenchmarkLayers is why this package uses the drivers below database/sql, and several rows in
// one statement: transactions of 100 rows under synchronous=NORMAL.
func BenchmarkLayers(b *testing.B) {
	const rows = 100
	eachBench(b, func(b *testing.B, name string) {
		b.Run("database-sql", func(b *testing.B) {
			db := bare(b, name, holdfast.Process)
			insert := prepare(b, db, statements[kindSet])
			n := uint64(0)
			for b.Loop() {
				tx, err := db.Begin()
				if err != nil {
					b.Fatal(err)
				}
				in := tx.Stmt(insert)
				for range rows {
					n++
					if _, err := in.Exec(benchKey(n), benchValue); err != nil {
						b.Fatal(err)
					}
				}
				if err := tx.Commit(); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, layer := range []string{"driver-row", "driver-rows"} {
			b.Run(layer, func(b *testing.B) {
				e := openBench(b, name)
				if err := e.synchronous(holdfast.Process); err != nil {
					b.Fatal(err)
				}
				c := e.w.conn
				var batch holdfast.Batch
				n, loops := uint64(0), 0
				for b.Loop() {
					batch.Reset()
					for range rows {
						n++
						batch.Set(benchKey(n), benchValue)
					}
					var err error
					if layer == "driver-rows" {
						err = c.transact(&batch, "")
					} else if err = c.run(kindBegin); err == nil {
						for op := range batch.Ops() {
							if err := c.run(kindSet, op.Key, op.Value); err != nil {
								b.Fatal(err)
							}
						}
						err = c.run(kindCommit)
					}
					if loops++; err == nil && loops%100 == 0 {
						err = e.checkpoint()
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

func load(b *testing.B, e *engine, keys uint64) {
	var batch holdfast.Batch
	for n := range keys {
		batch.Set(benchKey(n), benchValue)
	}
	if err := holdfast.Commit(e, &batch, holdfast.Process); err != nil {
		b.Fatal(err)
	}
	if err := e.checkpoint(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRead(b *testing.B) {
	const keys = 100_000
	eachBench(b, func(b *testing.B, name string) {
		b.Run("get/engine", func(b *testing.B) {
			e := openBench(b, name)
			load(b, e, keys)
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
		b.Run("get/bare", func(b *testing.B) {
			db := bare(b, name, holdfast.Process)
			fill, err := db.Begin()
			if err != nil {
				b.Fatal(err)
			}
			for n := range uint64(keys) {
				if _, err := fill.Exec(statements[kindSet], benchKey(n), benchValue); err != nil {
					b.Fatal(err)
				}
			}
			if err := fill.Commit(); err != nil {
				b.Fatal(err)
			}
			get := prepare(b, db, statements[kindGet])
			var dst []byte
			n := uint64(0)
			for b.Loop() {
				n += 7919
				if err := get.QueryRow(benchKey(n % keys)).Scan(&dst); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("scan-100", func(b *testing.B) {
			e := openBench(b, name)
			load(b, e, keys)
			n := uint64(0)
			for b.Loop() {
				n = (n + 7919) % (keys - 100)
				rows := 0
				it := e.Scan(holdfast.Range{Lo: benchKey(n), Hi: benchKey(n + 100)})
				for it.Next() {
					rows++
				}
				if err := it.Close(); err != nil || rows != 100 {
					b.Fatal(rows, err)
				}
			}
		})
	})
}
