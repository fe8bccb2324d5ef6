package event

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/pieces"
)

// Ids are remembered by generation, the position divided by the window. An append looks
// into the generation it falls into and the one before, so at least window positions and
// at most twice as many are remembered; whole generations are forgotten. What is too young
// to be seen in the engine, and some more, is in recent.

// oldest returns the first position whose id still counts for an append at next.
func (s *Store) oldest(next uint64) uint64 {
	g := next / s.window
	return (max(g, 1) - 1) * s.window
}

// lookUp fills a.known from the engine, for an append at next.
func (s *Store) lookUp(a *appender, events []Event, next uint64) error {
	a.known = a.known[:0]
	g := next / s.window
	for i := range events {
		pos, err := s.getID(a, g, events[i].ID)
		if pos == 0 && err == nil && g > 0 {
			pos, err = s.getID(a, g-1, events[i].ID)
		}
		if err != nil {
			return err
		}
		a.known = append(a.known, pos)
	}
	return nil
}

func (s *Store) getID(a *appender, g uint64, id string) (uint64, error) {
	a.idKey = s.keys.ID(a.idKey, g, id)
	value, err := s.eng.Get(a.record[:0], a.idKey)
	if errors.Is(err, holdfast.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	a.record = value
	pos, ok := format.DecodePosition(value)
	if !ok {
		return 0, s.fail("append", holdfast.ErrCorrupt, nil, "", "the place of id %q is %d bytes long", id, len(value))
	}
	return pos, nil
}

// repeated finds out whether an append at next repeats an earlier one, and then sets p. It
// is called with mu held.
func (s *Store) repeated(p *Pending, a *appender, events []Event, guess, next, seen uint64) (bool, error) {
	// An id that was not visible when it was looked up was above seen, and must be in
	// memory still.
	if s.recent.forgotten > seen || next/s.window != guess/s.window {
		if err := s.lookUp(a, events, next); err != nil {
			return false, err
		}
	}
	found, oldest := 0, s.oldest(next)
	for i := range events {
		if pos := s.recent.at[events[i].ID]; pos > a.known[i] {
			a.known[i] = pos
		}
		// An expired id counts as a new one, even where it is not forgotten yet.
		if a.known[i] < oldest {
			a.known[i] = 0
		}
		if a.known[i] != 0 {
			found++
		}
	}
	if found == 0 {
		return false, nil
	}
	first := a.known[0]
	for i, pos := range a.known {
		if pos == 0 || pos != first+uint64(i) {
			return false, s.partial(a, events)
		}
	}
	p.result = Result{First: first, Last: first + uint64(len(events)) - 1, Repeated: true}
	if p.result.Last > s.durable.Load() {
		p.s, p.receipt, p.settles = s, s.receipt, s.next.Load()-1
	}
	return true, nil
}

// partial tells the first known id and the first thing that keeps the append from being a
// repeat.
func (s *Store) partial(a *appender, events []Event) error {
	i := 0
	for a.known[i] == 0 {
		i++
	}
	for j, pos := range a.known {
		if pos == 0 {
			return s.fail("append", ErrPartialRepeat, nil, "repeat an append with the same events", "id %q is at position %d, id %q is new", events[i].ID, a.known[i], events[j].ID)
		}
	}
	return s.fail("append", ErrPartialRepeat, nil, "repeat an append with the same events", "the ids are known, but not as one run: %q is at position %d, %q at %d",
		events[0].ID, a.known[0], events[len(events)-1].ID, a.known[len(events)-1])
}

// recent holds the ids of events that may not be visible in the engine yet. Some are
// kept beyond that, so that looking up in the engine can be done without the lock.
type recent struct {
	at        map[string]uint64
	queue     []idAt // oldest first, from head on
	head      int
	forgotten uint64 // the ids of events up to here have left
}

type idAt struct {
	id  string
	pos uint64
}

const (
	keepIDs  = 1 << 10 // durable ids that are kept all the same
	crowdIDs = 1 << 13 // ids under way before Submit begins to wait
)

func (r *recent) init() { r.at = map[string]uint64{} }

func (r *recent) crowded() bool { return len(r.queue)-r.head > crowdIDs }

// add remembers the ids of events at positions from first on, and forgets the oldest that
// are durable.
func (r *recent) add(events []Event, first, durable uint64) {
	for len(r.queue)-r.head > keepIDs && r.queue[r.head].pos <= durable {
		old := &r.queue[r.head]
		if r.at[old.id] == old.pos { // not since appended again
			delete(r.at, old.id)
		}
		r.forgotten = old.pos
		*old = idAt{}
		r.head++
	}
	if r.head > len(r.queue)/2 {
		n := copy(r.queue, r.queue[r.head:])
		clear(r.queue[n:])
		r.queue, r.head = r.queue[:n], 0
	}
	for i := range events {
		pos := first + uint64(i)
		r.at[events[i].ID] = pos
		r.queue = append(r.queue, idAt{events[i].ID, pos})
	}
}

// sweeper removes generations that no append looks into any more. Where deleting a range
// costs as much as the keys in it, it does a little after each append.
type sweeper struct {
	clean atomic.Uint64 // generations below this are gone
	mu    sync.Mutex    // covers from
	from  []byte        // where to go on, nil for the beginning
}

// sweepKeys is how many ids are removed at a time, at least.
const sweepKeys = 256

// due reports whether there is something to remove after an append up to last.
func (w *sweeper) due(last, window uint64) bool {
	g := last / window
	return g > 1 && g-1 > w.clean.Load()
}

// sweep removes ids, after an append of n events up to last. It waits for nothing: if a
// crash undoes it, or the engine refuses, it is done again.
func (s *Store) sweep(last uint64, n int) {
	if s.enter(context.Background()) != nil {
		return
	}
	defer s.door.Leave()
	w := &s.sweeper
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	end := last/s.window - 1
	if end <= w.clean.Load() {
		return
	}
	lo, hi := w.from, s.keys.ID(nil, end, "")
	if lo == nil {
		lo = s.keys.ID(nil, w.clean.Load(), "")
	}
	cut := hi
	if !s.caps.NativeDeleteRange {
		last, more, err := pieces.Cut(s.eng, holdfast.Range{Lo: lo, Hi: hi}, max(sweepKeys, 2*n), pieces.Bytes)
		if err != nil {
			return
		}
		if more {
			cut = append(last, 0)
		}
	}
	var b holdfast.Batch
	b.DeleteRange(lo, cut)
	if _, err := s.eng.Apply(&b, s.level); err != nil {
		return
	}
	if w.from = cut; &cut[0] == &hi[0] {
		w.from = nil
		w.clean.Store(end)
	}
}
