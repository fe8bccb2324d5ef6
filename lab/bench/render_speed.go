package bench

import (
	"fmt"
	"strings"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// The tables of rates and latencies, what is shown about who is faster, and how.

// style is how the row of an engine is painted.
func style(row Summary) console.Style {
	if row.Rank != nil && row.Rank.Verdict == Best {
		return console.Green
	}

	return plain(row.Engine)
}

// interval is the range that holds the median.
func interval(s Summary, items float64) string {
	if s.Rounds < 2 {
		return "-"
	}

	return measure.Count(s.Low*items) + ".." + measure.Count(s.High*items)
}

// text is what a table says of a rank; empty where no claim is made in the table.
func (r *Rank) text() string {
	if r == nil {
		return ""
	}

	switch r.Verdict {
	case TooFewRounds, NoBaseline, Alone:
		return ""
	case Leading:
		return "highest median"
	case NotShown:
		return "no difference shown"
	case Slower, Faster:
		ratio, low, high := r.factor()
		if ratio <= 0 {
			return string(r.Verdict)
		}

		return fmt.Sprintf("%sx %s %s..%s", measure.Digits(ratio), r.Verdict, measure.Digits(low), measure.Digits(high))
	}

	return string(r.Verdict)
}

// factor is how many times as fast the faster one of the two is, with its interval; -1 where that is not known.
func (r *Rank) factor() (ratio, low, high float64) {
	if r.Ratio > 0 && r.Verdict == Slower {
		return 1 / r.Ratio, 1 / r.High, 1 / r.Low
	}

	return r.Ratio, r.Low, r.High
}

// noClaim is why no difference can be shown in the table; empty if it can.
func (g group) noClaim() string {
	if len(g.engines) == 0 {
		return ""
	}
	if g.offer.Open() {
		return "no claim: rates of an open loop are those offered"
	}

	switch g.engines[0].Rank.Verdict {
	case TooFewRounds:
		n := comparisons(len(g.engines), g.comparedWith() == Baseline)

		return fmt.Sprintf("no claim: it takes %s to show any difference between %s",
			console.Number(measure.RoundsFor(n), "round"), console.Number(len(g.engines), "engine"))
	case NoBaseline:
		return "no claim: the baseline is not in this table"
	}

	return ""
}

// comparedWith is Baseline if there is one in the table, otherwise Best.
func (g group) comparedWith() Verdict {
	for _, row := range g.engines {
		if row.Rank != nil && row.Rank.Verdict == Baseline {
			return Baseline
		}
	}

	return Best
}

// speed writes the group's table. Rates are of items, times of operations.
func (s screen) speed(g group) {
	switch {
	case g.offer.Bound != Bound{}:
		s.searches(g)
		return
	case g.offer.Open():
		s.openLoop(g)
		return
	}

	unit, items := g.workload.rates()
	confidence := "range"
	for _, row := range g.rows {
		switch {
		case row.Rounds == 1:
			confidence = ""
		case row.Confidence > 0:
			confidence = fmt.Sprintf("[%.0f %%]", 100*row.Confidence)
		}
	}

	verdict, device, floor := "", "", "" // a column without a name is left out
	for _, row := range g.engines {
		switch {
		case row.Rank.text() == "":
		case g.comparedWith() == Baseline:
			verdict = "to " + row.Rank.To
		default:
			verdict = "to the best"
		}
	}
	if g.workload.Cold {
		device = "device/op"
	}
	if g.floor != nil {
		floor = "of floor"
	}
	t := console.Columns(1, "engine", unit+"/s#", confidence, verdict, floor+"#", "p50#", "p99#", "p99.9#", "max#", "ops#",
		device+"#")

	var figures []string
	for _, row := range g.rows {
		share := ""
		if g.floor != nil && row.Engine != Null {
			share = measure.Percent(row.Median / g.floor.Median)
		}
		if figure := g.workload.figure(row); figure != "" {
			figures = append(figures, row.Engine+" "+figure)
		}
		t.Row(style(row), row.Engine, measure.Count(row.Median*items), interval(row, items), row.Rank.text(), share,
			measure.Duration(row.Latency.P50), measure.Duration(row.Latency.P99), measure.Duration(row.Latency.P999),
			measure.Duration(row.Latency.Max), measure.Count(float64(row.Ops)), measure.Size(int64(row.ReadPerOp)))
	}

	for _, engine := range g.void {
		t.Row(console.Red, engine, "void", "see below", "", "", "", "", "", "", "", "")
	}
	s.Table(t)
	if len(g.mapped) > 0 {
		s.Wrapped("  ", "commits are stores to a mapping: "+strings.Join(g.mapped, ", ")+"; calls of the operating system: "+
			"the others")
	}
	if len(g.warm) > 0 {
		s.Wrapped("  ", "not ranked, as devices read nothing for them, so that these reads were not cold: "+
			strings.Join(g.warm, ", "))
	}
	if why := g.noClaim(); why != "" {
		s.Wrapped("  ", why)
	}
	if len(figures) > 0 {
		s.Wrapped("  ", "study "+g.workload.studyName()+" said: "+strings.Join(figures, "; "))
	}
}

// kinds writes a table of the kinds of operations, where they are mixed: a line for each engine and kind.
func (s screen) kinds(g group) {
	t := console.Columns(2, "engine", "kind", "ops#", "p50#", "p99#", "p99.9#", "max#")
	for _, row := range g.rows {
		for i, k := range row.Kinds {
			cells := []string{row.Engine, k.Name, measure.Count(float64(k.Ops)), "-", "-", "-", "-"}
			if i > 0 {
				cells[0] = ""
			}
			if l := k.Latency; k.Ops > 0 && row.Overloaded == 0 {
				copy(cells[3:], l.Cells())
			}
			t.Row(plain(row.Engine), cells...)
		}
	}
	if t.Rows() > 0 {
		s.Printf("\n")
		s.Table(t)
	}
}

// openLoop writes the table of an open loop.
func (s screen) openLoop(g group) {
	unit, items := g.workload.rates()
	state := "" // a column without a name is left out

	for _, row := range g.rows {
		if row.Overloaded > 0 {
			state = "state"
		}
	}

	t := console.Columns(1, "engine", "offered "+unit+"/s#", "reached#", "p50#", "p99#", "p99.9#", "max#", "ops#", state)
	for _, row := range g.rows {
		cells := []string{row.Engine, measure.Count(row.Offered * items), measure.Count(row.Median * items)}
		how := ""
		if row.Overloaded > 0 {
			cells = append(cells, "-", "-", "-", "-")
			if how = "overloaded"; row.Rounds > 1 {
				how += fmt.Sprintf(" in %d of %s", row.Overloaded, console.Number(row.Rounds, "round"))
			}
		} else {
			cells = append(cells, row.Latency.Cells()...)
		}
		t.Row(plain(row.Engine), append(cells, measure.Count(float64(row.Ops)), how)...)
	}

	for _, engine := range g.void {
		t.Row(console.Red, engine, "void", "see below", "", "", "", "", "", "")
	}
	s.Table(t)
}

// figure is what the original study measured of what a row is about; empty if it has no such figure.
func (w Workload) figure(row Summary) string {
	if !w.studied(row.Clients) || row.Offer != w.Offer || reference(row.Engine) {
		return ""
	}
	text := w.Study(row.Engine, row.Given)
	if text == notAtLevel || text == notInStudy {
		return ""
	}

	return text
}

// studyName is the number and the subject of the study that the work is of, as docs/studies.md has them.
func (w Workload) studyName() string {
	kind, _, _ := strings.Cut(w.Name, "/")

	return map[string]string{
		"event": "1 (SQLite against Pebble)", "raft": "2 (Badger against BoltDB against Pebble)",
		"kv": "3 (a Rust B+ tree against bbolt)", "message": "4 (a message store on Pebble)",
		"task": "5 (tasks: SQLite against files)",
		"file": "5 (tasks: SQLite against files)",
	}[kind]
}

// statistics says what is behind medians, intervals and claims.
func (s screen) statistics(r *Report) {
	confidence, rounds, claims, baseline := 0.0, r.rounds(), false, r.Plan.Baseline
	for _, sum := range r.Summary {
		confidence = max(confidence, sum.Confidence)
		claims = claims || sum.Rank.text() != ""
	}

	switch {
	case rounds == 1:
		s.Wrapped("", "One round: no interval, and no claim who is faster.")
		return
	case confidence < measure.WantConfidence:
		s.Wrapped("", fmt.Sprintf("Medians of %d rounds, and the range of all of them, which holds the true median with "+
			"%.0f %% confidence. Below %d rounds no table claims who is faster.", rounds, 100*confidence, measure.MinRounds))
	default:
		s.Wrapped("", fmt.Sprintf("Medians of %d rounds; the interval holds the true median with %.0f %% confidence.",
			rounds, 100*confidence))
	}
	if claims {
		family := "all pairs of its engines"
		if baseline != "" {
			family = "its comparisons with " + baseline
		}
		s.Wrapped("", fmt.Sprintf("Slower, faster and best are claimed where the Mann-Whitney U test of the rounds, "+
			"corrected after Holm for %s, shows it: by chance, at most %.0f %% of such tables claim a "+
			"difference that is not there. The factor is the median of all ratios of rounds, with its "+
			"95 %% interval.", family, 100*measure.Alpha))
	}
}
