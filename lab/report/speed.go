package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// rate writes a rate of a group's unit, given operations a second.
func rate(g bench.Group, ops float64) string {
	x := ops * g.PerOp
	if g.Unit == "bytes" {
		return measure.Size(int64(x)) + "/s"
	}

	return spaced(measure.Count(x)) + "/s"
}

// inWords is a rate with what it is of.
func inWords(g bench.Group, ops float64) string {
	if g.Unit == "bytes" {
		return rate(g, ops)
	}

	return measure.Count(ops*g.PerOp) + " " + g.Unit + "/s"
}

// bench adds the chapters of one report, one for each workload and number of clients.
func (c *composer) bench(s Source, named bool) {
	groups := c.lab.Groups(s.Bench)
	for len(groups) > 0 {
		first := groups[0]
		n := slices.IndexFunc(groups, func(g bench.Group) bool {
			return g.Workload != first.Workload || g.Clients != first.Clients || g.Offer != first.Offer
		})
		if n < 0 {
			n = len(groups)
		}
		c.chapter(s, groups[:n], named)
		groups = groups[n:]
	}
}

// chapter shows the groups of one workload and number of clients, which differ by the level given.
func (c *composer) chapter(s Source, groups []bench.Group, named bool) {
	g := groups[0]
	name := fmt.Sprintf("%s, %s%s", g.Workload, console.Number(g.Clients, "client"), g.Offer.Title())
	if named {
		name += ", " + s.Name
	}
	sec := c.section(fmt.Sprintf("c%d", len(c.doc.Sections)+1), name, sentence(g.About))
	type row struct {
		title, lead, class string
		of                 func(bench.Group) *plot
	}

	rows := []row{
		{"Rates", "", "", c.ranking},
		{"Latencies", "Each step to the right is ten times rarer. Medians over the rounds.", "", c.latencies},
		{"Over the time", "", "", c.course},
		{"Acknowledged and settled", "A ring is the rate while the clock ran. The filled mark is the rate if the time to " +
			"close, which pays what was put off, counts too.", "", c.settled},
	}
	for i, m := range metrics(g) {
		lead := ""
		if i == 0 {
			lead = "All costs include the harness's own; null shows what that takes."
		}
		rows = append(rows, row{m.name, lead, "dense",
			func(g bench.Group) *plot { return c.cost(g, metrics(g)[i]) }})
	}
	without := c.notModelled(s.Bench.Machine.Disk.SyncP50)
	rows = append(rows, row{titleModelled, strings.TrimSpace("Modelled, not measured. " + without), "",
		func(g bench.Group) *plot { return c.modelled(s, g) }})
	if g.Offer.Open() {
		rows = []row{{"Latencies", "Counted from when an operation was due; medians over the rounds. Engines that were " +
			"overloaded are left out. Nothing is claimed.", "", c.latencies}}
	}

	for _, r := range rows {
		p := &part{Title: r.title, Lead: r.lead, Class: r.class}
		for _, g := range groups {
			if plot := r.of(g); plot != nil {
				plot.Table.Of = r.title + ", " + name
				p.Plots = append(p.Plots, plot)
			}
		}
		p.share()
		if r.title == "Latencies" {
			p.Tables = append(searches(groups), kinds(groups)...)
			for i := range p.Tables {
				p.Tables[i].Table.Of = name
			}
		}
		none := r.title == titleModelled && without != "" && !g.Reads // of which the lead says why
		if len(p.Plots) > 0 || len(p.Tables) > 0 || none {
			sec.Parts = append(sec.Parts, p)
		}
	}
	if p := studied(groups); p != nil {
		sec.Parts = append(sec.Parts, p)
	}
	if g.Offer.Open() {
		return
	}
	a := answer{Question: title(fmt.Sprintf("%s, %s", g.About, console.Number(g.Clients, "client")))}
	if named {
		a.Question = s.Name + ": " + a.Question
	}

	for i, g := range groups {
		a.add(c.line(g, sec.Parts[0].Plots[i].ID))
	}
	if len(a.Lines) > 0 {
		c.doc.Answers = append(c.doc.Answers, a)
	}
}

// add adds a line, or only its rate where the same is said of another level.
func (a *answer) add(l line) {
	if n := len(a.Lines) - 1; n >= 0 && a.Lines[n].Said == l.Said && a.Lines[n].Detail == l.Detail {
		a.Lines[n].Rates = append(a.Lines[n].Rates, l.Rates...)
	} else if l.Said != "" {
		a.Lines = append(a.Lines, l)
	}
}

// titleModelled is of the part with rates that were not measured.
const titleModelled = "If a sync cost more"

// share moves a note that all plots have into the lead.
func (p *part) share() {
	for _, plot := range p.Plots {
		if plot.Note == "" || plot.Note != p.Plots[0].Note {
			return
		}
	}

	for i, plot := range p.Plots {
		if i == 0 {
			p.Lead = strings.TrimSpace(p.Lead + " " + plot.Note)
		}
		plot.Note = ""
	}
}

// title makes text begin with a capital.
func title(text string) string { return strings.TrimSuffix(sentence(text), ".") }

// sentence makes text begin with a capital and end with a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}

	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

// level names what a group survives.
func level(g bench.Group) string {
	if g.Reads {
		return "reads: durability plays no part"
	}

	return g.Given.Survives()
}

// line says what a group shows: the highest rate, and a sentence.
func (c *composer) line(g bench.Group, link string) line {
	l := line{Link: link}
	l.Said, l.Class = said(g)

	for _, row := range g.Rows {
		if !row.Best {
			continue
		}
		made := headline{inWords(g, row.Median), level(g)}
		if l.Class == "tie" {
			made.Level += ", highest median: " + row.Engine
		}
		l.Rates = append(l.Rates, made)
		if crash := c.crashes.of(row.Engine, g.Given); crash != "" {
			l.Detail = row.Engine + ": " + crash + "."
		}
	}
	if l.Rates == nil {
		l.Rates = []headline{{"void", level(g)}}
	}
	if len(g.Void) > 0 {
		l.Detail = strings.TrimSpace(l.Detail + " Void: " + strings.Join(g.Void, ", ") + ".")
	}

	return l
}

// said is what the statistics of a group permit to say.
func said(g bench.Group) (text, class string) {
	claim := g.Claim
	if len(claim.Fastest) == 0 {
		return "every engine's measurements are void", "void"
	}
	others := ""
	if claim.Next != "" && claim.Shown > 0 {
		others = fmt.Sprintf("%sx the next, %s", measure.Digits(claim.Times), claim.Next)
		if claim.Low > 0 {
			others = fmt.Sprintf("%sx (%s..%s) the next, %s", measure.Digits(claim.Times), measure.Digits(claim.Low),
				measure.Digits(claim.High), claim.Next)
		}
	}

	shown := fmt.Sprintf("shown at %s %%", measure.Digits(math.Floor(1000*claim.Shown)/10))
	switch {
	case claim.Shown == 0:
		return "no difference shown: " + claim.Why, "tie"
	case len(claim.Fastest) > 1 && others != "":
		return fmt.Sprintf("no difference shown between %s; %s is %s, %s", console.List(claim.Fastest), claim.Fastest[0],
			others, shown), "tie"
	case len(claim.Fastest) > 1:
		return "no difference shown between " + console.List(claim.Fastest), "tie"
	case others == "":
		return claim.Fastest[0] + ", the only one measured", "only"
	}

	return fmt.Sprintf("%s, %s, %s", claim.Fastest[0], others, shown), "best"
}

// most is where an axis ends: behind all engines, and behind a reference that is not too far away.
func most(rows []bench.Row, end func(bench.Row) float64) float64 {
	top, all := 0.0, 0.0
	for _, row := range rows {
		all = max(all, end(row))
		if !row.Reference {
			top = max(top, end(row))
		}
	}
	if top == 0 {
		return all
	}

	for _, row := range rows {
		if at := end(row); row.Reference && at <= 1.6*top {
			top = max(top, at)
		}
	}

	return top
}

// ranking shows the rates of a group with their intervals, best first.
func (c *composer) ranking(g bench.Group) *plot {
	p := c.plot("ranking", title(level(g)))
	unit := " [" + g.Unit + "/s]"
	p.Table = table{Head: []string{"engine", "median" + unit, "low", "high", "confidence", "rounds", "p50", "p99",
		"p99.9", "max",
		"of floor", "to the best", "in crashes"}, Text: 1}

	var bars []bar
	var said []string
	top := most(g.Rows, func(row bench.Row) float64 { return max(row.High, row.Median) })
	for _, row := range g.Rows {
		class, against := "", row.Against
		switch {
		case row.Reference:
			class, against = "reference", "reference"
		case row.Best:
			class = "best"
			if len(g.Claim.Fastest) > 1 || g.Claim.Shown == 0 {
				against = "highest median"
			}
		case row.Tie:
			class = "tie"
		}
		crash := c.crashes.of(row.Engine, g.Given)
		if strings.Contains(crash, "BROKEN") {
			against += ", BROKEN in crashes"
			class += " broken"
		}
		text := strings.TrimSuffix(rate(g, row.Median)+" · "+strings.TrimPrefix(against, ", "), " · ")
		b := bar{Name: row.Engine, Text: text, Class: class, Value: row.Median, Description: row.Engine + ": " + text}
		low, high, confidence := "", "", ""
		if row.Rounds > 1 {
			b.Low, b.High = row.Low, row.High
			low, high, confidence = rate(g, row.Low), rate(g, row.High), measure.Digits(100*row.Confidence)+" %"
			b.Description += fmt.Sprintf(", interval %s to %s (%s)", low, high, confidence)
		}
		bars = append(bars, b)
		said = append(said, b.Description)
		floor := ""
		if row.OfFloor > 0 {
			floor = measure.Percent(row.OfFloor)
		}
		l := row.Latency
		p.Table.Rows = append(p.Table.Rows, []string{row.Engine, rate(g, row.Median), low, high, confidence,
			fmt.Sprint(row.Rounds), measure.Duration(l.P50), measure.Duration(l.P99), measure.Duration(l.P999),
			measure.Duration(l.Max), floor, against, crash})
	}
	p.XTitle = g.Unit + "/s"
	p.bars(bars, top, func(v float64) string { return strings.TrimSuffix(rate(g, v), "/s") })

	for _, row := range g.Rows {
		if row.Best && row.Rounds > 1 {
			p.edges(row.Low, row.High, top)
		}
	}
	p.Description = g.Title + ". " + strings.Join(said, "; ") + "."
	p.Note = rankingNote(g)

	return p
}

// rankingNote explains what a ranking draws.
func rankingNote(g bench.Group) string {
	list := []string{}
	rounds, confidence, reference := 0, 0.0, false

	for _, row := range g.Rows {
		rounds, confidence = max(rounds, row.Rounds), max(confidence, row.Confidence)
		reference = reference || row.Reference
	}
	if rounds > 1 {
		list = append(list, fmt.Sprintf("median of %d rounds, with the interval that holds the true one at %s; the "+
			"lines down are the ends of the interval of the highest", rounds, measure.Percent(confidence)))
	} else {
		list = append(list, "one round: no interval, and no difference is shown")
	}
	if reference {
		list = append(list, "Dashed: no engines (null does nothing, floor makes the bare system calls, floor-map stores "+
			"to a mapping instead); an arrow goes on beyond the axis")
	}
	if len(g.Void) > 0 {
		list = append(list, "Void: "+strings.Join(g.Void, ", "))
	}

	return sentence(g.Unit + " per second, " + strings.Join(list, ". "))
}

// latencies shows the distributions of a group.
func (c *composer) latencies(g bench.Group) *plot {
	p := c.plot("latency", title(level(g)))
	p.Table = table{Head: []string{"engine", "p50", "p90", "p99", "p99.9", "max", "operations"}, Text: 1}

	var list []series
	low, high, left, right := math.Inf(1), 0.0, math.Inf(1), 1.0
	for _, row := range g.Rows {
		if row.Engine == bench.Null || row.Overloaded > 0 {
			continue // null is the harness, and orders of magnitude away
		}

		s := series{Name: row.Engine, Look: c.look(row.Engine)}
		for _, at := range curve(row) {
			if at.Y <= 0 {
				continue
			}
			low, high, left, right = min(low, at.Y), max(high, at.Y), min(left, at.X), max(right, at.X)
			s.Points = append(s.Points, at)
		}
		if len(s.Points) == 0 {
			continue
		}
		list = append(list, s)
		l := row.Latency
		p.Table.Rows = append(p.Table.Rows, []string{row.Engine, measure.Duration(l.P50), measure.Duration(l.P90),
			measure.Duration(l.P99), measure.Duration(l.P999), measure.Duration(l.Max), fmt.Sprint(row.Ops)})
	}
	if len(list) == 0 {
		return nil
	}
	ys := decades(low, high)
	var xs []float64
	if median := math.Log10(2); median >= left-1e-9 { // a run of a single operation has no point there
		xs = append(xs, median)
	}

	for x := 1.0; x <= right+1e-9; x++ {
		xs = append(xs, x)
	}
	if right <= left {
		right = left + 1
	}
	p.XTitle, p.YTitle = "percentile [%]", "latency"
	p.lines(list, scale{from: left, to: right}, scale{from: ys[0], to: ys[len(ys)-1], log: true}, xs, ys,
		func(x float64) string { return strings.TrimSuffix(percentile(x), " %") }, measure.Duration)
	p.Description = fmt.Sprintf("Latencies by percentile, %s, both scales logarithmic. %s", g.Title, described(p.Table))
	p.Note = "The time that so many percent of the operations took at most. The last mark of a line is its slowest " +
		"operation."

	return p
}

// searches are tables of the highest rates at which a bound holds.
func searches(groups []bench.Group) (list []titled) {
	for _, g := range groups {
		t := table{Head: []string{"engine", "highest rate", "did not hold at", "closed loop", "runs"}, Text: 1}
		for _, row := range g.Rows {
			if found := row.Search; found != nil {
				write := func(ops float64) string { return rate(g, ops) }
				held, failed := found.Text(write)
				t.Rows = append(t.Rows, []string{row.Engine, held, failed, write(found.Closed), fmt.Sprint(found.Runs)})
			}
		}
		if len(t.Rows) > 0 {
			list = append(list, titled{"The highest rate, " + level(g), t, true})
		}
	}

	return list
}

// kinds are tables of the kinds of operations, where they are mixed.
func kinds(groups []bench.Group) (list []titled) {
	for _, g := range groups {
		t := table{Head: []string{"engine", "kind", "operations", "p50", "p99", "p99.9", "max"}, Text: 2}
		for _, row := range g.Rows {
			for _, k := range row.Kinds {
				cells := []string{row.Engine, k.Name, spaced(measure.Count(float64(k.Ops))), "–", "–", "–", "–"}
				if l := k.Latency; k.Ops > 0 && row.Overloaded == 0 {
					copy(cells[3:], l.Cells())
				}
				t.Rows = append(t.Rows, cells)
			}
		}
		if len(t.Rows) > 0 {
			list = append(list, titled{"By kind of operation, " + level(g), t, true})
		}
	}

	return list
}

// percentile names a place on the scale of what is slow: 1 is 90 %, 2 is 99 %.
func percentile(x float64) string {
	share := 1 - math.Pow(10, -x)
	digits := max(0, int(math.Floor(x+1e-9))-2)

	return fmt.Sprintf("%.*f %%", digits, 100*share)
}

// curve is a distribution over the scale of what is slow.
func curve(row bench.Row) []point {
	n := float64(row.Ops)
	if n < 1 {
		return nil
	}
	if list := measured(row, n); list != nil {
		return list
	}

	l := row.Latency
	var list []point
	for _, at := range []struct{ x, us float64 }{{math.Log10(2), l.P50}, {1, l.P90}, {2, l.P99}, {3, l.P999}} {
		if math.Pow(10, at.x) < n {
			list = append(list, point{at.x, at.us, fmt.Sprintf("%s: %s at %s", row.Engine, measure.Duration(at.us),
				percentile(at.x))})
		}
	}

	return append(list, point{math.Log10(max(n, 2)), l.Max, fmt.Sprintf("%s: %s, the slowest of %.0f", row.Engine,
		measure.Duration(l.Max), n)})
}

// measured is the curve that the rounds measured, their medians at the percents that all have; nil if one has none.
func measured(row bench.Row, n float64) (list []point) {
	at := map[float64][]float64{}
	for _, r := range row.Results {
		for _, p := range r.Curve {
			at[p.Percent] = append(at[p.Percent], p.Micros)
		}
	}

	for _, percent := range slices.Sorted(maps.Keys(at)) {
		if len(at[percent]) < len(row.Results) || percent < 50 {
			continue
		}
		x, us := -math.Log10(1-percent/100), measure.Middle(at[percent])
		name := fmt.Sprintf("%g %%", percent)
		if percent == 100 {
			x, name = math.Log10(max(n, 2)), fmt.Sprintf("the slowest of %.0f", n)
		}
		if k := len(list); k > 0 && x <= list[k-1].X {
			continue // the median run had fewer operations
		}
		list = append(list, point{x, us, fmt.Sprintf("%s: %s, %s", row.Engine, measure.Duration(us), name)})
	}

	return list
}

// described is a table as a text, for who cannot see the plot.
func described(t table) string {
	var rows []string
	for _, row := range t.Rows {
		var cells []string
		for i := 1; i < len(row); i++ {
			if row[i] != "" {
				cells = append(cells, t.Head[i]+" "+row[i])
			}
		}
		rows = append(rows, row[0]+": "+strings.Join(cells, ", "))
	}

	return strings.Join(rows, "; ") + "."
}

// middle is the median of a value over the rounds of a row, -1 if it is not known of one of them.
func middle(row bench.Row, f func(bench.Result) float64) float64 {
	var values []float64
	for _, r := range row.Results {
		v := f(r)
		if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
			return holdfast.Unknown
		}
		values = append(values, v)
	}
	if len(values) == 0 {
		return holdfast.Unknown
	}

	return measure.Middle(values)
}

// studies are what each study concluded, and what is so, by the first part of the names of its workloads; in full and
// with the figures in docs/studies.md.
var studies = map[string][2]string{
	"event": {"Switch from SQLite to Pebble, for 15 to 33 times the speed at the same durability.",
		"The durability was not the same: the fast writes die with the process, and the slow ones survive kill -9. Pebble " +
			"does not sync such a log by itself, either."},
	"raft": {"Badger is the obvious choice for writes.",
		"Only Badger did not sync. A node that forgets its vote in a power cut can vote twice in one term, and then two " +
			"leaders may be elected: Raft's safety rests on that sync."},
	"kv": {"None in words: in its figures Thunder reads and scans faster than bbolt, and writes slower.",
		"The durability was equal. Since then its commits write the tree over itself in place, and an interrupted update " +
			"loses the database. Updates and deletes over time were left out, and what they leave on disk."},
	"message": {"It is safe not to sync: at most the last one or two seconds are lost, and only on power loss.",
		"Pebble syncs such a log at no time of its own, and keeps the end of it in the program's memory: in the crash lab " +
			"that configuration lost acknowledged messages to kill -9, and more than 3 s of them to a power cut."},
	"task": studyOfTasks, "file": studyOfTasks,
}

var studyOfTasks = [2]string{"A draw between SQLite and the file system, probably for SQLite.",
	"The columns are not equal. A plain file that is overwritten in place may be torn by kill -9; renamed files and " +
		"SQLite make the same promise, and there SQLite was the faster one. None of them survived a power cut."}

// studied lists what the studies said of the engines of a chapter.
func studied(groups []bench.Group) *part {
	p := &part{Title: "What the studies said"}
	t := table{Head: []string{"engine", "level", "the study", "here", "p50"}, Text: 3}

	for _, g := range groups {
		for _, row := range g.Rows {
			if row.Study != "" {
				t.Rows = append(t.Rows, []string{row.Engine, level(g), row.Study, rate(g, row.Median),
					measure.Duration(row.Latency.P50)})
			}
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	p.Lead = "On machines of its own: compare ratios, nothing else."
	p.Tables = []titled{{"The study's figures beside these", t, true}}
	kind, _, _ := strings.Cut(groups[0].Workload, "/")
	if study, ok := studies[kind]; ok {
		p.Items = []item{{"What it concluded", study[0]}, {"What is so", study[1] + " In full: docs/studies.md."}}
	}

	return p
}
