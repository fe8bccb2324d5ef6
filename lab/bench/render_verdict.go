package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// What a report says first: who is ahead at which level, what is withheld, and the rates. The rest is shown on request.

// finding is what the statistics show of one workload at one level.
type finding struct {
	who  string // "logtree is ahead"
	what string // "kv/mixed 7.58x (3.93..10.6)"
}

// noDifference is who is ahead where the statistics do not say.
const noDifference = "no difference is shown"

// findings says what a group shows: one finding, or, with a baseline, one for each engine that is compared with it.
// There are none where no claim is made.
func (g group) findings(name string) (list []finding) {
	claim := g.claim()
	switch {
	case len(g.engines) < 2:
		return nil
	case g.comparedWith() == Baseline:
		for _, row := range g.engines {
			switch row.Rank.Verdict {
			case Slower, Faster:
				list = append(list, finding{fmt.Sprintf("%s is %s than %s", row.Engine, row.Rank.Verdict, row.Rank.To),
					name + " " + row.Rank.ratio()})
			case NotShown:
				list = append(list, finding{row.Engine + ": " + noDifference, name})
			}
		}

		return list
	case claim.Why != "":
		return nil
	case len(claim.Fastest) > 1:
		return []finding{{noDifference, name}}
	}
	next := slices.IndexFunc(g.engines, func(row *Summary) bool { return row.Engine == claim.Next })
	what := name + " " + g.engines[next].Rank.ratio()
	if len(g.engines) > 2 {
		what += " before " + claim.Next
	}

	return []finding{{claim.Fastest[0] + " is ahead", what}}
}

// ratio is by which factor the faster one of the two is ahead, with its interval: "7.58x (3.93..10.6)".
func (r *Rank) ratio() string {
	ratio, low, high := r.factor()
	if ratio <= 0 {
		return "by a factor that is not known"
	}

	return fmt.Sprintf("%sx (%s..%s)", measure.Digits(ratio), measure.Digits(low), measure.Digits(high))
}

// withheld says why a group has no verdict, or whom it leaves out. Workloads with the same reason share a line.
func (g group) withheld() (reasons []string) {
	switch why := g.noClaim(); {
	case why != "" && g.engines[0].Rank != nil && g.engines[0].Rank.Verdict == TooFewRounds:
		n := comparisons(len(g.engines), g.comparedWith() == Baseline)
		reasons = append(reasons, fmt.Sprintf("too few rounds, it takes %d", measure.RoundsFor(n)))
	case why != "":
		reasons = append(reasons, strings.TrimPrefix(why, "no claim: "))
	case len(g.engines) == 1:
		reasons = append(reasons, g.engines[0].Engine+" is the only engine there")
	}
	if len(g.warm) > 0 {
		reasons = append(reasons, "no rank for "+console.List(g.warm)+", since devices read nothing for it: it was not cold")
	}
	if len(g.void) > 0 {
		reasons = append(reasons, "void, see below: "+console.List(g.void))
	}

	return reasons
}

// tables are the groups of a report, in the order of its plan. Workloads that this build does not know are left out.
func (l Lab) tables(r *Report) (list []group) {
	for _, name := range r.Plan.Workloads {
		if w, err := l.workload(name); err == nil {
			for _, at := range r.setups(name) {
				list = append(list, groups(w, r, at)...)
			}
		}
	}

	return list
}

// named is the workload of a group, with what tells it from the others of the report.
func (g group) named(several bool) string {
	if !several {
		return g.workload.Name
	}

	return fmt.Sprintf("%s with %s%s", g.workload.Name, console.Number(g.clients, "client"), g.offer.Title())
}

// verdict says who is ahead, by how much, and at which level; where no difference is shown; and what is withheld.
func (s screen) verdict(list []group, several bool) {
	s.Title("verdict, on this machine")

	var lines []string
	var found []finding
	compared := 0
	var reasons []string
	held, tables := map[string][]string{}, map[string]int{}
	for _, level := range []holdfast.Level{holdfast.Quorum, holdfast.Power, holdfast.Process, holdfast.Memory, 0} {
		here := verdictAt(list, level, several)
		for _, why := range here.reasons {
			names := strings.Join(here.held[why], ", ")
			switch n := len(here.held[why]); {
			case n > 1 && n == here.tables && level == 0:
				names = "all reads"
			case n > 1 && n == here.tables:
				names = "all at " + level.String()
			case level > 0:
				names += " at " + level.String()
			}
			if held[why] == nil {
				reasons = append(reasons, why)
			}
			held[why] = append(held[why], names)
			tables[why] += len(here.held[why])
		}
		if here.compared == 0 {
			continue
		}
		title := "reads: "
		if level > 0 {
			title = fmt.Sprintf("%v (%s): ", level, level.Survives())
		}
		lines = append(lines, title+summary(here.found, console.Number(here.compared, "workload"), true)+".")
		found, compared = append(found, here.found...), compared+here.compared
	}
	if len(lines) > 1 {
		s.Wrapped("  in all: ", summary(found, console.Number(compared, "table"), false)+".")
	}

	for _, line := range lines {
		s.Wrapped("  ", line)
	}

	for _, why := range reasons {
		names := strings.Join(held[why], "; ")
		if len(list) > 1 && tables[why] == len(list) {
			names = "everything"
		}
		s.Wrapped("  withheld: ", names+": "+why+".")
	}
}

// atLevel is what the tables of one level, or of reads, show and withhold.
type atLevel struct {
	tables, compared int
	found            []finding
	reasons          []string            // in the order in which they came
	held             map[string][]string // workloads, by the reason
}

func verdictAt(list []group, level holdfast.Level, several bool) atLevel {
	here := atLevel{held: map[string][]string{}}
	for _, g := range list {
		if g.given != level {
			continue
		}
		here.tables++
		name := g.named(several)
		own := g.findings(name)
		if here.found = append(here.found, own...); len(own) > 0 {
			here.compared++
		}

		for _, why := range g.withheld() {
			if here.held[why] == nil {
				here.reasons = append(here.reasons, why)
			}
			here.held[why] = append(here.held[why], name)
		}
	}

	return here
}

// summary joins the findings of a level, with what they are of, or, if that is not wanted, their numbers alone. What
// the default engine loses comes first, what nobody wins last.
func summary(found []finding, of string, names bool) string {
	var order []string
	what := map[string][]string{}

	for _, f := range found {
		if what[f.who] == nil {
			order = append(order, f.who)
		}
		what[f.who] = append(what[f.who], f.what)
	}
	place := func(who string) int {
		switch {
		case strings.HasSuffix(who, noDifference):
			return 2
		case strings.HasPrefix(who, all.Default+" is ahead"):
			return 1
		}

		return 0
	}
	slices.SortStableFunc(order, func(a, b string) int { return place(a) - place(b) })

	var parts []string
	for i, who := range order {
		text := fmt.Sprintf("%s in %d", who, len(what[who]))
		if i == 0 {
			text += " of " + of
		}
		if names && !strings.HasSuffix(who, noDifference) {
			text += ": " + strings.Join(what[who], ", ")
		}
		parts = append(parts, text)
	}

	return strings.Join(parts, "; ")
}

// rates writes the rates of closed loops: a table of writes, with a column for each level, and one of reads. A workload
// has a row for each engine.
func (s screen) rates(list []group, several bool) {
	for _, reads := range []bool{false, true} {
		closed := slices.DeleteFunc(slices.Clone(list), func(g group) bool {
			return g.workload.Reads != reads || g.offer.Open()
		})
		if len(closed) > 0 {
			s.ratesOf(closed, several)
		}
	}
}

func (s screen) ratesOf(list []group, several bool) {
	var levels []holdfast.Level
	for _, g := range list {
		if !slices.Contains(levels, g.given) {
			levels = append(levels, g.given)
		}
	}
	slices.Sort(levels)
	slices.Reverse(levels)

	usual, _ := list[0].workload.rates()
	clients := list[0].clients
	what := "writes"
	names := []string{"workload", "engine"}
	for _, level := range levels {
		name := level.String()
		if level == 0 {
			name, what = "rate", "reads"
		}
		names = append(names, name+"#")
	}
	t := console.Columns(2, names...)

	for len(list) > 0 {
		first := list[0]
		same := func(g group) bool { return g.workload.Name == first.workload.Name && g.setup == first.setup }
		name := first.named(several)
		if unit, _ := first.workload.rates(); unit != usual {
			name += ", " + unit
		}

		var engines []string
		cells := map[string][]string{}
		styles := map[string][]console.Style{}
		for _, g := range list {
			if !same(g) {
				continue
			}
			at := slices.Index(levels, g.given)

			put := func(engine, cell string, style console.Style) {
				if cells[engine] == nil {
					engines = append(engines, engine)
					cells[engine] = make([]string, len(levels))
					styles[engine] = make([]console.Style, len(levels))
				}
				cells[engine][at], styles[engine][at] = cell, style
			}
			for _, row := range g.rows {
				if !reference(row.Engine) {
					put(row.Engine, g.rate(row), style(row))
				}
			}

			for _, engine := range g.void {
				put(engine, marked("void", ""), console.Red)
			}
		}

		for _, engine := range engines {
			t.Row("", append([]string{name, engine}, cells[engine]...)...)

			for i, style := range styles[engine] {
				t.PaintLast(t.Keys+i, style)
			}
			name = ""
		}
		list = slices.DeleteFunc(list, same)
	}
	title := fmt.Sprintf("%s, %s a second", what, usual)
	if !several {
		title += ", " + console.Number(clients, "client")
	}
	s.Titled(title, t)
}

// rate is the cell of a summary: its rate, and the share that this is of the rate that it is compared with.
func (g group) rate(row Summary) string {
	_, items := g.workload.rates()
	mark := ""
	switch r := row.Rank; {
	case row.FromMemory:
		mark = "warm"
	case r == nil:
	case r.Verdict == Best:
		mark = "best"
	case r.Verdict == Baseline:
		mark = "base"
	case r.Verdict == Leading, r.Verdict == NotShown:
		mark = "~"
	case r.Verdict == Slower || r.Verdict == Faster:
		mark = measure.Percent(r.Ratio)
	}

	return marked(measure.Count(row.Median*items), mark)
}

// marked puts a mark behind a rate, so that rates below each other stay in line.
func marked(rate, mark string) string { return fmt.Sprintf("%s %-5s", rate, mark) }

// ratesLegend explains the verdict and the tables of rates.
func (s screen) ratesLegend(r *Report) {
	text := "Rates are medians of " + console.Number(r.rounds(), "round") + "."
	if slices.ContainsFunc(r.Summary, func(sum Summary) bool { return sum.Rank.text() != "" }) {
		text += fmt.Sprintf(" Who is ahead is claimed where the Mann-Whitney U test of the rounds shows it, corrected after "+
			"Holm; ~ is where it does not. A ratio, in brackets its %.0f %% interval, is the median of all ratios of rounds; "+
			"a share in the table is the same ratio.", 100*measure.WantConfidence)
	}
	s.Wrapped("", text)
}
