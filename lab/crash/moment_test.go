package crash

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/lab/console"
)

// TestKillAfterAnAcknowledgement: where one is wanted, no victim is killed while it opens, which may be before it could
// acknowledge anything; where none is, some are.
func TestKillAfterAnAcknowledgement(t *testing.T) {
	c := row(Kill, holdfast.Process)
	c.capabilities = bbolt.Describe()
	for round := range 2 {
		opening := [2]int{}
		for seed := range uint64(50) {
			for i, acked := range []bool{false, true} {
				var s spec
				if m := killMoment(rand.New(rand.NewPCG(seed, 0)), c, &s, round, acked); m.phase == phaseOpening {
					opening[i]++
				}
			}
		}
		if opening[0] == 0 || opening[1] > 0 {
			t.Errorf("round %d: of 50 victims each %d were killed while they opened, and %d though they were to acknowledge something", round, opening[0], opening[1])
		}
	}
}

// TestSessionHasSomethingToJudge: in a session of one kill, whatever the seed, the victim has acknowledged something.
func TestSessionHasSomethingToJudge(t *testing.T) {
	for seed := range uint64(4) {
		q := request(Kill, 1, "process", bbolt.Name)
		q.Subjects, q.Seed = []string{kv.Name}, &seed
		status, r, out := ran(t, standard, q)
		if status != console.ExitOK {
			t.Fatalf("seed %d: status %d\n%s", seed, status, out)
		}
		believable(t, r, out, Kill)
	}
}
