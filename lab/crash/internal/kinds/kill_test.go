package kinds

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// TestKillAfterAnAcknowledgement: where one is wanted, no victim is killed while it opens, which may be before it could
// acknowledge anything; where none is, some are.
func TestKillAfterAnAcknowledgement(t *testing.T) {
	c := Row{Kind: Kill, Level: holdfast.Process, Given: holdfast.Process, Capabilities: bbolt.Describe()}
	for round := range 2 {
		opening := [2]int{}
		for seed := range uint64(50) {
			for i, acked := range []bool{false, true} {
				var s protocol.Spec
				if m := killMoment(rand.New(rand.NewPCG(seed, 0)), c, &s, round, acked); m.phase == protocol.PhaseOpening {
					opening[i]++
				}
			}
		}
		if opening[0] == 0 || opening[1] > 0 {
			t.Errorf("round %d: of 50 victims each %d were killed while they opened, and %d that were to acknowledge something",
				round, opening[0], opening[1])
		}
	}
}
