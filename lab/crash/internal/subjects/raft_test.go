package subjects

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// raftOps lists the operations of a history up to a number.
func raftOps(h *protocol.History, upto uint64) (ops []*raftOp) {
	raftFold(h, upto, nil, func(s *raftState, o, _ *raftOp, n uint64) {
		if n == o.end() {
			ops = append(ops, o)
		}
	})
	return ops
}

// raftAfter is what there is after an operation.
func raftAfter(h *protocol.History, o *raftOp) []commits.Found {
	return raftFold(h, o.end(), nil, nil).entries(true)
}

// toldRaft is a history in which one victim was promised the first acked operations, and began issued.
func toldRaft(h protocol.History, survives, level holdfast.Level, acked, issued int) *protocol.History {
	h.Survives, h.Level = survives, level
	h.Begin(0, 1)
	ops := raftOps(&h, 5000)
	h.Issued = ops[issued-1].end()
	for i, o := range ops[:acked] {
		h.Promise(protocol.Ack{N: o.end(), Batch: true, Level: level, At: time.Duration(i+1) * time.Millisecond})
	}
	return &h
}

// TestRaftModelIsTheStore: what the judge expects after each operation is what a correct store holds, with gaps
// and without; and all kinds of operations come up.
func TestRaftModelIsTheStore(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine does the work, slowly under the race detector")
	}
	for _, monotonic := range []bool{false, true} {
		kinds, together := map[string]int{}, 0
		for seed := uint64(1); seed <= 8; seed++ {
			e := mem.New()
			defer e.Close()
			store, err := raftlog.Open(e, raftlog.Options{Level: holdfast.Memory, Monotonic: monotonic})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			h := &protocol.History{Seed: seed, Survives: holdfast.Power, Monotonic: monotonic}
			h.Begin(2, 1)
			v := &raftVictim{worker: &worker{}, store: store, model: newRaftState(scriptOf(seed), monotonic)}
			for n := uint64(1); n < 5000; {
				o := v.model.p.raftOp(2, n, v.model)
				kind := fmt.Sprint(o.kind)
				switch {
				case o.kind == raftStore && v.model.last > 0 && o.from > v.model.last+1:
					kind = "gap"
				case o.kind == raftStore && o.from <= v.model.last:
					kind = "overwrite"
				case o.base > 0:
					kind = "wipe"
				}
				if kinds[kind]++; o.concurrent {
					together++
				}
				if err := v.call(&o); err != nil {
					t.Fatalf("seed %d, operation %d, %v: %v", seed, n, &o, err)
				}
				for i := range o.size {
					v.model.step(&o, i)
				}
				n = o.end() + 1
				if n%64 != 0 && n > 40 {
					continue
				}
				found, err := raftAll(store, t.Errorf)
				if err != nil {
					t.Fatal(err)
				}
				if want := v.model.entries(true); !slices.Equal(found, want) {
					t.Fatalf("seed %d after operation %d, %v: %s", seed, o.n, &o, commits.Difference(found, want))
				}
				h.Issued, h.Bound = n-1, n-1
				if j := raftJudge(h, found); j.Broken() || j.Survived != n-1 || len(j.Findings) > 0 {
					t.Fatalf("seed %d after operation %d, %v: %+v", seed, o.n, &o, j)
				}
			}
		}
		want := 6
		if !monotonic {
			want = 8
		}
		if len(kinds) != want || together == 0 {
			t.Errorf("operations: %v, %d concurrent", kinds, together)
		}
	}
}

// TestRaftJudgeFindsWhatIsWrong makes each kind of violation by hand.
func TestRaftJudgeFindsWhatIsWrong(t *testing.T) {
	base := protocol.History{Seed: 11}
	base.Begin(0, 1)
	ops := raftOps(&base, 5000)
	state := func(i int) []commits.Found { return raftAfter(&base, ops[i]) }
	committed := func(i int) uint64 { return raftFold(&base, ops[i].end(), nil, nil).committed() }
	// find is the first operation of that description from the 40th on, up to which acknowledgements go in most tests.
	find := func(what func(i int, o *raftOp) bool) int {
		for i, o := range ops {
			if i >= 40 && i+8 < len(ops) && what(i, o) {
				return i
			}
		}
		t.Fatal("no such operation; take another seed")
		return 0
	}
	key := func(found []commits.Found, name string) int {
		i := slices.IndexFunc(found, func(e commits.Found) bool { return e.Key == name })
		if i < 0 {
			t.Fatalf("no %s; take another seed", name)
		}
		return i
	}
	power := func(acked int) *protocol.History {
		return toldRaft(base, holdfast.Power, holdfast.Power, acked, acked+8)
	}
	// without takes the entries of some indexes away, and corrects what the log says of itself.
	fixEnds := func(found []commits.Found) []commits.Found {
		first, last := uint64(0), uint64(0)
		for _, e := range found {
			var index uint64
			if n, _ := fmt.Sscanf(e.Key, "l/%d", &index); n == 1 {
				if first == 0 || index < first {
					first = index
				}
				last = max(last, index)
			}
		}
		found[key(found, entryFirst)].N, found[key(found, entryLast)].N = first, last
		return found
	}
	without := func(found []commits.Found, indexes ...uint64) []commits.Found {
		return fixEnds(slices.DeleteFunc(found, func(e commits.Found) bool {
			return slices.ContainsFunc(indexes, func(index uint64) bool { return e.Key == fmt.Sprintf("l/%d", index) })
		}))
	}
	entryOf := func(o *raftOp, i uint64) commits.Found {
		return logEntry(o.from+i, scriptOf(base.Seed).raftLog(o.from+i, raftMark{o.n + i, o.gen, o.term}))
	}

	stores := func(i int) bool { return ops[i].kind == raftStore }
	vote := find(func(i int, o *raftOp) bool {
		return o.key == raftVoteTerm && ops[i+1].key == raftCandidate && stores(i+2) && stores(i+3)
	})
	several := find(func(i int, o *raftOp) bool { return stores(i) && o.size >= 4 && stores(i+1) })
	front := find(func(i int, o *raftOp) bool {
		return o.kind == raftFront && o.base == 0 && o.size > 3 && !o.concurrent && stores(i+1)
	})
	concurrent := find(func(i int, o *raftOp) bool { return o.concurrent && stores(i+1) && ops[i+1].commit == 0 })
	conflict := find(func(i int, o *raftOp) bool {
		return o.kind == raftBack && stores(i+1) && ops[i+1].from == o.from && ops[i+1].size < o.size
	})
	commit := find(func(i int, o *raftOp) bool {
		return stores(i) && o.commit > 0 && committed(i) == o.commit && committed(i-1) < o.commit && stores(i+1) &&
			ops[i+1].commit == 0
	})
	term := find(func(i int, o *raftOp) bool { return o.key == raftTerm && stores(i+1) })

	// concurrentUndone is the state in which the deletion has not happened, but what ran concurrently has.
	concurrentUndone := func() []commits.Found {
		h := base
		h.Skipped = []protocol.Span{{From: ops[concurrent].n, To: ops[concurrent].end()}}
		return raftFold(&h, ops[concurrent+1].end(), nil, nil).entries(true)
	}
	more := counts{survived: 60, wrong: 1}
	for name, test := range map[string]struct {
		history *protocol.History
		found   []commits.Found
		want    counts // but for acked and kept
		says    string
	}{
		"all that was acknowledged":  {power(60), state(59), counts{survived: 60}, ""},
		"more than was acknowledged": {power(60), state(64), counts{survived: 65}, ""},
		"all that was issued":        {power(60), state(67), counts{survived: 68}, ""},
		"nothing yet":                {power(0), entriesOfNothing(), counts{}, ""},
		"everything lost":            {power(60), entriesOfNothing(), counts{lost: 60}, "only the first 0 are there"},
		"the last ones lost": {power(several + 2), state(several - 1), counts{survived: several, lost: 2},
			"2 acknowledged ones are lost"},
		"a weaker level loses": {toldRaft(base, holdfast.Power, holdfast.Process, several+2, several+2),
			state(several - 1), counts{survived: several, gone: 2}, ""},
		"a vote forgotten": {power(vote + 4), func() []commits.Found {
			found := state(vote + 3)
			before := state(vote - 1)
			found[key(found, raftVoteTerm)] = before[key(before, raftVoteTerm)]
			found[key(found, raftCandidate)] = before[key(before, raftCandidate)]
			return found
		}(), counts{order: 2, lost: 2}, "LastVoteTerm is "},
		"a vote for another": {power(vote + 4), func() []commits.Found {
			found := state(vote + 3)
			before := state(vote - 1)
			found[key(found, raftCandidate)] = before[key(before, raftCandidate)]
			return found
		}(), counts{order: 1, lost: 1}, "LastVoteCand is that of operation"},
		"a vote gone": {power(vote + 4), func() []commits.Found {
			found := state(vote + 3)
			i := key(found, raftCandidate)
			return slices.Delete(found, i, i+1)
		}(), counts{order: 1, lost: 1}, "LastVoteCand is not there"},
		"a vote invented": {power(60), func() []commits.Found {
			found := state(59)
			found[key(found, raftVoteTerm)].N = 1 << 40
			return found
		}(), counts{wrong: 1, order: 1, lost: 1}, "no operation stored that there"},
		"a vote damaged": {power(60), func() []commits.Found {
			found := state(59)
			found[key(found, raftCandidate)].Sum[2] ^= 1
			return found
		}(), counts{wrong: 1, order: 1, lost: 1}, "it does not hold what was stored"},
		"the term gone back": {power(term + 2), func() []commits.Found {
			found := state(term + 1)
			before := state(term - 1)
			found[key(found, raftTerm)] = before[key(before, raftTerm)]
			return found
		}(), counts{order: 1, lost: 1}, "CurrentTerm is "},
		"a deleted entry come back": {power(front + 2), func() []commits.Found {
			o, old := ops[front], state(front-1)
			return fixEnds(append(state(front+1), old[key(old, fmt.Sprintf("l/%d", o.removed[1]))]))
		}(), counts{torn: 1, lost: 1}, "which it deleted, is there"},
		"a deletion undone": {power(front + 2), func() []commits.Found {
			found := state(front + 1)
			old := state(front - 1)
			for _, index := range ops[front].removed {
				found = append(found, old[key(old, fmt.Sprintf("l/%d", index))])
			}
			return fixEnds(found)
		}(), counts{order: 1, lost: 1}, "which it deleted, is there"},
		"an entry of another leader come back": {power(conflict + 2), func() []commits.Found {
			found, old := state(conflict+1), state(conflict-1)
			return fixEnds(append(found, old[key(old, fmt.Sprintf("l/%d", ops[conflict].to))]))
		}(), counts{torn: 1, lost: 1}, "which it deleted, is there"},
		"an entry of another leader instead": {power(conflict + 2), func() []commits.Found {
			found, old := state(conflict+1), state(conflict-1)
			name := fmt.Sprintf("l/%d", ops[conflict].from)
			found[key(found, name)] = old[key(old, name)]
			return found
		}(), counts{torn: 1, lost: 1}, "is still of operation"},
		"a hole": {power(several + 2), without(state(several+1), ops[several].from+1), counts{torn: 1, lost: 1},
			"which it stored, is not there"},
		"the last entries in part": {power(several), without(state(several), ops[several].to, ops[several].to-1),
			counts{survived: several, torn: 1}, "is there in part"},
		"entries missing under later ones": {power(several + 2), func() []commits.Found {
			var list []uint64
			for i := range ops[several].size {
				list = append(list, ops[several].from+i)
			}
			return without(state(several+1), list...)
		}(), counts{order: 1, lost: 1}, "is not there, but later ones up to"},
		"another entry's data": {power(several + 2), func() []commits.Found {
			found := state(several + 1)
			l := scriptOf(base.Seed).raftLog(ops[several].from+1, raftMark{ops[several].n + 1, 0, ops[several].term})
			l.Index--
			found[key(found, fmt.Sprintf("l/%d", l.Index))] = logEntry(l.Index, l)
			return found
		}(), counts{wrong: 1, torn: 1, lost: 1}, "no operation stored that there"},
		"another term": {power(several + 2), func() []commits.Found {
			found := state(several + 1)
			l := scriptOf(base.Seed).raftLog(ops[several].from, raftMark{ops[several].n, 0, ops[several].term})
			l.Term++
			found[key(found, fmt.Sprintf("l/%d", l.Index))] = logEntry(l.Index, l)
			return found
		}(), counts{wrong: 1, torn: 1, lost: 1}, "it does not hold what was stored"},
		"an entry never stored": {power(60), fixEnds(append(state(59), entryOf(ops[len(ops)-1], 0))), more,
			"no operation stored that there"},
		"an index twice": {power(60), append(state(59), state(59)[len(state(59))-1]), more, "is there twice"},
		"no index":       {power(60), append(state(59), commits.Found{Key: "l/x"}), more, "there is no such index"},
		"a key never set": {power(60), append(state(59), commits.NewFound("zebra", []byte("striped"))), more,
			"no operation stored that there"},
		"a wrong first index": {power(60), func() []commits.Found {
			found := state(59)
			found[key(found, entryFirst)].N--
			return found
		}(), counts{survived: 60, wrong: 1}, "the log says that it is from index"},
		"the commit index gone back": {power(commit + 2), func() []commits.Found {
			found := state(commit + 1)
			found[key(found, entryCommit)].N = committed(commit - 1)
			return found
		}(), counts{torn: 1, lost: 1}, "the commit index is"},
		"no commit index": {power(commit + 2), func() []commits.Found {
			found := state(commit + 1)
			i := key(found, entryCommit)
			return slices.Delete(found, i, i+1)
		}(), counts{survived: commit + 2}, ""},
		"a deletion under way": {power(concurrent), concurrentUndone(), counts{survived: concurrent + 2}, ""},
		"a deletion under way lost": {func() *protocol.History {
			h := power(concurrent)
			h.Promise(protocol.Ack{N: ops[concurrent].end(), Batch: true, Level: holdfast.Power})
			return h
		}(), concurrentUndone(), counts{lost: 1}, "only the first"},
	} {
		t.Run(name, func(t *testing.T) {
			j := raftJudge(test.history, test.found)
			got := countsOf(j)
			got.acked, got.kept = 0, 0
			if test.want.survived == 0 {
				got.survived = 0 // depends on what the seed has there
			} else {
				test.want.survived = int(ops[test.want.survived-1].end())
			}
			if got != test.want {
				t.Errorf("%+v, want %+v: %q", got, test.want, j.Findings)
			}
			if test.says == "" && len(j.Findings) > 0 || !strings.Contains(strings.Join(j.Findings, "\n"), test.says) {
				t.Errorf("it says %q, want %q", j.Findings, test.says)
			}
			if skipped := strings.HasSuffix(name, "under way"); skipped != (len(j.Skipped) == 1) {
				t.Errorf("skipped: %v", j.Skipped)
			}
		})
	}
}

// entriesOfNothing is what there is in an empty store.
func entriesOfNothing() []commits.Found { return newRaftState(scriptOf(1), false).entries(true) }

// TestRaftGoesOn: a history goes on from a deletion that a crash took back, and from what others took back.
func TestRaftGoesOn(t *testing.T) {
	h := &protocol.History{Seed: 11, Survives: holdfast.Power, Level: holdfast.Power}
	h.Begin(0, 1)
	ops := raftOps(h, 5000)
	i := slices.IndexFunc(ops, func(o *raftOp) bool { return o.concurrent })
	if i < 0 {
		t.Fatal("no such operation; take another seed")
	}
	deletion := protocol.Span{From: ops[i].n, To: ops[i].end()}
	with := raftFold(h, ops[i+1].end(), nil, nil)
	h.Skipped = []protocol.Span{deletion}
	without := raftFold(h, ops[i+1].end(), nil, nil)
	if len(without.logs) != len(with.logs)+int(ops[i].size) || without.first != ops[i].from || with.last != without.last {
		t.Errorf("%d entries from %d, and %d from %d", len(without.logs), without.first, len(with.logs), with.first)
	}
	h.Begin(1, ops[i+1].end()+1)
	if len(h.Skipped) != 1 {
		t.Errorf("%v", h.Skipped)
	}
	// Another generation makes another operation of the same number, and starts with the entries that were to go.
	next := raftOps(h, ops[i+1].end()+300)
	h.Issued, h.Bound = next[len(next)-1].end(), next[len(next)-1].end()
	if j := raftJudge(h, raftAfter(h, next[len(next)-1])); j.Broken() || j.Survived != h.Issued {
		t.Errorf("%+v", j)
	}
	found := raftAfter(h, next[i+1])
	h.Skipped = nil
	if j := raftJudge(h, found); !j.Broken() {
		t.Error("the deletion is taken for done and not done")
	}
	h.Skipped = []protocol.Span{deletion}
	h.Begin(2, deletion.From)
	if len(h.Skipped) != 0 || h.Clone().Generation(deletion.To) != 2 {
		t.Errorf("%v", h.Skipped)
	}
}

// lingering is a peer's store that answers what was deleted from the front, and is emptied while it does.
type lingering struct {
	contender.RaftStore
	v *raftVictim
}

func (s lingering) FirstIndex() (uint64, error)      { return s.v.model.first, nil }
func (s lingering) LastIndex() (uint64, error)       { return s.v.model.last, nil }
func (s lingering) GetUint64([]byte) (uint64, error) { return 0, nil }

func (s lingering) GetLog(index uint64, l *raft.Log) error {
	s.v.state.Lock()
	defer s.v.state.Unlock()
	if s.v.model.first == 0 || index > s.v.model.first {
		return raft.ErrLogNotFound
	}
	l.Index = index
	s.v.model.logs, s.v.model.first, s.v.model.last = map[uint64]raftMark{}, 0, 0
	s.v.moves += 2 // one operation
	return nil
}

// TestFrontIsNotCompared: a peer may answer the entries before the first one, also while the rest is deleted.
func TestFrontIsNotCompared(t *testing.T) {
	var told bytes.Buffer
	v := &raftVictim{worker: &worker{report: protocol.NewReporter(&told)}, peer: true}
	v.store = lingering{v: v}
	for seed := range uint64(200) { // some look before the first entry
		v.model = newRaftState(scriptOf(1), true)
		v.model.put(90, raftMark{n: 1, term: 1})
		if err := v.look(rand.New(rand.NewPCG(seed, 0))); err != nil {
			t.Fatal(err)
		}
	}
	if told.Len() > 0 {
		t.Errorf("the victim told of %q", told.String())
	}
}
