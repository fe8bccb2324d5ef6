package crash

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/bench"
)

// screen is where text for people goes.
type screen struct {
	w     io.Writer
	width int
	color bool
}

// plainWidth is assumed where there is no terminal.
const plainWidth = 120

func screenOf(t bench.Terminal) screen {
	s := screen{w: t.Out, width: t.OutWidth(), color: t.Color}
	if s.width == 0 {
		s.width, s.color = plainWidth, false
	}
	return s
}

// ANSI renditions.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (s screen) paint(code, text string) string {
	if !s.color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s screen) printf(format string, args ...any) { fmt.Fprintf(s.w, format, args...) }

// titles says what each kind does, above its table.
var titles = map[Kind]string{
	Kill:     "kill: SIGKILL, at random moments and while it opens, closes, syncs and makes files; Process and Power must survive",
	Power:    "power: a recorded disk is cut; of what was not flushed a part is there, torn at sectors; Power must survive",
	Faults:   "faults: the disk refuses flushes or writes, and then loses what was not flushed; Power must survive",
	Simulate: "simulate: the engine's own simulation of its file system",
}

// header says what will be done.
func (s screen) header(p *runPlan) {
	var kinds []string
	for _, k := range p.kinds {
		kinds = append(kinds, string(k))
	}
	var levels []string
	for _, l := range p.levels {
		levels = append(levels, l.String())
	}
	s.wrapped("crash: ", fmt.Sprintf("%s; engines %s; levels %s; %s a row; %s; seed %d", strings.Join(kinds, ", "), strings.Join(p.engines, ", "),
		strings.Join(levels, ", "), p.cutsText(), p.subjectsText(), p.seed))
	for _, m := range p.missing {
		s.wrapped("left out: ", fmt.Sprintf("%s: %s", m.Kind, m.Why))
	}
}

// cutsText is how many cuts the rows get, controls aside: some may get fewer.
func (p *runPlan) cutsText() string {
	least, most := p.cuts, 0
	for _, c := range p.cells {
		if !c.Control && c.notAvailable == "" && c.Kind != Simulate {
			least, most = min(least, p.rounds(c)), max(most, p.rounds(c))
		}
	}
	switch {
	case most == 1:
		return "1 cut"
	case least < most:
		return fmt.Sprintf("%d or %d cuts", least, most)
	}
	return fmt.Sprintf("%d cuts", cmp.Or(most, p.cuts))
}

// subjectsText lists the subjects, and says at which level raft is left out.
func (p *runPlan) subjectsText() string {
	text := strings.Join(p.subjects, ", ")
	if p.allLevels && len(p.subjects) > 1 && slices.Contains(p.levels, holdfast.Memory) {
		text = strings.Replace(text, rafts.Name, rafts.Name+" (not at memory)", 1)
	}
	return text
}

// report writes the tables and what follows from them.
func (s screen) report(r *Report) {
	for _, kind := range r.Plan.Kinds {
		for _, subject := range r.Plan.Subjects {
			s.kind(r, kind, subject)
		}
	}
	s.printf("\n")
	s.wrapped("", "Batches, added up over all cuts. lost: acknowledged at a level that must survive, and gone. order: missing under later ones. wrong: never written, damaged, or different when opened again. window: the most that one cut took, from the first batch that is gone to the last acknowledgement.")
	s.broken(r)
	s.controls(r)
	s.printf("\nagain: %s\n", r.Plan.Command)
}

func (s screen) kind(r *Report, kind Kind, subject string) {
	t := s.table()
	t.AppendHeader(table.Row{"engine", "level", "cuts", "acked", "survived", "lost", "torn", "order", "wrong", "unopened", "open ms", "syncs/ack", "window", "verdict"})
	rows := 0
	fs := ""
	for _, row := range r.Results {
		if row.Kind != kind || row.Subject != subject && kind != Simulate || row.Verdict == NotAvailable {
			continue
		}
		fs = row.FS
		cells := table.Row{row.Engine, row.Level.String(), fmt.Sprint(row.Cuts), fmt.Sprint(row.Acked), fmt.Sprint(row.Survived), some(row.Lost), some(row.Torn),
			some(row.OutOfOrder), some(row.Wrong), some(row.RecoveryFailures), recoveryText(row.RecoveryMs), ratio(row.SyncsPerAck), window(row), string(row.Verdict)}
		switch {
		case row.Control:
			cells[len(cells)-1] = "control: " + string(row.Verdict)
			s.paintRow(cells, dim)
		case row.Verdict == Broken:
			s.paintRow(cells, red)
		case row.Verdict == Held:
			cells[len(cells)-1] = s.paint(green, string(row.Verdict))
		}
		t.AppendRow(cells)
		rows++
	}
	if rows > 0 {
		title := titles[kind]
		if fs != "" {
			title = strings.Replace(title, "a recorded disk", "a recorded disk with "+fs, 1)
		}
		if len(r.Plan.Subjects) > 1 && kind != Simulate {
			title = subject + ", " + title
		}
		s.printf("\n")
		s.hanging("", s.paint(bold, title), 2)
		s.print(t, []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	}
	// Reasons that several rows share are said once.
	said := map[string]int{}
	var order []string
	var who []string
	for _, row := range r.Results {
		if row.Kind != kind || row.Subject != subject && kind != Simulate || row.Control || row.Why == "" || row.Verdict == Broken {
			continue
		}
		name := row.Engine
		if row.Level > 0 {
			name += " at " + row.Level.String()
		}
		text := string(row.Verdict) + ": " + row.Why
		if row.Verdict == Held {
			text = row.Why
		}
		if at, ok := said[text]; ok {
			who[at] += ", " + name
			continue
		}
		said[text] = len(order)
		order, who = append(order, text), append(who, name)
	}
	for i, text := range order {
		s.wrapped("  ", who[i]+": "+text)
	}
}

func some(n int64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func ratio(f float64) string {
	if f < 0 {
		return "?"
	}
	return fmt.Sprintf("%.2g", f)
}

func recoveryText(r Recovery) string {
	if r.Median < 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f..%.0f", r.Median, r.Max)
}

// milliseconds shows three digits.
func milliseconds(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.3g ms", ms)
}

func window(r Result) string {
	if r.LostCommits == 0 {
		return "-"
	}
	return fmt.Sprintf("%d, %s", r.LostCommits, milliseconds(r.LossWindowMs))
}

// broken tells of each broken claim what was found, and where the evidence is.
func (s screen) broken(r *Report) {
	for _, row := range r.Results {
		if row.Verdict != Broken || row.Control {
			continue
		}
		s.printf("\n%s\n", s.paint(red, fmt.Sprintf("BROKEN: %s at %v does not survive %s (%s)", row.Engine, row.Level, row.Kind, row.Subject)))
		for _, f := range row.Findings[:min(len(row.Findings), 6)] {
			s.wrapped("  ", clip(strings.Join(strings.Fields(f), " ")))
		}
		for _, dir := range row.Evidence {
			s.printf("  evidence: %s\n", dir)
		}
		if row.Replay != "" {
			s.printf("  replay: %s\n", row.Replay)
		}
	}
}

// controls says whether the lies were found out.
func (s screen) controls(r *Report) {
	for _, row := range r.Results {
		if !row.Control {
			continue
		}
		name := fmt.Sprintf("%s (%s, %s)", row.Engine, row.Kind, row.Subject)
		if row.Verdict == Broken && row.Lost > 0 {
			s.wrapped("", fmt.Sprintf("control: %s was found out: %d acknowledged batches lost in %d cuts.", name, row.Lost, row.Cuts))
			continue
		}
		s.wrapped("", s.paint(red, fmt.Sprintf("control: %s was NOT found out in %d cuts: nothing above is to be believed.", name, row.Cuts)))
	}
}

func (s screen) paintRow(row table.Row, code string) {
	for i := range row {
		row[i] = s.paint(code, row[i].(string))
	}
}

func (s screen) table() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "  ", ""
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}

func (s screen) print(t table.Writer, right []int) {
	var columns []table.ColumnConfig
	for _, n := range right {
		columns = append(columns, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	s.printf("%s\n", t.Render())
}

// wrapped writes text within the width, later lines indented.
func (s screen) wrapped(first, rest string) { s.hanging(first, rest, 4) }

// hanging is wrapped with the indentation of the later lines.
func (s screen) hanging(first, rest string, indent int) {
	line, empty := first, true
	for _, word := range strings.Fields(rest) {
		if !empty && len(line)+1+len(word) > s.width {
			s.printf("%s\n", strings.TrimRight(line, " "))
			line, empty = strings.Repeat(" ", indent), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	s.printf("%s\n", strings.TrimRight(line, " "))
}

// brokenRows and heldControls are what the exit status follows from.
func (r *Report) brokenRows() (n int) {
	for _, row := range r.Results {
		if !row.Control && row.Verdict == Broken {
			n++
		}
	}
	return n
}

func (r *Report) heldControls() bool {
	return slices.ContainsFunc(r.Results, func(row Result) bool {
		return row.Control && (row.Verdict != Broken || row.Lost == 0)
	})
}
