package main

import (
	"time"

	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/load"
)

type loadCommand struct {
	Shape     string         `arg:"" optional:"" help:"eventodb (default), ebuse, messages, tasks, follow, soak."`
	URL       string         `name:"url" help:"A server that is there: http://HOST:PORT" placeholder:"URL"`
	Serve     []string       `help:"Start holdfast serve with these flags, on a fresh directory; once for each server." sep:"none" placeholder:"'FLAGS'"`
	Null      bool           `help:"Also load a server that does nothing, to compare with."`
	Token     string         `help:"Token of the default namespace of the server at --url." env:"HOLDFAST_TOKEN" placeholder:"TOKEN"`
	Level     string         `help:"What writes ask to survive: memory, process, power. Default: what the server gives." placeholder:"LEVEL"`
	Workers   *int           `help:"Clients at the same time." placeholder:"N"`
	Rate      *float64       `help:"Operations a second of all of them, whatever the server makes of it: an open loop." placeholder:"N"`
	Followers *int           `help:"Followers, of follow and soak." placeholder:"N"`
	Rounds    *int           `help:"Times that each measurement is repeated." placeholder:"N"`
	For       *time.Duration `help:"Length of each measurement." placeholder:"5s"`
	WarmUp    *time.Duration `help:"Time before it." placeholder:"1s"`
	Seed      *uint64        `help:"Seed of the order and of what is written; a run prints its own." placeholder:"N"`
	Dir       string         `help:"Directory to work in, not an engine's. Default: the current one." placeholder:"DIR"`
	JSON      string         `name:"json" help:"Also write the report to FILE; - is standard output." placeholder:"FILE"`
}

// Help implements kong's interface for what follows the flags.
func (loadCommand) Help() string {
	return `Servers take turns in each round. {dir} in --serve is the fresh directory: --serve='--engine pebble:{dir} ` +
		`--level process'; without it, --data names that. A run that is interrupted or breaks off still shows, and writes ` +
		`with --json, what it has measured, marked partial. Load writes to the server at --url, and removes nothing there.`
}

func (c *loadCommand) run() int {
	ctx, stop := interruptible()
	defer stop()
	err := load.Command(ctx, load.Request{
		Shape: c.Shape, URL: c.URL, Serve: c.Serve, Null: c.Null, Token: c.Token, Level: c.Level, Workers: c.Workers,
		Rate: c.Rate, Followers: c.Followers, Rounds: c.Rounds, For: c.For, WarmUp: c.WarmUp, Seed: c.Seed,
	}, load.Place{Dir: c.Dir}, c.JSON, console.Standard())
	if status := fail(err); status != exitError {
		return status
	}
	return load.Status(err)
}
