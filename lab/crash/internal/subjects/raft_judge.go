package subjects

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// raftFound is what there is in a store for Raft, by index and by key.
type raftFound struct {
	logs    map[uint64]commits.Found
	keys    map[string]commits.Found
	commit  uint64
	tracked bool // there is a commit index
}

// log and key are what is found as the model has it.
func (f *raftFound) log(index uint64) raftMark {
	e := f.logs[index]
	return raftMark{n: e.N, gen: e.Gen}
}

func (f *raftFound) key(key string) raftMark {
	e := f.keys[key]
	return raftMark{n: e.N, gen: e.Gen}
}

// sameMark compares what can be found.
func sameMark(a, b raftMark) bool { return a.n == b.n && a.gen == b.gen }

// raftJudge finds the operation after which a store holds exactly what is there. If there is none, it takes the
// one that explains it best and tells what is different.
func raftJudge(h *protocol.History, found []commits.Found) protocol.Judgement {
	var (
		j protocol.Judgement
		v commits.Verdict
	)
	f := raftSort(&v, found)

	// What no operation can have written is told by itself, and is not compared with the states.
	seen := f.knownOnly(&v, h)
	m := &raftMatch{h: h, f: f, seen: seen}
	raftFold(h, h.Issued, m.begin, m.visit)

	// No state of the history is what is there. The one that differs least says which operations to blame.
	if !m.matches {
		v.Last = m.best
		raftBlame(&v, h, f)
		j.Settle(h, v)

		return j
	}

	v.Last, v.Missing = m.at, map[uint64]bool{}
	for n := m.skipped.From; m.skipped.From > 0 && n <= m.skipped.To; n++ {
		v.Missing[n] = true
	}
	if j.Settle(h, v); len(v.Missing) > 0 && !j.Broken() {
		j.Survived, j.Skipped = j.Last, []protocol.Span{m.skipped}
	}

	return j
}

// raftSort sorts what was found, and finds what contradicts itself.
func raftSort(v *commits.Verdict, found []commits.Found) *raftFound {
	f := &raftFound{logs: map[uint64]commits.Found{}, keys: map[string]commits.Found{}}
	var first, last uint64

	for _, e := range found {
		twice := false
		switch digits, isLog := strings.CutPrefix(e.Key, "l/"); {
		case e.Key == entryFirst:
			first = e.N
		case e.Key == entryLast:
			last = e.N
		case e.Key == entryCommit:
			f.commit, f.tracked = e.N, true
		case isLog:
			index, err := strconv.ParseUint(digits, 10, 64)
			if err != nil {
				v.Find(commits.Wrong, "%v: there is no such index", e)
				continue
			}
			_, twice = f.logs[index]
			f.logs[index] = e
		default:
			_, twice = f.keys[e.Key]
			f.keys[e.Key] = e
		}
		if twice {
			v.Find(commits.Wrong, "%v is there twice", e)
		}
	}

	// The bounds that the store tells must be those of the entries that were read.
	var low, high uint64
	if len(f.logs) > 0 {
		indexes := slices.Sorted(maps.Keys(f.logs))
		low, high = indexes[0], indexes[len(indexes)-1]
	}
	if first != low || last != high {
		v.Find(commits.Wrong, "the log says that it is from index %d to %d, but there are entries from %d to %d",
			first, last, low, high)
	}

	return f
}

// knownOnly takes out what no operation has written as it is, and returns the last number that wrote something of
// what is there.
func (f *raftFound) knownOnly(v *commits.Verdict, h *protocol.History) (seen uint64) {
	p := scriptOf(h.Seed)
	goodLogs, goodKeys, why := map[uint64]bool{}, map[string]bool{}, map[string]string{}
	compare := func(got, want commits.Found, n uint64, keep func()) {
		if got == want {
			seen = max(seen, n)
			keep()

			return
		}
		why[got.Key] = fmt.Sprintf("it does not hold what was stored: %v", want)
	}
	raftFold(h, h.Issued, func(s *raftState) {
		s.onLog = func(index uint64, _, now raftMark) {
			// Each operation that ever wrote this index is compared; one that fits is enough.
			if e, ok := f.logs[index]; ok && sameMark(now, f.log(index)) {
				compare(e, logEntry(index, p.raftLog(index, now)), now.n, func() { goodLogs[index] = true })
			}
		}
	}, func(s *raftState, o, _ *raftOp, n uint64) {
		e, ok := f.keys[o.key]
		switch {
		case !ok || o.kind != raftUint && o.kind != raftSet || !sameMark(s.stable[o.key], f.key(o.key)):
		case o.kind == raftUint:
			compare(e, uintEntry(o.key, o.value), n, func() { goodKeys[o.key] = true })
		default:
			compare(e, commits.NewFound(o.key, p.raftValue(o.key, s.stable[o.key])), n, func() { goodKeys[o.key] = true })
		}
	})

	strange := func(e commits.Found) {
		text := why[e.Key]
		switch {
		case text != "":
		case e.N > 0 && e.N <= h.Issued && e.Gen != h.Generation(e.N) && strings.HasPrefix(e.Key, "l/"):
			text = "a crash had undone that, or it was never stored"
		default:
			text = "no operation stored that there"
		}
		v.Find(commits.Wrong, "%v: %s", e, text)
	}
	for _, index := range slices.Sorted(maps.Keys(f.logs)) {
		if !goodLogs[index] {
			strange(f.logs[index])
			delete(f.logs, index)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(f.keys)) {
		if !goodKeys[key] {
			strange(f.keys[key])
			delete(f.keys, key)
		}
	}

	return seen
}

// raftMatch compares what was found with each state of a history.
type raftMatch struct {
	h      *protocol.History
	f      *raftFound
	seen   uint64
	differ int // indexes and keys in which the state is another

	matches bool
	at      uint64        // the last number after which nothing differs
	skipped protocol.Span // but these had no effect
	best    uint64        // the first number after which the least differs
	least   int
}

// begin counts all that was found as differing from the empty state, and follows the changes from there.
func (m *raftMatch) begin(s *raftState) {
	m.differ = len(m.f.logs) + len(m.f.keys)
	s.onLog = func(index uint64, old, now raftMark) { m.change(m.f.log(index), old, now) }
	s.onKey = func(key string, old, now raftMark) { m.change(m.f.key(key), old, now) }

	// More than any state can differ, so the first one that is compared is taken.
	m.least = m.differ + 1<<20
	m.compare(s, 0, protocol.Span{})
}

// change moves the count by one index or key: comparing each state as a whole would take its size times the history.
func (m *raftMatch) change(found, old, now raftMark) {
	if !sameMark(found, old) {
		m.differ--
	}
	if !sameMark(found, now) {
		m.differ++
	}
}

// compare enters the state after number n, without those of skipped.
func (m *raftMatch) compare(s *raftState, n uint64, skipped protocol.Span) {
	// Something of a later operation is there, so the store cannot be in this state.
	if n < m.seen {
		return
	}
	differ := m.differ
	if m.f.tracked && s.committed() != m.f.commit {
		differ++
	}

	// The last state that fits is kept: of those that are alike it explains most acknowledgements.
	if differ == 0 {
		m.matches, m.at, m.skipped = true, n, skipped
	}
	if differ < m.least && skipped.From == 0 {
		m.best, m.least = n, differ
	}
}

// visit compares the state after each whole operation, with and without a deletion that ran concurrently.
func (m *raftMatch) visit(s *raftState, o, concurrent *raftOp, n uint64) {
	if n != o.end() {
		return // each call is there whole, or not at all
	}
	if concurrent != nil {
		// The deletion may not have happened, though what ran concurrently is done. The state is moved there and back
		// again, which costs less than a copy.
		s.undo(concurrent)
		m.compare(s, n, protocol.Span{From: concurrent.n, To: concurrent.end()})

		for _, index := range concurrent.removed {
			s.drop(index)
		}
	}
	m.compare(s, n, protocol.Span{})
}

// raftBlame finds the operations up to v.Last of which something is missing, and says of each whether all of it is.
func raftBlame(v *commits.Verdict, h *protocol.History, f *raftFound) {
	var ops []*raftOp

	// Operations are in order of their numbers, and the last one is taken for all above.
	opOf := func(n uint64) *raftOp { // n is not above v.Last
		return ops[sort.Search(len(ops)-1, func(i int) bool { return ops[i].end() >= n })]
	}
	gone, set, staged := map[uint64]uint64{}, map[string]uint64{}, uint64(0) // by index and key, the last number that
	s := raftFold(h, v.Last, nil, func(_ *raftState, o, _ *raftOp, n uint64) {
		if n == o.n {
			ops = append(ops, o)
		}

		switch o.kind {
		case raftStore:
			delete(gone, o.from+n-o.n)
			if n == o.end() && o.commit > 0 {
				staged = n
			}
		case raftFront, raftBack:
			gone[o.removed[n-o.n]] = n
		default:
			set[o.key] = n
		}
	})
	var p commits.Parts
	blame := func(n uint64, format string, args ...any) { p.Missing(opOf(n).n, format, args...) }

	// Sorted, so that the same damage always gives the same text.
	for _, index := range slices.Sorted(maps.Keys(s.logs)) {
		switch want, got := s.logs[index], f.log(index); {
		case sameMark(want, got):
			p.Found(opOf(want.n).n)
		case got.n == 0:
			blame(want.n, "index %d, which it stored, is not there", index)
		default:
			blame(want.n, "index %d, which it stored, is still of operation %d", index, got.n)
		}
	}

	for _, index := range slices.Sorted(maps.Keys(f.logs)) {
		if _, ok := s.logs[index]; !ok {
			blame(gone[index], "index %d, of operation %d, which it deleted, is there", index, f.logs[index].N)
		}
	}

	for index, n := range gone {
		if _, there := f.logs[index]; !there {
			p.Found(opOf(n).n)
		}
	}

	for _, key := range slices.Sorted(maps.Keys(s.stable)) {
		if want, got := s.stable[key], f.key(key); !sameMark(want, got) {
			blame(set[key], "%s is %s, and it set it to %s", key, keyText(key, got), keyText(key, want))
		}
	}

	switch {
	case !f.tracked || s.committed() == f.commit:
	case staged == 0:
		v.Find(commits.Wrong, "the commit index is %d, and nothing is committed", f.commit)
	default:
		blame(staged, "the commit index is %d, and must be %d", f.commit, s.committed())
	}
	p.Explain(v, func(n uint64) (string, uint64) {
		o := opOf(n)
		return fmt.Sprintf("operation %d, %v,", n, o), o.end()
	})
}

// keyText says what a key holds.
func keyText(key string, m raftMark) string {
	switch {
	case m.n == 0:
		return "not there"
	case key == raftTerm || key == raftVoteTerm:
		return strconv.FormatUint(m.n, 10)
	}

	return fmt.Sprintf("that of operation %d", m.n)
}
