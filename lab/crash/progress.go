package crash

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
)

// progress shows how a run goes on, where there is no terminal with a line for each tenth of the first pass, and
// everywhere with one for each pass, and writes the report of what there is so far. It implements watcher.
type progress struct {
	*console.Progress
	file   *console.ReportFile
	began  time.Time
	tenth  int          // of this pass
	passes int          // that are done, of a run with a length
	told   map[int]told // by result
}

// told is how many findings of a result, and directories of evidence, were told.
type told struct{ findings, evidence int }

// newProgress begins the time from which what is left is reckoned.
func newProgress(t console.Terminal, file *console.ReportFile) *progress {
	return &progress{Progress: t.Progress(), file: file, began: time.Now(), told: map[int]told{}}
}

// starts implements watcher.
func (p *progress) starts(c kinds.Row, done, all, broken int) {
	found := ""
	if broken > 0 {
		found = fmt.Sprintf(", %d BROKEN", broken)
	}

	// Without a terminal a line for each tenth is enough: it goes to a file that somebody reads later.
	if tenth := 10 * done / max(all, 1); tenth > p.tenth && p.passes == 0 {
		p.tenth = tenth
		p.Printf("%d %% done%s%s", 10*tenth, p.left(done, all), found)
	}
	what := c.Engine
	if c.Level > 0 {
		what += " at " + c.Level.String()
	}
	if c.Subject != "" {
		what += ", " + c.Subject
	}
	p.Show(func() string {
		return fmt.Sprintf("  %s %d of %d%s%s  %s  %s", console.Bar(done, all), done, all, p.left(done, all), found,
			c.Kind, what)
	})
}

// ended implements watcher.
func (p *progress) ended(broken int, soFar func() *Report) {
	if broken > 0 {
		p.findings(soFar())
	}
	p.file.Checkpoint(func() any { return soFar() })
}

// passed implements watcher.
func (p *progress) passed(soFar func() *Report) {
	p.passes++
	r := soFar()
	p.Say("pass %d done after %s: %s", p.passes, console.Length(time.Since(p.began)), r.summary())
	p.ended(r.brokenRows(), soFar)
}

// findings tells what was found and not told yet: a run may go on for hours.
func (p *progress) findings(r *Report) {
	for i, row := range r.Results {
		if row.Verdict != Broken || row.Control {
			continue
		}
		before := p.told[i]
		for _, f := range row.Findings[before.findings:] {
			line, _, _ := strings.Cut(f, "\n")
			p.Say("  %s", line)
		}
		for _, dir := range row.Evidence[before.evidence:] {
			p.Say("  evidence: %s", dir)
		}
		p.told[i] = told{len(row.Findings), len(row.Evidence)}
	}
}

// left extrapolates, once there is enough to go by.
func (p *progress) left(done, all int) string {
	if done < 6 || p.passes > 0 { // began is of all passes
		return ""
	}

	return ", " + console.Length(time.Duration(float64(time.Since(p.began))/float64(done)*float64(all-done))) + " left"
}
