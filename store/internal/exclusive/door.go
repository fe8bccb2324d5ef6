package exclusive

import (
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// Door keeps a store's Close from returning while others are in the engine, so that whoever opens the store again, or closes
// the engine, after Close finds nobody there. The zero Door is open. All methods may be called from many goroutines at once.
type Door struct {
	inside sync.RWMutex // read-locked by those who are inside
	shut   atomic.Bool
}

// Enter is for calls that use the engine. It returns ErrClosed if the door is shut; otherwise Leave must follow. It is not
// nested: who is inside and enters once more may wait for Close, which waits for him.
func (d *Door) Enter() error {
	d.inside.RLock()
	if d.shut.Load() {
		d.inside.RUnlock()
		return holdfast.ErrClosed
	}
	return nil
}

// Leave follows a call of Enter that has returned nil.
func (d *Door) Leave() { d.inside.RUnlock() }

// IsShut reports whether Shut was called.
func (d *Door) IsShut() bool { return d.shut.Load() }

// Shut keeps everybody out from now on, and reports whether it was open before. Some may still be inside.
func (d *Door) Shut() bool { return !d.shut.Swap(true) }

// AwaitEmpty returns when all who had entered a door that is now shut have left.
func (d *Door) AwaitEmpty() {
	d.inside.Lock()
	defer d.inside.Unlock()
}
