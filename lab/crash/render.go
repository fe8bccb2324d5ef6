package crash

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// screen shows reports.
type screen struct{ console.Screen }

// titles says what each kind does, above its table.
var titles = map[Kind]string{
	Kill: "kill: SIGKILL, at random moments, while it opens, closes, syncs and makes files, and at system calls; " +
		"Process and Power must survive",
	Power: "power: a recorded disk is cut; of what was not flushed a part is there, torn at sectors; Power must " +
		"survive",
	Faults: "faults: the disk refuses flushes or writes, and then loses what was not flushed, or it refuses reads after " +
		"a restart (kv); Power must survive, and nothing wrong be read",
	Lies: "lies: a recorded disk is cut that has kept nothing for the last flushes that it answered; an older " +
		"state and an error are honest, and no engine promises either",
	Simulate: "simulate: the engine's own simulation of its file system",
	Machine: "machine: of three machines the primary is killed, cut off, or loses its power or disk, and another is " +
		"promoted; Quorum must survive",
}

// header says what will be done.
func (s screen) header(p *runPlan) {
	defer func() {
		for _, m := range p.missing {
			s.Wrapped("left out: ", fmt.Sprintf("%s: %s", m.Kind, m.Why))
		}
	}()
	if p.mutants {
		s.Wrapped("crash: ", fmt.Sprintf("%s; seed %d", console.Number(len(p.cells), "mutant"), p.Seed))
		return
	}

	var names []string
	for _, k := range p.Kinds {
		names = append(names, string(k))
	}

	var levels []string
	for _, l := range p.Levels {
		levels = append(levels, l.String())
	}
	s.Wrapped("crash: ", fmt.Sprintf("%s; engines %s; levels %s; %s a row; %s; seed %d", strings.Join(names, ", "),
		strings.Join(p.Engines, ", "), strings.Join(levels, ", "), p.cutsText(), p.subjectsText(), p.Seed))
}

// cutsText is how many cuts the rows get, controls aside: some may get fewer.
func (p *runPlan) cutsText() string {
	least, most := p.Cuts, 0
	for _, c := range p.cells {
		if !c.Control && c.NotAvailable == "" && c.Kind != Simulate {
			least, most = min(least, p.rounds(c)), max(most, p.rounds(c))
		}
	}

	switch {
	case most == 1:
		return "1 cut"
	case least < most:
		return fmt.Sprintf("%d to %d cuts", least, most)
	}

	return fmt.Sprintf("%d cuts", cmp.Or(most, p.Cuts))
}

// subjectsText lists the subjects, and says at which levels some are left out.
func (p *runPlan) subjectsText() string {
	switch {
	case len(p.Subjects) == 1:
	case p.allLevels && p.allSubjects:
		return p.Subjects[0] + " at all levels; " + strings.Join(p.Subjects[1:], ", ") + " at the weakest that must survive"
	case p.allLevels && slices.Contains(p.Levels, holdfast.Memory):
		return strings.Replace(strings.Join(p.Subjects, ", "), subjects.Raft.Name, subjects.Raft.Name+" (not at memory)", 1)
	}

	return strings.Join(p.Subjects, ", ")
}

// report writes the tables and what follows from them.
func (s screen) report(r *Report) {
	if r.Partial != "" {
		s.Partial(r.Partial)
	}

	for _, kind := range r.Plan.Kinds {
		switch kind {
		case Simulate:
			s.simulations(r)
		case Lies:
			s.lies(r)
		default:
			s.kind(r, kind)
		}
	}
	s.Printf("\n")
	if slices.ContainsFunc(r.Plan.Kinds, func(k Kind) bool { return k != Simulate && k != Lies }) {
		s.Wrapped("", "Batches, added up over all cuts. lost: acknowledged at a level that must survive, and gone. "+
			"order: missing under later ones. unflushed: acknowledged at power, and the disk did not write and then flush "+
			"since it was applied. wrong: never written, damaged, or different when opened again. "+
			"files: how often a victim was seen to rotate its log, flush a table or begin its log anew; where there is none, "+
			"the row says nothing about that. "+
			"window: the most that one cut took, from the first batch that is gone to the last acknowledgement.")
	}
	if slices.ContainsFunc(r.Results, func(row Result) bool { return len(row.Bounds) > 0 }) {
		s.Wrapped("", aboutBounds)
	}
	s.reached(r)
	s.pauses(r)
	s.broken(r)
	s.controls(r)
	s.Printf("\nagain: %s\n", r.Plan.Command)
}

// kind shows the rows of a kind, in the order of their subjects.
func (s screen) kind(r *Report, kind Kind) {
	t := console.Columns(3, "engine", "level", "subject", "verdict", "cuts#", "acked#", "survived#", "lost#", "torn#",
		"order#", "unflushed#", "wrong#", "unopened#", "open ms#", "syncs/ack#", "files#", "window#", "below#")
	// The names and verdicts of controls are long.
	t.Columns[0].Wrap, t.Columns[t.Keys].Wrap = len("pebble, memory"), len(AsDocumented)
	if len(r.Plan.Subjects) == 1 {
		t.Columns[2].Name = ""
	}

	fs := ""
	for _, row := range r.Results {
		if row.Kind != kind || row.Verdict == NotAvailable {
			continue
		}
		fs = row.FS

		verdict, style := string(row.Verdict), console.Style("")
		switch {
		case row.Control:
			verdict, style = "control: "+verdict, console.Dim
		case row.Verdict == Broken:
			style = console.Red
		case r.Partial != "":
			verdict += " so far"
		}
		t.Row(style, row.Engine, row.Level.String(), row.Subject, verdict, fmt.Sprint(row.Cuts), fmt.Sprint(row.Acked),
			fmt.Sprint(row.Survived), some(row.Lost), some(row.Torn), some(row.OutOfOrder), some(row.Unflushed),
			some(row.Wrong), some(row.RecoveryFailures), recoveryText(row.RecoveryMs), ratio(row.SyncsPerAck),
			some(row.filesMade()), window(row), shortBounds(row.Bounds))
		if row.Verdict == Held && !row.Control {
			t.PaintLast(t.Keys, console.Green)
		}
	}
	title := titles[kind]
	if fs != "" {
		title = strings.Replace(title, "a recorded disk", "a recorded disk with "+fs, 1)
	}
	s.Titled(title, t)
	s.reasons(r, func(row Result) bool { return row.Kind == kind })
}

// lies says what became of disks that lied.
func (s screen) lies(r *Report) {
	t := console.Columns(2, "engine", "subject", "cuts#", "older state#", "refused#", "died#", "wrong#", "window#")

	for _, row := range r.Results {
		if saw := row.Lied; row.Kind == Lies && saw != nil {
			t.Row("", row.Engine, row.Subject, some(row.Cuts), some(saw.Older), some(saw.Refused), some(saw.Died),
				some(saw.Wrong), window(row))
		}
	}
	if s.Titled(titles[Lies], t) {
		s.Wrapped("  ", "older state: the contents at an earlier time, whole and in order. refused: opening or reading "+
			"failed with an error. died: the process that opened it did, or hung. wrong: contents that never were, and "+
			"no error.")
	}
	s.reasons(r, func(row Result) bool { return row.Kind == Lies && row.Verdict == NotAvailable })
}

// simulations says of each simulation what was done and compared in it.
func (s screen) simulations(r *Report) {
	t := console.Columns(2, "engine", "verdict", "histories#", "power cuts#", "kills#", "in operation#", "in recovery#",
		"faults#", "damage#", "found#", "commits#", "reads#", "wrong#", "below#")

	for _, row := range r.Results {
		did := row.Simulated
		if row.Kind != Simulate || did == nil {
			continue
		}
		style := console.Style("")
		if row.Verdict == Broken {
			style = console.Red
		}
		t.Row(style, row.Engine, string(row.Verdict), some(did.Histories), some(did.PowerCuts), some(did.Kills),
			some(did.InOperation), some(did.InRecovery), some(did.Faults), some(did.Damages), some(did.Refusals),
			some(did.Commits), some(did.Reads), some(row.Wrong), shortBounds(row.Bounds))
		if row.Verdict == Held {
			t.PaintLast(1, console.Green)
		}
	}
	if s.Titled(titles[Simulate], t) {
		s.Wrapped("  ", "Histories that each follow from a seed. in operation: crashes in the middle of an operation, among "+
			"the cuts and kills. in recovery: crashes while it opened after a crash. found: reads and openings that met "+
			"damage and said so. Every read, and the contents after every crash, were compared with what must be there.")
	}
	s.reasons(r, func(row Result) bool { return row.Kind == Simulate })
}

// reasons says why the rows of a table have their verdicts, what several rows share once.
func (s screen) reasons(r *Report, of func(Result) bool) {
	said := map[string][]string{}
	var order []string

	for _, row := range r.Results {
		if !of(row) || row.Control || row.Why == "" || row.Verdict == Broken {
			continue
		}
		name := row.Engine
		if row.Level > 0 {
			name += " at " + row.Level.String()
		}
		if len(r.Plan.Subjects) > 1 && row.Subject != "" && row.Verdict != NotAvailable {
			name += " as " + row.Subject
		}
		text := string(row.Verdict) + ": " + row.Why
		if row.Verdict == Held {
			text = row.Why
		}
		if said[text] == nil {
			order = append(order, text)
		}
		if !slices.Contains(said[text], name) {
			said[text] = append(said[text], name)
		}
	}

	for _, text := range order {
		s.Wrapped("  ", strings.Join(said[text], ", ")+": "+text)
	}
}

// reached says how often victims reached what does not come about in every run.
func (s screen) reached(r *Report) {
	for _, kind := range r.Plan.Kinds {
		sum := map[string]int{}
		for _, row := range r.Results {
			for what, times := range row.Reached {
				if row.Kind == kind && !row.Control {
					if file, ok := strings.CutPrefix(what, kinds.FileMade); ok {
						what = row.Engine + "'s " + file
					}
					sum[what] += times
				}
			}
		}

		var list []string
		for _, what := range slices.Sorted(maps.Keys(sum)) {
			list = append(list, fmt.Sprintf("%d %s", sum[what], what))
		}
		if len(list) > 0 {
			s.Wrapped("reached under "+string(kind)+": ", strings.Join(list, ", "))
		}
	}
}

// pauses says how the one who wrote to machines went on.
func (s screen) pauses(r *Report) {
	for _, row := range r.Results {
		if len(row.Pauses) == 0 || row.Control {
			continue
		}
		text := func(p Pause) string {
			return fmt.Sprintf("%d times, %s in the median, %s at most", p.Times, measure.Duration(1000*p.Median),
				measure.Duration(1000*p.Max))
		}
		overall := row.Pauses[AnyLoss]
		var by []string
		for _, loss := range slices.Sorted(maps.Keys(row.Pauses)) {
			if loss != AnyLoss {
				by = append(by, loss+" "+text(row.Pauses[loss]))
			}
		}
		s.Wrapped(row.Engine+": ", fmt.Sprintf("%s, after %d of which the owner failed; %d acknowledged, %d lost. Without "+
			"an acknowledgement: %s (%s).", console.Number(row.Cuts, "loss"), row.Cuts-overall.Times, row.Acked, row.Lost,
			text(overall), strings.Join(by, "; ")))
	}
}

// some shows a count, and a dash for none, so that what is there stands out.
func some[N int | int64](n N) string {
	if n == 0 {
		return "-"
	}

	return fmt.Sprint(n)
}

// ratio shows a number of syncs for each acknowledgement, and a question mark where it is not known.
func ratio(f float64) string {
	if f < 0 {
		return "?"
	}

	return measure.Digits(f)
}

// recoveryText shows the median and the longest time of opening.
func recoveryText(r Recovery) string {
	if r.Median < 0 {
		return "?"
	}

	return fmt.Sprintf("%.0f..%.0f", r.Median, r.Max)
}

// window shows the most that one crash took.
func window(r Result) string {
	if r.LostCommits == 0 {
		return "-"
	}

	return fmt.Sprintf("%d, %s", r.LostCommits, measure.Duration(1000*r.LossWindowMs))
}

// broken tells of each broken claim what was found, and where the evidence is.
func (s screen) broken(r *Report) {
	for _, row := range r.Results {
		if row.Verdict != Broken || row.Control {
			continue
		}
		title := fmt.Sprintf("BROKEN: %s at %v does not survive %s (%s)", row.Engine, row.Level, row.Kind, row.Subject)
		if row.Kind == Simulate {
			title = fmt.Sprintf("BROKEN: %s breaks a law in its simulation, at seed %d", row.Engine, row.Seed)
		}
		s.Printf("\n%s\n", s.Paint(console.Red, title))
		findings := row.Findings[:min(len(row.Findings), 6)]
		if len(findings) == 0 {
			findings = []string{row.Why} // a loss that is longer than the window
		}

		for _, f := range findings {
			f = strings.Join(strings.Fields(f), " ")
			s.Wrapped("  ", f[:min(len(f), 3000)])
		}

		for _, dir := range row.Evidence {
			s.Printf("  evidence: %s\n", dir)
		}
		if row.Replay != "" {
			s.Printf("  replay: %s\n", row.Replay)
		}
	}
}

// controls says whether the mutants were found out.
func (s screen) controls(r *Report) {
	for _, row := range r.Results {
		if !row.Control {
			continue
		}
		name := fmt.Sprintf("%s (%s, %s)", row.Engine, row.Kind, row.Subject)
		if row.FoundOut() {
			text := fmt.Sprintf("control: %s was found out: %d acknowledged batches lost in %d cuts", name, row.Lost, row.Cuts)
			if row.Unflushed > 0 {
				text += fmt.Sprintf(", %d never flushed", row.Unflushed)
			}
			if row.Torn > 0 {
				text += fmt.Sprintf(", %d torn", row.Torn)
			}
			if row.Lost+row.Unflushed+row.Torn == 0 {
				text = fmt.Sprintf("control: %s was found out: %s in %d cuts", name,
					console.Number(int(row.Wrong), "wrong answer"), row.Cuts)
			}
			s.Wrapped("", text+".")
			continue
		}
		if r.Partial != "" {
			s.Wrapped("", fmt.Sprintf("control: %s had not been found out yet, after %s: the run has not shown that it would "+
				"find a broken claim.", name, console.Number(row.Cuts, "crash")))
			continue
		}
		text := fmt.Sprintf("control: %s was NOT found out in %d cuts: nothing above is to be believed.", name, row.Cuts)
		s.Wrapped("", s.Paint(console.Red, text))
	}
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

// heldControls reports whether a control was not found out.
func (r *Report) heldControls() bool {
	return slices.ContainsFunc(r.Results, func(row Result) bool {
		return row.Control && !row.FoundOut()
	})
}
