package postgres

import (
	"bytes"
	"container/list"
	"hash/maphash"
	"sync"

	"github.com/holdfastdb/holdfast"
)

// cache has values of keys, and which keys are absent, as a Get of the server would find them. The engine is the only
// writer of its space, so that it knows when a value is out of date.
//
// Groups that change keys are counted. From before a group is sent until its outcome is known, what it writes is not in
// the cache: reads of these keys see what the server shows, as they may see some of the group already. When it is
// settled, what it wrote is put in. If its outcome never becomes known, its keys never come back.
//
// A read may answer late. So it says how many groups were settled when it was sent, which its state has at least: what
// it found is put in if no later group, be it under way, wrote the key. That also says whether a value in the cache is
// the one of an older state. The groups are remembered by a hash of the key. If two keys share it, less is cached.
type cache struct {
	limit int64

	mu      sync.Mutex
	bytes   int64
	entries map[string]*list.Element // of *entry
	recent  list.List                // the one that was used last is the first
	seed    maphash.Seed
	begun   int64        // groups
	settled int64        // of these, up to which their outcome is known
	wrote   [slots]int64 // the last group that wrote a key, by its hash
	swept   int64        // the last group after which nothing that was read before is put in
}

// entry is what is known of a key. Its value is nil if the key is absent; it is never changed.
type entry struct {
	key   string
	value []byte
}

const (
	slots = 1 << 14
	// entryBytes is what an entry takes besides its key and value: its own, the element, the place in the map.
	entryBytes = 176
	// defaultMemory is the budget of bytes when none is named.
	defaultMemory = 64 << 20
)

func newCache(budget int64) *cache {
	return &cache{limit: budget - 8*slots, entries: map[string]*list.Element{}, seed: maphash.MakeSeed()}
}

func (e *entry) cost() int64 { return int64(len(e.key) + cap(e.value) + entryBytes) }

func (c *cache) slot(key []byte) *int64 { return &c.wrote[maphash.Bytes(c.seed, key)%slots] }

// now is the number that reads pass which are sent after it.
func (c *cache) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.settled
}

// fixed reports whether a key is in all states from a number on what it is now. It is called with mu held.
func (c *cache) fixed(key []byte, since int64) bool { return c.swept <= since && *c.slot(key) <= since }

// get looks up a key in the latest state. A nil value means that it is absent.
func (c *cache) get(key []byte) (value []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.find(key)
}

// getIn is get in a state that has at least what was settled at since.
func (c *cache) getIn(key []byte, since int64) (value []byte, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fixed(key, since) {
		return nil, false
	}

	return c.find(key)
}

func (c *cache) find(key []byte) (value []byte, known bool) {
	at := c.entries[string(key)]
	if at == nil {
		return nil, false
	}
	c.recent.MoveToFront(at)

	return at.Value.(*entry).value, true
}

// unknown returns those of keys that are not in it.
func (c *cache) unknown(keys [][]byte) (list [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		if _, known := c.find(key); !known {
			list = append(list, key)
		}
	}

	return list
}

// read tells of what was found in a state that has at least what was settled at since: nil if the key is absent.
func (c *cache) read(key, value []byte, since int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fixed(key, since) {
		c.put(key, value)
	}
}

// put keeps a copy of key and value.
func (c *cache) put(key, value []byte) {
	e := &entry{key: string(key), value: bytes.Clone(value)}
	if at := c.entries[e.key]; at != nil {
		c.remove(at)
	}
	if e.cost() > c.limit/16 { // it would drive out many
		return
	}
	for c.bytes+e.cost() > c.limit {
		c.remove(c.recent.Back())
	}
	c.entries[e.key] = c.recent.PushFront(e)
	c.bytes += e.cost()
}

func (c *cache) remove(at *list.Element) {
	e := c.recent.Remove(at).(*entry)
	delete(c.entries, e.key)
	c.bytes -= e.cost()
}

// begin is called before a group is sent. It returns which of its keys are known to be there, and how many others it
// sets.
func (c *cache) begin(b *holdfast.Batch) (there map[string]bool, others int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	there = map[string]bool{}
	c.begun++
	for op := range b.Ops() {
		if op.Kind == holdfast.KindDeleteRange {
			c.swept = c.begun
			c.removeRange(op.Key, op.Value)
			continue
		}
		*c.slot(op.Key) = c.begun
		if at := c.entries[string(op.Key)]; at != nil {
			if e := at.Value.(*entry); e.value != nil {
				there[e.key] = true
			}
			c.remove(at)
		}
		if op.Kind != holdfast.KindDelete && !there[string(op.Key)] {
			others++
		}
	}

	return there, others
}

func (c *cache) removeRange(lo, hi []byte) {
	for key, at := range c.entries {
		if key >= string(lo) && (len(hi) == 0 || key < string(hi)) {
			c.remove(at)
		}
	}
}

// settle is called when what the group wrote that began last is there.
func (c *cache) settle(b *holdfast.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled = c.begun
	for op := range b.Ops() {
		if op.Kind == holdfast.KindDeleteRange {
			c.removeRange(op.Key, op.Value)
		} else {
			c.put(op.Key, op.Value) // of one that is deleted it is nil, of an empty one not
		}
	}
}

// drop forgets everything, and what reads find that were sent before the next group is settled.
func (c *cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun++
	c.swept = c.begun
	clear(c.entries)
	c.recent.Init()
	c.bytes = 0
}

// used is how many bytes it has.
func (c *cache) used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.bytes + 8*slots
}
