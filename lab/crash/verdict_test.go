package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// row is a cell of an engine that promises given.
func row(kind Kind, given holdfast.Level) kinds.Row {
	return kinds.Row{Engine: "x", Subject: subjects.KV.Name, Level: holdfast.Memory, Given: given, Kind: kind}
}

func TestVerdicts(t *testing.T) {
	fragile := row(Power, holdfast.Process)
	fragile.Capabilities.Memory = holdfast.Promise{Given: holdfast.Process, CutMayCorrupt: true}
	fragileKill := fragile
	fragileKill.Kind = Kill
	refused := row(Kill, 0)
	refused.NotAvailable = "it cannot"
	good := protocol.Judgement{Survived: 9, Last: 9, Acked: 9, Kept: 9}
	gone := protocol.Judgement{Survived: 5, Last: 5, Acked: 9, Kept: 5, Gone: 4, Window: 12}
	lost := gone
	lost.Gone, lost.Lost, lost.Findings = 0, 4, []string{"4 are lost"}
	slow := gone
	slow.Window = float64(row(Power, holdfast.Process).WindowLimit().Milliseconds()) + 1
	// after makes crashes with these judgements, failed one that is a recovery failure.
	type crashes struct {
		cell   kinds.Row
		judged []protocol.Judgement
		fatal  bool
	}
	after := func(c kinds.Row, judged ...protocol.Judgement) crashes { return crashes{c, judged, false} }
	failed := func(c kinds.Row) crashes { return crashes{c, []protocol.Judgement{good}, true} }
	simulated := kinds.Row{Engine: "x", Kind: Simulate}
	half := protocol.Judgement{Torn: 1, Findings: []string{"half"}}
	for name, test := range map[string]struct {
		crashes
		want Verdict
		why  string
	}{
		"held":                      {after(row(Kill, holdfast.Process), good, good), Held, ""},
		"stronger than needed":      {after(row(Kill, holdfast.Power), good), Held, ""},
		"lost":                      {after(row(Kill, holdfast.Process), good, lost), Broken, "4 are lost"},
		"torn":                      {after(row(Power, holdfast.Process), half), Broken, "half"},
		"out of order":              {after(row(Kill, holdfast.Memory), protocol.Judgement{OutOfOrder: 1}), Broken, ""},
		"wrong":                     {after(row(Kill, holdfast.Memory), protocol.Judgement{Wrong: 1}), Broken, ""},
		"a recovery failure":        {failed(row(Power, holdfast.Power)), Broken, ""},
		"weaker, within the window": {after(row(Power, holdfast.Process), gone), AsDocumented, "loss window 1s"},
		"weaker, beyond the window": {after(row(Power, holdfast.Process), slow), Broken, "loss window"},
		"weaker, and does not open": {failed(row(Power, holdfast.Process)), Broken, ""},
		"but not with kill -9":      {failed(fragileKill), Broken, ""},
		"seen without a cut":        {after(row(Power, holdfast.Power)), Broken, "by the victim"},
		"not flushed":               {after(row(Power, holdfast.Power), good), Broken, "batch 7 was not flushed"},
		"flushed":                   {after(row(Power, holdfast.Power), good), Held, ""},
		"refused":                   {after(refused), NotAvailable, "it cannot"},
		"nothing tried":             {after(row(Kill, holdfast.Process)), NotAvailable, "the run ended before"},
		"nothing acknowledged":      {after(row(Kill, holdfast.Process), protocol.Judgement{}), NotAvailable, "more cuts"},
		"a good simulation":         {after(simulated, protocol.Judgement{}), Held, ""},
		"a broken simulation":       {after(simulated, protocol.Judgement{Wrong: 1}), Broken, ""},
		"weaker, nothing lost": {after(row(Kill, holdfast.Memory), good), AsDocumented,
			"nothing acknowledged was lost"},
		"weaker, some lost": {after(row(Kill, holdfast.Memory), gone, good), AsDocumented,
			"lost at most 4 commits, 12 ms"},
		"a whole store may go": {failed(fragile), AsDocumented,
			"a power cut may cost the whole store: 1 of 1 did"},
	} {
		tally := newTally(test.cell, 7)
		switch name {
		case "seen without a cut":
			tally.Wrong("by the victim")
		case "not flushed":
			tally.Flushed(9, []string{"batch 7 was not flushed"})
		case "flushed":
			tally.Flushed(9, nil)
		}
		for _, j := range test.judged {
			tally.Judged(j, test.fatal)
			if j.Broken() || test.fatal {
				tally.result.Findings = append(tally.result.Findings, j.Findings...)
			}
		}
		// What breaks shows while the run goes on, too.
		if early := tally.broken() == 1; early != (test.want == Broken) && !strings.Contains(name, "beyond the window") {
			t.Errorf("%s: %v while it runs", name, early)
		}
		if r := tally.finish(); r.Verdict != test.want || !strings.Contains(r.Why, test.why) {
			t.Errorf("%s: %s, %q", name, r.Verdict, r.Why)
		}
	}
}

// TestLiesBreakNothing: what a disk that lied has left is counted by what was seen, and breaks no claim.
func TestLiesBreakNothing(t *testing.T) {
	tally := newTally(row(Lies, holdfast.Power), 1)
	tally.Judged(protocol.Judgement{Acked: 9, Kept: 5, Gone: 4, Window: 12}, false)
	tally.Judged(protocol.Judgement{Torn: 1}, false)
	tally.Judged(protocol.Judgement{Wrong: 1}, true) // it had answered before it refused
	tally.Judged(protocol.Judgement{}, true)
	tally.Judged(protocol.Judgement{Died: true}, true)
	r := tally.finish()
	if r.Verdict != AsDocumented || r.breaches() != 0 || tally.broken() != 0 || len(r.Bounds) != 0 || r.LostCommits != 4 ||
		r.Lied == nil || *r.Lied != (Lied{Older: 1, Refused: 1, Died: 1, Wrong: 2}) ||
		!strings.Contains(r.Why, "of 5 images") || !strings.Contains(r.Why, "2 were wrong") {
		t.Errorf("%+v, %+v", r, r.Lied)
	}
	if tally.Wrong("by the victim"); tally.finish().Verdict != Broken {
		t.Error("what the victim saw before the cut was no disk's lie")
	}
}

func TestTally(t *testing.T) {
	tally := newTally(row(Kill, holdfast.Process), 7)
	tally.Judged(protocol.Judgement{Acked: 10, Kept: 8, Lost: 2, Torn: 1, OutOfOrder: 3, Wrong: 4, Window: 7}, true)
	tally.Judged(protocol.Judgement{Acked: 10, Kept: 9, Lost: 0, Gone: 1, Window: 20}, false)
	for _, ms := range []time.Duration{30, 10, 20} {
		tally.Recovered(ms * time.Millisecond)
	}
	for _, ms := range []time.Duration{30, 10, 20} {
		tally.Paused("kill", ms*time.Millisecond)
	}
	tally.Paused("power cut", 5*time.Millisecond)
	tally.Synced(100, 25)
	tally.Synced(100, 25)
	tally.Note("by the way")
	tally.Note("by the way")
	want := Result{
		Engine: "x", Level: holdfast.Memory, Given: holdfast.Process, Kind: Kill, Subject: subjects.KV.Name, Seed: 7,
		Cuts: 2, Acked: 20, Survived: 17, Lost: 2, Torn: 1, OutOfOrder: 3, Wrong: 4, RecoveryFailures: 1,
		LostCommits: 2, LossWindowMs: 20, RecoveryMs: Recovery{20, 30}, SyncsPerAck: 0.25,
		Verdict: Broken, Why: "1 recovery failures; by the way", Findings: []string{}, Evidence: []string{},
		Reached: map[string]int{}, Bounds: []Bound{},
		Pauses: map[string]Pause{"kill": {3, 20, 30}, "power cut": {1, 5, 5}, AnyLoss: {4, 20, 30}},
	}
	if r := tally.finish(); !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, want %+v", r, want)
	}
	tally.Synced(100, holdfast.Unknown)
	if r := tally.finish(); r.SyncsPerAck != holdfast.Unknown {
		t.Errorf("%v syncs per batch, of which some are not known", r.SyncsPerAck)
	}
}

// TestFilesMade: a row says how often its victims rotated, flushed or began a log anew, and nothing of what is counted
// with it.
func TestFilesMade(t *testing.T) {
	tally := newTally(row(Kill, holdfast.Process), 7)
	tally.Judged(protocol.Judgement{Acked: 10, Kept: 10}, false)
	tally.Did("victims", 5)
	tally.Did(kinds.FileMade+"N.log", 3)
	tally.Did(kinds.FileMade+"N.sst", 40)
	var out strings.Builder
	r := &Report{Plan: PlanJSON{Kinds: []Kind{Kill}}, Results: []Result{tally.finish()}}
	screen{console.Screen{W: &out, Width: 200}}.report(r)
	lines := strings.Split(out.String(), "\n")
	head := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, " files ") })
	if head < 0 || !slices.Contains(strings.Fields(strings.Join(lines[head+1:], " ")), "43") {
		t.Errorf("%s", out.String())
	}
}

func TestStatus(t *testing.T) {
	for _, test := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{op.BadOption("x", "y"), 1},
		{errors.New("x"), 1},
		{fmt.Errorf("3 of 4 rows: %w", ErrBroken), 2},
		{ErrControl, 3},
		{errors.Join(ErrBroken, ErrControl), 3},
		{&holdfast.Error{Class: holdfast.ErrUnavailable}, 4},
		{errors.Join(console.ErrInterrupted, ErrBroken), 130},
	} {
		if got := Status(test.err); got != test.want {
			t.Errorf("%v: status %d, want %d", test.err, got, test.want)
		}
	}
}

// command runs the command in this process on a lab, and returns what it wrote and its exit status.
func command(ctx context.Context, l Lab, q Request, at Place, json string) (status int, out string, err error) {
	var stdout, stderr bytes.Buffer
	err = l.Command(ctx, q, at, console.Files{JSON: json}, console.Terminal{Out: &stdout, Err: &stderr})
	return Status(err), stdout.String() + stderr.String(), err
}

func TestWrongUse(t *testing.T) {
	dir := t.TempDir()
	zero, seconds, kill := 0, -time.Second, Request{Kinds: []string{"kill"}}
	for name, test := range map[string]struct {
		q    Request
		at   Place
		json string
		says string
	}{
		"engine": {q: Request{Engines: []string{"oracle"}}, says: "the engines are logtree, pebble"},
		"level":  {q: Request{Levels: []string{"disk"}}, says: "memory, process, power"},
		"kind":   {q: Request{Kinds: []string{"fire"}}, says: "the kinds are kill, power, faults, lies, simulate"},
		"subject": {q: Request{Subjects: []string{"wheel"}},
			says: "the subjects are kv, event, message, task, transaction, raft, serve, backup"},
		"fs":        {q: Request{FS: "fat"}, says: "the file systems are ext4, xfs, btrfs, ext4-nojournal"},
		"cuts":      {q: Request{Cuts: &zero}, says: "0 cuts"},
		"for":       {q: Request{For: &seconds}, says: "use a time like 10m"},
		"json":      {q: kill, json: dir, says: "it is a directory"},
		"directory": {q: kill, at: Place{Dir: "/does/not/exist"}, says: "name a writable directory"},
	} {
		if test.at.Dir == "" {
			test.at.Dir = dir
		}
		status, out, err := command(t.Context(), Standard(), test.q, test.at, test.json)
		if status != console.ExitUse || err == nil || !strings.Contains(err.Error(), test.says) || out != "" {
			t.Errorf("%s: status %d, %v, %q", name, status, err, out)
		}
	}
}

// TestPlan: every level of every engine has its row or a reason; controls are there with each kind.
func TestPlan(t *testing.T) {
	seed := uint64(9)
	p, err := Standard().plan(Request{Kinds: []string{"kill", "simulate"}, Subjects: []string{"kv", "event"}, Seed: &seed})
	if err != nil {
		t.Fatal(err)
	}
	controls, simulated := 0, 0
	rows := map[string]bool{}
	for _, c := range p.cells {
		switch {
		case c.Control:
			controls++
		case c.Kind == Simulate:
			simulated++
		case c.NotAvailable == "" && c.Given == 0:
			t.Errorf("%+v", c)
		}
		rows[fmt.Sprint(c.Engine, c.Level, c.Kind, c.Subject)] = true
	}
	engines := len(all.Engines())
	if controls != 2 || simulated != engines || len(rows) != 2+engines+2*3*engines {
		t.Errorf("%d controls, %d simulations, %d rows", controls, simulated, len(rows))
	}
	if p.Command != "holdfast crash --kind kill,simulate --subject kv,event --seed 9" {
		t.Errorf("again: %s", p.Command)
	}
	p, err = Standard().plan(Request{Engines: []string{"sql*", "mem"}, Kinds: []string{"kill"}})
	if err != nil || !slices.Equal(p.Engines, []string{"sqlite", "sqlite-go", "mem"}) ||
		!strings.Contains(p.Command, " --engines 'sql*,mem' ") {
		t.Errorf("%v, %v", p.Engines, err)
	}
	for _, c := range p.cells {
		if c.Engine == mem.Name && c.Level > holdfast.Memory && c.NotAvailable == "" {
			t.Errorf("%+v", c)
		}
	}
	// A control stands beside something that it says something about.
	if p, err = Standard().plan(Request{Engines: []string{"mem"}, Kinds: []string{"kill"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range p.cells {
		if c.Control && c.Subject != subjects.KV.Name {
			t.Errorf("a control of nothing: %+v", c)
		}
	}
	// A store has one row of each kind unless levels are named; a peer is tested with its subject alone, and if it is
	// named.
	const everything = "kv event message task transaction raft serve backup"
	for name, w := range map[string]struct {
		q        Request
		subjects string
		rows     int // controls aside
		n        int // of them, that can be tested
	}{
		"all":           {Request{}, everything, 9*len(all.Engines()) + 1, -1},
		"one":           {Request{Engines: []string{"logtree"}}, everything, 10, 10},
		"its levels":    {Request{Engines: []string{"logtree"}, Levels: []string{"memory", "power"}}, everything, 16, 16},
		"its subjects":  {Request{Engines: []string{"logtree"}, Subjects: []string{"event", "raft"}}, "event raft", 5, 5},
		"no logtree":    {Request{Engines: []string{"bbolt"}}, strings.TrimSuffix(everything, " backup"), 9, 8},
		"not uploaded":  {Request{Engines: []string{"logtree", "bbolt"}, Subjects: []string{"backup"}}, "backup", 6, 3},
		"peers":         {Request{Engines: []string{"raft-*"}}, "raft", 4, 2},
		"with a peer":   {Request{Engines: []string{"logtree", "raft-wal"}}, everything, 12, 11},
		"of messages":   {Request{Engines: []string{"nats", "study-4"}}, "message", 6, 4},
		"with one":      {Request{Engines: []string{"logtree", "study-4"}}, everything, 13, 11},
		"of both kinds": {Request{Engines: []string{"raft-wal", "nats"}}, "message raft", 5, 4},
		"a wrong one": {
			Request{Engines: []string{"raft-wal", "logtree"}, Subjects: []string{"kv"}, Levels: []string{"power"}},
			"kv", 2, 1},
	} {
		w.q.Kinds = []string{"kill"}
		p, err := Standard().plan(w.q)
		if err != nil {
			t.Fatal(err)
		}
		rows, n := 0, 0
		for _, c := range p.cells {
			if !c.Control {
				rows++
			}
			if !c.Control && c.NotAvailable == "" {
				n++
			}
		}
		if got := strings.Join(p.Subjects, " "); got != w.subjects || rows != w.rows || w.n >= 0 && n != w.n {
			t.Errorf("%s: subjects %s, %d rows, %d can be tested; want %+v", name, got, rows, n, w)
		}
	}
	// What is not named is left out where it cannot be done, with the reason.
	p, err = Standard().plan(Request{})
	if err != nil {
		t.Fatal(err)
	}
	want := []Kind{Kill, Power, Faults}
	if blockdev.Check("ext4") != nil {
		want = []Kind{Kill}
	}
	left := slices.DeleteFunc(slices.Clone(p.missing), func(m Missing) bool { // on some file systems
		return slices.Contains(p.Kinds, m.Kind)
	})
	if !slices.Equal(p.Kinds, want) || len(p.Kinds)+len(left) != 3 {
		t.Errorf("%v, and not %v", p.Kinds, p.missing)
	}
}

// TestCuts: what is named is what each row gets; half of the default is for rows that tell less, and the header
// says so.
func TestCuts(t *testing.T) {
	five := 5
	for name, test := range map[string]struct {
		q      Request
		want   map[string]int // by the subject and level
		header string
	}{
		"default": {Request{},
			map[string]int{"kv power": 20, "kv process": 20, "kv memory": 10, "event process": 4, "message process": 4,
				"task process": 4, "transaction process": 4, "raft process": 4, "serve process": 4, "backup process": 4},
			"levels memory, process, power; 4 to 20 cuts a row; kv at all levels; event, message, task, transaction, raft, " +
				"serve, backup at the weakest that must survive;"},
		"a subject": {Request{Subjects: []string{"raft"}},
			map[string]int{"raft power": 20, "raft process": 20},
			"levels process, power; 20 cuts a row; raft;"},
		"a number": {Request{Cuts: &five},
			map[string]int{"kv power": 5, "kv process": 5, "kv memory": 5, "event process": 5, "message process": 5,
				"task process": 5, "transaction process": 5, "raft process": 5, "serve process": 5, "backup process": 5},
			"5 cuts a row;"},
		"both": {Request{Cuts: &five, Subjects: []string{"event"}, Levels: []string{"memory"}},
			map[string]int{"event memory": 5},
			"levels memory; 5 cuts a row; event;"},
		"both of a peer": {Request{Cuts: &five, Engines: []string{"raft-wal"}},
			map[string]int{"raft power": 5},
			"levels process, power; 5 cuts a row; raft;"},
	} {
		if test.q.Kinds = []string{"kill"}; test.q.Engines == nil {
			test.q.Engines = []string{"logtree"}
		}
		p, err := Standard().plan(test.q)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, c := range p.cells {
			switch n := p.rounds(c); {
			case c.Control && n != min(p.Cuts, 8) && (c.Subject == subjects.KV.Name || n != 2):
				t.Errorf("%s: %d cuts of a control", name, n)
			case !c.Control && c.NotAvailable == "":
				got[c.Subject+" "+c.Level.String()] = n
			}
		}
		if !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		var out strings.Builder
		screen{console.Screen{W: &out, Width: 1000}}.header(p)
		if !strings.Contains(out.String(), test.header) {
			t.Errorf("%s: %q, want %q", name, out.String(), test.header)
		}
	}
	faults := kinds.Row{Subject: subjects.KV.Name, Kind: Faults, Given: holdfast.Power}
	if p := (&runPlan{PlanJSON: PlanJSON{Cuts: 20}}); p.rounds(faults) != 10 {
		t.Errorf("faults by default: %d", p.rounds(faults))
	}
	if p := (&runPlan{PlanJSON: PlanJSON{Cuts: 20}, cutsNamed: true}); p.rounds(faults) != 20 {
		t.Errorf("faults of 20: %d", p.rounds(faults))
	}
}

// TestReportFits80Columns, with rows of every kind, and says of a run that ended early that it did.
func TestReportFits80Columns(t *testing.T) {
	r := &Report{Partial: "interrupted at 40 %, after 12 crashes", Plan: PlanJSON{
		Kinds: kinds.Kinds(), Subjects: []string{subjects.KV.Name, subjects.Raft.Name}, Command: "holdfast crash",
	}}
	for _, kind := range kinds.Kinds() {
		for _, subject := range r.Plan.Subjects {
			tally := newTally(kinds.Row{
				Engine: notWritten, Kind: kind, Subject: subject, Level: holdfast.Process, Given: holdfast.Process,
			}, 1)
			tally.Judged(protocol.Judgement{Acked: 1234567, Kept: 1234567, Gone: 3, Window: 12.345}, false)
			if kind == Simulate {
				tally.Simulated(Simulated{Histories: 1, PowerCuts: 12345, Reads: 7654321, Faults: 99})
			}
			r.Results = append(r.Results, tally.finish())
		}
	}
	control := kinds.Row{Engine: noSyncs, Kind: Power, Subject: subjects.KV.Name, Control: true}
	r.Results = append(r.Results, newTally(control, 1).finish())
	var out strings.Builder
	screen{console.Screen{W: &out, Width: 80}}.report(r)
	for line := range strings.Lines(out.String()) {
		if n := len(strings.TrimRight(line, "\n")); n > 80 {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
	for _, want := range []string{
		"PARTIAL: interrupted at 40 %", "held so far", "1234567", "7654321", "12345", "had not been found out yet",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "is to be believed") {
		t.Errorf("it judges a control that had no chance:\n%s", out.String())
	}
}

// TestNothingToTest: a run of controls alone says nothing about any engine, and must not end well.
func TestNothingToTest(t *testing.T) {
	for name, test := range map[string]struct {
		q     Request
		class error
		says  []string
	}{
		"volatile votes": {Request{Subjects: []string{"raft"}, Engines: []string{"mem"}}, holdfast.ErrLevel,
			[]string{"mem at process, power: ", "name other --engines or --levels"}},
		"one machine": {Request{Engines: []string{"logtree", "bbolt"}, Levels: []string{"quorum"}}, holdfast.ErrLevel,
			[]string{"logtree at quorum: it is on one machine", "bbolt at quorum: it is on one machine", "--levels"}},
		"keys of a peer": {Request{Subjects: []string{"kv"}, Engines: []string{"raft-wal"}}, holdfast.ErrBadOption,
			[]string{"to test: raft-wal: " + onlyFor[subjects.Raft.Name], "name other --engines or --subject"}},
		"a peer's level": {
			Request{Subjects: []string{"raft"}, Engines: []string{"raft-wal"}, Levels: []string{"process"}},
			holdfast.ErrLevel, []string{"raft-wal at process: ", "or --levels"}},
		"no simulation": {Request{Kinds: []string{"simulate"}, Engines: []string{"mem"}}, holdfast.ErrBadOption,
			[]string{"mem: " + noSimulation, "or --kind"}},
	} {
		if test.q.Kinds == nil {
			test.q.Kinds = []string{"kill"}
		}
		dir := t.TempDir()
		status, out, err := command(t.Context(), Standard(), test.q, Place{Dir: dir}, "")
		if status != console.ExitUse || !errors.Is(err, test.class) || out != "" {
			t.Errorf("%s: status %d, %v, %q", name, status, err, out)
			continue
		}
		for _, part := range test.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not say %q", name, err, part)
			}
		}
	}
	if err := (&runPlan{}).nothing(); !errors.Is(err, holdfast.ErrLevel) || !strings.Contains(err.Error(), faultsLevel) {
		t.Errorf("faults below power: %v", err)
	}
	device := &runPlan{cells: []kinds.Row{{
		Engine: "mem", Kind: Power, Level: holdfast.Memory, NotAvailable: noDevice, Capabilities: mem.Describe(),
	}}}
	if err := device.nothing(); !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), "or --kind") ||
		strings.Contains(err.Error(), "--levels") {
		t.Errorf("a disk for memory: %v", err)
	}
}

// TestSimulations: histories are run one seed after another, and the row says what was done in them.
func TestSimulations(t *testing.T) {
	broken := errors.New("law 3")
	lab, seeds, fails := Standard(), []uint64(nil), uint64(0)
	lab.Simulations = []Simulation{{Engine: mem.Name, One: func(_ context.Context, seed uint64) (Simulated, error) {
		seeds = append(seeds, seed)
		if fails++; fails == 3 {
			return Simulated{Kills: 7}, broken
		}
		return Simulated{Steps: 100, PowerCuts: 3, InRecovery: 2, Reads: 41}, nil
	}}}
	length, file := time.Nanosecond, filepath.Join(t.TempDir(), "report.json")
	q := Request{Kinds: []string{"simulate"}, Engines: []string{"mem", "bbolt"}, For: &length}
	status, out, err := command(t.Context(), lab, q, Place{Dir: t.TempDir()}, file)
	if status != console.ExitOK || !strings.Contains(out, "bbolt: n/a: it has no simulation") ||
		!strings.Contains(out, "held") {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
	if strings.ContainsRune(out, '?') || len(seeds) != 1 {
		t.Errorf("seeds %v\n%s", seeds, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := Simulated{Histories: 1, Steps: 100, PowerCuts: 3, InRecovery: 2, Reads: 41}
	r := checkReport(t, text).Results[1]
	if r.Engine != mem.Name || r.Simulated == nil || *r.Simulated != want || r.Cuts != 1 {
		t.Errorf("%+v", r)
	}
	// One that fails ends them: it is the one to run again.
	fails, seeds = 0, nil
	tally := newTally(kinds.Row{Engine: mem.Name, Kind: Simulate}, 10)
	err = lab.kindRunner(nil, "").Session(t.Context(), tally.cell, 10, 0, 1, time.Hour, tally)
	if err != nil || !slices.Equal(seeds, []uint64{10, 11, 12}) {
		t.Errorf("%v, seeds %v", err, seeds)
	}
	const replay = "holdfast crash --kind simulate --engines mem --seed 12"
	if r := tally.finish(); r.Verdict != Broken || r.Seed != 12 || r.Replay != replay ||
		*r.Simulated != (Simulated{Histories: 3, Steps: 200, PowerCuts: 6, Kills: 7, InRecovery: 4, Reads: 82}) {
		t.Errorf("%+v, %+v", r, r.Simulated)
	}
	fails = 2
	status, out, err = command(t.Context(), lab, q, Place{Dir: t.TempDir()}, "")
	again := fmt.Sprintf("holdfast crash --kind simulate --engines mem --seed %d", seeds[len(seeds)-1])
	if status != console.ExitWrong || !strings.Contains(out, again) || !strings.Contains(out, "law 3") {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
	// What is to be run again begins with the history that failed.
	failed := seeds[len(seeds)-1]
	fails, seeds, q.Seed = 2, nil, &failed
	status, out, err = command(t.Context(), lab, q, Place{Dir: t.TempDir()}, "")
	if status != console.ExitWrong || !slices.Equal(seeds, []uint64{failed}) {
		t.Errorf("seeds %d, want %d: status %d, %v\n%s", seeds, failed, status, err, out)
	}
}

func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../schemas/crash.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// checkReport holds a report against the published schema and decodes it.
func checkReport(t *testing.T, text []byte) *Report {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := published(t).Validate(document); err != nil {
		t.Errorf("the report is not what lab/schemas/crash.schema.json says: %v", err)
	}
	var r Report
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// TestSchemaIsStrict breaks a right report in several ways.
func TestSchemaIsStrict(t *testing.T) {
	ok := newTally(row(Kill, holdfast.Process), 7)
	ok.Judged(protocol.Judgement{Acked: 3, Kept: 3}, false)
	none := row(Power, 0)
	none.NotAvailable = "it cannot"
	simulated := kinds.Row{Engine: "x", Kind: Simulate}
	r := &Report{
		Schema: Schema, Machine: measure.Machine{OS: "x", Arch: "x", CPUs: 1, Go: "x", OtherWork: -1},
		Missing: []Missing{{Faults, "no root"}},
		Plan: PlanJSON{Engines: []string{"x"}, Levels: holdfast.Levels(), Kinds: []Kind{Kill}, Subjects: []string{"kv"},
			Cuts: 1, FS: "ext4", Command: "x"},
		Results: []Result{ok.finish(), newTally(none, 1).finish(), newTally(simulated, 1).finish()},
		Detection: finished([]*Detection{{Mutant: "x", Kind: Power, Rounds: 2, Found: 1, Limit: 20, cuts: []int{3},
			By: map[string]int{string(byFlush): 1}}}),
	}
	var text bytes.Buffer
	if err := console.WriteJSON(&text, r); err != nil {
		t.Fatal(err)
	}
	checkReport(t, text.Bytes())
	result := func(d map[string]any, i int) map[string]any { return d["results"].([]any)[i].(map[string]any) }
	for name, spoil := range map[string]func(map[string]any){
		"an unknown field":    func(d map[string]any) { result(d, 0)["extra"] = 1 },
		"another schema":      func(d map[string]any) { d["schema"] = "holdfast.crash/2" },
		"no such level":       func(d map[string]any) { result(d, 0)["level"] = "disk" },
		"no level":            func(d map[string]any) { result(d, 0)["level"] = "" },
		"no such verdict":     func(d map[string]any) { result(d, 0)["verdict"] = "fine" },
		"held with a loss":    func(d map[string]any) { result(d, 0)["lost"] = 1 },
		"held, not flushed":   func(d map[string]any) { result(d, 0)["unflushed"] = 1 },
		"held without a cut":  func(d map[string]any) { result(d, 0)["cuts"] = 0 },
		"broken without why":  func(d map[string]any) { result(d, 0)["verdict"] = "BROKEN" },
		"a negative count":    func(d map[string]any) { result(d, 0)["acked"] = -1 },
		"no such kind":        func(d map[string]any) { result(d, 1)["kind"] = "fire" },
		"missing without why": func(d map[string]any) { d["missing"].([]any)[0].(map[string]any)["why"] = "" },
		"a bound of nothing":  func(d map[string]any) { result(d, 0)["bounds"].([]any)[0].(map[string]any)["of"] = "luck" },
		"no trials":           func(d map[string]any) { result(d, 0)["bounds"].([]any)[0].(map[string]any)["n"] = 0 },
		"found without rounds": func(d map[string]any) {
			delete(d["detection"].([]any)[0].(map[string]any), "rounds")
		},
		"half a machine":    func(d map[string]any) { delete(d["machine"].(map[string]any), "cpu") },
		"no machine":        func(d map[string]any) { delete(d, "machine") },
		"findings are null": func(d map[string]any) { result(d, 0)["findings"] = nil },
	} {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		spoil(document.(map[string]any))
		if published(t).Validate(document) == nil {
			t.Errorf("%s passes", name)
		}
	}
	for _, field := range strings.Fields("engine level kind fs subject cuts acked survived lost torn out_of_order " +
		"recovery_failures verdict why syncs_per_ack recovery_ms loss_window_ms lost_commits control seed evidence replay") {
		document, _ := jsonschema.UnmarshalJSON(bytes.NewReader(text.Bytes()))
		if _, there := result(document.(map[string]any), 0)[field]; !there {
			t.Errorf("no %s in the report", field)
		}
		delete(result(document.(map[string]any), 0), field)
		if published(t).Validate(document) == nil {
			t.Errorf("a result without %s passes", field)
		}
	}
}

// TestHeldControlSpoilsTheReport, whatever else there is.
func TestHeldControlSpoilsTheReport(t *testing.T) {
	mutant := func(j protocol.Judgement, fatal bool) Result {
		c := row(Kill, holdfast.Process)
		c.Control, c.Engine = true, notWritten
		tally := newTally(c, 1)
		tally.Judged(j, fatal)
		return tally.finish()
	}
	for name, test := range map[string]struct {
		result Result
		held   bool
	}{
		"lost":             {mutant(protocol.Judgement{Lost: 1}, false), false},
		"held":             {mutant(protocol.Judgement{Acked: 1, Kept: 1}, false), true},
		"wrong in another": {mutant(protocol.Judgement{Wrong: 1}, false), true},
		"does not open":    {mutant(protocol.Judgement{}, true), true},
		"not tried":        {newTally(kinds.Row{Control: true}, 1).finish(), true},
	} {
		r := &Report{Results: []Result{test.result}}
		if r.heldControls() != test.held || r.brokenRows() != 0 {
			t.Errorf("%s: held %v, %d rows broken", name, r.heldControls(), r.brokenRows())
		}
		var out strings.Builder
		screen{console.Screen{W: &out, Width: 120}}.controls(r)
		if strings.Contains(strings.Join(strings.Fields(out.String()), " "), "nothing above is to be believed") != test.held {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
