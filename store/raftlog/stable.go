package raftlog

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// stable keeps stable values in memory, as many as fit. Raft has three.
//
// Invariants: a value in cache is durable, or was and is being replaced. pending has the keys that
// are being written.
type stable struct {
	mu      sync.RWMutex
	cache   map[string]cached
	size    int // bytes of keys and values in cache
	pending map[string]pending
	seq     uint64 // of the last write
}

type cached struct {
	value []byte // never written to
	seq   uint64 // of the write it comes from, 0 if it was read from the engine
}

type pending struct {
	writes int    // under way
	last   uint64 // sequence number of the last of them
}

const (
	cacheSize  = 1 << 20        // bytes of keys and values
	cacheLimit = cacheSize >> 4 // bytes of one that is kept
)

func (c *stable) init() {
	c.cache, c.pending = map[string]cached{}, map[string]pending{}
}

// lookUp returns the value of k if it is in memory.
func (c *stable) lookUp(k []byte) ([]byte, bool) {
	c.mu.RLock()
	v, ok := c.cache[string(k)]
	c.mu.RUnlock()

	return v.value, ok
}

// put keeps a value, which must not be changed afterwards. It is called with mu held.
func (c *stable) put(k string, v cached) {
	if old, ok := c.cache[k]; ok {
		c.size -= len(k) + len(old.value)
		delete(c.cache, k)
	}
	if len(k)+len(v.value) > cacheLimit {
		return
	}

	c.size += len(k) + len(v.value)
	for old := range c.cache {
		if c.size <= cacheSize {
			break
		}
		c.size -= len(old) + len(c.cache[old].value)
		delete(c.cache, old)
	}
	c.cache[k] = v
}

// begin notes a write of k, before it is applied.
func (c *stable) begin(k []byte) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	c.pending[string(k)] = pending{c.pending[string(k)].writes + 1, c.seq}

	return c.seq
}

// end notes that the write of k with that number is durable, or, if it is not done, had no effect.
func (c *stable) end(k, value []byte, seq uint64, done bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[string(k)]
	if p.writes--; p.writes == 0 {
		delete(c.pending, string(k))
	} else {
		c.pending[string(k)] = p
	}
	if !done {
		return
	}
	// A value in memory is replaced by a later one. A key that is not in memory is added only by its
	// latest write: a reader may have got a later value from the engine.
	if old, ok := c.cache[string(k)]; ok && old.seq < seq || !ok && seq == p.last {
		c.put(string(k), cached{append(make([]byte, 0, len(value)), value...), seq})
	}
}

// Set stores a stable value and returns when it has reached the store's level. A key may be empty.
//
// Errors: ErrTooLarge and ErrBadKey for what is over the engine's limits, ErrClosed; ErrPoisoned
// means that the outcome is unknown until the engine is opened again.
func (s *Store) Set(k, v []byte) error {
	if size := int64(len(v)) + format.StableOverhead; size > s.maxValue {
		return s.fail("set", holdfast.ErrTooLarge, nil, "",
			"the value of key %.40q takes %d bytes, the limit is %d", k, size, s.maxValue)
	}
	if size := int64(len(s.keys.Prefix) + 1 + len(k)); size > s.caps.MaxKeySize {
		return s.fail("set", holdfast.ErrBadKey, nil, "use a shorter one",
			"the key %.40q... takes %d bytes, the limit is %d", k, size, s.caps.MaxKeySize)
	}

	e := s.encoders.Get().(*encoder)
	defer s.free(e)
	e.other = s.keys.Stable(e.other, k)
	e.value = format.AppendStable(e.value[:0], e.other, v)
	e.batch.Reset()
	e.batch.Set(e.other, e.value)

	s.mu.Lock()
	err := s.state()
	var seq uint64
	var receipt holdfast.Receipt
	if err == nil {
		seq = s.stable.begin(k)
		if receipt, err = s.eng.Apply(&e.batch, s.level); err != nil {
			s.stable.end(k, nil, seq, false)
		} else {
			s.receipt = receipt
		}
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.settle(mark{receipt: receipt}); err != nil {
		return err // k stays pending: its value in the engine is unknown
	}
	s.stable.end(k, v, seq, true)

	return nil
}

// Get returns the stable value of k, which is the caller's. Errors: ErrKeyNotFound as it is;
// ErrCorrupt; ErrPoisoned if it was being written when a write failed and is not in memory;
// ErrClosed.
func (s *Store) Get(k []byte) ([]byte, error) {
	v, err := s.value(k)
	if err != nil {
		return nil, err
	}

	return append(make([]byte, 0, len(v)), v...), nil
}

// SetUint64 is Set of a number, as 8 bytes, big-endian.
func (s *Store) SetUint64(k []byte, v uint64) error {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)

	return s.Set(k, b[:])
}

// GetUint64 is Get of a number, 0 with an error. The error is ErrBadOption if the value has not 8
// bytes.
func (s *Store) GetUint64(k []byte) (uint64, error) {
	v, err := s.value(k)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, s.fail("get", holdfast.ErrBadOption, nil, "use Get",
			"the value of key %.40q has %d bytes and is no number", k, len(v))
	}

	return binary.BigEndian.Uint64(v), nil
}

// value returns the value of k, which must not be written to.
func (s *Store) value(k []byte) ([]byte, error) {
	if s.life.Closed() {
		return nil, holdfast.ErrClosed
	}
	if v, ok := s.stable.lookUp(k); ok {
		return v, nil
	}
	if err := s.life.Enter(); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	if int64(len(s.keys.Prefix)+1+len(k)) > s.caps.MaxKeySize {
		return nil, ErrKeyNotFound
	}
	s.stable.mu.RLock()
	seq := s.stable.seq
	_, written := s.stable.pending[string(k)]
	s.stable.mu.RUnlock()
	key := s.keys.Stable(nil, k)
	stored, err := s.eng.Get(nil, key)
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		return nil, err
	}
	var v []byte
	if err == nil {
		var ok bool
		if v, ok = format.DecodeStable(key, stored); !ok {
			return nil, s.fail("get", holdfast.ErrCorrupt, nil, damaged,
				"the value of key %.40q does not read back as it was written", k)
		}
	}
	// A value read while k is being written may be the old one, and the write may have ended by the
	// time the value would be kept.
	if waited := s.durable(k, v, err == nil && !written, seq); waited != nil {
		return nil, waited
	}
	if err != nil {
		return nil, ErrKeyNotFound
	}

	return v, nil
}

// durable returns once the value of k that the engine showed is durable. It keeps a value in memory if keep
// says so and nothing was written since the write numbered seq, the last before the engine was asked.
func (s *Store) durable(k, v []byte, keep bool, seq uint64) error {
	s.stable.mu.Lock()
	_, written := s.stable.pending[string(k)]
	if !written && keep && s.stable.seq == seq {
		s.stable.put(string(k), cached{value: v})
	}
	s.stable.mu.Unlock()
	if !written {
		return nil
	}

	return s.barrier()
}

// barrier returns when everything applied so far is durable.
func (s *Store) barrier() error {
	s.mu.Lock()
	m := s.mark()
	s.mu.Unlock()

	return s.settle(m)
}

// Keys returns all stable keys, ascending.
func (s *Store) Keys() ([][]byte, error) {
	if err := s.life.Enter(); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	var keys [][]byte
	lo, hi := s.keys.Stables()
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()

	for it.Next() {
		keys = append(keys, slices.Clone(it.Key()[len(lo):]))
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	s.stable.mu.RLock()
	written := len(s.stable.pending) > 0
	s.stable.mu.RUnlock()
	if written {
		if err := s.barrier(); err != nil {
			return nil, err
		}
	}

	return keys, nil
}
