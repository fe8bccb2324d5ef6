package measure

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchmath"
)

// WantConfidence is that of intervals of enough values.
const WantConfidence = 0.95

// Median returns the median of values and an interval around it that holds the true one with the
// confidence returned, without assuming anything about the distribution. With fewer than 6 values
// no interval reaches 95 %: it then runs from the smallest to the largest and its confidence is
// what it is, 0 for a single value.
func Median(values []float64) (center, low, high, confidence float64) {
	sample := benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
	s := benchmath.AssumeNothing.Summary(sample, WantConfidence)
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		n := len(values)
		// The true median lies outside if all values fell on one side of it.
		return s.Center, sample.Values[0], sample.Values[n-1], 1 - math.Pow(0.5, float64(n-1))
	}

	return s.Center, s.Lo, s.Hi, s.Confidence
}

// Middle is the median alone, 0 of nothing.
func Middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	center, _, _, _ := Median(values)

	return center
}

// Latency is a distribution in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Cells are p50, p99, p99.9 and the maximum, for a table.
func (l Latency) Cells() []string {
	return []string{Duration(l.P50), Duration(l.P99), Duration(l.P999), Duration(l.Max)}
}

// Rounds are the results of one thing, one of each round.
type Rounds[R any] []R

// Column is one figure of each round.
func (r Rounds[R]) Column(figure func(R) float64) []float64 {
	var values []float64
	for _, result := range r {
		values = append(values, figure(result))
	}

	return values
}

// Middle is the median of one figure. That is how every figure of a summary is made, each by itself.
func (r Rounds[R]) Middle(figure func(R) float64) float64 { return Middle(r.Column(figure)) }

// Latency is the median of each figure of a distribution.
func (r Rounds[R]) Latency(of func(R) Latency) Latency {
	middle := func(figure func(Latency) float64) float64 {
		return r.Middle(func(result R) float64 { return figure(of(result)) })
	}

	return Latency{
		P50:  middle(func(l Latency) float64 { return l.P50 }),
		P90:  middle(func(l Latency) float64 { return l.P90 }),
		P99:  middle(func(l Latency) float64 { return l.P99 }),
		P999: middle(func(l Latency) float64 { return l.P999 }),
		Max:  middle(func(l Latency) float64 { return l.Max }),
	}
}

// Latencies are recorded in nanoseconds, to three digits, up to a minute and a half.
const (
	highestLatency = int64(100 * time.Second)
	latencyDigits  = 3
)

// NewHistogram returns an empty histogram of latencies, for one goroutine.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, highestLatency, latencyDigits)
}

// Record adds a latency; what is longer than the histogram goes counts as the longest.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(int64(d), highestLatency))
}

// LatencyOf sums up a histogram.
func LatencyOf(h *hdrhistogram.Histogram) Latency {
	at := func(q float64) float64 { return Micros(time.Duration(h.ValueAtQuantile(q))) }
	return Latency{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: Micros(time.Duration(h.Max()))}
}

// Point is a point of a distribution: so many percent of the operations took so long or less.
type Point struct {
	Percent float64 `json:"percent"`
	Micros  float64 `json:"us"`
}

// curvePercents are those of [Curve], in steps that a logarithmic scale of what is slow shows evenly.
var curvePercents = []float64{50, 75, 90, 95, 99, 99.9, 99.99, 99.999}

// Curve is a histogram's distribution: the fastest, quantiles up to the last that one operation at least is slower
// than, and the slowest. It is empty if nothing was recorded.
func Curve(h *hdrhistogram.Histogram) []Point {
	curve := []Point{}
	n := h.TotalCount()
	if n == 0 {
		return curve
	}
	micros := func(ns int64) float64 { return Micros(time.Duration(ns)) }
	curve = append(curve, Point{0, micros(h.Min())})

	for _, p := range curvePercents {
		if float64(n)*(100-p) < 100*(1-1e-9) {
			break
		}
		curve = append(curve, Point{p, micros(h.ValueAtQuantile(p))})
	}

	return append(curve, Point{100, micros(h.Max())})
}

// Micros is d in microseconds, with the nanoseconds as decimals.
func Micros(d time.Duration) float64 { return math.Round(float64(d)) / 1e3 }
