package crash

import (
	"context"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Kind is how the victim's world ends.
type Kind string

// The kinds.
const (
	Kill     Kind = "kill"
	Power    Kind = "power"
	Faults   Kind = "faults"
	Simulate Kind = "simulate"
)

// Kinds lists the kinds in the order in which they are shown.
func Kinds() []Kind { return []Kind{Kill, Power, Faults, Simulate} }

// survives is the weakest level that a crash of this kind must not cost.
func (k Kind) survives() holdfast.Level {
	if k == Kill {
		return holdfast.Process
	}
	return holdfast.Power
}

// cell is one row of what will be tested.
type cell struct {
	Engine       string
	Subject      string
	Level, Given holdfast.Level
	Kind         Kind
	FS           string
	Control      bool
	peer         bool // not an engine, but another store for Raft
	capabilities holdfast.Capabilities
	notAvailable string // why this is not tested
}

// kindRunner crashes victims. It may be used by several goroutines.
type kindRunner struct {
	child      []string // the command line of a victim's, or a check's, process
	dir        string   // where everything is made
	timeouts   timeouts
	subject    func(name string) (rowSubject, error)
	simulation func(engine string) *Simulation
}

// rowSubject is what a victim works on, as far as a kind must know it.
type rowSubject interface {
	// Begin enters in a new history of an engine what is chosen for all of it.
	Begin(h *history, engine string, peer bool)
	// Judge decides what there is.
	Judge(h *history, found []entry) Judgement
}

// rowTally adds up what the rounds of one row find. It may be used by several goroutines.
type rowTally interface {
	// Judged adds a crash. fatal is a recovery failure.
	Judged(j Judgement, fatal bool)
	// Recovered adds the time that opening took.
	Recovered(d time.Duration)
	// Synced adds batches and the syncs that they took, -1 if that is not known.
	Synced(commits, syncs int64)
	// Wrong adds a breach that was found without a crash.
	Wrong(finding string)
	// Note adds a sentence for the reader of the row.
	Note(format string, args ...any)
	// Breaks adds a crash that breaks a claim, which Judged has counted. It may keep the scene, and drops it.
	Breaks(s *scene, j Judgement)
	// Simulated adds a simulated history.
	Simulated(did Simulated)
	// SimulationFailed adds that the history of a seed broke a claim.
	SimulationFailed(seed uint64, err error)
}

// session crashes victims of a row on one directory or disk, so often at most, or runs simulations for a length of time.
func (r *kindRunner) session(ctx context.Context, c cell, seed uint64, cuts int, length time.Duration, t rowTally) error {
	switch c.Kind {
	case Kill:
		return r.killSession(ctx, c, seed, cuts, t)
	case Power:
		return r.powerSession(ctx, c, seed, cuts, t)
	case Faults:
		return r.faultSession(ctx, c, seed, cuts, t)
	default:
		return r.simulate(ctx, c, seed, length, t)
	}
}

// history begins the history of a directory.
func (r *kindRunner) history(c cell, seed uint64) (*history, error) {
	subject, err := r.subject(c.Subject)
	if err != nil {
		return nil, err
	}
	h := &history{Seed: seed, Survives: c.Kind.survives(), Level: c.Given}
	subject.Begin(h, c.Engine, c.peer)
	return h, nil
}

// timeouts are how long children are waited for. They are generous: what they find is a hang.
type timeouts struct {
	silence  time.Duration // of a victim that has not acknowledged anything yet
	checking time.Duration // of a check
}
