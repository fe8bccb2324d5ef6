package bench

import (
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// summarise sums up the results of the first so many rounds, cell by cell in the plan's order, and ranks them, by the
// baseline if one is named. A cell with a void result, wherever it is, has no summary.
func summarise(cells []Cell, results []Result, rounds int, baseline string) []Summary {
	summaries, rates := []Summary{}, map[Cell][]float64{}
	for _, c := range cells {
		// One void result makes the whole cell void, whichever round it is of: what was wrong once cannot be ranked.
		var of measure.Rounds[Result]
		void := false

		for _, r := range results {
			if r.Cell != c {
				continue
			}
			void = void || !r.Verified
			if r.Round <= rounds {
				of = append(of, r)
			}
		}
		if len(of) == 0 || void {
			continue
		}

		s := Summary{Workload: c.Workload, Engine: c.Engine, Given: c.Given, Clients: c.Clients, Offer: c.Offer,
			Rounds: len(of), cell: c}
		rates[c] = of.Column(func(r Result) float64 { return r.OpsPerSec })
		s.Median, s.Low, s.High, s.Confidence = measure.Median(rates[c])
		middle := of.Middle
		s.Ops = int64(middle(func(r Result) float64 { return float64(r.Ops) }))
		s.Latency = of.Latency(func(r Result) measure.Latency { return r.Latency })
		s.Kinds = []KindSummary{}

		for i, kind := range of[0].Kinds {
			if slices.ContainsFunc(of, func(r Result) bool { return len(r.Kinds) <= i || r.Kinds[i].Name != kind.Name }) {
				break // a report of several builds
			}
			s.Kinds = append(s.Kinds, KindSummary{Name: kind.Name,
				Ops:     int64(middle(func(r Result) float64 { return float64(r.Kinds[i].Ops) })),
				Latency: of.Latency(func(r Result) measure.Latency { return r.Kinds[i].Latency })})
		}
		if c.Offer.Open() {
			s.Offered = middle(func(r Result) float64 { return r.Open.Offered })
			s.Search = searched(of)

			for _, r := range of {
				if r.Open.Overloaded {
					s.Overloaded++
				}
			}
		}
		s.SettleSeconds = middle(func(r Result) float64 { return r.SettleSeconds })
		s.SettledOpsPerSec = middle(Result.Settled)
		s.OpenSeconds = middle(func(r Result) float64 { return r.OpenSeconds })
		s.DiskBeforeClose = int64(middle(func(r Result) float64 { return float64(r.DiskBeforeClose) }))
		s.PeakRSS = int64(middle(func(r Result) float64 { return float64(r.PeakRSS) }))
		s.DiskBytes = int64(middle(func(r Result) float64 { return float64(r.DiskBytes) }))
		s.PeakDisk = int64(middle(func(r Result) float64 { return float64(r.PeakDisk) }))
		s.Items = int64(middle(func(r Result) float64 { return float64(r.Items) }))
		s.CPUPerItem = middle(Result.cpuPerItem)
		s.FromMemory = slices.ContainsFunc(of, func(r Result) bool { return r.FromMemory })
		s.ReadPerOp = middle(func(r Result) float64 { return r.perOp(r.BytesRead) })
		s.WrittenPerOp = middle(func(r Result) float64 { return r.perOp(r.BytesWritten) })
		s.WriteAmplification = middle(Result.writeAmplification)
		s.LastByFirst = middle(Result.lastByFirst)
		s.SyncsPerCommit = middle(Result.syncsPerCommit)
		summaries = append(summaries, s)
	}
	rank(summaries, rates, baseline)

	return summaries
}

// Settled is the rate, in operations a second, if their share of the time to close counts too: that pays what was put
// off, of warming up as well.
func (r Result) Settled() float64 {
	if r.Ops == 0 {
		return 0
	}
	share := float64(r.Ops) / float64(r.Ops+r.WarmUpOps)

	return float64(r.Ops) / (r.Seconds + share*r.SettleSeconds)
}

// cpuPerItem is in microseconds, -1 if not known.
func (r Result) cpuPerItem() float64 {
	items := float64(r.Ops+r.WarmUpOps) * float64(r.ItemsPerOp)
	if r.CPUSeconds < 0 || items == 0 {
		return holdfast.Unknown
	}

	return r.CPUSeconds * 1e6 / items
}

// perOp is the share of an operation in these bytes, -1 if they are not known.
func (r Result) perOp(bytes int64) float64 {
	ops := r.Ops + r.WarmUpOps
	if bytes < 0 || ops == 0 {
		return holdfast.Unknown
	}

	return float64(bytes) / float64(ops)
}

// writeAmplification is the bytes that devices wrote by those that clients put, -1 if not known.
func (r Result) writeAmplification() float64 {
	if r.BytesWritten < 0 || r.BytesPut <= 0 {
		return holdfast.Unknown
	}

	return float64(r.BytesWritten) / float64(r.BytesPut)
}

// lastByFirst is the rate in the last quarter of the time by that in the first, -1 if nothing was done in that.
func (r Result) lastByFirst() float64 {
	if r.Quarters[0] == 0 {
		return holdfast.Unknown
	}

	return r.Quarters[runParts-1] / r.Quarters[0]
}

// syncsPerCommit is -1 if not known.
func (r Result) syncsPerCommit() float64 {
	if r.Syncs < 0 || r.Commits <= 0 {
		return holdfast.Unknown
	}

	return float64(r.Syncs) / float64(r.Commits)
}
