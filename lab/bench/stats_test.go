package bench

import (
	"fmt"
	"math"
	"testing"

	"github.com/holdfastdb/holdfast"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values                        []float64
		center, low, high, confidence float64
	}{
		{[]float64{5}, 5, 5, 5, 0},
		{[]float64{1, 3}, 2, 1, 3, 0.5},
		{[]float64{9, 1, 5}, 5, 1, 9, 0.75},
		{[]float64{1, 2, 3, 4, 5}, 3, 1, 5, 0.9375},
		// From six values on, 1 - 2/2^6.
		{[]float64{6, 5, 4, 3, 2, 1}, 3.5, 1, 6, 0.96875},
		{[]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 5.5, 2, 9, 0.978515625},
	} {
		given := append([]float64(nil), test.values...)
		center, low, high, confidence := median(test.values)
		if center != test.center || low != test.low || high != test.high || math.Abs(confidence-test.confidence) > 1e-9 {
			t.Errorf("%v: %v [%v %v] at %v, want %v [%v %v] at %v", given, center, low, high, confidence, test.center, test.low,
				test.high, test.confidence)
		}
		for i := range given {
			if given[i] != test.values[i] {
				t.Fatalf("%v was changed to %v", given, test.values)
			}
		}
	}
}

func TestSummariseLeavesOutWhatIsVoid(t *testing.T) {
	cell := func(engine string) Cell {
		return Cell{Workload: "w", Engine: engine, Asked: holdfast.Power, Given: holdfast.Power, Clients: 1}
	}
	result := func(engine string, rate float64, verified bool) Result {
		return Result{Cell: cell(engine), ItemsPerOp: 1, OpsPerSec: rate,
			Measurement: Measurement{Verified: verified, Syncs: -1, CPUSeconds: -1}}
	}
	got := summarise([]Cell{cell("good"), cell("bad"), cell("never")}, []Result{
		result("good", 3, true), result("bad", 9, true), result("good", 1, true), result("bad", 9, false),
		result("good", 2, true),
	}, 5)
	if len(got) != 1 || got[0].Engine != "good" || got[0].Median != 2 || got[0].Low != 1 || got[0].High != 3 ||
		got[0].Rounds != 3 {
		t.Errorf("%+v", got)
	}
	if got[0].syncsPerCommit != -1 || got[0].cpuPerItem != -1 {
		t.Errorf("what is not known became %v syncs and %v us", got[0].syncsPerCommit, got[0].cpuPerItem)
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

func TestOverlap(t *testing.T) {
	s := func(low, high float64) Summary { return Summary{Low: low, High: high} }
	for _, test := range []struct {
		a, b Summary
		want bool
	}{
		{s(1, 2), s(3, 4), false}, {s(1, 3), s(3, 4), true}, {s(1, 9), s(3, 4), true}, {s(5, 6), s(3, 4), false},
	} {
		if overlap(test.a, test.b) != test.want || overlap(test.b, test.a) != test.want {
			t.Errorf("%v..%v and %v..%v: not %v", test.a.Low, test.a.High, test.b.Low, test.b.High, test.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for want, got := range map[string]string{
		"0": count(0), "12": count(12), "1.5": count(1.5), "999": count(999.4), "1k": count(999.6), "19.6k": count(19_600),
		"870k": count(870_000),
		"1.2M": count(1_200_000), "433M": count(433e6), "2.1G": count(2.1e9),
		"63 ns": duration(0.063), "1 us": duration(0.9996), "1.42 us": duration(1.42), "51 us": duration(51),
		"86.5 us": duration(86.49), "1 ms": duration(999.9),
		"4.59 ms": duration(4586), "1.2 s": duration(1.2e6), "?": duration(-1),
		"0 B": size(0), "999 B": size(999), "1 kB": size(1000), "74.7 MB": size(74_700_000), "1.5 TB": size(1.5e12),
		"100 %": percent(1), "78 %": percent(0.776), "1 %": percent(0.00996), "0.4 %": percent(0.004), "0 %": percent(0),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
