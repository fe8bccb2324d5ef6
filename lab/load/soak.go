package load

import (
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// What may grow in a soak, from the end of its first third on: memory that caches fill, and goroutines of connections.
const (
	rssShare        = 0.10
	rssBytes        = 32 << 20
	goroutinesShare = 0.05
	goroutinesMore  = 50
)

// grown finds out by how much memory and goroutines of the server have grown since the first third, by the line that
// fits the samples best, and is the error of too much. Goroutines that the server does not tell of are no error: each
// of them takes memory, too.
func (w *watch) grown(result *Result) error {
	late := w.samples[len(w.samples)/3:]
	rss, rssMean := growth(late, func(s Sample) int64 { return s.RSS })
	goroutines, goroutinesMean := growth(late, func(s Sample) int64 { return s.Goroutines })
	result.RSSGrowth, result.GoroutineGrowth = rss, goroutines
	var errs []error
	if rssMean < 0 {
		errs = append(errs, errors.New("the server's memory is not known: start it with --serve, or give a token that may "+
			"read /v1/metrics"))
	}
	if rss > rssShare*rssMean+rssBytes {
		errs = append(errs, fmt.Errorf("the server's memory has grown by %s since the first third, around a mean of %s",
			measure.Size(int64(rss)), measure.Size(int64(rssMean))))
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
