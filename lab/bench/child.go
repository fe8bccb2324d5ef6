package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/contender"
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
	Put    int   // instead of measuring, put so many keys, say so, and wait to be killed
}

// outcome is what a child answers, as JSON on its standard output.
type outcome struct {
	Measurement
	Ran  *Contender // what the engine ran with
	Disk bool       // the error is the disk's: it is full, or takes no writes
}

func unknownOutcome() outcome {
	const unknown = holdfast.Unknown

	return outcome{Measurement: Measurement{CPUSeconds: unknown, BytesRead: unknown, BytesWritten: unknown,
		BytesPut: unknown, PeakRSS: unknown, DiskBeforeClose: unknown, DiskBytes: unknown, PeakDisk: unknown,
		OpenSeconds: unknown, Commits: unknown, Groups: unknown, Syncs: unknown,
		Curve: []measure.Point{}, Kinds: []KindMeasured{}, Samples: []Sample{}}}
}

// Child does one measurement, as told on stdin. It is what a child process runs, and
// returns its exit status.
func (l Lab) Child(stdin io.Reader, stdout io.Writer) int {
	var q request
	if err := child.Serve("bench", stdin, &q); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if q.Put > 0 {
		fmt.Fprintln(os.Stderr, l.putAndWait(q, stdout))
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
	load, c, err := l.prepare(w, q, o)
	if err != nil {
		return err
	}
	// What preparing left behind is not the contender's.
	runtime.GC()
	counts := make(opCounts, q.Cell.Clients)
	sampler := newSampler(q.Dir, sampleEvery(q.WarmUp+q.For), counts.total)
	sampler.process = c.process
	before := lookAt(c.process)
	sampler.start()
	err = drive(load, q, counts, o)
	o.Samples = sampler.stop()
	o.DiskBeforeClose = o.Samples[len(o.Samples)-1].DiskBytes
	server := l.isServer(q.Cell.Engine) || q.Cell.Given == holdfast.Quorum // not all of it is this process
	if server {
		for i := range o.Samples {
			o.Samples[i].RSS = holdfast.Unknown
		}
	} else {
		o.BytesRead = since(before.Read, lookAt(c.process).Read)
		o.FromMemory = w.Cold && o.BytesRead == 0 && !reference(q.Cell.Engine)
	}
	metrics := holdfast.UnknownMetrics()
	if load.Metrics != nil {
		metrics = load.Metrics()
	}
	if load.Put != nil {
		o.BytesPut = load.Put()
	}
	verify := func() error {
		var err error
		o.Items, o.Checked, err = load.Verify()
		o.Verified = err == nil

		return err
	}
	// What was used is looked at before verification, which reads everything. What is gone after
	// Close is verified before it, and closing costs nothing there.
	take := func() {
		if server { // this process is its client only
			return
		}
		now := lookAt(c.process)
		if cpu := since(before.CPU, now.CPU); cpu >= 0 && !q.Cell.Offer.Open() { // pacing takes some, too
			o.CPUSeconds = cpu.Seconds()
		}
		o.PeakRSS = now.PeakRSS
		o.BytesWritten = since(before.Written, now.Written)
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
		c.opened = 0
		err = verify()
		if c.opened > 0 && !server {
			o.OpenSeconds = c.opened.Seconds()
		}
	}

	return err
}

// used is what this process, and that of the engine if it has one, have used. What is not known of one is not known.
type used struct {
	contender.Use
	Read int64 // bytes that devices read for it
}

func lookAt(process contender.Process) used {
	u := used{Use: contender.Use{CPU: measure.CPUTime(), PeakRSS: measure.PeakRSS(os.Getpid())}}
	u.Read, u.Written = measure.DeviceBytes(os.Getpid())
	if process != nil {
		its := process.Use()
		u.CPU, u.PeakRSS = sum(u.CPU, its.CPU), sum(u.PeakRSS, its.PeakRSS)
		u.Written, u.Read = sum(u.Written, its.Written), holdfast.Unknown
	}

	return u
}

// sum is what two have used, -1 if either is not known.
func sum[N int64 | time.Duration](a, b N) N {
	if a < 0 || b < 0 {
		return holdfast.Unknown
	}

	return a + b
}

// since is what was used between two looks, -1 if either is not known.
func since[N int64 | time.Duration](before, now N) N {
	if before < 0 || now < 0 {
		return holdfast.Unknown
	}

	return max(now-before, 0)
}

// contended is what the child sees of the contender while it works.
type contended struct {
	process  contender.Process // the engine if it works in a process of its own
	opened   time.Duration     // that the last opening took
	prepared bool              // what is opened from now on is to be verified
}

// prepare opens the contender and makes the inputs.
func (l Lab) prepare(w Workload, q request, o *outcome) (load Load, c *contended, err error) {
	c = &contended{}
	task := Task{Dir: q.Dir, Level: q.Cell.Asked, Clients: q.Cell.Clients, Seed: q.Seed, Cold: w.Cold}
	switch q.Cell.Engine {
	case Null:
		load, err = w.Null(task)
		return load, c, err
	case Floor, FloorMap, FloorParallel:
		task.Mapped, task.AtOnce = q.Cell.Engine == FloorMap, q.Cell.Engine == FloorParallel
		load, err = w.Floor(task)

		return load, c, err
	}
	entry, err := l.engine(q.Cell.Engine)
	if err != nil {
		return Load{}, c, err
	}
	task = l.task(entry, q, c, o)
	task.Cold = w.Cold
	load, err = w.Engine(task)
	c.prepared = true

	return load, c, err
}

// task is that of a measurement of an engine.
func (l Lab) task(entry all.Entry, q request, c *contended, o *outcome) Task {
	task := Task{Dir: q.Dir, Level: q.Cell.Asked, Clients: q.Cell.Clients, Seed: q.Seed}
	task.Killed = func(keys int) error { return killed(q, keys) }
	task.Open = func() (holdfast.Engine, error) {
		dir := filepath.Join(q.Dir, "engine")
		if entry.Describe().Strongest() == holdfast.Memory {
			dir = "" // nothing on disk
		}
		memory := budget(entry, q.Memory)
		began := time.Now()
		e, err := entry.Open(dir, holdfast.Options{Level: q.Cell.Asked, MemoryBytes: memory})
		if err != nil {
			return nil, err
		}
		c.opened = time.Since(began)
		// What was promised before opening is what the table will say.
		if given := e.Capabilities().Promise(q.Cell.Asked).Given; given != q.Cell.Given {
			err := fmt.Errorf("asked for %v it promised %v, and once open gives %v", q.Cell.Asked, q.Cell.Given, given)
			return nil, errors.Join(err, e.Close())
		}
		o.Ran = contenderOf(q.Cell.Engine, e.Capabilities(), q.Cell.Given, memory)
		if p, ok := e.(contender.Process); ok && !c.prepared {
			c.process = p
		}

		return e, nil
	}

	return task
}
