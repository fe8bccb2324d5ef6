package subjects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// The keys that hashicorp/raft keeps its term and its vote under.
const (
	raftTerm      = "CurrentTerm"
	raftVoteTerm  = "LastVoteTerm"
	raftCandidate = "LastVoteCand"
)

const (
	raftKeys    = 4         // others, for what else a program keeps
	raftMost    = 400       // entries, before a snapshot must come
	raftBatch   = 64        // entries that are stored together at most
	raftLargest = 100 << 10 // bytes of data
	raftGap     = 200       // indexes that are left out at most
	raftWide    = 5000      // now and then; what costs more the more indexes it spans is to be tried too
)

// raftKind is what an operation calls.
type raftKind int

const (
	raftStore raftKind = iota // StoreLogs
	raftUint                  // SetUint64
	raftSet                   // Set
	raftFront                 // DeleteRange from the first index on
	raftBack                  // DeleteRange up to the last index
)

// raftOp is one operation on a store for Raft. It takes as many numbers as it stores or removes entries, so that each
// part of one has a number.
type raftOp struct {
	kind       raftKind
	n, size    uint64 // its first number, and how many
	gen        uint32
	key        string
	value      uint64     // of SetUint64
	from, to   uint64     // indexes
	term       uint64     // of the entries
	commit     uint64     // the index that is staged before, 0 for none
	removed    []uint64   // indexes, from the end of the log that they are at
	old        []raftMark // what was there
	base       uint64     // where an emptied log begins anew
	floor      uint64     // see raftState
	concurrent bool       // the next operation is under way at the same time
}

// end is the last number of the operation.
func (o *raftOp) end() uint64 { return o.n + o.size - 1 }

// String says what the operation calls, for findings.
func (o *raftOp) String() string {
	switch o.kind {
	case raftStore:
		return fmt.Sprintf("storing indexes %d to %d", o.from, o.to)
	case raftUint:
		return fmt.Sprintf("setting %s to %d", o.key, o.value)
	case raftSet:
		return "setting " + o.key
	}

	return fmt.Sprintf("deleting indexes %d to %d", o.from, o.to)
}

// raftMark says which number wrote something. Where a value tells itself, as terms do, n is that value.
type raftMark struct {
	n    uint64
	gen  uint32
	term uint64 // of an entry of the log
}

// raftState is what a store for Raft holds, as a model.
type raftState struct {
	p           script
	monotonic   bool // no gaps, nothing overwritten
	logs        map[uint64]raftMark
	stable      map[string]raftMark
	first, last uint64 // 0 if the log is empty
	base        uint64 // where an empty log begins
	floor       uint64 // the index up to which nothing is taken back: committed, or in a snapshot
	commit      uint64 // the one stored
	candidate   bool   // a vote's term is set, and its candidate is next
	concurrent  bool   // the next operation is under way with a deletion

	// Both are told of each change, if they are not nil. A zero mark is nothing.
	onLog func(index uint64, old, now raftMark)
	onKey func(key string, old, now raftMark)
}

// newRaftState is an empty store. Where its log begins is chosen by the seed.
func newRaftState(p script, monotonic bool) *raftState {
	return &raftState{p: p, monotonic: monotonic, logs: map[uint64]raftMark{}, stable: map[string]raftMark{},
		base: 1 + commits.Mix(p.Seed, 79)%3*70}
}

// committed is the commit index that the store tells.
func (s *raftState) committed() uint64 { return min(s.commit, s.last) }

// put sets the entry at an index.
func (s *raftState) put(index uint64, m raftMark) {
	old := s.logs[index]
	s.logs[index] = m
	if s.first == 0 || index < s.first {
		s.first = index
	}
	s.last = max(s.last, index)
	if s.onLog != nil {
		s.onLog(index, old, m)
	}
}

// drop removes the first or the last entry.
func (s *raftState) drop(index uint64) {
	old := s.logs[index]
	delete(s.logs, index)

	there := func(index uint64) bool { _, ok := s.logs[index]; return ok }
	switch {
	case len(s.logs) == 0:
		s.first, s.last = 0, 0
	case index == s.first:
		// Indexes may be left out, so the next one that is there is looked for.
		for s.first++; !there(s.first); s.first++ {
		}
	case index == s.last:
		for s.last--; !there(s.last); s.last-- {
		}
	}
	if s.onLog != nil {
		s.onLog(index, old, raftMark{})
	}
}

// set sets a key.
func (s *raftState) set(key string, m raftMark) {
	old := s.stable[key]
	s.stable[key] = m
	if s.onKey != nil {
		s.onKey(key, old, m)
	}
}

// step lets part i of an operation take effect.
func (s *raftState) step(o *raftOp, i uint64) {
	last := i == o.size-1

	// Both hold for the operation right behind this one only.
	s.candidate, s.concurrent = false, o.concurrent && last
	switch o.kind {
	case raftStore:
		if s.put(o.from+i, raftMark{o.n + i, o.gen, o.term}); last {
			s.floor = max(s.floor, o.floor)
			if o.commit > 0 {
				s.commit = o.commit
			}
		}
	case raftUint:
		s.set(o.key, raftMark{n: o.value})
		s.candidate = o.key == raftVoteTerm
	case raftSet:
		s.set(o.key, raftMark{n: o.n, gen: o.gen})
	default:
		s.floor = max(s.floor, o.floor)
		if s.drop(o.removed[i]); last && o.base > 0 {
			s.base, s.floor = o.base, o.base-1
		}
		if last {
			s.commit = s.committed() // lowered for good
		}
	}
}

// undo takes a deletion of the front back.
func (s *raftState) undo(o *raftOp) {
	// put moves the bounds back by itself.
	for i, index := range o.removed {
		s.put(index, o.old[i])
	}
}

// raftOp makes the operation that begins at number n of a generation, in a state.
func (p script) raftOp(gen uint32, n uint64, s *raftState) raftOp {
	// The order of the draws is part of what a seed means: a judge must draw the same.
	r := p.Random(gen, n)
	o := raftOp{n: n, gen: gen, size: 1}
	count, term, lastTerm := len(s.logs), s.stable[raftTerm].n, s.logs[s.last].term
	raise := func() { o.kind, o.key, o.value = raftUint, raftTerm, term+1+r.Uint64N(3) }
	// late: another leader's entries take the place of the last ones.
	late := count > 1 && s.last > max(s.floor, s.first)
	what := r.IntN(100)

	// What runs beside a deletion of the front must not touch the same entries.
	if s.concurrent {
		what = 30 + r.IntN(70)
	}

	switch {
	// raft sets the term of a vote and then its candidate, with nothing in between.
	case s.candidate:
		o.kind, o.key = raftSet, raftCandidate
	case term == 0:
		raise()
	case count > raftMost && !s.concurrent:
		o.front(s, count-50-r.IntN(150))
	case what < 6 && count > 20:
		o.front(s, 1+r.IntN(count*3/4))
		o.concurrent = r.IntN(2) == 0

	// Entries are overwritten by a leader of a later term only, so the term is raised first.
	case what < 16 && late && term == lastTerm && !s.concurrent:
		raise()
	case what < 16 && late:
		o.back(s, s.last-r.Uint64N(min(s.last-max(s.floor, s.first), 40)))

	// All is deleted, as when a snapshot from a leader replaces the log, which then begins at base.
	case what < 18 && count > 0:
		o.front(s, count)
		o.base = s.last + 1 + r.Uint64N(raftGap)

	// A gap is what follows when a snapshot was taken from a leader and the log kept.
	case what < 20 && count > 0 && !s.monotonic:
		gap := r.Uint64N(raftGap)
		if r.IntN(4) == 0 {
			gap = r.Uint64N(raftWide)
		}
		o.store(s, r, s.last+2+gap)
		o.floor = o.from - 1
	case what < 23 && late && term > lastTerm && !s.monotonic:
		o.store(s, r, s.last-r.Uint64N(min(s.last-max(s.floor, s.first), 30)))
	case what >= 30 && what < 38:
		raise()
	case what >= 38 && what < 46 && term > s.stable[raftVoteTerm].n:
		o.kind, o.key, o.value = raftUint, raftVoteTerm, term
	case what >= 46 && what < 50:
		o.kind, o.key = raftSet, fmt.Sprintf("key-%d", r.IntN(raftKeys))
	case count == 0:
		o.store(s, r, s.base)
	default:
		o.store(s, r, max(s.last, s.floor)+1) // above, if a gap is at the end
	}

	return o
}

// store makes it one that stores entries from an index on.
func (o *raftOp) store(s *raftState, r *rand.Rand, from uint64) {
	// Most stores are of one entry, and a few of many, as raft makes them.
	o.kind, o.from, o.term = raftStore, from, s.stable[raftTerm].n
	most := [...]int{1, 1, 1, 1, 1, 4, 4, 8, 16, raftBatch}[r.IntN(10)]
	o.size = 1 + r.Uint64N(uint64(most))
	o.to = from + o.size - 1
	switch {
	case len(s.logs) == 0:
		o.commit = s.base - 1 // what the log begins after is in a snapshot

	// An index below what was committed before is never staged.
	case s.last >= s.floor && r.IntN(2) == 0:
		o.commit = s.floor + r.Uint64N(s.last-s.floor+1)
	}
	o.floor = o.commit
}

// front makes it one that deletes the first n entries: a snapshot holds them.
func (o *raftOp) front(s *raftState, n int) {
	o.kind, o.from = raftFront, s.first

	// Gaps are passed over: n counts entries that are there.
	for index := s.first; len(o.removed) < n; index++ {
		o.remove(s, index)
	}
	o.to = o.removed[n-1]
	o.floor = o.to
}

// back makes it one that deletes the entries from an index above the first one on.
func (o *raftOp) back(s *raftState, from uint64) {
	o.kind, o.from, o.to = raftBack, from, s.last

	// From the end on: the model can only drop the first or the last entry.
	for index := s.last; index >= from; index-- {
		o.remove(s, index)
	}
}

// remove adds an index to those that are deleted, if something is there. What was there is noted for undo.
func (o *raftOp) remove(s *raftState, index uint64) {
	if m, ok := s.logs[index]; ok {
		o.removed, o.old = append(o.removed, index), append(o.old, m)
		o.size = uint64(len(o.removed))
	}
}

// raftLog makes the entry that number n of a generation stores at an index.
func (p script) raftLog(index uint64, m raftMark) *raft.Log {
	r := rand.New(rand.NewPCG(commits.Mix(p.Seed, uint64(m.gen), 3), commits.Mix(m.n)))
	l := &raft.Log{Index: index, Term: m.term, AppendedAt: time.Unix(int64(m.n), int64(m.gen)).UTC()}
	key, size := fmt.Sprintf("l/%d", index), commits.HeaderSize+r.IntN(200)
	switch what := r.IntN(20); {
	case what == 0:
		l.Type = raft.LogNoop // which has no data; the time says where it is from
		return l
	case what == 1:
		l.Type = raft.LogBarrier
		return l
	case what == 2:
		l.Type = raft.LogConfiguration
	case what < 6:
		w := commits.Written{N: m.n, Gen: m.gen, Size: commits.HeaderSize + r.IntN(40)}
		l.Extensions = p.Value(nil, key+"/extensions", w)
	case what < 10:
		l.AppendedAt = time.Time{}
	}

	// Large entries are rare, and so are written beside small ones.
	if m.n%8 == 0 && r.IntN(12) == 0 {
		size += r.IntN(raftLargest - size)
	}
	l.Data = p.Value(nil, key, commits.Written{N: m.n, Gen: m.gen, Size: size})

	return l
}

// raftValue makes what number n of a generation sets a key to.
func (p script) raftValue(key string, m raftMark) []byte {
	r := rand.New(rand.NewPCG(commits.Mix(p.Seed, uint64(m.gen), 4), commits.Mix(m.n)))
	size := commits.HeaderSize + r.IntN(40)
	if key != raftCandidate && r.IntN(4) == 0 {
		size += r.IntN(20 << 10)
	}

	return p.Value(nil, key, commits.Written{N: m.n, Gen: m.gen, Size: size})
}

// raftFold goes through the operations of a history up to number upto. prepare, if it is not nil, is given the
// empty state; visit is called after each number, with the operation that it is of, and with the deletion that
// ran concurrently, if there is one.
func raftFold(
	h *protocol.History, upto uint64, prepare func(s *raftState),
	visit func(s *raftState, o, concurrent *raftOp, n uint64),
) *raftState {
	s := newRaftState(scriptOf(h.Seed), h.Monotonic)
	if prepare != nil {
		prepare(s)
	}

	var concurrent *raftOp

	for n := uint64(1); n <= upto; {
		gen, end := h.Part(n)

		// What the operation is depends on the state, so the fold makes each again as the victim has made it.
		o := s.p.raftOp(gen, n, s)

		// A crash lies between the two: nothing ran beside the deletion.
		if concurrent != nil && concurrent.gen != gen {
			concurrent = nil
		}

		// A crash may have ended the generation in the middle of an operation.
		last := min(o.end(), end, upto)
		for i := n; i <= last; i++ {
			s.step(&o, i-n)
			if visit != nil {
				visit(s, &o, concurrent, i)
			}
		}

		// The judge has found that this deletion did not happen; its entries are put back.
		if concurrent != nil {
			if slices.Contains(h.Skipped, protocol.Span{From: concurrent.n, To: concurrent.end()}) {
				s.undo(concurrent)
			}
			concurrent = nil
		}
		if o.concurrent && last == o.end() {
			concurrent = &o
		}
		n = last + 1
	}

	return s
}
