package crash

import (
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
)

// TestMachinesOfStores loses machines under a store, and under the server, whose own writers and judges say what must
// be there. A store whose transactions are committed in two is found out.
func TestMachinesOfStores(t *testing.T) {
	if testing.Short() {
		t.Skip("short: it starts nine servers")
	}
	if missing := machines.Check(machines.Options{}); missing != nil {
		t.Skip("MACHINES ARE NOT CRASHED: ", missing)
	}
	for _, c := range []struct {
		engine, subject string
		seed            uint64 // chooses the first loss
		crashes         int    // at most: chance may spare a control
		verdict         Verdict
		reached         string
	}{
		{kinds.MachineEngine, subjects.Message.Name, 1, 1, Held, "power cut"},
		{kinds.MachineEngine, subjects.Serve.Name, 3, 1, Held, "lost disk"},
		{kinds.MachineEngine, subjects.Nodes.Name, 16, 2, Held, "paused owner"}, // then an isolated primary; clocks differ
		{kinds.SlowClock, subjects.Nodes.Name, 1, 5, Broken, "paused owner"},
		{kinds.AnswersRepeated, subjects.Nodes.Name, 1, 5, Broken, "killed process"},
		{kinds.InTwoOnMachines, subjects.Transaction.Name, 1, 15, Broken, "kill"},
		{kinds.NATSDefault, subjects.Message.Name, 1, 1, Broken, "power cut of all"},
		{kinds.NATSSynced, subjects.Message.Name, 1, 1, Held, "power cut of all"},
	} {
		t.Run(c.engine+", "+c.subject, func(t *testing.T) {
			t.Parallel()
			switch c.engine {
			case kinds.NATSSynced, kinds.NATSDefault:
				night.Only(t, "the judge of messages finds spoilt ones, and TestMachines what machines lose")
			case kinds.SlowClock, kinds.AnswersRepeated:
				night.Only(t, "the judge of package fleet finds what is old and what is there twice")
			case kinds.InTwoOnMachines:
				night.Only(t, "TestSureMutantsAreFound kills what commits transactions in two")
			}
			dir := t.TempDir()
			row := kinds.Row{Engine: c.engine, Subject: c.subject, Level: holdfast.Quorum, Given: holdfast.Quorum, Kind: Machine,
				Control: c.verdict == Broken}
			tally := newTally(row, c.seed)
			r := Standard().kindRunner(victims(standard, dir), dir)
			testkit.Try(t, r.Session(t.Context(), row, c.seed, 0, c.crashes, 0, tally))
			got := tally.finish()
			t.Logf("%s in %d crashes: %s", got.Verdict, got.Cuts, got.Why)
			if got.Verdict != c.verdict || got.Acked == 0 || got.Reached[c.reached] == 0 {
				t.Errorf("%s: %s, %d acknowledged, %v: %s", c.engine, got.Verdict, got.Acked, got.Reached, got.Why)
			}
			if row.Control && (got.Torn+got.Lost+got.Wrong == 0 || !strings.HasPrefix(got.Why, c.reached+" in round ")) {
				t.Errorf("%d are torn, %d lost, %d wrong: %s", got.Torn, got.Lost, got.Wrong, got.Why)
			}
		})
	}
}
