package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/vfs"
)

// CrashImages calls f for the seeds of so many histories of crashes, half of them at Process, the others at Power. With
// -short there is one of each: the race detector sees no more in many.
func CrashImages(t *testing.T, histories int, f func(seed uint64, level holdfast.Level) error) {
	if testing.Short() {
		histories = min(histories, 2)
	}

	for seed := range uint64(histories) {
		level := holdfast.Process + holdfast.Level(seed%2)
		if err := f(seed, level); err != nil {
			t.Fatalf("seed %d, level %v: %v", seed, level, err)
		}
	}
}

// CrashImage cuts the power under logtree on a simulated file system, or at Process kills it, at a random moment of
// work, and has check look at what is left; four times over. work opens its store, goes on until something fails and
// returns that error; the random numbers are its own. check finds nothing that fails.
func CrashImage(seed uint64, level holdfast.Level, work func(e holdfast.Engine, r *rand.Rand) error,
	check func(e holdfast.Engine) error) error {
	r := rand.New(rand.NewPCG(seed, 0))
	fs := vfs.NewMem()

	session := func(do func(e holdfast.Engine) error) error {
		e, err := logtree.OpenMem(fs, "db", holdfast.Options{SyncEvery: -1, MemoryBytes: 4 << 20})
		if err != nil {
			return fmt.Errorf("opening the engine: %w", err)
		}

		return errors.Join(do(e), e.Close())
	}
	for round := range 4 {
		fs.Seed(r.Uint64())
		fs.HaltAfter(1 + r.Int64N(400))
		own := rand.New(rand.NewPCG(seed, r.Uint64()))
		err := session(func(e holdfast.Engine) error { return work(e, own) })
		if err == nil || !fs.Halted() {
			return fmt.Errorf("round %d, before the power went: %w", round, err)
		}
		if level >= holdfast.Power {
			fs = fs.Crash(r)
		} else {
			fs = fs.Kill()
		}
		if err := session(check); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}

	return nil
}
