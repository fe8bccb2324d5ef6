package crowded

import (
	"runtime"
	"sync"
	"testing"
)

// One goroutine at a time has the lock, and all get it, also those who come to sleep for it.
func TestLock(t *testing.T) {
	var mu Mutex
	var all sync.WaitGroup
	const goroutines, each = 16, 1000
	n := 0
	mu.Enter()
	for range goroutines {
		all.Go(func() {
			for range each {
				mu.Enter()
				n++
				mu.Leave()
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

// One who has found the mutex taken does not wait until those who use it all the time lose their processor.
func TestLeaveLetsOn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var mu Mutex
	var all sync.WaitGroup
	done := false

	mu.Enter()
	all.Go(func() {
		mu.Enter()
		done = true
		mu.Leave()
	})
	for mu.waiting.Load() == 0 {
		runtime.Gosched()
	}
	n := 0
	for ; !done; n++ {
		mu.Leave()
		mu.Enter()
	}
	mu.Leave()
	all.Wait()

	if n > turns*(yields+2) {
		t.Errorf("it was passed %d times", n)
	}
}
