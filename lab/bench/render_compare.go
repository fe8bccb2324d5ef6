package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// compare shows what became of the cells, and returns what the gate makes of it.
func (s screen) compare(a, b side, gate Gate, differences []string) error {
	for i, side := range []side{a, b} {
		for _, r := range side.reports {
			if r.Partial != "" {
				s.Wrapped(s.Paint(console.Red, "PARTIAL:")+" ", []string{"the old run: ", "the new run: "}[i]+r.Partial+".")
			}
		}
	}
	if differences = slices.Compact(differences); len(differences) > 0 {
		s.Wrapped("not the same in both: ", strings.Join(differences, "; ")+".")
	}
	list := changes(a, b, gate)
	failed := s.gate(list)
	s.changesTable(a, list)
	s.changesShown(list)
	s.changesLegend(list, len(gate) > 0)
	s.onlyIn("only in the old run: ", a, b)
	s.onlyIn("only in the new run: ", b, a)
	var wrong []string
	for _, k := range a.order {
		if b.void[k] {
			wrong = append(wrong, k.String())
		}
	}
	switch {
	case len(wrong) > 0:
		s.Wrapped(s.Paint(console.Red, "VOID in the new run:")+" ", strings.Join(wrong, "; ")+".")
		return fmt.Errorf("compare: void now and not before: %s: %w", console.Number(len(wrong), "cell"), ErrWrong)
	case failed > 0:
		return fmt.Errorf("compare: %w: %s", ErrRegression, console.Number(failed, "change")+" beyond the gate")
	case len(list) == 0:
		return compareOp.BadOption("the runs have no cell in common", "compare runs of the same workloads and engines")
	}
	return nil
}

// gate lists what passed it, and returns how much that is.
func (s screen) gate(list []cellChange) (failed int) {
	for _, c := range list {
		if c.gate < 0 {
			continue
		}
		if failed++; failed == 1 {
			s.Printf("%s\n", s.Paint(console.Red, "REGRESSIONS beyond the gate"))
		}
		s.Wrapped("  ", fmt.Sprintf("%s: %s, more than %s", c.cell, c.sentence(), measure.Percent(c.gate)))
	}
	if failed > 0 {
		s.Printf("\n")
	}
	return failed
}

// sentence is a change with what shows it.
func (c cellChange) sentence() string {
	text := fmt.Sprintf("%s %s to %s, %s", c.metric.title, c.metric.show(c.old), c.metric.show(c.new), c.text())
	if c.diff.Ratio > 0 {
		text += fmt.Sprintf(" (%s to %s)", signed(c.diff.Low-1), signed(c.diff.High-1))
	}
	return text + fmt.Sprintf(", p %.2g", c.p)
}

func (s screen) changesTable(a side, list []cellChange) {
	columns := []console.Column{{Name: "workload"}, {Name: "engine"}, {Name: "level"}, {Name: "clients", Right: true}}
	for _, m := range metrics() {
		columns = append(columns, console.Column{Name: m.title, Right: true})
	}
	t := console.Table{Keys: 4, Columns: columns}
	for _, k := range a.order {
		cells := []string{k.workload, k.engine, k.given.String(), fmt.Sprint(k.clients)}
		found := false
		var styles []console.Style
		for _, m := range metrics() {
			text, style := "", console.Style("")
			if i := slices.IndexFunc(list, func(c cellChange) bool { return c.cell == k && c.metric.name == m.name }); i >= 0 {
				found, text = true, list[i].text()
				switch {
				case list[i].shown && list[i].worse:
					style = console.Red
				case list[i].shown:
					style = console.Green
				}
			}
			cells, styles = append(cells, text), append(styles, style)
		}
		if !found {
			continue
		}
		t.Row(plain(k.engine), cells...)
		for i, style := range styles {
			if style != "" {
				t.PaintLast(t.Keys+i, style)
			}
		}
	}
	if t.Rows() > 0 {
		s.Table(&t)
	}
}

// changesShown lists the changes that are shown, those for the worse first.
func (s screen) changesShown(list []cellChange) {
	for _, worse := range []bool{true, false} {
		first := true
		for _, c := range list {
			if !c.shown || c.worse != worse || reference(c.cell.engine) {
				continue
			}
			if first {
				s.Printf("\n%s\n", s.Paint(console.Bold, map[bool]string{true: "worse", false: "better"}[worse]))
			}
			first = false
			s.Wrapped("  ", c.cell.String()+": "+c.sentence())
		}
	}
}

func (s screen) changesLegend(list []cellChange, gated bool) {
	few, most, shown, machine := 0, 0, 0, false
	cells := map[string]int{}
	for _, c := range list {
		if reference(c.cell.engine) {
			machine = machine || c.shown && c.cell.engine == Floor && c.metric.name == "ops"
			continue
		}
		cells[c.metric.name]++
		most = max(most, cells[c.metric.name])
		if !c.enough {
			few++
		}
		if c.shown {
			shown++
		}
	}
	s.Printf("\n")
	if machine {
		s.Wrapped("", "The rate of floor itself changed: the machine was not the same, and what follows from that is no "+
			"engine's.")
	}
	if shown == 0 && few == 0 && most > 0 {
		s.Wrapped("", "No change is shown.")
	}
	s.Wrapped("", fmt.Sprintf("A change is the median of the ratios of each new round to each old one. It is shown where the "+
		"Mann-Whitney U test, corrected after Holm over all cells, says so; ~ is where it does not. By chance, each column "+
		"claims a change that is none in at most %.0f %% of comparisons.", 100*measure.Alpha))
	if few > 0 {
		s.Wrapped("", fmt.Sprintf("In brackets: no claim, for the rounds are too few. It takes %s a run to show any change among "+
			"%s.", console.Number(measure.RoundsFor(most), "round"), console.Number(most, "cell")))
		if gated {
			s.Wrapped("", s.Paint(console.Red, "The gate cannot fail for these."))
		}
	}
}

// onlyIn names what one side has alone.
func (s screen) onlyIn(title string, a, b side) {
	var names []string
	for _, k := range a.order {
		if b.cells[k] == nil && !b.void[k] {
			names = append(names, k.String())
		}
	}
	if len(names) > 0 {
		s.Wrapped(title, strings.Join(names, "; ")+".")
	}
}
