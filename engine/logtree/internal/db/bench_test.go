package db

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
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

// stores are the ways in which the keys of the reading benchmarks lie: in the memtable, or in tables whose blocks the
// budget has room for or not.
var stores = []struct {
	name     string
	memory   int64
	shuffled bool // written in another order than that of the keys
	settled  bool
}{
	{"memtable", 1 << 30, false, false},
	{"tables", 128 << 20, false, true},
	{"tables, shuffled", 128 << 20, true, true},
	{"tables, shuffled, small budget", 8 << 20, true, true},
}

// stride goes through all of n keys, n a power of ten, in another order.
const stride = 618_033

// filled opens a database with n keys and values of that size, in the memtable or, settled, in tables.
func filled(b *testing.B, n, size int, memory int64, shuffled, settled bool) *DB {
	c := testConfig(vfs.OS(), b.TempDir())
	c.Memory, c.Manual = memory, true
	d, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	var batch holdfast.Batch
	var key [16]byte
	for i := range n {
		at := i
		if shuffled {
			at = i * stride % n
		}
		batch.Set(benchKey(&key, at), make([]byte, size))
		if batch.Len() == 1000 || i == n-1 {
			if err := commit(d, &batch, holdfast.Memory); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
	if settled {
		d.rotate()
		if _, err := d.Work(100); err != nil {
			b.Fatal(err)
		}
	}
	return d
}

// benchKey is key i of those of the reading benchmarks.
func benchKey(key *[16]byte, i int) []byte {
	copy(key[:], "bench/k/")
	binary.BigEndian.PutUint64(key[8:], uint64(i))
	return key[:]
}

// BenchmarkScan walks over 100 keys at a time, and over all of 1,000,000.
func BenchmarkScan(b *testing.B) {
	const n = 1_000_000
	for _, s := range stores {
		for _, length := range []int{100, n} {
			b.Run(fmt.Sprintf("%s/%d", s.name, length), func(b *testing.B) {
				d := filled(b, n, 100, s.memory, s.shuffled, s.settled)
				b.ReportAllocs()
				var lo, hi [16]byte
				seen, at := 0, 0
				for b.Loop() {
					r := holdfast.Range{}
					if length < n {
						at = (at + 7919) % (n - length)
						r = holdfast.Range{Lo: benchKey(&lo, at), Hi: benchKey(&hi, at+length)}
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

// BenchmarkFlush makes tables of memtables that hold 400,000 keys, put in another order, with values of 128 bytes.
func BenchmarkFlush(b *testing.B) {
	const n, each = 400_000, 100
	value := make([]byte, 128)
	var key [16]byte
	var batch holdfast.Batch
	for b.Loop() {
		b.StopTimer()
		c := testConfig(vfs.OS(), b.TempDir())
		c.Memory, c.Manual = 384<<20, true
		d, err := Open(c)
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			batch.Set(benchKey(&key, i*stride%n), value)
			if batch.Len() == each {
				if err := commit(d, &batch, holdfast.Memory); err != nil {
					b.Fatal(err)
				}
				batch.Reset()
			}
		}
		b.StartTimer()
		if err := d.Flush(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := d.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/key")
}

// BenchmarkShortScan ends walks, to which no end was set, after 1 to 100 of 100,000 values of 1,000 bytes, which were
// written in another order.
func BenchmarkShortScan(b *testing.B) {
	const n, size = 100_000, 1000
	d := filled(b, n, size, 384<<20, true, true)
	b.ReportAllocs()
	var lo [16]byte
	at, keys := 0, 0
	for b.Loop() {
		at = (at + stride) % (n - 100)
		it := d.Scan(holdfast.Range{Lo: benchKey(&lo, at)})
		for range at%100 + 1 {
			if !it.Next() || len(it.Value()) != size {
				b.Fatal(it.Err())
			}
			keys++
		}
		if err := it.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(keys), "ns/key")
}

// BenchmarkGet reads keys at random.
func BenchmarkGet(b *testing.B) {
	const n = 1_000_000
	for _, s := range stores {
		b.Run(s.name, func(b *testing.B) {
			d := filled(b, n, 100, s.memory, s.shuffled, s.settled)
			var key [16]byte
			var dst []byte
			at := 0
			b.ReportAllocs()
			for b.Loop() {
				at = (at + stride) % n
				var err error
				if dst, err = d.Get(dst[:0], benchKey(&key, at)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGetTogether reads keys in memory on all processors; -cpu 1,2 tells what the second one brings.
func BenchmarkGetTogether(b *testing.B) {
	const n = 10_000
	d := filled(b, n, 100, 1<<30, false, false)
	b.RunParallel(func(pb *testing.PB) {
		var key [16]byte
		var dst []byte
		for at := 0; pb.Next(); at = (at + stride) % n {
			var err error
			if dst, err = d.Get(dst[:0], benchKey(&key, at)); err != nil {
				b.Error(err)
				return
			}
		}
	})
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

// BenchmarkInstall measures what a change of one small table costs where there are 1,000 others, each of which names
// 1,000 of 10,000 segments; and what choosing a compaction costs then.
func BenchmarkInstall(b *testing.B) {
	const tables, uses, segments = 1000, 1000, 10_000
	x := newDrive(b, 64<<20)
	d := x.d
	var moved []*wal.Segment
	for range segments {
		id, err := d.newNumber()
		if err != nil {
			b.Fatal(err)
		}
		s, err := d.files.CreateMoved(id, 0, 4096)
		if err != nil {
			b.Fatal(err)
		}
		moved = append(moved, s)
	}
	table := func(n, uses int) []tree.Ref {
		w := d.tables.NewWriter()
		for i := range uses {
			s := moved[(n+i*segments/uses)%segments]
			e := table.Entry{Place: uint64(s.ID)<<32 | 64, Len: 1000}
			if err := w.Add(fmt.Appendf(nil, "%06d %06d", n, i), e); err != nil {
				b.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		return tree.Refs(w.Tables)
	}
	below := tree.Tier{ID: 1}
	for n := range tables {
		below.Refs = append(below.Refs, table(n, uses)...)
	}
	d.edit.Lock()
	defer d.edit.Unlock()
	if err := d.install([]tree.Tier{below}, d.edit.from, nil, moved); err != nil {
		b.Fatal(err)
	}
	b.Run("install", func(b *testing.B) {
		for n := range b.N {
			b.StopTimer()
			tiers := []tree.Tier{{ID: 2, Refs: table(n%segments, 1)}, {ID: 1, Refs: slices.Clone(below.Refs)}}
			b.StartTimer()
			if err := d.install(tiers, d.edit.from, nil, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pick", func(b *testing.B) {
		for range b.N {
			d.compactor.pick(d.view.Load().ver, 0)
		}
	})
}
