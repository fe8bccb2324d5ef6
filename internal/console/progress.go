package console

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress shows how a run goes on: on a terminal one line that is redrawn, elsewhere lines that the run chooses.
type Progress struct {
	w     io.Writer
	width func() int // nil where there is no terminal

	mu      sync.Mutex
	line    func() string
	stop    chan struct{} // nil while no line is shown
	stopped sync.WaitGroup
}

// Progress returns the progress of a run, on standard error. Nothing is shown before the first Show.
func (t Terminal) Progress() *Progress {
	p := &Progress{w: t.Err}
	if widthOf(t.ErrWidth) > 0 {
		p.width = t.ErrWidth
	}

	return p
}

// live reports that there is a line that is redrawn.
func (p *Progress) live() bool { return p.width != nil }

// Printf writes a line, where none is redrawn.
func (p *Progress) Printf(format string, args ...any) {
	if !p.live() {
		fmt.Fprintf(p.w, format+"\n", args...)
	}
}

// Say writes a line, above the one that is redrawn.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live() {
		fmt.Fprint(p.w, clearLine)
	}
	fmt.Fprintf(p.w, format+"\n", args...)
	if p.stop != nil {
		p.draw()
	}
}

// Show shows what line returns, now and each second until the next Show or End, on a terminal alone. line is called
// by several goroutines, one at a time.
func (p *Progress) Show(line func() string) {
	if !p.live() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line = line
	p.draw()
	if p.stop == nil {
		p.stop = make(chan struct{})
		p.stopped.Go(p.tick)
	}
}

// tick redraws while one step lasts long.
func (p *Progress) tick() {
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

func (p *Progress) draw() {
	line := p.line()
	if limit := p.width() - 1; len(line) > limit {
		line = line[:max(limit, 0)]
	}
	fmt.Fprintf(p.w, clearLine+"%s", line)
}

const clearLine = "\r\x1b[K"

// End takes the line away. It comes after the last Show.
func (p *Progress) End() {
	if p.stop != nil {
		close(p.stop)
		p.stopped.Wait()
		p.stop = nil
		fmt.Fprint(p.w, clearLine)
	}
}

const barWidth = 20

// Bar draws how much of a run is done.
func Bar(done, all int) string {
	at := barWidth * done / max(all, 1)
	bar := strings.Repeat("=", at) + ">" + strings.Repeat(" ", barWidth-at)

	return "[" + bar[:barWidth+1] + "]"
}

// Length writes how long something takes, in minutes or seconds.
func Length(d time.Duration) string {
	if d >= 2*time.Minute {
		return fmt.Sprintf("%.0f min", d.Minutes())
	}

	return fmt.Sprintf("%.0f s", d.Seconds())
}
