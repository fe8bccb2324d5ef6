package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Bound is a bound on a percentile of latencies in an open loop. The zero value is none.
type Bound struct {
	Percentile string // p50, p90, p99 or p99.9
	Limit      time.Duration
}

// boundPercentiles are those that can be bounded.
var boundPercentiles = []string{"p50", "p90", "p99", "p99.9"}

// ParseBound reads what [Bound.String] writes: "p99=10ms".
func ParseBound(text string) (Bound, error) {
	percentile, limit, _ := strings.Cut(text, "=")
	d, err := time.ParseDuration(limit)
	if err != nil || d <= 0 || d > time.Minute || !slices.Contains(boundPercentiles, percentile) {
		return Bound{}, op.BadOption(fmt.Sprintf("a bound of %q", text), "name a percentile of "+
			console.List(boundPercentiles)+" and a time up to a minute, as p99=10ms")
	}

	return Bound{percentile, d}, nil
}

// String is "" for none.
func (b Bound) String() string {
	if b == (Bound{}) {
		return ""
	}

	return fmt.Sprintf("%s=%v", b.Percentile, b.Limit)
}

// of is the latency that is bounded, in microseconds.
func (b Bound) of(l measure.Latency) float64 {
	return map[string]float64{"p50": l.P50, "p90": l.P90, "p99": l.P99, "p99.9": l.P999}[b.Percentile]
}

// Search is how the highest rate was looked for at which a bound holds. Rates are of operations, a second.
type Search struct {
	Closed float64 `json:"closed_per_sec"` // of the closed loop, with which the search begins
	// Held is the highest rate offered at which the bound held, 0 if it held at none; Failed is the lowest one above it
	// at which it did not, 0 if it held at all.
	Held   float64     `json:"held_per_sec"`
	Failed float64     `json:"failed_per_sec"`
	Runs   []SearchRun `json:"runs"` // in their order
}

// SearchRun is one open loop of a search, in a process and a directory of its own.
type SearchRun struct {
	Offered    float64 `json:"offered_per_sec"`
	Reached    float64 `json:"reached_per_sec"`
	Latency    float64 `json:"latency_us"` // that is bounded
	Overloaded bool    `json:"overloaded"` // it did not keep up, whatever its latencies
	Held       bool    `json:"held"`
}

// A search ends when the rate is known within searchStep, or after so many runs.
const (
	searchStep = 1.1
	searchRuns = 12
	usualRuns  = 8 // of a search, for estimates
)

// next is the rate to try, and whether there is one. From the closed loop's rate on it is raised by halves until the
// bound fails, or halved until it holds; between the two it is their geometric mean.
func (s *Search) next() (rate float64, ok bool) {
	switch {
	case len(s.Runs) == 0:
		rate = s.Closed
	case s.Failed == 0:
		rate = s.Held * 1.5
	case s.Held == 0:
		rate = s.Failed / 2
	default:
		rate = math.Sqrt(s.Held * s.Failed)
	}
	narrow := s.Held > 0 && s.Failed > 0 && s.Failed <= s.Held*searchStep

	return rate, len(s.Runs) < searchRuns && !narrow && rate >= minRate && rate <= maxRate
}

// tried enters a run.
func (s *Search) tried(run SearchRun) {
	s.Runs = append(s.Runs, run)
	if run.Held {
		s.Held = run.Offered
	} else {
		s.Failed = run.Offered
	}
}

// search looks for the highest rate at which a cell's bound holds. measure measures with another offer. The result is
// that of the run at the rate that was found, or, if there is none, of the last run. One that is void ends the search.
func search(c Cell, measure func(Offer) (Result, error)) (found Result, err error) {
	bound := c.Offer.Bound
	found, err = measure(Offer{})
	if found.Cell = c; err != nil || !found.Verified {
		return found, err
	}

	s := &Search{Closed: found.OpsPerSec, Runs: []SearchRun{}}
	for rate, ok := s.next(); ok; rate, ok = s.next() {
		result, err := measure(Offer{Rate: rate})
		if result.Cell = c; err != nil || !result.Verified {
			return result, err
		}
		run := SearchRun{Offered: result.Open.Offered, Reached: result.OpsPerSec, Latency: bound.of(result.Latency),
			Overloaded: result.Open.Overloaded}
		run.Held = !run.Overloaded && run.Latency*1e3 <= float64(bound.Limit)
		if s.tried(run); run.Held || s.Held == 0 {
			found = result
		}
	}
	found.Search = s

	return found, nil
}

// measure measures a cell, or searches.
func (r *Runner) measure(ctx context.Context, c Cell, round, n int) (Result, error) {
	if c.Offer.Bound == (Bound{}) {
		return r.measureOnce(ctx, c, round, n)
	}

	return search(c, func(offer Offer) (Result, error) {
		at := c
		at.Offer = offer

		return r.measureOnce(ctx, at, round, n)
	})
}

// SearchSummary is what the searches of the rounds say together: medians.
type SearchSummary struct {
	Held   float64 `json:"held_per_sec"`
	Failed float64 `json:"failed_per_sec"` // 0 if the bound held at all rates in a round
	Closed float64 `json:"closed_per_sec"`
	Runs   int     `json:"runs"` // of all rounds
}

// searched sums up the searches of rounds, nil if there was none.
func searched(of []Result) *SearchSummary {
	var held, failed, closed []float64
	all := &SearchSummary{}

	for _, r := range of {
		if r.Search == nil {
			return nil
		}
		held, failed = append(held, r.Search.Held), append(failed, r.Search.Failed)
		closed = append(closed, r.Search.Closed)
		all.Runs += len(r.Search.Runs)
	}
	all.Held, all.Closed = measure.Middle(held), measure.Middle(closed)
	if !slices.Contains(failed, 0) {
		all.Failed = measure.Middle(failed)
	}

	return all
}

// Text says the rate found, and above it one at which the bound did not hold. write writes a rate of operations.
func (s SearchSummary) Text(write func(float64) string) (held, failed string) {
	if held = write(s.Held); s.Held == 0 {
		held = "none"
	}
	if failed = write(s.Failed); s.Failed == 0 {
		failed = "not reached"
	}

	return held, failed
}

// searches writes the table of a search.
func (s screen) searches(g group) {
	unit, items := g.workload.rates()
	t := console.Columns(1, "engine", "highest "+unit+"/s#", "fails at#", "closed loop#", "p50#", "p99#", "p99.9#", "max#",
		"runs#")

	rate := func(ops float64) string { return measure.Count(ops * items) }
	for _, row := range g.rows {
		if row.Search == nil {
			continue
		}
		held, failed := row.Search.Text(rate)
		cells := []string{row.Engine, held, failed, rate(row.Search.Closed), "-", "-", "-", "-", fmt.Sprint(row.Search.Runs)}
		if l := row.Latency; row.Search.Held > 0 {
			copy(cells[4:], l.Cells())
		}
		t.Row(plain(row.Engine), cells...)
	}

	for _, engine := range g.void {
		t.Row(console.Red, engine, "void", "see below", "", "", "", "", "", "")
	}
	s.Table(t)
}
