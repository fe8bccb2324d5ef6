// Package load measures HTTP servers: what a server makes of the engine below it.
//
// A run loads one server or more in turns, in rounds, each on a fresh directory if the run starts it. Beside them it
// loads null, a server that answers constants: what a server takes beyond that is its own, and ratios of rounds that
// follow each other mean something where absolute figures, of a generator and a server that share a machine, mean less.
//
// In a closed loop each client begins an operation when its last one has ended; in an open one operations are due at
// fixed times, and latencies count from then. Each answer to a write names the level that it was given: all must name
// the same, and none less than was asked for.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// op is the command, for errors.
const op console.Op = "load"

// ErrWrong: operations failed, messages were not delivered, or a server's memory or goroutines grew.
var ErrWrong = errors.New("failed verification")

const nullName = "null"

// Status is the exit status for an error of [Command].
func Status(err error) int {
	return console.Status(err, console.Exit{Err: ErrWrong, Status: console.ExitWrong})
}

// Limits of what can be asked for.
const (
	maxWorkers   = 4096
	maxFollowers = 100_000
	maxRounds    = 1000
	minFor       = 10 * time.Millisecond
	maxFor       = 48 * time.Hour
	maxEvents    = 1_000_000_000
	maxBatch     = 1000 // the server takes no more
	minRAM       = 64   // MiB
	maxRAM       = 1 << 30
)

// Request is what the user asked for. What is nil or empty is the shape's.
type Request struct {
	Shape     string
	URL       string   // a server that is there
	Serve     []string // the flags of holdfast serve, of each server that is started
	Null      bool
	Token     string // of the default namespace, for URL; servers that are started are given one
	Level     string
	Workers   *int
	Rate      *float64
	Followers *int
	Events    *int64 // that are appended, where the shape is one of so many
	Batch     *int   // events of one operation, there
	RAM       *int64 // MiB of memory for each server that is started, with the system's cache of its files
	Rounds    *int
	For       *time.Duration
	WarmUp    *time.Duration
	Seed      *uint64
}

// Place says where servers that are started keep their data, and how they are started.
type Place struct {
	Dir string // an existing directory; empty means what rundir.Choose chooses
	// Null and Serve are command lines: of a process that calls [ServeNull], and of holdfast serve. Empty means this
	// executable.
	Null, Serve []string
}

// plan checks a request, and says what will be measured.
func plan(r Request) (Plan, Shape, []Target, error) {
	none := func(err error) (Plan, Shape, []Target, error) { return Plan{}, Shape{}, nil, err }
	shapes := Shapes()
	var names []string
	for _, s := range shapes {
		names = append(names, s.Name)
	}
	i := slices.Index(names, cmp.Or(r.Shape, names[0]))
	if i < 0 {
		return none(op.Unknown("shape", r.Shape, names))
	}
	shape := shapes[i]

	// The shape says what is usual, and flags go before it.
	p := Plan{Shape: shape.Name, Targets: []string{}, Workers: shape.workers, Rate: shape.rate,
		Followers: shape.followers, Events: shape.events, Batch: shape.batch, Rounds: 3,
		Seconds: shape.length.Seconds(), WarmUpSeconds: 1,
		Seed: uint64(rand.Uint32())}
	if shape.Name == Soak {
		p.Rounds, p.WarmUpSeconds = 1, 10
	}
	if shape.Name == Events {
		p.Rounds, p.WarmUpSeconds = 1, 0
	}
	var targets []Target
	if r.Null {
		targets = append(targets, Target{Name: nullName, kind: isNull})
	}
	if r.URL != "" {
		if _, err := hostOf(r.URL); err != nil {
			return none(err)
		}
		targets = append(targets, Target{Name: r.URL, kind: isThere})
	}

	for _, flags := range r.Serve {
		name := "serve"
		if args := strings.Fields(flags); len(args) > 0 {
			name += " " + strings.Join(args, " ")
		}
		targets = append(targets, Target{Name: name, kind: isServed, args: strings.Fields(flags)})
	}

	// Tables name servers by these names.
	for _, t := range targets {
		if slices.Contains(p.Targets, t.Name) {
			return none(op.BadOption(fmt.Sprintf("%q is named twice", t.Name), "name each server once"))
		}
		p.Targets = append(p.Targets, t.Name)
	}

	switch {
	case len(targets) == 0:
		return none(op.BadOption("there is nothing to load",
			"name a server with --url, or let one be started with --serve='--level process', or load --null"))
	case r.Null && shape.null == nil:
		return none(op.BadOption("null has no answers for shape "+shape.Name, "leave out --null"))
	case r.Token == "" && r.URL != "":
		return none(op.BadOption("the server that --url names needs a token",
			"name that of its default namespace with --token"))
	}
	set(&p.Workers, r.Workers)
	set(&p.Rate, r.Rate)
	set(&p.Followers, r.Followers)
	set(&p.Events, r.Events)
	set(&p.Batch, r.Batch)
	set(&p.Rounds, r.Rounds)
	if r.RAM != nil {
		p.RAMBytes = *r.RAM << 20
	}
	if r.For != nil {
		p.Seconds = r.For.Seconds()
	}
	if r.WarmUp != nil {
		p.WarmUpSeconds = r.WarmUp.Seconds()
	}
	set(&p.Seed, r.Seed)
	if r.Level != "" {
		level, err := holdfast.ParseLevel(r.Level)
		if err != nil {
			return none(op.Unknown("level", r.Level, levelNames))
		}
		p.Level = level.String()
	}

	length := time.Duration(p.Seconds * float64(time.Second))
	switch {
	case p.Workers < 1 || p.Workers > maxWorkers:
		return none(op.BadOption(fmt.Sprintf("%d workers", p.Workers), fmt.Sprintf("from 1 to %d are possible", maxWorkers)))
	case shape.followers == 0 && p.Followers != 0:
		return none(op.BadOption("shape "+shape.Name+" has no followers", "leave out --followers"))
	case shape.followers > 0 && (p.Followers < 1 || p.Followers > maxFollowers):
		return none(op.BadOption(console.Number(p.Followers, "follower"),
			fmt.Sprintf("from 1 to %d are possible", maxFollowers)))
	case shape.events == 0 && (p.Events != 0 || p.Batch != 0):
		return none(op.BadOption("shape "+shape.Name+" does not append so many events", "leave out --events and --batch"))
	case shape.events > 0 && (p.Events < 1 || p.Events > maxEvents || p.Batch < 1 || p.Batch > maxBatch):
		return none(op.BadOption(fmt.Sprintf("%d events in batches of %d", p.Events, p.Batch),
			fmt.Sprintf("1 to %d events in batches of 1 to %d are possible", int64(maxEvents), maxBatch)))
	case r.RAM != nil && (len(r.Serve) == 0 || *r.RAM < minRAM || *r.RAM > maxRAM):
		return none(op.BadOption(fmt.Sprintf("%d MiB of RAM", *r.RAM),
			fmt.Sprintf("--ram takes %d MiB or more, for servers that are started by --serve", minRAM)))
	case !(p.Rate >= 0 && p.Rate <= 1e6) || shape.rate > 0 && p.Rate == 0:
		return none(op.BadOption(fmt.Sprintf("a rate of %v operations a second", p.Rate),
			"more than 0 up to a million is possible"))
	case p.Rounds < 1 || p.Rounds > maxRounds:
		return none(op.BadOption(console.Number(p.Rounds, "round"), fmt.Sprintf("from 1 to %d are possible", maxRounds)))
	case length < minFor || length > maxFor || p.WarmUpSeconds < 0 || p.WarmUpSeconds > maxFor.Seconds():
		return none(op.BadOption(fmt.Sprintf("measuring for %v after %v s", length, p.WarmUpSeconds),
			fmt.Sprintf("from %v to %v are possible", minFor, maxFor)))
	}
	p.Command = command(r, p)

	return p, shape, targets, nil
}

// set sets what was asked for.
func set[T any](to, asked *T) {
	if asked != nil {
		*to = *asked
	}
}

// command is the command line that repeats the plan, but for the token.
func command(r Request, p Plan) string {
	text := "holdfast load " + p.Shape
	if r.Null {
		text += " --null"
	}
	if r.URL != "" {
		text += console.Flag("url", r.URL) + " --token ..."
	}

	for _, flags := range r.Serve {
		text += " --serve='" + flags + "'"
	}

	return text + console.Flag("level", p.Level) + console.FlagOf("workers", r.Workers) + console.FlagOf("rate", r.Rate) +
		console.FlagOf("followers", r.Followers) + console.FlagOf("events", r.Events) + console.FlagOf("batch", r.Batch) +
		console.FlagOf("ram", r.RAM) + console.FlagOf("rounds", r.Rounds) + console.FlagOf("for", r.For) +
		console.FlagOf("warm-up", r.WarmUp) + console.Flag("seed", p.Seed)
}

// runner runs one plan.
type runner struct {
	request     Request
	plan        Plan
	shape       Shape
	targets     []Target
	null, serve []string
	dir         *rundir.Dir
	ram         *measure.RAM // nil for no limit
	machine     measure.Machine
	progress    *console.Progress
}

// Command is one run of the load command. json names a file for the report, "-" for standard output; empty for none.
// [Status] tells the exit status of the error.
func Command(ctx context.Context, r Request, at Place, json string, t console.Terminal) (err error) {
	run := &runner{request: r, null: at.Null, serve: at.Serve}
	if run.plan, run.shape, run.targets, err = plan(r); err != nil {
		return err
	}
	if run.request.Token == "" {
		run.request.Token = madeToken
	}
	file, err := t.OpenReport("load", json)
	if err != nil {
		return err
	}

	if run.null, err = child.Command(at.Null, NullArgument); err != nil {
		return err
	}
	if run.serve, err = child.Command(at.Serve, "serve"); err != nil {
		return err
	}
	if run.dir, err = rundir.Make(at.Dir, rundir.Options{Op: "load", Prefix: "holdfast-load-"}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.dir.Close()) }()
	if run.machine, err = measure.Describe(run.dir.Path); err != nil {
		return run.dir.Error(err)
	}
	if run.plan.RAMBytes > 0 {
		if run.ram, err = measure.LimitRAM(run.plan.RAMBytes); err != nil {
			return &holdfast.Error{Op: "load", Class: holdfast.ErrBadOption, Detail: "memory cannot be limited here",
				Cause: err, Remedy: "run as root on Linux, or without --ram"}
		}
		defer func() { err = errors.Join(err, run.ram.Close()) }()
	}
	s := screen{t.Screen()}
	s.header(run.shape, run.plan, run.machine)
	run.dir.Show(s.Screen)
	run.progress = t.Progress()
	report, err := run.run(ctx, file)
	run.progress.End()
	if len(report.Results) > 0 {
		s.report(report)
		err = errors.Join(err, file.Write(report))
	}

	return errors.Join(err, report.void())
}

// madeToken is the token of servers that are started: on the loopback, with data that nobody wants.
const madeToken = "ns_ZGVmYXVsdA_0000000000000000000000000000000000000000000000000000000000000000"

// run measures the plan.
func (r *runner) run(ctx context.Context, file *console.ReportFile) (*Report, error) {
	report := &Report{Schema: Schema, Machine: r.machine, Plan: r.plan, Results: []Result{}, Summary: []Summary{}}
	otherWork := measure.Work()

	for round := 1; round <= r.plan.Rounds; round++ {
		if r.plan.Rounds > 1 {
			r.progress.Printf("round %d of %d", round, r.plan.Rounds)
		}

		order := rand.New(rand.NewPCG(r.plan.Seed, uint64(round))).Perm(len(r.targets))
		for _, i := range order {
			result, err := r.measure(ctx, r.targets[i], round, len(report.Results))
			if ctx.Err() != nil {
				report.Partial = report.partial("interrupted", nil)
				report.summarise()

				return report, console.ErrInterrupted
			}
			if err != nil {
				report.Partial = report.partial("broken off", err)
				report.summarise()
				if len(report.Results) > 0 {
					err = fmt.Errorf("%w: %w", console.ErrIncomplete, err)
				}

				return report, err
			}
			report.Results = append(report.Results, result)
			file.Checkpoint(func() any {
				report.Partial = report.partial("still running", nil)
				report.summarise()

				return report
			})
		}
	}
	report.Partial, report.Machine.OtherWork = "", otherWork()
	report.summarise()

	return report, nil
}

// measure loads one target once. An error is not of this measurement alone.
func (r *runner) measure(ctx context.Context, t Target, round, n int) (result Result, err error) {
	result = Result{Target: t.Name, Round: round, FirstAnswer: -1, CPUSeconds: -1, ClientCPU: -1, PeakRSS: -1, RSS: -1,
		Samples: []Sample{}}
	dir, remove, err := r.directory(n)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	s, err := r.start(ctx, t, dir)
	if err != nil {
		return result, err
	}
	loaded := r.load(ctx, t, s, round, &result)
	cpu, peak, stopped := s.stop(t)
	if result.PeakRSS < 0 {
		result.PeakRSS = peak
	}
	if cpu >= 0 && result.CPUSeconds < 0 {
		result.CPUSeconds = cpu.Seconds()
	}
	if stopped != nil {
		stopped = fmt.Errorf("stopping the server: %w", stopped)
	}
	if err := errors.Join(loaded, stopped); err != nil {
		result.Error = err.Error()
	}
	result.Verified = result.Error == ""

	return result, nil
}
