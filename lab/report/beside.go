package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/crash"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// beside shows what several bench reports have in common, side by side.
func (c *composer) beside(sources []Source) {
	type cell struct {
		workload string
		given    holdfast.Level
		clients  int
	}

	var order []cell
	groups := map[cell][]bench.Group{} // one for each source, without rows where it has none
	for i, s := range sources {
		for _, g := range c.lab.Groups(s.Bench) {
			if g.Offer.Open() {
				continue // what is side by side are rates
			}
			at := cell{g.Workload, g.Given, g.Clients}
			if groups[at] == nil {
				order = append(order, at)
				groups[at] = make([]bench.Group, len(sources))
			}
			groups[at][i] = g
		}
	}

	p := &part{Title: "Rates"}
	for _, at := range order {
		if plot := c.sideBySide(sources, groups[at]); plot != nil {
			p.Plots = append(p.Plots, plot)
		}
	}
	p.share()
	if len(p.Plots) > 0 {
		var names []string
		for i, s := range sources {
			names = append(names, letter(i)+" is "+s.Name)
		}
		sec := c.section("beside", "Side by side", console.List(names)+". The reports have these measurements in "+
			"common. They were not made in turns: what "+
			"else the machine did may have changed between them, so intervals that lie apart show that figures differ, "+
			"and not why.")
		sec.Parts = append(sec.Parts, p)
	}
}

// sideBySide shows the engines that at least two of the groups have; nil if there are none.
func (c *composer) sideBySide(sources []Source, groups []bench.Group) *plot {
	var engines []string
	times := map[string]int{}
	var any bench.Group
	for _, g := range groups {
		for _, row := range g.Rows {
			any = g
			if times[row.Engine]++; times[row.Engine] == 2 && !row.Reference {
				engines = append(engines, row.Engine)
			}
		}
	}
	if len(engines) == 0 {
		return nil
	}
	p := c.plot("ranking beside", any.Title)
	p.Table = table{Head: []string{"engine", "report", "median", "low", "high", "confidence", "to the first"}, Text: 2}

	var bars []bar
	top := 0.0
	for _, engine := range engines {
		var first *bench.Row
		for i, g := range groups {
			at := slices.IndexFunc(g.Rows, func(r bench.Row) bool { return r.Engine == engine })
			if at < 0 {
				continue
			}
			row := g.Rows[at]
			said := ""
			if first == nil {
				first = &row
			} else {
				said = change(*first, row)
			}
			text := strings.TrimSuffix(rate(any, row.Median)+" · "+said, " · ")
			b := bar{Name: engine + ", " + letter(i), Text: text, Class: fmt.Sprintf("turn%d", min(i, 2)), Value: row.Median}
			b.Description = b.Name + ": " + text
			low, high, confidence := "", "", ""
			if row.Rounds > 1 {
				b.Low, b.High = row.Low, row.High
				low, high, confidence = rate(any, row.Low), rate(any, row.High), measure.Digits(100*row.Confidence)+" %"
			}
			top = max(top, row.High, row.Median)
			bars = append(bars, b)
			p.Table.Rows = append(p.Table.Rows, []string{engine, letter(i) + ", " + sources[i].Name, rate(any,
				row.Median), low, high, confidence, said})
		}
	}
	p.XTitle = any.Unit + "/s"
	p.bars(bars, top, func(v float64) string { return strings.TrimSuffix(rate(any, v), "/s") })
	p.Description = any.Title + ", of several reports. " + described(p.Table)
	p.Note = sentence(any.Unit + " per second, with the intervals of the medians; percents are given where they lie apart")

	return p
}

// letter names the source i.
func letter(i int) string { return string(rune('A' + i%26)) }

// change says how a row differs from that of another report.
func change(before, after bench.Row) string {
	switch {
	case before.Rounds < 2 || after.Rounds < 2:
		return "one round: nothing is shown"
	case min(before.Confidence, after.Confidence) < measure.WantConfidence:
		return "too few rounds to show a difference"
	case after.Low <= before.High && before.Low <= after.High:
		return "no difference shown"
	}

	return fmt.Sprintf("%+.0f %%", 100*(after.Median/before.Median-1))
}

// settings adds the chapter of what contenders ran with, once for the levels at which it is equal.
func (c *composer) settings(sources []Source) {
	type set struct{ engine, text string }

	var order []set
	levels := map[set][]string{}
	for _, s := range sources {
		for i := 0; s.Bench != nil && i < len(s.Bench.Contenders); i++ {
			ran := s.Bench.Contenders[i]
			var list []string

			for _, name := range slices.Sorted(maps.Keys(ran.Settings)) {
				list = append(list, name+" "+setting(name, ran.Settings[name]))
			}
			at := set{ran.Engine, fmt.Sprintf("%s; %s for caches and write buffers; %s",
				cmp.Or(ran.Library, "part of holdfast"), measure.Size(ran.MemoryBytes),
				cmp.Or(strings.Join(list, ", "), "no settings are told"))}
			if levels[at] == nil {
				order = append(order, at)
			}
			if l := ran.Given.String(); !slices.Contains(levels[at], l) {
				levels[at] = append(levels[at], l)
			}
		}
	}

	p := &part{}
	for _, at := range order {
		p.Items = append(p.Items, item{at.engine + " at " + console.List(levels[at]), at.text})
	}
	if len(p.Items) > 0 {
		sec := c.section("settings", "Settings in force", "As the contenders told them while they ran.")
		sec.Parts = append(sec.Parts, p)
	}
}

// sized are parts of the names of settings that are numbers of bytes.
var sized = []string{"size", "bytes", "mem", "cache", "run", "segment"}

// setting writes a value, as a size if it is one.
func setting(name, value string) string {
	n, err := strconv.ParseInt(value, 10, 64)
	if err == nil && n >= 1<<10 && slices.ContainsFunc(sized, func(s string) bool { return strings.Contains(name, s) }) {
		return measure.Size(n)
	}

	return value
}

// missing adds the chapter of what was withheld or is not available.
func (c *composer) missing(sources []Source) {
	p := &part{}
	add := func(who, text string) {
		if i := (item{who, text}); text != "" && !slices.Contains(p.Items, i) {
			p.Items = append(p.Items, i)
		}
	}

	for _, s := range sources {
		if s.Bench != nil {
			type absence struct{ engine, reason string }

			var order []absence
			where := map[absence][]string{}
			for _, u := range s.Bench.Unavailable {
				a := absence{u.Engine, u.Reason}
				if where[a] == nil {
					order = append(order, a)
				}
				if at := fmt.Sprintf("%s at %v", u.Workload, u.Asked); !slices.Contains(where[a], at) {
					where[a] = append(where[a], at)
				}
			}

			for _, a := range order {
				add(fmt.Sprintf("n/a: %s, %s", a.engine, strings.Join(where[a], ", ")), a.reason)
			}

			for _, r := range s.Bench.Void() {
				add(fmt.Sprintf("void: %s, %s at %v, %s, round %d", r.Engine, r.Workload, r.Asked,
					console.Number(r.Clients, "client"), r.Round), r.Error)
			}
			continue
		}

		for _, m := range s.Crash.Missing {
			add("left out: "+string(m.Kind), m.Why)
		}

		for _, row := range s.Crash.Results {
			if row.Verdict == crash.NotAvailable {
				add(fmt.Sprintf("n/a: %s at %s, %s, %s", row.Engine, levelName(row.Level), row.Kind, cmp.Or(row.Subject,
					"simulation")),
					row.Why)
			}
		}
	}
	if len(p.Items) > 0 {
		sec := c.section("missing", "Withheld and not available", "Every contender that has no figure, and why.")
		sec.Parts = append(sec.Parts, p)
	}
}
