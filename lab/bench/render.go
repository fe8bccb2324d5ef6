package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
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
	s.machine(m, p.RAMBytes)
}

// machine says what was, or will be, measured on.
func (s screen) machine(m measure.Machine, limit int64) {
	ram := ""
	if limit > 0 {
		ram = fmt.Sprintf("; each measurement has %s of memory, with the system's cache of its files",
			measure.Size(limit))
	}
	s.Wrapped("machine: ", m.Name()+ram)
	s.Wrapped("", m.Sentence())
}

// Singular is one of what a workload counts.
func Singular(unit string) string {
	if stem, ok := strings.CutSuffix(unit, "ies"); ok {
		return stem + "y"
	}

	return strings.TrimSuffix(unit, "s")
}

// Detail is how much of a report is shown besides who is ahead and the rates.
type Detail struct {
	Full     bool // latencies, costs, the course over the time, what the figures are of, the engines side by side
	Settings bool // what the contenders ran with
}

// report writes the verdict and the rates, then what was asked for, and what is wrong with all that.
func (s screen) report(l Lab, r *Report, d Detail) {
	if r.Partial != "" {
		s.Partial(r.Partial)
	}
	list := l.tables(r)
	several := slices.ContainsFunc(list, func(g group) bool { return g.setup != list[0].setup })
	s.verdict(list, several)
	s.rates(list, several)

	for _, g := range list {
		if g.offer.Open() && !d.Full { // there is more to it than a rate
			s.group(g)
		}
	}
	s.Printf("\n")
	s.ratesLegend(r)
	if d.Full {
		s.details(l, r)
	}
	if d.Full || d.Settings {
		s.budgets(r, d.Settings)
	}
	s.unavailable(r.Unavailable, d.Full)
	if d.Full {
		s.matrix(l, r)
	}
	s.void(r.Void())
	s.Printf("\n")
	s.Hanging(s.Paint(badgeStyles[r.Badge.Grade], "badge:")+" ", r.Badge.String(), 7)
	s.Printf("again: %s\n", r.Plan.Command)
}

// details writes the tables of each workload, and explains them.
func (s screen) details(l Lab, r *Report) {
	for _, name := range r.Plan.Workloads {
		w, err := l.workload(name)
		if err != nil {
			continue // a plan names no other
		}

		for _, at := range r.setups(name) {
			for _, g := range groups(w, r, at) {
				s.group(g)
			}
			if w.Samples {
				s.course(w, r, at)
			}
			if !w.Reads {
				s.cost(w, r, at)
			}
		}
	}
	s.Printf("\n")
	s.legend(l, r)
}

// group writes the table of a group, under its title.
func (s screen) group(g group) {
	s.Title(g.title())
	s.speed(g)
	s.kinds(g)
}

// badgeStyles are how grades are painted.
var badgeStyles = map[Grade]console.Style{Smoke: console.Red, Publishable: console.Green}

// group is one table: what may be ranked together.
type group struct {
	workload Workload
	given    holdfast.Level
	setup
	rows    []Summary  // in order
	engines []*Summary // of them, without the references
	floor   *Summary
	warm    []string // engines whose cold reads came from memory
	mapped  []string // engines whose commits are stores to a mapping
	void    []string // engines without a summary
}

// reference reports whether the contender is no engine, and takes no place among them.
func reference(engine string) bool {
	return slices.Contains([]string{Null, Floor, FloorMap, FloorParallel, contender.RustNull}, engine)
}

// groups splits the summaries of a workload by the level given, strongest first. Reads are one
// group.
func groups(w Workload, r *Report, at setup) []group {
	levels := []holdfast.Level{holdfast.Quorum, holdfast.Power, holdfast.Process, holdfast.Memory}
	if w.Reads {
		levels = []holdfast.Level{0}
	}

	var list []group
	for _, level := range levels {
		in := func(name string, given holdfast.Level, as setup) bool {
			return name == w.Name && as == at && (level == 0 || given == level)
		}

		g := group{workload: w, given: level, setup: at}
		for _, sum := range r.Summary {
			if in(sum.Workload, sum.Given, setup{sum.Clients, sum.Offer}) {
				g.rows = append(g.rows, sum)
			}
		}
		slices.SortStableFunc(g.rows, g.order)

		for i := range g.rows {
			switch row := &g.rows[i]; {
			case row.Engine == Floor:
				g.floor = row
			case row.FromMemory:
				g.warm = append(g.warm, row.Engine)
			case !reference(row.Engine):
				g.engines = append(g.engines, row)
			}
		}

		for _, c := range r.Contenders {
			if c.Mapped && c.Given == level &&
				slices.ContainsFunc(g.rows, func(s Summary) bool { return s.Engine == c.Engine }) {
				g.mapped = append(g.mapped, c.Engine)
			}
		}

		for _, result := range r.Results {
			if in(result.Workload, result.Given, setup{result.Clients, result.Offer}) && !result.Verified &&
				!slices.Contains(g.void, result.Engine) {
				g.void = append(g.void, result.Engine)
			}
		}
		if len(g.engines) > 0 || len(g.void) > 0 || len(g.warm) > 0 {
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
	if g.workload.Filled != "" {
		how = g.workload.Filled + ", " + how
	}
	if g.workload.Cold {
		how = "files dropped from memory (posix_fadvise) before, " + how
	}

	return fmt.Sprintf("%s, %s, %s%s", g.workload.Name, how, console.Number(g.clients, "client"), g.offer.Title())
}

// order puts the highest rates first, or, in an open loop, the lowest p99 of those that keep up.
func (g group) order(a, b Summary) int {
	switch {
	case !g.offer.Open():
		return cmp.Compare(b.Median, a.Median)
	case a.Search != nil && b.Search != nil:
		return cmp.Compare(b.Search.Held, a.Search.Held)
	}

	return cmp.Or(cmp.Compare(min(a.Overloaded, 1), min(b.Overloaded, 1)), cmp.Compare(a.Latency.P99, b.Latency.P99))
}

// plain is how the row of an engine is painted where none is the best.
func plain(engine string) console.Style {
	if reference(engine) {
		return console.Dim
	}

	return ""
}

// cost writes what else a workload takes, level by level.
func (s screen) cost(w Workload, r *Report, at setup) {
	t := console.Columns(2, "engine", "level", "CPU/"+Singular(w.Unit)+"#", "syncs/commit#", "written#", "end/begin#",
		"settle#", "settled/s#", "open#", "memory#", cmp.Or(w.Stored, w.Unit)+"#", "before closing#", "on disk#")

	_, perOp := w.rates()
	for _, g := range groups(w, r, at) {
		for _, row := range g.rows {
			syncs, items, disk := "?", measure.Count(float64(row.Items)), measure.Size(row.DiskBytes)
			open, before := measure.Duration(row.OpenSeconds*1e6), measure.Size(row.DiskBeforeClose)
			if alive := float64(row.Items) * float64(w.ItemBytes); w.showsSpace() && alive > 0 && row.DiskBytes > 0 {
				disk += " (" + measure.Digits(float64(row.DiskBytes)/alive) + "x)"
			}

			switch {
			case reference(row.Engine):
				syncs, items, disk, open, before = "", "", "", "", "" // nothing, or a file prepared ahead
			case row.SyncsPerCommit >= 0:
				syncs = measure.Digits(row.SyncsPerCommit)
			}
			t.Row(plain(row.Engine), row.Engine, g.given.String(), measure.Duration(row.CPUPerItem), syncs,
				row.written(), row.endByBegin(), measure.Duration(row.SettleSeconds*1e6),
				measure.Count(row.SettledOpsPerSec*perOp), open,
				measure.Size(row.PeakRSS), items, before, disk)
		}
	}
	s.Titled(
		fmt.Sprintf("%s, what else it takes, %s%s", w.Name, console.Number(at.clients, "client"), at.offer.Title()),
		t,
	)
}

// written is what devices wrote: as a multiple of what clients put, or for an operation where that is not known.
func (s Summary) written() string {
	switch {
	case s.Engine == Null:
		return ""
	case s.WriteAmplification >= 0:
		return measure.Digits(s.WriteAmplification) + "x"
	case s.WrittenPerOp >= 0:
		return measure.Size(int64(s.WrittenPerOp)) + "/op"
	}

	return "?"
}

// endByBegin is how the rate changed, where it is the contender's own.
func (s Summary) endByBegin() string {
	if s.Engine == Null || s.Offer.Open() || s.LastByFirst < 0 {
		return ""
	}

	return measure.Digits(s.LastByFirst) + "x"
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
	s.statistics(r)
	if other := r.Machine.OtherWork; other >= 0.05 {
		s.Wrapped("",
			fmt.Sprintf("Other work took %s of the machine's CPUs during the run: the figures are worse, and spread more, than "+
				"they "+
				"would on a quiet machine.", measure.Percent(other)))
	}
	s.references(l, r)
	s.nodes(l, r)
	if l.cold(r) {
		s.Wrapped("", "Cold: what was put was synced and compacted where the engine can, the system dropped it from memory "+
			"(posix_fadvise, POSIX_FADV_DONTNEED), and the engine was opened then. device/op is what devices read for an "+
			"operation, with what was read ahead; where floor's is less than the 14 kB that it reads, the run came to what it "+
			"had read before: ask for less time, or for a workload of 60m.")
	}
	if l.showsSpace(r) {
		s.Wrapped("", "On disk, (2x) is twice the bytes of the keys and values that are there in the end.")
	}
	s.studied(l, r)
}

// nodes says, where several nodes were on this machine, what of the figures is of that, and what each of those
// contenders acknowledges.
func (s screen) nodes(l Lab, r *Report) {
	var hows []string
	parallel := false
	for _, sum := range r.Summary {
		if sum.Given != holdfast.Quorum {
			continue
		}
		parallel = parallel || sum.Engine == FloorParallel
		e, err := l.engine(sum.Engine)
		if err != nil || reference(sum.Engine) {
			continue
		}
		how := sum.Engine + ": " + e.Describe().Quorum.How
		if !slices.Contains(hows, how) {
			hows = append(hows, how)
		}
	}
	if len(hows) == 0 {
		return
	}
	text := fmt.Sprintf("At quorum, the %s of this machine carry all nodes of a contender, three or floor's two, and its "+
		"client. There is no network between them. Compare within this run only.",
		console.Number(r.Machine.CPUs, "CPU"))
	if parallel {
		text += " floor is two processes there: one writes and syncs, then the other, which is sent it over loopback TCP, " +
			"and answers; in floor-parallel both do so at the same time."
	}
	s.Wrapped("", text)
	for _, how := range hows {
		s.Wrapped("  ", how+".")
	}
}

// references explains null and floor, as far as they were measured, and what the tables of costs include.
func (s screen) references(l Lab, r *Report) {
	var null *Summary
	var nullWrites, floorWrites, floorReads, writes, openLoop, search, floorMap bool

	for i := range r.Summary {
		sum := &r.Summary[i]
		w, err := l.workload(sum.Workload)
		if err != nil {
			continue // a plan names no other
		}
		writes, openLoop = writes || !w.Reads, openLoop || sum.Offer.Open()

		search = search || sum.Search != nil
		switch sum.Engine {
		case Null:
			null, nullWrites = cmp.Or(null, sum), nullWrites || !w.Reads
		case FloorMap:
			floorMap = true
		case Floor:
			floorReads, floorWrites = floorReads || w.Reads, floorWrites || !w.Reads
		}
	}
	if search {
		s.Wrapped("", fmt.Sprintf("The highest rate was looked for by open loops of %s, each a process of its own: from the "+
			"closed loop's rate on, and then between the highest at which the bound held and the lowest above it at which it "+
			"did not, until they are within %.0f %% of each other, for %d runs at most. Who does not keep up fails, whatever "+
			"its latencies. Times are those at the rate that was found.", measure.Duration(r.Plan.Seconds*1e6),
			100*(searchStep-1), searchRuns))
	}
	if openLoop {
		s.Wrapped("", "In an open loop, operations are due at fixed times, and times are counted from when one was due. A "+
			"share is of the rate that the contender's own closed loop made in warming up, so that rates differ. Overloaded: "+
			"it did not catch up in the last quarter of the time, and no latency can be named. Nothing is claimed in these "+
			"tables; the lowest p99 is first. CPU is not named: pacing takes up to one processor, which engines do not have.")
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
		text := "floor " + strings.Join(parts, "; it ") + "."
		if floorMap {
			text += " floor-map stores to a mapping of that file instead, as engines may whose commits survive kill -9."
		}
		s.Wrapped("", text)
	}
	if writes {
		own := ""
		if nullWrites {
			own = ", which is null's"
		}
		s.Wrapped("", "CPU, settling (the time to close) and the peak of memory include the harness's own"+own+"; what is "+
			"there in the end includes what the warm-up wrote. Written is what devices wrote, until it was closed, by the "+
			"bytes of keys and values that clients put, or for an operation where those are not counted; what was removed "+
			"before it came to the device is not in it. End/begin is the rate in the last quarter of the time by that in the "+
			"first. Settled/s is the rate if the time to close counts too; open is "+
			"what opening took then, with the files in the system's cache.")
	}
}

// studied explains the figures of the studies, if the tables have any.
func (s screen) studied(l Lab, r *Report) {
	notes := []string{"A study's figures are of its own machines (docs/studies.md): compare ratios with them, nothing " +
		"else."}

	has := false
	for _, sum := range r.Summary {
		w, err := l.workload(sum.Workload)
		if err != nil || w.figure(sum) == "" {
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

// unavailable says which engines are missing where, grouped by levels, and, in full, then by reason.
func (s screen) unavailable(list []Unavailable, full bool) {
	if !full {
		s.missing(list)
		return
	}
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

// missing says which engines are missing at which levels, and not why.
func (s screen) missing(list []Unavailable) {
	var engines []string
	levels := map[string][]holdfast.Level{}

	for _, u := range list {
		if levels[u.Engine] == nil {
			engines = append(engines, u.Engine)
		}
		if !slices.Contains(levels[u.Engine], u.Asked) {
			levels[u.Engine] = append(levels[u.Engine], u.Asked)
		}
	}

	var at []string
	for _, engine := range engines {
		slices.Sort(levels[engine])
		at = append(at, engine+" at "+console.List(levelNames(levels[engine])))
	}
	if len(at) > 0 {
		s.Wrapped("not available, for some work or all: ", strings.Join(at, "; ")+".")
	}
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
