package bench

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress shows how a run goes on: one line redrawn on a terminal, otherwise one line per
// round. It implements [Watcher].
type progress struct {
	w     io.Writer
	plan  Plan
	live  bool // a terminal
	width func() int
	now   func() time.Time

	mu      sync.Mutex
	began   time.Time
	cell    Cell
	round   int
	done    int
	total   int
	stop    chan struct{}
	stopped sync.WaitGroup
}

func newProgress(w io.Writer, p Plan, live bool, width func() int) *progress {
	return &progress{w: w, plan: p, live: live, width: width, now: time.Now, total: len(p.Cells) * p.Rounds}
}

// Starts implements [Watcher].
func (p *progress) Starts(c Cell, round, done int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.IsZero() {
		p.began = p.now()
		if p.live {
			p.stop = make(chan struct{})
			p.stopped.Go(p.tick)
		}
	}
	if !p.live && round != p.round && p.plan.Rounds > 1 {
		fmt.Fprintf(p.w, "round %d of %d, %s left\n", round, p.plan.Rounds, left(p.left(done)))
	}
	p.cell, p.round, p.done = c, round, done
	if p.live {
		p.draw()
	}
}

// tick redraws while one measurement lasts long.
func (p *progress) tick() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// end takes the line away.
func (p *progress) end() {
	if p.stop != nil {
		close(p.stop)
		p.stopped.Wait()
		p.stop = nil
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// left extrapolates from what has been measured, once that is enough to go by.
func (p *progress) left(done int) time.Duration {
	gone := p.now().Sub(p.began)
	if done < 5 {
		return max(p.plan.Estimate()-gone, 0)
	}
	return time.Duration(float64(gone) / float64(done) * float64(p.total-done))
}

func left(d time.Duration) string {
	if d >= 2*time.Minute {
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

const barWidth = 20

func (p *progress) draw() {
	at := barWidth * p.done / max(p.total, 1)
	bar := strings.Repeat("=", at) + ">" + strings.Repeat(" ", barWidth-at)
	what := fmt.Sprintf("%s  %s", p.cell.Engine, p.cell.Workload)
	if !p.cell.Reads {
		what += " at " + p.cell.Given.String()
	}
	if p.cell.Clients > 1 {
		what += fmt.Sprintf(", %d clients", p.cell.Clients)
	}
	line := fmt.Sprintf("  round %d of %d  [%s]  %s left  %s", p.round, p.plan.Rounds, bar[:barWidth+1], left(p.left(p.done)), what)
	if limit := p.width() - 1; len(line) > limit {
		line = line[:max(limit, 0)]
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
}
