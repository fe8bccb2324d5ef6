package subjects

import (
	"slices"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// concurrent is a victim whose operations run concurrently, so that each is acknowledged for itself.
type concurrent struct {
	*worker
	script script
	given  holdfast.Level

	state    sync.Mutex // covers begun of the worker too
	finished map[uint64]bool
}

// newConcurrent goes on behind the numbers that were begun before the engine was opened again.
func newConcurrent(w *worker, script script, given holdfast.Level) concurrent {
	w.begun = max(w.begun, w.next-1)
	return concurrent{worker: w, script: script, given: given, finished: map[uint64]bool{}}
}

// finish notes that an operation is over: what Sync and Close promise ends before the first that is not, or has failed.
func (v *concurrent) finish(n uint64, err error) {
	if err != nil {
		return
	}
	v.state.Lock()
	defer v.state.Unlock()
	v.finished[n] = true
	v.mu.Lock()
	defer v.mu.Unlock()

	// next moves over all that is finished without a gap.
	for v.finished[v.next] {
		delete(v.finished, v.next)
		v.next++
	}
}

// acknowledged tells that an operation is, at the level that a server's answers name, if there is one.
func (v *concurrent) acknowledged(n uint64, named *namedLevel) {
	level := v.given
	if named != nil {
		if level = named.weakest(); level == 0 {
			v.wrong("operation %d has ended well, and no answer to a write of it was seen", n)
			return
		}
	}
	v.acked(n, level)
}

// skipped reports whether a crash has undone an operation.
func skipped(h *protocol.History, n uint64) bool {
	return slices.ContainsFunc(h.Skipped, func(s protocol.Span) bool { return s.From <= n && n <= s.To })
}

// settleConcurrent judges by what is there of operations that run concurrently: what was acknowledged before the last
// one that surely is there was begun is there too.
func settleConcurrent(h *protocol.History, v commits.Verdict, last uint64) (result protocol.Judgement) {
	// Two operations that overlap may come in either order; these two did not overlap.
	for _, a := range h.Acks {
		if a.Batch && v.Missing[a.N] && a.Issued < last {
			v.Find(commits.OutOfOrder,
				"operation %d is not there, and had been acknowledged before operation %d, which is there, was begun", a.N, last)
		}
	}
	if result.Settle(h, v); !result.Broken() {
		// Nothing is broken, so what is missing was under way. It is named, so that the next judgement does not miss it.
		result.Survived = result.Last
		for n := uint64(1); n <= result.Last; n++ {
			if v.Missing[n] {
				result.Skipped = append(result.Skipped, protocol.Span{From: n, To: n})
			}
		}
	}

	return result
}
