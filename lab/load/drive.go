package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// pace is how the clients go.
type pace struct {
	warmUp, length time.Duration
	rate           float64 // operations a second of all together; 0 is a closed loop
}

// maxErrors is how many operations may fail before a measurement is given up.
const maxErrors = 1000

// counts are what is counted while a load runs.
type counts struct {
	ops    atomic.Int64 // since the beginning, warming up included
	failed atomic.Int64

	mu    sync.Mutex
	first error // of an operation
}

// fail counts a failed operation.
func (c *counts) fail(err error) {
	c.failed.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first = err
	}
}

// driven is what came of it.
type driven struct {
	ops, warmUpOps int64
	seconds        float64
	latencies      *hdrhistogram.Histogram
	behind         int64 // operations of an open loop that were due and were never begun
}

// overrun is how long an open loop that is behind goes on.
const overrun = 10 * time.Second

// drive runs the workers until the time is over, or ctx ends. Times in messages count from base. begins is told when
// the measured time begins.
//
// In a closed loop each worker begins an operation when its last one has ended. In an open one, operations are due at
// fixed times, whatever has become of those before; their latency counts from when they were due, so that the wait for
// a slow one before counts too. What a timer sleeps too long is not the server's and does not count.
func drive(ctx context.Context, workers []*worker, op func(*worker) error, p pace, base time.Time, c *counts,
	begins func(origin time.Duration)) driven {
	n := len(workers)
	var (
		group   sync.WaitGroup
		parts   = make([]driven, n)
		latest  = make([]time.Duration, n)
		begin   = time.Since(base)
		origin  = begin + p.warmUp
		end     = origin + p.length
		stopped = ctx.Done()
	)
	begins(origin)

	for i, w := range workers {
		parts[i].latencies = measure.NewHistogram()
		w.base = base
		group.Go(func() {
			d := &parts[i]
			for k := int64(0); c.failed.Load() < maxErrors; k++ {
				select {
				case <-stopped:
					return
				default:
				}
				due := time.Since(base)
				if p.rate > 0 {
					scheduled := begin + time.Duration(float64(k*int64(n)+int64(i))/p.rate*float64(time.Second))
					switch early := scheduled - due; {
					case scheduled >= end:
						return
					case due >= end+overrun:
						d.behind++ // each of those that are left
						continue
					case early > 0:
						if !sleep(stopped, early) {
							return
						}
						due = time.Since(base)
					default:
						due = scheduled
					}
				} else if due >= end && k > 0 { // each begins one, however slow the machine
					return
				}
				w.due = due
				err := op(w)
				if errors.Is(err, errEnough) {
					return
				}
				now := time.Since(base)
				c.ops.Add(1)

				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					c.fail(fmt.Errorf("worker %d, operation %d: %w", i, k+1, err))
					sleep(stopped, 10*time.Millisecond)
				case due >= origin:
					measure.Record(d.latencies, now-due)
					d.ops++
					latest[i] = now
				default:
					d.warmUpOps++
				}
			}
		})
	}
	group.Wait()

	all := driven{latencies: measure.NewHistogram()}
	for i, d := range parts {
		all.latencies.Merge(d.latencies)
		all.ops += d.ops
		all.warmUpOps += d.warmUpOps
		all.behind += d.behind
		all.seconds = max(all.seconds, (latest[i] - origin).Seconds())
	}

	return all
}

// sleep waits, and reports whether stopped is still open.
func sleep(stopped <-chan struct{}, d time.Duration) bool {
	select {
	case <-stopped:
		return false
	case <-time.After(d):
		return true
	}
}
