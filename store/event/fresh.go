package event

import (
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// fresh is a range of ids of which the engine has none: those that events have there are all in memory, in recent. So
// nothing is read for an id in it. Ids that begin with the time, as UUIDs of version 7 do, come behind all that have
// left memory. Among random ones the range is soon too small to be of use, and is seldom looked for.
//
// It shrinks when an id leaves memory or is imported, with the log's lock held. Who has found an id in it looks again
// when it is its turn, see repeated.
type fresh struct {
	on atomic.Bool // it is known, or looked for

	mu     sync.Mutex
	known  bool
	lo, hi string // ids are between these; hi is empty if all above lo are
	misses int    // lookups outside of it since the last one inside
	next   int    // at so many it is looked for, 0 for freshAfter
	looked bool   // for, at the moment
	left   []string
}

// How many lookups in the engine come before the range is looked for, at first and at most.
const (
	freshAfter = 16
	freshRare  = 1 << 16
)

func (f *fresh) has(id string) bool { return f.known && id > f.lo && (f.hi == "" || id < f.hi) }

// hasAll reports whether the ids of events are all in it.
func (f *fresh) hasAll(events []Event, folded func(string) string) bool {
	if !f.on.Load() {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range events {
		if !f.has(folded(events[i].ID)) {
			return false
		}
	}
	return true
}

// used notes whether it was of use. If it returns true it is to be looked for, and found must be called.
func (f *fresh) used(was bool) (look bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was {
		f.misses, f.next = 0, 0
		return false
	}
	at := max(f.next, freshAfter)
	if f.misses++; f.misses == freshAfter && !f.looked { // it is of no use
		f.known = false
		f.on.Store(false)
	}
	if f.looked || f.misses < at {
		return false
	}
	f.misses, f.next, f.looked, f.known = 0, min(2*at, freshRare), true, false
	f.on.Store(true)
	return true
}

// found notes the range around an id, if it could be read.
func (f *fresh) found(id, lo, hi string, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ok {
		f.known, f.lo, f.hi = true, lo, hi
		for _, other := range f.left {
			f.cut(other, id)
		}
	}
	f.looked, f.left = false, nil
	f.on.Store(ok)
}

// leave notes, and keeps, an id that the engine has and memory no more. Others to come are likely near newest.
func (f *fresh) leave(id, newest string) {
	if !f.on.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looked {
		f.left = append(f.left, id)
	}
	f.cut(id, newest)
}

// cut takes out id, and what is on the other side of it than newest.
func (f *fresh) cut(id, newest string) {
	switch {
	case !f.has(id):
	case id < newest:
		f.lo = id
	default:
		f.hi = id
	}
}

// know is lookUp for an append, and reads nothing if the ids are fresh.
func (s *Store) know(a *appender, events []Event, next uint64) error {
	f := &s.recent.fresh
	if a.fresh = f.hasAll(events, s.folded); a.fresh {
		f.used(true)
		a.known = append(a.known[:0], make([]uint64, len(events))...)
		return nil
	}
	if err := s.lookUp(a, events, next); err != nil {
		return err
	}
	if a.known[0] == 0 && f.used(false) {
		id := s.folded(events[0].ID)
		lo, hi, err := s.around(id, next/s.window)
		f.found(id, lo, hi, err == nil) // what cannot be read now is read when it matters
	}
	return nil
}

// around returns the ids next to id that the engine has in a generation and the one before, and that are not in memory:
// lo may be id itself, hi is empty if none is above.
func (s *Store) around(id string, generation uint64) (lo, hi string, err error) {
	first := func(r holdfast.Range) (string, error) {
		it := s.eng.Scan(r)
		defer it.Close()
		for it.Next() {
			id := string(s.keys.Rest(it.Key())[8:])
			s.turn.Lock()
			_, in := s.recent.at[id]
			s.turn.Unlock()
			if !in {
				return id, nil
			}
		}
		return "", it.Err()
	}
	for g := max(generation, 1) - 1; g <= generation; g++ {
		behind := append(s.keys.ID(nil, g, id), 0)
		below, err := first(holdfast.Range{Lo: s.keys.ID(nil, g, ""), Hi: behind, Reverse: true})
		if err != nil {
			return "", "", err
		}
		above, err := first(holdfast.Range{Lo: behind, Hi: s.keys.ID(nil, g+1, "")})
		if err != nil {
			return "", "", err
		}
		lo = max(lo, below)
		if above != "" && (hi == "" || above < hi) {
			hi = above
		}
	}
	return lo, hi, nil
}
