package db

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
)

// watch says, through the logger, for what a commit waited long, and what went on in the background meanwhile. Only
// what can take long is timed: calls that write and sync, and waiting for others. A store to a mapping is not. It
// may be used from many goroutines at once.
type watch struct {
	logger *slog.Logger
	least  time.Duration // a wait of less is not worth a line
	every  time.Duration // at most one line in so long

	began  time.Time
	next   atomic.Int64 // nanoseconds since began: no line before
	unsaid atomic.Int64 // waits that had none since the last one
	// nanoseconds since began: when what is going on in the background began; 0: nothing is
	since [activities]atomic.Int64
}

// What goes on in the background.
type activity int

const (
	isFlushing activity = iota
	isCompacting
	isPreparing
	activities = iota
)

func (a activity) String() string {
	return [...]string{"flush", "compaction", "prepare"}[a]
}

const (
	longWait  = time.Second
	waitEvery = 10 * time.Second
)

func newWatch(logger *slog.Logger) *watch {
	return &watch{logger: logger, least: longWait, every: waitEvery, began: time.Now()}
}

// during notes that an activity has begun, or ended.
func (w *watch) during(a activity, on bool) {
	since := int64(0)
	if on {
		// The lowest bit is set, so that a beginning at 0 is not taken for "nothing is going on".
		since = int64(time.Since(w.began)) | 1
	}
	w.since[a].Store(since)
}

// Long reports whether what began then has taken so long that [watch.Waited] should be told.
func (w *watch) Long(since time.Time) bool { return time.Since(since) >= w.least }

// Waited writes a line about a commit that has waited since then, for what and with what details, if it is time for
// one.
func (w *watch) Waited(since time.Time, what string, details ...any) {
	took := time.Since(since)

	// One line in every ten seconds: on a slow disk each commit would have one. The others are counted, and named in the
	// next line.
	now, next := int64(time.Since(w.began)), w.next.Load()
	if now < next || !w.next.CompareAndSwap(next, now+int64(w.every)) {
		w.unsaid.Add(1)
		return
	}
	details = append([]any{"took", took, "for", what}, details...)
	if s := w.background(now); s != "" {
		details = append(details, "background", s)
	}
	if n := w.unsaid.Swap(0); n > 0 {
		details = append(details, "unsaid", n)
	}
	w.logger.Warn("a commit waited long", details...)
}

// background says what is going on, and for how long.
func (w *watch) background(now int64) string {
	var all []string
	for a := range activity(activities) {
		if since := w.since[a].Load(); since > 0 {
			all = append(all, fmt.Sprintf("%s for %v", a, time.Duration(max(now-since, 0))))
		}
	}

	return strings.Join(all, ", ")
}
