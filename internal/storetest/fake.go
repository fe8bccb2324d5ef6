package storetest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// FakeEngine is an engine in memory whose tests decide when its receipts are in, what fails and what its
// limits are. It shows batches at once, as Pebble does, or only when their receipts are in, as bbolt
// does.
type FakeEngine struct {
	holdfast.Engine
	Late     bool  // show batches only when they are durable
	Native   bool  // Capabilities.NativeDeleteRange
	Ops      int64 // operations that a batch may have, counting each key of a range; 0 for any number
	MaxBatch int64 // Capabilities.MaxBatchSize, 0 for 1 MiB
	Record   bool  // keep Batches

	mu      sync.Mutex
	changed sync.Cond
	waiting int
	ended   lifecycle.Ending

	// What follows changes under Locked.
	Held    bool
	Fail    error // the cause of what Wait returns from now on; the first stays
	Refuse  error // what Apply returns from now on
	Spare   int   // batches until then
	Applied uint64
	Settled uint64
	Queue   []*holdfast.Batch // applied, not yet shown
	Batches []*holdfast.Batch // all that were applied
	Ranges  int               // DeleteRanges applied
}

// NewFakeEngine returns an engine that shows batches at once and lets receipts come in.
func NewFakeEngine() *FakeEngine {
	s := &FakeEngine{Engine: mem.New(), Native: true}
	s.changed.L = &s.mu

	return s
}

// Capabilities implements [holdfast.Engine].
func (s *FakeEngine) Capabilities() holdfast.Capabilities {
	c := s.Engine.Capabilities()
	c.Engine = "fake"
	c.NativeDeleteRange, c.ShownAtApply = s.Native, !s.Late
	c.MaxBatchSize, c.MaxValueSize = 1<<20, 1<<18
	if s.MaxBatch > 0 {
		c.MaxBatchSize = s.MaxBatch
	}

	return c
}

func copyOf(b *holdfast.Batch) *holdfast.Batch {
	c := new(holdfast.Batch)
	c.Append(b)

	return c
}

// Apply implements [holdfast.Engine].
func (s *FakeEngine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Fail != nil {
		return holdfast.Receipt{}, s.Err()
	}
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	if limit := s.Capabilities().MaxBatchSize; int64(b.Size()) > limit {
		return holdfast.Receipt{}, fmt.Errorf("a batch of %d bytes, over the limit of %d that the store was told", b.Size(),
			limit)
	}
	if s.Ops > 0 && s.count(b) > s.Ops {
		return holdfast.Receipt{}, &holdfast.Error{Op: "apply", Class: holdfast.ErrTooLarge, Detail: "too many operations"}
	}
	if s.Refuse != nil {
		if s.Spare--; s.Spare < 0 {
			return holdfast.Receipt{}, s.Refuse
		}
	}
	s.Applied++
	s.changed.Broadcast()

	for op := range b.Ops() {
		if op.Kind == holdfast.KindDeleteRange {
			s.Ranges++
		}
	}
	if s.Record {
		s.Batches = append(s.Batches, copyOf(b))
	}
	if s.Late && s.Held {
		s.Queue = append(s.Queue, copyOf(b))
	} else if err := holdfast.Commit(s.Engine, b, level); err != nil {
		return holdfast.Receipt{}, err
	}
	if !s.Held {
		s.Settled = s.Applied
	}

	return holdfast.NewReceipt(s, s.Applied), nil
}

func (s *FakeEngine) count(b *holdfast.Batch) (n int64) {
	for op := range b.Ops() {
		if op.Kind != holdfast.KindDeleteRange {
			n++
			continue
		}
		n += int64(Keys(s.Engine, holdfast.Range{Lo: op.Key, Hi: op.Value}))
	}

	return n
}

// Wait makes the stage the Waiter of its receipts.
func (s *FakeEngine) Wait(token uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.waiting++
	defer func() { s.waiting-- }()
	s.changed.Broadcast()

	for s.Settled < token && s.Fail == nil {
		s.changed.Wait()
	}
	if s.Settled < token {
		return s.Err()
	}

	return nil
}

// Hold keeps receipts from coming in.
func (s *FakeEngine) Hold() { s.Locked(func() { s.Held = true }) }

// Release lets the receipts of the first n batches since Hold come in; n < 0 means all, and those to
// come.
func (s *FakeEngine) Release(n int) {
	s.Locked(func() {
		upto := s.Applied
		if n >= 0 {
			upto = s.Settled + uint64(n)
		} else {
			s.Held = false
		}

		for s.Settled < upto {
			s.Settle()
		}
	})
}

// Settle lets the receipt of the next batch come in. It is called under Locked.
func (s *FakeEngine) Settle() {
	s.Settled++
	if len(s.Queue) > 0 {
		if err := holdfast.Commit(s.Engine, s.Queue[0], holdfast.Memory); err != nil {
			panic(err)
		}
		s.Queue = s.Queue[1:]
	}
}

// Locked runs f, which may change what tests may, while nothing else happens.
func (s *FakeEngine) Locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	if s.Fail != nil {
		s.ended.End(&holdfast.Error{Op: "sync", Class: holdfast.ErrPoisoned, Cause: s.Fail})
	}
	s.changed.Broadcast()
}

// Done implements [holdfast.Engine].
func (s *FakeEngine) Done() <-chan struct{} { return s.ended.Done() }

// Err implements [holdfast.Engine].
func (s *FakeEngine) Err() error { return s.ended.Err() }

// Close implements [holdfast.Engine].
func (s *FakeEngine) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.Engine.Close()
	if closed := s.Engine.Err(); closed != nil {
		s.ended.End(closed)
	}
	return err
}

// AwaitWaiters returns when n goroutines wait for receipts.
func (s *FakeEngine) AwaitWaiters(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for s.waiting < n {
		s.changed.Wait()
	}
}

// AwaitApplied returns when n batches have been applied in all.
func (s *FakeEngine) AwaitApplied(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for s.Applied < n {
		s.changed.Wait()
	}
}

// Keys is the number of keys of an engine in r.
func Keys(eng holdfast.Engine, r holdfast.Range) (n int) {
	it := eng.Scan(r)
	defer it.Close()

	for it.Next() {
		n++
	}

	return n
}

// FakeEngines calls f for a stage of each kind.
func FakeEngines(t *testing.T, f func(t *testing.T, st *FakeEngine)) {
	for _, late := range []bool{false, true} {
		t.Run(map[bool]string{false: "shown at once", true: "shown when durable"}[late], func(t *testing.T) {
			st := NewFakeEngine()
			st.Late = late
			f(t, st)
		})
	}
}
