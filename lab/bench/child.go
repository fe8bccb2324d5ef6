package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/internal/child"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// request is what the parent asks of a child.
type request struct {
	Cell   Cell
	For    time.Duration
	WarmUp time.Duration
	Dir    string
	Seed   uint64
	Memory int64 // the budget of each contender, in bytes
}

// outcome is what a child answers, as JSON on its standard output.
type outcome struct {
	Measurement
	Ran  *Contender // what the engine ran with
	Disk bool       // the error is the disk's: it is full, or takes no writes
}

func unknownOutcome() outcome {
	const unknown = holdfast.Unknown
	return outcome{Measurement: Measurement{CPUSeconds: unknown, BytesRead: unknown, PeakRSS: unknown,
		DiskBytes: unknown, PeakDisk: unknown, Commits: unknown, Groups: unknown, Syncs: unknown, Samples: []Sample{}}}
}

// Child does one measurement, as told on stdin. It is what a child process runs, and
// returns its exit status.
func (l Lab) Child(stdin io.Reader, stdout io.Writer) int {
	var q request
	if err := child.Serve("bench", stdin, &q); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	o := unknownOutcome()
	if err := l.measure(q, &o); err != nil {
		o.Verified = false
		o.Error = err.Error()
		o.Disk = diskRefuses(err)
	}
	if err := json.NewEncoder(stdout).Encode(o); err != nil {
		return 1
	}
	return 0
}

func (l Lab) measure(q request, o *outcome) error {
	w, err := l.workload(q.Cell.Workload)
	if err != nil {
		return err
	}
	load, process, err := l.prepare(w, q, o)
	if err != nil {
		return err
	}
	// What preparing left behind is not the contender's.
	runtime.GC()
	sampler := newSampler(q.Dir, sampleEvery)
	sampler.process = process
	if w.Samples {
		load.Client = sampler.counting(load.Client)
	}
	before, readBefore, itsBefore := measure.CPUTime(), measure.BytesRead(), time.Duration(0)
	if process != nil {
		itsBefore, _, _ = process.Use()
	}
	sampler.start()
	err = drive(load, q, w.OpenLoop, o)
	if readBefore >= 0 {
		o.BytesRead = measure.BytesRead() - readBefore
	}
	samples := sampler.stop()
	server := l.isServer(q.Cell.Engine)
	if server || process != nil {
		o.BytesRead = holdfast.Unknown
	}
	if w.Samples {
		o.Samples = samples
		for i := range samples {
			if server {
				samples[i].RSS = -1
			}
		}
	}
	metrics := holdfast.UnknownMetrics()
	if load.Metrics != nil {
		metrics = load.Metrics()
	}
	verify := func() error {
		var err error
		o.Items, o.Checked, err = load.Verify()
		o.Verified = err == nil
		return err
	}
	// CPU and memory are taken before verification, which reads everything. What is gone after
	// Close is verified before it, and closing costs nothing there.
	take := func() {
		if server { // this process is its client only
			return
		}
		if before >= 0 {
			o.CPUSeconds = (measure.CPUTime() - before).Seconds()
		}
		o.PeakRSS = measure.PeakRSS(os.Getpid())
		if process != nil {
			cpu, peak, _ := process.Use()
			o.CPUSeconds = sum(o.CPUSeconds, (cpu - itsBefore).Seconds(), cpu >= 0 && itsBefore >= 0)
			o.PeakRSS = sum(o.PeakRSS, peak, peak >= 0)
		}
	}
	if load.Volatile {
		take()
		if err == nil {
			err = verify()
		}
	}
	began := time.Now()
	err = errors.Join(err, load.Close())
	o.SettleSeconds = time.Since(began).Seconds()
	if !load.Volatile {
		take()
	}
	o.DiskBytes = usage(q.Dir)
	o.PeakDisk = max(sampler.peak, o.DiskBytes)
	o.Commits, o.Groups, o.Syncs = metrics.Commits, metrics.Groups, metrics.Syncs
	if err == nil && !load.Volatile {
		err = verify()
	}
	return err
}

// sum is what both have used, unknown if either is.
func sum[N int64 | float64](own, other N, known bool) N {
	if own < 0 || !known {
		return holdfast.Unknown
	}
	return own + other
}

// prepare opens the contender and makes the inputs. process is the engine if it works in a process of its own.
func (l Lab) prepare(w Workload, q request, o *outcome) (load Load, process contender.Process, err error) {
	task := Task{Dir: q.Dir, Level: q.Cell.Asked, Clients: q.Cell.Clients, Seed: q.Seed, Cold: w.Cold}
	switch q.Cell.Engine {
	case Null:
		load, err = w.Null(task)
		return load, nil, err
	case Floor:
		load, err = w.Floor(task)
		return load, nil, err
	}
	entry, err := l.engine(q.Cell.Engine)
	if err != nil {
		return Load{}, nil, err
	}
	task.Open = func() (holdfast.Engine, error) {
		dir := filepath.Join(q.Dir, "engine")
		if entry.Describe().Strongest() == holdfast.Memory {
			dir = "" // nothing on disk
		}
		memory := budget(entry, q.Memory)
		e, err := entry.Open(dir, holdfast.Options{Level: q.Cell.Asked, MemoryBytes: memory})
		if err != nil {
			return nil, err
		}
		// What was promised before opening is what the table will say.
		if given := e.Capabilities().Promise(q.Cell.Asked).Given; given != q.Cell.Given {
			err := fmt.Errorf("asked for %v it promised %v, and once open gives %v", q.Cell.Asked, q.Cell.Given, given)
			return nil, errors.Join(err, e.Close())
		}
		o.Ran = contenderOf(e.Capabilities(), q.Cell.Given, memory)
		if p, ok := e.(contender.Process); ok && load.Client == nil { // not what is opened to be verified
			process = p
		}
		return e, nil
	}
	load, err = w.Engine(task)
	return load, process, err
}

// drive runs the closed loops: warm-up, then all clients start together and go on until the time is over.
//
// In an open loop an operation is due at its time, whether the one before it has ended or not: together the clients are
// half as fast as in the second half of warming up. Latencies are counted from when an operation was due, so that
// waiting for a slow one before it counts too. What the timer sleeps too long is not the contender's, and moves what is
// due later.
func drive(load Load, q request, openLoop bool, o *outcome) error {
	n := q.Cell.Clients
	var (
		histograms = make([]*hdrhistogram.Histogram, n)
		errs       = make([]error, n)
		ends       = make([]time.Duration, n)
		warmUps    atomic.Int64
		secondHalf atomic.Int64 // of warmUps
		stop       atomic.Bool
		warm, done sync.WaitGroup
		start      = make(chan struct{})
		epoch      = time.Now()
		origin     time.Duration // of the measured time, set before start is closed
		pace       time.Duration // between the operations of a client, 0 in a closed loop; set before start is closed
	)
	warm.Add(n)
	for i := range n {
		histograms[i] = measure.NewHistogram()
		done.Go(func() {
			op, h := load.Client(i), histograms[i]
			for {
				if errs[i] = op(); errs[i] != nil {
					stop.Store(true)
				} else {
					warmUps.Add(1)
				}
				now := time.Since(epoch)
				if now > q.WarmUp/2 {
					secondHalf.Add(1)
				}
				if errs[i] != nil || stop.Load() || now >= q.WarmUp {
					break
				}
			}
			warm.Done()
			<-start
			// One look at the clock per operation: the end of one is the begin of the next.
			last, due := origin, origin+pace*time.Duration(i)/time.Duration(n)
			for !stop.Load() {
				if pace > 0 {
					if early := due - time.Since(epoch); early > 0 {
						time.Sleep(early)
						due = time.Since(epoch)
					}
					last = due
					due += pace
				}
				if errs[i] = op(); errs[i] != nil {
					stop.Store(true)
					break
				}
				now := time.Since(epoch)
				measure.Record(h, now-last)
				last = now
				if now-origin >= q.For {
					break
				}
			}
			ends[i] = last
		})
	}
	warm.Wait()
	origin = time.Since(epoch)
	if openLoop {
		pace = 2 * (origin - q.WarmUp/2) * time.Duration(n) / time.Duration(max(secondHalf.Load(), 1))
	}
	close(start)
	done.Wait()

	all := histograms[0]
	for _, h := range histograms[1:] {
		all.Merge(h)
	}
	o.Ops, o.WarmUpOps = all.TotalCount(), warmUps.Load()
	for _, end := range ends {
		o.Seconds = max(o.Seconds, (end - origin).Seconds())
	}
	o.Latency = measure.LatencyOf(all)
	return errors.Join(errs...)
}
