package crash

import (
	"github.com/holdfastdb/holdfast"
)

// Subject is what the victim does and how it is judged: the bare contract, or a store over it. A
// new one is a file of this package and a line in [Subjects].
type Subject struct {
	Name, About string

	// begin enters in a new history what is chosen for all of it; nil if nothing is.
	begin func(h *history, engine string, peer bool)
	// work works on an open engine until stop is closed, and returns once nothing is under way any
	// more. It runs in the victim.
	work func(w *worker, e holdfast.Engine, stop <-chan struct{}) error
	// read tells all that is in an engine. It runs in the child that checks.
	read func(c *check, e holdfast.Engine, emit func(entry)) error
	// judge decides what there is. It runs in the supervisor.
	judge func(h *history, found []entry) Judgement
}

// Subjects lists the subjects.
func Subjects() []Subject { return []Subject{kv, events, rafts} }

// Begin enters in a new history of an engine what is chosen for all of it.
func (s Subject) Begin(h *history, engine string, peer bool) {
	if s.begin != nil {
		s.begin(h, engine, peer)
	}
}

// Judge decides what there is.
func (s Subject) Judge(h *history, found []entry) Judgement { return s.judge(h, found) }
