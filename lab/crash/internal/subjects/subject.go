// Package subjects holds what a victim does, how a check reads what is left, and how that is judged: one file or
// more for each of the bare contract, the event store, the message store, the task store, transactions over all of
// these and the Raft store.
//
// A subject knows nothing of how its victim is crashed. What it writes follows from a seed, so that what must be there
// can be computed.
package subjects

import (
	"context"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// Subject is what the victim does and how it is judged: the bare contract, or a store over it. A
// new one is a file of this package and a line in [Subjects].
type Subject struct {
	Name, About string

	// begin enters in a new history what is chosen for all of it; nil if nothing is.
	begin func(h *protocol.History, engine string, peer bool)
	// work works on an open engine until stop is closed, and returns once nothing is under way any
	// more. It runs in the victim.
	work func(w *worker, e holdfast.Engine, stop <-chan struct{}) error
	// clients work on the server that a victim is, at an address, until ctx ends: the server is stopping, or dead. It runs
	// in the supervisor. nil: the victim works by itself.
	clients func(ctx context.Context, w *worker, c holdfast.Capabilities, address string)
	// ages: work heeds Spec.Age.
	ages bool
	// restore makes the engine's directory anew before a check opens it; nil if what a crash has left is opened.
	restore func(s protocol.Spec) error
	// remote: what must be there is elsewhere, so that the engine's own syncs promise nothing.
	remote bool
	// read tells all that is in an engine. It runs in the child that checks.
	read func(c *check, e holdfast.Engine, emit func(commits.Found)) error
	// reread tells what an engine whose reads may fail answers wrongly, where want is what it must; nil if it cannot. It
	// runs in the child that checks.
	reread func(c *check, e holdfast.Engine, want []commits.Found)
	// judge decides what there is. It runs in the supervisor.
	judge func(h *protocol.History, found []commits.Found) protocol.Judgement
}

// Nodes is several processes that are one server, on machines. They, and their clients, are in package fleet.
var Nodes = Subject{Name: "nodes", About: "several processes that are one server, by clients of all APIs that go on"}

// Subjects lists the subjects.
func Subjects() []Subject {
	return []Subject{KV, Event, Message, Task, Transaction, Raft, Serve, Backup, Nodes}
}

// Begin enters in a new history of an engine what is chosen for all of it.
func (subject Subject) Begin(h *protocol.History, engine string, peer bool) {
	if subject.begin != nil {
		subject.begin(h, engine, peer)
	}
}

// OnlyKilled reports whether it is tried by kills alone: it loses the disk with each.
func (subject Subject) OnlyKilled() bool { return subject.restore != nil }

// Ages reports whether a victim can be told to age a directory.
func (subject Subject) Ages() bool { return subject.ages }

// Rereads reports whether a child can be told to compare what it reads.
func (subject Subject) Rereads() bool { return subject.reread != nil }

// Judge decides what there is.
func (subject Subject) Judge(h *protocol.History, found []commits.Found) protocol.Judgement {
	return subject.judge(h, found)
}
