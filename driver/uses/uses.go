// Package uses counts who uses something, without a word of memory that all who do so write to. A reference count or a
// read lock has one: however many processors there are, they then wait for each other's caches.
//
//	count := uses.New(func() { close(unused) }) // once it has ended, and nobody uses it
//	if !count.Begin() {                         // it has ended
//		return holdfast.ErrClosed
//	}
//	defer count.Done()
package uses

import (
	"sync/atomic"
	"unsafe"
)

// Count counts uses until it ends. All methods may be called from many goroutines at once. It is made by New.
type Count struct {
	slots [slots]slot
	ended atomic.Bool
	told  atomic.Bool
	last  func()
}

const slots = 32

// slot is some of the uses: what began less what is done, which may be less than nothing. No two slots share what a
// processor's cache takes at a time.
type slot struct {
	n atomic.Int64
	_ [120]byte
}

// New returns a count without uses. last is called once, when the count has ended and no use is left, by whoever ends
// it or the last use.
func New(last func()) *Count { return &Count{last: last} }

// Begin begins a use, unless the count has ended.
func (c *Count) Begin() bool {
	s := c.slot()
	s.n.Add(1)
	if !c.ended.Load() {
		return true
	}

	// In the same slot: whoever looks at the slots one after the other must not see what ends here without what began.
	s.n.Add(-1)
	c.look()

	return false
}

// Done ends a use. If more uses end than had begun, it panics, or a call after the end of the count does.
func (c *Count) Done() {
	c.slot().n.Add(-1)
	if c.ended.Load() {
		c.look()
	}
}

// End lets no use begin from now on.
func (c *Count) End() {
	c.ended.Store(true)
	c.look()
}

// look tells if no use is left. It is called when the count has ended.
func (c *Count) look() {
	// All uses that ever succeed in beginning were counted before the count ended. So the sum is never too small: it may
	// only have some that are done by now, or are about to fail in beginning. Whoever takes one away looks afterwards.
	var n int64
	for i := range c.slots {
		n += c.slots[i].n.Load()
	}
	if n < 0 { // otherwise nobody would learn of it, and who waits for last would wait for ever
		panic("uses: more uses have ended than had begun")
	}
	if n == 0 && c.told.CompareAndSwap(false, true) {
		c.last()
	}
}

// slot returns the slot of this goroutine. Its stack tells goroutines apart; that it may move does not matter, since
// all slots are added up.
func (c *Count) slot() *slot {
	var here byte
	at := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // the least size of a stack

	return &c.slots[at*0x9e3779b97f4a7c15>>(64-5)] // by Fibonacci hashing, to 32 slots
}
