package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
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
		return r.times()
	}
	return string(r.Verdict)
}

// times is by which factor an engine is slower or faster, with the interval of it: "1.28x slower 1.2..1.4".
func (r *Rank) times() string {
	low, high := r.Low, r.High
	switch {
	case r.Ratio <= 0:
		return string(r.Verdict)
	case r.Verdict == Slower:
		low, high = 1/high, 1/low
	}
	return fmt.Sprintf("%s %s..%s", r.factor(), measure.Digits(low), measure.Digits(high))
}

// factor is times without the interval.
func (r *Rank) factor() string {
	switch {
	case r.Ratio <= 0:
		return string(r.Verdict)
	case r.Verdict == Slower:
		return measure.Digits(1/r.Ratio) + "x slower"
	}
	return measure.Digits(r.Ratio) + "x " + string(r.Verdict)
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
	t := console.Table{Keys: 1, Columns: []console.Column{
		{Name: "engine"}, {Name: unit + "/s", Right: true}, {Name: confidence}, {Name: verdict}, {Name: floor, Right: true},
		{Name: "p50", Right: true}, {Name: "p99", Right: true}, {Name: "p99.9", Right: true}, {Name: "max", Right: true},
		{Name: "ops", Right: true}, {Name: device, Right: true},
	}}
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
	s.Table(&t)
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
	t := console.Table{Keys: 2, Columns: []console.Column{
		{Name: "engine"}, {Name: "kind"}, {Name: "ops", Right: true}, {Name: "p50", Right: true},
		{Name: "p99", Right: true}, {Name: "p99.9", Right: true}, {Name: "max", Right: true},
	}}
	for _, row := range g.rows {
		for i, k := range row.Kinds {
			cells := []string{row.Engine, k.Name, measure.Count(float64(k.Ops)), "-", "-", "-", "-"}
			if i > 0 {
				cells[0] = ""
			}
			if l := k.Latency; k.Ops > 0 && row.Overloaded == 0 {
				copy(cells[3:], []string{measure.Duration(l.P50), measure.Duration(l.P99), measure.Duration(l.P999),
					measure.Duration(l.Max)})
			}
			t.Row(plain(row.Engine), cells...)
		}
	}
	if t.Rows() > 0 {
		s.Printf("\n")
		s.Table(&t)
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
	t := console.Table{Keys: 1, Columns: []console.Column{
		{Name: "engine"}, {Name: "offered " + unit + "/s", Right: true}, {Name: "reached", Right: true},
		{Name: "p50", Right: true}, {Name: "p99", Right: true}, {Name: "p99.9", Right: true}, {Name: "max", Right: true},
		{Name: "ops", Right: true}, {Name: state},
	}}
	for _, row := range g.rows {
		cells := []string{row.Engine, measure.Count(row.Offered * items), measure.Count(row.Median * items)}
		how := ""
		if row.Overloaded > 0 {
			cells = append(cells, "-", "-", "-", "-")
			if how = "overloaded"; row.Rounds > 1 {
				how += fmt.Sprintf(" in %d of %s", row.Overloaded, console.Number(row.Rounds, "round"))
			}
		} else {
			cells = append(cells, measure.Duration(row.Latency.P50), measure.Duration(row.Latency.P99),
				measure.Duration(row.Latency.P999), measure.Duration(row.Latency.Max))
		}
		t.Row(plain(row.Engine), append(cells, measure.Count(float64(row.Ops)), how)...)
	}
	for _, engine := range g.void {
		t.Row(console.Red, engine, "void", "see below", "", "", "", "", "", "")
	}
	s.Table(&t)
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

// conclusions says what the figures show, and nothing that they do not. What the default engine loses comes first.
func (s screen) conclusions(l Lab, r *Report) {
	var lost, others, costs []string
	for _, name := range r.Plan.Workloads {
		w, err := l.workload(name)
		if err != nil {
			continue
		}
		for _, at := range r.setups(name) {
			for _, g := range groups(w, r, at) {
				switch line, loses := g.winner(); {
				case loses:
					lost = append(lost, line)
				case line != "":
					others = append(others, line)
				}
			}
			if !w.Reads && !at.offer.Open() {
				costs = append(costs, prices(w, r, at)...)
			}
		}
	}
	lines := slices.Concat(lost, others, costs)
	if len(lines) == 0 || r.rounds() < 2 {
		return
	}
	s.Printf("\n%s\n", s.Paint(console.Bold, "what this shows, on this machine"))
	for _, line := range lines {
		s.Wrapped("  ", line)
	}
}

// winner says which engines are the fastest of a group, or how they compare with the baseline; nothing where no claim
// is made. loses is true where the default engine is shown to be slower.
func (g group) winner() (line string, loses bool) {
	if len(g.engines) == 0 || g.noClaim() != "" {
		return "", false
	}
	of := map[Verdict][]string{}
	to := g.engines[0]
	for _, row := range g.engines {
		of[row.Rank.Verdict] = append(of[row.Rank.Verdict], row.Engine)
		loses = loses || row.Rank.Verdict == Slower && row.Engine == all.Default
	}
	if g.comparedWith() == Baseline {
		var parts []string
		for _, v := range []Verdict{Faster, Slower, NotShown} {
			if names := of[v]; len(names) > 0 {
				what := cmp.Or(map[Verdict]string{NotShown: "no difference shown"}[v], string(v))
				parts = append(parts, what+": "+strings.Join(names, ", "))
			}
		}
		return fmt.Sprintf("%s, compared with %s: %s.", g.title(), of[Baseline][0],
			cmp.Or(strings.Join(parts, "; "), "there is no other")), loses
	}
	what := to.Engine + " is fastest"
	switch {
	case to.Rank.Verdict == Leading:
		what = "no difference shown between " + enumerate(slices.Concat([]string{to.Engine}, of[NotShown]))
	case to.Rank.Verdict == Alone && len(g.void) > 0:
		what = to.Engine + " is the only one that is not void"
	case to.Rank.Verdict == Alone:
		what = to.Engine + " is the only one"
	}
	if i := slices.IndexFunc(g.engines, func(row *Summary) bool { return row.Rank.Verdict == Slower }); i >= 0 {
		row := g.engines[i]
		what += fmt.Sprintf("; %s is %s", row.Engine, row.Rank.factor())
	}
	return g.title() + ": " + what + ".", loses
}

func enumerate(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// prices says for each engine what surviving more costs it.
func prices(w Workload, r *Report, at setup) []string {
	var lines []string
	unit, items := w.rates()
	for _, engine := range r.Plan.Engines {
		var parts []string
		for _, level := range holdfast.Levels() {
			for _, sum := range r.Summary {
				if sum.Workload == w.Name && sum.Engine == engine && sum.Clients == at.clients && sum.Offer == at.offer &&
					sum.Given == level {
					parts = append(parts, fmt.Sprintf("%s (%s)", measure.Count(sum.Median*items), level.Survives()))
				}
			}
		}
		if len(parts) > 1 {
			lines = append(lines, fmt.Sprintf("%s, %s: %s makes %s %s/s.", w.Name, console.Number(at.clients, "client"), engine,
				strings.Join(parts, ", "), unit))
		}
	}
	return lines
}
