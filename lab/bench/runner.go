package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/leftover"
)

// ErrInterrupted: the context ended before the run did.
var ErrInterrupted = errors.New("interrupted")

// Place says where and how children run.
type Place struct {
	// Dir is an existing directory; empty means the current one. Everything is made in one
	// new directory below it, and removed.
	Dir string
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
	dir     string
	lock    *os.File // held while the run lives, nil where there are no locks
	swept   []string // directories that killed runs had left
	machine Machine
}

// dirPrefix begins the name of a run's directory; the process's number follows.
const dirPrefix = "holdfast-bench-"

// NewRunner makes the run's directory and looks at the machine. Close removes the directory.
func NewRunner(l Lab, p Plan, at Place) (_ *Runner, err error) {
	r := &Runner{lab: l, plan: p, child: at.Child}
	if len(r.child) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		r.child = []string{self, "bench-child"}
	}
	parent := at.Dir
	if parent == "" {
		parent = "."
	}
	if parent, err = filepath.Abs(parent); err != nil {
		return nil, err
	}
	if st, err := os.Stat(parent); err != nil {
		return nil, dirError(parent, err)
	} else if !st.IsDir() {
		return nil, &holdfast.Error{Op: "bench", Path: parent, Class: holdfast.ErrBadOption, Detail: "it is a file", Remedy: "name a directory with --dir"}
	}
	r.swept = leftover.Sweep(parent, dirPrefix, leftover.Options{})
	if r.dir, err = os.MkdirTemp(parent, dirPrefix+strconv.Itoa(os.Getpid())+"-"); err != nil {
		return nil, dirError(parent, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if r.lock, err = leftover.Claim(r.dir); err != nil {
		return nil, dirError(parent, err)
	}
	if r.machine, err = describe(r.dir); err != nil {
		return nil, dirError(parent, err)
	}
	if r.machine.Disk.InMemory() && !at.AllowTmpfs {
		for _, c := range p.Cells {
			if c.Given > holdfast.Memory {
				return nil, &holdfast.Error{Op: "bench", Path: parent, Class: holdfast.ErrBadOption,
					Detail: "it is on " + r.machine.Disk.FileSystem + ", which is memory: nothing there survives power loss",
					Remedy: "name a directory on a disk with --dir, or say --allow-tmpfs, or measure --levels memory alone without reads"}
			}
		}
	}
	return r, nil
}

func dirError(dir string, err error) error {
	return &holdfast.Error{Op: "bench", Path: dir, Class: holdfast.ErrBadOption, Cause: unwrapPath(err), Remedy: "name a writable directory on a disk with room with --dir"}
}

// unwrapPath takes a file name off err where another one says it already.
func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Close removes everything that the run made.
func (r *Runner) Close() error {
	err := os.RemoveAll(r.dir)
	if r.lock != nil {
		r.lock.Close()
	}
	return err
}

// Machine is what the run is measured on.
func (r *Runner) Machine() Machine { return r.machine }

// Watcher is told how a run goes on.
type Watcher interface {
	// Starts is called before each measurement. round counts from 1, done are the measurements
	// made of all in the plan.
	Starts(c Cell, round, done int)
}

// Run measures the plan. It returns ErrInterrupted when ctx ends, and an error when it is no use
// to go on, as with a full disk. A measurement that fails does not end the run; it is in the
// report as void.
func (r *Runner) Run(ctx context.Context, w Watcher) (*Report, error) {
	p := r.plan
	report := &Report{
		Schema: Schema, Machine: r.machine, Results: []Result{}, Unavailable: append([]Unavailable{}, p.Unavailable...),
		Plan: PlanJSON{Preset: p.Preset, Engines: p.Engines, Workloads: p.Workloads, Levels: p.Levels, Clients: p.Clients,
			Rounds: p.Rounds, Seconds: p.For.Seconds(), WarmUpSeconds: p.WarmUp.Seconds(), Seed: p.Seed, Command: p.Command},
	}
	otherWork := work()
	for round := 1; round <= p.Rounds; round++ {
		for _, c := range p.Shuffled(round) {
			w.Starts(c, round, len(report.Results))
			result, err := r.measure(ctx, c, round, len(report.Results))
			if err != nil {
				return nil, err
			}
			report.Results = append(report.Results, result)
		}
	}
	report.Machine.OtherWork = otherWork()
	report.Summary = summarise(p.Cells, report.Results)
	return report, nil
}

// patience is what a child may take beyond its measuring time, to prepare, settle and verify.
const patience = 2 * time.Minute

// measure runs one child in a directory of its own.
func (r *Runner) measure(ctx context.Context, c Cell, round, n int) (Result, error) {
	workload, err := r.lab.workload(c.Workload)
	if err != nil {
		return Result{}, err
	}
	dir := filepath.Join(r.dir, strconv.Itoa(n))
	if err := os.Mkdir(dir, 0o755); err != nil {
		if ctx.Err() != nil {
			return Result{}, ErrInterrupted
		}
		return Result{}, dirError(r.dir, err)
	}
	o, err := r.runChild(ctx, spec{Cell: c, For: r.plan.For, WarmUp: r.plan.WarmUp, Dir: dir, Seed: r.plan.Seed})
	if ctx.Err() != nil {
		return Result{}, ErrInterrupted
	}
	if err != nil {
		o.Error, o.Verified = err.Error(), false
	}
	if o.Error != "" {
		// Is it the contender that failed, or what it stands on?
		if _, err := os.Stat(dir); err != nil {
			return Result{}, dirError(dir, err)
		}
		if o.Fatal {
			return Result{}, dirError(filepath.Dir(r.dir), errors.New(o.Error))
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return Result{}, dirError(r.dir, err)
	}
	result := Result{
		Workload: c.Workload, Engine: c.Engine, Asked: c.Asked, Given: c.Given, Clients: c.Clients, Round: round,
		Ops: o.Ops, WarmUpOps: o.WarmUpOps, ItemsPerOp: workload.Items, Seconds: o.Seconds, Latency: o.Latency,
		SettleSeconds: o.SettleSeconds, CPUSeconds: o.CPUSeconds, PeakRSS: o.PeakRSS, DiskBytes: o.DiskBytes,
		Commits: o.Commits, Groups: o.Groups, Syncs: o.Syncs, Items: o.Items, Checked: o.Checked,
		Verified: o.Verified, Error: o.Error, PeakDisk: o.PeakDisk, Samples: append([]Sample{}, o.Samples...),
	}
	if o.Seconds > 0 {
		result.OpsPerSec = float64(o.Ops) / o.Seconds
	}
	return result, nil
}

// runChild starts a child, hands it s and waits for its answer. When ctx ends the child is killed.
func (r *Runner) runChild(ctx context.Context, s spec) (outcome, error) {
	// The kernel kills a child with the thread that started it, not with the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	limit := s.For + s.WarmUp + patience
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	line, err := json.Marshal(s)
	if err != nil {
		return unknownOutcome(), err
	}
	cmd := exec.CommandContext(ctx, r.child[0], r.child[1:]...)
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	stderr := head{limit: 4 << 10}
	cmd.Stdout, cmd.Stderr = &out, &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return unknownOutcome(), err
	}
	if err := cmd.Start(); err != nil {
		return unknownOutcome(), err
	}
	// A child that died already will be noticed by Wait.
	_, _ = stdin.Write(append(line, '\n'))
	err = cmd.Wait() // closes stdin
	if cause := context.Cause(ctx); cause != nil {
		return unknownOutcome(), cause
	}
	var o outcome
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &o)
	}
	if err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return unknownOutcome(), fmt.Errorf("the child process failed: %w", err)
	}
	if o.PeakRSS < 0 {
		o.PeakRSS = maxRSS(cmd.ProcessState)
	}
	return o, nil
}

// head keeps the first bytes written to it: of a panic, they say what happened.
type head struct {
	limit int
	buf   []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.buf = append(h.buf, p[:min(len(p), h.limit-len(h.buf))]...)
	return len(p), nil
}

func (h *head) String() string { return string(h.buf) }
