package uses

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestLast: last is called once, when the count has ended and no use is left, whatever begins and ends meanwhile.
func TestLast(t *testing.T) {
	for round := range 800 {
		var using, calls atomic.Int64
		count := New(func() {
			if n := using.Load(); n != 0 {
				t.Errorf("round %d: last is called with %d uses", round, n)
			}
			calls.Add(1)
		})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(round), uint64(i)))
				for count.Begin() {
					using.Add(1)
					if random.IntN(8) == 0 {
						runtime.Gosched()
					}
					deep(random.IntN(40)) // a stack that moves
					using.Add(-1)
					if random.IntN(4) == 0 { // another goroutine may end it
						wg.Go(count.Done)
					} else {
						count.Done()
					}
				}
			})
		}
		for range rand.New(rand.NewPCG(uint64(round), 99)).IntN(30) {
			runtime.Gosched()
		}
		count.End()
		wg.Wait()
		if calls.Load() != 1 || count.Begin() {
			t.Fatalf("round %d: last was called %d times", round, calls.Load())
		}
	}
}

//go:noinline
func deep(n int) byte {
	var room [256]byte
	if n > 0 {
		room[n] = deep(n - 1)
	}
	return room[n]
}

// TestLastAtTheEnd is TestLast for uses that begin and end just when the count does.
func TestLastAtTheEnd(t *testing.T) {
	for round := range 3000 {
		var calls atomic.Int64
		count := New(func() { calls.Add(1) })
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 { // not until it has ended, which would keep others from their processor
					if count.Begin() {
						count.Done()
					}
				}
			})
		}
		for range round % 10 {
			count.Begin()
			count.Done()
		}
		count.End()
		wg.Wait()
		if calls.Load() != 1 {
			t.Fatalf("round %d: last was called %d times", round, calls.Load())
		}
	}
}

// TestLastWaits: last is not called while a use is left, and then by the one that ends it.
func TestLastWaits(t *testing.T) {
	called := false
	count := New(func() { called = true })
	for range 2 {
		if !count.Begin() {
			t.Fatal("it has ended")
		}
	}
	count.Done()
	count.End()
	if called || count.Begin() || called {
		t.Error("last was called with a use left, or one began after the end")
	}
	if count.Done(); !called {
		t.Error("last was not called")
	}
}

// TestDoneTooOften: an end of a use that never began is found out, if not at once. It once kept last from being called.
func TestDoneTooOften(t *testing.T) {
	for name, end := range map[string]func(*Count){
		"before the end": func(c *Count) { c.Done(); c.End() },
		"after it":       func(c *Count) { c.End(); c.Done() },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a use too many that is done %s is not found out", name)
				}
			}()
			end(New(func() {}))
		}()
	}
}

// BenchmarkUse begins and ends uses on all processors, and beside that with a read lock.
func BenchmarkUse(b *testing.B) {
	b.Run("count", func(b *testing.B) {
		count := New(nil)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				count.Begin()
				count.Done()
			}
		})
	})
	b.Run("lock", func(b *testing.B) {
		var lock sync.RWMutex
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				lock.RLock()
				//lint:ignore SA2001 what is measured
				lock.RUnlock()
			}
		})
	})
}
