package main

import (
	"io"
	"time"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/advise"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/report"
)

type reportCommand struct {
	Files    []string        `arg:"" help:"Reports that bench or crash has written with --json." placeholder:"A.json"`
	Output   string          `name:"output" short:"o" help:"The HTML file; - is standard output. Default: the answers as text." placeholder:"FILE"`
	Mixed    bool            `help:"Show reports of different machines, disks or limits of memory side by side, marked on every plot."`
	SyncCost []time.Duration `help:"What a sync is taken to cost where rates are modelled. Default: 100us,1ms,5ms." placeholder:"5ms"`
}

// Help implements kong's interface for what follows the flags.
func (reportCommand) Help() string {
	return `It makes one HTML file that needs no network and runs no script: the answer first, then rates with their ` +
		`intervals, latencies, the course over the time, costs, what each engine survived, what rates would be if a sync ` +
		`cost more, what is not available and why, and the reports themselves.`
}

func (c *reportCommand) run(lab bench.Lab) int {
	costs, err := report.SyncCosts(c.SyncCost)
	if err == nil {
		err = showing(func(t console.Terminal) error {
			return report.Command(lab, c.Files, c.Output, report.Options{Mixed: c.Mixed, SyncCosts: costs}, t)
		})
	}

	return fail(err)
}

type adviseCommand struct {
	Files []string `arg:"" optional:"" help:"Reports that bench and crash have written with --json. Default: those that come with the program, of another machine." placeholder:"A.json"`
	Need  string   `help:"The work, what it must survive, and how many write. Default: what people usually need, in a table." placeholder:"'event append, power, 64 writers'"`
	Full  bool     `help:"Without --need, advice in sentences for all that was measured of writes."`
	Mixed bool     `help:"Use reports of different machines, disks or limits of memory together, and say how they differ."`
}

// Help implements kong's interface for what follows the flags.
func (adviseCommand) Help() string {
	return `It says what the reports show and no more. What was not measured it does not guess; it names the command ` +
		`that would find out. The exit status is 1 if the need was not measured.`
}

func (c *adviseCommand) run(lab bench.Lab) int {
	return fail(showing(func(t console.Terminal) error {
		return advise.Command(lab, advise.Request{Paths: c.Files, Need: c.Need, Full: c.Full, Mixed: c.Mixed}, t)
	}))
}

// filesOf are where a report of bench or crash goes.
func filesOf(json, html string, lab bench.Lab) console.Files {
	return console.Files{JSON: json, HTML: html, Page: func(w io.Writer, made any) error {
		s, err := report.Of(made)
		if err != nil {
			return err
		}

		return report.Write(w, lab, []report.Source{s}, report.Options{})
	}}
}
