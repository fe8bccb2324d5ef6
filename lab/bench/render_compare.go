package bench

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/internal/console"
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
	if len(differences) > 0 {
		s.Wrapped("not the same in all runs: ", strings.Join(differences, "; ")+".")
	}
	list := changes(a, b, gate)
	failed := s.gate(list)
	s.changesTable(a, list)
	s.changesShown(list)
	s.changesLegend(list, len(a.reports) == 1 || len(b.reports) == 1, b.reports[0].Plan.Command)
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

	return gate.unjudged(list, b.reports[0].Plan.Command)
}

// seedOrRounds are the flags of a command that do not count if it is to make more rounds.
var seedOrRounds = regexp.MustCompile(` --(seed|rounds)[ =]\S+`)

// moreRounds says which command makes so many rounds of what another has measured.
func moreRounds(command string, rounds int) string {
	if command == "" {
		command = "holdfast bench ..."
	}

	return fmt.Sprintf("measure each side with: %s --rounds %d --json FILE",
		console.Plain(seedOrRounds.ReplaceAllString(command, "")), rounds)
}

// unjudged is an error if there is something that the gate cannot judge: too few rounds, or nothing of a metric.
// command is what has measured.
func (gate Gate) unjudged(list []cellChange, command string) error {
	few, need := 0, 0
	found, cells := map[string]bool{}, map[string]int{}

	for _, c := range list {
		if !c.gated {
			continue
		}
		found[c.metric.name] = true
		cells[c.metric.name]++
		if !c.enough {
			few++
		}
		need = max(need, cells[c.metric.name])
	}
	if few > 0 {
		rounds := measure.RoundsFor(need)

		return compareOp.BadOption(fmt.Sprintf("the gate cannot judge %s: it takes %s a side", console.Number(few, "figure"),
			console.Number(rounds, "round")), moreRounds(command, rounds)+" (or name several runs of a side, with vs between "+
			"the old and the new ones)")
	}

	for _, name := range slices.Sorted(maps.Keys(gate)) {
		if !found[name] {
			return compareOp.BadOption(fmt.Sprintf("the gate cannot judge %s, which is not known on both sides", name),
				"leave it out, or measure it")
		}
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
		s.Wrapped("  ", fmt.Sprintf("%s: %s; the gate is %s", c.cell, c.sentence(), measure.Percent(c.gate)))
	}
	if failed > 0 {
		s.Printf("\n")
	}

	return failed
}

// sentence is a change with what shows it, and what floor and null did.
func (c *cellChange) sentence() string {
	text := fmt.Sprintf("%s %s to %s", c.metric.title, c.metric.show(c.old), c.metric.show(c.new))
	if c.diff.Ratio > 0 {
		text += ", " + changeWithInterval(c.diff)
	}

	text += fmt.Sprintf(", p %.2g", c.p)
	for i, b := range c.beside {
		own := "not known"
		if b.ratio > 0 {
			own = signed(b.ratio - 1)
		}
		text += fmt.Sprintf("; %s itself %s", b.name, own)
		if i == 0 {
			text += fmt.Sprintf(", so that divided by it the change is %s, p %.2g", changeWithInterval(b.diff), b.p)
		}
	}

	return text
}

func changeWithInterval(d measure.Difference) string {
	return fmt.Sprintf("%s (%s to %s)", signed(d.Ratio-1), signed(d.Low-1), signed(d.High-1))
}

func (s screen) changesTable(a side, list []cellChange) {
	names := []string{"workload", "engine", "level", "clients#"}
	for _, m := range metrics() {
		names = append(names, m.title+"#")
	}

	t := console.Columns(4, names...)
	for _, k := range a.order {
		cells := []string{k.work(), k.engine, k.given.String(), fmt.Sprint(k.clients)}
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
		s.Table(t)
	}
}

// changesShown lists the changes that are shown, those for the worse first, and those that may be the machine's.
func (s screen) changesShown(list []cellChange) {
	for _, part := range []struct {
		title string
		has   func(cellChange) bool
	}{
		{"worse", func(c cellChange) bool { return c.shown && c.worse }},
		{"better", func(c cellChange) bool { return c.shown && !c.worse }},
		{"not shown to be more than what floor or null did", func(c cellChange) bool { return c.apparent && !c.shown }},
	} {
		first := true
		for _, c := range list {
			if reference(c.cell.engine) || !part.has(c) {
				continue
			}
			if first {
				s.Title(part.title)
			}
			first = false
			s.Wrapped("  ", c.cell.String()+": "+c.sentence())
		}
	}
}

func (s screen) changesLegend(list []cellChange, alone bool, command string) {
	few, most, apparent, compared := 0, 0, 0, false
	cells := map[string]int{}

	for _, c := range list {
		if reference(c.cell.engine) {
			continue
		}
		cells[c.metric.name]++
		most = max(most, cells[c.metric.name])
		compared = compared || len(c.beside) > 0
		if !c.enough {
			few++
		}
		if c.apparent {
			apparent++
		}
	}
	s.Printf("\n")
	if apparent == 0 && few == 0 && most > 0 {
		s.Wrapped("", "No change is shown.")
	}
	s.Wrapped("", fmt.Sprintf("A change is the median of the ratios of each new round to each old one. It is shown where "+
		"the Mann-Whitney U test, corrected after Holm over all cells, says so; ~ is where it does not. Among rounds that "+
		"have nothing to do with each other, each column claims a change that is none in at most %.0f %% of comparisons.",
		100*measure.Alpha))
	if compared {
		s.Wrapped("", "A rate, a latency or CPU time must also have changed when each round is divided by that of floor, "+
			"which shows how fast the machine was, or of null where there is no floor; \"as floor\" is where it has not.")
	} else if most > 0 {
		s.Wrapped("", "Neither floor nor null is in all runs: what the machine did looks like what the engines did.")
	}
	if alone {
		s.Wrapped("", "Machines drift: the rounds of one run differ less from each other than from those of another run. "+
			"Measure in turns, old, new, old, new, and compare old1 old2 vs new1 new2.")
	}
	if few > 0 {
		rounds := measure.RoundsFor(most)
		s.Wrapped("", fmt.Sprintf("In brackets: no claim, for the rounds are too few. It takes %s a side to show any change "+
			"among %s.", console.Number(rounds, "round"), console.Number(most, "cell")))
		s.Printf("For more, %s\n", moreRounds(command, rounds))
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
