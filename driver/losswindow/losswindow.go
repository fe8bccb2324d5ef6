// Package losswindow implements an engine's loss window: a background sync bounds what commits weaker than Power can
// lose to a power cut.
//
//	window := losswindow.New(options.SyncEvery, e.Settle)
//	window.Dirty() // after a commit weaker than Power
//	window.Stop()  // before closing
package losswindow

import (
	"sync"
	"sync/atomic"
	"time"
)

// Window arms a timer at the first weak commit and syncs when it fires; an idle engine
// costs nothing.
type Window struct {
	every time.Duration
	sync  func() error
	dirty atomic.Bool

	mu      sync.Mutex
	stopped bool
	timer   *time.Timer
	running sync.WaitGroup
}

// New returns a window that calls sync at most every after the first Dirty since the
// last call. A failing sync must poison the engine itself. every <= 0 means never.
func New(every time.Duration, sync func() error) *Window {
	return &Window{every: every, sync: sync}
}

// Every is the window's length, 0 if it is off.
func (w *Window) Every() time.Duration { return max(w.every, 0) }

// Dirty notes a commit weaker than Power. It is called after the commit took its
// place and costs an atomic load when the timer is armed already.
func (w *Window) Dirty() {
	// The load comes first: commits are many, and a failed swap would take the cache line from all other processors.
	if w.every <= 0 || w.dirty.Load() || !w.dirty.CompareAndSwap(false, true) {
		return
	}

	// Only the one who has set dirty comes here, so the timer is armed once.
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(w.every, w.fire)
	} else {
		w.timer.Reset(w.every)
	}
}

// fire is what the timer calls, in a goroutine of its own.
func (w *Window) fire() {
	w.mu.Lock()

	// Stop sets this under mu, so either it sees the sync that is running, or the sync is not begun.
	if w.stopped {
		w.mu.Unlock()
		return
	}
	w.running.Add(1)
	w.mu.Unlock()
	defer w.running.Done()

	// Cleared before the sync: a commit during it arms the timer again.
	w.dirty.Store(false)
	_ = w.sync() // the engine poisons itself
}

// Stop ends the background syncs and waits for one that is running. The engine syncs
// what is left itself.
func (w *Window) Stop() {
	w.mu.Lock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}

	// Waited for without the lock, which commits may want meanwhile.
	w.mu.Unlock()
	w.running.Wait()
}
