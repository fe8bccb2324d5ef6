package crash

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
	"github.com/holdfastdb/holdfast/lab/internal/leftover"
)

// Place says where and how children run.
type Place struct {
	// Dir is an existing directory; empty means the current one. Everything is made in one
	// new directory below it, and removed.
	Dir string
	// Keep is where evidence is kept; it is made if need be. Empty means a new directory in Dir.
	Keep string
	// Child is the command line of a process that calls [Lab.Child]. Empty means this
	// executable with the argument crash-victim.
	Child []string
}

// runner runs one plan.
type runner struct {
	lab   Lab
	child []string
	dir   string
	lock  *os.File // held while the run lives, nil where there are no locks
	swept []string // directories that killed runs had left

	mu     sync.Mutex
	parent string
	keep   string // named
	kept   string // made
}

// The names of a run's directory and of that for evidence begin so; the process's number follows.
const (
	dirPrefix      = "holdfast-crash-"
	evidencePrefix = "holdfast-evidence-"
)

// newRunner makes the run's directory. close removes it.
func newRunner(l Lab, at Place) (_ *runner, err error) {
	r := &runner{lab: l, child: at.Child, keep: at.Keep}
	if len(r.child) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		r.child = []string{self, "crash-victim"}
	}
	if r.parent = at.Dir; r.parent == "" {
		r.parent = "."
	}
	if r.parent, err = filepath.Abs(r.parent); err != nil {
		return nil, err
	}
	if st, err := os.Stat(r.parent); err != nil {
		return nil, dirError(r.parent, err)
	} else if !st.IsDir() {
		return nil, &holdfast.Error{Op: "crash", Path: r.parent, Class: holdfast.ErrBadOption, Detail: "it is a file", Remedy: "name a directory with --dir"}
	}
	r.swept = sweep(r.parent)
	if r.dir, err = os.MkdirTemp(r.parent, dirPrefix+strconv.Itoa(os.Getpid())+"-"); err != nil {
		return nil, dirError(r.parent, err)
	}
	if r.lock, err = leftover.Claim(r.dir); err != nil {
		return nil, errors.Join(dirError(r.parent, err), r.close())
	}
	return r, nil
}

func dirError(dir string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrBadOption, Cause: err, Remedy: "name a writable directory on a disk with room with --dir"}
}

// close removes everything that the run made, but evidence.
func (r *runner) close() error {
	err := os.RemoveAll(r.dir)
	if r.lock != nil {
		r.lock.Close()
	}
	return err
}

// evidenceDir makes the directory for evidence when it is first needed.
func (r *runner) evidenceDir() (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept != "" {
		return r.kept, nil
	}
	if r.keep == "" {
		dir, err := os.MkdirTemp(r.parent, evidencePrefix)
		r.kept = dir
		return dir, err
	}
	dir, err := filepath.Abs(r.keep)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", dirError(dir, err)
	}
	r.kept = dir
	return dir, nil
}

// unit is a piece of a row's work, on one directory or disk.
type unit struct {
	tally *tally
	cuts  int
	seed  uint64
}

// watcher is told how a run goes on.
type watcher interface {
	// starts is called before each unit. done are the units done of all; broken is the number of rows, controls
	// aside, that have broken a claim so far.
	starts(c cell, done, all, broken int)
}

// workers is how many units run at the same time: their children wait for the disk most of the time.
func workers() int { return min(2, runtime.GOMAXPROCS(0)) }

// run carries out a plan. The error is ErrInterrupted when ctx ends, or that it is no use to go on.
func (r *runner) run(ctx context.Context, p *runPlan, w watcher) (*Report, error) {
	began := time.Now()
	report := &Report{
		Schema: Schema, Machine: Machine{runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), runtime.Version()},
		Plan: PlanJSON{Engines: p.engines, Levels: p.levels, Kinds: p.kinds, Subjects: p.subjects, Cuts: p.cuts, FS: p.fs, Seed: p.seed,
			Seconds: p.length.Seconds(), Command: p.command},
		Results: []Result{}, Missing: append([]Missing{}, p.missing...),
	}
	var tallies []*tally
	for i, c := range p.cells {
		tallies = append(tallies, newTally(c, mix(p.seed, uint64(i))>>32))
	}
	err := r.passes(ctx, p, tallies, w, began)
	if err == nil {
		err = r.settleControls(ctx, p, tallies)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range tallies {
		if t.failed != nil {
			return nil, t.failed
		}
		report.Results = append(report.Results, t.finish())
	}
	report.Seconds = time.Since(began).Seconds()
	return report, nil
}

// passes goes through the units in shuffled order, again and again if the run has a length.
func (r *runner) passes(ctx context.Context, p *runPlan, tallies []*tally, w watcher, began time.Time) error {
	shuffle := rand.New(rand.NewPCG(p.seed, 0))
	for pass := 0; pass == 0 || p.length > 0 && time.Since(began) < p.length; pass++ {
		var units []unit
		for _, t := range tallies {
			if t.cell.notAvailable != "" || t.cell.Control && pass > 0 {
				continue
			}
			size := map[Kind]int{Kill: killsPerSession, Power: cutsPerRecord, Faults: cutsPerFault, Simulate: p.cuts}[t.cell.Kind]
			for left := p.rounds(t.cell); left > 0; left -= size {
				units = append(units, unit{t, min(left, size), mix(t.result.Seed, uint64(pass), uint64(len(units)))})
			}
		}
		shuffle.Shuffle(len(units), func(i, j int) { units[i], units[j] = units[j], units[i] })
		if err := r.pass(ctx, p, units, tallies, w, began, pass > 0); err != nil {
			return err
		}
		if len(units) == 0 {
			return nil
		}
	}
	return nil
}

// rounds is how many crashes of a row are judged in one pass: as many as were asked for, and where nobody has said how many,
// half of the usual number in rows that tell less.
func (p *runPlan) rounds(c cell) int {
	switch {
	case c.Control:
		return min(p.cuts, 8)
	case p.cutsNamed:
		return p.cuts
	case p.allSubjects && c.Subject == rafts.Name:
		return (p.cuts + 1) / 2 // it is an addition
	case c.Kind == Faults:
		return (p.cuts + 1) / 2
	case c.Given < c.Kind.survives() && c.Kind == Kill:
		return (p.cuts + 1) / 2 // it is known what comes of it
	}
	return p.cuts
}

func (r *runner) pass(ctx context.Context, p *runPlan, units []unit, tallies []*tally, w watcher, began time.Time, mayEnd bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan unit)
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		done  int
		first error
	)
	for range workers() {
		group.Go(func() {
			for u := range queue {
				broken := 0
				for _, t := range tallies {
					broken += t.broken()
				}
				mu.Lock()
				w.starts(u.tally.cell, done, len(units), broken)
				mu.Unlock()
				err := r.unit(ctx, p, u)
				mu.Lock()
				done++
				if err != nil && first == nil {
					first = err
					cancel(err)
				}
				mu.Unlock()
			}
		})
	}
feed:
	for _, u := range units {
		if mayEnd && time.Since(began) >= p.length {
			break
		}
		select {
		case queue <- u:
		case <-ctx.Done():
			break feed
		}
	}
	close(queue)
	group.Wait()
	if first != nil {
		return first
	}
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return nil
}

func (r *runner) unit(ctx context.Context, p *runPlan, u unit) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	switch c := u.tally.cell; c.Kind {
	case Kill:
		return r.killSession(ctx, c, u.seed, u.cuts, u.tally)
	case Power:
		return r.powerSession(ctx, c, u.seed, u.cuts, u.tally)
	case Faults:
		return r.faultSession(ctx, c, u.seed, u.cuts, u.tally)
	default:
		return r.simulate(ctx, c, u.seed, p, u.tally)
	}
}

// controlTries is how many more units a control gets that has not been found out.
const controlTries = 10

// settleControls gives controls that chance has spared more rounds.
func (r *runner) settleControls(ctx context.Context, p *runPlan, tallies []*tally) error {
	for _, t := range tallies {
		for try := uint64(0); t.cell.Control && t.broken() == 0 && t.result.Lost == 0 && try < controlTries; try++ {
			if err := r.unit(ctx, p, unit{t, killsPerSession, mix(t.result.Seed, 1<<40+try)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// broken is 1 if the row has broken a claim so far; of controls it does not tell.
func (t *tally) broken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := &t.result; t.cell.Control || t.excused() || r.Lost+r.Torn+r.OutOfOrder+r.Wrong+r.RecoveryFailures == 0 {
		return 0
	}
	return 1
}

// simulate runs an engine's own simulation.
func (r *runner) simulate(ctx context.Context, c cell, seed uint64, p *runPlan, t *tally) error {
	length := p.length
	if length == 0 {
		length = 20 * time.Second
	}
	result, err := r.lab.simulation(c.Engine).Run(ctx, seed, length)
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.Cuts += result.Histories
	if err != nil {
		t.result.Wrong++
		t.result.Seed = result.Failed
		t.result.Findings = append(t.result.Findings, err.Error())
		t.result.Replay = "holdfast crash --kind simulate --engines " + c.Engine + " --seed " + strconv.FormatUint(result.Failed, 10)
	}
	return nil
}

// replayOne checks evidence again.
func (r *runner) replayOne(ctx context.Context, dir string) (*evidenceFile, Judgement, bool, error) {
	f, h, err := load(dir)
	if err != nil {
		return nil, Judgement{}, false, err
	}
	work := ""
	if _, err := os.Stat(filepath.Join(dir, imageName)); err == nil {
		image, err := blockdev.OpenImage(filepath.Join(dir, imageName), f.FS)
		if err != nil {
			return nil, Judgement{}, false, err
		}
		mounted, err := image.Mount(ctx, blockdev.Options{Dir: r.dir})
		if err != nil {
			return nil, Judgement{}, false, err
		}
		defer mounted.Close()
		work = mounted.Path()
	} else {
		work = filepath.Join(r.dir, "replay")
		if err := copyTree(filepath.Join(dir, treeName), work); err != nil {
			return nil, Judgement{}, false, dirError(dir, err)
		}
	}
	e, err := r.lab.engine(f.Engine)
	if err != nil {
		return nil, Judgement{}, false, err
	}
	c := cell{Engine: f.Engine, Subject: f.Subject, Level: f.Level, Kind: f.Kind, FS: f.FS, peer: r.lab.peer(f.Engine), capabilities: e.Describe()}
	c.Given = c.capabilities.Promise(c.Level).Given
	rnd := rand.New(rand.NewPCG(f.Seed, 9))
	j, fatal, err := r.judge(ctx, c, h, f.Spec, work, rnd, newTally(c, f.Seed), nil)
	if err != nil || fatal || j.broken() {
		return f, j, fatal, err
	}
	// What a victim could not do shows when one goes on.
	h.Skipped = append(h.Skipped, j.Skipped...)
	h.begin(f.Spec.Gen+1, j.Survived+1)
	v := &victim{command: r.child, spec: r.victimSpec(c, work, h, killRate), ledger: &ledger{}, place: func(uint64) position { return 0 }, entry: c.capabilities}
	if err := r.runVictim(ctx, v, moment{acks: replayAcks}, nil); err != nil {
		return f, j, false, err
	}
	for _, finding := range v.ledger.findings() {
		j.find(&j.Wrong, "going on, %s", finding)
	}
	return f, j, false, nil
}

// replayAcks is how many batches are written after what evidence holds was found in order.
const replayAcks = 20
