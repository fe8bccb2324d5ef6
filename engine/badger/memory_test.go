package badger

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

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
				try(b, err)
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
					try(b, holdfast.Commit(e, &batch, holdfast.Process))
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
