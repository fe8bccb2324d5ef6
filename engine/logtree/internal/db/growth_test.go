package db

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/vfs"
)

// diskBytes is what the files of dir take on the device.
func diskBytes(tb testing.TB, dir string) (n int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		n += allocated(filepath.Join(dir, e.Name()))
	}
	return n
}

// residentMiB is the process's anonymous memory: not what the operating system keeps of files.
func residentMiB() float64 {
	runtime.GC()
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return -1
}

// BenchmarkGrowth appends events of 128 bytes, 100 in a commit at Process, as many as it is told:
//
//	go test -run='^$' -bench=Growth -benchtime=20000000x ./engine/logtree/internal/db
//
// It reports the rate of the first and the last million, memory, the space on disk against keys
// and values, and how long opening takes when the database was not closed.
func BenchmarkGrowth(b *testing.B) {
	c := testConfig(vfs.OS(), b.TempDir())
	c.Memory = 128 << 20
	d, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	const part = 1_000_000
	value := make([]byte, 128)
	rnd := rand.NewChaCha8([32]byte{1})
	var batch holdfast.Batch
	var key [16]byte
	var rates []float64
	b.ResetTimer()
	start := time.Now()
	for n := 1; n <= b.N; n++ {
		rnd.Read(value)
		binary.BigEndian.PutUint64(key[8:], uint64(n))
		batch.Set(key[:], value)
		if batch.Len() == 100 || n == b.N {
			if err := commit(d, &batch, holdfast.Process); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
		if n%part == 0 {
			rates = append(rates, part/time.Since(start).Seconds())
			start = time.Now()
		}
	}
	b.StopTimer()
	if len(rates) > 1 {
		b.ReportMetric(rates[0], "first-M/s")
		b.ReportMetric(rates[len(rates)-1], "last-M/s")
		slices.Sort(rates)
		b.ReportMetric(rates[len(rates)/2], "median-M/s")
	}
	b.ReportMetric(residentMiB(), "MiB")
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(diskBytes(b, c.Dir))/float64(b.N*(len(key)+len(value))), "disk/payload")
	c.New = false
	c.Manual = true
	start = time.Now()
	again, err := Open(c) // nothing tells it that d is still open: as after a crash
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "open-ms")
	binary.BigEndian.PutUint64(key[8:], uint64(b.N))
	if _, err := again.Get(nil, key[:]); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOverwrite updates and deletes random keys of a set four times as large as the memory
// budget, one in a commit at Process:
//
//	go test -run='^$' -bench=Overwrite -benchtime=20000000x ./engine/logtree/internal/db
//
// It reports space on disk against live keys and values (the most there was, and at the end), memory,
// and the latencies of commits.
func BenchmarkOverwrite(b *testing.B) {
	const keys, size = 1_200_000, 100
	c := testConfig(vfs.OS(), b.TempDir())
	c.Memory = 32 << 20
	d, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, size)
	var batch holdfast.Batch
	var key [12]byte
	set := func(k int) {
		binary.BigEndian.PutUint64(key[4:], uint64(k))
		binary.LittleEndian.PutUint64(value, rnd.Uint64())
		batch.Set(key[:], value)
	}
	live := map[int]bool{}
	for k := range keys {
		set(k)
		live[k] = true
		if batch.Len() == 1000 {
			if err := commit(d, &batch, holdfast.Process); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
	took := make([]time.Duration, 0, b.N)
	most := 0.0
	b.ResetTimer()
	for n := range b.N {
		k := rnd.IntN(keys)
		if rnd.IntN(10) == 0 {
			binary.BigEndian.PutUint64(key[4:], uint64(k))
			batch.Delete(key[:])
			delete(live, k)
		} else {
			set(k)
			live[k] = true
		}
		start := time.Now()
		if err := commit(d, &batch, holdfast.Process); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
		batch.Reset()
		if n%200_000 == 0 {
			most = max(most, float64(diskBytes(b, c.Dir))/float64(len(live)*(len(key)+size)))
		}
	}
	b.StopTimer()
	slices.Sort(took)
	at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))].Microseconds()) }
	b.ReportMetric(at(0.5), "p50-us")
	b.ReportMetric(at(0.999), "p99.9-us")
	b.ReportMetric(at(1), "max-us")
	b.ReportMetric(most, "most-disk/live")
	b.ReportMetric(residentMiB(), "MiB") // with the test's own map and latencies
	b.ReportMetric(float64(d.Metrics().Stalls), "stalls")
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(diskBytes(b, c.Dir))/float64(len(live)*(len(key)+size)), "end-disk/live")
}

// BenchmarkSteady puts random keys again, one in a commit at Process and by four writers at a time, once two million
// are there: as many as have the share of this memory budget that ten million have of the usual one.
//
//	go test -run='^$' -bench=Steady -benchtime=8000000x ./engine/logtree/internal/db
//
// It reports bytes written, syncs and time of processors for what the writers do, the space on disk against live keys
// and values (the most that there was, the mean, and at the end), the latencies of commits, and walks over everything
// afterwards.
func BenchmarkSteady(b *testing.B) {
	for _, size := range []int{16, 64, 128, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) { benchmarkSteady(b, size) })
	}
}

func benchmarkSteady(b *testing.B, size int) {
	const keys, writers, keySize = 2_000_000, 4, 16
	c := testConfig(vfs.OS(), b.TempDir())
	c.Memory = 128 << 20 / 5
	c.Sizes = Sizes{Segment: policy.MaxSegment / 5, Table: policy.MaxTable / 5}
	d, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	payload := float64(keySize + size)
	// each has each writer do n things, and gives it what they need.
	each := func(n int, do func(w, i int, r *rand.Rand, key, value []byte)) {
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), uint64(n)))
				key, value := make([]byte, keySize), make([]byte, size)
				for i := w; i < n; i += writers {
					do(w, i, r, key, value)
				}
			})
		}
		all.Wait()
	}
	batches := make([]holdfast.Batch, writers)
	set := func(w, k int, r *rand.Rand, key, value []byte) {
		copy(key, "key/")
		binary.BigEndian.PutUint64(key[8:], uint64(k))
		for i := 0; i+8 <= size; i += 8 {
			binary.LittleEndian.PutUint64(value[i:], r.Uint64())
		}
		batches[w].Reset()
		batches[w].Set(key, value)
		if err := commit(d, &batches[w], holdfast.Process); err != nil {
			b.Error(err)
		}
	}
	each(keys, func(w, i int, r *rand.Rand, key, value []byte) { set(w, i*stride%keys, r, key, value) })

	took := make([][]time.Duration, writers)
	for w := range took {
		took[w] = make([]time.Duration, 0, b.N/writers+1)
	}
	var most, sum, samples float64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			on := float64(diskBytes(b, c.Dir)) / keys / payload
			most, sum, samples = max(most, on), sum+on, samples+1
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	before, cpu := d.Metrics(), cpuTime()
	b.ResetTimer()
	each(b.N, func(w, _ int, r *rand.Rand, key, value []byte) {
		start := time.Now()
		set(w, r.IntN(keys), r, key, value)
		took[w] = append(took[w], time.Since(start))
	})
	b.StopTimer()
	after := d.Metrics()
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N), "cpu-ns/op")
	close(stop)
	<-stopped
	b.ReportMetric(float64(after.BytesWritten-before.BytesWritten)/float64(b.N)/payload, "written/payload")
	b.ReportMetric(float64(after.Syncs-before.Syncs)/float64(b.N)*1e6, "syncs/M")
	b.ReportMetric(most, "most-disk/live")
	b.ReportMetric(sum/samples, "mean-disk/live")
	b.ReportMetric(float64(diskBytes(b, c.Dir))/keys/payload, "end-disk/live")
	all := slices.Concat(took...)
	slices.Sort(all)
	for _, q := range []float64{0.5, 0.99, 0.999, 0.9999, 1} {
		b.ReportMetric(float64(all[int(q*float64(len(all)-1))].Nanoseconds())/1000, fmt.Sprintf("p%g-us", 100*q))
	}
	b.ReportMetric(float64(after.Stalls-before.Stalls), "stalls")
	for _, name := range []string{"first-scan-ns/key", "scan-ns/key"} {
		n, cpu := 0, cpuTime()
		it := d.Scan(holdfast.Range{})
		for it.Next() {
			n++
		}
		if err := it.Close(); err != nil || n != keys {
			b.Fatalf("%d of %d keys, %v", n, keys, err)
		}
		b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/keys, name)
	}
	if err := d.Close(); err != nil {
		b.Fatal(err)
	}
}
