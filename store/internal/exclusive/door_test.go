package exclusive_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/exclusive"
)

// While some go in and out, of many who shut the door one did; when it is empty nobody is inside, nor comes in.
func TestDoor(t *testing.T) {
	for range 50 {
		var d exclusive.Door
		var inside, shut, in atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for d.Enter() == nil {
					in.Add(1)
					inside.Add(1)
					inside.Add(-1)
					d.Leave()
				}
			})
		}
		for in.Load() < 10 {
			if d.IsShut() {
				t.Fatal("a new door is shut")
			}
		}
		for range 3 {
			wg.Go(func() {
				if d.Shut() {
					shut.Add(1)
				}
				d.AwaitEmpty()
				if n := inside.Load(); n != 0 {
					t.Errorf("%d are inside an empty place", n)
				}
			})
		}
		wg.Wait()
		if shut.Load() != 1 || !d.IsShut() || d.Enter() != holdfast.ErrClosed {
			t.Fatalf("%d have shut it", shut.Load())
		}
	}
}
