package badger

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	lib "github.com/dgraph-io/badger/v4"

	"github.com/holdfastdb/holdfast"
)

// The same bytes through the engine and through the bare library: 128-byte values under
// ascending keys of 9 bytes.

func benchLibrary(b *testing.B, syncWrites bool) *lib.DB {
	b.Helper()
	o := configure(bare(b.TempDir()), holdfast.Options{Logger: nil},
		newFlushes()).WithSyncWrites(syncWrites).WithLogger(nil)
	db, err := lib.Open(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { closeAll(b, db) })
	return db
}

func libCommit(db *lib.DB, n uint64, value []byte) error {
	key := append(make([]byte, 0, 9), keyspace)
	txn := db.NewTransaction(true)
	defer txn.Discard()
	if err := txn.Set(binary.BigEndian.AppendUint64(key, n), value); err != nil {
		return err
	}
	return txn.Commit()
}

// concurrently runs f for b.N numbers in that many goroutines.
func concurrently(b *testing.B, writers int, f func(n uint64) error) {
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := w; n < b.N; n += writers {
				if err := f(uint64(n)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

func benchEngine(b *testing.B, writers int, level holdfast.Level) {
	e := mustOpen(b, b.TempDir(), hooks{})
	value := make([]byte, 128)
	batches := sync.Pool{New: func() any { return new(holdfast.Batch) }}
	concurrently(b, writers, func(n uint64) error {
		batch := batches.Get().(*holdfast.Batch)
		defer batches.Put(batch)
		var key [8]byte
		batch.Reset()
		batch.Set(binary.BigEndian.AppendUint64(key[:0], n), value)
		return holdfast.Commit(e, batch, level)
	})
	closeAll(b, e)
}

func BenchmarkCommit(b *testing.B) {
	value := make([]byte, 128)
	b.Run("process/1/engine", func(b *testing.B) { benchEngine(b, 1, holdfast.Process) })
	b.Run("process/1/library", func(b *testing.B) {
		db := benchLibrary(b, false)
		concurrently(b, 1, func(n uint64) error { return libCommit(db, n, value) })
	})
	b.Run("process/64/engine", func(b *testing.B) { benchEngine(b, 64, holdfast.Process) })
	b.Run("process/64/library", func(b *testing.B) {
		db := benchLibrary(b, false)
		concurrently(b, 64, func(n uint64) error { return libCommit(db, n, value) })
	})
	b.Run("power/1/engine", func(b *testing.B) { benchEngine(b, 1, holdfast.Power) })
	b.Run("power/1/library", func(b *testing.B) {
		db := benchLibrary(b, true)
		concurrently(b, 1, func(n uint64) error { return libCommit(db, n, value) })
	})
	b.Run("power/64/engine", func(b *testing.B) { benchEngine(b, 64, holdfast.Power) })
	b.Run("power/64/library", func(b *testing.B) {
		db := benchLibrary(b, true)
		concurrently(b, 64, func(n uint64) error { return libCommit(db, n, value) })
	})
}

// BenchmarkMemory writes 1 GiB in values of 1,000 bytes at Process with the least memory budget, and fails if a quarter
// more than that was resident. Run it alone, once: go test -run '^$' -bench Memory -benchtime 1x ./engine/badger
func BenchmarkMemory(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	ascending := uint64(0)
	for _, keys := range []struct {
		order string
		next  func() uint64
	}{
		{"random", random.Uint64},
		{"ascending", func() uint64 { ascending++; return ascending }},
	} {
		b.Run(keys.order, func(b *testing.B) {
			for range b.N {
				debug.FreeOSMemory() // what others left
				e, err := Open(b.TempDir(), holdfast.Options{MemoryBytes: minMemory})
				if err != nil {
					b.Fatal(err)
				}
				stop, peaks := make(chan struct{}), make(chan [2]int64)
				go func() {
					tick := time.NewTicker(20 * time.Millisecond)
					defer tick.Stop()
					var peak [2]int64
					for {
						select {
						case <-tick.C:
							peak[0] = max(peak[0], resident("RssAnon"))
							peak[1] = max(peak[1], e.Metrics().MemoryBytes)
						case <-stop:
							peaks <- peak
							return
						}
					}
				}()
				value := make([]byte, 1000)
				var batch holdfast.Batch
				for written := 0; written < 1<<30; {
					batch.Reset()
					for range 100 {
						for i := 0; i < len(value); i += 8 {
							binary.LittleEndian.PutUint64(value[i:], random.Uint64())
						}
						batch.Set(binary.BigEndian.AppendUint64(nil, keys.next()), value)
						written += len(value)
					}
					if err := holdfast.Commit(e, &batch, holdfast.Process); err != nil {
						b.Fatal(err)
					}
				}
				close(stop)
				peak := <-peaks
				b.ReportMetric(float64(peak[0]>>20), "anonymous-MiB")
				b.ReportMetric(float64(peak[1]>>20), "metrics-MiB")
				b.ReportMetric(float64(resident("VmHWM")>>20), "with-files-MiB")
				if peak[0] > minMemory*5/4 {
					b.Errorf("%d bytes were resident, the budget is %d", peak[0], minMemory)
				}
				closeAll(b, e)
			}
		})
	}
}

// resident returns a line of the process's status, in bytes; 0 where the system does not tell.
func resident(line string) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "\n"+line+":")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib)
	return kib << 10
}

func BenchmarkGet(b *testing.B) {
	e := mustOpen(b, b.TempDir(), hooks{})
	const keys = 10_000
	commit(b, e, holdfast.Process, func(batch *holdfast.Batch) {
		for n := range keys {
			batch.Set(key(n), make([]byte, 128))
		}
	})
	b.Run("engine", func(b *testing.B) {
		var dst []byte
		for n := range b.N {
			var err error
			if dst, err = e.Get(dst[:0], key(n%keys)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		var dst []byte
		for n := range b.N {
			err := e.db.View(func(txn *lib.Txn) error {
				item, err := txn.Get(spaced(key(n % keys)))
				if err == nil {
					dst, err = item.ValueCopy(dst)
				}
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("scan of 100", func(b *testing.B) {
		for n := range b.N {
			it := e.Scan(holdfast.Range{Lo: key(n % (keys - 100)), Hi: key(n%(keys-100) + 100)})
			got := 0
			for it.Next() {
				got += len(it.Value()) / 128
			}
			if closeAll(b, it); got != 100 {
				b.Fatal(got)
			}
		}
	})
}

func bare(dir string) handle { return handle{name: dir, dir: dir} }
