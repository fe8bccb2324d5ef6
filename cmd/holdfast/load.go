package main

import (
	"context"
	"time"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/load"
)

type loadCommand struct {
	Shape     string         `arg:"" optional:"" help:"Shape of the load: eventodb (default), ebuse, events, messages, tasks, follow, soak."`
	URL       string         `name:"url" help:"A running server: http://HOST:PORT." placeholder:"URL"`
	Serve     []string       `help:"Start holdfast serve with these flags, on a fresh directory. Repeat the flag for more servers." sep:"none" placeholder:"'FLAGS'"`
	Null      bool           `help:"Also load a server that does nothing, for comparison."`
	Token     string         `help:"Token of the default namespace at --url." env:"HOLDFAST_TOKEN" placeholder:"TOKEN"`
	Level     string         `help:"What writes must survive: memory, process, power, quorum. Default: the server's level." placeholder:"LEVEL"`
	Workers   *int           `help:"Number of concurrent clients." placeholder:"N"`
	Rate      *float64       `help:"Operations per second, in total, even if the server cannot keep up: an open loop." placeholder:"N"`
	Followers *int           `help:"Number of followers, for follow and soak." placeholder:"N"`
	Events    *int64         `help:"Number of events that are appended, for events." placeholder:"N"`
	Batch     *int           `help:"Number of events in a request, for events; 1 for one by one." placeholder:"N"`
	RAM       *int64         `name:"ram" help:"MiB of memory for each server that is started, including the page cache of its files. Needs root." placeholder:"MIB"`
	Rounds    *int           `help:"Number of times that each measurement is repeated." placeholder:"N"`
	For       *time.Duration `help:"Length of each measurement." placeholder:"5s"`
	WarmUp    *time.Duration `help:"Warm-up before each measurement." placeholder:"1s"`
	Seed      *uint64        `help:"Seed of the order and of the data. Every run prints its seed." placeholder:"N"`
	Dir       string         `help:"Directory to work in; must not belong to an engine. Default: the system's temporary directory, if it is on a disk." placeholder:"DIR"`
	JSON      string         `name:"json" help:"Also write the report to FILE; - is standard output." placeholder:"FILE"`
}

// Help implements kong's interface for what follows the flags.
func (loadCommand) Help() string {
	return `Servers take turns in each round. {dir} in --serve is the fresh directory: --serve='--engine pebble:{dir} ` +
		`--level process'; without it, --data names that. A run that is interrupted or ends early still shows, and writes ` +
		`with --json, what it has measured, marked partial. Load writes to the server at --url, and removes nothing there.`
}

func (c *loadCommand) run() int {
	return inLab(load.Status, func(ctx context.Context, t console.Terminal) error {
		return load.Command(ctx, load.Request{
			Shape: c.Shape, URL: c.URL, Serve: c.Serve, Null: c.Null, Token: c.Token, Level: c.Level, Workers: c.Workers,
			Rate: c.Rate, Followers: c.Followers, Events: c.Events, Batch: c.Batch, RAM: c.RAM,
			Rounds: c.Rounds, For: c.For, WarmUp: c.WarmUp, Seed: c.Seed,
		}, load.Place{Dir: c.Dir}, c.JSON, t)
	})
}
