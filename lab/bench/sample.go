package bench

import (
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// sampleEvery is how often a measurement is looked at while it lasts.
const sampleEvery = time.Second

// sampler looks at the directory, and at the process, while a load runs in it.
type sampler struct {
	dir     string
	process contender.Process // the engine if it works in a process of its own
	every   time.Duration
	ops     atomic.Int64
	began   time.Time
	samples []Sample
	peak    int64 // bytes on disk, the most that was seen; to be read after stop
	end     chan struct{}
	ended   sync.WaitGroup
}

func newSampler(dir string, every time.Duration) *sampler {
	return &sampler{dir: dir, every: every, end: make(chan struct{})}
}

// counting returns client with its operations counted.
func (s *sampler) counting(client func(int) func() error) func(int) func() error {
	return func(i int) func() error {
		op := client(i)
		return func() error {
			err := op()
			s.ops.Add(1)
			return err
		}
	}
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
	sample := Sample{Seconds: time.Since(s.began).Seconds(), Ops: s.ops.Load(), DiskBytes: usage(s.dir)}
	sample.RSS, _ = measure.Memory(os.Getpid())
	if s.process != nil {
		_, _, rss := s.process.Use()
		sample.RSS = sum(sample.RSS, rss, rss >= 0)
	}
	s.peak = max(s.peak, sample.DiskBytes)
	s.samples = append(s.samples, sample)
}

// stop takes a last sample and returns all.
func (s *sampler) stop() []Sample {
	close(s.end)
	s.ended.Wait()
	s.take()
	return s.samples
}
