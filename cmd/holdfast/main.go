// Command holdfast measures storage engines at equal durability, crashes them, and looks after their directories.
//
//	holdfast serve           serves streams, logs and tasks over HTTP
//	holdfast ready           whether a server serves requests
//	holdfast token reset     another token for a server's default namespace
//	holdfast bench           about 90 seconds: which engine is how fast, at which level
//	holdfast bench --list    what can be measured
//	holdfast report FILES    one HTML file of what bench and crash have written as JSON
//	holdfast advise FILES    which engine to take, as far as those reports show
//	holdfast compare A B     what changed from one report of bench to another; of one file, its tables
//	holdfast load            how fast a server answers, beside one that does nothing
//	holdfast crash           kill -9 and power cuts: does each engine keep what it claims to keep
//	holdfast soak            overwrites, deletes, reads and kills for long, on data larger than memory
//	holdfast inspect DIR     what is in a directory
//	holdfast verify DIR      whether all in it that can be checked is sound
//	holdfast repair DIR      a new directory of what is intact in a damaged one
//	holdfast accept DIR      makes stores open in a directory from which a repair could not salvage everything
//	holdfast backup DIR      a copy of it, as it is at one moment
//	holdfast restore URL     a directory of a state in a bucket, to which serve --backup uploads
//	holdfast follow URL      a copy on another machine that is kept up to date with such a bucket
//	holdfast promote DIR     makes that copy a directory that can be written to
//	holdfast compact DIR     gives back the space of what was deleted or overwritten, of all keys or a range
//	holdfast copy FROM TO    the same keys on another engine; FROM may be a bare bbolt, Badger, Pebble or SQLite
//	holdfast event list      the logs of events of a server, or in a directory; also cat, tail, append, ...
//	holdfast message cat     messages in streams; also streams, tail, write, ...
//	holdfast task list       tasks; also queues, dead, retry, ...
//	holdfast token create    a token for a server; also list, revoke
//	holdfast kv list         the buckets of a database in a directory; also get, dump
//	holdfast query DIR SQL   asks with SQL what is in messages, logs and tasks; also of a server, by its URL
//	holdfast export DIR      writes the same to a database of SQLite
//	holdfast namespace list  the namespaces of a server; also create, delete
//	holdfast import          copies what another server has: EventoDB, ebuse, message-db
//	holdfast raft import     a Raft store of a raft-boltdb or a raft-wal
//	holdfast raft inspect    what the Raft stores in a directory hold
//	holdfast version         this build: version, commit, libraries
//	holdfast help            these commands; with a command, its arguments
//
// The exit statuses are listed at exitHelp, which every --help ends with.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/load"
	"github.com/holdfastdb/holdfast/lab/soak"
)

// The exit statuses. Package console has those of bench and crash.
const (
	exitOK          = 0
	exitError       = 1
	exitWrong       = 2
	exitInterrupted = 130 // as a shell has it for SIGINT
	exitBrokenPipe  = 141 // as a shell has it for SIGPIPE
)

// exitHelp ends every help text.
const exitHelp = `
Exit status:
  0    success
  1    wrong usage, or the command could not run
  2    a result failed verification, a claim was broken in a crash, data is
       damaged or lost, or (doctor) a sync keeps nothing
  3    crash: do not believe the run, it did not expose an engine that lies;
       compare: a regression is shown, beyond the gate
  4    crash: this machine cannot make the requested crashes
  5    bench, crash, load, soak: the run is incomplete: it ended early, or
       the disk was full
  130  interrupted
  141  the reader of the output closed it, as head does
`

// grammar is the command line.
type grammar struct {
	Serve     serveCommand     `cmd:"" help:"Serve messages, event logs and tasks over HTTP, from one directory."`
	Ready     readyCommand     `cmd:"" help:"Check whether a server serves requests, as a container's health check."`
	Nodes     nodesCommand     `cmd:"" help:"Show the processes that are one server, and which owns what."`
	Bench     benchCommand     `cmd:"" help:"Measure engines and stores, grouped by the durability that they really give."`
	Report    reportCommand    `cmd:"" help:"Make one HTML file from the reports of bench and crash."`
	Advise    adviseCommand    `cmd:"" help:"Say which engine to take for a need, from reports of bench and crash."`
	Compare   compareCommand   `cmd:"" help:"Show what changed between reports of bench, or one report again."`
	Load      loadCommand      `cmd:"" help:"Load HTTP servers, and compare them with one that does nothing."`
	Crash     crashCommand     `cmd:"" help:"Crash engines with kill -9 and power cuts, and check what they claim to survive."`
	Soak      soakCommand      `cmd:"" help:"Write, read and kill for hours, on data larger than memory, and check everything."`
	Doctor    doctorCommand    `cmd:"" help:"Examine a disk, or let another machine check what a power cut costs."`
	Inspect   inspectCommand   `cmd:"" help:"Show what a directory contains. Changes nothing."`
	Verify    verifyCommand    `cmd:"" help:"Check a directory for damage."`
	Repair    repairCommand    `cmd:"" help:"Salvage what is intact in a damaged directory into a new one."`
	Accept    acceptCommand    `cmd:"" help:"Accept the loss that a repair recorded, so that stores open again."`
	Backup    backupCommand    `cmd:"" help:"Make a consistent, durable copy of a directory."`
	Restore   restoreCommand   `cmd:"" help:"Make a directory of a state that a continuous backup has kept."`
	Follow    followCommand    `cmd:"" help:"Keep a copy up to date with a continuous backup, on another machine."`
	Promote   promoteCommand   `cmd:"" help:"Make such a copy a directory that can be written to."`
	Compact   compactCommand   `cmd:"" help:"Reclaim the space of deleted and overwritten data."`
	Copy      copyCommand      `cmd:"" help:"Copy all keys to a new directory of any engine, and compare every one."`
	Event     eventCommand     `cmd:"" help:"Event logs of a server or a directory."`
	Message   messageCommand   `cmd:"" help:"Messages in streams."`
	Task      taskCommand      `cmd:"" help:"Tasks and queues."`
	KV        kvCommand        `cmd:"" name:"kv" help:"Buckets of a database in a directory."`
	Namespace namespaceCommand `cmd:"" help:"Namespaces."`
	Token     tokenCommand     `cmd:"" help:"Tokens of a server."`
	Query     queryCommand     `cmd:"" help:"Ask with SQL what is in a directory, or on a server. Changes nothing."`
	Export    exportCommand    `cmd:"" help:"Write what is in a directory to a database of SQLite."`
	Import    importCommand    `cmd:"" help:"Move from another server: copy its data, and compare."`
	Raft      raftCommand      `cmd:"" help:"Raft stores: import a raft-boltdb or raft-wal, or inspect one."`
	Version   versionCommand   `cmd:"" help:"Show the version of this build and of its libraries."`
	Help      helpCommand      `cmd:"" help:"Show the commands, or the arguments of one command."`
	Child     childCommand     `cmd:"" name:"bench-child" hidden:"" help:"One measurement, for the bench command's own use."`
	Victim    victimCommand    `cmd:"" name:"crash-victim" hidden:"" help:"A process to crash, for crash's own use."`
	Soaked    childCommand     `cmd:"" name:"soak-child" hidden:"" help:"A process of a soak, for its own use."`
	Null      childCommand     `cmd:"" name:"load-null" hidden:"" help:"A server that does nothing, for load's own use."`
	Server    childCommand     `cmd:"" name:"peer-server" hidden:"" help:"A peer's server, for bench's and crash's own use."`
}

type benchCommand struct {
	Preset     string         `arg:"" optional:"" help:"Preset: quick (default), event, kv, mixed, ycsb, raft, message, task, smoke, and larger ones; see --list."`
	Engines    []string       `help:"Engines, names or patterns." placeholder:"A,B"`
	Workloads  []string       `help:"Workloads, names or patterns." placeholder:"'EVENT/*'"`
	Levels     []string       `help:"What writes must survive: memory, process, power, quorum." placeholder:"LEVEL"`
	Clients    []int          `help:"Numbers of concurrent clients." placeholder:"1,64"`
	Rounds     *int           `help:"Number of times that each measurement is repeated." placeholder:"N"`
	For        *time.Duration `help:"Length of each measurement." placeholder:"2s"`
	Rate       []string       `help:"Open loops: operations are due at this rate, of a contender's closed loop or absolute." placeholder:"50%,2000/s"`
	FindRate   []string       `help:"Look for the highest rate of an open loop at which a percentile of latencies is at most this." placeholder:"p99=10ms"`
	Baseline   string         `help:"Compare with this engine. Default: the best of each table." placeholder:"ENGINE"`
	Seed       *uint64        `help:"Seed of the order. Every run prints its seed." placeholder:"N"`
	Dir        string         `help:"Directory to work in; must not belong to an engine. Default: the system's temporary directory, if it is on a disk." placeholder:"DIR"`
	FS         string         `name:"fs" help:"Measure on an image of ext4, xfs, btrfs or ext4-nojournal. Needs root." placeholder:"FS"`
	RAM        *int64         `name:"ram" help:"MiB of memory for each measurement, including the page cache of its files. Needs root." placeholder:"MIB"`
	Memory     string         `help:"Memory of each contender for caches and write buffers. Default: 384MiB." placeholder:"SIZE"`
	Full       bool           `help:"Show everything: latencies, costs, the course over the time, settings, reasons."`
	Settings   bool           `help:"Show what the contenders ran with; with --list, what they would run with."`
	AllowTmpfs bool           `help:"Measure Process and Power even on a file system in memory."`
	Format     string         `help:"What is shown: table (default), markdown, csv or benchstat." placeholder:"FORMAT"`
	JSON       string         `name:"json" help:"Also write the report to FILE; - is standard output." placeholder:"FILE"`
	HTML       string         `name:"html" help:"Also write the report to FILE as a page; - is standard output." placeholder:"FILE"`
	Resume     string         `help:"Go on with a run that ended early, or met a full disk, from its --json FILE: same flags, machine and program." placeholder:"FILE"`
	List       bool           `help:"List engines, workloads, presets and levels."`
}

// Help implements kong's interface for what follows the flags.
func (benchCommand) Help() string {
	return `It says first who is ahead, by how much and at which level, where no difference is shown, and what is ` +
		`withheld; then the rates. --full shows the rest, and so does holdfast compare FILE --full of a --json FILE. ` +
		`A run that is interrupted or ends early still shows, and writes with --json, what it has measured, marked ` +
		`partial: the tables cover the finished rounds. The file is also written during the run. ` +
		`With --json - the tables go to standard error. Bench removes only the files that it created in --dir. ` +
		`With --resume such a run goes on, in the same file unless --json names another. Larger workloads are measured ` +
		`with as many clients as are named, as kv/steady in: bench kv-large --workloads kv/steady --clients 4,512 --for 3m.`
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
	parser, err := newParser(&g, func(status int) { exited = status })
	if err != nil {
		return fail(err)
	}
	if args, err = helpArgs(parser, args); err != nil {
		return fail(err)
	}
	parsed, err := parser.Parse(joinNegative(args))
	if exited >= 0 { // --help
		return exited
	}
	if unwritten := new(fs.PathError); errors.As(err, &unwritten) { // of the help text
		return fail(err)
	}
	if err != nil {
		return fail(fmt.Errorf("%w; %s", err, hint(parser, args)))
	}

	switch parsed.Selected().Path() {
	case "serve":
		return g.Serve.run(args)
	case "bench-child":
		return lab.Child(os.Stdin, os.Stdout)
	case load.NullArgument:
		return load.ServeNull(os.Stdin, os.Stdout)
	case "crash":
		return g.Crash.run(crashLab())
	case "crash-victim":
		return crashLab().Child(os.Stdin, os.Stdout)
	case soak.Argument:
		return soak.Child(os.Stdin, os.Stdout)
	case contender.ServerArgument:
		return contender.Serve(os.Stdin, os.Stdout)
	}
	command := parsed.Selected().Target.Addr().Interface()
	if c, ok := command.(interface{ run(lab bench.Lab) int }); ok {
		return c.run(lab)
	}

	return command.(interface{ run() int }).run()
}

func newParser(g *grammar, exit func(status int)) (*kong.Kong, error) {
	return kong.New(g, kong.Name("holdfast"),
		kong.Description("Embedded stores in which every write names what it survives."),
		kong.Help(func(o kong.HelpOptions, ctx *kong.Context) error {
			if err := kong.DefaultHelpPrinter(o, ctx); err != nil {
				return err
			}
			_, err := fmt.Fprint(ctx.Stdout, exitHelp)

			return err
		}),
		// Kong itself takes a text by way of JSON, which puts U+FFFD in the place of bytes that are not UTF-8: data of events
		// and tasks, keys and paths are to arrive as they were given.
		kong.KindMapper(reflect.String, kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
			token, err := ctx.Scan.PopValue("string")
			if err == nil {
				target.SetString(token.String())
			}

			return err
		})),
		kong.Exit(exit))
}

// helpArgs turns the other ways to ask for help, and for the version, into those that the parser knows.
func helpArgs(parser *kong.Kong, args []string) ([]string, error) {
	if len(args) == 0 {
		return []string{"--help"}, nil
	}

	switch args[0] {
	case "--version":
		return append([]string{"version"}, args[1:]...), nil
	case "help":
		at := parser.Model.Node
		for _, arg := range args[1:] {
			i := slices.IndexFunc(at.Children, func(c *kong.Node) bool { return c.Name == arg && !c.Hidden })
			if i < 0 && !strings.HasPrefix(arg, "-") {
				return nil, fmt.Errorf("help: there is no command %q; %s", strings.Join(args[1:], " "), hint(parser, args[1:]))
			}
			if i >= 0 {
				at = at.Children[i]
			}
		}

		return append(slices.Clone(args[1:]), "--help"), nil
	}

	return args, nil
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
	return inLab(bench.Status, func(ctx context.Context, t console.Terminal) error {
		if b.List {
			lab.List(ctx, t, b.Settings)
			return nil
		}

		return lab.Command(ctx, bench.Request{
			Preset: b.Preset, Engines: b.Engines, Workloads: b.Workloads, Levels: b.Levels,
			Clients: b.Clients, Rounds: b.Rounds, For: b.For, Seed: b.Seed, RAM: b.RAM, Baseline: b.Baseline, Format: b.Format,
			Rates: b.Rate, Find: b.FindRate,
			Memory: b.Memory, Detail: bench.Detail{Full: b.Full, Settings: b.Settings}, Resume: b.Resume,
		}, bench.Place{Dir: b.Dir, FS: b.FS, AllowTmpfs: b.AllowTmpfs}, filesOf(b.JSON, b.HTML, lab), t)
	})
}

// inLab runs a command of the lab, whose errors have exit statuses of their own.
func inLab(own func(error) int, run func(ctx context.Context, t console.Terminal) error) int {
	ctx, stop := interruptible()
	defer stop()
	err := showing(func(t console.Terminal) error { return run(ctx, t) })
	if status := fail(err); status != exitError {
		return status
	}

	return own(err)
}

// showing runs what shows text on standard output, and returns its error, or else that of writing the text.
func showing(run func(t console.Terminal) error) error {
	t := console.Standard()
	out := &console.Output{W: t.Out}
	t.Out = out
	if err := run(t); err != nil {
		return err
	}

	return out.Err()
}

// interruptible returns a context that ends with a signal that should end the command.
func interruptible() (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}

	return signal.NotifyContext(context.Background(), signals...)
}

// untilSignal runs what makes a directory, whole or not at all. A signal that should end the command ends its context,
// so that it removes what it has made; a second one ends the process at once.
func untilSignal[T any](run func(context.Context) (T, error)) (T, error) {
	ctx, stop := interruptible()
	defer stop()
	context.AfterFunc(ctx, stop)
	result, err := run(ctx)
	if err != nil && ctx.Err() != nil {
		err = console.ErrInterrupted
	}

	return result, err
}

var passwords = regexp.MustCompile(`(://[^/?@:\s]*):[^/?@\s]*@|([?&][a-z]*password=)[^&\s;]*`)

// shown is an error as one line, without the passwords of addresses that were given where no address can be.
func shown(err error) string {
	return passwords.ReplaceAllStringFunc(strings.ReplaceAll(err.Error(), "\n", "; "), func(found string) string {
		if user, rest, ok := strings.Cut(strings.TrimPrefix(found, "://"), ":"); ok && strings.HasSuffix(rest, "@") {
			return "://" + user + "@"
		}

		return found[:strings.IndexByte(found, '=')+1]
	})
}

// fail prints err, folded on a terminal and else as one line, and returns the status for it.
func fail(err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, syscall.EPIPE) { // the reader has all that it wanted
		return exitBrokenPipe
	}
	text := shown(err)
	if t := console.Standard(); t.ErrWidth != nil {
		console.Screen{W: os.Stderr, Width: t.ErrWidth()}.Wrapped("holdfast: ", text)
	} else {
		fmt.Fprintln(os.Stderr, "holdfast:", text)
	}
	if errors.Is(err, console.ErrInterrupted) {
		return exitInterrupted
	}

	return exitError
}
