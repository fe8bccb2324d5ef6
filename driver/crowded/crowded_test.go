package crowded_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast/driver/crowded"
)

// One goroutine at a time has the lock, and all get it, also those who come to sleep for it.
func TestLock(t *testing.T) {
	var mu sync.Mutex
	var all sync.WaitGroup
	const goroutines, each = 16, 1000
	n := 0
	crowded.Lock(&mu)
	for range goroutines {
		all.Go(func() {
			for range each {
				crowded.Lock(&mu)
				n++
				mu.Unlock()
			}
		})
	}
	for range 1000 { // longer than they try
		runtime.Gosched()
	}
	if n > 0 {
		t.Error("another one has had the lock meanwhile")
	}
	mu.Unlock()
	all.Wait()
	if n != goroutines*each {
		t.Errorf("%d times, want %d", n, goroutines*each)
	}
}
