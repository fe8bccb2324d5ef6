package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// ErrRegression is in the chain of the error for a change for the worse that is shown and is beyond a gate.
var ErrRegression = errors.New("a regression is shown")

// compareOp is the command, for errors.
const compareOp console.Op = "compare"

// metric is what two runs are compared by.
type metric struct {
	name    string // as gates name it
	title   string
	higher  bool // is better
	machine bool // it depends on how fast the machine is
	value   func(Result) float64
	show    func(float64) string
}

func metrics() []metric {
	return []metric{
		{"ops", "ops/s", true, true, func(r Result) float64 { return r.OpsPerSec }, measure.Count},
		{"p50", "p50", false, true, sustained(func(l measure.Latency) float64 { return l.P50 }), measure.Duration},
		{"p99", "p99", false, true, sustained(func(l measure.Latency) float64 { return l.P99 }), measure.Duration},
		{"p99.9", "p99.9", false, true, sustained(func(l measure.Latency) float64 { return l.P999 }), measure.Duration},
		{"cpu", "CPU/item", false, true, Result.cpuPerItem, measure.Duration},
		{"disk", "disk/item", false, false, diskPerItem, func(x float64) string { return measure.Digits(x) + " B" }},
		{"syncs", "syncs/commit", false, false, powerSyncs, measure.Digits},
	}
}

// sustained is a latency, unknown where an open loop was overloaded: it then only tells how long the run was.
func sustained(of func(measure.Latency) float64) func(Result) float64 {
	return func(r Result) float64 {
		if r.Open != nil && r.Open.Overloaded {
			return holdfast.Unknown
		}

		return of(r.Latency)
	}
}

// diskPerItem is in bytes. A faster engine writes more in the same time, so the size as it is says nothing.
func diskPerItem(r Result) float64 {
	if r.Items <= 0 {
		return holdfast.Unknown
	}

	return float64(r.DiskBytes) / float64(r.Items)
}

// powerSyncs are syncs per commit; at lower levels they have nothing to do with commits.
func powerSyncs(r Result) float64 {
	if r.Given != holdfast.Power {
		return holdfast.Unknown
	}

	return r.syncsPerCommit()
}

// Gate is how much worse a metric may become: by metric, a share of what it was.
type Gate map[string]float64

// ParseGate reads "ops=5%,p99=10%". Its errors are ErrBadOption.
func ParseGate(text string) (Gate, error) {
	gate := Gate{}
	var names []string

	for _, m := range metrics() {
		names = append(names, m.name)
	}

	for part := range strings.SplitSeq(text, ",") {
		name, limit, _ := strings.Cut(strings.TrimSpace(part), "=")
		if !slices.Contains(names, name) {
			return nil, compareOp.Unknown("metric", name, names)
		}
		percent, err := strconv.ParseFloat(strings.TrimSuffix(limit, "%"), 64)
		if err != nil || !strings.HasSuffix(limit, "%") || !(percent >= 0 && percent <= 1e6) {
			return nil, compareOp.BadOption(fmt.Sprintf("the gate %q", part), "a gate is like ops=5% or p99=10%")
		}
		gate[name] = percent / 100
	}

	return gate, nil
}

// cellKey is a cell in all runs: what was asked for does not matter where the same was given.
type cellKey struct {
	workload, engine string
	given            holdfast.Level
	clients          int
	offer            Offer
}

func (k cellKey) String() string {
	return fmt.Sprintf("%s, %s at %v, %s", k.work(), k.engine, k.given, console.Number(k.clients, "client"))
}

// work is the workload, with the rate that an open loop offers.
func (k cellKey) work() string {
	if k.offer.Open() {
		return k.workload + " at " + k.offer.String()
	}

	return k.workload
}

// turn is a measurement of one of the runs of a side.
type turn struct {
	Result
	run int
}

// side is what is compared: the results that tables are of, of one run or of several of the same kind.
type side struct {
	reports []*Report
	cells   map[cellKey][]turn
	void    map[cellKey]bool
	order   []cellKey
}

func newSide(reports []*Report) side {
	s := side{reports: reports, cells: map[cellKey][]turn{}, void: map[cellKey]bool{}}
	for run, r := range reports {
		key := func(c Cell) cellKey { return cellKey{c.Workload, c.Engine, c.Given, c.Clients, c.Offer} }
		for _, result := range r.Void() {
			s.void[key(result.Cell)] = true
		}

		for _, sum := range r.Summary {
			k := key(sum.cell)
			if s.cells[k] == nil {
				s.order = append(s.order, k)
			}

			for _, result := range r.Results {
				if result.Cell == sum.cell && result.Round <= sum.Rounds {
					s.cells[k] = append(s.cells[k], turn{result, run})
				}
			}
		}
	}

	for k := range s.void {
		delete(s.cells, k)
	}
	s.order = slices.DeleteFunc(s.order, func(k cellKey) bool { return s.void[k] })

	return s
}

// column is a metric of a cell, ok if all of it is known and not all of it is 0.
func (s side) column(k cellKey, m metric) (values []float64, ok bool) {
	for _, r := range s.cells[k] {
		v := m.value(r.Result)
		if v < 0 {
			return nil, false
		}
		ok = ok || v > 0
		values = append(values, v)
	}

	return values, ok
}

// columnOf is a metric of a cell divided by that of another in the same round of the same run; nil if not all of it is
// known and above 0.
func (s side) columnOf(k, reference cellKey, m metric) (values []float64) {
	for _, r := range s.cells[k] {
		i := slices.IndexFunc(s.cells[reference], func(o turn) bool { return o.run == r.run && o.Round == r.Round })
		if i < 0 {
			return nil
		}
		over, under := m.value(r.Result), m.value(s.cells[reference][i].Result)
		if over <= 0 || under <= 0 {
			return nil
		}
		values = append(values, over/under)
	}

	return values
}

// references are the cells of floor and null that tell how the machine changed, as far as it matters to a cell: floor
// where it has the level, then null, which has none.
func (k cellKey) references() []cellKey {
	return []cellKey{
		{k.workload, Floor, k.given, k.clients, k.offer},
		{k.workload, Null, holdfast.Memory, k.clients, k.offer},
	}
}

// beside is what became of floor or null, beside a change of an engine.
type beside struct {
	name  string
	ratio float64            // of its own new values to the old ones
	diff  measure.Difference // of the engine's values, each divided by its own
	p     float64            // of diff, corrected
}

// cellChange is what became of a metric of a cell.
type cellChange struct {
	cell     cellKey
	metric   metric
	old, new float64 // medians
	diff     measure.Difference
	p        float64  // corrected over all cells, for this metric
	enough   bool     // rounds to show a difference
	apparent bool     // shown by the values as they are
	shown    bool     // apparent, and shown by the values divided by the first reference's too, if there is one
	beside   []beside // the references that both sides have
	worse    bool
	gate     float64 // that it is beyond; -1 if none
	gated    bool
}

// share is by how much of the old value the new one is larger.
func (c *cellChange) share() float64 {
	if c.diff.Ratio > 0 {
		return c.diff.Ratio - 1
	}

	return c.new/c.old - 1
}

// loss is how much worse a share is.
func (m metric) loss(share float64) float64 {
	if m.higher {
		return -share
	}

	return share
}

func (c *cellChange) text() string {
	switch {
	case c.old == 0 && c.shown:
		return "from 0"
	case c.old == 0:
		return "~"
	case !c.enough:
		return "(" + signed(c.share()) + ")"
	case c.shown:
		return signed(c.share())
	case c.apparent:
		return "as " + c.beside[0].name
	}

	return "~"
}

func signed(share float64) string {
	if share > 9.995 {
		return measure.Digits(share+1) + "x"
	}

	return fmt.Sprintf("%+.1f %%", 100*share)
}

// changes compares all cells that both sides have. Each metric is one family of comparisons; null and floor, which are
// measures of the machine, are a family of their own.
func changes(a, b side, gate Gate) (list []cellChange) {
	for _, m := range metrics() {
		for _, references := range []bool{false, true} {
			family := familyOf(a, b, m, references)
			limit, gated := gate[m.name]

			for i := range family {
				c := &family[i]
				c.enough = measure.CanShow(len(family), len(a.cells[c.cell]), len(b.cells[c.cell]))
				c.judge(limit, gated && !references)
			}
			list = append(list, family...)
		}
	}

	return list
}

// familyOf are the comparisons of a metric, with their p values corrected.
func familyOf(a, b side, m metric, references bool) (family []cellChange) {
	var p, pBeside []float64
	for _, k := range a.order {
		old, okA := a.column(k, m)
		now, okB := b.column(k, m)
		if reference(k.engine) != references || len(old) == 0 || len(now) == 0 || !okA && !okB {
			continue
		}

		c := cellChange{cell: k, metric: m, old: measure.Middle(old), new: measure.Middle(now),
			diff: measure.Compare(now, old), gate: -1}
		for _, ref := range k.references() {
			x, y := a.columnOf(k, ref, m), b.columnOf(k, ref, m)
			if references || !m.machine || len(x) == 0 || len(y) == 0 {
				continue
			}
			was, _ := a.column(ref, m)
			is, _ := b.column(ref, m)
			c.beside = append(c.beside, beside{name: ref.engine, ratio: measure.Compare(is, was).Ratio,
				diff: measure.Compare(y, x)})
		}
		family, p = append(family, c), append(p, c.diff.P)
		if len(c.beside) > 0 {
			pBeside = append(pBeside, c.beside[0].diff.P)
		}
	}

	p, pBeside = measure.Holm(p), measure.Holm(pBeside)
	for i := range family {
		c := &family[i]
		c.p = p[i]
		if len(c.beside) > 0 {
			c.beside[0].p, pBeside = pBeside[0], pBeside[1:]
		}
	}

	return family
}

// judge decides what is shown, and whether it is beyond a gate. What the machine did as well is not shown.
func (c *cellChange) judge(limit float64, gated bool) {
	c.worse = c.new < c.old == c.metric.higher
	c.apparent = c.enough && c.p <= measure.Alpha && c.new != c.old
	c.shown = c.apparent
	loss := c.metric.loss(c.share())
	if len(c.beside) > 0 {
		first := c.beside[0]
		c.shown = c.apparent && first.p <= measure.Alpha && first.diff.Ratio < 1 == (c.new < c.old)
		loss = min(loss, c.metric.loss(first.diff.Ratio-1))
	}
	if c.gated = gated; gated && c.shown && c.worse && loss > limit {
		c.gate = limit
	}
}

// repeated refuses a run that is named twice on one side: its rounds would count twice. A gate cannot judge a run
// beside itself either: it would pass whatever happened. So many of the files are old.
func repeated(files []string, reports []*Report, old int, gated bool) error {
	for i, r := range reports {
		for j, other := range reports[:i] {
			why := "its rounds would count twice"
			beside := j < old && i >= old
			if beside {
				why = "a gate cannot judge a run beside itself"
			}
			if (gated || !beside) && reflect.DeepEqual(r, other) {
				return compareOp.BadOption(fmt.Sprintf("%s and %s are the same run: %s", files[j], files[i], why),
					"name reports of different runs")
			}
		}
	}

	return nil
}

// unlike says in what runs differ that makes them measurements of different things, and what else is different.
func unlike(reports []*Report) (refused, named []string) {
	each := func(of func(*Report) any) (values []string) {
		for _, r := range reports {
			values = append(values, fmt.Sprint(of(r)))
		}

		return values
	}
	differ(&refused, "system", each(func(r *Report) any { return r.Machine.OS + "/" + r.Machine.Arch }))
	differ(&refused, "CPU", each(func(r *Report) any { return r.Machine.CPU }))
	differ(&refused, "CPUs", each(func(r *Report) any { return r.Machine.CPUs }))
	differ(&refused, "GiB of the machine", each(func(r *Report) any { return (r.Machine.MemoryBytes + 1<<29) >> 30 }))
	differ(&refused, "disk", each(func(r *Report) any { return r.Machine.Disk.Family() + " " + r.Machine.Disk.Kind }))
	differ(&refused, "seconds of a measurement", each(func(r *Report) any { return r.Plan.Seconds }))
	differ(&refused, "limit of memory (--ram)", each(func(r *Report) any { return r.Plan.RAMBytes }))
	budgets := slices.DeleteFunc(each(func(r *Report) any { return r.Plan.MemoryBytes }),
		func(text string) bool { return text == "0" }) // reports from before budgets do not say
	differ(&refused, "budget of memory (--memory)", budgets)
	differ(&named, "kernel", each(func(r *Report) any { return r.Machine.Kernel }))
	differ(&named, "Go", each(func(r *Report) any { return r.Machine.Go }))
	differ(&named, "file system", each(func(r *Report) any { return r.Machine.Disk.FileSystem }))
	differ(&named, "device", each(func(r *Report) any { return r.Machine.Disk.Device }))
	differ(&named, "seed", each(func(r *Report) any { return r.Plan.Seed }))

	return refused, append(named, unlikeContenders(reports)...)
}

// unlikeContenders says in what the runs' contenders differ, for each at each level.
func unlikeContenders(reports []*Report) (named []string) {
	byName := map[string][]Contender{}
	var names []string

	for _, r := range reports {
		for _, c := range r.Contenders {
			name := fmt.Sprintf("%s at %v", c.Engine, c.Given)
			if byName[name] == nil {
				names = append(names, name)
			}
			byName[name] = append(byName[name], c)
		}
	}

	for _, name := range names {
		settings := map[string]bool{}
		var libraries []string

		for _, c := range byName[name] {
			libraries = append(libraries, c.Library)
			for setting := range c.Settings {
				settings[setting] = true
			}
		}
		differ(&named, "the library of "+byName[name][0].Engine, libraries)

		for _, setting := range slices.Sorted(maps.Keys(settings)) {
			var values []string
			for _, c := range byName[name] {
				values = append(values, c.Settings[setting])
			}
			differ(&named, setting+" of "+name, values)
		}
	}

	return named
}

// differ adds to the list what has more than one value, once.
func differ(list *[]string, what string, values []string) {
	var distinct []string
	for _, v := range values {
		if v = cmp.Or(strings.TrimSpace(v), "not known"); !slices.Contains(distinct, v) {
			distinct = append(distinct, v)
		}
	}
	text := what + ": " + strings.Join(distinct, " and ")
	if len(distinct) > 1 && !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

// Comparison is what [Compare] is asked for.
type Comparison struct {
	Old, New []string // files, of one run or of several
	Gate     string   // what fails, as [ParseGate] reads it; empty for nothing
	Anyway   bool     // compare also what was not measured alike
	Format   string   // table or markdown; empty for the first
}

// Compare shows what changed from the old runs to the new ones, and whether that is shown. Its error is [ErrRegression]
// if a change is beyond the gate, [ErrWrong] if the new runs have void measurements where the old have none,
// [ErrReport] for a file that cannot be read, and [holdfast.ErrBadOption] for runs that are not alike and for a gate
// that cannot judge.
func Compare(c Comparison, t console.Terminal) error {
	if c.Format != "" && c.Format != "table" && c.Format != "markdown" {
		return compareOp.BadOption(fmt.Sprintf("the format %q", c.Format), "a comparison is shown as table or markdown")
	}
	gate := Gate{}
	if c.Gate != "" {
		var err error
		if gate, err = ParseGate(c.Gate); err != nil {
			return err
		}
	}

	var sides [2]side
	var all []*Report
	for i, files := range [][]string{c.Old, c.New} {
		var reports []*Report
		for _, file := range files {
			r, err := ReadReport(file)
			if err != nil {
				return err
			}
			reports = append(reports, r)
		}
		sides[i], all = newSide(reports), append(all, reports...)
	}
	if err := repeated(slices.Concat(c.Old, c.New), all, len(c.Old), len(gate) > 0); err != nil {
		return err
	}
	refused, named := unlike(all)
	if len(refused) > 0 && !c.Anyway {
		return compareOp.BadOption("the runs were not measured alike: "+strings.Join(refused, "; "),
			"measure both on one machine by one plan, or say --anyway")
	}
	s := screen{t.Screen()}
	s.Markdown = c.Format == "markdown"

	for i, old := range sides[0].reports {
		for j, now := range sides[1].reports {
			switch {
			case !reflect.DeepEqual(old.Results, now.Results):
			case c.Old[i] == c.New[j]:
				s.Wrapped("the same: ", c.Old[i]+" is on both sides. It shows no change from itself.")
			default:
				s.Wrapped("the same: ", fmt.Sprintf("%s and %s have the same results, of one run. They show no change.", c.Old[i],
					c.New[j]))
			}
		}
	}

	return s.compare(sides[0], sides[1], gate, slices.Concat(refused, named))
}
