package protocol

import (
	"maps"
	"math"
	"slices"

	"github.com/holdfastdb/holdfast"
)

// Segment is a part of a history: the batches from a number on that one generation applied.
type Segment struct {
	Gen  uint32
	From uint64
}

// History is what is known of a directory: who applied which numbers, and what was promised.
// Numbers count from 1.
type History struct {
	Seed     uint64
	Single   bool // batches have one operation: the engine does not promise whole ones
	Segments []Segment
	Issued   uint64 // the last number that may be there
	Bound    uint64 // the last number that must be there
	Shown    uint64 // the last number that a follower saw, where that must stay
	Acks     []Ack  // of the last generation
	Survives holdfast.Level
	Level    holdfast.Level // that the batches which count are given; weaker ones among them are company
	Offset   Interval       // of the offset that was saved
	First    Interval       // of the log's beginning
	Followed Followed       // how far, of what must stay

	Skipped []Span   // what a crash has undone, though not what ran concurrently
	Undone  []Undone // what was begun and then undone: an operation of several commits may have left the first ones

	Monotonic bool // a store for Raft has no gaps
	Plain     bool // a message store of a peer does less than ours

	// Of a store whose operations run concurrently, so that their numbers are no order.
	Concurrent bool              // an acknowledgement of an operation covers no other one
	Must       []uint64          // the operations that must be there: acknowledged, or shown to a follower
	Places     map[uint64]uint64 // where in the store's log the victim was told that an operation is
}

// Followed is the last position that each follower of a server was shown.
type Followed [2]uint64

const followedShift = 60

// Followed tells that a follower has come to a position of which all survives a level.
func (t *Reporter) Followed(follower int, position uint64, level holdfast.Level) {
	t.Send(TellFollowed, uint64(follower)<<followedShift|position, uint64(level))
}

// Interval holds a value that is known up to what was under way.
type Interval struct{ Low, High uint64 }

// Span is numbers from one to another.
type Span struct{ From, To uint64 }

// Undone is numbers that a generation gave to operations which a crash has undone. They came before the operations of a
// later generation, the first of which is number Before.
type Undone struct {
	Gen uint32
	Span
	Before uint64
}

// Begin adds a generation that applies the numbers from n on.
func (h *History) Begin(gen uint32, from uint64) {
	// What a crash has undone does not count: the new generation gives the same numbers to other batches.
	for i := range h.Undone {
		h.Undone[i].Before = min(h.Undone[i].Before, from)
	}
	for n := from; n <= h.Issued; {
		gen, end := h.Part(n)
		h.Undone = append(h.Undone, Undone{gen, Span{n, min(end, h.Issued)}, from})
		n = min(end, h.Issued) + 1
	}
	for len(h.Segments) > 0 && h.Segments[len(h.Segments)-1].From >= from {
		h.Segments = h.Segments[:len(h.Segments)-1]
	}
	h.Segments = append(h.Segments, Segment{gen, from})
	h.Skipped = slices.DeleteFunc(h.Skipped, func(s Span) bool { return s.From >= from })
	h.Must = slices.DeleteFunc(h.Must, func(n uint64) bool { return n >= from })
	maps.DeleteFunc(h.Places, func(n, _ uint64) bool { return n >= from })
	h.Issued, h.Acks = from-1, nil
}

// Generation is that which applied n.
func (h *History) Generation(n uint64) uint32 {
	for i := len(h.Segments) - 1; i >= 0; i-- {
		if h.Segments[i].From <= n {
			return h.Segments[i].Gen
		}
	}

	return 0
}

// Part is the generation that applied n, and the last number that it may have applied.
func (h *History) Part(n uint64) (gen uint32, end uint64) {
	end = math.MaxUint64
	for i := len(h.Segments) - 1; i >= 0; i-- {
		if h.Segments[i].From <= n {
			return h.Segments[i].Gen, end
		}
		end = h.Segments[i].From - 1
	}

	return 0, end
}

// Add enters what a ledger held before pos.
func (h *History) Add(l *Ledger, pos Position) {
	l.mu.Lock()
	defer l.mu.Unlock()

	h.Issued = max(h.Issued, l.issued)
	for _, a := range l.acks {
		// What was acknowledged behind the cut was promised in a future that did not come about.
		if a.pos < pos {
			h.Promise(a)
		}
	}

	for _, v := range l.shown {
		switch {
		case v.pos >= pos || v.Level < h.Survives:
		case h.Concurrent:
			h.Must = append(h.Must, v.N)
		default:
			h.Shown = max(h.Shown, v.N)
		}
	}
	if h.Places == nil && len(l.places) > 0 {
		h.Places = map[uint64]uint64{}
	}
	maps.Copy(h.Places, l.places)

	enter := func(to *Interval, marks []mark) {
		for _, m := range marks {
			switch {
			// An intent raises the most that may be found, an acknowledgement the least.
			case m.level == 0:
				to.High = max(to.High, m.value)
			case m.pos < pos && m.level >= h.Survives:
				to.Low = max(to.Low, m.value)
			}
		}
	}
	for _, m := range l.followed {
		if to := &h.Followed[m.value>>followedShift]; m.pos < pos && m.level >= h.Survives {
			*to = max(*to, m.value&(1<<followedShift-1))
		}
	}
	enter(&h.Offset, l.saved)
	enter(&h.First, l.first)
}

// Promise enters an acknowledgement.
func (h *History) Promise(a Ack) {
	h.Acks = append(h.Acks, a)
	switch {
	case a.Level < h.Survives:
	case h.Concurrent && a.Batch:
		h.Must = append(h.Must, a.N)
	default:
		h.Bound = max(h.Bound, a.N)
	}
}

// counts reports whether a is one of the acknowledgements that are added up. A row is about one level: what was
// acknowledged below it may be gone, and says nothing about it.
func (h *History) counts(a Ack) bool { return a.Batch && a.Level >= h.Level }

// Clone returns a history that shares nothing that changes.
func (h *History) Clone() *History {
	c := *h
	c.Segments, c.Acks, c.Skipped = slices.Clone(h.Segments), slices.Clone(h.Acks), slices.Clone(h.Skipped)
	c.Undone = slices.Clone(h.Undone)
	c.Must, c.Places = slices.Clone(h.Must), maps.Clone(h.Places)

	return &c
}
