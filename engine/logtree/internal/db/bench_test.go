package db

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// BenchmarkProcess and BenchmarkPower compare the two ways in which a commit reaches the operating
// system: a store to a mapping of the log's file, and a write call.
func BenchmarkMemory(b *testing.B)  { benchmarkWrites(b, holdfast.Memory) }
func BenchmarkProcess(b *testing.B) { benchmarkWrites(b, holdfast.Process) }
func BenchmarkPower(b *testing.B)   { benchmarkWrites(b, holdfast.Power) }

func benchmarkWrites(b *testing.B, level holdfast.Level) {
	for _, size := range []int{100, 10_000, 1 << 20} {
		for _, name := range []string{"mapping", "write call"} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				c := testConfig(vfs.OS(), b.TempDir())
				c.Memory = 128 << 20
				c.NoMapping = name == "write call"
				d, err := Open(c)
				if err != nil {
					b.Fatal(err)
				}
				var batch holdfast.Batch
				var key [16]byte
				value := make([]byte, size)
				b.SetBytes(int64(size))
				n := 0
				for b.Loop() {
					batch.Reset()
					n++
					batch.Set(fmt.Appendf(key[:0], "key%013d", n), value)
					if err := commit(d, &batch, level); err != nil {
						b.Fatal(err)
					}
				}
				if err := d.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// filled opens a database with n keys in order, in the memtable or, settled, in runs.
func filled(b *testing.B, n int, settled, noMapping bool) *DB {
	c := testConfig(vfs.OS(), b.TempDir())
	c.Memory, c.Manual, c.NoMapping = 1<<30, true, noMapping
	d, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	var batch holdfast.Batch
	for i := range n {
		batch.Set(fmt.Appendf(nil, "key_%08d", i), make([]byte, 100))
		if batch.Len() == 1000 || i == n-1 {
			if err := commit(d, &batch, holdfast.Memory); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
	if settled {
		d.mu.Lock()
		d.rotateTable()
		d.mu.Unlock()
		if _, err := d.Work(100); err != nil {
			b.Fatal(err)
		}
	}
	return d
}

var places = []struct {
	name               string
	settled, noMapping bool
}{{"memtable", false, false}, {"run, mapped", true, false}, {"run, read calls", true, true}}

// BenchmarkScan walks over 100 keys at a time, and over all of 200,000.
func BenchmarkScan(b *testing.B) {
	const n = 200_000
	for _, p := range places {
		for _, length := range []int{100, n} {
			b.Run(fmt.Sprintf("%s/%d", p.name, length), func(b *testing.B) {
				d := filled(b, n, p.settled, p.noMapping)
				b.ReportAllocs()
				seen, at := 0, 0
				for b.Loop() {
					r := holdfast.Range{}
					if length < n {
						at = (at + 7919) % (n - length)
						r = holdfast.Range{Lo: fmt.Appendf(nil, "key_%08d", at), Hi: fmt.Appendf(nil, "key_%08d", at+length)}
					}
					it := d.Scan(r)
					for it.Next() {
						seen += len(it.Value())
					}
					if err := it.Close(); err != nil {
						b.Fatal(err)
					}
				}
				if seen != b.N*length*100 {
					b.Fatalf("%d bytes in %d walks", seen, b.N)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*length), "ns/key")
			})
		}
	}
}

// BenchmarkGet reads keys at random.
func BenchmarkGet(b *testing.B) {
	const n = 1_000_000
	for _, p := range places {
		b.Run(p.name, func(b *testing.B) {
			d := filled(b, n, p.settled, p.noMapping)
			var key [16]byte
			var dst []byte
			at := 0
			b.ReportAllocs()
			for b.Loop() {
				at = (at + 618_033) % n
				var err error
				if dst, err = d.Get(dst[:0], fmt.Appendf(key[:0], "key_%08d", at)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppend commits 100 small values with ascending keys at a time, as an event store does.
func BenchmarkAppend(b *testing.B) {
	for _, level := range []holdfast.Level{holdfast.Memory, holdfast.Process} {
		b.Run(level.String(), func(b *testing.B) {
			c := testConfig(vfs.OS(), b.TempDir())
			c.Memory = 128 << 20
			d, err := Open(c)
			if err != nil {
				b.Fatal(err)
			}
			var batch holdfast.Batch
			key, value := []byte("e\x00e00000000"), make([]byte, 150)
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				batch.Reset()
				for range 100 {
					n++
					binary.BigEndian.PutUint64(key[3:], n)
					batch.Set(key, value)
				}
				if err := commit(d, &batch, level); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(d.Metrics().Stalls), "stalls")
			if err := d.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
