package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// seconds is x seconds.
func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }

// load loads a server that answers, and enters what it measures. The error makes the measurement void.
func (r *runner) load(ctx context.Context, t Target, s *running, round int, result *Result) error {
	p, headers := r.plan, r.shape.headers(s.token)
	stream := followed + "-" + strconv.FormatUint(rand.Uint64(), 36)
	log := &eventLog{batch: p.Batch, wanted: p.Events}
	client := func(i int) *worker {
		return &worker{conn: newConn(s.address, headers...), number: i, asked: p.Level, followed: stream, log: log,
			random: rand.New(rand.NewPCG(p.Seed, uint64(round)<<32|uint64(i)))}
	}

	workers := make([]*worker, p.Workers)
	for i := range workers {
		workers[i] = client(i)
		defer workers[i].close()
	}
	readBack := r.shape.readBack && t.kind != isNull
	if readBack {
		var err error
		if log.before, err = lastPosition(workers[0].conn); err != nil {
			return fmt.Errorf("the position before: %w", err)
		}
	}
	if err := r.shape.op(workers[0]); err != nil {
		return fmt.Errorf("the first operation: %w", err)
	}
	if s.process != nil {
		result.FirstAnswer = float64(time.Since(s.began).Microseconds()) / 1000
	}

	w := &watch{runner: r, target: t, server: s, round: round, base: time.Now(), counts: &counts{}, log: log,
		conn: newConn(s.address, headers...)}
	defer w.conn.close()
	if p.Followers > 0 {
		path := func(int) string { return followPath(stream, 1) } // behind that of the first operation
		if r.shape.Name == Soak {
			path = func(i int) string { return followPath("load-"+strconv.Itoa(i%streams), 0) }
		}
		var err error
		w.followers, err = follow(ctx, p.Followers, s.address, headers, path, w.base, w.counts)
		defer w.followers.close()
		if err != nil {
			return err
		}
	}

	background, end := context.WithCancel(ctx)
	defer end()
	var side sync.WaitGroup
	var tasks []*worker
	if r.shape.Name == Soak {
		for i := range soakTaskWorkers {
			t := client(p.Workers + i)
			tasks = append(tasks, t)
			side.Go(func() { w.tasks(background, t) })
		}
	}
	side.Go(func() { w.watch(background) })
	before := measure.CPUTime()
	d := drive(ctx, workers, r.shape.op, pace{seconds(p.WarmUpSeconds), seconds(p.Seconds), p.Rate}, w.base, w.counts,
		func(origin time.Duration) {
			w.origin.Store(int64(origin))
			if w.followers != nil {
				w.followers.origin.Store(int64(origin))
			}
		})
	if r.shape.Name == Follow && ctx.Err() == nil {
		if err := w.followers.await(ctx, (d.ops+d.warmUpOps)*int64(p.Followers)); err != nil {
			w.counts.fail(err)
		}
	}
	if before >= 0 {
		result.ClientCPU = (measure.CPUTime() - before).Seconds()
	}
	w.take()
	end()

	for _, t := range tasks {
		defer t.close()
	}
	side.Wait()
	w.enter(result, d)
	err := w.verdict(result, append(workers, tasks...), d)
	if readBack && err == nil && ctx.Err() == nil {
		// What the server takes for that is not what appending cost: pages of its files that are mapped count as memory.
		if s.process != nil {
			result.PeakRSS = measure.PeakRSS(s.process.PID())
			if cpu := measure.CPUTimeOf(s.process.PID()); cpu >= 0 {
				result.CPUSeconds = cpu.Seconds()
			}
		}
		w.conn.close() // for minutes nothing came through it: the server has closed it, too
		if err = log.readBack(w.conn); err != nil {
			err = fmt.Errorf("reading back: %w", err)
		}
	}

	return err
}

// followPath is where a stream is followed.
func followPath(stream string, from int) string {
	return messagesPath + "/follow?stream=" + stream + "&from=" + strconv.Itoa(from)
}

// soakTaskWorkers is how many workers a soak has.
const soakTaskWorkers = 64

// watch looks at a load while it runs.
type watch struct {
	runner *runner
	target Target
	server *running
	round  int
	base   time.Time
	origin atomic.Int64
	counts *counts
	log    *eventLog

	followers *followers // nil if there are none
	tasksDone atomic.Int64

	mu      sync.Mutex // covers what follows
	conn    *conn
	samples []Sample
	blind   bool // the server tells no metrics
}

// tasks runs tasks until ctx ends. A claim that waits is given up then.
func (w *watch) tasks(ctx context.Context, t *worker) {
	for ctx.Err() == nil {
		done, err := t.runTask()
		switch {
		case err != nil && ctx.Err() == nil:
			w.counts.fail(fmt.Errorf("task worker %d: %w", t.number, err))
			sleep(ctx.Done(), 100*time.Millisecond)
		case done:
			w.tasksDone.Add(1)
		}
	}
}

// watch takes a sample each second, and shows how it goes on.
func (w *watch) watch(ctx context.Context) {
	w.runner.progress.Show(w.line)

	for sleep(ctx.Done(), time.Second) {
		w.take()
	}
}

// take takes a sample.
func (w *watch) take() {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := vitals{-1, -1, -1, -1}
	if !w.blind && w.target.kind != isNull {
		var err error
		v, err = w.server.look(w.conn)
		w.blind = err != nil // and is not asked again
	}
	if v.rss < 0 && w.server.process != nil {
		v.rss, v.own = measure.Memory(w.server.process.PID())
	}
	s := Sample{Seconds: time.Since(w.base).Seconds(), Ops: w.counts.ops.Load(), Failed: w.counts.failed.Load(),
		RSS: v.rss, Own: v.own, Caches: v.caches, Goroutines: v.goroutines}
	if w.followers != nil {
		s.Delivered = w.followers.delivered.Load()
	}
	w.samples = append(w.samples, s)
}

// line is the progress of this measurement.
func (w *watch) line() string {
	p := w.runner.plan
	all := seconds(p.WarmUpSeconds + p.Seconds)
	at := time.Since(w.base)
	if n := w.log.appended.Load(); p.Events > 0 && n > 0 {
		all = time.Duration(float64(at) * float64(p.Events) / float64(n)) // as it goes
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	rate := ""
	if n := len(w.samples); n > 1 {
		a, b := w.samples[n-2], w.samples[n-1]
		rate = fmt.Sprintf("%s/s, ", measure.Count(float64(b.Ops-a.Ops)/(b.Seconds-a.Seconds)))
		if b.RSS > 0 {
			rate += measure.Size(b.RSS) + ", "
		}
		if b.Failed > 0 {
			rate += fmt.Sprintf("%d FAILED, ", b.Failed)
		}
	}

	return fmt.Sprintf("  round %d of %d  %s  %s%s left  %s", w.round, p.Rounds,
		console.Bar(int(min(at, all)/time.Millisecond), int(all/time.Millisecond)), rate,
		console.Length(max(all-at, 0)), w.target.Name)
}

// enter enters what was measured.
func (w *watch) enter(result *Result, d driven) {
	w.mu.Lock()
	defer w.mu.Unlock()
	result.Ops, result.WarmUpOps, result.Seconds, result.Behind = d.ops, d.warmUpOps, d.seconds, d.behind
	result.Latency = measure.LatencyOf(d.latencies)
	result.Failed = w.counts.failed.Load()
	result.Samples = w.samples
	result.RSS = w.samples[len(w.samples)-1].RSS
	result.Tasks = w.tasksDone.Load()
	result.Events = w.log.appended.Load()
	if d.seconds > 0 {
		result.OpsPerSec = float64(d.ops) / d.seconds
	}
	if f := w.followers; f != nil {
		f.close()
		result.Deliveries = f.measured.Load()
		result.Delivery = measure.LatencyOf(f.latencies())
	}
}

// verdict is what is wrong with a measurement.
func (w *watch) verdict(result *Result, workers []*worker, d driven) error {
	var errs []error
	if n := result.Failed; n > 0 {
		errs = append(errs, fmt.Errorf("%s failed, the first one: %w", console.Number(int(n), "operation"), w.counts.first))
	}
	if d.ops == 0 {
		errs = append(errs, errors.New("no operation ended in the measured time"))
	}
	if n := w.runner.plan.Events; n > result.Events {
		errs = append(errs, fmt.Errorf("%d events of %d were appended in the time: allow more with --for", result.Events, n))
	}
	if d.behind > 0 {
		errs = append(errs, fmt.Errorf("the rate is too high: %d operations were due and not begun", d.behind))
	}

	first := true
	for _, client := range workers {
		switch {
		case client.wrote == 0:
		case first:
			result.Level, first = client.level, false
		case client.level != result.Level:
			errs = append(errs, fmt.Errorf("answers name level %q, and others %q", client.level, result.Level))
		}
	}
	if w.runner.shape.Name == Soak {
		errs = append(errs, w.grown(result))
	}

	return errors.Join(errs...)
}
