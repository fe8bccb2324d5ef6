// Package crowded has a mutex that many goroutines want at the same time, each for a microsecond or two.
//
//	var mu crowded.Mutex
//	mu.Enter()
//	defer mu.Leave()
package crowded

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Mutex is a mutex for that, by Enter and Leave. Lock and Unlock are those of any mutex, for who wants it seldom or has
// it for longer. The zero Mutex is unlocked; it must not be copied.
type Mutex struct {
	sync.Mutex
	waiting atomic.Int32 // goroutines that have found it locked
	left    int          // calls of Leave
}

const (
	// yields is how often a goroutine lets others on before it sleeps.
	yields = 4

	// turns is how often the mutex is left while others wait for it until one who leaves it lets others on.
	turns = 64
)

// Enter locks the mutex. Who sleeps for a mutex is woken on the processor of the one who had it, and waits there behind
// that one, while the own processor is left without work. So a goroutine first lets others on, a few times, and sleeps
// only where it has to wait for longer.
func (m *Mutex) Enter() {
	if m.TryLock() {
		return
	}

	m.waiting.Add(1)
	defer m.waiting.Add(-1)

	for range yields {
		runtime.Gosched()
		if m.TryLock() {
			return
		}
	}
	m.Lock()
}

// Leave unlocks it. A goroutine that does nothing but come again has no reason to stop before its time on the processor
// is over, 10 to 20 ms, and those that have let it on wait for all of that. So it lets others on now and then.
func (m *Mutex) Leave() {
	m.left++
	turn := m.left%turns == 0
	m.Unlock()

	if turn && m.waiting.Load() > 0 {
		runtime.Gosched()
	}
}
