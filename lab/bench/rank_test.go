package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// ranked sums up a table of so many engines and rounds, with these rates, and returns the ranks by engine.
func ranked(engines, rounds int, baseline string, rate func(engine, round int) float64) []*Rank {
	var cells []Cell
	var results []Result
	for e := range engines {
		cells = append(cells, Cell{Workload: "w", Engine: engineName(e), Asked: holdfast.Power, Given: holdfast.Power,
			Clients: 1})
	}
	for round := range rounds {
		for e, c := range cells {
			results = append(results, Result{Cell: c, Round: round + 1, ItemsPerOp: 1, OpsPerSec: rate(e, round),
				Measurement: Measurement{Verified: true}})
		}
	}
	var ranks []*Rank
	for _, s := range summarise(cells, results, rounds, baseline) {
		ranks = append(ranks, s.Rank)
	}
	return ranks
}

func engineName(i int) string { return fmt.Sprintf("engine-%d", i) }

// claims counts the verdicts that say that two engines differ.
func claims(ranks []*Rank) (n int) {
	for _, r := range ranks {
		if r.Verdict == Slower || r.Verdict == Faster {
			n++
		}
	}
	return n
}

// TestNothingIsFoundInNothing: of tables whose engines are equally fast, at most one in twenty claims any difference,
// whether the machine's own ups and downs, which all engines of a round have in common, are large or not. The limit
// leaves room for chance: three standard deviations of what is counted.
func TestNothingIsFoundInNothing(t *testing.T) {
	const tables = 500
	limit := measure.Alpha + 3*math.Sqrt(measure.Alpha*(1-measure.Alpha)/tables)
	for _, test := range []struct {
		engines, rounds int
		shared          float64 // of the spread, what the engines of a round have in common
		baseline        string
	}{
		{2, 6, 0, ""}, {4, 6, 0, ""}, {7, 6, 0, ""}, {12, 8, 0, ""}, {4, 6, 0.7, ""}, {3, 12, 0, ""},
		{8, 6, 0, engineName(2)},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		found := 0
		for range tables {
			ofRound := map[int]float64{}
			for round := range test.rounds {
				ofRound[round] = r.NormFloat64()
			}
			ranks := ranked(test.engines, test.rounds, test.baseline, func(_, round int) float64 {
				return 1000 * math.Exp((test.shared*ofRound[round]+(1-test.shared)*r.NormFloat64())/20)
			})
			if claims(ranks) > 0 {
				found++
			}
		}
		if share := float64(found) / tables; share > limit {
			t.Errorf("%+v: %v of the tables claim a difference, at most %v may", test, share, limit)
		}
	}
}

// TestDifferenceIsFound: of four engines with a spread of 5 %, six rounds show which one is a third slower, with the
// true factor in the interval.
func TestDifferenceIsFound(t *testing.T) {
	const tables, factor = 300, 1.5
	r := rand.New(rand.NewPCG(3, 4))
	found, held := 0, 0
	for range tables {
		rank := ranked(4, 6, "", func(engine, _ int) float64 {
			rate := 1000 * math.Exp(r.NormFloat64()/20)
			if engine == 2 {
				rate /= factor
			}
			return rate
		})[2]
		if rank.Verdict == Slower {
			found++
		}
		if rank.Low <= 1/factor && 1/factor <= rank.High {
			held++
		}
	}
	if found < tables*98/100 || held < tables*85/100 { // the best of three equals is faster than they are
		t.Errorf("of %d: found in %d, the factor is in the interval of %d", tables, found, held)
	}
}

// TestVerdicts of a table, and of what it says.
func TestVerdicts(t *testing.T) {
	apart := func(engine, round int) float64 { return 1000/float64(1+engine) + float64(round) }
	near := func(engine, round int) float64 {
		if engine == 2 {
			return 100 + float64(round)
		}
		return 1000 + float64(3*round+2*engine)
	}
	for name, test := range map[string]struct {
		engines, rounds int
		baseline        string
		rate            func(engine, round int) float64
		want            []string
	}{
		"apart":         {3, 6, "", apart, []string{"best", "2x slower 1.99..2", "2.99x slower 2.97..3"}},
		"near":          {3, 6, "", near, []string{"no difference shown", "highest median", "9.85x slower 9.66..10"}},
		"baseline":      {3, 6, engineName(1), apart, []string{"2x faster 1.99..2", "baseline", "1.5x slower 1.49..1.51"}},
		"baseline gone": {3, 6, "mem", apart, []string{"", "", ""}},
		"three rounds":  {3, 3, "", apart, []string{"", "", ""}},
		"many engines":  {8, 6, "", apart, []string{"", "", "", "", "", "", "", ""}},
		"one round":     {2, 1, "", apart, []string{"", ""}},
		"alone":         {1, 6, "", apart, []string{""}},
		"all equal": {2, 6, "", func(int, int) float64 { return 5 },
			[]string{"highest median", "no difference shown"}},
		"one does nothing": {2, 6, "", func(engine, _ int) float64 { return float64(1 - engine) },
			[]string{"best", "slower"}},
		"a thousand rounds": {2, 1000, "", apart, []string{"best", "1.5x slower 1.46..1.54"}},
	} {
		ranks := ranked(test.engines, test.rounds, test.baseline, test.rate)
		for i, rank := range ranks {
			if got := rank.text(); got != test.want[i] {
				t.Errorf("%s: %s is %q, want %q: %+v", name, engineName(i), got, test.want[i], *rank)
			}
		}
	}
}

// TestReadFromMemoryHasNoRank: an engine that answered cold reads from memory is not compared with those that read from
// the device.
func TestReadFromMemoryHasNoRank(t *testing.T) {
	w := Workload{Name: "w", Unit: "keys", Items: 1, Reads: true, Cold: true}
	r := &Report{}
	var cells []Cell
	for e := range 3 {
		cells = append(cells, Cell{Workload: w.Name, Engine: engineName(e), Reads: true, Clients: 1})
	}
	for round := range measure.MinRounds {
		for e, c := range cells {
			r.Results = append(r.Results, Result{Cell: c, Round: round + 1, ItemsPerOp: 1,
				OpsPerSec: float64(1000/(e+1) + round), Measurement: Measurement{Verified: true, FromMemory: e == 0 && round == 2}})
		}
	}
	r.Summary = summarise(cells, r.Results, measure.MinRounds, "")
	if s := r.Summary[0]; !s.FromMemory || s.Rank != nil || r.Summary[1].Rank.Verdict != Best ||
		r.Summary[2].Rank.To != engineName(1) {
		t.Errorf("%+v", r.Summary)
	}
	list := groups(w, r, setup{clients: 1})
	if len(list) != 1 || len(list[0].engines) != 2 || len(list[0].rows) != 3 || len(list[0].warm) != 1 {
		t.Fatalf("%+v", list)
	}
	if got := list[0].exported(r); !got.Rows[0].Reference || got.Claim.Fastest[0] != engineName(1) {
		t.Errorf("%+v", got)
	}
}
