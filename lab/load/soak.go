package load

import (
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// What may grow in a soak, from the end of its first third on: memory, and goroutines of connections.
const (
	memoryShare     = 0.10
	memoryBytes     = 32 << 20
	goroutinesShare = 0.05
	goroutinesMore  = 50
)

// perCache is how much memory a byte in the caches of an engine takes: the collector of Go leaves as much again free.
// Caches that fill up are no growth, because they have a budget. They reach it only after hours if little is written.
const perCache = 2

// grown finds out by how much memory and goroutines of the server have grown since the first third, by the line that
// fits the samples best, and is the error of too much. Memory is what is the process's own: the pages of its files, of
// which logtree maps the newest, come and go with the files. Goroutines that the server does not tell of are no error:
// each of them takes memory, too.
func (w *watch) grown(result *Result) error {
	late := w.samples[len(w.samples)/3:]
	memory, mean := growth(late, func(s Sample) int64 {
		if s.Own < 0 {
			return -1
		}

		return max(s.Own-perCache*max(s.Caches, 0), 0)
	})
	goroutines, goroutinesMean := growth(late, func(s Sample) int64 { return s.Goroutines })
	result.MemoryGrowth, result.GoroutineGrowth = memory, goroutines
	var errs []error
	if mean < 0 {
		errs = append(errs, errors.New("the server's memory is not known: start it with --serve, or give a token that may "+
			"read /v1/metrics"))
	}
	if memory > memoryShare*mean+memoryBytes {
		errs = append(errs, fmt.Errorf("the server's memory has grown by %s since the first third, around a mean of %s, "+
			"without files and caches", measure.Size(int64(memory)), measure.Size(int64(mean))))
	}
	if goroutines > goroutinesShare*goroutinesMean+goroutinesMore {
		errs = append(errs, fmt.Errorf("the server's goroutines have grown by %.0f since the first third, around a mean "+
			"of %.0f",
			goroutines, goroutinesMean))
	}

	return errors.Join(errs...)
}

// growth fits a line to the samples, by least squares, and tells its rise from the first to the last, and the mean; the
// mean is -1 if a sample does not know.
func growth(samples []Sample, of func(Sample) int64) (rise, mean float64) {
	n := float64(len(samples))
	var x, y, xx, xy float64

	for _, s := range samples {
		v := of(s)
		if v < 0 {
			return 0, -1
		}
		x, y = x+s.Seconds, y+float64(v)
		xx, xy = xx+s.Seconds*s.Seconds, xy+s.Seconds*float64(v)
	}
	mean = y / n
	if spread := n*xx - x*x; len(samples) > 1 && spread > 0 {
		rise = (n*xy - x*y) / spread * (samples[len(samples)-1].Seconds - samples[0].Seconds)
	}

	return rise, mean
}
