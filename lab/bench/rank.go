package bench

import (
	"cmp"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Rank says how an engine compares in its table with the one that has the highest median rate there, or with the
// baseline, and whether that is shown.
type Rank struct {
	To      string  `json:"to"` // the engine that it is compared with
	Verdict Verdict `json:"verdict"`
	P       float64 `json:"p"` // of the Mann-Whitney U test, two-sided; 1 where there is nothing to compare
	// Corrected is P after Holm, over the comparisons of the table: those of all pairs of engines, or, with a baseline,
	// those with it. A difference is shown if it is at most measure.Alpha.
	Corrected float64 `json:"p_corrected"`
	// Ratio is the rate divided by that of To, by Hodges and Lehmann, and the interval holds the true one with Confidence.
	// -1 if a rate is 0, or for To itself.
	Ratio      float64 `json:"ratio"`
	Low        float64 `json:"ratio_low"`
	High       float64 `json:"ratio_high"`
	Confidence float64 `json:"ratio_confidence"`
}

// Verdict is what is shown about an engine in its table.
type Verdict string

// The verdicts.
const (
	Best         Verdict = "best"         // all others are slower
	Leading      Verdict = "leading"      // the highest median, but not all others are shown to be slower
	Baseline     Verdict = "baseline"     // the others are compared with it
	Slower       Verdict = "slower"       // than To
	Faster       Verdict = "faster"       // than To, which is a baseline
	NotShown     Verdict = "not shown"    // no difference from To is shown
	TooFewRounds Verdict = "too few"      // rounds for any difference to be shown
	Alone        Verdict = "alone"        // there is no other engine
	NoBaseline   Verdict = "not measured" // the baseline is not in the table
)

// tableKey is which table a cell is in: only what is in one table is compared. Reads are in one at all levels.
type tableKey struct {
	workload string
	clients  int
	given    holdfast.Level
	offer    Offer
}

func (c Cell) table() tableKey {
	if c.Reads {
		return tableKey{workload: c.Workload, clients: c.Clients, offer: c.Offer}
	}

	return tableKey{c.Workload, c.Clients, c.Given, c.Offer}
}

// rank compares the engines of each table with each other, or with the baseline if one is named. In an open loop there
// is no rank: all make the rate that is offered, unless they are overloaded. Engines whose cold reads came from memory
// have none either. rates are those of the rounds that the summaries are of.
func rank(summaries []Summary, rates map[Cell][]float64, baseline string) {
	tables := map[tableKey][]*Summary{}
	for i := range summaries {
		if s := &summaries[i]; !reference(s.Engine) && !s.FromMemory && !s.Offer.Open() {
			tables[s.cell.table()] = append(tables[s.cell.table()], s)
		}
	}

	for _, rows := range tables {
		rankTable(rows, rates, baseline)
	}
}

func rankTable(rows []*Summary, rates map[Cell][]float64, baseline string) {
	slices.SortStableFunc(rows, func(a, b *Summary) int { return cmp.Compare(b.Median, a.Median) })
	to := rows[0]
	if baseline != "" {
		i := slices.IndexFunc(rows, func(s *Summary) bool { return s.Engine == baseline })
		if i < 0 {
			for _, s := range rows {
				s.Rank = &Rank{Verdict: NoBaseline, P: 1, Corrected: 1, Ratio: -1, Low: -1, High: -1, Confidence: -1}
			}

			return
		}
		to = rows[i]
	}

	// All pairs are one family although only those with the best are shown: which one is the best was seen in the same
	// figures. A baseline was named before.
	var family []float64
	at := map[*Summary]int{} // in family, of the comparison with to
	with := map[*Summary]measure.Difference{}
	fewest := to.Rounds
	for i, a := range rows {
		fewest = min(fewest, a.Rounds)
		for _, b := range rows[i+1:] {
			switch other := a; {
			case a == to:
				other = b
				fallthrough
			case b == to:
				with[other], at[other] = measure.Compare(rates[other.cell], rates[to.cell]), len(family)
				family = append(family, with[other].P)
			case baseline == "":
				family = append(family, measure.PValue(rates[a.cell], rates[b.cell]))
			}
		}
	}

	corrected := measure.Holm(family)
	enough := fewest >= measure.RoundsFor(len(family))
	all := true // are shown to be slower
	for _, s := range rows {
		if s == to {
			continue
		}
		d := with[s]
		s.Rank = &Rank{To: to.Engine, Verdict: NotShown, P: d.P, Corrected: corrected[at[s]], Ratio: d.Ratio, Low: d.Low,
			High: d.High, Confidence: d.Confidence}
		switch shown := s.Rank.Corrected <= measure.Alpha; {
		case !enough:
			s.Rank.Verdict = TooFewRounds
		case shown && s.Median < to.Median:
			s.Rank.Verdict = Slower
		case shown && s.Median > to.Median:
			s.Rank.Verdict = Faster
		}
		all = all && s.Rank.Verdict == Slower
	}

	to.Rank = &Rank{To: to.Engine, Verdict: Leading, P: 1, Corrected: 1, Ratio: -1, Low: -1, High: -1, Confidence: -1}
	switch {
	case baseline != "":
		to.Rank.Verdict = Baseline
	case len(rows) == 1:
		to.Rank.Verdict = Alone
	case !enough:
		to.Rank.Verdict = TooFewRounds
	case all:
		to.Rank.Verdict = Best
	}
}

// comparisons is how many comparisons a table of so many engines makes.
func comparisons(engines int, baseline bool) int {
	if baseline {
		return max(engines-1, 0)
	}

	return engines * (engines - 1) / 2
}
