package main

import (
	"context"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/soak"
)

type soakCommand struct {
	Engine  string        `help:"Engine." default:"logtree" placeholder:"NAME"`
	Level   string        `help:"What commits must survive: process, power, quorum." default:"process" placeholder:"LEVEL"`
	RAM     int64         `name:"ram" help:"MiB of memory for the process, including the page cache of its files. Needs root. 0: no limit." default:"512" placeholder:"MIB"`
	Size    int64         `help:"MiB of keys and values. Default: four times --ram." placeholder:"MIB"`
	Writers int           `help:"Number of goroutines that write." default:"4" placeholder:"N"`
	For     time.Duration `help:"Length of the soak." default:"10m" placeholder:"1h"`
	Seed    uint64        `help:"Seed of the data. Every run prints its seed." placeholder:"N"`
	Dir     string        `help:"Directory to work in; must not belong to an engine. Default: the system's temporary directory, if it is on a disk." placeholder:"DIR"`
}

// Help implements kong's interface for what follows the flags.
func (soakCommand) Help() string {
	return `Each process writes and reads for up to 40 seconds. Then it is killed or closes the engine, and the next ` +
		`one checks the data, all or part of it. At the end the data is compacted, verified, checked and deleted. ` +
		`The disk needs room for three times --size. A database that failed a check is kept below --dir.`
}

func (c soakCommand) run() int {
	return inLab(soak.Status, func(ctx context.Context, t console.Terminal) error {
		level, err := holdfast.ParseLevel(c.Level)
		if err != nil {
			return err
		}

		return soak.Command(ctx, soak.Request{
			Engine: c.Engine, Level: level, RAM: c.RAM << 20, Bytes: c.Size << 20, Writers: c.Writers, For: c.For, Seed: c.Seed,
			Dir: c.Dir,
		}, t)
	})
}
