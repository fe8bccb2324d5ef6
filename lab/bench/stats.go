package bench

import (
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

const wantConfidence = 0.95

// median returns the median of values and an interval around it that holds the true one with the
// confidence returned, without assuming anything about the distribution. With fewer than 6 values
// no interval reaches 95 %: it then runs from the smallest to the largest and its confidence is
// what it is, 0 for a single value.
func median(values []float64) (center, low, high, confidence float64) {
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	s := benchmath.AssumeNothing.Summary(sample, wantConfidence)
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		n := len(values)
		// The true median lies outside if all values fell on one side of it.
		return s.Center, sample.Values[0], sample.Values[n-1], 1 - math.Pow(0.5, float64(n-1))
	}
	return s.Center, s.Lo, s.Hi, s.Confidence
}

// middle is the median alone, 0 of nothing.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	center, _, _, _ := median(values)
	return center
}

// summarise sums up the first so many of the results, cell by cell in the plan's order. A cell with a void result,
// wherever it is, has no summary.
func summarise(cells []Cell, results []Result, counted int) []Summary {
	summaries := []Summary{}
	for _, c := range cells {
		var of []Result
		void := false
		for i, r := range results {
			if r.Cell != c {
				continue
			}
			void = void || !r.Verified
			if i < counted {
				of = append(of, r)
			}
		}
		if len(of) == 0 || void {
			continue
		}
		column := func(f func(Result) float64) []float64 {
			var values []float64
			for _, r := range of {
				values = append(values, f(r))
			}
			return values
		}
		s := Summary{Workload: c.Workload, Engine: c.Engine, Given: c.Given, Clients: c.Clients, Rounds: len(of), cell: c}
		s.Median, s.Low, s.High, s.Confidence = median(column(func(r Result) float64 { return r.OpsPerSec }))
		s.p50 = middle(column(func(r Result) float64 { return r.Latency.P50 }))
		s.p99 = middle(column(func(r Result) float64 { return r.Latency.P99 }))
		s.p999 = middle(column(func(r Result) float64 { return r.Latency.P999 }))
		s.max = middle(column(func(r Result) float64 { return r.Latency.Max }))
		s.settle = middle(column(func(r Result) float64 { return r.SettleSeconds }))
		s.peakRSS = int64(middle(column(func(r Result) float64 { return float64(r.PeakRSS) })))
		s.diskBytes = int64(middle(column(func(r Result) float64 { return float64(r.DiskBytes) })))
		s.peakDisk = int64(middle(column(func(r Result) float64 { return float64(r.PeakDisk) })))
		s.items = int64(middle(column(func(r Result) float64 { return float64(r.Items) })))
		s.cpuPerItem = middle(column(func(r Result) float64 {
			ops := r.Ops + r.WarmUpOps
			if r.CPUSeconds < 0 || ops == 0 {
				return -1
			}
			return r.CPUSeconds * 1e6 / (float64(ops) * float64(r.ItemsPerOp))
		}))
		s.syncsPerCommit = middle(column(func(r Result) float64 {
			if r.Syncs < 0 || r.Commits <= 0 {
				return -1
			}
			return float64(r.Syncs) / float64(r.Commits)
		}))
		summaries = append(summaries, s)
	}
	return summaries
}

// overlap reports whether two intervals share a value: no difference is shown then.
func overlap(a, b Summary) bool { return a.Low <= b.High && b.Low <= a.High }
