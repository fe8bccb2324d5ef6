package main

import (
	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/crash"
	"github.com/holdfastdb/holdfast/lab/doctor"
)

type doctorCommand struct {
	Examine doctorExamine `cmd:"" default:"withargs" help:"Examine a disk: what a sync costs there, and whether it can be believed."`
	Witness doctorWitness `cmd:"" help:"Have another machine witness what this one loses when its plug is pulled."`
}

type doctorExamine struct {
	Dir  string `help:"Directory on the disk, not an engine's. Default: the current one." placeholder:"DIR"`
	JSON string `name:"json" help:"Also write the report to FILE; - is standard output." placeholder:"FILE"`
}

// Help implements kong's interface for what follows the flags.
func (doctorExamine) Help() string {
	return `It writes some 40 MB in a directory of its own below --dir, for a few seconds, and removes them. ` +
		`The exit status is 2 if a sync there keeps nothing.`
}

func (c doctorExamine) run() int {
	ctx, stop := interruptible()
	defer stop()
	err := doctor.Command(ctx, c.Dir, c.JSON, console.Standard())
	if status := fail(err); status != exitError {
		return status
	}
	return doctor.Status(err)
}

type doctorWitness struct {
	Address string `arg:"" optional:"" help:"The witness: HOST:PORT." placeholder:"HOST:PORT"`
	Dir     string `help:"Directory of the victim, for itself alone." default:"holdfast-witnessed" placeholder:"DIR"`
	Engine  string `help:"Engine of the victim." default:"logtree" placeholder:"NAME"`
	Listen  string `help:"Be the witness, at this address." placeholder:":7440"`
	Ledger  string `help:"Directory of the witness." default:"holdfast-witness" placeholder:"DIR"`
}

// Help implements kong's interface for what follows the flags.
func (doctorWitness) Help() string {
	return `On a machine that keeps its power: holdfast doctor witness --listen :7440. On the machine to examine: ` +
		`holdfast doctor witness HOST:7440 --dir DIR. It commits to an engine at Power, and tells the witness what is ` +
		`acknowledged. Pull its plug; when it is back, run the same command there again: the witness says whether all that ` +
		`had been acknowledged is there, and it goes on. Who can reach the witness can write to its disk: use a network of ` +
		`your own.`
}

func (c doctorWitness) run() int {
	ctx, stop := interruptible()
	defer stop()
	var err error
	switch lab := crashLab(); {
	case (c.Listen == "") == (c.Address == ""):
		err = console.Op("doctor witness").BadOption("either an address of a witness, or --listen, is needed",
			"see holdfast doctor witness --help")
	case c.Listen != "":
		err = lab.Witness(ctx, c.Listen, c.Ledger, console.Standard())
	default:
		err = lab.BeWitnessed(ctx, c.Address, c.Dir, c.Engine, console.Standard())
	}
	if status := fail(err); status != exitError {
		return status
	}
	return crash.Status(err)
}
