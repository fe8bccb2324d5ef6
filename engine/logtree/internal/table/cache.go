package table

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	chunkOverhead = 88 // bytes of memory a cached chunk costs besides its own

	// Where values would have to go for others, they do one time in so many: what is read once drives out little of what
	// is read often. A group whose values take more than such a part of what there is for values is not kept then.
	seldom = 8
)

// Cache keeps verified chunks of tables in memory, and values that tables name. Many readers share one, from many
// goroutines. Chunks that have not been used for a round are dropped first (CLOCK). Who finds a chunk in memory takes
// no lock.
//
// Values get what blocks and filters leave, and go first: they are in the system's memory too, from where a copy and
// its check cost less than the read call that brings a block. They are the values of whole groups, found through the
// group's block. A table never changes, and values that are moved get other tables, so they are right as long as the
// table is there.
type Cache struct {
	limit int64

	mu             sync.Mutex
	pinned         int64 // bytes that stay while readers are open: indexes, and what remembers the chunks
	tables, values ring  // blocks and pages of filters; values

	left  atomic.Int64  // bytes of chunks that would still fit
	kept  atomic.Int64  // bytes of values
	asked atomic.Uint32 // how often there was no room for values
}

// ring is chunks of one kind. It is used with the cache's mu held.
type ring struct {
	chunks []*chunk
	hand   int
	bytes  int64
}

// chunk is a block, a page of a filter, or the values of a group of a block, one behind the other.
type chunk struct {
	data   []byte                  // never written to
	used   atomic.Bool             // since the hand came by
	groups []atomic.Pointer[chunk] // of a block: the values of its groups, as far as the cache keeps them
	slot   *atomic.Pointer[chunk]  // where its reader has it, or its block
	ring   *ring                   // under the cache's mu, as at is
	at     int                     // in the ring
}

// use returns the chunk's bytes. They stay as they are, even when the cache has dropped the chunk. A store would take
// the cache line from other readers even where it changes nothing, so it is read first.
func (p *chunk) use() []byte {
	if !p.used.Load() {
		p.used.Store(true)
	}

	return p.data
}

// head is the memory of what use looks at.
func (p *chunk) head() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Offsetof(p.groups))
}

func (p *chunk) cost() int64 { return int64(cap(p.data) + 8*len(p.groups) + chunkOverhead) }

// NewCache returns a cache that holds at most so many bytes.
func NewCache(bytes int64) *Cache { return &Cache{limit: max(bytes, 0)} }

// Bytes is how much memory the cache holds, and the indexes of the readers that use it: those stay while a
// reader is open, about 1 % of its file, and the cache makes room for them down to a quarter of its size.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.tables.bytes + c.values.bytes + c.pinned
}

// pin counts memory that a reader needs as long as it is open.
func (c *Cache) pin(bytes int64) {
	c.mu.Lock()
	c.pinned += bytes
	c.count()
	c.mu.Unlock()
}

// room is how many bytes of chunks the cache may hold. Indexes count too, but a cache of none at all would have each
// read go to the file.
func (c *Cache) room() int64 { return max(c.limit-c.pinned, c.limit/4) }

// count notes what wants looks at. It is called with mu held when anything has changed.
func (c *Cache) count() {
	c.left.Store(c.room() - c.tables.bytes - c.values.bytes)
	c.kept.Store(c.values.bytes)
}

// put gives the cache a block, or a page of a filter.
func (c *Cache) put(p *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// Another goroutine may have read the same chunk meanwhile: one copy is enough, and the other is the caller's alone.
	room, cost := c.room(), p.cost()
	if cost > room || p.slot.Load() != nil {
		return
	}

	for c.tables.bytes+c.values.bytes+cost > room {
		if len(c.values.chunks) > 0 {
			c.evict(&c.values)
		} else {
			c.evict(&c.tables)
		}
	}
	c.add(&c.tables, p)
}

// wants reports whether n bytes of values had better be kept when they are read: where there is room, and seldom where
// others have to go for them.
func (c *Cache) wants(n int64) bool {
	left, kept := c.left.Load(), c.kept.Load()
	return n <= left || n <= (left+kept)/seldom && c.asked.Add(1)%seldom == 0
}

// keep gives the cache values of a group of a block.
func (c *Cache) keep(block, p *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()

	// The block may have been dropped meanwhile, or not been taken at all: then nobody would find its values.
	room, cost := c.room(), p.cost()
	if block.slot.Load() != block || p.slot.Load() != nil || c.tables.bytes+cost > room {
		return
	}

	for c.tables.bytes+c.values.bytes+cost > room {
		c.evict(&c.values)
	}
	c.add(&c.values, p)
}

// add makes a chunk one of the ring.
func (c *Cache) add(r *ring, p *chunk) {
	p.ring, p.at = r, len(r.chunks)
	r.chunks = append(r.chunks, p)
	r.bytes += p.cost()
	c.count()

	// The chunk is found from here on. Its bytes are never written to, so readers need no lock.
	p.slot.Store(p)
}

// evict drops one chunk of a ring. There is one: only chunks make bytes. The newest takes its place, which the hand
// passes: it is looked at last of all.
func (c *Cache) evict(r *ring) {
	for ; ; r.hand++ {
		if r.hand >= len(r.chunks) {
			r.hand = 0
		}
		if p := r.chunks[r.hand]; !p.used.Swap(false) {
			c.remove(p)
			r.hand++

			return
		}
	}
}

// remove drops a chunk, with the values of a block; the last one takes its place in the ring.
func (c *Cache) remove(p *chunk) {
	for i := range p.groups {
		if v := p.groups[i].Load(); v != nil {
			c.remove(v)
		}
	}

	// Readers that have loaded it keep its bytes. The garbage collector frees them when the last has let go.
	r := p.ring
	p.slot.Store(nil)
	r.bytes -= p.cost()
	n := len(r.chunks) - 1
	last := r.chunks[n]
	r.chunks[p.at], last.at = last, p.at
	r.chunks[n] = nil
	r.chunks = r.chunks[:n]
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
	c.count()
}
