package crash

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/crash/internal/evidence"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Command is one run of the crash command. files are where the report goes. A run that is interrupted or
// breaks off shows and writes what it has found until then; the JSON is written again and again while it goes
// on. [Status] tells the exit status of its error.
func (l Lab) Command(ctx context.Context, q Request, at Place, files console.Files,
	t console.Terminal,
) (err error) {
	plan, err := l.plan(q)

	// What cannot be prepared leaves the list of engines, so the plan is made again.
	if err == nil && contender.Prepare(ctx, plan.Engines, t.Err) != nil && ctx.Err() == nil {
		plan, err = l.plan(q) // without those that cannot be had
	}
	if err != nil {
		return err
	}

	// The report's file is opened before anything is crashed: a run of hours must not end with a name that cannot be
	// written.
	file, err := t.OpenFiles("crash", files)
	if err != nil {
		return err
	}
	r, err := newRunner(l, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	if r.machine, err = measure.Describe(r.dir.Path); err != nil {
		return r.dir.Error(err)
	}
	s := screen{t.Screen()}
	s.header(plan)
	r.dir.Show(s.Screen)
	p := newProgress(t, file)
	run, show := r.run, s.report
	if q.Mutants {
		run, show = r.detection, s.detection
	}
	report, err := run(ctx, plan, p)
	p.End()

	// A run that was interrupted before its first crash has nothing to show.
	if report.Partial == "" || report.crashes() > 0 || report.tried() {
		show(report)
		err = errors.Join(err, file.Write(report))
	}
	if n := report.brokenRows(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d rows: %w", n, len(report.Results), ErrBroken))
	}

	// A control that an interrupted run has not found out yet says nothing: more rounds might have.
	if report.missed() || report.Partial == "" && report.heldControls() {
		err = errors.Join(err, ErrControl)
	}

	return err
}

// Replay checks again what a run has kept as evidence in dir, and leaves that as it is. The error is
// ErrBroken if it is found again.
func (l Lab) Replay(ctx context.Context, dir string, at Place, t console.Terminal) (err error) {
	f, err := evidence.Load(dir)
	if err != nil {
		return err
	}
	r, err := newRunner(l, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()

	issued, bound := f.History.Issued, f.History.Bound // replaying goes on from there
	j, fatal, err := r.replay(ctx, dir, f)
	if err != nil {
		return err
	}
	s := screen{t.Screen()}
	s.Wrapped("", fmt.Sprintf("%s at %v, %s, %s: %s", f.Spec.Engine, f.Spec.Level, f.Kind, f.Spec.Subject, f.When))
	s.Wrapped("", fmt.Sprintf("batches 1 to %d were issued and 1 to %d must be there; 1 to %d are, "+
		"%d is the last one of which something is", issued, bound, j.Survived, j.Last))
	s.Wrapped("", fmt.Sprintf("lost %d, torn %d, out of order %d, wrong %d", j.Lost, j.Torn, j.OutOfOrder, j.Wrong))

	for _, finding := range j.Findings {
		s.Wrapped("  ", finding)
	}
	if fatal || j.Broken() {
		return ErrBroken
	}
	s.Wrapped("", "nothing is wrong this time, also when it is written to; what the run had found:")

	for _, finding := range f.Findings {
		s.Wrapped("  ", finding)
	}

	return nil
}
