package bench

import (
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
)

func TestSummariseLeavesOutWhatIsVoid(t *testing.T) {
	cell := func(engine string) Cell {
		return Cell{Workload: "w", Engine: engine, Asked: holdfast.Power, Given: holdfast.Power, Clients: 1}
	}
	rounds := map[string]int{}
	result := func(engine string, rate float64, verified bool) Result {
		rounds[engine]++
		return Result{Cell: cell(engine), Round: rounds[engine], ItemsPerOp: 1, OpsPerSec: rate,
			Measurement: Measurement{Verified: verified, Syncs: -1, CPUSeconds: -1}}
	}
	got := summarise([]Cell{cell("good"), cell("bad"), cell("never")}, []Result{
		result("good", 3, true), result("bad", 9, true), result("good", 1, true), result("bad", 9, false),
		result("good", 2, true),
	}, 3, "")
	if len(got) != 1 || got[0].Engine != "good" || got[0].Median != 2 || got[0].Low != 1 || got[0].High != 3 ||
		got[0].Rounds != 3 {
		t.Errorf("%+v", got)
	}
	if got[0].SyncsPerCommit != -1 || got[0].CPUPerItem != -1 {
		t.Errorf("what is not known became %v syncs and %v us", got[0].SyncsPerCommit, got[0].CPUPerItem)
	}
}

// TestWhatIsWritten: what devices wrote is a multiple of what clients put, or a share of an operation where that is not
// known, and the last quarter is compared with the first.
func TestWhatIsWritten(t *testing.T) {
	c := Cell{Workload: "w", Engine: "x", Asked: holdfast.Power, Given: holdfast.Power, Clients: 1}
	for put, want := range map[int64]string{1000: "2.5x", holdfast.Unknown: "250 B/op"} {
		s := summarise([]Cell{c}, []Result{{Cell: c, Round: 1, ItemsPerOp: 1, OpsPerSec: 1, Measurement: Measurement{
			Verified: true, Ops: 9, WarmUpOps: 1, BytesWritten: 2500, BytesPut: put,
			Quarters: [runParts]float64{100, 90, 80, 62}}}}, 1, "")[0]
		if s.written() != want || s.endByBegin() != "0.62x" {
			t.Errorf("%d bytes put: %s, %s", put, s.written(), s.endByBegin())
		}
	}
}

// TestFinishedRoundsCount: the tables of a run that ended early are of the rounds in which every cell had its turn, and
// of what there is if there is none. What is void in any round is not ranked.
func TestFinishedRoundsCount(t *testing.T) {
	_, plan, whole := invented(3)
	n := len(plan.Cells)
	void := 0
	for _, r := range whole.Results {
		if !r.Verified {
			void++
		}
	}
	for _, test := range []struct {
		results   int
		rounds    int
		summaries int
		says      string
	}{
		{2*n + 3, 2, n, "; the tables are of 2 finished rounds"},
		{n, 1, n, "; the tables are of 1 finished round"},
		{2, 1, 2, ""},
		{3*n - 1, 2, n - void, "; the tables are of 2 finished rounds"},
	} {
		r := *whole
		r.Results = r.Results[:test.results]
		r.summarise(plan.Cells)
		says := fmt.Sprintf("interrupted after %d of %d measurements", test.results, 3*n) + test.says
		if got := r.partial(n, "interrupted", nil); got != says || len(r.Summary) != test.summaries ||
			r.rounds() != test.rounds {
			t.Errorf("%d results: %q, %d summaries of %d rounds; want %+v", test.results, got, len(r.Summary), r.rounds(), test)
		}
		for _, s := range r.Summary {
			if s.Rounds != test.rounds {
				t.Errorf("%d results: %+v", test.results, s)
			}
		}
	}
}
