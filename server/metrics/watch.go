package metrics

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/wrapped"
)

// Watched is an engine that measures its commits. It is a [holdfast.Engine], and is closed as one: a program opens its
// stores in it, not in the engine below, or they would not know of each other.
type Watched struct {
	wrapped.Engine
	began  time.Time
	levels [holdfast.Quorum + 1]histogram
	stalls [holdfast.Quorum + 1][len(stalled)]atomic.Uint64

	applied atomic.Uint64 // commits
	weak    atomic.Uint64 // the last of them below Power, 0 if there was none
	safe    atomic.Uint64 // all up to this one have reached the device

	mu     sync.Mutex
	seen   uint64    // what weak was when it was last looked at
	seenAt time.Time // when it was first seen to be that
}

// Watch returns e as an engine that measures how long commits take, from Apply until Wait has returned. Those at Power
// and Quorum are all measured, which adds two readings of the clock and an allocation to what the device takes; of the
// others, which can be as fast as that, one in sixteen is, and counts for sixteen. Commits that nobody waits for are
// not measured. How long Apply holds a commit up is looked at for all: it costs two readings of the clock. The caller
// closes what Watch returns instead of e.
func Watch(e holdfast.Engine) *Watched {
	return &Watched{Engine: wrapped.Engine{Engine: e}, began: time.Now()}
}

// stalled is how long Apply holds a commit up to be counted: an engine lets it wait for room in memory, or for
// background work that is behind. Waiting for the device comes after that.
var stalled = [...]struct {
	over time.Duration
	name string
}{{10 * time.Millisecond, "10ms"}, {100 * time.Millisecond, "100ms"}, {time.Second, "1s"}}

// sample is of how many commits below Power one is measured.
const sample = 16

// buckets are the bounds of a histogram: 2 to the power of minShift nanoseconds, doubled each time.
const (
	minShift = 10 // about a microsecond
	buckets  = 24 // the last bound is about 8.6 seconds
)

// histogram counts durations. It is written without a lock.
type histogram struct {
	counts [buckets + 1]atomic.Uint64 // the last has no bound
	sum    atomic.Int64               // nanoseconds
}

// observe counts a duration that stands for n.
func (h *histogram) observe(d time.Duration, n int64) {
	at := 0
	if d > 1<<minShift {
		at = min(bits.Len64(uint64(d-1))-minShift, buckets) // the bound is in its bucket
	}
	h.counts[at].Add(uint64(n))
	h.sum.Add(int64(d) * n)
}

// read returns what Prometheus makes a histogram of.
func (h *histogram) read() (count uint64, sum float64, cumulative map[float64]uint64) {
	sum = time.Duration(h.sum.Load()).Seconds()
	cumulative = make(map[float64]uint64, buckets)

	for i := range h.counts {
		count += h.counts[i].Load()
		if i < buckets {
			cumulative[time.Duration(1<<(minShift+i)).Seconds()] = count
		}
	}

	return count, sum, cumulative
}

// commit is a commit that is measured. It is the Waiter of the receipt that the program gets.
type commit struct {
	w     *Watched
	below holdfast.Receipt
	start time.Duration // since w.began
	at    uint64        // how many had been applied, with it
	level holdfast.Level
	done  atomic.Bool
}

// Apply implements [holdfast.Engine].
func (w *Watched) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	// Counted first: a commit at Power that is counted later may be applied earlier, and is not taken for a later one.
	at := w.applied.Add(1)
	if level < holdfast.Power {
		w.weak.Store(at)
	}
	start := time.Since(w.began)
	below, err := w.Engine.Apply(b, level)
	if took := time.Since(w.began) - start; took > stalled[0].over && level <= holdfast.Quorum {
		for i := range stalled {
			if took > stalled[i].over {
				w.stalls[level][i].Add(1)
			}
		}
	}
	if err != nil || level < holdfast.Power && at%sample != 1 {
		return below, err
	}

	return holdfast.NewReceipt(&commit{w: w, below: below, start: start, at: at, level: level}, 0), nil
}

// Wait implements [holdfast.Waiter].
func (c *commit) Wait(uint64) error {
	err := c.below.Wait()
	if err == nil && !c.done.Load() && c.done.CompareAndSwap(false, true) {
		n := int64(sample)
		if c.level >= holdfast.Power {
			n = 1
			c.w.reached(c.at)
		}
		c.w.levels[c.level].observe(time.Since(c.w.began)-c.start, n)
	}

	return err
}

// reached notes that all commits up to one are on the device.
func (w *Watched) reached(at uint64) {
	for {
		was := w.safe.Load()
		if was >= at || w.safe.CompareAndSwap(was, at) {
			return
		}
	}
}

// Sync implements [holdfast.Engine].
func (w *Watched) Sync() error {
	at := w.applied.Load()
	err := w.Engine.Sync()
	if err == nil {
		w.reached(at)
	}

	return err
}

// unsynced reports whether a power cut now may cost a commit that was acknowledged below Power.
func (w *Watched) unsynced() bool {
	weak, window := w.weak.Load(), w.Capabilities().LossWindow
	w.mu.Lock()
	defer w.mu.Unlock()
	if weak != w.seen {
		w.seen, w.seenAt = weak, time.Now()
	}

	return weak > w.safe.Load() && (window <= 0 || time.Since(w.seenAt) <= window)
}

var (
	commitSeconds = desc("commit_seconds",
		"How long commits took from Apply until Wait returned, by the level they named; below Power estimated from samples.",
		"level")
	stalledCommits = desc("stalled_commits_total",
		"Commits that Apply held up for longer than that, for room in memory or background work, by the level they named.",
		"level", "over")
	unsynced = desc("unsynced",
		"1 if a power cut now may cost a commit below Power: one was seen within the loss window, and none at Power since.")
)

// watchedCollector adds the measurements of a Watched to its engine's metrics.
type watchedCollector struct {
	engineCollector
	w *Watched
}

// Collector returns a collector of the engine's own metrics, as [Engine] does, and of the latency of commits. One
// registry takes those of one engine.
func (w *Watched) Collector() prometheus.Collector {
	return watchedCollector{engineCollector{w.Engine.Engine}, w}
}

// Describe implements [prometheus.Collector].
func (c watchedCollector) Describe(to chan<- *prometheus.Desc) {
	c.engineCollector.Describe(to)
	to <- commitSeconds
	to <- stalledCommits
	to <- unsynced
}

// Collect implements [prometheus.Collector].
func (c watchedCollector) Collect(to chan<- prometheus.Metric) {
	c.engineCollector.Collect(to)

	for _, level := range holdfast.Levels() {
		count, sum, cumulative := c.w.levels[level].read()
		to <- prometheus.MustNewConstHistogram(commitSeconds, count, sum, cumulative, level.String())

		for i := range stalled {
			to <- prometheus.MustNewConstMetric(stalledCommits, prometheus.CounterValue,
				float64(c.w.stalls[level][i].Load()), level.String(), stalled[i].name)
		}
	}
	to <- prometheus.MustNewConstMetric(unsynced, prometheus.GaugeValue, truth(c.w.unsynced()))
}
