package kinds

import (
	"context"
	"time"

	"github.com/holdfastdb/holdfast/internal/console"
)

// Simulation is an engine's own simulation of its file system: histories, each of which follows from a
// seed, with crashes at every level.
type Simulation struct {
	Engine string
	// One runs the history of a seed and tells what was done in it. An error that is not ctx's is a broken claim.
	One func(ctx context.Context, seed uint64) (Simulated, error)
	// Mutants are the engine with one rule broken each, which Engine says in words, and One finds out.
	Mutants []Simulation
}

// Simulated is what was done in simulated histories.
type Simulated struct {
	Histories   int `json:"histories"`
	Steps       int `json:"steps"`        // operations of the engine, crashes and faults among them
	Commits     int `json:"commits"`      // batches applied
	Reads       int `json:"reads"`        // gets and scans compared with what must be there
	PowerCuts   int `json:"power_cuts"`   // crashes of the machine
	Kills       int `json:"kills"`        // crashes of the process
	InOperation int `json:"in_operation"` // of both, in the middle of an operation
	InRecovery  int `json:"in_recovery"`  // crashes during the opening that follows a crash
	Faults      int `json:"faults"`       // failures that the file system was made to give, a full disk among them
	Damages     int `json:"damages"`      // bits that were flipped, and files cut
	Recoveries  int `json:"recoveries"`   // openings after a crash whose contents were compared
	Refusals    int `json:"refusals"`     // reads and openings that found the damage, as they must
}

// Add adds what was done in others.
func (s *Simulated) Add(o Simulated) {
	s.Histories += o.Histories
	s.Steps += o.Steps
	s.Commits += o.Commits
	s.Reads += o.Reads
	s.PowerCuts += o.PowerCuts
	s.Kills += o.Kills
	s.InOperation += o.InOperation
	s.InRecovery += o.InRecovery
	s.Faults += o.Faults
	s.Damages += o.Damages
	s.Recoveries += o.Recoveries
	s.Refusals += o.Refusals
}

// simulationLength is how long a simulation goes on if no length was named.
const simulationLength = 20 * time.Second

// simulate runs an engine's own simulation with seeds from seed on, one history at least, and ends it at the first
// that breaks a claim.
func (r *Runner) simulate(ctx context.Context, c Row, seed uint64, length time.Duration, t Tally) error {
	if length == 0 {
		length = simulationLength
	}

	one := r.Simulation(c.Engine).One
	for began := time.Now(); ; seed++ {
		// A history that was interrupted is no finding, whatever its error says.
		did, err := one(ctx, seed)
		if ctx.Err() != nil {
			return console.ErrInterrupted
		}
		did.Histories = 1
		t.Simulated(did)
		if err != nil {
			t.SimulationFailed(seed, err)
			return nil
		}
		if time.Since(began) >= length {
			return nil
		}
	}
}
