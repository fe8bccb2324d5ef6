// Package kinds holds how a crash is made: kill, power, faults, lies, simulate and machine. A kind starts victims, ends
// their world at a chosen moment, lets a child open what is left, and hands the judgement to a tally.
//
// A kind knows nothing of what its victim does but [Subject], and nothing of what becomes of its results but [Tally].
package kinds

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// Kind is how the victim's world ends.
type Kind string

// The kinds.
const (
	Kill     Kind = "kill"
	Power    Kind = "power"
	Faults   Kind = "faults"
	Lies     Kind = "lies"
	Simulate Kind = "simulate"
	Machine  Kind = "machine"
)

// Kinds lists the kinds in the order in which they are shown.
func Kinds() []Kind { return []Kind{Kill, Power, Faults, Lies, Simulate, Machine} }

// Recorded reports whether crashes of this kind are made of a recorded disk.
func (k Kind) Recorded() bool { return k == Power || k == Faults || k == Lies }

// PerSession is how many crashes a session makes of one directory or disk at most, 0 for a simulation.
func (k Kind) PerSession() int {
	return map[Kind]int{Kill: KillsPerSession, Power: cutsPerRecord, Lies: cutsPerRecord, Faults: cutsPerFault,
		Machine: crashesPerLab}[k]
}

// Survives is the weakest level that a crash of this kind must not cost. Of a disk that lies no level can say so: it is
// the one that counts on flushes.
func (k Kind) Survives() holdfast.Level {
	switch k {
	case Kill:
		return holdfast.Process
	case Machine:
		return holdfast.Quorum
	}

	return holdfast.Power
}

// Row is one row of what will be tested.
type Row struct {
	Engine       string
	Subject      string
	Level, Given holdfast.Level
	Kind         Kind
	Mounts       []blockdev.Mount // that the row's recorded disks have in turns
	Mount        blockdev.Mount   // that a session's disk has
	Control      bool
	Peer         bool // another store, which its subject works on as it is
	Capabilities holdfast.Capabilities
	Losses       []string // of machines, see [Losses]; nil means all
	Manager      string   // of machines, see machines.Options; empty means the lab
	NotAvailable string   // why this is not tested
}

// Runner crashes victims. It may be used by several goroutines.
type Runner struct {
	Child      []string // the command line of a victim's, or a check's, process
	Dir        string   // where everything is made
	Timeouts   Timeouts
	Subject    func(name string) (Subject, error)
	Simulation func(engine string) *Simulation
	// StartNATS starts a server of NATS by start, and returns where clients reach it.
	StartNATS func(n NATSNode, start func(command []string, request any) (*child.Process, error)) (url string, err error)
}

// NATSNode is a server of a cluster of NATS.
type NATSNode struct {
	Dir   string // where it makes a directory of its own
	Token string // that clients and servers have to know
	Sync  bool   // sync_interval: always; else the default
	Name  string
	Host  string   // its address
	Hosts []string // those of all
}

// Subject is what a victim works on, as far as a kind must know it.
type Subject interface {
	// Begin enters in a new history of an engine what is chosen for all of it.
	Begin(h *protocol.History, engine string, peer bool)
	// Ages reports whether a victim can be told to age a directory.
	Ages() bool
	// Rereads reports whether a child can be told to compare what it reads.
	Rereads() bool
	// Serves reports whether the victim is a server, which Clients work on from here.
	Serves() bool
	// Clients work on the server at each address that comes, "" while there is none, until the channel is closed.
	Clients(s protocol.Spec, c holdfast.Capabilities, t *protocol.Reporter, addresses <-chan string)
	// Judge decides what there is.
	Judge(h *protocol.History, found []commits.Found) protocol.Judgement
}

// Tally adds up what the rounds of one row find. It may be used by several goroutines.
type Tally interface {
	// Judged adds a crash. fatal is a recovery failure.
	Judged(j protocol.Judgement, fatal bool)
	// Recovered adds the time that opening took.
	Recovered(d time.Duration)
	// Paused adds how long nothing was acknowledged around a loss, after which the owner went on without an error.
	Paused(loss string, d time.Duration)
	// Synced adds batches and the syncs that they took, -1 if that is not known.
	Synced(commits, syncs int64)
	// Flushed adds acknowledgements that were compared with the flushes of their disk, and those that had none.
	Flushed(checked int, unflushed []string)
	// Recorded adds a victim on a recorded disk.
	Recorded()
	// Did adds how often something has been reached that does not come about in every run.
	Did(what string, times int)
	// Wrong adds a breach that was found without a crash.
	Wrong(finding string)
	// Note adds a sentence for the reader of the row.
	Note(format string, args ...any)
	// Breaks adds a crash that breaks a claim, which Judged has counted. It may keep the scene, and drops it.
	Breaks(s *Scene, j protocol.Judgement)
	// Simulated adds a simulated history.
	Simulated(did Simulated)
	// SimulationFailed adds that the history of a seed broke a claim.
	SimulationFailed(seed uint64, err error)
}

// Session crashes victims of a row on one directory or disk, so often at most, or runs simulations for a length of
// time, or, if that is not 0, several processes on machines. nth counts the sessions of a row, from anywhere.
func (r *Runner) Session(
	ctx context.Context, c Row, seed uint64, nth, cuts int, length time.Duration, t Tally,
) error {
	if len(c.Mounts) > 0 {
		c.Mount = c.Mounts[nth%len(c.Mounts)]
	}

	var err error
	switch c.Kind {
	case Kill:
		err = r.killSession(ctx, c, seed, cuts, t)
	case Power, Lies:
		err = r.powerSession(ctx, c, seed, cuts, t)
	case Faults:
		if subject, unknown := r.Subject(c.Subject); unknown == nil && subject.Rereads() && nth%2 == 1 && !c.Control {
			err = r.readSession(ctx, c, seed, cuts, t)
		} else {
			err = r.faultSession(ctx, c, seed, cuts, t)
		}
	case Machine:
		err = r.machineSession(ctx, c, seed, cuts, length, t)
	default:
		err = r.simulate(ctx, c, seed, length, t)
	}

	// The tally was told already, so this is no failure of the lab.
	if errors.Is(err, errBefore) {
		return nil
	}

	return err
}

// history begins the history of a directory.
func (r *Runner) history(c Row, seed uint64) (*protocol.History, error) {
	subject, err := r.Subject(c.Subject)
	if err != nil {
		return nil, err
	}
	h := &protocol.History{Seed: seed, Survives: c.Kind.Survives(), Level: c.Given,
		Single: !c.Capabilities.AtomicBatches}
	if c.Kind == Lies {
		h.Survives++ // nothing is sure to be there
	}
	subject.Begin(h, c.Engine, c.Peer)

	return h, nil
}

// Timeouts are how long children are waited for. They are generous: what they find is a hang.
type Timeouts struct {
	Silence  time.Duration // of a victim that has not acknowledged anything yet
	Checking time.Duration // of a check
}
