package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// screen shows reports.
type screen struct{ console.Screen }

// header says what will be measured, where, and for how long.
func (s screen) header(p Plan, m measure.Machine) {
	levels := map[holdfast.Level]bool{}
	for _, c := range p.Cells {
		if !reference(c.Engine) {
			levels[c.Given] = true
		}
	}
	clients := ""
	if !slices.Equal(p.Clients, []int{1}) {
		clients = ", " + strings.Trim(strings.ReplaceAll(fmt.Sprint(p.Clients), " ", " and "), "[]") + " clients"
	}
	s.Wrapped(p.Preset+": ", fmt.Sprintf("%s, %s, %s%s, %s of %v, about %s", console.Number(len(p.Workloads), "workload"),
		console.Number(len(p.Engines), "engine"), console.Number(len(levels), "level"), clients,
		console.Number(p.Rounds, "round"), p.For, console.Length(p.Estimate())))
	cpu := m.CPU
	if cpu == "" {
		cpu = m.Arch
	}
	ram := ""
	if p.RAMBytes > 0 {
		ram = fmt.Sprintf("; each measurement has %s of memory, with the system's cache of its files",
			measure.Size(p.RAMBytes))
	}
	s.Wrapped("machine: ", fmt.Sprintf("%s, %s, %s %s%s", cpu, console.Number(m.CPUs, "CPU"), m.OS, m.Go, ram))
	s.Wrapped("", m.Sentence())
}

// singular is one of what a workload counts.
func singular(unit string) string {
	if stem, ok := strings.CutSuffix(unit, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(unit, "s")
}

// report writes the tables, and what follows from them.
func (s screen) report(l Lab, r *Report, settings bool) {
	if r.Partial != "" {
		s.Partial(r.Partial)
	}
	for _, name := range r.Plan.Workloads {
		w, err := l.workload(name)
		if err != nil {
			continue // a plan names no other
		}
		for _, clients := range r.clients(name) {
			for _, g := range groups(w, r, clients) {
				s.Printf("\n%s\n", s.Paint(console.Bold, g.title()))
				if w.Samples {
					s.tails(g)
				} else {
					s.speed(g)
				}
			}
			if w.Samples {
				s.course(w, r, clients)
			}
			if !w.Reads {
				s.cost(w, r, clients)
			}
		}
	}
	s.Printf("\n")
	s.legend(l, r)
	s.budgets(r, settings)
	s.unavailable(r.Unavailable)
	s.conclusions(l, r)
	s.void(r.Void())
	s.Printf("\nagain: %s\n", r.Plan.Command)
}

// group is one table: what may be ranked together.
type group struct {
	workload Workload
	given    holdfast.Level
	clients  int
	rows     []Summary // best first
	best     *Summary  // of the engines
	floor    *Summary
	void     []string // engines without a summary
}

// reference reports whether the contender is no engine, and takes no place among them.
func reference(engine string) bool {
	return engine == Null || engine == Floor || engine == contender.RustNull
}

// groups splits the summaries of a workload by the level given, strongest first. Reads are one
// group.
func groups(w Workload, r *Report, clients int) []group {
	levels := []holdfast.Level{holdfast.Power, holdfast.Process, holdfast.Memory}
	if w.Reads {
		levels = []holdfast.Level{0}
	}
	var list []group
	for _, level := range levels {
		in := func(name string, given holdfast.Level, n int) bool {
			return name == w.Name && n == clients && (level == 0 || given == level)
		}
		g := group{workload: w, given: level, clients: clients}
		for _, sum := range r.Summary {
			if in(sum.Workload, sum.Given, sum.Clients) {
				g.rows = append(g.rows, sum)
			}
		}
		slices.SortStableFunc(g.rows, func(a, b Summary) int { return cmp.Compare(b.Median, a.Median) })
		engines := 0
		for i := range g.rows {
			switch row := &g.rows[i]; {
			case row.Engine == Floor:
				g.floor = row
			case !reference(row.Engine):
				engines++
				if g.best == nil {
					g.best = row
				}
			}
		}
		for _, result := range r.Results {
			if in(result.Workload, result.Given, result.Clients) && !result.Verified && !slices.Contains(g.void, result.Engine) {
				g.void = append(g.void, result.Engine)
			}
		}
		if engines > 0 || len(g.void) > 0 {
			list = append(list, g)
		}
	}
	return list
}

func (g group) title() string {
	how := g.given.Survives()
	if g.workload.Reads {
		how = "durability plays no part"
	}
	if g.workload.KeyOrder != "" {
		how = "keys put in " + g.workload.KeyOrder.String() + ", " + how
	}
	if g.workload.Cold {
		how = "files dropped from memory (posix_fadvise) before, " + how
	}
	return fmt.Sprintf("%s, %s, %s", g.workload.Name, how, console.Number(g.clients, "client"))
}

// against says how a row compares with the best engine.
func (g group) against(s Summary) string {
	switch {
	case reference(s.Engine) || g.best == nil:
		return ""
	case s.Engine == g.best.Engine:
		return "best"
	case s.Rounds > 1 && overlap(s, *g.best):
		return "no difference shown"
	}
	return measure.Digits(g.best.Median/s.Median) + "x slower"
}

// plain is how the row of an engine is painted where none is the best.
func plain(engine string) console.Style {
	if reference(engine) {
		return console.Dim
	}
	return ""
}

// style is how the row of an engine is painted.
func (g group) style(engine string) console.Style {
	if g.best != nil && engine == g.best.Engine {
		return console.Green
	}
	return plain(engine)
}

// interval is the range that holds the median.
func interval(s Summary, items float64) string {
	if s.Rounds < 2 {
		return "-"
	}
	return measure.Count(s.Low*items) + ".." + measure.Count(s.High*items)
}

// speed writes the group's table. Rates are of items, times of operations.
func (s screen) speed(g group) {
	unit, items := g.workload.rates()
	confidence := ""
	for _, row := range g.rows {
		if row.Confidence > 0 {
			confidence = fmt.Sprintf("[%.0f %%]", 100*row.Confidence)
		}
	}
	// The study's column is as wide as the terminal leaves it, or becomes lines of its own.
	const others = 2 + 10 + 9 + 15 + 9 + 9 + 10 + 21
	device := "" // a column without a name is left out
	if g.workload.Cold {
		device = "device/op" // workloads of a study are not
	}
	studyWidth := s.Width - others
	wide := studyWidth >= 18
	studied := g.workload.studied(g.clients)
	inTable := wide && studied
	said := ""
	if inTable {
		said = "the study said"
	}
	t := console.Table{Keys: 1, Columns: []console.Column{
		{Name: "engine"}, {Name: unit + "/s", Right: true}, {Name: confidence}, {Name: "p50", Right: true},
		{Name: "p99", Right: true}, {Name: device, Right: true},
		{Name: "of floor", Right: true}, {Name: "to the best"}, {Name: said, Wrap: studyWidth},
	}}
	var asides []string
	for _, row := range g.rows {
		share := ""
		if g.floor != nil && row.Engine != Null {
			share = measure.Percent(row.Median / g.floor.Median)
		}
		study := ""
		if studied && !reference(row.Engine) {
			study = g.workload.Study(row.Engine, g.given)
		}
		against := g.against(row)
		if !wide {
			against = strings.TrimSuffix(against, " shown")
		}
		if !inTable && study != "" {
			asides = append(asides, row.Engine+" "+study)
		}
		t.Row(g.style(row.Engine), row.Engine, measure.Count(row.Median*items), interval(row, items),
			measure.Duration(row.Latency.P50),
			measure.Duration(row.Latency.P99), measure.Size(int64(row.ReadPerOp)), share, against, study)
	}
	for _, engine := range g.void {
		t.Row(console.Red, engine, "void", "", "", "", "", "", "see below", "")
	}
	s.Table(&t)
	if len(asides) > 0 {
		s.Wrapped("  the study said: ", strings.Join(asides, "; "))
	}
}

// cost writes what else a workload takes, level by level.
func (s screen) cost(w Workload, r *Report, clients int) {
	t := console.Table{Keys: 2, Columns: []console.Column{
		{Name: "engine"}, {Name: "level"}, {Name: "CPU/" + singular(w.Unit), Right: true},
		{Name: "syncs/commit", Right: true},
		{Name: "settle", Right: true}, {Name: "memory", Right: true}, {Name: w.Unit, Right: true},
		{Name: "on disk", Right: true},
	}}
	for _, g := range groups(w, r, clients) {
		for _, row := range g.rows {
			syncs, items, disk := "?", measure.Count(float64(row.Items)), measure.Size(row.DiskBytes)
			if alive := float64(row.Items) * float64(w.ItemBytes); w.showsSpace() && alive > 0 && row.DiskBytes > 0 {
				disk += " (" + measure.Digits(float64(row.DiskBytes)/alive) + "x)"
			}
			switch {
			case reference(row.Engine):
				syncs, items, disk = "", "", "" // nothing, or a file prepared ahead
			case row.SyncsPerCommit >= 0:
				syncs = measure.Digits(row.SyncsPerCommit)
			}
			t.Row(plain(row.Engine), row.Engine, g.given.String(), measure.Duration(row.CPUPerItem), syncs,
				measure.Duration(row.SettleSeconds*1e6),
				measure.Size(row.PeakRSS), items, disk)
		}
	}
	if t.Rows() == 0 {
		return
	}
	s.Printf("\n%s\n", s.Paint(console.Bold, fmt.Sprintf("%s, what else it takes, %s", w.Name,
		console.Number(clients, "client"))))
	s.Table(&t)
}

// showsSpace reports that one of the report's tables compares what is on disk with what is alive.
func (l Lab) showsSpace(r *Report) bool {
	return slices.ContainsFunc(r.Plan.Workloads, func(name string) bool {
		w, err := l.workload(name)
		return err == nil && w.showsSpace()
	})
}

// cold reports that one of the report's tables is of cold reads.
func (l Lab) cold(r *Report) bool {
	return slices.ContainsFunc(r.Plan.Workloads, func(name string) bool {
		w, err := l.workload(name)
		return err == nil && w.Cold
	})
}

// legend explains the tables in as few lines as it can.
func (s screen) legend(l Lab, r *Report) {
	confidence, rounds := 0.0, r.rounds()
	for _, sum := range r.Summary {
		confidence = sum.Confidence
	}
	switch {
	case rounds == 1:
		s.Wrapped("", "One round: no interval, so no difference is shown by these figures.")
	case confidence < measure.WantConfidence:
		s.Wrapped("",
			fmt.Sprintf("Medians of %d rounds, and the range of all of them, which holds the true median with %.0f %% "+
				"confidence only; 6 rounds reach 97 %%. No difference shown: the ranges overlap.", rounds, 100*confidence))
	default:
		s.Wrapped("",
			fmt.Sprintf("Medians of %d rounds; the interval holds the true median with %.0f %% confidence. No difference "+
				"shown: the intervals overlap.", rounds, 100*confidence))
	}
	if other := r.Machine.OtherWork; other >= 0.05 {
		s.Wrapped("",
			fmt.Sprintf("Other work took %s of the machine's CPUs during the run: the figures are worse, and spread more, than "+
				"they "+
				"would on a quiet machine.", measure.Percent(other)))
	}
	s.references(l, r)
	if l.cold(r) {
		s.Wrapped("", "Cold: what was put was synced, the system dropped it from memory (posix_fadvise, "+
			"POSIX_FADV_DONTNEED), and the engine was opened then. device/op is what devices read for an operation, with what "+
			"was read ahead; where floor's is less than the 14 kB that it reads, the run came to what it had read before: ask "+
			"for less time, or for a workload of 60m.")
	}
	if l.showsSpace(r) {
		s.Wrapped("", "On disk, (2x) is twice the bytes of the keys and values that are there in the end.")
	}
	s.studied(l, r)
}

// references explains null and floor, as far as they were measured, and what the tables of costs include.
func (s screen) references(l Lab, r *Report) {
	var null *Summary
	var nullWrites, floorWrites, floorReads, writes, openLoop bool
	for i := range r.Summary {
		sum := &r.Summary[i]
		w, err := l.workload(sum.Workload)
		if err != nil {
			continue // a plan names no other
		}
		writes, openLoop = writes || !w.Reads, openLoop || w.OpenLoop
		switch sum.Engine {
		case Null:
			null, nullWrites = cmp.Or(null, sum), nullWrites || !w.Reads
		case Floor:
			floorReads, floorWrites = floorReads || w.Reads, floorWrites || !w.Reads
		}
	}
	if openLoop {
		s.Wrapped("", "In an open loop, rates are half of what the contender made in warming up, and times are counted from "+
			"when an operation was due.")
	}
	if null != nil {
		s.Wrapped("", fmt.Sprintf("null does nothing: %s an operation is what the harness itself takes (%s).",
			measure.Duration(null.Latency.P50), null.Workload))
	}
	var parts []string
	if floorWrites {
		parts = append(parts, "writes the same bytes into a file written ahead, by one call for all clients that wait, with "+
			"one fdatasync where power loss is survived")
	}
	if floorReads {
		parts = append(parts, "reads by one call, and compares")
	}
	if len(parts) > 0 {
		s.Wrapped("", "floor "+strings.Join(parts, "; it ")+".")
	}
	if writes {
		own := ""
		if nullWrites {
			own = ", which is null's"
		}
		s.Wrapped("", "CPU, settling (the time to close) and the peak of memory include the harness's own"+own+"; what is "+
			"there in the end includes what the warm-up wrote.")
	}
}

// studied explains the figures of the studies, if the tables have any.
func (s screen) studied(l Lab, r *Report) {
	notes := []string{"The study's figures are of its own machines; compare ratios with them, nothing else."}
	has := false
	for _, sum := range r.Summary {
		w, err := l.workload(sum.Workload)
		if err != nil || !w.studied(sum.Clients) || w.Samples || reference(sum.Engine) {
			continue
		}
		if text := w.Study(sum.Engine, sum.Given); text == "" || text == notAtLevel || text == notInStudy {
			continue
		}
		has = true
		if w.StudyNote != "" && !slices.Contains(notes, w.StudyNote) {
			notes = append(notes, w.StudyNote)
		}
	}
	if has {
		s.Wrapped("", strings.Join(notes, " "))
	}
}

// unavailable says which engines are missing where, grouped by levels, and then by reason.
func (s screen) unavailable(list []Unavailable) {
	type absence struct {
		instead holdfast.Level
		why     string
		levels  string
	}
	// The levels at which each engine is missing for one reason.
	levels := map[string][]holdfast.Level{}
	key := func(u Unavailable) string { return fmt.Sprint(u.Engine, u.instead, u.why) }
	for _, u := range list {
		if !slices.Contains(levels[key(u)], u.Asked) {
			levels[key(u)] = append(levels[key(u)], u.Asked)
			slices.Sort(levels[key(u)])
		}
	}
	var order []absence
	engines := map[absence][]string{}
	for _, u := range list {
		a := absence{u.instead, u.why, strings.Join(levelNames(levels[key(u)]), ", ")}
		if engines[a] == nil {
			order = append(order, a)
		}
		if !slices.Contains(engines[a], u.Engine) {
			engines[a] = append(engines[a], u.Engine)
		}
	}
	slices.SortStableFunc(order, func(a, b absence) int {
		return cmp.Or(cmp.Compare(a.levels, b.levels), cmp.Compare(a.instead, b.instead))
	})
	title := ""
	for _, a := range order {
		now := "not available at " + a.levels + ":"
		if a.instead != 0 {
			now = fmt.Sprintf("not available at %s, for they give %v, shown there:", a.levels, a.instead)
		}
		if now != title {
			title = now
			s.Printf("\n%s\n", title)
		}
		s.Wrapped("  ", strings.Join(engines[a], ", ")+": "+a.why)
	}
}

// conclusions says what the figures show, and nothing that they do not.
func (s screen) conclusions(l Lab, r *Report) {
	var lines []string
	for _, name := range r.Plan.Workloads {
		w, err := l.workload(name)
		if err != nil {
			continue
		}
		for _, clients := range r.clients(name) {
			for _, g := range groups(w, r, clients) {
				if line := g.winner(); line != "" {
					lines = append(lines, line)
				}
			}
			if !w.Reads {
				lines = append(lines, prices(w, r, clients)...)
			}
		}
	}
	if len(lines) == 0 || r.rounds() < 2 {
		return
	}
	s.Printf("\n%s\n", s.Paint(console.Bold, "what this shows, on this machine"))
	for _, line := range lines {
		s.Wrapped("  ", line)
	}
}

// winner says which engines are the fastest of a group.
func (g group) winner() string {
	if g.best == nil {
		return ""
	}
	first := []string{g.best.Engine}
	next := ""
	for _, row := range g.rows {
		switch {
		case reference(row.Engine) || row.Engine == g.best.Engine:
		case overlap(row, *g.best):
			first = append(first, row.Engine)
		case next == "":
			next = fmt.Sprintf("; %s takes %sx the time of %s", row.Engine,
				measure.Digits(g.best.Median/row.Median), g.best.Engine)
		}
	}
	what := g.best.Engine + " is fastest"
	switch {
	case len(first) > 1:
		what = "no difference shown between " + enumerate(first)
	case next == "" && len(g.void) > 0:
		what = g.best.Engine + " is the only one that is not void"
	case next == "":
		what = g.best.Engine + " is the only one"
	}
	return g.title() + ": " + what + next + "."
}

func enumerate(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// prices says for each engine what surviving more costs it.
func prices(w Workload, r *Report, clients int) []string {
	var lines []string
	unit, items := w.rates()
	for _, engine := range r.Plan.Engines {
		var parts []string
		for _, level := range holdfast.Levels() {
			for _, sum := range r.Summary {
				if sum.Workload == w.Name && sum.Engine == engine && sum.Clients == clients && sum.Given == level {
					parts = append(parts, fmt.Sprintf("%s (%s)", measure.Count(sum.Median*items), level.Survives()))
				}
			}
		}
		if len(parts) > 1 {
			lines = append(lines, fmt.Sprintf("%s, %s: %s makes %s %s/s.", w.Name, console.Number(clients, "client"), engine,
				strings.Join(parts, ", "), unit))
		}
	}
	return lines
}

// maxReason is how much of an error the tables show, in bytes.
const maxReason = 300

// void lists what failed, each reason once.
func (s screen) void(results []Result) {
	if len(results) == 0 {
		return
	}
	s.Printf("\n%s\n", s.Paint(console.Red, fmt.Sprintf("VOID: %s failed verification or broke off; not ranked.",
		console.Number(len(results), "measurement"))))
	said := map[string]bool{}
	for _, r := range results {
		id := r.Workload + r.Engine + r.Asked.String() + r.Error
		if said[id] {
			continue
		}
		said[id] = true
		// The rest of a panic is in the JSON.
		reason := strings.Join(strings.Fields(r.Error), " ")
		if len(reason) > maxReason {
			reason = reason[:maxReason] + "..."
		}
		s.Wrapped("  ", fmt.Sprintf("%s, %s at %v, round %d: %s", r.Workload, r.Engine, r.Asked, r.Round, reason))
	}
}
