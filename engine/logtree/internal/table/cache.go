package table

import (
	"sync"
	"sync/atomic"
)

const chunkOverhead = 56 // bytes of memory a cached chunk costs besides its own

// Cache keeps verified chunks of tables in memory. Many readers share one, from many goroutines. Chunks that have not
// been used for a round are dropped first (CLOCK). Who finds a chunk in memory takes no lock.
type Cache struct {
	limit int64

	mu     sync.Mutex
	pinned int64 // bytes that stay while readers are open: indexes, and what remembers the chunks
	bytes  int64 // of chunks
	ring   []*chunk
	hand   int
}

// chunk is a block or a page of a filter.
type chunk struct {
	slot *atomic.Pointer[chunk] // where its reader has it
	data []byte                 // never written to
	used atomic.Bool            // since the hand came by
	at   int                    // in the ring; under the cache's mu
}

// use returns the chunk's bytes. They stay as they are, even when the cache has dropped the chunk. A store would take
// the cache line from other readers even where it changes nothing, so it is read first.
func (p *chunk) use() []byte {
	if !p.used.Load() {
		p.used.Store(true)
	}

	return p.data
}

func (p *chunk) cost() int64 { return int64(cap(p.data) + chunkOverhead) }

// NewCache returns a cache that holds at most so many bytes.
func NewCache(bytes int64) *Cache { return &Cache{limit: max(bytes, 0)} }

// Bytes is how much memory the cache holds, and the indexes of the readers that use it: those stay while a
// reader is open, about 1 % of its file, and the cache makes room for them down to a quarter of its size.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.bytes + c.pinned
}

// pin counts memory that a reader needs as long as it is open.
func (c *Cache) pin(bytes int64) {
	c.mu.Lock()
	c.pinned += bytes
	c.mu.Unlock()
}

// put gives the cache a chunk, to be found in slot.
func (c *Cache) put(slot *atomic.Pointer[chunk], data []byte) {
	p := &chunk{slot: slot, data: data}
	c.mu.Lock()
	defer c.mu.Unlock()

	// Indexes count too, but a cache of none at all would have each read go to the file.
	limit := max(c.limit-c.pinned, c.limit/4)

	// Another goroutine may have read the same chunk meanwhile: one copy is enough, and the other is the caller's alone.
	if p.cost() > limit || slot.Load() != nil {
		return
	}

	for c.bytes+p.cost() > limit {
		c.evict()
	}
	p.at = len(c.ring)
	c.ring = append(c.ring, p)
	c.bytes += p.cost()

	// The chunk is found from here on. Its bytes are never written to, so readers need no lock.
	slot.Store(p)
}

// evict drops one chunk. There is one: only chunks make bytes. The newest takes its place, which the hand passes: it is
// looked at last of all.
func (c *Cache) evict() {
	for ; ; c.hand++ {
		if c.hand >= len(c.ring) {
			c.hand = 0
		}
		if p := c.ring[c.hand]; !p.used.Swap(false) {
			c.remove(p)
			c.hand++

			return
		}
	}
}

// remove drops a chunk; the last one takes its place in the ring.
func (c *Cache) remove(p *chunk) {
	// Readers that have loaded it keep its bytes. The garbage collector frees them when the last has let go.
	p.slot.Store(nil)
	c.bytes -= p.cost()
	n := len(c.ring) - 1
	last := c.ring[n]
	c.ring[p.at], last.at = last, p.at
	c.ring[n] = nil
	c.ring = c.ring[:n]
}

// drop forgets what it keeps of a reader, which is not used any more.
func (c *Cache) drop(r *Reader) {
	c.mu.Lock()
	defer c.mu.Unlock()

	for i := range r.chunks {
		if p := r.chunks[i].Load(); p != nil {
			c.remove(p)
		}
	}
}
