package main

import (
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/soak"
)

type soakCommand struct {
	Engine  string        `help:"Engine." default:"logtree" placeholder:"NAME"`
	Level   string        `help:"What commits must survive: process, power." default:"process" placeholder:"LEVEL"`
	RAM     int64         `name:"ram" help:"MiB of memory that the process has, with the system's cache of its files; as root. 0: no limit." default:"512" placeholder:"MIB"`
	Size    int64         `help:"MiB of keys and values. Default: four times --ram." placeholder:"MIB"`
	Writers int           `help:"Goroutines that write." default:"4" placeholder:"N"`
	For     time.Duration `help:"How long." default:"10m" placeholder:"1h"`
	Seed    uint64        `help:"Seed of what is written; a run prints its own." placeholder:"N"`
	Dir     string        `help:"Directory to work in, not an engine's. Default: the current one." placeholder:"DIR"`
}

// Help implements kong's interface for what follows the flags.
func (soakCommand) Help() string {
	return `Each process writes and reads for up to 40 seconds, is killed, or closes the engine, and the next one ` +
		`checks what is there: a part of it, or everything. In the end it is compacted, verified, checked and deleted. ` +
		`The disk needs room for three times --size. What is broken is kept, in a directory below --dir.`
}

func (c soakCommand) run() int {
	ctx, stop := interruptible()
	defer stop()
	level, err := holdfast.ParseLevel(c.Level)
	if err == nil {
		err = soak.Command(ctx, soak.Request{
			Engine: c.Engine, Level: level, RAM: c.RAM << 20, Bytes: c.Size << 20, Writers: c.Writers, For: c.For, Seed: c.Seed,
			Dir: c.Dir,
		}, console.Standard())
	}
	if status := fail(err); status != exitError {
		return status
	}
	return soak.Status(err)
}
