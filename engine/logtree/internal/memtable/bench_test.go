package memtable

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

// An operation is one key. The number of operations is fixed, because what one costs depends on how full the table
// is; for scans it must be a multiple of the number of keys. Make several runs and compare medians:
//
//	for i in 1 2 3 4 5; do
//		go test -run='^$' -bench=Add -benchtime=1000001x ./engine/logtree/internal/memtable
//		go test -run='^$' -bench='Get|Scan' -benchtime=1000000x ./engine/logtree/internal/memtable
//	done

// benchKeys are keys and their records in an image, made once for all benchmarks.
type benchKeys struct {
	image *Image
	keys  [][]byte
	recs  []Addr
}

var benchCache = map[string]*benchKeys{}

// keysFor returns n keys of a shape: ascending and random are 16 bytes; prefixed share 20 bytes and
// are random beyond; streams are positions in 100 streams, taking turns at random; tables are three tables of ascending
// keys, with one key behind all of them.
func keysFor(shape string, n int) *benchKeys {
	name := fmt.Sprint(shape, n)
	if k := benchCache[name]; k != nil {
		return k
	}
	clear(benchCache) // one at a time, for the sake of memory
	r := rand.New(rand.NewPCG(1, 2))
	k := &benchKeys{image: NewImage(NewPool(0, 0, 0))}
	value := make([]byte, 32)
	var positions [100]uint64
	for i := range n {
		var key []byte
		switch shape {
		case "ascending":
			key = binary.BigEndian.AppendUint64([]byte("events//"), uint64(i))
		case "random":
			key = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.Uint64()), r.Uint64())
		case "prefixed":
			key = binary.BigEndian.AppendUint64([]byte("tenant/17/customers/"), r.Uint64())
		case "streams":
			s := r.IntN(len(positions))
			positions[s]++
			key = binary.BigEndian.AppendUint64(fmt.Appendf(nil, "stream-%02d/", s), positions[s])
		case "tables":
			if key = []byte("z"); i > 0 {
				key = binary.BigEndian.AppendUint64([]byte{'a' + byte(i%3), 0, 'e'}, uint64(i))
			}
		}
		rec, imageKey := put(k.image, holdfast.KindSet, key, value)
		k.keys, k.recs = append(k.keys, imageKey), append(k.recs, rec)
	}
	benchCache[name] = k
	return k
}

func (k *benchKeys) fill(table *Table) {
	for i, key := range k.keys {
		table.Add(k.recs[i], key, uint64(i+1))
	}
}

// scan calls f for the newest version of every key.
func (t *Table) scan(reverse bool, f func(Version)) {
	it := t.Iter(math.MaxUint64)
	if reverse {
		for on := it.Last(); on; on = it.Prev() {
			f(it.Version())
		}
		return
	}
	for on := it.First(); on; on = it.Next() {
		f(it.Version())
	}
}

func eachShape(b *testing.B, shapes []string, f func(b *testing.B, k *benchKeys)) {
	for _, shape := range shapes {
		for _, n := range []int{100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", shape, n), func(b *testing.B) { f(b, keysFor(shape, n)) })
		}
	}
}

// BenchmarkAdd fills tables; the table gets its nodes from a pool that has them, as in an engine.
func BenchmarkAdd(b *testing.B) {
	eachShape(b, []string{"ascending", "random", "prefixed", "streams", "tables"}, func(b *testing.B, k *benchKeys) {
		var bytes int64
		im := k.image
		im.pool.keep = 1 << 30
		table := New(im)
		i := 0
		b.ResetTimer()
		for range b.N {
			if i == len(k.keys) {
				b.StopTimer()
				bytes, i = table.Bytes(), 0
				table.Release()
				runtime.GC()
				table = New(im)
				b.StartTimer()
			}
			table.Add(k.recs[i], k.keys[i], uint64(i+1))
			i++
		}
		if bytes > 0 {
			b.ReportMetric(float64(bytes)/float64(len(k.keys)), "B/key")
		}
	})
}

func benchmarkGet(b *testing.B, k *benchKeys, hit bool) {
	table := New(k.image)
	k.fill(table)
	order := rand.New(rand.NewPCG(8, 8)).Perm(len(k.keys))
	var miss [32]byte
	b.ResetTimer()
	for i := range b.N {
		key := k.keys[order[i%len(order)]]
		if !hit {
			key = append(miss[:0], key...)
			key[len(key)-1] ^= 0x55
			key = append(key, 0)
		}
		if _, ok := table.Get(key, math.MaxUint64); ok != hit {
			b.Fatal("wrong answer")
		}
	}
}

func BenchmarkGetHit(b *testing.B) {
	eachShape(b, []string{"ascending", "random", "prefixed"},
		func(b *testing.B, k *benchKeys) { benchmarkGet(b, k, true) })
}

func BenchmarkGetMiss(b *testing.B) {
	eachShape(b, []string{"random"}, func(b *testing.B, k *benchKeys) { benchmarkGet(b, k, false) })
}

func benchmarkScan(b *testing.B, k *benchKeys, reverse bool) {
	table := New(k.image)
	k.fill(table)
	b.ResetTimer()
	sum := 0
	for n := b.N; n > 0; n -= len(k.keys) {
		table.scan(reverse, func(v Version) { sum += len(v.Value) })
	}
	if sum < 32*b.N {
		b.Fatal("the scan is too short")
	}
}

func BenchmarkScan(b *testing.B) {
	eachShape(b, []string{"ascending", "random"}, func(b *testing.B, k *benchKeys) { benchmarkScan(b, k, false) })
}

func BenchmarkScanReverse(b *testing.B) {
	eachShape(b, []string{"ascending", "random"}, func(b *testing.B, k *benchKeys) { benchmarkScan(b, k, true) })
}

// BenchmarkGetWhileAdding reads with one goroutine while another adds as fast as it can; adds/op says
// how many it made for every read.
func BenchmarkGetWhileAdding(b *testing.B) {
	k := keysFor("random", 1_000_000)
	table := New(k.image)
	half := len(k.keys) / 2
	for i := range half {
		table.Add(k.recs[i], k.keys[i], uint64(i+1))
	}
	var stop atomic.Bool
	adds := make(chan float64)
	b.ResetTimer()
	go func() {
		begin, i := time.Now(), half
		for ; !stop.Load(); i++ {
			at := i % len(k.keys) // a second time round: new versions
			table.Add(k.recs[at], k.keys[at], uint64(i+1))
		}
		adds <- float64(time.Since(begin).Nanoseconds()) / float64(i-half)
	}()
	r := rand.New(rand.NewPCG(9, 9))
	for range b.N {
		i := r.IntN(half)
		if _, ok := table.Get(k.keys[i], uint64(half)); !ok {
			b.Fatal("wrong answer")
		}
	}
	b.StopTimer()
	stop.Store(true)
	b.ReportMetric(<-adds, "ns/add")
}
