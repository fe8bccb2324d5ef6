// Package exclusive keeps a store in an engine from being opened twice: each of two would not know what the other does.
package exclusive

import (
	"sync"

	"github.com/holdfastdb/holdfast"
)

// Key names a store: the engine, which must be comparable, and the prefix of the store's keys in it.
type Key struct {
	Engine holdfast.Engine
	Prefix string
}

var taken struct {
	sync.Mutex
	keys map[Key]bool
}

// Acquire reports whether the store was free, and takes it. It may be called from many goroutines at once.
func (k Key) Acquire() bool {
	taken.Lock()
	defer taken.Unlock()
	if taken.keys[k] {
		return false
	}
	if taken.keys == nil {
		taken.keys = map[Key]bool{}
	}
	taken.keys[k] = true
	return true
}

// Release frees a store that was acquired.
func (k Key) Release() {
	taken.Lock()
	defer taken.Unlock()
	delete(taken.keys, k)
}
