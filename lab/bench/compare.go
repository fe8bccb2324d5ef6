package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// ErrRegression: a gate was passed by a change for the worse that is shown.
var ErrRegression = errors.New("a regression is shown")

// compareOp is the command, for errors.
const compareOp console.Op = "compare"

// metric is what two runs are compared by.
type metric struct {
	name   string // as gates name it
	title  string
	higher bool // is better
	value  func(Result) float64
	show   func(float64) string
}

func metrics() []metric {
	return []metric{
		{"ops", "ops/s", true, func(r Result) float64 { return r.OpsPerSec }, measure.Count},
		{"p50", "p50", false, func(r Result) float64 { return r.Latency.P50 }, measure.Duration},
		{"p99", "p99", false, func(r Result) float64 { return r.Latency.P99 }, measure.Duration},
		{"p99.9", "p99.9", false, func(r Result) float64 { return r.Latency.P999 }, measure.Duration},
		{"cpu", "CPU/item", false, Result.cpuPerItem, measure.Duration},
		{"disk", "on disk", false, func(r Result) float64 { return float64(r.DiskBytes) },
			func(x float64) string { return measure.Size(int64(x)) }},
		{"syncs", "syncs/commit", false, Result.syncsPerCommit, measure.Digits},
	}
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
}

func (k cellKey) String() string {
	return fmt.Sprintf("%s, %s at %v, %s", k.workload, k.engine, k.given, console.Number(k.clients, "client"))
}

// side is what is compared: the results that tables are of, of one run or of several of the same kind.
type side struct {
	reports []*Report
	cells   map[cellKey][]Result
	void    map[cellKey]bool
	order   []cellKey
}

func newSide(reports []*Report) side {
	s := side{reports: reports, cells: map[cellKey][]Result{}, void: map[cellKey]bool{}}
	for _, r := range reports {
		key := func(c Cell) cellKey { return cellKey{c.Workload, c.Engine, c.Given, c.Clients} }
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
					s.cells[k] = append(s.cells[k], result)
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
		v := m.value(r)
		if v < 0 {
			return nil, false
		}
		ok = ok || v > 0
		values = append(values, v)
	}
	return values, ok
}

// cellChange is what became of a metric of a cell.
type cellChange struct {
	cell     cellKey
	metric   metric
	old, new float64 // medians
	diff     measure.Difference
	p        float64 // corrected over all cells, for this metric
	enough   bool    // rounds to show a difference
	shown    bool
	worse    bool
	gate     float64 // that it passed; -1 if none
}

// share is by how much of the old value the new one is larger.
func (c cellChange) share() float64 {
	if c.diff.Ratio > 0 {
		return c.diff.Ratio - 1
	}
	return c.new/c.old - 1
}

func (c cellChange) text() string {
	switch {
	case c.old == 0:
		return "from 0"
	case !c.enough:
		return "(" + signed(c.share()) + ")"
	case !c.shown:
		return "~"
	}
	return signed(c.share())
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
			var family []cellChange
			var p []float64
			for _, k := range a.order {
				old, okA := a.column(k, m)
				now, okB := b.column(k, m)
				if reference(k.engine) != references || len(old) == 0 || len(now) == 0 || !okA && !okB {
					continue
				}
				c := cellChange{cell: k, metric: m, old: measure.Middle(old), new: measure.Middle(now),
					diff: measure.Compare(now, old), gate: -1}
				family, p = append(family, c), append(p, c.diff.P)
			}
			for i, corrected := range measure.Holm(p) {
				c := &family[i]
				c.p, c.worse = corrected, c.new < c.old == m.higher
				c.enough = measure.CanShow(len(family), len(a.cells[c.cell]), len(b.cells[c.cell]))
				c.shown = c.enough && corrected <= measure.Alpha && c.new != c.old
				limit, gated := gate[m.name]
				loss := c.share()
				if m.higher {
					loss = -loss
				}
				if gated && !references && c.shown && c.worse && loss > limit {
					c.gate = limit
				}
			}
			list = append(list, family...)
		}
	}
	return list
}

// unlike says in what two runs differ that makes them two measurements of different things, and what else is different.
func unlike(a, b *Report) (refused, named []string) {
	differ := func(list *[]string, what string, x, y any) {
		if x, y := fmt.Sprint(x), fmt.Sprint(y); x != y {
			*list = append(*list, fmt.Sprintf("%s: %s and %s", what, cmp.Or(x, "not known"), cmp.Or(y, "not known")))
		}
	}
	m, n := a.Machine, b.Machine
	differ(&refused, "system", m.OS+"/"+m.Arch, n.OS+"/"+n.Arch)
	differ(&refused, "CPU", m.CPU, n.CPU)
	differ(&refused, "CPUs", m.CPUs, n.CPUs)
	differ(&refused, "memory of the machine in GiB", (m.MemoryBytes+1<<29)>>30, (n.MemoryBytes+1<<29)>>30)
	differ(&refused, "disk", m.Disk.FileSystem+" "+m.Disk.Kind, n.Disk.FileSystem+" "+n.Disk.Kind)
	differ(&refused, "seconds of a measurement", a.Plan.Seconds, b.Plan.Seconds)
	differ(&refused, "limit of memory (--ram)", a.Plan.RAMBytes, b.Plan.RAMBytes)
	if a.Plan.MemoryBytes > 0 && b.Plan.MemoryBytes > 0 { // reports from before budgets do not say
		differ(&refused, "budget of memory (--memory)", a.Plan.MemoryBytes, b.Plan.MemoryBytes)
	}
	differ(&named, "kernel", m.Kernel, n.Kernel)
	differ(&named, "Go", m.Go, n.Go)
	differ(&named, "device", m.Disk.Device, n.Disk.Device)
	differ(&named, "seed", a.Plan.Seed, b.Plan.Seed)
	for _, x := range a.Contenders {
		for _, y := range b.Contenders {
			if x.Engine != y.Engine || x.Given != y.Given {
				continue
			}
			differ(&named, x.Engine, x.Library, y.Library)
			for _, name := range slices.Sorted(maps.Keys(x.Settings)) {
				differ(&named, fmt.Sprintf("%s's %s at %v", x.Engine, name, x.Given), x.Settings[name], y.Settings[name])
			}
		}
	}
	return refused, named
}

// Comparison is what [Compare] is asked for.
type Comparison struct {
	Old, New []string // files, of one run or of several
	Gate     string   // what fails, as [ParseGate] reads it; empty for nothing
	Anyway   bool     // compare also what was not measured alike
}

// Compare shows what changed from the old runs to the new ones, and whether that is shown. Its error is ErrRegression if
// a change passes the gate, ErrWrong if the new runs have void measurements where the old have none, ErrReport for a
// file that cannot be read, and ErrBadOption for runs that are not alike.
func Compare(c Comparison, t console.Terminal) error {
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
	var refused, named []string
	for _, r := range all[1:] {
		x, y := unlike(all[0], r)
		refused, named = append(refused, x...), append(named, y...)
	}
	if len(refused) > 0 && !c.Anyway {
		return compareOp.BadOption("the runs were not measured alike: "+strings.Join(refused, "; "),
			"measure both on one machine by one plan, or say --anyway")
	}
	s := screen{t.Screen()}
	return s.compare(sides[0], sides[1], gate, slices.Concat(refused, named))
}
