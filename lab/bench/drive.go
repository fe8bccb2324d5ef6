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

// reset forgets what the client did.
func (d *driven) reset() {
	for _, h := range d.histograms {
		h.Reset()
	}
	*d = driven{histograms: d.histograms}
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

// driver drives the clients of one load.
type driver struct {
	load    Load
	counts  opCounts
	epoch   time.Time // that times count from
	clients []driven
	ops     []func() (kind int, err error) // by client
	stop    atomic.Bool
	beside  driven       // of the work beside, of one kind
	also    func() error // its operation, nil if there is none
}

// drive warms up in closed loops, and measures: in closed loops too, in which each client goes on until the time is
// over, or in an open one, as the cell's offer has it.
func drive(load Load, q request, counts opCounts, o *outcome) error {
	n := q.Cell.Clients
	d := &driver{load: load, counts: counts, epoch: time.Now(), clients: make([]driven, n),
		ops: make([]func() (int, error), n)}
	for i := range d.clients {
		for range max(len(load.Kinds), 1) {
			d.clients[i].histograms = append(d.clients[i].histograms, measure.NewHistogram())
		}
	}
	if load.Beside != nil {
		d.beside.histograms = []*hdrhistogram.Histogram{measure.NewHistogram()}
		d.also = load.Beside.Client()
	}
	if load.Once {
		return d.once(o)
	}
	warm := d.together(func(i int) {
		d.ops[i] = load.client(i)
		d.closed(i, 0, q.WarmUp)
	})
	o.WarmUpOps = counts.total()

	origin := time.Since(d.epoch)
	switch {
	case warm.err != nil:
		return warm.err
	case q.Cell.Offer.Open():
		capacity := float64(max(warm.secondHalf(), 1)) / (origin - q.WarmUp/2).Seconds()
		return d.open(q, capacity, o)
	}
	all := d.together(func(i int) { d.closed(i, origin, q.For) })
	o.enter(d, all, origin, q.For)

	return all.err
}

// once measures the one operation of a load that has no more.
func (d *driver) once(o *outcome) error {
	d.ops[0] = d.load.client(0)
	origin := time.Since(d.epoch)
	at := origin
	d.do(0, &at, origin, 0)
	all := &d.clients[0]
	all.end = at
	o.enter(d, all, origin, at-origin)

	return all.err
}

// secondHalf is how many operations ended after half of the time.
func (d *driven) secondHalf() (n int64) {
	for _, ops := range d.parts[runParts/2:] {
		n += ops
	}

	return n
}

// together has all clients do something at the same time, with the work beside until they are done, and returns what
// they did together.
func (d *driver) together(f func(i int)) *driven {
	var group, beside sync.WaitGroup
	var done atomic.Bool
	if d.beside.reset(); d.also != nil {
		beside.Go(func() { d.besides(func() bool { return done.Load() || d.stop.Load() }) })
	}

	for i := range d.clients {
		d.clients[i].reset()
	}

	for i := range d.clients {
		group.Go(func() { f(i) })
	}
	group.Wait()
	done.Store(true)
	beside.Wait()

	all := &d.clients[0]
	for i := range d.clients[1:] {
		all.merge(&d.clients[i+1])
	}
	all.err = errors.Join(all.err, d.beside.err)

	return all
}

// besides does the work beside, once at least.
func (d *driver) besides(done func() bool) {
	next := pace(d.epoch, d.load.Beside.Rate, done)
	for {
		since := next()
		if err := d.also(); err != nil {
			d.beside.err = err
			d.stop.Store(true)

			return
		}
		measure.Record(d.beside.histograms[0], time.Since(d.epoch)-since)
		if done() {
			return
		}
	}
}

// closed is one client of a closed loop that begins at origin. It does one operation at least.
func (d *driver) closed(i int, origin, length time.Duration) {
	// One look at the clock per operation: the end of one is the begin of the next.
	last := origin
	for d.do(i, &last, origin, length) && last-origin < length {
	}
	d.clients[i].end = last
}

// open measures an open loop. Latencies count from when operations were due, so that waiting for a slow one before
// counts too.
func (d *driver) open(q request, capacity float64, o *outcome) error {
	o.Open = &OpenLoop{Capacity: capacity, Offered: q.Cell.Offer.rate(capacity)}
	p := newPacer(d.epoch, q.For, o.Open.Offered, d.stop.Load)
	all := d.together(func(i int) {
		for {
			at, ok := p.take()
			if !ok || !d.do(i, &at, p.origin, q.For) {
				break
			}
			d.clients[i].end = at
		}
	})
	if all.err == nil {
		all.end = max(all.end, p.wait(p.end)) // a slow pace makes the time no shorter
	}
	p.says(o.Open)
	o.enter(d, all, p.origin, q.For)

	return all.err
}

// do does one operation of a client, which counts since at and moves that to when it ended. It reports whether the
// clients go on.
func (d *driver) do(i int, at *time.Duration, origin, length time.Duration) bool {
	if d.stop.Load() {
		return false
	}
	c := &d.clients[i]
	kind, err := d.ops[i]()
	if err != nil {
		c.err = err
		d.stop.Store(true)

		return false
	}
	now := time.Since(d.epoch)
	measure.Record(c.histograms[kind], now-*at)
	*at = now
	d.counts[i].Add(1)
	part := min(int64(now-origin-1)/int64(max(length/runParts, 1)), runParts-1)
	c.parts[max(part, 0)]++

	return true
}

// enter enters what all clients did in the measured time, which was to be so long.
func (o *outcome) enter(d *driver, all *driven, origin, length time.Duration) {
	whole := measure.NewHistogram()
	kind := func(name string, h *hdrhistogram.Histogram) {
		o.Kinds = append(o.Kinds, KindMeasured{Name: name, Ops: h.TotalCount(), Latency: measure.LatencyOf(h),
			Curve: measure.Curve(h)})
	}

	for i, h := range all.histograms {
		whole.Merge(h)
		if i < len(d.load.Kinds) {
			kind(d.load.Kinds[i], h)
		}
	}
	if d.also != nil {
		kind(d.load.Beside.Kind, d.beside.histograms[0])
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
