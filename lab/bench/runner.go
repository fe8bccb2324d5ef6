package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// Place says where and how children run.
type Place struct {
	// Dir is an existing directory; empty means what rundir.Choose chooses. Everything is made in one
	// new directory below it, and removed.
	Dir string
	// FS is a file system that is made in an image below Dir, and mounted, to measure on it; see
	// blockdev.FileSystems. Empty means that of Dir. It needs root.
	FS string
	// AllowTmpfs permits Process and Power on a file system that is memory.
	AllowTmpfs bool
	// Child is the command line of a process that calls [Lab.Child]. Empty means this
	// executable with the argument bench-child.
	Child []string
}

// Runner measures one plan.
type Runner struct {
	lab     Lab
	plan    Plan
	child   []string
	dir     *rundir.Dir
	machine measure.Machine
	ram     *measure.RAM // nil for no limit
	old     *Report      // of a run that is resumed, nil if none is
}

// NewRunner makes the run's directory and looks at the machine. Close removes the directory.
func NewRunner(l Lab, p Plan, at Place) (_ *Runner, err error) {
	r := &Runner{lab: l, plan: p}
	if r.child, err = child.Command(at.Child, "bench-child"); err != nil {
		return nil, err
	}
	if r.dir, err = rundir.Make(at.Dir, rundir.Options{Op: "bench", Prefix: "holdfast-bench-"}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.machine, err = measure.Describe(r.dir.Path); err != nil {
		return nil, r.dir.Error(err)
	}
	if err := p.fits(r.machine); err != nil {
		return nil, err
	}
	if p.RAMBytes > 0 {
		if r.ram, err = measure.LimitRAM(p.RAMBytes); err != nil {
			return nil, &holdfast.Error{Op: "bench", Class: holdfast.ErrBadOption, Detail: "memory cannot be limited here",
				Cause: err, Remedy: "run as root on Linux, or without --ram"}
		}
	}
	if !at.AllowTmpfs {
		err = refuseMemory(r.machine.Disk, r.dir.Parent, p.Cells)
	}

	return r, err
}

// refuseMemory is the error for levels above memory where the disk is memory.
func refuseMemory(d measure.Disk, dir string, cells []Cell) error {
	if !d.InMemory() || !slices.ContainsFunc(cells, func(c Cell) bool { return c.Given > holdfast.Memory }) {
		return nil
	}

	return &holdfast.Error{Op: "bench", Path: dir, Class: holdfast.ErrBadOption,
		Detail: "it is on " + d.FileSystem + ", which is memory: nothing there survives power loss",
		Remedy: "name a directory on a disk with --dir, or say --allow-tmpfs, or measure --levels memory alone without reads"}
}

// Close removes everything that the run made.
func (r *Runner) Close() error {
	err := r.dir.Close()
	if r.ram != nil {
		err = errors.Join(err, r.ram.Close())
	}

	return err
}

// Watcher is told how a run goes on.
type Watcher interface {
	// Starts is called before each measurement. round counts from 1, done are the measurements
	// made of all in the plan.
	Starts(c Cell, round, done int)
	// Measured is called after each one. soFar makes a report of what there is.
	Measured(soFar func() *Report)
}

// Run measures the plan, and returns the report, of what there is, with any error: console.ErrInterrupted when
// ctx ends, or what makes it no use to go on, as a directory that is gone; that is console.ErrIncomplete if there is
// something to report. A measurement that fails does not end the run; it is in the report as void.
func (r *Runner) Run(ctx context.Context, w Watcher) (*Report, error) {
	p := r.plan
	report := &Report{
		Schema: Schema, Machine: r.machine, Plan: p.PlanJSON, Results: []Result{}, Summary: []Summary{},
		Contenders:  []Contender{},
		Unavailable: append([]Unavailable{}, p.Unavailable...),
	}
	build := console.ThisBuild()
	report.Build = &build
	done, before := map[slot]bool{}, float64(holdfast.Unknown) // the share of other work
	if r.old != nil {
		var err error
		if done, err = report.resumed(r.old, p.Cells); err != nil {
			return report, err
		}
		before = report.Machine.OtherWork
	}
	otherWork := measure.Work()

	soFar := func(end string, err error) *Report {
		if end != "" {
			end = report.partial(len(p.Cells), end, err)
		}
		report.Partial, report.Machine.OtherWork = end, max(otherWork(), before)
		report.summarise(p.Cells)

		return report
	}
	for round := 1; round <= p.Rounds; round++ {
		for _, c := range p.Shuffled(round) {
			if done[slot{c, round}] {
				continue
			}
			w.Starts(c, round, len(report.Results))

			result, err := r.measure(ctx, c, round, len(report.Results))
			switch {
			case errors.Is(err, console.ErrInterrupted):
				return soFar("interrupted", nil), err
			case err != nil:
				report := soFar("broken off", err)
				if len(report.Results) > 0 {
					err = fmt.Errorf("%w: %w", console.ErrIncomplete, err)
				}

				return report, err
			}
			report.Results = append(report.Results, result)
			report.ran(result.ran)
			w.Measured(func() *Report { return soFar("still running", nil) })
		}
	}

	return soFar("", nil), nil
}

// childTimeout is what a child may take beyond its measuring time, to prepare, settle and verify; and slowest, how many
// times as long as the average of its work.
const (
	childTimeout = 2 * time.Minute
	slowest      = 10
)

// measureOnce runs one child in a directory of its own. An error is not of this measurement alone.
func (r *Runner) measureOnce(ctx context.Context, c Cell, round, n int) (Result, error) {
	workload, err := r.lab.workload(c.Workload)
	if err != nil {
		return Result{}, err
	}

	dir := filepath.Join(r.dir.Path, strconv.Itoa(n))
	o := unknownOutcome()
	switch err = os.Mkdir(dir, 0o755); {
	case ctx.Err() != nil:
		return Result{}, console.ErrInterrupted
	case err != nil && !diskRefuses(err):
		return Result{}, r.dir.Error(err)
	case err == nil:
		o, err = r.runChild(ctx, request{Cell: c, For: r.plan.For, WarmUp: r.plan.WarmUp, Dir: dir, Seed: r.plan.Seed,
			Memory: r.plan.MemoryBytes})
		if ctx.Err() != nil {
			return Result{}, console.ErrInterrupted
		}
	default:
		o.Disk = true
	}
	if err != nil {
		o.Error, o.Verified = err.Error(), false
	}
	if o.Error != "" && !o.Disk {
		// Is it the contender that failed, or was its directory taken away?
		if _, err := os.Stat(dir); err != nil {
			return Result{}, r.dir.Error(err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return Result{}, r.dir.Error(err)
	}
	result := Result{Cell: c, Round: round, ItemsPerOp: workload.Items, KeyOrder: workload.KeyOrder,
		Measurement: o.Measurement, ran: o.Ran, DiskFailed: o.Disk}
	if o.Seconds > 0 {
		result.OpsPerSec = float64(o.Ops) / o.Seconds
	}

	return result, nil
}

// diskRefuses reports that the disk, not the contender, failed: it is full, or takes no writes.
func diskRefuses(err error) bool {
	return errors.Is(err, holdfast.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EROFS) ||
		errors.Is(err, syscall.EDQUOT)
}

// runChild starts a child, hands it the request and waits for its answer. When ctx ends the child is killed.
func (r *Runner) runChild(ctx context.Context, q request) (outcome, error) {
	limit := q.For + q.WarmUp + childTimeout + slowest*q.Cell.Overhead
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	p, err := child.Start(r.child, q)
	if err != nil {
		return unknownOutcome(), err
	}

	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	if r.ram != nil {
		if err := r.ram.Add(p.PID()); err != nil {
			p.Kill()
			_, _ = p.Wait()

			return unknownOutcome(), err
		}
	}
	var o outcome
	answer := json.NewDecoder(p.Out).Decode(&o)
	_, _ = io.Copy(io.Discard, p.Out)
	p.CloseInput()
	state, err := p.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return unknownOutcome(), cause
	}
	if err == nil && answer != nil {
		err = p.Said(answer)
	}
	if err != nil {
		return unknownOutcome(), fmt.Errorf("the child process failed: %w", err)
	}
	if o.PeakRSS < 0 && !r.lab.isServer(q.Cell.Engine) {
		o.PeakRSS = measure.MaxRSS(state)
	}

	return o, nil
}
