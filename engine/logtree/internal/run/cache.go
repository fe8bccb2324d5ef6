package run

import (
	"sync"
	"sync/atomic"
)

const (
	cacheShards  = 16           // at most
	leastShard   = 4 * maxBlock // a smaller cache has fewer shards, so that each holds some pieces
	slotOverhead = 96           // bytes of memory a cached piece costs besides its own, about
)

// Cache keeps verified pieces of runs that are not mapped into memory. Many readers share one, from many
// goroutines. Its memory is bounded; what has not been used for a round is dropped first (CLOCK).
type Cache struct {
	limit  int64 // of all shards
	pinned atomic.Int64
	files  atomic.Uint64
	shards []shard // a power of two
}

type cacheKey struct {
	file   uint64
	offset int64
}

type slot struct {
	key  cacheKey
	data []byte // nil: the slot is free
	used atomic.Bool
}

type shard struct {
	mu    sync.RWMutex
	at    map[cacheKey]*slot
	slots []*slot
	hand  int
	bytes int64
	_     [64]byte
}

// NewCache returns a cache that holds at most so many bytes.
func NewCache(bytes int64) *Cache {
	n := 1
	for n < cacheShards && bytes >= int64(2*n*leastShard) {
		n *= 2
	}
	c := &Cache{limit: max(bytes, 0), shards: make([]shard, n)}
	for i := range c.shards {
		c.shards[i].at = map[cacheKey]*slot{}
	}
	return c
}

// Bytes is how much memory the cache holds, and the indexes of the readers that use it: those stay while a
// reader is open, about 1 % of its file, and the cache makes room for them down to a quarter of its size.
func (c *Cache) Bytes() int64 {
	n := c.pinned.Load()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.RLock()
		n += s.bytes
		s.mu.RUnlock()
	}
	return n
}

func (c *Cache) shard(k cacheKey) *shard {
	h := (k.file<<40 ^ uint64(k.offset)) * filterMixer
	return &c.shards[h>>60&uint64(len(c.shards)-1)]
}

// get returns a piece, which nobody may write to, or nil.
func (c *Cache) get(k cacheKey) []byte {
	s := c.shard(k)
	s.mu.RLock()
	defer s.mu.RUnlock()
	p := s.at[k]
	if p == nil {
		return nil
	}
	if !p.used.Load() {
		p.used.Store(true)
	}
	return p.data
}

// put gives the cache a piece, which nobody may write to any more.
func (c *Cache) put(k cacheKey, data []byte) {
	s, cost := c.shard(k), int64(len(data)+slotOverhead)
	limit := max(c.limit-c.pinned.Load(), c.limit/4) / int64(len(c.shards))
	if cost > limit {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at[k] != nil {
		return
	}
	for s.bytes+cost > limit {
		s.evict()
	}
	p := &slot{key: k, data: data}
	s.at[k] = p
	s.bytes += cost
	s.slots = append(s.slots, p)
}

// evict drops one piece. There is one: only pieces make bytes.
func (s *shard) evict() {
	for {
		if s.hand >= len(s.slots) {
			s.hand = 0
		}
		p := s.slots[s.hand]
		if p.used.Swap(false) {
			s.hand++
			continue
		}
		s.remove(s.hand)
		return
	}
}

// remove drops the piece in slot i; the last slot takes its place.
func (s *shard) remove(i int) {
	p, last := s.slots[i], len(s.slots)-1
	delete(s.at, p.key)
	s.bytes -= int64(len(p.data) + slotOverhead)
	s.slots[i], s.slots[last] = s.slots[last], nil
	s.slots = s.slots[:last]
}

// drop forgets a file.
func (c *Cache) drop(file uint64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for i := len(s.slots) - 1; i >= 0; i-- {
			if s.slots[i].key.file == file {
				s.remove(i)
			}
		}
		s.mu.Unlock()
	}
}
