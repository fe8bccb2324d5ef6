package load

import (
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// screen shows reports.
type screen struct{ console.Screen }

// header says what will be measured, and where.
func (s screen) header(shape Shape, p Plan, m measure.Machine) {
	s.Wrapped(p.Shape+": ", shape.About)
	how := console.Number(p.Workers, "worker") + " in closed loops"
	if p.Rate > 0 {
		how = fmt.Sprintf("%s operations a second by %s, an open loop", measure.Count(p.Rate),
			console.Number(p.Workers, "worker"))
	}
	if p.Followers > 0 {
		how += ", " + console.Number(p.Followers, "follower")
	}
	s.Wrapped("", fmt.Sprintf("%s; %s, %s of %v s after %v s", how, console.Number(len(p.Targets), "server"),
		console.Number(p.Rounds, "round"), p.Seconds, p.WarmUpSeconds))
	s.Wrapped("machine: ", m.Name()+", for servers and clients together")
	s.Wrapped("", m.Sentence())
}

// report writes the tables.
func (s screen) report(r *Report) {
	if r.Partial != "" {
		s.Partial(r.Partial)
	}

	groups := map[string][]Summary{}
	var levels []string
	for _, sum := range r.Summary {
		if sum.Target == nullName { // it is beside each
			continue
		}
		if groups[sum.Level] == nil {
			levels = append(levels, sum.Level)
		}
		groups[sum.Level] = append(groups[sum.Level], sum)
	}
	slices.SortFunc(levels, func(a, b string) int { return int(rank(a)) - int(rank(b)) })
	var null []Summary
	if i := slices.IndexFunc(r.Summary, func(s Summary) bool { return s.Target == nullName }); i >= 0 {
		null = r.Summary[i : i+1]
	}
	if len(levels) == 0 && len(null) > 0 {
		s.group(r, "null alone", null)
	}

	for _, level := range levels {
		title := "answers name no level"
		if l, err := holdfast.ParseLevel(level); err == nil {
			title = l.Survives()
		}
		s.group(r, title, slices.Concat(null, groups[level]))
	}

	for _, sum := range r.Summary {
		if r.Plan.Shape == Soak {
			s.course(r, sum.Target)
		}
	}
	if other := r.Machine.OtherWork; other >= 0.05 {
		s.Wrapped("", fmt.Sprintf("Other work took %s of the CPUs during this run.", measure.Percent(other)))
	}

	for _, void := range r.Void() {
		s.Wrapped(s.Paint(console.Red, "VOID:")+" ", fmt.Sprintf("%s, round %d: %s", void.Target, void.Round, void.Error))
	}
	s.Printf("\nagain: %s\n", r.Plan.Command)
}

// group writes the table of what was measured at one level.
func (s screen) group(r *Report, title string, rows []Summary) {
	clients := console.Number(r.Plan.Workers, "worker")
	if r.Plan.Followers > 0 {
		clients += ", " + console.Number(r.Plan.Followers, "follower")
	}
	names := []string{"server", "ops/s#", "[range]#", "of null#", "p50#", "p99#", "p99.9#", "max#"}
	extra := r.Plan.Followers > 0
	if extra {
		names = append(names, "deliveries/s#", "delivery p50#", "p99#", "max#")
	}

	t := console.Columns(1, append(names, "server CPU/op#", "client CPU/op#", "peak memory#", "first answer#")...)
	t.Columns[0].Wrap = 60
	for _, row := range rows {
		ofNull, style := "", console.Style("")
		if row.OfNull > 0 {
			ofNull = measure.Percent(row.OfNull)
		}
		if row.Target == nullName {
			style, ofNull = console.Dim, ""
		}
		cells := append([]string{row.Target, measure.Count(row.Median),
			measure.Count(row.Low) + ".." + measure.Count(row.High), ofNull}, row.latency.Cells()...)
		if extra {
			cells = append(cells, measure.Count(row.deliveries), measure.Duration(row.delivery.P50),
				measure.Duration(row.delivery.P99), measure.Duration(row.delivery.Max))
		}
		t.Row(style, append(cells, measure.Duration(row.cpuPerOp), measure.Duration(row.clientCPU),
			measure.Size(int64(row.peakRSS)), measure.Duration(max(row.first*1000, -1)))...)
	}
	s.Titled(fmt.Sprintf("%s, %s, %s", r.Plan.Shape, title, clients), t)
}

// known is a number, "?" if it is -1.
func known(n int64) string {
	if n < 0 {
		return "?"
	}

	return fmt.Sprint(n)
}

// courseRows is how many moments of a soak are shown.
const courseRows = 12

// course writes the memory and goroutines of a server over time.
func (s screen) course(r *Report, target string) {
	t := console.Columns(1, "after#", "memory#", "caches#", "with files#", "goroutines#", "operations#", "deliveries#")
	for _, result := range r.Results {
		n := len(result.Samples)
		if result.Target != target || n == 0 {
			continue
		}

		for i := range courseRows {
			at := result.Samples[(n-1)*i/(courseRows-1)]
			t.Row("", fmt.Sprintf("%.0f s", at.Seconds), measure.Size(at.Own), measure.Size(at.Caches),
				measure.Size(at.RSS), known(at.Goroutines), measure.Count(float64(at.Ops)), measure.Count(float64(at.Delivered)))
		}
	}
	s.Titled(target, t)
}
