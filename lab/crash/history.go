package crash

import (
	"math"
	"slices"

	"github.com/holdfastdb/holdfast"
)

// segment is a part of a history: the batches from a number on that one generation applied.
type segment struct {
	Gen  uint32
	From uint64
}

// history is what is known of a directory: who applied which numbers, and what was promised.
// Numbers count from 1.
type history struct {
	Seed     uint64
	Segments []segment
	Issued   uint64 // the last number that may be there
	Bound    uint64 // the last number that must be there
	Shown    uint64 // the last number that a follower saw, where that must stay
	Acks     []ack  // of the last generation
	Survives holdfast.Level
	Level    holdfast.Level // that the batches which count are given; weaker ones among them are company
	Offset   interval       // of the offset that was saved
	First    interval       // of the log's beginning

	// Of a store for Raft.
	Monotonic bool   // it has no gaps
	Skipped   []span // deletions that a crash has taken back, though not what ran beside them
}

// interval holds a value that is known up to what was under way.
type interval struct{ Low, High uint64 }

// span is numbers from one to another.
type span struct{ From, To uint64 }

// begin adds a generation that applies the numbers from n on.
func (h *history) begin(gen uint32, from uint64) {
	for len(h.Segments) > 0 && h.Segments[len(h.Segments)-1].From >= from {
		h.Segments = h.Segments[:len(h.Segments)-1]
	}
	h.Segments = append(h.Segments, segment{gen, from})
	h.Skipped = slices.DeleteFunc(h.Skipped, func(s span) bool { return s.From >= from })
	h.Issued, h.Acks = from-1, nil
}

// generation is that which applied n.
func (h *history) generation(n uint64) uint32 {
	for i := len(h.Segments) - 1; i >= 0; i-- {
		if h.Segments[i].From <= n {
			return h.Segments[i].Gen
		}
	}
	return 0
}

// part is the generation that applied n, and the last number that it may have applied.
func (h *history) part(n uint64) (gen uint32, end uint64) {
	end = math.MaxUint64
	for i := len(h.Segments) - 1; i >= 0; i-- {
		if h.Segments[i].From <= n {
			return h.Segments[i].Gen, end
		}
		end = h.Segments[i].From - 1
	}
	return 0, end
}

// add enters what a ledger held before pos.
func (h *history) add(l *ledger, pos position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Issued = max(h.Issued, l.issued)
	for _, a := range l.acks {
		if a.pos < pos {
			h.promise(a)
		}
	}
	for _, v := range l.shown {
		if v.pos < pos && v.level >= h.Survives {
			h.Shown = max(h.Shown, v.n)
		}
	}
	enter := func(to *interval, marks []mark) {
		for _, m := range marks {
			switch {
			case m.level == 0:
				to.High = max(to.High, m.value)
			case m.pos < pos && m.level >= h.Survives:
				to.Low = max(to.Low, m.value)
			}
		}
	}
	enter(&h.Offset, l.saved)
	enter(&h.First, l.first)
}

// promise enters an acknowledgement.
func (h *history) promise(a ack) {
	h.Acks = append(h.Acks, a)
	if a.level >= h.Survives {
		h.Bound = max(h.Bound, a.n)
	}
}

// counts reports whether a is one of the acknowledgements that are added up. A row is about one level: what was
// acknowledged below it may be gone, and says nothing about it.
func (h *history) counts(a ack) bool { return a.batch && a.level >= h.Level }

// clone returns a history that shares nothing that changes.
func (h *history) clone() *history {
	c := *h
	c.Segments, c.Acks, c.Skipped = slices.Clone(h.Segments), slices.Clone(h.Acks), slices.Clone(h.Skipped)
	return &c
}
