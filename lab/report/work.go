package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// stallShare is the share of the median rate below which a time counts as a stall.
const stallShare = 0.1

// course shows how the rates of a group went over the time, those of the first round.
func (c *composer) course(g bench.Group) *plot {
	p := c.plot("course", title(level(g)))
	p.Table = table{Head: []string{"engine", "from [s]", "to [s]", g.Unit + "/s", "stall"}, Text: 1}

	var rows []strip
	seconds, most := 0.0, 0.0
	for _, row := range g.Rows {
		if row.Reference || len(row.Results) == 0 || len(row.Results[0].Samples) < 4 {
			continue
		}

		st := strip{Name: row.Engine, Look: c.look(row.Engine)}
		var rates, lengths []float64
		before := bench.Sample{}
		for _, s := range row.Results[0].Samples {
			lengths = append(lengths, s.Seconds-before.Seconds)
			before = s
		}
		shortest := measure.Middle(lengths) / 2

		before = bench.Sample{}
		for _, s := range row.Results[0].Samples {
			if s.Seconds-before.Seconds < shortest {
				continue // a sliver, as at the end of a run, has a rate by chance: it is part of the next
			}
			if s.Seconds > before.Seconds {
				r := float64(s.Ops-before.Ops) / (s.Seconds - before.Seconds)
				st.Points, rates = append(st.Points, point{X: s.Seconds, Y: r}), append(rates, r)
				seconds, most = max(seconds, s.Seconds), max(most, r)
			}
			before = s
		}
		st.Stalls = stalls(st.Points, stallShare*measure.Middle(rates))
		st.Text = "no stall"
		if n := len(st.Stalls); n > 0 {
			longest := 0.0
			for _, s := range st.Stalls {
				longest = max(longest, s.To-s.From)
			}
			st.Text = fmt.Sprintf("%s, longest %s", console.Number(n, "stall"), measure.Duration(1e6*longest))
		}

		last := 0.0
		for _, at := range st.Points {
			mark := ""
			if at.Y <= stallShare*measure.Middle(rates) {
				mark = "yes"
			}
			p.Table.Rows = append(p.Table.Rows, []string{row.Engine, fmt.Sprintf("%.2f", last), fmt.Sprintf("%.2f", at.X),
				rate(g, at.Y), mark})
			last = at.X
		}
		rows = append(rows, st)
	}
	if len(rows) == 0 {
		return nil
	}
	p.XTitle = "time"
	p.strips(rows, seconds, most, func(v float64) string { return measure.Digits(v) + " s" })

	var said []string
	for _, st := range rows {
		said = append(said, st.Name+": "+st.Text)
	}
	p.Description = fmt.Sprintf("Rates over the time, %s. All rows go from 0 to %s. %s.", g.Title, rate(g, most),
		strings.Join(said, "; "))
	p.Note = fmt.Sprintf("Rows go from 0 to %s; the time is from the begin of warming up, of round 1. In a dashed "+
		"frame: a stall, less than a tenth of the median rate.", rate(g, most))

	return p
}

// stalls joins the times in which the rate was at most so low.
func stalls(points []point, low float64) (list []stall) {
	before := 0.0
	for _, at := range points {
		if at.Y <= low {
			if n := len(list); n > 0 && list[n-1].To == before {
				list[n-1].To = at.X
			} else {
				list = append(list, stall{before, at.X})
			}
		}
		before = at.X
	}

	return list
}

// settled shows rates as they were acknowledged, and with the time to close.
func (c *composer) settled(g bench.Group) *plot {
	if g.Reads {
		return nil
	}
	p := c.plot("settled", title(level(g)))
	p.Table = table{Head: []string{"engine", "acknowledged", "settled", "time to close"}, Text: 1}

	var rows []pair
	top := 0.0
	for _, row := range g.Rows {
		last := middle(row, bench.Result.Settled)
		if row.Reference || last < 0 {
			continue
		}
		top = max(top, row.Median)
		took := measure.Duration(row.SettleSeconds * 1e6)
		first, settled := rate(g, row.Median), rate(g, last)
		rows = append(rows, pair{Name: row.Engine, Text: fromTo(first, settled) + ", closes in " + took,
			First: row.Median, Last: last,
			Texts: [2]string{row.Engine + ": acknowledged " + first, row.Engine + ": settled " + settled}})
		p.Table.Rows = append(p.Table.Rows, []string{row.Engine, first, settled, took})
	}
	if len(rows) == 0 {
		return nil
	}
	p.XTitle = g.Unit + "/s"
	p.pairs(rows, top, func(v float64) string { return strings.TrimSuffix(rate(g, v), "/s") })
	p.Description = "Rates acknowledged and settled, " + g.Title + ". " + described(p.Table)
	p.Note = sentence(g.Unit + " per second; what the warm-up put off is paid by its operations")

	return p
}

// fromTo writes two rates, with their unit once if it is the same.
func fromTo(first, last string) string {
	number, unit, _ := strings.Cut(strings.TrimSuffix(first, "/s"), " ")
	if _, other, _ := strings.Cut(strings.TrimSuffix(last, "/s"), " "); other == unit {
		first = number
	}

	return first + " → " + last
}

// metric is something that an operation or a run costs.
type metric struct {
	name  string
	of    func(bench.Row) float64 // -1 if it is not known
	write func(float64) string
	own   bool // of engines only: references need none, or a file made ahead
}

func size(bytes float64) string {
	if bytes < 10 {
		return few(bytes) + " B"
	}

	return measure.Size(int64(math.Round(bytes)))
}

// few writes also what is far below one.
func few(x float64) string {
	if x > 0 && x < 0.1 {
		return strconv.FormatFloat(x, 'g', 2, 64)
	}

	return measure.Digits(x)
}

func perOp(r bench.Result, total int64) float64 {
	if ops := r.Ops + r.WarmUpOps; total >= 0 && ops > 0 {
		return float64(total) / float64(ops)
	}

	return holdfast.Unknown
}

// syncsPerOp is how many syncs the engine told of for each operation.
func syncsPerOp(row bench.Row) float64 {
	return middle(row, func(r bench.Result) float64 { return perOp(r, r.Syncs) })
}

// metrics are what is shown of costs, in the same order for all groups of a chapter.
func metrics(g bench.Group) []metric {
	return []metric{
		{"CPU per " + bench.Singular(g.Unit), func(r bench.Row) float64 { return r.CPUPerItem }, measure.Duration, false},
		{"Syncs per operation", syncsPerOp, few, true},
		{"On disk after closing, per operation", func(r bench.Row) float64 {
			return middle(r, func(r bench.Result) float64 { return perOp(r, r.DiskBytes) })
		}, size, true},
		{"Written to devices, per operation", func(r bench.Row) float64 {
			return middle(r, func(r bench.Result) float64 { return perOp(r, r.BytesWritten) })
		}, size, false},
		{"Read from devices, per operation", func(r bench.Row) float64 { return r.ReadPerOp }, size, false},
		{"Most resident memory", func(r bench.Row) float64 { return float64(r.PeakRSS) }, size, false},
	}
}

// cost shows one thing that the operations of a group cost.
func (c *composer) cost(g bench.Group, m metric) *plot {
	if g.Reads {
		return nil
	}

	var bars []bar
	top := most(g.Rows, m.of)
	t := table{Head: []string{"engine", m.name}, Text: 1}
	for _, row := range g.Rows {
		v := m.of(row)
		switch {
		case m.own && row.Reference:
			continue
		case v < 0:
			t.Rows = append(t.Rows, []string{row.Engine, "not known"})
			continue
		}
		class := ""
		if row.Reference {
			class = "reference"
		}
		bars = append(bars, bar{Name: row.Engine, Text: m.write(v), Class: class, Value: v,
			Description: row.Engine + ": " + m.write(v)})
		t.Rows = append(t.Rows, []string{row.Engine, m.write(v)})
	}
	if len(bars) == 0 || top < 1e-3 {
		return nil // nothing to speak of
	}
	p := c.plot("cost", title(level(g)))
	p.bars(bars, top, m.write)
	p.Table = t
	p.Description = fmt.Sprintf("%s, %s. %s", m.name, g.Title, described(t))

	return p
}

// kindModelled is the class of modelled plots.
const kindModelled = "modelled"

// defaultSyncCosts are what a sync is taken to cost, in microseconds.
var defaultSyncCosts = []float64{100, 1000, 5000}

// Modelled is what a row's rate would be if a sync cost so many microseconds: the time that an operation took, with as
// many syncs as were counted, each of which takes that long instead of own, what a sync takes on the machine. Clients
// are as many as they were, and as many of them share a sync. It is -1 if the number of syncs is not known, or if a
// sync costs more than that here already.
//
// Every sync counts as if all clients waited for it, one after the other. So it is too slow for engines that sync in
// the background, and for those that have more clients share a sync that takes longer.
func Modelled(row bench.Row, own, cost float64) float64 {
	if own <= 0 || cost < own {
		return holdfast.Unknown
	}

	return middle(row, func(r bench.Result) float64 {
		syncs := perOp(r, r.Syncs)
		if syncs < 0 || r.Ops == 0 {
			return holdfast.Unknown
		}
		took := r.Seconds * 1e6 / float64(r.Ops)

		return 1e6 / (took + syncs*(cost-own))
	})
}

// notModelled says which costs of a sync are not shown, and why; empty if all are.
func (c *composer) notModelled(own float64) string {
	var names []string
	for _, cost := range c.costs {
		if cost < own {
			names = append(names, measure.Duration(cost))
		}
	}
	if names == nil {
		return ""
	}

	return fmt.Sprintf("Not shown: a sync of %s, as this machine's sync already costs %s.", console.List(names),
		measure.Duration(own))
}

// modelled shows what rates would be if a sync cost more.
func (c *composer) modelled(s Source, g bench.Group) *plot {
	own := s.Bench.Machine.Disk.SyncP50
	costs := slices.DeleteFunc(slices.Clone(c.costs), func(cost float64) bool { return cost < own })
	if g.Reads || g.Given < holdfast.Process || len(costs) == 0 || own <= 0 {
		return nil
	}
	p := c.plot(kindModelled, title(level(g)))
	names := []string{"as measured"}

	p.Table = table{Head: []string{"engine", "syncs an operation", "as measured"}, Text: 1}
	for _, cost := range costs {
		names = append(names, measure.Duration(cost))
		p.Table.Head = append(p.Table.Head, "a sync of "+measure.Duration(cost))
	}

	low, high := math.Inf(1), 0.0
	var list []series
	for _, row := range g.Rows {
		syncs := syncsPerOp(row)
		if row.Reference || syncs < 0 {
			continue
		}

		line := series{Name: row.Engine, Look: c.look(row.Engine)}
		cells := []string{row.Engine, few(syncs), rate(g, row.Median)}
		values := []float64{row.Median}
		for _, cost := range costs {
			v := Modelled(row, own, cost)
			values, cells = append(values, v), append(cells, rate(g, v))
		}

		for i, v := range values {
			low, high = min(low, v*g.PerOp), max(high, v*g.PerOp)
			line.Points = append(line.Points, point{float64(i), v * g.PerOp, fmt.Sprintf("%s, %s: %s", row.Engine, names[i],
				rate(g, v))})
		}
		list = append(list, line)
		p.Table.Rows = append(p.Table.Rows, cells)
	}
	if len(list) == 0 || low <= 0 {
		return nil
	}

	ys := decades(low, high)
	var xs []float64
	for i := range names {
		xs = append(xs, float64(i))
	}
	p.XTitle, p.YTitle = "a sync takes", g.Unit+"/s"
	p.lines(list, scale{from: 0, to: float64(len(costs))}, scale{from: ys[0], to: ys[len(ys)-1], log: true}, xs, ys,
		func(v float64) string { return names[int(v)] },
		func(v float64) string { return strings.TrimSuffix(rate(g, v/g.PerOp), "/s") })
	p.Description = "Rates by what a sync costs, modelled from the syncs that were counted, " + g.Title + ". " +
		described(p.Table)
	p.Note = fmt.Sprintf("%s per second, scale logarithmic. Model: the time an operation took, with each counted "+
		"sync taking so "+
		"long instead of the %s it takes here, one after the other, clients as measured. It is too slow for engines "+
		"that sync "+
		"in the background, and where more clients would share a sync that takes longer. No order is claimed.",
		strings.ToUpper(g.Unit[:1])+g.Unit[1:], measure.Duration(own))

	return p
}
