package bench

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// opCounts are the operations that each client has done, those of the warm-up included. They are read while the clients
// work.
type opCounts []struct {
	atomic.Int64
	_ [56]byte // no two clients write to one cache line
}

func (c opCounts) total() int64 {
	n := int64(0)
	for i := range c {
		n += c[i].Load()
	}
	return n
}

// runParts is how many parts of the measured time have a rate of their own.
const runParts = 4

// driven is what one client did in the measured time.
type driven struct {
	histograms []*hdrhistogram.Histogram // by kind
	parts      [runParts]int64           // operations that ended in each part of the time; the last has all later ones
	end        time.Duration             // of the last operation
	err        error
}

// merge adds what another client did.
func (d *driven) merge(other *driven) {
	for i, h := range other.histograms {
		d.histograms[i].Merge(h)
	}
	for i, n := range other.parts {
		d.parts[i] += n
	}
	d.end = max(d.end, other.end)
	d.err = errors.Join(d.err, other.err)
}

// drive runs the closed loops: warm-up, then all clients start together and go on until the time is over.
//
// In an open loop an operation is due at its time, whether the one before it has ended or not: together the clients are
// half as fast as in the second half of warming up. Latencies are counted from when an operation was due, so that
// waiting for a slow one before it counts too. What the timer sleeps too long is not the contender's, and moves what is
// due later.
func drive(load Load, q request, openLoop bool, counts opCounts, o *outcome) error {
	n := q.Cell.Clients
	var (
		clients    = make([]driven, n)
		secondHalf atomic.Int64 // of the operations of the warm-up
		stop       atomic.Bool
		warm, done sync.WaitGroup
		start      = make(chan struct{})
		epoch      = time.Now()
		origin     time.Duration // of the measured time, set before start is closed
		pace       time.Duration // between the operations of a client, 0 in a closed loop; set before start is closed
	)
	warm.Add(n)
	for i := range n {
		d, count := &clients[i], &counts[i]
		for range max(len(load.Kinds), 1) {
			d.histograms = append(d.histograms, measure.NewHistogram())
		}
		done.Go(func() {
			op := load.client(i)
			for {
				if _, d.err = op(); d.err != nil {
					stop.Store(true)
				} else {
					count.Add(1)
				}
				now := time.Since(epoch)
				if now > q.WarmUp/2 {
					secondHalf.Add(1)
				}
				if d.err != nil || stop.Load() || now >= q.WarmUp {
					break
				}
			}
			warm.Done()
			<-start
			// One look at the clock per operation: the end of one is the begin of the next.
			last, due := origin, origin+pace*time.Duration(i)/time.Duration(n)
			part, partEnd := 0, origin+q.For/runParts
			for !stop.Load() {
				if pace > 0 {
					if early := due - time.Since(epoch); early > 0 {
						time.Sleep(early)
						due = time.Since(epoch)
					}
					last = due
					due += pace
				}
				var kind int
				if kind, d.err = op(); d.err != nil {
					stop.Store(true)
					break
				}
				now := time.Since(epoch)
				measure.Record(d.histograms[kind], now-last)
				count.Add(1)
				for now > partEnd && part < runParts-1 {
					part++
					partEnd += q.For / runParts
				}
				d.parts[part]++
				last = now
				if now-origin >= q.For {
					break
				}
			}
			d.end = last
		})
	}
	warm.Wait()
	o.WarmUpOps = counts.total()
	origin = time.Since(epoch)
	if openLoop {
		pace = 2 * (origin - q.WarmUp/2) * time.Duration(n) / time.Duration(max(secondHalf.Load(), 1))
	}
	close(start)
	done.Wait()

	all := &clients[0]
	for i := range clients[1:] {
		all.merge(&clients[i+1])
	}
	o.enter(load.Kinds, all, origin, q.For)
	return all.err
}

// enter enters what all clients did in the measured time, which was to be so long.
func (o *outcome) enter(kinds []string, all *driven, origin, length time.Duration) {
	whole := measure.NewHistogram()
	for i, h := range all.histograms {
		whole.Merge(h)
		if i < len(kinds) {
			o.Kinds = append(o.Kinds, KindMeasured{Name: kinds[i], Ops: h.TotalCount(), Latency: measure.LatencyOf(h),
				Curve: measure.Curve(h)})
		}
	}
	o.Ops = whole.TotalCount()
	o.MeasuredFrom = origin.Seconds()
	o.Seconds = max(all.end-origin, 0).Seconds()
	o.Latency, o.Curve = measure.LatencyOf(whole), measure.Curve(whole)
	part := length.Seconds() / runParts
	for i, n := range all.parts {
		seconds := part
		if i == runParts-1 {
			seconds = max(o.Seconds-part*(runParts-1), part)
		}
		o.Quarters[i] = float64(n) / seconds
	}
}
