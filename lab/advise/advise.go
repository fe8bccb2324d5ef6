// Package advise says which engine to take for a need, from reports of bench and crash: what they show, what the next
// weaker level would gain and cost, and where common advice is wrong on that machine. What they do not show it does not
// say; it names the command that would find out.
package advise

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/crash"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/lab/report"
	"github.com/holdfastdb/holdfast/lab/results"
)

// ErrUnmeasured says that the reports have no measurement that answers the question.
var ErrUnmeasured = errors.New("it was not measured")

// Advice is what the reports show for a need, in sentences.
type Advice struct {
	Need      Need
	From      string   // the report that the figures are of
	Short     Short    // the same in few words
	Take      string   // what to take, and why
	Crashes   string   // what became of it in crashes
	RunnerUp  string   // empty if there is none
	Weaker    string   // what the next weaker level gains and costs; empty if there is none
	Wrong     []string // common advice that these figures contradict
	Cautions  []string
	Questions []string // commands that would find out what is not known
}

// Short is an advice in the words of a table.
type Short struct {
	Take    string // "logtree", "logtree or pebble", "no claim, highest: logtree"
	Rate    string // that the engine of the highest median made
	Ahead   string // of which engine, and how many times as fast; empty if that is not shown
	Crashes int    // in which the engine kept all, of the kinds that the level must survive
}

// For is the advice of sources for a need. The error is ErrUnmeasured if none of them has such a measurement of an
// engine, with the command that makes one.
func For(lab bench.Lab, sources []report.Source, need Need) (*Advice, error) {
	found := find(lab, sources, need)
	if len(found) == 0 || len(found[0].group.Claim.Fastest) == 0 {
		return nil, &holdfast.Error{Op: string(op), Class: ErrUnmeasured, Detail: need.String(),
			Remedy: "run " + measures(need) + ", and name its file"}
	}
	source, group := found[0].source.Bench, &found[0].group
	a := &Advice{Need: need, From: found[0].source.Name}
	if len(found) > 1 {
		var others []string
		for _, f := range found[1:] {
			others = append(others, f.source.Name)
		}
		a.Cautions = append(a.Cautions, fmt.Sprintf("%s measured this too, and is not used: the first file that has it is.",
			console.List(others)))
	}
	if differ := report.Differences(sources); len(differ) > 0 {
		a.Cautions = append(a.Cautions, "The reports were not made under the same conditions: "+strings.Join(differ, "; ")+
			". What crashes show, and what was measured, is then of different machines.")
	}
	rows := crashRows(sources)
	first := a.choose(group, rows)
	if first == nil {
		return a, nil
	}
	a.Crashes = a.crashes(rows, first.Engine)
	weaker := a.weaker(lab, source, *first, rows)
	a.Wrong = commonAdvice(source.Machine, *group, *first, weaker)
	if own := source.Machine.Disk.SyncP50; need.Level == holdfast.Power && own > 0 && own < 500 {
		if slow := report.Modelled(*first, own, 5000); slow > 0 {
			a.Cautions = append(a.Cautions, fmt.Sprintf("A sync takes %s on this machine. Modelled for one of 5 ms, %s "+
				"makes %s.",
				measure.Duration(own), first.Engine, rate(*group, slow)))
		}
	}
	if source.Machine.OtherWork >= 0.05 {
		a.Cautions = append(a.Cautions, fmt.Sprintf("Other work took %s of the CPUs while this was measured.",
			measure.Percent(source.Machine.OtherWork)))
	}
	if source.Partial != "" {
		a.Cautions = append(a.Cautions, "The report is partial: "+source.Partial+".")
	}

	return a, nil
}

// answer is a group that answers a need, and the source that has it.
type answer struct {
	source report.Source
	group  bench.Group
}

// find returns what answers a need, in the order of the sources.
func find(lab bench.Lab, sources []report.Source, need Need) (list []answer) {
	for _, s := range sources {
		for _, g := range closed(lab, s.Bench) {
			if (Need{g.Workload, g.Given, g.Clients}) == need {
				list = append(list, answer{s, g})
			}
		}
	}

	return list
}

// closed are the groups of closed loops: what an open loop makes is what it was offered.
func closed(lab bench.Lab, r *bench.Report) []bench.Group {
	if r == nil {
		return nil
	}

	return slices.DeleteFunc(lab.Groups(r), func(g bench.Group) bool { return g.Offer.Open() })
}

// measures is the command that measures what a need asks for. Without --rounds, bench makes as many as it takes to show
// a difference between the engines.
func measures(n Need) string {
	return fmt.Sprintf("holdfast bench --workloads %s --levels %v --clients %d --json bench.json", n.Workload, n.Level,
		n.Clients)
}

func crashRows(sources []report.Source) (rows []crash.Result) {
	for _, s := range sources {
		if s.Crash != nil {
			for _, row := range s.Crash.Results {
				if !row.Control && row.Kind != crash.Simulate {
					rows = append(rows, row)
				}
			}
		}
	}

	return rows
}

// broken reports that a crash showed that an engine does not keep a level.
func broken(rows []crash.Result, engine string, level holdfast.Level) bool {
	return slices.ContainsFunc(rows, func(r crash.Result) bool {
		return r.Engine == engine && r.Given == level && r.Verdict == crash.Broken
	})
}

func rate(g bench.Group, ops float64) string {
	if g.Unit == "bytes" {
		return measure.Size(int64(ops*g.PerOp)) + "/s"
	}

	return measure.Count(ops*g.PerOp) + " " + g.Unit + "/s"
}

// choose says what to take. It returns the row of the engine, or nil if none can be taken.
func (a *Advice) choose(g *bench.Group, rows []crash.Result) *bench.Row {
	row := func(engine string) *bench.Row {
		i := slices.IndexFunc(g.Rows, func(r bench.Row) bool { return r.Engine == engine })
		return &g.Rows[i]
	}

	var engines []string // best first, without those that break what they claim
	for _, r := range g.Rows {
		switch {
		case r.Reference:
		case broken(rows, r.Engine, a.Need.Level):
			a.Cautions = append(a.Cautions, fmt.Sprintf("%s makes %s, and is left out: in crashes it lost what it had "+
				"acknowledged.",
				r.Engine, rate(*g, r.Median)))
		default:
			engines = append(engines, r.Engine)
		}
	}
	if len(engines) == 0 {
		a.Take, a.Short.Take = "None: every engine that was measured breaks what it claims.", "none"
		return nil
	}
	first := row(engines[0])
	claim := g.Claim
	fast := slices.DeleteFunc(slices.Clone(claim.Fastest), func(e string) bool { return !slices.Contains(engines, e) })
	made := fmt.Sprintf("%s made %s", first.Engine, rate(*g, first.Median))

	a.Short = Short{Take: "no claim, highest: " + first.Engine, Rate: rate(*g, first.Median)}
	switch {
	case claim.Shown == 0 && len(engines) > 1:
		why := claim.Why
		few := func(r bench.Row) bool { return r.Rank != nil && r.Rank.Verdict == bench.TooFewRounds }
		if slices.ContainsFunc(g.Rows, few) {
			why += ", and the first command below makes as many"
		}
		a.Take = fmt.Sprintf("Nothing is shown (%s). The highest median: %s.", why, made)
		a.Questions = append(a.Questions, measures(a.Need))
	case !first.Best && len(engines) > 1:
		a.Take = fmt.Sprintf("Of the others the highest median: %s. The statistics are of all that were measured, so "+
			"no order "+
			"is claimed among these.", made)
	case len(engines) == 1:
		a.Short.Take = first.Engine + " alone"
		a.Take = fmt.Sprintf("%s, the only one. It made %s.", first.Engine, rate(*g, first.Median))
	case len(fast) > 1:
		a.Short.Take = strings.Join(fast, " or ")
		a.Take = fmt.Sprintf("%s: no difference is shown between them, so take the one that you know. The highest "+
			"median: %s.",
			console.List(fast), made)
	default:
		a.Short.Take = first.Engine
		a.Take = fmt.Sprintf("%s. It made %s, with intervals that lie apart from all others (%s).", first.Engine,
			rate(*g, first.Median), measure.Percent(claim.Shown))
	}
	if claim.Shown > 0 && claim.Next != "" && first.Best && slices.Contains(engines, claim.Next) {
		a.Short.Ahead = fmt.Sprintf("%s %sx", claim.Next, measure.Digits(claim.Times))
		a.RunnerUp = fmt.Sprintf("%s, with %s: %s is %sx as fast.", claim.Next, rate(*g, row(claim.Next).Median),
			first.Engine,
			measure.Digits(claim.Times))
	}

	return first
}

// crashes says what became of an engine's claims at the level.
func (a *Advice) crashes(rows []crash.Result, engine string) string {
	kinds := []crash.Kind{crash.Kill}
	if a.Need.Level >= holdfast.Power {
		kinds = []crash.Kind{crash.Power, crash.Kill}
	}
	if a.Need.Level == holdfast.Memory {
		return "A write at Memory survives no crash."
	}

	var parts []string
	for _, kind := range kinds {
		cuts, trials, of := 0, 0, "crashes, if they are independent"
		for _, r := range rows {
			if r.Engine != engine || r.Given != a.Need.Level || r.Kind != kind || r.Verdict != crash.Held {
				continue
			}

			cuts += r.Cuts
			for _, b := range r.Bounds {
				if b.Of == "recording" || b.Of == "victim" { // those are independent
					trials, of = trials+int(b.N), b.Of+"s"
				}
			}
		}
		if cuts == 0 {
			a.Questions = append(a.Questions, fmt.Sprintf("holdfast crash%s --kind %s --levels %v --json crash.json",
				console.Flag("engines", engine), kind, a.Need.Level))
			parts = append(parts, fmt.Sprintf("no crash of %s of kind %s is in these reports", engine, kind))
			continue
		}
		a.Short.Crashes += cuts
		parts = append(parts, fmt.Sprintf("%s kept all in %s of kind %s, so with 95 %% confidence it loses something by "+
			"chance in fewer than %s of %s", engine, console.Number(cuts, "crash"), kind,
			measure.Percent(crash.Below(int64(cmp.Or(trials, cuts)))), of))
	}

	return strings.Join(parts, "; ") + "."
}

// gain is how the next weaker level compares.
type gain struct {
	level holdfast.Level
	times float64
	shown bool
	most  float64 // that the intervals permit, 0 if there are too few rounds to say
}

// littleGain is below what one would give up durability for.
const littleGain = 1.5

// weaker says what the next weaker level gains and costs, and returns the gain if it was measured.
func (a *Advice) weaker(lab bench.Lab, r *bench.Report, first bench.Row, rows []crash.Result) *gain {
	if a.Need.Level == holdfast.Memory {
		return nil
	}
	need := a.Need
	need.Level--

	for _, g := range closed(lab, r) {
		if (Need{g.Workload, g.Given, g.Clients}) != need {
			continue
		}

		for _, row := range g.Rows {
			if row.Engine != first.Engine {
				continue
			}
			enough := min(row.Rounds, first.Rounds) > 1 && min(row.Confidence, first.Confidence) >= measure.WantConfidence
			found := &gain{level: need.Level, times: row.Median / first.Median, shown: enough && row.Low > first.High}
			if enough && first.Low > 0 {
				found.most = row.High / first.Low
			}
			gains := fmt.Sprintf("%s made %s there, and no gain is shown", first.Engine, rate(g, row.Median))
			if !enough {
				gains = fmt.Sprintf("%s made %s there, and the rounds are too few to show a gain", first.Engine,
					rate(g, row.Median))
				a.Questions = append(a.Questions, measures(need))
			}
			if found.shown {
				gains = fmt.Sprintf("%s is %sx as fast there (%s)", first.Engine, measure.Digits(found.times), rate(g, row.Median))
			}
			a.Weaker = fmt.Sprintf("%v (%s): %s. %s", need.Level, need.Level.Survives(), gains, price(rows, need.Level,
				first.Engine))

			return found
		}
	}
	a.Questions = append(a.Questions, measures(need))

	return nil
}

// price is what a crash takes at a level that does not survive it.
func price(rows []crash.Result, level holdfast.Level, engine string) string {
	if level == holdfast.Memory {
		return "The end of the process takes all that was not yet synced, the loss window at most (one second unless " +
			"it is named)."
	}

	most, cuts := crash.Result{}, 0
	for _, r := range rows {
		if r.Engine == engine && r.Given == level && r.Kind == crash.Power && r.Verdict != crash.NotAvailable {
			cuts += r.Cuts
			if r.LossWindowMs > most.LossWindowMs {
				most = r
			}
		}
	}
	text := "A power cut takes what was acknowledged within the loss window, one second unless it is named"
	if cuts > 0 {
		text += fmt.Sprintf("; the most that one of %s took was %s (%s)", console.Number(cuts, "crash"),
			measure.Duration(1000*most.LossWindowMs), console.Number(most.LostCommits, "commit"))
	}

	return text + "."
}

// commonAdvice is what is often said and these figures contradict. Each sentence follows from a condition on them.
func commonAdvice(m measure.Machine, g bench.Group, first bench.Row, weaker *gain) (list []string) {
	own := m.Disk.SyncP50
	perSync, shared := 1e6/own, first.SyncsPerCommit
	if g.Given == holdfast.Power && own > 0 && first.Confidence >= measure.WantConfidence && shared >= 0 && shared < 0.8 &&
		first.Low > perSync {
		list = append(list, fmt.Sprintf("“With a sync of %s, %s durable commits a second are the most”: %s made "+
			"%s at least, by "+
			"its interval, with %s syncs a commit.", measure.Duration(own), measure.Count(perSync), first.Engine,
			rate(g, first.Low), measure.Digits(shared)))
	}
	if weaker != nil && weaker.most > 0 && weaker.most < littleGain {
		list = append(list, fmt.Sprintf("“Give up durability for speed”: from %v to %v, %s gains %sx at most, by "+
			"the intervals.",
			g.Given, weaker.level, first.Engine, measure.Digits(weaker.most)))
	}

	return list
}

// Request is what advice is asked for.
type Request struct {
	Paths []string // of reports; none for those that come with the program
	Need  string   // in words, as [ParseNeed] reads it; empty for what people usually need
	Full  bool     // without a need, all that was measured of writes that survive something, in sentences
	Mixed bool     // reports of different machines are permitted
}

// Command reads the reports and shows the advice for a need in sentences, or, if none is named, what to take for each
// usual one in a table. If it reads the reports that come with the program, it says so.
func Command(lab bench.Lab, r Request, t console.Terminal) error {
	return command(lab, results.Files, r, t)
}

func command(lab bench.Lab, shipped fs.FS, r Request, t console.Terminal) error {
	var needs []Need
	if r.Need != "" {
		need, err := ParseNeed(lab, r.Need)
		if err != nil {
			return err
		}
		needs = append(needs, need)
	}
	measureIt := "measure this machine: " + measures(append(needs, usual)[0]) +
		"; crash its engines: holdfast crash --json crash.json; then name both files"
	sources, err := report.Load(r.Paths, r.Mixed)
	if len(r.Paths) == 0 {
		sources, err = report.ReadAll(shipped, "*.json.gz")
	}

	switch {
	case err != nil:
		return err
	case len(sources) == 0:
		return op.BadOption("no reports are named, and none come with this build", measureIt)
	case len(r.Paths) == 0:
		announce(t.Screen(), sources, measureIt)
	}

	for _, s := range sources {
		for _, g := range closed(lab, s.Bench) {
			if n := (Need{g.Workload, g.Given, g.Clients}); r.Need == "" && !g.Reads && g.Given > holdfast.Memory &&
				!slices.Contains(needs, n) {
				needs = append(needs, n)
			}
		}
	}
	if len(needs) == 0 {
		return op.BadOption("the reports have no measurement of writes at full speed",
			"run "+measures(usual)+", and name its file")
	}
	screen := t.Screen()
	short := r.Need == "" && !r.Full
	if short {
		needs = choice(needs)
	}

	var list []*Advice
	for _, need := range needs {
		a, err := For(lab, sources, need)
		if err != nil {
			return err
		}
		list = append(list, a)
	}
	if short {
		overview(screen, list)
		return nil
	}

	for i, a := range list {
		if i > 0 {
			screen.Printf("\n")
		}
		a.show(screen)
	}

	return nil
}

// wanted are the kinds of work that people ask for, each with the workloads that stand for it, the best first.
var wanted = [][]string{
	{"event/append-1", "event/append-100"},
	{"message/write", "message/mixed"},
	{"task/lifecycle", "task/throughput"},
	{"raft/store-1", "raft/store-16", "raft/store-128"},
	{"kv/mixed", "kv/random-write", "kv/batch", "kv/overwrite", "kv/seq-write"},
}

// most is how many needs are shown of those that are none of the wanted ones.
const most = 10

// choice returns for each kind of work that people ask for what was measured of it at Process, Power and Quorum; if
// nothing was, the first of what was measured.
func choice(measured []Need) (list []Need) {
	for _, workloads := range wanted {
		for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power, holdfast.Quorum} {
			for _, workload := range workloads {
				i := slices.IndexFunc(measured, func(n Need) bool { return n.Workload == workload && n.Level == level })
				if i >= 0 {
					list = append(list, measured[i])
					break
				}
			}
		}
	}
	if len(list) == 0 {
		list = measured[:min(len(measured), most)]
	}

	return list
}

// overview shows in a table what to take for each need.
func overview(s console.Screen, list []*Advice) {
	t := console.Columns(2, "work", "survives", "clients#", "take", "it made#", "ahead of", "crashes#")
	for _, a := range list {
		crashes := "-"
		if a.Short.Crashes > 0 {
			crashes = fmt.Sprint(a.Short.Crashes)
		}
		t.Row("", a.Need.Workload, a.Need.Level.String(), fmt.Sprint(a.Need.Clients), console.Plain(a.Short.Take),
			a.Short.Rate, cmp.Or(console.Plain(a.Short.Ahead), "-"), crashes)
	}
	s.Table(t)
	s.Printf("\n")
	s.Wrapped("", "\"or\": no difference is shown between them. crashes: of the kinds that the level must survive; the "+
		"engine, or the first of several, kept all in so many.")
	s.Wrapped("more: ", "holdfast advise --need 'event append, power, 64 writers'; --full for all that was measured")
}

// usual is what is measured if nothing is said.
var usual = Need{Workload: "event/append-1", Level: holdfast.Power, Clients: 1}

// announce says that the reports came with the program: which machine they are of, and how to have one's own.
func announce(s console.Screen, sources []report.Source, instead string) {
	about := "a machine that its files name"
	for _, source := range sources {
		if r := source.Bench; r != nil {
			about = report.Machine(r.Machine)
			if b := r.Build; b != nil && b.Time != "" {
				about += fmt.Sprintf(" The program was of %s.", strings.TrimSpace(b.Time+" "+b.Commit))
			}
			break
		}
	}
	s.Wrapped("", s.Paint(console.Bold, "These figures come with the program. They were measured on the machine that "+
		"the project was measured on, not yours")+console.Plain(": "+about))
	s.Wrapped("", console.Plain("For your own, "+instead+"."))
	s.Printf("\n")
}

func (a *Advice) show(s console.Screen) {
	s.Hanging("", s.Paint(console.Bold, console.Plain("For "+a.Need.String()+":")), 2)
	line := func(name, text string) {
		if text != "" {
			s.Hanging(fmt.Sprintf("  %-14s ", name), console.Plain(text), 17)
		}
	}
	line("measured", "in "+a.From+".")
	line("take", a.Take)
	line("crashes", a.Crashes)
	line("runner-up", cmp.Or(a.RunnerUp, "none is shown."))
	line("one weaker", a.Weaker)

	for _, w := range a.Wrong {
		line("not so here", w)
	}

	for _, c := range a.Cautions {
		line("mind", c)
	}

	for _, q := range a.Questions {
		line("to find out", q)
	}
}
