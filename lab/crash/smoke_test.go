package crash

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	wal "github.com/hashicorp/raft-wal"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/files"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/contender/rust"
	"github.com/holdfastdb/holdfast/lab/crash/internal/flawed"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// TestMain plays a victim when a test starts this binary again, or a whole run for tests that end it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == contender.ServerArgument {
		os.Exit(contender.Serve(os.Stdin, os.Stdout))
	}
	if len(os.Args) > 2 {
		switch lab := labs()[os.Args[2]]; os.Args[1] {
		case "crash-victim":
			os.Exit(lab.Child(os.Stdin, os.Stdout))
		case "crash-run":
			os.Exit(runHere(lab, os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]))
		case "be-witnessed":
			os.Exit(Status(lab.BeWitnessed(context.Background(), os.Args[3], os.Args[4], logtree.Name, console.Standard())))
		}
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // tests wait for disks and servers half of the time
	os.Exit(m.Run())
}

// runHere is a run of many cuts in dir, until it is interrupted. fs and json, a file, may be empty.
func runHere(lab Lab, name, dir, kinds, fs, json string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cuts := 1000
	q := Request{Engines: []string{logtree.Name}, Levels: []string{"power"}, Kinds: strings.Split(kinds, ","), Cuts: &cuts,
		FS: fs}
	at := Place{Dir: dir, Child: victims(name, dir)}
	err := lab.Command(ctx, q, at, console.Files{JSON: json}, console.Terminal{Out: os.Stdout, Err: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return Status(err)
}

// victims is the command line of children of that lab. mark can be found in it.
func victims(lab, mark string) []string { return []string{os.Args[0], "crash-victim", lab, mark} }

// The labs of tests, by name.
const (
	standard     = "standard"
	mutated      = "mutated"
	uncontrolled = "uncontrolled" // mutated, without controls
	impatient    = "impatient"    // nor does it wait for anything for long
	honest       = "honest"
)

// readsGoBack is an engine of the mutated lab.
const readsGoBack = "reads go back"

// opener opens an engine.
type opener func(dir string, o holdfast.Options) (holdfast.Engine, error)

func labs() map[string]Lab {
	with := func(name string, open opener) all.Entry {
		return all.Entry{Name: name, Describe: bbolt.Describe, Open: open}
	}
	// used reports that something is in a directory.
	used := func(dir string) bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) > 0
	}
	// spoiled applies a change to what is there, each time it is opened.
	spoiled := func(change func(e holdfast.Engine, b *holdfast.Batch) error) opener {
		return func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			e, err := bbolt.Open(dir, o)
			if err != nil {
				return nil, err
			}
			var b holdfast.Batch
			if err := change(e, &b); err != nil {
				return nil, errors.Join(err, e.Close())
			}
			if err := holdfast.Commit(e, &b, o.Level); err != nil {
				return nil, errors.Join(err, e.Close())
			}
			return e, nil
		}
	}
	first := func(e holdfast.Engine, prefix string, do func(key, value []byte)) error {
		it := e.Scan(holdfast.Range{Lo: []byte(prefix), Hi: []byte(prefix + "\xff")})
		if it.Next() {
			do(bytes.Clone(it.Key()), bytes.Clone(it.Value()))
		}
		return it.Close()
	}
	mutants := Standard()
	mutants.Engines = append(mutants.Engines,
		with("refuses", func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			if used(dir) {
				return nil, errors.New("it will not open what is there")
			}
			return bbolt.Open(dir, o)
		}),
		with("tears", spoiled(func(e holdfast.Engine, b *holdfast.Batch) error {
			return first(e, "s/", func(key, _ []byte) { b.Delete(key) })
		})),
		with("flips", spoiled(func(e holdfast.Engine, b *holdfast.Batch) error {
			return first(e, "s/", func(key, value []byte) {
				value[len(value)-1]++ // a flip would be mended by the next opening
				b.Set(key, value)
			})
		})),
		with("loses a place", spoiled(func(e holdfast.Engine, b *holdfast.Batch) error {
			return first(e, "m\x00s", func(key, _ []byte) { b.Delete(key) }) // of the message store: docs/format-message.md
		})),
		with("forgets a task", spoiled(func(e holdfast.Engine, b *holdfast.Batch) error {
			return first(e, "t\x00t", func(key, _ []byte) { b.Delete(key) }) // of the task store: docs/format-task.md
		})),
		with("invents", spoiled(func(_ holdfast.Engine, b *holdfast.Batch) error {
			b.Set([]byte("zebra"), []byte("striped"))
			return nil
		})),
		with("hangs", func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			if used(dir) {
				select {}
			}
			return bbolt.Open(dir, o)
		}))
	mutants.Engines = append(mutants.Engines, flawedEngine(logFirst, flawed.None, 1),
		flawedEngine(indexFirst, flawed.IndexFirst, 1))
	for name, spoil := range spoils {
		peer := with(name, func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			again := used(dir)
			e, err := bbolt.Open(dir, o)
			if err != nil {
				return nil, err
			}
			s, err := raftlog.Open(e, raftlog.Options{Level: o.Level})
			if err != nil {
				return nil, errors.Join(err, e.Close())
			}
			p := spoiltRaft{e, s}
			switch {
			case spoil == nil && again:
				return fullRaft{p}, nil
			case spoil == nil:
				return p, nil
			}
			if err := spoil(s); err != nil {
				return nil, errors.Join(err, p.Close())
			}
			return p, nil
		})
		mutants.Peers[subjects.Raft.Name] = append(mutants.Peers[subjects.Raft.Name], peer)
	}
	for _, spoil := range []string{faultless, showsTwice, changesData, writesTwice, showsEarly} {
		mutants.Peers[subjects.Message.Name] = append(mutants.Peers[subjects.Message.Name],
			with(spoil, openOwnMessages(spoil)))
	}
	mutants.Engines = append(mutants.Engines, all.Entry{Name: readsGoBack, Describe: logtree.Describe,
		Open: openBackAndForth})
	for _, e := range all.Engines() {
		if e.Name == mutantBase {
			// Said to give Process, and gives Memory.
			mutants.Engines = append(mutants.Engines, weakened(e, "forgets", holdfast.Memory))
		}
	}
	// The controls are made of an engine that gives more than they ask it for.
	good := Standard()
	for i, e := range good.Engines {
		if e.Name == mutantBase {
			good.Engines[i].Open = func(dir string, o holdfast.Options) (holdfast.Engine, error) {
				base, err := e.Open(dir, o)
				return atLeast{base, holdfast.Process}, err
			}
		}
	}
	good.controlTries = 1
	alone := mutants // without controls
	alone.Engines = slices.DeleteFunc(slices.Clone(mutants.Engines),
		func(e all.Entry) bool { return e.Name == mutantBase })
	hasty := alone // controls could not be opened in time by a slow machine
	hasty.timeouts = kinds.Timeouts{Silence: time.Minute, Checking: time.Second}
	return map[string]Lab{standard: Standard(), mutated: mutants, uncontrolled: alone, impatient: hasty, honest: good}
}

// atLeast commits at a level at least.
type atLeast struct {
	holdfast.Engine
	level holdfast.Level
}

func (e atLeast) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	return e.Engine.Apply(b, max(level, e.level))
}

// request is a short run.
func request(kind Kind, cuts int, levels string, engines ...string) Request {
	seed := uint64(2)
	return Request{Engines: engines, Kinds: []string{string(kind)}, Levels: strings.Split(levels, ","), Cuts: &cuts,
		Seed: &seed}
}

// ran runs the command on a lab with real children, and returns its exit status and report, nil if there is none.
func ran(t *testing.T, lab string, q Request) (int, *Report, string) {
	t.Helper()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "report.json")
	at := Place{Dir: dir, Keep: filepath.Join(t.TempDir(), "keep"), Child: victims(lab, dir)}
	status, out, err := command(t.Context(), labs()[lab], q, at, file)
	if err != nil {
		out += err.Error()
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return status, nil, out
	}
	return status, checkReport(t, text), out
}

// believable holds what every row of a good run must have against a report.
func believable(t *testing.T, r *Report, out string, kind Kind) {
	t.Helper()
	if r == nil {
		t.Fatalf("no report\n%s", out)
	}
	rows, controls, acked := 0, 0, int64(0) // one victim may be killed before its first acknowledgement; not all
	for _, row := range r.Results {
		switch {
		case row.Control:
			if controls++; row.Verdict != Broken || row.Lost == 0 || row.Level != kind.Survives() {
				t.Errorf("control: %+v", row)
			}
		case row.Verdict == Held:
			acked += row.Acked
			took := row.RecoveryMs
			if rows++; row.Cuts == 0 || row.Survived != row.Acked || took.Max < took.Median || took.Median <= 0 {
				t.Errorf("%+v", row)
			}
			// A disk sees each flush. A victim that is killed early has not told of its syncs yet.
			seen := kind == Power && row.Acked > 0 || row.Acked > 1000
			if row.Level == holdfast.Power && seen && row.SyncsPerAck <= 0 {
				t.Errorf("Power without a sync: %+v", row)
			}
		case sealed(row):
			t.Logf("raft-wal takes no more appends: docs/findings/raft-wal.md, seed %d", row.Seed)
		case row.Verdict != NotAvailable:
			t.Errorf("%+v", row)
		}
	}
	if rows == 0 || controls != 1 || acked == 0 {
		t.Errorf("%d rows, %d controls, %d acknowledged\n%s", rows, controls, acked, out)
	}
}

// sealed reports that a row shows what docs/findings/raft-wal.md tells, and nothing else: a kill at the wrong
// moment, and raft-wal keeps what it had and takes no more; or a read of it fails beside a deletion. It is no fault of
// the lab, nor of a store of ours.
func sealed(row Result) bool {
	other := func(finding string) bool {
		return !strings.Contains(finding, wal.ErrSealed.Error()) && !strings.Contains(finding, os.ErrClosed.Error())
	}
	return row.Engine == contender.RaftWAL && row.Verdict == Broken &&
		row.Lost+row.Torn+row.OutOfOrder+row.RecoveryFailures == 0 && !slices.ContainsFunc(row.Findings, other)
}

// held makes a short run, and wants all that is claimed to hold, but for what is known of raft-wal.
func held(t *testing.T, q Request) (*Report, string) {
	t.Helper()
	status, r, out := ran(t, standard, q)
	want := console.ExitOK
	if r != nil && slices.ContainsFunc(r.Results, sealed) {
		want = console.ExitWrong
	}
	if status != want {
		t.Fatalf("status %d, want %d\n%s", status, want, out)
	}
	return r, out
}

// TestKill kills victims of three engines, at every level that must survive it; .ci/run those of every engine, on every
// subject.
func TestKill(t *testing.T) {
	t.Parallel()
	q := request(Kill, 2, "process,power", logtree.Name, bbolt.Name, files.Name)
	q.Subjects = []string{subjects.KV.Name}
	r, out := held(t, q)
	believable(t, r, out, Kill)
	for _, name := range q.Engines {
		if !strings.Contains(out, name) {
			t.Errorf("nothing of %s in\n%s", name, out)
		}
	}
}

// TestKillRust kills the victims of engines that a program in Rust serves: it ends with its victim, and what comes
// after waits for that. What thunderdb does then is its own matter: docs/findings/thunderdb.md.
func TestKillRust(t *testing.T) {
	t.Parallel()
	if _, err := rust.Path(); err != nil {
		t.Skip("THE ENGINES IN RUST ARE NOT TESTED: ", err)
	}
	q := request(Kill, 4, "process,power", contender.Redb, contender.Fjall)
	q.Subjects = []string{subjects.KV.Name}
	r, out := held(t, q)
	believable(t, r, out, Kill)
	q.Engines = []string{contender.Thunderdb}
	if status, _, out := ran(t, standard, q); status != console.ExitOK && status != console.ExitWrong {
		t.Errorf("status %d\n%s", status, out)
	}
}

// TestKillBackup loses machines that are backed up all the time, and restores them. The control is an uploader that
// reports what it has not uploaded.
func TestKillBackup(t *testing.T) {
	t.Parallel()
	q := request(Kill, 4, "process", logtree.Name)
	q.Subjects = []string{subjects.Backup.Name}
	status, r, out := ran(t, standard, q)
	if believable(t, r, out, Kill); status != console.ExitOK {
		t.Errorf("status %d: %s", status, out)
	}
}

func TestKillEventStore(t *testing.T) {
	t.Parallel()
	q := request(Kill, 2, "process", logtree.Name)
	q.Subjects = []string{subjects.Event.Name}
	r, out := held(t, q)
	believable(t, r, out, Kill)
}

func TestKillTaskStore(t *testing.T) {
	t.Parallel()
	q := request(Kill, 2, "power", logtree.Name)
	q.Subjects = []string{subjects.Task.Name}
	r, out := held(t, q)
	believable(t, r, out, Kill)
}

func TestKillMessageStore(t *testing.T) {
	t.Parallel()
	q := request(Kill, 2, "power", logtree.Name, faultless)
	q.Subjects = []string{subjects.Message.Name}
	status, r, out := ran(t, mutated, q)
	if status != console.ExitOK {
		t.Fatalf("status %d\n%s", status, out)
	}
	believable(t, r, out, Kill)
}

// TestKillRaft kills victims that work on Raft stores, ours and others'.
func TestKillRaft(t *testing.T) {
	t.Parallel()
	q := request(Kill, 2, "power", logtree.Name, bbolt.Name, contender.RaftWAL, contender.RaftBoltDB)
	q.Subjects = []string{subjects.Raft.Name}
	r, out := held(t, q)
	believable(t, r, out, Kill)
	for _, name := range q.Engines {
		if !strings.Contains(out, name) {
			t.Errorf("nothing of %s in\n%s", name, out)
		}
	}
}

func needsDisk(t *testing.T) {
	t.Helper()
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
}

func TestPower(t *testing.T) {
	t.Parallel()
	needsDisk(t)
	for kind, engines := range map[Kind][]string{Power: {logtree.Name, bbolt.Name}, Faults: {logtree.Name}} {
		q := request(kind, 5, "power", engines...)
		q.Subjects = []string{subjects.KV.Name}
		r, out := held(t, q)
		if kind == Power {
			believable(t, r, out, kind)
		}
		for _, row := range r.Results { // a third of the cuts at least
			if again := row.Reached[kinds.CutAgain]; kind == Power && row.Verdict == Held && again < 2 {
				t.Errorf("%s: %d of 5 disks were cut again", row.Engine, again)
			}
		}
	}
}

// TestLies: a disk that lies takes what was acknowledged, and the run says what was seen and ends well.
func TestLies(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("TestReadsAreJudged cuts the power with the same code")
	}
	needsDisk(t)
	q := request(Lies, 10, "power", logtree.Name)
	q.Subjects = []string{subjects.KV.Name}
	status, r, out := ran(t, standard, q)
	if status != console.ExitOK || r == nil || len(r.Results) != 1 {
		t.Fatalf("status %d\n%s", status, out)
	}
	row := r.Results[0]
	if row.Lied == nil || row.Lied.Older+row.Lied.Refused+row.Lied.Died+row.Lied.Wrong != row.Cuts ||
		row.Verdict != AsDocumented || row.LostCommits == 0 || !strings.Contains(out, "older state") {
		t.Errorf("%+v, %+v\n%s", row, row.Lied, out)
	}
	if row.Lied != nil && row.Lied.Wrong+row.Lied.Died > 0 {
		t.Errorf("logtree took for its contents what never was: %s", row.Findings)
	}
}

// TestReadsThatFail: logtree answers them with errors, and does not die of them.
func TestReadsThatFail(t *testing.T) {
	t.Parallel()
	needsDisk(t)
	lab := Standard()
	dir := t.TempDir()
	r, err := newRunner(lab, Place{Dir: dir, Child: victims(standard, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	tally := newTally(kinds.Row{Engine: logtree.Name, Subject: subjects.KV.Name, Level: holdfast.Power,
		Given: holdfast.Power, Kind: Faults, Mounts: blockdev.Mounts("ext4"), Capabilities: logtree.Describe()}, 1)
	cuts := 6
	if testing.Short() { // the race detector sees the same in two, in which by chance nothing may have failed
		cuts = 2
	}
	if err := r.kinds.Session(t.Context(), tally.cell, 1, 1, cuts, 0, tally); err != nil {
		t.Fatal(err)
	}
	if row := tally.finish(); row.Verdict != Held || row.Cuts == 0 ||
		row.Reached["reads that failed"] == 0 && !testing.Short() || row.Reached["processes ended by reads that failed"] > 0 {
		t.Errorf("%s %q %d cuts, %v", row.Verdict, row.Why, row.Cuts, row.Reached)
	}
}

// TestPowerRaft cuts the power of the default engine's Raft store and of others.
func TestPowerRaft(t *testing.T) {
	t.Parallel()
	needsDisk(t)
	q := request(Power, 2, "power", logtree.Name, contender.RaftWAL, contender.RaftBoltDB)
	q.Subjects = []string{subjects.Raft.Name}
	r, out := held(t, q)
	believable(t, r, out, Power)
}

func TestPowerMessageAndTaskStore(t *testing.T) {
	t.Parallel()
	needsDisk(t)
	q := request(Power, 2, "power", logtree.Name)
	q.Subjects = []string{subjects.Message.Name, subjects.Task.Name}
	status, r, out := ran(t, standard, q)
	if status != console.ExitOK || r == nil || r.heldControls() {
		t.Errorf("status %d\n%s", status, out)
	}
}

// TestMutantsAreFoundOut: engines and stores that break one thing each, with evidence that shows it again.
func TestMutantsAreFoundOut(t *testing.T) {
	// missing counts what is not there: whether it had been acknowledged hangs on the moment of the kill.
	missing := func(r Result) int64 { return r.Lost + r.Torn + r.OutOfOrder }
	// Without its last operation, a store is as it was before that one.
	const lost = "acknowledged ones are lost"
	unopened := func(r Result) int64 { return r.RecoveryFailures }
	wrong := func(r Result) int64 { return r.Wrong }
	for name, test := range map[string]struct {
		count func(r Result) int64
		says  string // or lost, or, if the first opening found nothing yet, that the second one differs
	}{
		"refuses":          {unopened, "it will not open what is there"},
		"hangs":            {unopened, "it hangs: it had not been opened, read and closed after 1s"},
		"tears":            {func(r Result) int64 { return r.Torn }, "is there in part"},
		"flips":            {wrong, "its bytes are damaged"},
		"invents":          {wrong, "no batch wrote it"},
		"forgets the vote": {missing, "LastVoteTerm is not there"},
		"forgets the term": {wrong, "no operation stored that there"},
		"resurrects":       {wrong, "no operation stored that there"},
		"leaves a hole":    {missing, "which it stored, is not there"},
		"mixes up":         {wrong, "it does not hold what was stored"},
		"shortens":         {missing, "which it stored, is not there"},
		"takes no more":    {wrong, "the victim failed: storing"},
		"loses a place":    {wrong, "all messages disagree"},
		showsTwice:         {wrong, "is read behind"},
		changesData:        {wrong, "it is not what operation"},
		writesTwice:        {wrong, "repeated, and told"},
		"forgets a task":   {wrong, "does not agree with task"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && !slices.Contains([]string{"hangs", "tears", "shortens", showsTwice, "forgets a task"}, name) {
				t.Skip("the race detector finds in the others of a subject what it finds in one")
			}
			t.Parallel()
			lab, q := uncontrolled, request(Kill, 3, "power", name)
			if name == "hangs" {
				lab = impatient
			}
			switch {
			case name == "loses a place" || labs()[lab].only(name) == subjects.Message.Name:
				q.Subjects = []string{subjects.Message.Name}
			case name == "forgets a task":
				q.Subjects = []string{subjects.Task.Name}
			case labs()[lab].only(name) == subjects.Raft.Name:
				*q.Cuts = 4 // some victims are killed before their first vote
			default:
				q.Subjects = []string{subjects.KV.Name}
			}
			var row Result
			found := ""
			// Where victims are killed hangs on chance, and what is found on that: one of some runs finds it, each longer.
			for try := range 5 {
				*q.Seed, *q.Cuts = *q.Seed+1, *q.Cuts+2*try
				status, r, out := ran(t, lab, q)
				why := fmt.Sprintf("status %d\n%s", status, out)
				if status == console.ExitWrong && r != nil {
					row = r.Results[slices.IndexFunc(r.Results, func(row Result) bool { return !row.Control })]
					found = strings.Join(row.Findings, "\n")
					differs := strings.Contains(found, "opened again")
					says := strings.Contains(found, test.says) || differs ||
						row.Torn+row.OutOfOrder+row.Wrong+row.RecoveryFailures == 0 && strings.Contains(found, lost)
					if row.Verdict == Broken && (test.count(row) > 0 || differs) && len(row.Evidence) > 0 && row.Replay != "" && says {
						break
					}
					why = fmt.Sprintf("%+v", row)
				}
				if t.Log(why); try == 4 {
					t.Fatal("not found out")
				}
			}
			var again bytes.Buffer
			dir := t.TempDir()
			at := Place{Dir: dir, Child: victims(lab, dir)}
			err := labs()[lab].Replay(t.Context(), row.Evidence[0], at, console.Terminal{Out: &again, Err: &again})
			if Status(err) != console.ExitWrong {
				t.Errorf("replayed: %v\n%s", err, again.String())
			}
			if strings.Contains(found, "holdfast-crash-") {
				t.Errorf("a finding names a directory that is gone: %s", found)
			}
			if strings.Contains(found+again.String(), "it acknowledged nothing") {
				t.Errorf("a victim that failed did not say so:\n%s\n%s", found, again.String())
			}
		})
	}
}

// TestReadsAreJudged: what a reader saw, or a follower was shown, must not be gone later.
func TestReadsAreJudged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind    Kind
		subject string
		says    string
	}{
		readsGoBack: {Kill, subjects.KV.Name, "a reader had seen"},
		showsEarly:  {Power, subjects.Message.Name, "shown by a follower"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.kind == Power {
				needsDisk(t)
			}
			q := request(test.kind, 5, "power", name)
			q.Subjects = []string{test.subject}
			for try := range 5 { // moments hang on chance
				*q.Seed, *q.Cuts = *q.Seed+1, *q.Cuts+5*try
				status, _, out := ran(t, uncontrolled, q)
				if strings.Contains(strings.Join(strings.Fields(out), " "), test.says) && status == console.ExitWrong {
					return
				}
				t.Logf("status %d\n%s", status, out)
			}
			t.Error("not found out")
		})
	}
}

// TestHonestControl: a run whose control gives what it says ends with 3.
func TestHonestControl(t *testing.T) {
	t.Parallel()
	q := request(Kill, 1, "power", bbolt.Name)
	q.Subjects = []string{subjects.KV.Name}
	status, r, out := ran(t, honest, q)
	if status != console.ExitControl || r == nil || !r.heldControls() || !strings.Contains(out, "NOT found out") {
		t.Errorf("status %d\n%s", status, out)
	}
}

func TestReplayNeedsEvidence(t *testing.T) {
	var out bytes.Buffer
	err := Standard().Replay(t.Context(), t.TempDir(), Place{Dir: t.TempDir()}, console.Terminal{Out: &out, Err: &out})
	if Status(err) != console.ExitUse || !strings.Contains(err.Error(), "name a directory that a run kept as evidence") {
		t.Errorf("%v", err)
	}
}

// TestReplayOfAnotherVersion: what the batches of a seed contain has changed since, so that it would be judged wrongly.
func TestReplayOfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	text := `{"Schema": "holdfast.crash.evidence/1", "Engine": "bbolt", "Level": "power", "Kind": "kill", "Subject": "kv"}`
	if err := os.WriteFile(filepath.Join(dir, "evidence.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err := Standard().Replay(t.Context(), dir, Place{Dir: t.TempDir()}, console.Terminal{Out: &out, Err: &out})
	if Status(err) != console.ExitUse ||
		!strings.Contains(err.Error(), "another version of holdfast kept this evidence") ||
		!strings.Contains(err.Error(), "replay it with the version that kept it") || out.Len() > 0 {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestWithoutBlockDevices: a kind that is named and cannot be done is 4; TestPlan has what happens otherwise.
func TestWithoutBlockDevices(t *testing.T) {
	if runtime.GOOS == "linux" && blockdev.Check("ext4") == nil {
		t.Skip("this machine has block devices for tests")
	}
	q := request(Power, 1, "power", bbolt.Name)
	status, out, err := command(t.Context(), Standard(), q, Place{Dir: t.TempDir()}, "")
	if status != console.ExitCannot || !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
}
