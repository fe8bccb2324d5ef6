package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/console"
)

type compareCommand struct {
	Files    []string `arg:"" help:"Reports that bench has written with --json: the old one and the new one; several of each with vs between them; one to show its tables again." placeholder:"A.json"`
	Gate     string   `help:"Exit with 3 if one is worse by more, and that is shown: of ops, p50, p99, p99.9, cpu, disk, syncs." placeholder:"ops=5%,p99=10%"`
	Anyway   bool     `help:"Compare also runs of unlike machines, lengths or budgets of memory."`
	Baseline string   `help:"Of one report: compare with this engine." placeholder:"ENGINE"`
	Format   string   `help:"Of one report: table (default), markdown, csv or benchstat." placeholder:"FORMAT"`
}

// Help implements kong's interface for what follows the flags.
func (compareCommand) Help() string {
	return `A change is shown where the Mann-Whitney U test says so, corrected after Holm over all cells; each run needs 6 ` +
		`rounds at least. Versions, settings and seeds that differ are named. Without --gate no change makes it fail. Where ` +
		`a measurement is void in the new run and was not in the old one, the exit status is 2.`
}

func (c *compareCommand) run(lab bench.Lab) int {
	err := c.compare(lab)
	if status := fail(err); status != exitError {
		return status
	}
	return bench.Status(err)
}

func (c *compareCommand) compare(lab bench.Lab) error {
	if len(c.Files) == 1 && c.Gate == "" {
		return lab.Show(c.Files[0], c.Baseline, c.Format, console.Standard())
	}
	old, now := c.Files[:1], c.Files[1:]
	if i := slices.Index(c.Files, "vs"); i >= 0 {
		old, now = c.Files[:i], c.Files[i+1:]
	} else if len(c.Files) > 2 {
		return errors.New("compare: several files of one side need vs between the old ones and the new ones")
	}
	switch {
	case len(old) == 0 || len(now) == 0:
		return errors.New("compare: name an old report and a new one")
	case c.Baseline != "" || c.Format != "":
		return fmt.Errorf("compare: --baseline and --format are for one report, and there are %d", len(c.Files))
	}
	return bench.Compare(bench.Comparison{Old: old, New: now, Gate: c.Gate, Anyway: c.Anyway}, console.Standard())
}
