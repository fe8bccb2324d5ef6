package simulate

import (
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

type (
	op    = commits.Op[string]
	entry = commits.Entry[string]
	state = commits.State[string]
)

// ledger is what was applied, and how much of it must survive what. Numbers are of batches, in the order of Apply.
type ledger struct {
	batches [][]op
	acked   commits.Acked
	now     state // after all batches
	base    state // after the first baseAt of them, which an earlier crash has left
	baseAt  uint64
}

// last is the number of the last batch.
func (l *ledger) last() uint64 { return uint64(len(l.batches)) }

// apply adds a batch that the engine has taken.
func (l *ledger) apply(batch []op) {
	l.batches = append(l.batches, batch)
	l.now.Apply(batch)
}

// settle judges what a crash has left: all must be there that was acknowledged at a level or above. If it is right, the
// history goes on from there, since what is found after a crash is durable.
func (l *ledger) settle(found state, survives holdfast.Level) error {
	v := commits.History[string]{
		Base: l.base, BaseAt: l.baseAt, Last: l.last(), Least: l.acked.Surviving(survives),
		Ops: func(n uint64) []op { return l.batches[n-1] },
	}.Judge(found)
	if err := v.Err(); err != nil {
		return err
	}

	// Batches that a crash has taken away are forgotten. What is found now is the base for the next crash, and durable.
	l.batches = l.batches[:v.Last]
	l.base, l.baseAt, l.now = found, v.Last, slices.Clone(found)
	l.acked = commits.Acked{}
	l.acked.Add(v.Last, holdfast.Power)

	return nil
}

// states calls yield with the state after every number of batches, from none on. The state is
// changed between calls.
func (l *ledger) states(yield func(n int, st state) bool) {
	var st state
	for i := range len(l.batches) + 1 {
		if !yield(i, st) || i == len(l.batches) {
			return
		}
		st.Apply(l.batches[i])
	}
}
