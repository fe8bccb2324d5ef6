package main

import (
	"context"
	"time"

	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/logtree/simulate"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/crash"
)

// crashLab is what the crash command tests.
func crashLab() crash.Lab {
	lab := crash.Standard()
	simulation := crash.Simulation{Engine: logtree.Name, One: simulated(simulate.Run)}

	for _, m := range simulate.Mutants() {
		simulation.Mutants = append(simulation.Mutants, crash.Simulation{Engine: m.Breaks, One: simulated(m.Run)})
	}
	lab.Simulations = []crash.Simulation{simulation}

	return lab
}

// simulated runs one history of logtree, or of a mutant of it.
func simulated(
	run func(context.Context, uint64) (simulate.Stats, error),
) func(context.Context, uint64) (crash.Simulated, error) {
	return func(ctx context.Context, seed uint64) (crash.Simulated, error) {
		s, err := run(ctx, seed)

		return crash.Simulated{
			Steps: s.Steps, Commits: s.Commits, Reads: s.Reads,
			PowerCuts: s.Cuts, Kills: s.Kills, InOperation: s.Halts, InRecovery: s.Doubles,
			Faults: s.Faults + s.Full, Damages: s.Damages, Recoveries: s.Recoveries, Refusals: s.Refusals,
		}, err
	}
}

type crashCommand struct {
	Engines []string       `help:"Engines, names or patterns."                                                                                             placeholder:"A,B"`
	Levels  []string       `help:"Levels that commits ask for: memory, process, power, quorum."                                                            placeholder:"LEVEL"`
	Kind    []string       `help:"How to crash: kill, power, faults, lies, simulate, machine. The default is described above."                             placeholder:"KIND"`
	Subject []string       `help:"What to crash: kv, event, message, task, transaction, raft, serve, backup, nodes. Default: all."                                 placeholder:"NAME"`
	Cuts    *int           `help:"Crashes of each row. Default: 20, 10 or 4, by what a row can show."                                                      placeholder:"N"`
	FS      string         `help:"File system for power and faults: ext4, xfs, btrfs or ext4-nojournal. Default: the first three, as far as available, in turns." placeholder:"FS"    name:"fs"`
	Losses  []string       `help:"Ways to lose a machine, names or patterns. Default: all."                                                                placeholder:"A,B"`
	Manager string         `help:"What promotes standbys of machines: patroni or patroni-etcd3. Default: the lab itself."                                  placeholder:"NAME"`
	Seed    *uint64        `help:"Seed of all random choices. Every run prints its seed."                                                                  placeholder:"N"`
	For     *time.Duration `help:"Continue until this much time has passed: 8h is a soak."                                                                 placeholder:"10m"`
	JSON    string         `help:"Also write the report to FILE; - is standard output."                                                                    placeholder:"FILE"  name:"json"`
	HTML    string         `help:"Also write the report to FILE as a page; - is standard output."                                                          placeholder:"FILE"  name:"html"`
	Keep    string         `help:"Directory for evidence of broken claims. Default: a new one in --dir, or in the current directory if that is not given." placeholder:"DIR"`
	Dir     string         `help:"Directory to work in; must not belong to an engine. Default: the system's temporary directory, if it is on a disk."      placeholder:"DIR"`
	Mutants bool           `help:"Find engines that break one rule each, by every kind or --kind, and say how many and how soon."`
	Replay  string         `help:"Judge again the evidence that a run kept in this directory."                                                             placeholder:"DIR"`
}

// Help implements kong's interface for what follows the flags.
func (crashCommand) Help() string {
	return `A run that is interrupted or ends early still shows, and writes with --json, what it has found, marked ` +
		`partial. The file is also written during the run. With --json - the tables go to standard error. ` +
		`Crash removes only the files that it created in --dir, and keeps evidence of broken claims. ` +
		`Without --kind, crash makes kills, and power cuts and faults where the machine can. ` +
		`lies are power cuts on a disk that answered flushes and kept nothing: no engine promises anything there, and what ` +
		`was seen breaks no claim. ` +
		`machine loses one of three machines with PostgreSQL, which it makes of namespaces, as root on Linux. ` +
		`There --subject nodes is a server of three processes under clients of all its APIs; with --for, and no other ` +
		`subject, it loses something each minute. ` +
		`Without --subject and --levels, kv runs at every level, and each store over it (event, message, task, raft, ` +
		`transactions over all, the server, serve, and a machine that is lost and restored from its backup, backup) ` +
		`at the weakest level that the crash must not cost: process for ` +
		`kill, power for the others. ` +
		`All that takes some minutes, and some 280 s of CPU time. With --for, all rows run again and again, each time ` +
		`with other choices, and each pass is reported. ` +
		`Peers must be named with --engines: raft-wal and raft-boltdb are crashed as raft only, postgres, nats and study-4 ` +
		`(what the fourth study in docs/studies.md did) as message only, redb, fjall and thunderdb as kv only; a ` +
		`program in Rust serves these three, which cargo builds when they are first named.`
}

type victimCommand struct{}

func (c *crashCommand) run(lab crash.Lab) int {
	at := crash.Place{Dir: c.Dir, Keep: c.Keep}

	return inLab(crash.Status, func(ctx context.Context, t console.Terminal) error {
		if c.Replay != "" {
			return lab.Replay(ctx, c.Replay, at, t)
		}

		return lab.Command(ctx, crash.Request{
			Engines: c.Engines, Levels: c.Levels, Kinds: c.Kind, Subjects: c.Subject, Cuts: c.Cuts, FS: c.FS, Seed: c.Seed,
			Losses: c.Losses, Manager: c.Manager, For: c.For, Mutants: c.Mutants,
		}, at, filesOf(c.JSON, c.HTML, bench.Standard()), t)
	})
}
