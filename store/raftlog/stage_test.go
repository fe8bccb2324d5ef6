package raftlog_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// stage is an engine in memory whose tests decide when its receipts are in, what fails and what its
// limits are. It shows batches at once, as Pebble does, or only when their receipts are in, as bbolt
// does.
type stage struct {
	holdfast.Engine
	late   bool  // show batches only when they are durable
	native bool  // Capabilities.NativeDeleteRange
	ops    int64 // operations that a batch may have, counting each key of a range; 0 for any number
	batch  int64 // Capabilities.MaxBatchSize, 0 for 1 MiB

	mu      sync.Mutex
	changed sync.Cond
	held    bool
	fail    error // what Wait returns from now on
	refuse  error // what Apply returns from now on
	spare   int   // batches until then
	applied uint64
	settled uint64
	waiting int
	queue   []*holdfast.Batch // applied, not yet shown
	record  bool
	batches []*holdfast.Batch // all that were applied, if they are recorded
}

func newStage() *stage {
	s := &stage{Engine: mem.New(), native: true}
	s.changed.L = &s.mu
	return s
}

func (s *stage) Capabilities() holdfast.Capabilities {
	c := s.Engine.Capabilities()
	c.Engine = "stage"
	c.NativeDeleteRange = s.native
	c.MaxBatchSize, c.MaxValueSize = 1<<20, 1<<18
	if s.batch > 0 {
		c.MaxBatchSize = s.batch
	}
	return c
}

func copyOf(b *holdfast.Batch) *holdfast.Batch {
	c := new(holdfast.Batch)
	c.Append(b)
	return c
}

func (s *stage) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return holdfast.Receipt{}, &holdfast.Error{Class: holdfast.ErrPoisoned, Cause: s.fail}
	}
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	if limit := s.Capabilities().MaxBatchSize; int64(b.Size()) > limit {
		return holdfast.Receipt{}, fmt.Errorf("a batch of %d bytes, over the limit of %d that the store was told", b.Size(), limit)
	}
	if s.ops > 0 && s.count(b) > s.ops {
		return holdfast.Receipt{}, &holdfast.Error{Op: "apply", Class: holdfast.ErrTooLarge, Detail: "too many operations"}
	}
	if s.refuse != nil {
		if s.spare--; s.spare < 0 {
			return holdfast.Receipt{}, s.refuse
		}
	}
	s.applied++
	if s.record {
		s.batches = append(s.batches, copyOf(b))
	}
	if s.late && s.held {
		s.queue = append(s.queue, copyOf(b))
	} else if err := holdfast.Commit(s.Engine, b, level); err != nil {
		return holdfast.Receipt{}, err
	}
	if !s.held {
		s.settled = s.applied
	}
	return holdfast.NewReceipt(s, s.applied), nil
}

func (s *stage) count(b *holdfast.Batch) (n int64) {
	for op := range b.Ops() {
		if op.Kind != holdfast.KindDeleteRange {
			n++
			continue
		}
		it := s.Engine.Scan(holdfast.Range{Lo: op.Key, Hi: op.Value})
		for it.Next() {
			n++
		}
		_ = it.Close()
	}
	return n
}

// Wait makes the stage the Waiter of its receipts.
func (s *stage) Wait(token uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting++
	defer func() { s.waiting-- }()
	s.changed.Broadcast()
	for s.settled < token && s.fail == nil {
		s.changed.Wait()
	}
	if s.settled < token {
		return &holdfast.Error{Op: "sync", Class: holdfast.ErrPoisoned, Cause: s.fail}
	}
	return nil
}

// hold keeps receipts from coming in.
func (s *stage) hold() { s.set(func() { s.held = true }) }

// release lets the receipts of the first n batches since hold come in; n < 0 means all, and those to
// come.
func (s *stage) release(n int) {
	s.set(func() {
		upto := s.applied
		if n >= 0 {
			upto = s.settled + uint64(n)
		} else {
			s.held = false
		}
		for s.settled < upto {
			s.settled++
			if len(s.queue) > 0 {
				if err := holdfast.Commit(s.Engine, s.queue[0], holdfast.Memory); err != nil {
					panic(err)
				}
				s.queue = s.queue[1:]
			}
		}
	})
}

func (s *stage) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changed.Broadcast()
}

// awaitWaiters returns when n goroutines wait for receipts.
func (s *stage) awaitWaiters(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waiting < n {
		s.changed.Wait()
	}
}

// keys is the number of keys in an engine.
func keys(eng holdfast.Engine) (n int) {
	it := eng.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		n++
	}
	return n
}

func stages(t *testing.T, f func(t *testing.T, st *stage)) {
	for _, late := range []bool{false, true} {
		t.Run(map[bool]string{false: "shown at once", true: "shown when durable"}[late], func(t *testing.T) {
			st := newStage()
			st.late = late
			f(t, st)
		})
	}
}
