package soak

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// request is what a child is to do: open the engine, check what is there, and write until it is killed, or for so many
// seconds; then it closes the engine.
type request struct {
	Script  script
	Dir     string
	Engine  string
	Level   holdfast.Level
	Memory  int64
	Acked   []uint64 // batches of each writer that must be there; one more may be
	Full    bool     // check everything, and not a part
	Seconds float64  // 0: write nothing
	Last    bool     // compact, verify and delete everything instead
}

// message is what a child tells: the number of a batch of a writer that was acknowledged, or one of the others.
type message struct {
	Ack    *ack    `json:",omitempty"`
	Opened *opened `json:",omitempty"`
	Stats  *stats  `json:",omitempty"`
	Last   *last   `json:",omitempty"`
	Closed bool    `json:",omitempty"`
	Wrong  string  `json:",omitempty"` // a law is broken
	Full   string  `json:",omitempty"` // there is no room on the disk
}

type ack struct {
	W int
	N uint64
}

// opened is what was found.
type opened struct {
	Millis  float64
	Found   []uint64 // batches of each writer
	Checked int64    // keys
	Bytes   int64    // of them and their values
	Disk    int64    // bytes on the disk
}

// stats is what was done until now.
type stats struct {
	Seconds          float64 // since writing began
	Keys             int64   // written
	Reads            int64   // keys read and checked beside it
	P999, Longest    float64 // of a commit, in microseconds
	Own              int64   // bytes of memory, without files that are mapped
	Files, Goroutine int     // open
}

// last is what the last child found.
type last struct {
	Damage                   []string // found by Verify
	Verified, Compacted      bool     // false: the engine cannot
	BytesBefore, BytesAfter  int64    // on the disk, of compacting
	BytesDeleted, BytesEmpty int64    // after everything was deleted, and compacted
}

// Child does what a request on stdin says, and returns the exit status.
func Child(stdin io.Reader, stdout io.Writer) int {
	var q request
	if err := child.Serve("soak", stdin, &q); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	v := &victim{request: q, out: json.NewEncoder(stdout)}
	if err := v.run(); err != nil {
		switch {
		case errors.Is(err, holdfast.ErrFull):
			v.tell(message{Full: err.Error()})
		default:
			v.tell(message{Wrong: err.Error()})
		}

		return 1
	}
	v.tell(message{Closed: true})

	return 0
}

type victim struct {
	request
	mu  sync.Mutex // of out
	out *json.Encoder

	keys, reads atomic.Int64
}

func (v *victim) tell(m message) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = v.out.Encode(m) // the parent has gone: so does this process
}

func (v *victim) run() (err error) {
	start := time.Now()
	e, err := all.Open(v.Engine, v.Dir, holdfast.Options{MemoryBytes: v.Memory, Level: v.Level})
	if err != nil {
		return err
	}
	found, err := v.check(e, start)
	if err != nil {
		return errors.Join(err, e.Close())
	}

	switch {
	case v.Last:
		err = v.last(e, found)
	case v.Seconds > 0:
		err = v.work(e, found)
	}

	return errors.Join(err, e.Close())
}

// check finds out how many batches of each writer there are, and compares what is there with what they wrote: all, or a
// part. It returns the numbers.
func (v *victim) check(e holdfast.Engine, start time.Time) (found []uint64, err error) {
	o := opened{Millis: measure.Micros(time.Since(start)) / 1e3, Found: make([]uint64, v.Script.Writers)}
	for w, acked := range v.Acked {
		n, err := e.Get(nil, marker(w))
		if err == nil && len(n) != 8 {
			err = fmt.Errorf("%w: the marker of writer %d is %x", errWrong, w, n)
		}

		switch {
		case errors.Is(err, holdfast.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			o.Found[w] = binary.BigEndian.Uint64(n)
		}
		if o.Found[w] < acked || o.Found[w] > acked+1 {
			return nil, fmt.Errorf("%w: writer %d had %d batches acknowledged, and %d are there", errWrong, w, acked, o.Found[w])
		}
		model := v.Script.replay(w, o.Found[w])
		lo, hi := 0, v.Script.Keys
		if !v.Full {
			lo = rand.IntN(v.Script.Keys)
			hi = min(lo+v.Script.Keys/partChecked+1, v.Script.Keys)
		}
		keys, size, err := v.Script.compare(e, w, lo, hi, model)
		if err != nil {
			return nil, err
		}
		o.Checked, o.Bytes = o.Checked+keys, o.Bytes+size
	}
	o.Disk = usage(v.Dir)
	v.tell(message{Opened: &o})

	return o.Found, nil
}

// partChecked: one key of so many is checked where not all are.
const partChecked = 20

// work writes, each writer with one batch under way, and reads beside it.
func (v *victim) work(e holdfast.Engine, found []uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(v.Seconds*float64(time.Second)))
	defer cancel()

	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	var (
		group sync.WaitGroup
		mu    sync.Mutex // of the histogram
		took  = measure.NewHistogram()
		most  atomic.Uint64 // no writer has begun a later batch
	)
	for _, n := range found {
		most.Store(max(most.Load(), n+1))
	}

	for w := range v.Script.Writers {
		group.Go(func() {
			var b holdfast.Batch
			var pcg rand.PCG
			var value []byte
			for n := found[w] + 1; ctx.Err() == nil; n++ {
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				value = v.Script.fill(&b, w, n, &pcg, value)
				start := time.Now()
				if err := holdfast.Commit(e, &b, v.Level); err != nil {
					fail(fmt.Errorf("batch %d of writer %d: %w", n, w, err))
					return
				}
				d := time.Since(start)
				v.tell(message{Ack: &ack{w, n}})
				v.keys.Add(int64(b.Len()))
				mu.Lock()
				measure.Record(took, d)
				mu.Unlock()
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			if err := v.read(ctx, e, &most); err != nil {
				fail(err)
			}
		}
	})
	group.Go(func() {
		start, tick := time.Now(), time.NewTicker(time.Second)
		defer tick.Stop()

		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			mu.Lock()
			l := latency(took)
			mu.Unlock()
			l.Seconds = time.Since(start).Seconds()
			l.Keys, l.Reads = v.keys.Load(), v.reads.Load()
			v.tell(message{Stats: &l})
		}
	})
	group.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}

	return nil
}

func latency(h *hdrhistogram.Histogram) stats {
	l := measure.LatencyOf(h)
	_, own := measure.Memory(os.Getpid())

	return stats{P999: l.P999, Longest: l.Max, Own: own, Files: openFiles(), Goroutine: runtime.NumGoroutine()}
}

// openFiles is how many files this process has open, -1 where that is not known.
func openFiles() int {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}

	return len(names) - 1
}

// read reads keys from anywhere, and a stretch of them twice in a snapshot, with a pause: what it sees was written
// once, is in order, and stays as it is.
func (v *victim) read(ctx context.Context, e holdfast.Engine, most *atomic.Uint64) error {
	var buf, value []byte
	for range 200 {
		w, i := rand.IntN(v.Script.Writers), rand.IntN(v.Script.Keys)
		k := key(w, i)
		var err error
		if value, err = e.Get(value[:0], k); errors.Is(err, holdfast.ErrNotFound) {
			continue
		} else if err != nil {
			return err
		}
		if _, _, _, buf, err = v.Script.own(k, value, most.Load(), buf); err != nil {
			return err
		}
		v.reads.Add(1)
	}
	s, err := e.Snapshot()
	if err != nil {
		return err
	}
	defer s.Close()

	upto := most.Load()
	w, lo := rand.IntN(v.Script.Writers), rand.IntN(v.Script.Keys)
	hi := min(lo+2000, v.Script.Keys)
	var sums [2]uint64
	for turn := range sums {
		it := s.Scan(span(w, lo, hi))
		last := -1

		for it.Next() {
			var i int
			var n uint32
			if _, i, n, buf, err = v.Script.own(it.Key(), it.Value(), upto, buf); err == nil && i <= last {
				err = fmt.Errorf("%w: a scan shows key %d after %d", errWrong, i, last)
			}
			if err != nil {
				break
			}
			last = i
			sums[turn] = mix(sums[turn] ^ uint64(i)<<32 ^ uint64(n))
			v.reads.Add(1)
		}
		if err = errors.Join(err, it.Err(), it.Close()); err != nil {
			return err
		}
		if turn == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(rand.IntN(1000)) * time.Millisecond):
			}
		}
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("%w: a snapshot shows other contents of writer %d's keys from %d to %d the second time",
			errWrong, w, lo, hi)
	}

	return nil
}

// last compacts and verifies, checks everything again, and deletes it.
func (v *victim) last(e holdfast.Engine, found []uint64) error {
	ctx := context.Background()
	o := last{BytesBefore: usage(v.Dir)}
	compact := func() error {
		err := holdfast.Compact(ctx, e, holdfast.Range{})
		if errors.Is(err, holdfast.ErrUnavailable) {
			return nil
		}
		o.Compacted = err == nil

		return err
	}
	if err := compact(); err != nil {
		return err
	}
	o.BytesAfter = usage(v.Dir)
	damage, err := holdfast.Verify(ctx, e)
	if o.Verified = err == nil; err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
		return err
	}

	for _, d := range damage {
		o.Damage = append(o.Damage, d.Error())
	}

	for w, n := range found {
		if _, _, err := v.Script.compare(e, w, 0, v.Script.Keys, v.Script.replay(w, n)); err != nil {
			return fmt.Errorf("after compacting: %w", err)
		}
	}

	const stretch = 1000
	var b holdfast.Batch
	for w := range v.Script.Writers {
		for lo := 0; lo < v.Script.Keys; lo += stretch {
			b.Reset()
			b.DeleteRange(key(w, lo), key(w, min(lo+stretch, v.Script.Keys)))
			if err := holdfast.Commit(e, &b, v.Level); err != nil {
				return fmt.Errorf("deleting everything: %w", err)
			}
		}
	}

	for w := range v.Script.Writers {
		if _, _, err := v.Script.compare(e, w, 0, v.Script.Keys, make([]uint32, v.Script.Keys)); err != nil {
			return fmt.Errorf("after everything was deleted: %w", err)
		}
	}
	o.BytesDeleted = usage(v.Dir)
	if err := compact(); err != nil {
		return err
	}
	o.BytesEmpty = usage(v.Dir)
	v.tell(message{Last: &o})

	return nil
}
