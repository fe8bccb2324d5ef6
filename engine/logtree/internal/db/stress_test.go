package db

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestManyWriters lets many goroutines append to one sequence, as an event store does, and checks
// that all of it is there, then and after reopening.
func TestManyWriters(t *testing.T) {
	for _, level := range holdfast.Levels() {
		t.Run(level.String(), func(t *testing.T) {
			c := testConfig(vfs.OS(), t.TempDir())
			c.Memory = 4 << 20
			d, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			var order sync.Mutex
			var last uint64
			var writers sync.WaitGroup
			rounds := 300
			if testing.Short() {
				rounds = 60
			}
			if level == holdfast.Power {
				rounds = 60
			}
			for w := range 64 {
				writers.Go(func() {
					var b holdfast.Batch
					for range rounds {
						b.Reset()
						order.Lock()
						for range 1 + w {
							last++
							b.Set(binary.BigEndian.AppendUint64([]byte("e"), last), fmt.Appendf(nil, `{"index": %d}`, last))
						}
						r, err := d.Apply(&b, level)
						order.Unlock()
						if err != nil {
							t.Errorf("apply: %v", err)
							return
						}
						if err := r.Wait(); err != nil {
							t.Errorf("wait: %v", err)
							return
						}
					}
				})
			}
			writers.Wait()
			check := func() {
				t.Helper()
				it := d.Scan(holdfast.Range{})
				defer it.Close()
				n := uint64(0)
				for it.Next() {
					n++
					if k := binary.BigEndian.Uint64(it.Key()[1:]); k != n || string(it.Value()) != fmt.Sprintf(`{"index": %d}`, n) {
						t.Fatalf("entry %d is %d: %q", n, k, it.Value())
					}
				}
				if it.Err() != nil || n != last {
					t.Fatalf("%d of %d entries, %v", n, last, it.Err())
				}
			}
			check()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			c.New = false
			if d, err = Open(c); err != nil {
				t.Fatal(err)
			}
			check()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
