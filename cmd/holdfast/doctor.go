package main

import (
	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/doctor"
)

type doctorCommand struct {
	Examine doctorExamine `cmd:"" default:"withargs" help:"Examine a disk: what a sync costs there, and whether it can be believed."`
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
