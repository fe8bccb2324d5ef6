package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
)

type compareCommand struct {
	Files    []string `arg:"" help:"Reports that bench wrote with --json: an old and a new one; several of each side with vs between the sides; or one, to show its tables again." placeholder:"A.json"`
	Gate     string   `help:"Exit with 3 if one of these is shown to be worse by more: ops, p50, p99, p99.9, cpu, disk, syncs." placeholder:"ops=5%,p99=10%"`
	Anyway   bool     `help:"Compare also runs of unlike machines, lengths or budgets of memory."`
	Baseline string   `help:"Of one report: compare its engines with this one." placeholder:"ENGINE"`
	Full     bool     `help:"Of one report: show everything, as bench --full does."`
	Settings bool     `help:"Of one report: show what the contenders ran with."`
	Format   string   `help:"Table (default) or markdown; of one report also csv or benchstat." placeholder:"FORMAT"`
}

// Help implements kong's interface for what follows the flags.
func (compareCommand) Help() string {
	return `A change is shown where the Mann-Whitney U test says so, corrected after Holm over all cells. A side needs ` +
		`6 rounds at least, more for many cells. Rates, latencies and CPU time must also have changed when divided by ` +
		`those of floor in the same rounds, or of null where there is no floor: what the machine did fails no gate. ` +
		`Machines drift, so measure in turns and compare old1.json old2.json vs new1.json new2.json. Versions, ` +
		`settings and seeds that differ are named. A gate that cannot judge because there are too few rounds is an ` +
		`error. Where a measurement is void in the new runs and was not in the old ones, the exit status is 2.`
}

func (c *compareCommand) run(lab bench.Lab) int {
	return inLab(bench.Status, func(_ context.Context, t console.Terminal) error { return c.compare(lab, t) })
}

func (c *compareCommand) compare(lab bench.Lab, t console.Terminal) error {
	if len(c.Files) == 1 && c.Gate == "" {
		return lab.Show(c.Files[0], c.Baseline, c.Format, bench.Detail{Full: c.Full, Settings: c.Settings}, t)
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
	case c.Settings:
		return fmt.Errorf("compare: --settings is for one report, and there are %d; those that differ are named anyway",
			len(old)+len(now))
	case c.Full:
		return fmt.Errorf("compare: --full is for one report, and there are %d", len(old)+len(now))
	case c.Baseline != "":
		return fmt.Errorf("compare: --baseline is for one report, and there are %d", len(old)+len(now))
	}

	return bench.Compare(bench.Comparison{Old: old, New: now, Gate: c.Gate, Anyway: c.Anyway, Format: c.Format}, t)
}
