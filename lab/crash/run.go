package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/crash/internal/evidence"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// Place says where and how children run.
type Place struct {
	// Dir is an existing directory; empty means what rundir.Choose chooses. Everything is made in one
	// new directory below it, and removed.
	Dir string
	// Keep is where evidence is kept; it is made if need be. Empty means a new directory in Dir, or, without a Dir, in the
	// current directory: the system may empty a directory of temporary files.
	Keep string
	// Child is the command line of a process that calls [Lab.Child]. Empty means this
	// executable with the argument crash-victim.
	Child []string
}

// runner runs one plan.
type runner struct {
	lab   Lab
	kinds *kinds.Runner
	dir   *rundir.Dir

	machine measure.Machine

	mu   sync.Mutex
	keep string // where evidence is kept, as named
	kept string // and as made

	chosen bool // the system's directory of temporary files, because Place.Dir is empty
}

// evidencePrefix begins the name of the directory for evidence if none is named.
const evidencePrefix = "holdfast-evidence-"

// newRunner makes the run's directory. close removes it.
func newRunner(l Lab, at Place) (_ *runner, err error) {
	r := &runner{lab: l, keep: at.Keep, chosen: at.Dir == ""}

	command, err := child.Command(at.Child, "crash-victim")
	if err != nil {
		return nil, err
	}

	// What runs have left that were killed: in other places first, where something of it is mounted, then in the directory
	// of this run.
	elsewhere := cleanUpMounted()
	if r.dir, err = rundir.Make(at.Dir, runDirs); err != nil {
		return nil, err
	}
	r.dir.Cleaned = append(elsewhere, r.dir.Cleaned...)
	r.kinds = l.kindRunner(command, r.dir.Path)

	return r, nil
}

// kindRunner makes what crashes victims. Everything is made in dir.
func (l Lab) kindRunner(command []string, dir string) *kinds.Runner {
	return &kinds.Runner{
		Child: command, Dir: dir,
		Timeouts:   cmp.Or(l.timeouts, kinds.Timeouts{Silence: time.Minute, Checking: 2 * time.Minute}),
		Subject:    func(name string) (kinds.Subject, error) { return subjectOf(name) },
		Simulation: l.simulation,
		StartNATS: func(n kinds.NATSNode, start func([]string, any) (*child.Process, error)) (string, error) {
			return contender.StartNATSNode(contender.NATSNode(n), start)
		},
	}
}

// close removes everything that the run made, but evidence.
func (r *runner) close() error { return r.dir.Close() }

// evidenceDir makes the directory for evidence when it is first needed. A run that finds nothing makes no directory.
// Several rows may ask at once.
func (r *runner) evidenceDir() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != "" {
		return r.kept, nil
	}
	if r.keep == "" {
		// The run's own directory is removed at the end, so that evidence goes beside it.
		parent := r.dir.Parent
		if r.chosen {
			parent = "."
		}
		dir, err := os.MkdirTemp(parent, evidencePrefix)
		if err != nil && r.chosen { // nothing can be made here
			dir, err = os.MkdirTemp(r.dir.Parent, evidencePrefix)
		}
		if err == nil {
			dir, err = filepath.Abs(dir)
		}
		r.kept = dir

		return dir, err
	}
	dir, err := filepath.Abs(r.keep)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrBadOption, Cause: console.WithoutPath(err),
			Remedy: "name a directory that can be made with --keep"}
	}
	r.kept = dir

	return dir, nil
}

// unit is a piece of a row's work, on one directory or disk.
type unit struct {
	tally *tally
	cuts  int
	seed  uint64
	nth   int // of the row's, counted from a place of its own
}

// watcher is told how a run goes on.
type watcher interface {
	// starts is called before each unit. done are the units done of all; broken is the number of rows, controls
	// aside, that have broken a claim so far.
	starts(c kinds.Row, done, all, broken int)
	// ended is called after each unit, with as many broken rows. soFar makes a report of what there is, which takes time.
	ended(broken int, soFar func() *Report)
	// passed is called after each pass of a run that has a length.
	passed(soFar func() *Report)
}

// workers is how many units run at the same time: they sleep, or wait for the disk, for half of the time.
func workers() int { return 2 * min(2, runtime.GOMAXPROCS(0)) }

// runState is how far a run has come.
type runState struct {
	plan      *runPlan
	machine   measure.Machine
	tallies   []*tally
	began     time.Time
	done, all int // units of this pass
}

// run carries out a plan, and returns the report, of what there is, with any error: console.ErrInterrupted when ctx
// ends, or what makes it no use to go on; that is console.ErrIncomplete if there is something to report.
func (r *runner) run(ctx context.Context, p *runPlan, w watcher) (*Report, error) {
	s := &runState{plan: p, machine: r.machine, began: time.Now()}
	for i, c := range p.cells {
		// Each row has a seed of its own, made of the plan's.
		t := newTally(c, commits.Mix(p.Seed, uint64(i))>>32)
		t.keep = r.evidenceDir
		s.tallies = append(s.tallies, t)
	}

	err := r.passes(ctx, s, w)
	switch {
	case errors.Is(err, console.ErrInterrupted):
		return s.report("interrupted", nil), err
	case err != nil:
		// What was judged before the failure counts. With nothing to report, the failure is all there is.
		report := s.report("broken off", err)
		if report.crashes() > 0 {
			err = fmt.Errorf("%w: %w", console.ErrIncomplete, err)
		}

		return report, err
	}

	// The run is complete, but evidence of a broken claim is missing: whoever reads the result must know that.
	for _, t := range s.tallies {
		if t.failed != nil {
			err = errors.Join(err, fmt.Errorf("%w: evidence could not be kept: %w", console.ErrIncomplete, t.failed))
		}
	}

	return s.report("", nil), err
}

// report makes the report of a run that came to this end, because of an error if there is one; empty if nothing is
// missing.
func (s *runState) report(end string, err error) *Report {
	p := s.plan
	report := &Report{
		Schema: Schema, Machine: s.machine, Plan: p.PlanJSON,
		Seconds: time.Since(s.began).Seconds(), Results: []Result{}, Missing: append([]Missing{}, p.missing...),
		Detection: []Detection{},
	}

	for _, t := range s.tallies {
		report.Results = append(report.Results, t.finish())
	}
	if end != "" {
		at := ""
		if p.length == 0 {
			at = fmt.Sprintf(" at %d %%,", 100*s.done/max(s.all, 1))
		}
		report.Partial = end + at + " after " + console.Number(report.crashes(), "crash")
		if err != nil {
			report.Partial += ": " + err.Error()
		}
	}

	return report
}

// passes goes through the units in shuffled order, again and again if the run has a length.
func (r *runner) passes(ctx context.Context, s *runState, w watcher) error {
	p := s.plan
	shuffle := rand.New(rand.NewPCG(p.Seed, 0))

	for pass := 0; pass == 0 || p.length > 0 && time.Since(s.began) < p.length; pass++ {
		var units []unit
		for row, t := range s.tallies {
			// The rows of a run begin at different file systems and kinds of faults, and go on from there with each pass.
			nth := int(p.Seed%64) + row + pass
			if t.cell.NotAvailable != "" || t.cell.Control && pass > 0 {
				continue
			}
			size := t.cell.Kind.PerSession()
			if size == 0 || p.soaks(t.cell) {
				size = p.Cuts // of what goes by time, and does not count them
			}

			// A row's crashes are divided into units, each on a directory or disk of its own.
			for left := p.rounds(t.cell); left > 0; left -= size {
				seed := commits.Mix(t.result.Seed, uint64(pass), uint64(len(units)))
				if t.cell.Kind == Simulate && pass == 0 {
					seed = p.Seed // so that a run with the seed of a history begins with that history
				}
				units = append(units, unit{t, min(left, size), seed, nth})
				nth++
			}
		}

		// The order is shuffled, so that a run which is interrupted has tried something of every row.
		shuffle.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
		if err := r.pass(ctx, s, units, w, pass > 0); err != nil || len(units) == 0 {
			return err
		}
		if pass == 0 { // what interrupts a long run later finds them settled
			if err := r.settleControls(ctx, s); err != nil {
				return err
			}
		}
		if p.length > 0 {
			w.passed(func() *Report { return s.report("still running", nil) })
		}
	}

	return nil
}

// rounds is how many crashes of a row are judged in one pass: as many as were asked for, and if no number was named,
// fewer in rows that tell less.
func (p *runPlan) rounds(c kinds.Row) int {
	switch {
	case c.Control && p.allSubjects && c.Subject != subjects.KV.Name:
		return min(p.Cuts, 2)
	case c.Control:
		return min(p.Cuts, 8)
	case p.cutsNamed:
		return p.Cuts
	case p.allSubjects && c.Subject != subjects.KV.Name:
		return (p.Cuts + 4) / 5 // what is below it has its own
	case c.Kind == Faults:
		return (p.Cuts + 1) / 2
	case c.Given < c.Kind.Survives():
		return (p.Cuts + 1) / 2 // it is known what comes of it
	}

	return p.Cuts
}

// pass goes through the units once. mayEnd says that the run's length may end it.
func (r *runner) pass(ctx context.Context, s *runState, units []unit, w watcher, mayEnd bool) error {
	group, unitCtx := errgroup.WithContext(ctx)
	group.SetLimit(workers())
	s.done, s.all = 0, len(units)

	var mu sync.Mutex // covers the watcher and s
	broken := func() (n int) {
		for _, t := range s.tallies {
			n += t.broken()
		}

		return n
	}
	for _, u := range units {
		if unitCtx.Err() != nil || mayEnd && time.Since(s.began) >= s.plan.length {
			break
		}
		group.Go(func() error {
			// The number of broken rows is taken with the lock, and a unit runs without it: units may last for minutes.
			mu.Lock()
			w.starts(u.tally.cell, s.done, s.all, broken())
			mu.Unlock()
			err := r.unit(unitCtx, s.plan, s.began, u)
			mu.Lock()
			defer mu.Unlock()

			// A unit that was broken off is not counted as done.
			if err == nil {
				s.done++
				w.ended(broken(), func() *Report { return s.report("still running", nil) })
			}

			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return console.ErrInterrupted
	}

	return nil
}

// soaks reports whether a row goes on with one lab for the length of the run.
func (p *runPlan) soaks(c kinds.Row) bool {
	return c.Subject == kinds.Nodes && !c.Control && p.length > 0 && len(p.Subjects) == 1
}

// unit does one piece of work. Of a run with a length a simulation gets what is left of it, and so does what soaks.
func (r *runner) unit(ctx context.Context, p *runPlan, began time.Time, u unit) error {
	if ctx.Err() != nil {
		return console.ErrInterrupted
	}

	length := min(p.left(began), simulationSlice)
	switch {
	case p.soaks(u.tally.cell):
		length = p.left(began)
	case u.tally.cell.Kind == Machine:
		length = 0
	}

	return r.kinds.Session(ctx, u.tally.cell, u.seed, u.nth, u.cuts, length, u.tally)
}

// simulationSlice is how long the simulations of one pass go on at most, so that a long run reports as it goes.
const simulationSlice = time.Minute

// left is what is left of the length of a run that began then, not 0, so that a simulation that ends at a broken claim
// does not begin the whole length anew; 0 if no length was named.
func (p *runPlan) left(began time.Time) time.Duration {
	if p.length == 0 {
		return 0
	}

	return max(p.length-time.Since(began), 1)
}

// settleControls gives controls that chance has spared more rounds.
func (r *runner) settleControls(ctx context.Context, s *runState) error {
	for _, t := range s.tallies {
		// A control that finds nothing would say that the lab finds nothing, so it is tried several times before that is
		// believed.
		for try := range uint64(cmp.Or(r.lab.controlTries, 10)) {
			if !t.cell.Control || t.result.broke() {
				break
			}
			u := unit{t, kinds.KillsPerSession, commits.Mix(t.result.Seed, 1<<40+try), int(try)}
			if err := r.unit(ctx, s.plan, s.began, u); err != nil {
				return err
			}
		}
	}

	return nil
}

// replay checks evidence again.
func (r *runner) replay(
	ctx context.Context, dir string, f *evidence.File,
) (j protocol.Judgement, fatal bool, err error) {
	e, err := r.lab.engine(f.Spec.Engine)
	if err != nil {
		return j, false, err
	}
	image, err := evidence.OpenImage(dir, f)
	if err != nil {
		return j, false, err
	}

	// The evidence stays as it is: a directory is copied before it is opened.
	work := filepath.Join(r.dir.Path, "replay")
	if image != nil {
		mounted, err := image.Mount(ctx, blockdev.Options{Dir: r.dir.Path})
		if err != nil {
			return j, false, err
		}
		defer mounted.Close()
		work = mounted.Path()
	} else if err := evidence.CopyKept(dir, work); err != nil {
		return j, false, r.dir.Error(err)
	}
	c := kinds.Row{
		Engine: e.Name, Subject: f.Spec.Subject, Level: f.Spec.Level, Given: f.History.Level, Kind: f.Kind,
		Mount: blockdev.Mount{FS: f.FS},
		Peer:  r.lab.only(e.Name) != "", Capabilities: e.Describe(),
	}

	return r.kinds.Replay(ctx, c, f.History, f.Spec, work, newTally(c, f.Spec.Seed))
}
