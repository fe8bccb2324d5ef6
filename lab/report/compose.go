package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// composer makes the document of the sources.
type composer struct {
	lab     bench.Lab
	doc     *document
	costs   []float64 // of a sync, in microseconds
	looks   map[string]look
	warning string // on every plot
	plots   int
	crashes crashes
}

func compose(lab bench.Lab, sources []Source, o Options) (*document, error) {
	sources = slices.Clone(sources)
	name(sources)
	differ := differences(sources)
	if err := refuse(sources); err != nil && !o.Mixed {
		return nil, err
	}
	c := &composer{lab: lab, doc: &document{}, looks: map[string]look{}, costs: o.SyncCosts}
	if c.costs == nil {
		c.costs = defaultSyncCosts
	}
	if len(differ) > 0 {
		var what []string
		for _, d := range differ {
			what = append(what, d.What)
		}

		c.warning = "Not one machine: the reports differ in " + strings.Join(slices.Compact(what), ", ")
		for _, d := range differ {
			c.notice("bad", "the reports differ in what they were made on: "+d.String()+".")
		}
	}
	c.crashes = newCrashes(sources)

	var benches []Source
	for _, s := range sources {
		if s.Bench != nil {
			benches = append(benches, s)
			c.assign(s.Bench.Plan.Engines)
		}
	}
	c.head(sources)
	if len(benches) > 1 {
		c.beside(benches)
	}

	for _, s := range benches {
		c.bench(s, len(benches) > 1)
	}

	for _, s := range sources {
		if s.Crash != nil {
			c.crash(s)
		}
	}
	if c.doc.Engines = c.engineTable(sources); c.doc.Engines != nil {
		sec := c.section("engines", "The engines side by side", bench.MatrixNote)
		sec.Parts = append(sec.Parts, &part{Tables: []titled{*c.doc.Engines}})
	}
	c.settings(sources)
	c.missing(sources)

	for _, s := range sources {
		c.doc.Sources = append(c.doc.Sources, view(s))
	}
	c.doc.Answers = shorten(c.doc.Answers)

	var bad []string
	for _, n := range c.doc.Notices {
		if n.Class == "bad" {
			bad = append(bad, n.Text)
		} else {
			c.doc.Others = append(c.doc.Others, n)
		}
	}
	if len(bad) > 0 {
		c.doc.First = notice{"bad", strings.Join(bad, " ")}
	} else if len(c.doc.Others) > 0 {
		c.doc.First, c.doc.Others = c.doc.Others[0], c.doc.Others[1:]
	}

	return c.doc, nil
}

// shorten makes one card of answers that say the same, with what each is of. What is void or broken comes first, then
// what crashes showed, since of many answers the page shows a few.
func shorten(list []answer) (short []answer) {
	for _, a := range list {
		said := ""
		if len(a.Lines) == 1 && a.Lines[0].Rates != nil {
			said = a.Lines[0].Said + ". " + a.Lines[0].Detail
		}

		same := slices.IndexFunc(short, func(b answer) bool { return said != "" && b.Of == said })
		switch {
		case same < 0:
			a.Of = said
			short = append(short, a)
			continue
		case len(short[same].Lines) == 1:
			short[same] = answer{Question: title(strings.TrimSpace(said)), Of: said, Lines: []line{short[same].of()}}
		}
		short[same].Lines = append(short[same].Lines, a.of())
	}
	rank := func(a answer) int {
		switch l := a.Lines[0]; {
		case slices.ContainsFunc(a.Lines, func(l line) bool { return l.Class == "void" }):
			return 0
		case l.Rates == nil:
			return 1
		}

		return 2
	}
	slices.SortStableFunc(short, func(a, b answer) int { return cmp.Compare(rank(a), rank(b)) })

	return short
}

// of is the line of an answer that has one, with its question in the place of what is said.
func (a answer) of() line {
	l := a.Lines[0]
	l.Said, l.Detail = a.Question, ""

	return l
}

func (c *composer) notice(class, text string) {
	if n := (notice{class, text}); !slices.Contains(c.doc.Notices, n) {
		c.doc.Notices = append(c.doc.Notices, n)
	}
}

// plot begins a plot.
func (c *composer) plot(kind, title string) *plot {
	c.plots++
	return &plot{ID: fmt.Sprintf("p%d", c.plots), Kind: kind, Title: title, Warning: c.warning}
}

func (c *composer) section(id, title, lead string) *section {
	s := &section{ID: id, Title: title, Lead: lead}
	c.doc.Sections = append(c.doc.Sections, s)

	return s
}

// palette is how many colours the style sheet has.
const palette = 8

// references are the looks that are no engine's.
const references = 4

// assign gives engines their looks, which they keep over the page.
func (c *composer) assign(engines []string) {
	c.looks[bench.Null] = look{"null", markers[5]}
	c.looks[bench.Floor] = look{"floor", markers[7]}
	c.looks[bench.FloorMap] = look{"floor", markers[6]}
	c.looks[bench.FloorParallel] = look{"floor", markers[6]} // never in one plot with floor-map

	for _, e := range engines {
		if _, ok := c.looks[e]; !ok {
			i := len(c.looks) - references
			c.looks[e] = look{fmt.Sprintf("c%d d%d", i%palette, i/palette%3), markers[i%len(markers)]}
		}
	}
}

// look is that of an engine, also of one that is in no plan.
func (c *composer) look(engine string) look {
	c.assign([]string{engine})
	return c.looks[engine]
}

// head names the page, and says what a reader must know first.
func (c *composer) head(sources []Source) {
	d := c.doc
	var kinds []string

	for _, s := range sources {
		kind := "crashes"
		if s.Bench != nil {
			kind = "speed at equal durability"
		}
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	slices.Reverse(kinds)
	d.Title = "Holdfast: " + strings.Join(kinds, " and ")
	d.Lead = console.Number(len(sources), "report") + ". "

	for _, s := range sources {
		if s.Bench != nil {
			d.Lead += Machine(s.Bench.Machine)
			break
		}
		if len(sources) == 1 {
			m := s.Crash.Machine
			d.Lead += fmt.Sprintf("%s/%s, %s, %s.", m.OS, m.Arch, console.Number(m.CPUs, "CPU"), m.Go)
		}
	}

	for _, s := range sources {
		c.cautions(s)
	}
}

// slowSync is what a sync takes at least on many disks that people have, in microseconds.
const slowSync = 500

// cautions says what is known against the figures of a source.
func (c *composer) cautions(s Source) {
	if r := s.Crash; r != nil {
		if r.Partial != "" {
			c.notice("warn", fmt.Sprintf("%s is partial: %s.", s.Name, r.Partial))
		}

		for _, row := range r.Results {
			if row.Control && !row.FoundOut() {
				c.notice("bad", fmt.Sprintf("in %s the control %s (%s, %s), which lies, was not found out: held verdicts of "+
					"that kind mean nothing.", s.Name, row.Engine, row.Kind, row.Subject))
			}
		}

		return
	}
	r := s.Bench
	if r.Partial != "" {
		c.notice("warn", fmt.Sprintf("%s is partial: %s.", s.Name, r.Partial))
	}

	switch r.Badge.Grade {
	case bench.Smoke:
		c.notice("bad", fmt.Sprintf("%s has the badge %s.", s.Name, r.Badge))
	case bench.Indicative:
		c.notice("warn", fmt.Sprintf("%s has the badge %s.", s.Name, r.Badge))
	}
	if void := r.Void(); len(void) > 0 {
		var who []string
		for _, result := range void {
			who = append(who, result.Engine)
		}
		slices.Sort(who)
		c.notice("warn", fmt.Sprintf("%s failed verification or broke off in %s of %s, and has no rank there.",
			strings.Join(slices.Compact(who), ", "), console.Number(len(void), "measurement"), s.Name))
	}
	if sync := r.Machine.Disk.SyncP50; sync > 0 && sync < slowSync {
		c.notice("warn", fmt.Sprintf("a sync takes %s on this machine. Many disks take 0.5 to 10 ms: figures at Power "+
			"flatter "+
			"whoever syncs often. What they would be is modelled under “If a sync cost more”.", measure.Duration(sync)))
	}
	if other := r.Machine.OtherWork; other >= 0.05 {
		c.notice("warn", fmt.Sprintf("other work took %s of the machine's CPUs while %s was measured: figures are "+
			"worse, and "+
			"spread more, than on a quiet machine.", measure.Percent(other), s.Name))
	}
	if r.Machine.Disk.InMemory() {
		c.notice("bad", "the directory of "+s.Name+" was in memory: a sync reached nothing.")
	}
}

// Machine describes a machine and its disk.
func Machine(m measure.Machine) string {
	return fmt.Sprintf("%s, %s, %s %s, %s. %s", cmp.Or(m.CPU, m.Arch), console.Number(m.CPUs, "CPU"), m.OS, m.Kernel, m.Go,
		sentence(m.Sentence()))
}

// view is what is said of a source at the end.
func view(s Source) sourceView {
	v := sourceView{Name: s.Name, Data: dataURL(s.JSON)}
	fact := func(who, format string, args ...any) {
		v.Facts = append(v.Facts, item{who, fmt.Sprintf(format, args...)})
	}
	if r := s.Crash; r != nil {
		m := r.Machine
		v.Command, v.Partial = r.Plan.Command, r.Partial
		v.Machine = fmt.Sprintf("%s/%s, %s, %s", m.OS, m.Arch, console.Number(m.CPUs, "CPU"), m.Go)
		fact("Format", "%s", r.Schema)
		fact("Took", "%.0f s", r.Seconds)
		fact("Seed", "%d", r.Plan.Seed)
		fact("File systems", "%s", r.Plan.FS)

		return v
	}
	r := s.Bench
	m := r.Machine
	v.Command, v.Partial, v.Machine = r.Plan.Command, r.Partial, Machine(m)
	fact("Format", "%s", r.Schema)
	fact("Badge", "%s", r.Badge)
	if b := r.Build; b != nil {
		fact("Program", "%s", strings.TrimSpace(b.Version+" "+b.Commit))
	}
	fact("Rounds", "%d of %g s each, after %g s", r.Plan.Rounds, r.Plan.Seconds, r.Plan.WarmUpSeconds)
	fact("Seed", "%d", r.Plan.Seed)
	fact("Memory", "%s", measure.Size(m.MemoryBytes))
	if r.Plan.RAMBytes > 0 {
		fact("Memory for each measurement", "%s", measure.Size(r.Plan.RAMBytes))
	}
	fact("Virtual machine", "%s", cmp.Or(m.VM, "nothing tells of one"))
	if m.Container != "" {
		fact("Container", "%s", m.Container)
	}
	fact("Device", "%s", cmp.Or(m.Disk.Device, "not known"))
	if m.OtherWork >= 0 {
		fact("Other work", "%s of the CPUs", measure.Percent(m.OtherWork))
	}

	return v
}

// spaced puts a blank between a number and its unit.
func spaced(count string) string {
	if n := len(count); n > 0 && strings.ContainsRune("kMG", rune(count[n-1])) {
		return count[:n-1] + " " + count[n-1:]
	}

	return count
}
