// Package crowded takes locks that many goroutines want at the same time, each for a microsecond or two.
//
//	crowded.Lock(&mu)
//	defer mu.Unlock()
package crowded

import (
	"runtime"
	"sync"
)

// yields is how often a goroutine lets others on before it sleeps.
const yields = 4

// Lock locks mu. Who sleeps for a mutex is woken on the processor of the one who had it, and waits there behind that
// one, while the own processor is left without work. So a goroutine first lets others on, a few times, and sleeps only
// where it has to wait for longer.
func Lock(mu *sync.Mutex) {
	for range yields {
		if mu.TryLock() {
			return
		}
		runtime.Gosched()
	}
	mu.Lock()
}
