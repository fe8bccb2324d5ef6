package crash

import (
	"context"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Simulation is an engine's own simulation of its file system: histories, each of which follows from a
// seed, with crashes at every level.
type Simulation struct {
	Engine string
	// Run runs histories with seeds from seed on for about d, at least one. An error that is not ctx's is a
	// broken claim, and Failed is its seed.
	Run func(ctx context.Context, seed uint64, d time.Duration) (SimulationResult, error)
}

// SimulationResult is what a simulation did.
type SimulationResult struct {
	Histories int
	Crashes   int    // -1 if not told
	Failed    uint64 // the seed of the history that failed
}

// Histories makes a simulation of a function that runs one history and returns what it likes to tell, of
// which only that it went well counts here.
func Histories[S any](engine string, one func(ctx context.Context, seed uint64) (S, error)) Simulation {
	return Simulation{Engine: engine, Run: func(ctx context.Context, seed uint64, d time.Duration) (SimulationResult, error) {
		r := SimulationResult{Crashes: holdfast.Unknown}
		for began := time.Now(); r.Histories == 0 || time.Since(began) < d; r.Histories++ {
			if _, err := one(ctx, seed); err != nil {
				r.Failed = seed
				r.Histories++
				return r, err
			}
			if err := ctx.Err(); err != nil {
				return r, err
			}
			seed++
		}
		return r, nil
	}}
}
