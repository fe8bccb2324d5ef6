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
	length := fmt.Sprintf("%v s after %v s", p.Seconds, p.WarmUpSeconds)
	if p.Events > 0 {
		length = fmt.Sprintf("%d events in batches of %d", p.Events, p.Batch)
	}
	s.Wrapped("", fmt.Sprintf("%s; %s, %s of %s", how, console.Number(len(p.Targets), "server"),
		console.Number(p.Rounds, "round"), length))
	if p.RAMBytes > 0 {
		s.Wrapped("memory: ", measure.Size(p.RAMBytes)+" for each server, the system's cache of its files included")
	}
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
		switch r.Plan.Shape {
		case Soak:
			s.course(r, sum.Target)
		case Events:
			s.appends(r, sum.Target)
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

	events := slices.ContainsFunc(rows, func(s Summary) bool { return s.events > 0 })
	if events {
		names = append(names, "events/s#")
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
		if events {
			cells = append(cells, measure.Count(row.events))
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

// courseRows is how many moments of a soak, or of many events, are shown.
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

// appends writes how fast events were appended over time, and the memory of the server.
func (s screen) appends(r *Report, target string) {
	t := console.Columns(1, "after#", "events#", "events/s#", "memory#", "with files#")
	for _, result := range r.Results {
		n := len(result.Samples)
		if result.Target != target || n < 2 {
			continue
		}

		before := Sample{}
		for i := range courseRows {
			at := result.Samples[(n-1)*(i+1)/courseRows]
			if at.Seconds <= before.Seconds {
				continue
			}
			// All operations append as many, but the last.
			events := func(ops int64) float64 { return float64(min(ops*int64(r.Plan.Batch), result.Events)) }
			t.Row("", fmt.Sprintf("%.0f s", at.Seconds), measure.Count(events(at.Ops)),
				measure.Count((events(at.Ops)-events(before.Ops))/(at.Seconds-before.Seconds)), measure.Size(at.Own),
				measure.Size(at.RSS))
			before = at
		}
	}
	s.Titled(target, t)
}
