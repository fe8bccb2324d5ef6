package crash

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progress shows how a run goes on: one line redrawn on a terminal, otherwise a line for each tenth. It
// implements watcher.
type progress struct {
	w     io.Writer
	live  bool // a terminal
	width func() int

	mu                sync.Mutex
	began             time.Time
	cell              cell
	done, all, broken int
	tenth             int
	stop              chan struct{}
	stopped           sync.WaitGroup
}

func newProgress(w io.Writer, live bool, width func() int) *progress {
	return &progress{w: w, live: live, width: width}
}

// starts implements watcher.
func (p *progress) starts(c cell, done, all, broken int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.began.IsZero() {
		p.began = time.Now()
		if p.live {
			p.stop = make(chan struct{})
			p.stopped.Go(p.tick)
		}
	}
	p.cell, p.done, p.all, p.broken = c, done, all, broken
	if p.live {
		p.draw()
		return
	}
	if tenth := 10 * done / max(all, 1); tenth > p.tenth {
		p.tenth = tenth
		fmt.Fprintf(p.w, "%d %% done%s%s\n", 10*tenth, p.left(), p.brokenText())
	}
}

// tick redraws while one unit lasts long.
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

// left extrapolates, once there is enough to go by.
func (p *progress) left() string {
	if p.done < 6 {
		return ""
	}
	d := time.Duration(float64(time.Since(p.began)) / float64(p.done) * float64(p.all-p.done))
	if d >= 2*time.Minute {
		return fmt.Sprintf(", %.0f min left", d.Minutes())
	}
	return fmt.Sprintf(", %.0f s left", d.Seconds())
}

func (p *progress) brokenText() string {
	if p.broken == 0 {
		return ""
	}
	return fmt.Sprintf(", %d BROKEN", p.broken)
}

const barWidth = 20

func (p *progress) draw() {
	at := barWidth * p.done / max(p.all, 1)
	bar := strings.Repeat("=", at) + ">" + strings.Repeat(" ", barWidth-at)
	what := p.cell.Engine
	if p.cell.Level > 0 {
		what += " at " + p.cell.Level.String()
	}
	line := fmt.Sprintf("  [%s] %d of %d%s%s  %s  %s, %s", bar[:barWidth+1], p.done, p.all, p.left(), p.brokenText(), p.cell.Kind, what, p.cell.Subject)
	if limit := p.width() - 1; len(line) > limit {
		line = line[:max(limit, 0)]
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s", line)
}
