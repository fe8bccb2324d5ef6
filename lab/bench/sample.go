package bench

import (
	"os"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// A measurement is looked at so often while it lasts, but not more often than the shortest time, and each longest time.
const (
	samplesWanted  = 25
	shortestSample = 5 * time.Millisecond
	longestSample  = time.Second
)

// sampleEvery is how often a measurement of that length is looked at.
func sampleEvery(length time.Duration) time.Duration {
	return min(max(length/samplesWanted, shortestSample), longestSample)
}

// lookShare is how many times as long as a look at disk and memory the time until the next one is, at least: of many
// files the sizes take long to add up. Samples between have what was seen last.
const lookShare = 100

// sampler looks at the directory, and at the process, while a load runs in it.
type sampler struct {
	dir     string
	process contender.Process // the engine if it works in a process of its own
	every   time.Duration
	ops     func() int64 // done until now
	began   time.Time
	looked  time.Time     // when disk and memory were looked at
	took    time.Duration // that it took
	disk    int64
	rss     int64
	samples []Sample
	peak    int64 // bytes on disk, the most that was seen; to be read after stop
	end     chan struct{}
	ended   sync.WaitGroup
}

func newSampler(dir string, every time.Duration, ops func() int64) *sampler {
	return &sampler{dir: dir, every: every, ops: ops, end: make(chan struct{})}
}

func (s *sampler) start() {
	s.began = time.Now()
	s.ended.Go(func() {
		ticker := time.NewTicker(s.every)
		defer ticker.Stop()

		for {
			select {
			case <-s.end:
				return
			case <-ticker.C:
				s.take()
			}
		}
	})
}

func (s *sampler) take() {
	now := time.Now()
	ops := s.ops()
	if s.looked.IsZero() || now.Sub(s.looked) >= lookShare*s.took {
		s.look()
	}
	s.samples = append(s.samples, Sample{Seconds: now.Sub(s.began).Seconds(), Ops: ops, DiskBytes: s.disk, RSS: s.rss})
}

// look looks at disk and memory.
func (s *sampler) look() {
	s.looked = time.Now()
	s.disk = usage(s.dir)
	s.rss, _ = measure.Memory(os.Getpid())
	if s.process != nil {
		s.rss = sum(s.rss, s.process.Use().RSS)
	}
	s.peak = max(s.peak, s.disk)
	s.took = time.Since(s.looked)
}

// stop takes a last sample and returns all.
func (s *sampler) stop() []Sample {
	close(s.end)
	s.ended.Wait()
	s.looked = time.Time{}
	s.take()

	return s.samples
}
