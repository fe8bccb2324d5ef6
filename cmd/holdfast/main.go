// Command holdfast measures storage engines at equal durability, crashes them, and looks after their directories.
//
//	holdfast bench           about 90 seconds: which engine is how fast, at which level
//	holdfast bench --list    what can be measured
//	holdfast crash           kill -9 and power cuts: does each engine keep what it claims to keep
//	holdfast inspect DIR     what is in a directory
//	holdfast verify DIR      whether all in it that can be checked is sound
//	holdfast repair DIR      a new directory of what is intact in a damaged one
//	holdfast accept DIR      makes stores open in a directory from which a repair could not salvage everything
//	holdfast backup DIR      a copy of it, as it is at one moment
//	holdfast raft import     a Raft store of a raft-boltdb or a raft-wal
//	holdfast raft inspect    what the Raft stores in a directory hold
//
// It exits with status 0 if all went well; 1 if it was used wrongly or could not run; 2 if a result failed verification,
// a claim was broken in a crash, or something is damaged or lost; 3 and 4 as crash --help says; 5 if a run of bench or
// crash is incomplete; and 130 if it was interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/console"
)

// The exit statuses.
const (
	exitOK          = 0
	exitError       = 1
	exitWrong       = 2
	exitInterrupted = 130 // as a shell has it for SIGINT
)

// grammar is the command line.
type grammar struct {
	Bench   benchCommand   `cmd:"" help:"Measure engines and stores, grouped by the durability that was really given."`
	Crash   crashCommand   `cmd:"" help:"Crash engines by kill -9 and by cutting the power, and check what each claims to survive."`
	Inspect inspectCommand `cmd:"" help:"Show what is in a directory."`
	Verify  verifyCommand  `cmd:"" help:"Check everything in a directory that can be checked."`
	Repair  repairCommand  `cmd:"" help:"Make a new directory of all that is intact in a damaged one."`
	Accept  acceptCommand  `cmd:"" help:"Accept what a repair could not salvage: stores open in the directory again."`
	Backup  backupCommand  `cmd:"" help:"Copy a directory: its contents at one moment, durably."`
	Raft    raftCommand    `cmd:"" help:"Raft stores: make one of a raft-boltdb or a raft-wal, or look at one."`
	Child   childCommand   `cmd:"" name:"bench-child" hidden:"" help:"One measurement, for the bench command's own use."`
	Victim  victimCommand  `cmd:"" name:"crash-victim" hidden:"" help:"A process to be crashed, for the crash command's own use."`
}

type benchCommand struct {
	Preset     string         `arg:"" optional:"" help:"quick (the default), event, kv, raft, raft-long or smoke; --list says more."`
	Engines    []string       `help:"Engines, names or patterns." placeholder:"A,B"`
	Workloads  []string       `help:"Workloads, names or patterns." placeholder:"'EVENT/*'"`
	Levels     []string       `help:"What writes must survive: memory, process, power." placeholder:"LEVEL"`
	Clients    []int          `help:"Numbers of clients at the same time." placeholder:"1,64"`
	Rounds     *int           `help:"Times that each measurement is repeated." placeholder:"N"`
	For        *time.Duration `help:"Length of each measurement." placeholder:"2s"`
	Seed       *uint64        `help:"Seed of the order; a run prints its own." placeholder:"N"`
	Dir        string         `help:"Directory on the disk to measure, not an engine's; only what bench made there is removed. Default: the current one." placeholder:"DIR"`
	AllowTmpfs bool           `help:"Measure Process and Power even on a file system in memory."`
	JSON       string         `name:"json" help:"Write the report to this file too, while the run goes on and at its end; - is standard output, and then the tables go to standard error." placeholder:"FILE"`
	List       bool           `help:"List engines, workloads, presets and levels."`
}

// Help implements kong's interface for what follows the flags.
func (benchCommand) Help() string {
	return `A run that is interrupted or breaks off still shows, and writes with --json, what it has measured, marked partial: ` +
		`the tables are of the rounds that were finished. The file is also written while the run goes on.

Exit status: 0 all went well; 1 it was used wrongly or could not begin; 2 a measurement failed verification; ` +
		`5 the run broke off, or measurements are void because the disk was full; 130 it was interrupted.`
}

type childCommand struct{}

func main() { os.Exit(run(bench.Standard(), os.Args[1:])) }

// run runs the command line on a lab and returns the exit status.
func run(lab bench.Lab, args []string) int {
	// A reader that goes away is an error of the write, not the end of the process, which
	// has a directory to remove.
	signal.Ignore(syscall.SIGPIPE)
	var g grammar
	exited := -1
	parser, err := kong.New(&g, kong.Name("holdfast"),
		kong.Description("Embedded stores in which every write names what it survives."),
		kong.Exit(func(status int) { exited = status }))
	if err != nil {
		return fail(err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	parsed, err := parser.Parse(joinNegative(args))
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		return fail(fmt.Errorf("%w; %s", err, hint(parser, args)))
	}
	switch parsed.Selected().Path() {
	case "bench-child":
		return lab.Child(os.Stdin, os.Stdout)
	case "crash":
		return g.Crash.run(crashLab())
	case "crash-victim":
		return crashLab().Child(os.Stdin, os.Stdout)
	case "inspect":
		return g.Inspect.run()
	case "verify":
		return g.Verify.run()
	case "repair":
		return g.Repair.run()
	case "accept":
		return g.Accept.run()
	case "backup":
		return g.Backup.run()
	case "raft import":
		return g.Raft.Import.run()
	case "raft inspect":
		return g.Raft.Inspect.run()
	default:
		return g.Bench.run(lab)
	}
}

// joinNegative makes --flag=-1 of --flag -1, so that it is the flag, and not the parser, that says what it takes.
func joinNegative(args []string) []string {
	var joined []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if i+1 < len(args) && strings.HasPrefix(arg, "--") && !strings.Contains(arg, "=") {
			if next := args[i+1]; len(next) > 1 && next[0] == '-' && (next[1] >= '0' && next[1] <= '9' || next[1] == '.') {
				arg += "=" + next
				i++
			}
		}
		joined = append(joined, arg)
	}
	return joined
}

// hint says what would have been right.
func hint(parser *kong.Kong, args []string) string {
	at := parser.Model.Node
	for _, arg := range args {
		i := slices.IndexFunc(at.Children, func(c *kong.Node) bool { return c.Name == arg })
		if i < 0 {
			break
		}
		at = at.Children[i]
	}
	if at != parser.Model.Node {
		return "see holdfast " + at.Path() + " --help"
	}
	var commands []string
	for _, c := range at.Children {
		if !c.Hidden {
			commands = append(commands, c.Name)
		}
	}
	return "the commands are: " + strings.Join(commands, ", ")
}

func (b *benchCommand) run(lab bench.Lab) int {
	t := console.Standard()
	if b.List {
		lab.List(t)
		return exitOK
	}
	ctx, stop := interruptible()
	defer stop()
	err := lab.Command(ctx, bench.Request{
		Preset: b.Preset, Engines: b.Engines, Workloads: b.Workloads, Levels: b.Levels,
		Clients: b.Clients, Rounds: b.Rounds, For: b.For, Seed: b.Seed,
	}, bench.Place{Dir: b.Dir, AllowTmpfs: b.AllowTmpfs}, b.JSON, t)
	if status := fail(err); status != exitError {
		return status
	}
	return bench.Status(err)
}

// interruptible returns a context that ends with a signal that should end the command.
func interruptible() (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}

// fail prints err as one line and returns the status for it.
func fail(err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(os.Stderr, "holdfast:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, console.ErrInterrupted) {
		return exitInterrupted
	}
	return exitError
}
