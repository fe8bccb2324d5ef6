package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/crash"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// crashes are the rows of all crash reports, controls aside.
type crashes []crash.Result

func newCrashes(sources []Source) (list crashes) {
	for _, s := range sources {
		if s.Crash != nil {
			for _, row := range s.Crash.Results {
				if !row.Control {
					list = append(list, row)
				}
			}
		}
	}

	return list
}

// of says what became of an engine's claims at a level, in a few words; empty if it was not crashed at it.
func (list crashes) of(engine string, given holdfast.Level) string {
	cuts := map[crash.Kind]int{}
	broken := map[crash.Kind]bool{}

	for _, row := range list {
		if row.Engine != engine || row.Given != given || row.Verdict == crash.NotAvailable || given == 0 {
			continue
		}
		cuts[row.Kind] += row.Cuts
		broken[row.Kind] = broken[row.Kind] || row.Verdict == crash.Broken
	}
	var parts []string
	if given >= holdfast.Power && cuts[crash.Power] == 0 && len(cuts) > 0 {
		parts = append(parts, "no power cut made")
	}

	for _, kind := range []crash.Kind{crash.Power, crash.Kill, crash.Faults} {
		switch {
		case broken[kind]:
			parts = append(parts, fmt.Sprintf("BROKEN by %s", kind))
		case cuts[kind] > 0 && given >= kind.Survives():
			parts = append(parts, fmt.Sprintf("held in %s", crashName(kind, cuts[kind])))
		}
	}

	return strings.Join(parts, ", ")
}

// overall says what became of all of an engine's claims: what broke, or else what its strongest level held in.
func (list crashes) overall(engine string) string {
	var held, broken []string
	for _, level := range []holdfast.Level{holdfast.Quorum, holdfast.Power, holdfast.Process, holdfast.Memory} {
		switch said := list.of(engine, level); {
		case strings.Contains(said, "BROKEN"):
			broken = append(broken, fmt.Sprintf("%v: %s", level, said))
		case said != "":
			held = append(held, fmt.Sprintf("%v: %s", level, said))
		}
	}

	switch {
	case len(broken) > 0:
		return strings.Join(broken, "; ")
	case len(held) > 0:
		return held[0]
	}

	return "not crashed"
}

// engineTable is the closing table of all engines; nil where nothing was measured.
func (c *composer) engineTable(sources []Source) *titled {
	var reports []*bench.Report
	for _, s := range sources {
		if s.Bench != nil {
			reports = append(reports, s.Bench)
		}
	}
	head := bench.MatrixHead()
	t := &titled{Title: "All engines", Open: true, Table: table{Head: append([]string{head[0], "in crashes"}, head[1:]...),
		Text: 3}}

	for _, row := range c.lab.Matrix(reports...) {
		cells := row.Cells()
		t.Table.Rows = append(t.Table.Rows, append([]string{cells[0], c.crashes.overall(row.Engine)}, cells[1:]...))
	}

	for _, row := range c.crashes {
		known := slices.ContainsFunc(t.Table.Rows, func(cells []string) bool { return cells[0] == row.Engine })
		if len(reports) > 0 && !known && row.Verdict != crash.NotAvailable {
			unknown := slices.Repeat([]string{"-"}, len(head)-1)
			t.Table.Rows = append(t.Table.Rows, append([]string{row.Engine, c.crashes.overall(row.Engine)}, unknown...))
		}
	}
	if len(t.Table.Rows) == 0 {
		return nil
	}

	return t
}

// crashName counts crashes of a kind.
func crashName(kind crash.Kind, n int) string {
	switch kind {
	case crash.Power:
		return console.Number(n, "power cut")
	case crash.Faults:
		return console.Number(n, "disk fault")
	case crash.Lies:
		return console.Number(n, "disk") + " that lied"
	case crash.Machine:
		return console.Number(n, "loss") + " of a machine"
	case crash.Simulate:
		return fmt.Sprintf("%d simulated histories", n)
	}

	return console.Number(n, "kill")
}

// verdicts is a table of what became of engines at each level, by what was crashed.
type verdicts struct {
	Title, Warning string
	Subjects       []string
	Rows           []verdictRow
}

type verdictRow struct {
	Engine, Level string
	Cells         []verdict
}

// verdict is one cell. The sign tells without its colour.
type verdict struct{ Class, Sign, Verdict, Detail string }

// kindText says what each kind of crash is.
var kindText = map[crash.Kind]string{
	crash.Power:  "The power is cut on a recorded disk; what was not flushed may be lost, torn at sectors.",
	crash.Kill:   "SIGKILL at any moment. What was acknowledged at Process or Power must be there.",
	crash.Faults: "The disk refuses flushes or writes and loses what was not flushed, or refuses reads after a restart.",
	crash.Lies: "The power is cut on a disk that has kept nothing for the last flushes that it answered. An older state " +
		"and an error are honest; no engine promises either.",
	crash.Simulate: "The engine's own simulation of its file system.",
}

// crash adds the chapter of one crash report.
func (c *composer) crash(s Source) {
	r := s.Crash
	sec := c.section(fmt.Sprintf("c%d", len(c.doc.Sections)+1), "What each engine survived",
		fmt.Sprintf("Crashes in %s: %d. %s %s", s.Name, total(r), controlsText(r), boundsNote))

	for _, kind := range r.Plan.Kinds {
		if v := c.matrix(r, kind); len(v.Rows) > 0 {
			sec.Parts = append(sec.Parts, &part{Title: title(string(kind)), Lead: kindText[kind], Verdicts: []verdicts{v}})
		}
	}
	if p := c.windows(r); p != nil {
		sec.Parts = append(sec.Parts, &part{Title: "What weaker levels cost", Plots: []*plot{p}})
	}

	sec.Parts = append(sec.Parts, findings(r))
	for _, row := range r.Results {
		if row.Verdict == crash.Broken && !row.Control {
			c.doc.Answers = append(c.doc.Answers, answer{
				Question: fmt.Sprintf("%s at %v, %s, %s:", row.Engine, row.Level, row.Kind, row.Subject),
				Lines: []line{{Class: "void", Link: sec.ID, Said: "BROKEN: it does not keep what it acknowledged",
					Detail: row.Why}}})
		}
	}
	if a := survivors(r); a.Lines != nil {
		a.Lines[0].Link = sec.ID
		c.doc.Answers = append(c.doc.Answers, a)
	}
}

// survivors says which engines kept what they claim.
func survivors(r *crash.Report) answer {
	held, broken := map[string]int{}, map[string]bool{}
	var engines []string

	for _, row := range r.Results {
		if row.Control {
			continue
		}
		if row.Verdict == crash.Held {
			if held[row.Engine] == 0 {
				engines = append(engines, row.Engine)
			}
			held[row.Engine] += row.Cuts
		}
		broken[row.Engine] = broken[row.Engine] || row.Verdict == crash.Broken
	}
	engines = slices.DeleteFunc(engines, func(e string) bool { return broken[e] })
	if len(engines) == 0 {
		return answer{}
	}

	var parts []string
	for _, e := range engines {
		parts = append(parts, fmt.Sprintf("%s (%d)", e, held[e]))
	}
	detail := controlsText(r)
	if !slices.ContainsFunc(r.Results, func(row crash.Result) bool {
		return row.Kind == crash.Power && !row.Control && row.Cuts > 0
	}) {
		detail = "No power cut was made: of Power the kills alone are known. " + detail
	}

	return answer{Question: "Kept all that they claim, in so many crashes:",
		Lines: []line{{Class: "best", Said: strings.Join(parts, ", "), Detail: detail}}}
}

func total(r *crash.Report) (n int) {
	for _, row := range r.Results {
		if !row.Control {
			n += row.Cuts
		}
	}

	return n
}

// controlsText says whether engines that lie were found out.
func controlsText(r *crash.Report) string {
	all, found := 0, 0
	for _, row := range r.Results {
		if row.Control {
			all++
			if row.FoundOut() {
				found++
			}
		}
	}

	switch {
	case all == 0:
		return "No control was run, so that it is not known what would have been found."
	case all == found:
		return fmt.Sprintf("The controls, which lie, were found out: %d of %d.", found, all)
	}

	return fmt.Sprintf("Of %s, which lie, %d were found out.", console.Number(all, "control"), found)
}

// boundsNote explains what is behind a verdict that held.
const boundsNote = "< x %: with 95 % confidence fewer than that share breaks by chance, each trial for itself. As " +
	"the cuts of one recorded disk are not independent, the disk counts once. What no victim reached is not covered."

// matrix is the verdicts of one kind of crash. Rows without any are left out: why is said where all is that is missing.
func (c *composer) matrix(r *crash.Report, kind crash.Kind) verdicts {
	v := verdicts{Title: "Engines by what was crashed", Warning: c.warning}
	results := slices.DeleteFunc(slices.Clone(r.Results), func(row crash.Result) bool {
		return row.Control || row.Kind != kind
	})

	var subjects []string
	for _, row := range results {
		if !slices.Contains(subjects, row.Subject) {
			subjects = append(subjects, row.Subject)
			v.Subjects = append(v.Subjects, cmp.Or(row.Subject, "simulation"))
		}
	}

	for _, engine := range rowEngines(r) {
		for _, level := range append([]holdfast.Level{0}, r.Plan.Levels...) {
			row := verdictRow{Engine: engine, Level: levelName(level)}
			any := false

			for _, subject := range subjects {
				cell := verdict{"none", "–", "not run", ""}
				for _, result := range results {
					if result.Subject == subject && result.Engine == engine && result.Level == level {
						cell, any = verdictOf(result), any || result.Verdict != crash.NotAvailable
					}
				}
				row.Cells = append(row.Cells, cell)
			}
			if any {
				v.Rows = append(v.Rows, row)
			}
		}
	}

	return v
}

// bounds is what a row that held supports, by the report; of a report from before it had bounds, by its kills.
func bounds(r crash.Result) (text string) {
	for _, b := range r.Bounds {
		text += fmt.Sprintf(", < %s of %ss", percent(b.Below), b.Of)
	}
	if text == "" && r.Kind == crash.Kill {
		text = fmt.Sprintf(", < %s of victims", percent(crash.Below(int64(r.Cuts))))
	}

	return text
}

// percent writes a bound, which is rounded up.
func percent(x float64) string {
	switch {
	case x <= 0:
		return "0 %"
	case x >= 0.1:
		return fmt.Sprintf("%.0f %%", math.Ceil(100*x))
	}
	unit := math.Pow(10, math.Floor(math.Log10(100*x))-1)

	return fmt.Sprintf("%.2g %%", math.Ceil(100*x/unit-1e-9)*unit)
}

func levelName(l holdfast.Level) string {
	if l == 0 {
		return "all levels"
	}

	return l.String()
}

// rowEngines are the engines of a report's rows, in their order, controls aside.
func rowEngines(r *crash.Report) (list []string) {
	for _, row := range r.Results {
		if !row.Control && !slices.Contains(list, row.Engine) {
			list = append(list, row.Engine)
		}
	}

	return list
}

func verdictOf(r crash.Result) verdict {
	switch r.Verdict {
	case crash.Held:
		return verdict{"held", "✓", "held", crashName(r.Kind, r.Cuts) + bounds(r)}
	case crash.Broken:
		return verdict{"broken", "✗", "BROKEN", fmt.Sprintf("%s: lost %d, torn %d, out of order %d, wrong %d, "+
			"unflushed %d, "+
			"not opened %d", crashName(r.Kind, r.Cuts), r.Lost, r.Torn, r.OutOfOrder, r.Wrong, r.Unflushed, r.RecoveryFailures)}
	case crash.AsDocumented:
		if saw := r.Lied; saw != nil {
			return verdict{"documented", "~", "no claim", fmt.Sprintf("%s: %d older states, %d refused, %d died, %d wrong",
				crashName(r.Kind, r.Cuts), saw.Older, saw.Refused, saw.Died, saw.Wrong)}
		}

		return verdict{"documented", "~", "as documented", fmt.Sprintf("%s, %s lost at most", crashName(r.Kind,
			r.Cuts), lost(r))}
	}

	return verdict{"none", "–", "n/a", r.Why}
}

// lost is the most that one crash took.
func lost(r crash.Result) string {
	if r.LostCommits == 0 {
		return "nothing"
	}

	return fmt.Sprintf("%s, %s", console.Number(r.LostCommits, "commit"), measure.Duration(r.LossWindowMs*1000))
}

// windows shows the most that one crash took of what was acknowledged, where it may.
func (c *composer) windows(r *crash.Report) *plot {
	p := c.plot("cost", "The longest time that one power cut took back")
	p.Table = table{Head: []string{"engine, level and subject", "time", "commits"}, Text: 1}

	var bars []bar
	top := 0.0
	for _, row := range r.Results {
		if row.Control || row.Kind != crash.Power || row.LostCommits == 0 {
			continue
		}
		name := fmt.Sprintf("%s, %v, %s", row.Engine, row.Level, row.Subject)
		took := measure.Duration(row.LossWindowMs * 1000)
		top = max(top, row.LossWindowMs)
		bars = append(bars, bar{Name: name, Text: took, Value: row.LossWindowMs, Description: name + ": " + lost(row)})
		p.Table.Rows = append(p.Table.Rows, []string{name, took, fmt.Sprint(row.LostCommits)})
	}
	if len(bars) == 0 || top == 0 {
		return nil
	}
	p.bars(bars, top, func(v float64) string { return measure.Duration(1000 * v) })
	p.Description = p.Title + ". " + described(p.Table)
	p.Note = "From the first acknowledged commit that was gone to the last one before the cut. The victim's pace " +
		"and the cuts " +
		"that were made decide how much of the loss window is seen."

	return p
}

// findings is what broke, and the numbers of every row.
func findings(r *crash.Report) *part {
	p := &part{Title: "All rows"}
	t := table{Head: []string{"engine", "level", "kind", "subject", "verdict", "crashes", "acknowledged",
		"survived", "lost", "torn",
		"out of order", "unflushed", "wrong", "not opened", "flushes compared", "opening, median", "opening, longest",
		"syncs or flushes per commit", "most lost"}, Text: 5}

	for _, row := range r.Results {
		engine := row.Engine
		if row.Control {
			engine += " (control)"
		}
		if row.Verdict == crash.Broken && !row.Control {
			for _, f := range row.Findings {
				p.Items = append(p.Items, item{fmt.Sprintf("BROKEN: %s at %v, %s, %s", row.Engine, row.Level, row.Kind,
					row.Subject), f})
			}
			if row.Replay != "" {
				p.Items = append(p.Items, item{"check it again", row.Replay})
			}
		}
		recovery := []string{"?", "?"}
		if row.RecoveryMs.Median >= 0 {
			recovery = []string{measure.Duration(1000 * row.RecoveryMs.Median), measure.Duration(1000 * row.RecoveryMs.Max)}
		}
		syncs := "?"
		if row.SyncsPerAck >= 0 {
			syncs = measure.Digits(row.SyncsPerAck)
		}
		t.Rows = append(t.Rows, []string{engine, levelName(row.Level), string(row.Kind), row.Subject, string(row.Verdict),
			fmt.Sprint(row.Cuts), fmt.Sprint(row.Acked), fmt.Sprint(row.Survived), fmt.Sprint(row.Lost), fmt.Sprint(row.Torn),
			fmt.Sprint(row.OutOfOrder), fmt.Sprint(row.Unflushed), fmt.Sprint(row.Wrong), fmt.Sprint(row.RecoveryFailures),
			fmt.Sprint(row.FlushChecks), recovery[0], recovery[1], syncs, lost(row)})
	}
	p.Tables = []titled{{Title: "The numbers of every row, controls included", Table: t}}

	return p
}
