package bench

import (
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

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
		s.Median, s.Low, s.High, s.Confidence = measure.Median(column(func(r Result) float64 { return r.OpsPerSec }))
		s.p50 = measure.Middle(column(func(r Result) float64 { return r.Latency.P50 }))
		s.p99 = measure.Middle(column(func(r Result) float64 { return r.Latency.P99 }))
		s.p999 = measure.Middle(column(func(r Result) float64 { return r.Latency.P999 }))
		s.max = measure.Middle(column(func(r Result) float64 { return r.Latency.Max }))
		s.settle = measure.Middle(column(func(r Result) float64 { return r.SettleSeconds }))
		s.peakRSS = int64(measure.Middle(column(func(r Result) float64 { return float64(r.PeakRSS) })))
		s.diskBytes = int64(measure.Middle(column(func(r Result) float64 { return float64(r.DiskBytes) })))
		s.peakDisk = int64(measure.Middle(column(func(r Result) float64 { return float64(r.PeakDisk) })))
		s.items = int64(measure.Middle(column(func(r Result) float64 { return float64(r.Items) })))
		s.cpuPerItem = measure.Middle(column(func(r Result) float64 {
			ops := r.Ops + r.WarmUpOps
			if r.CPUSeconds < 0 || ops == 0 {
				return -1
			}
			return r.CPUSeconds * 1e6 / (float64(ops) * float64(r.ItemsPerOp))
		}))
		s.readPerOp = measure.Middle(column(func(r Result) float64 {
			ops := r.Ops + r.WarmUpOps
			if r.BytesRead < 0 || ops == 0 {
				return -1
			}
			return float64(r.BytesRead) / float64(ops)
		}))
		s.syncsPerCommit = measure.Middle(column(func(r Result) float64 {
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
