package bench

import (
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast/internal/console"
)

// progress shows how a run goes on, with a line for each round where there is no terminal, and writes the report of
// what there is so far. It implements [Watcher].
type progress struct {
	*console.Progress
	file *console.ReportFile
	plan Plan
	now  func() time.Time

	began time.Time
	round int
	first int // measurements that were there before
	total int
}

func newProgress(t console.Terminal, p Plan, file *console.ReportFile) *progress {
	return &progress{Progress: t.Progress(), file: file, plan: p, now: time.Now, total: len(p.Cells) * p.Rounds}
}

// Starts implements [Watcher].
func (p *progress) Starts(c Cell, round, done int) {
	if p.began.IsZero() {
		p.began, p.first = p.now(), done
	}
	if round != p.round && p.plan.Rounds > 1 {
		p.Printf("round %d of %d, %s left", round, p.plan.Rounds, console.Length(p.left(done)))
	}
	p.round = round
	what := fmt.Sprintf("%s  %s", c.Engine, c.Workload)
	if !c.Reads {
		what += " at " + c.Given.String()
	}
	if c.Clients > 1 {
		what += fmt.Sprintf(", %d clients", c.Clients)
	}
	p.Show(func() string {
		return fmt.Sprintf("  round %d of %d  %s  %s left  %s", round, p.plan.Rounds,
			console.Bar(done, p.total), console.Length(p.left(done)), what)
	})
}

// Measured implements [Watcher].
func (p *progress) Measured(soFar func() *Report) { p.file.Checkpoint(func() any { return soFar() }) }

// left extrapolates from what has been measured, once that is enough to go by.
func (p *progress) left(done int) time.Duration {
	gone, made := p.now().Sub(p.began), float64(done-p.first)
	if made < 5 {
		all := p.plan.Estimate() * time.Duration(p.total-p.first) / time.Duration(max(p.total, 1))
		return max(all-gone, 0)
	}

	return time.Duration(float64(gone) / made * float64(p.total-done))
}
