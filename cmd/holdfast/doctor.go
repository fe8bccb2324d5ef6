package main

import (
	"context"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/crash"
	"github.com/holdfastdb/holdfast/lab/doctor"
)

type doctorCommand struct {
	Examine doctorExamine `cmd:"" default:"withargs" help:"Measure what a sync costs on a disk, and check whether it can be believed."`
	Witness doctorWitness `cmd:"" help:"Let another machine check what this one lost after a real power cut."`
}

type doctorExamine struct {
	Dir  string `help:"Directory on the disk; must not belong to an engine. Default: the current one." placeholder:"DIR"`
	JSON string `name:"json" help:"Also write the report to FILE; - is standard output." placeholder:"FILE"`
}

// Help implements kong's interface for what follows the flags.
func (doctorExamine) Help() string {
	return `Writes some 40 MB in a new directory below --dir, for a few seconds, and removes them. ` +
		`The exit status is 2 if a sync there keeps nothing.`
}

func (c doctorExamine) run() int {
	return inLab(doctor.Status, func(ctx context.Context, t console.Terminal) error {
		return doctor.Command(ctx, c.Dir, c.JSON, t)
	})
}

type doctorWitness struct {
	Address string `arg:"" optional:"" help:"Address of the witness: HOST:PORT." placeholder:"HOST:PORT"`
	Dir     string `help:"Directory of the victim, used by nothing else." default:"holdfast-witnessed" placeholder:"DIR"`
	Engine  string `help:"Engine of the victim." default:"logtree" placeholder:"NAME"`
	Listen  string `help:"Be the witness and listen at this address." placeholder:":7440"`
	Ledger  string `help:"Directory of the witness." default:"holdfast-witness" placeholder:"DIR"`
}

// Help implements kong's interface for what follows the flags.
func (doctorWitness) Help() string {
	return `On a machine that keeps its power: holdfast doctor witness --listen :7440. On the machine to examine: ` +
		`holdfast doctor witness HOST:7440 --dir DIR. That commits to an engine at Power, and tells the witness what is ` +
		`acknowledged. Pull its plug. When it is back, run the same command there again: the witness says whether ` +
		`everything acknowledged is there, and the test continues. Anybody who can reach the witness can write to its ` +
		`disk: use a private network.`
}

func (c doctorWitness) run() int {
	return inLab(crash.Status, func(ctx context.Context, t console.Terminal) error {
		switch lab := crashLab(); {
		case (c.Listen == "") == (c.Address == ""):
			return console.Op("doctor witness").BadOption("either an address of a witness, or --listen, is needed",
				"see holdfast doctor witness --help")
		case c.Listen != "":
			return lab.Witness(ctx, c.Listen, c.Ledger, t)
		default:
			return lab.BeWitnessed(ctx, c.Address, c.Dir, c.Engine, t)
		}
	})
}
