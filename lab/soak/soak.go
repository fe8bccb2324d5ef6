// Package soak writes, overwrites, deletes and reads for a long time in an engine with data larger than memory, kills
// the process that does it again and again, and checks after each time what was acknowledged. In the end it compacts,
// verifies, and deletes everything.
//
// It is for what the crash lab's short lives do not reach: many merges, files by the hundred, reads that go to the
// disk. It needs no list of what was written: everything follows from a seed and the number of batches of each writer.
package soak

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// Argument is the argument with which a soak starts its own executable as a child.
const Argument = "soak-child"

// ErrBroken: something that was acknowledged was lost, or something was shown that was not written.
var ErrBroken = errors.New("a claim is broken")

// Request says what to do.
type Request struct {
	Engine  string
	Level   holdfast.Level // that each commit asks for
	RAM     int64          // bytes that a child has, with the system's cache of its files; 0: no limit
	Bytes   int64          // of keys and values, about; 0: four times RAM, or 2 GiB without a limit
	Writers int
	For     time.Duration // then the last checks begin
	Seed    uint64        // 0: a new one
	Dir     string        // to work in; empty: what rundir.Choose chooses
	Child   []string      // the command line of a process that calls [Child]; this executable with [Argument]
}

const op = console.Op("soak")

// leastRAM is the least memory in bytes that a child can do its work in.
const leastRAM = 64 << 20

// Command is one run of the soak command. The error is ErrBroken, or console.ErrIncomplete where the disk was full, or
// console.ErrInterrupted.
func Command(ctx context.Context, q Request, t console.Terminal) (err error) {
	switch {
	case q.Writers < 1 || q.Writers > markerSpace:
		return op.BadOption(fmt.Sprintf("%d writers", q.Writers), fmt.Sprintf("use 1 to %d", markerSpace))
	case q.For <= 0:
		return op.BadOption(fmt.Sprintf("a soak of %v", q.For), "name a time with --for, such as 1h")
	case q.RAM != 0 && q.RAM < leastRAM:
		return op.BadOption(fmt.Sprintf("%d MiB of memory", q.RAM>>20),
			fmt.Sprintf("a process needs %d; --ram 0 is no limit", leastRAM>>20))
	case q.Bytes < 0:
		return op.BadOption(fmt.Sprintf("%d MiB of keys and values", q.Bytes>>20), "name a size with --size, or leave it out")
	}
	q.Bytes, q.Seed = cmp.Or(q.Bytes, 4*q.RAM, 2<<30), cmp.Or(q.Seed, uint64(rand.Uint32()))
	entry, err := all.Lookup(q.Engine)
	if err != nil {
		return err
	}
	if c := entry.Describe(); !c.AtomicBatches || c.Promise(q.Level).Given < holdfast.Process {
		return op.BadOption(fmt.Sprintf("%s does not promise at %v that whole batches survive the end of the process",
			q.Engine, q.Level), "name another engine, or --level process or power")
	}
	r := &run{Request: q, screen: t.Screen()}
	if r.command, err = child.Command(q.Child, Argument); err != nil {
		return err
	}
	dir, err := rundir.Make(q.Dir, rundir.Options{Op: string(op), Prefix: "holdfast-soak-"})
	if err != nil {
		return err
	}
	defer func() {
		if errors.Is(err, ErrBroken) {
			err = errors.Join(err, r.keep(dir.Parent))
		}
		err = errors.Join(err, dir.Close())
	}()
	if q.RAM > 0 {
		if r.ram, err = measure.LimitRAM(q.RAM); err != nil {
			return &holdfast.Error{Op: string(op), Class: holdfast.ErrBadOption, Detail: "memory cannot be limited here",
				Cause: err, Remedy: "run as root on Linux, or with --ram 0"}
		}
		defer func() { err = errors.Join(err, r.ram.Close()) }()
	}
	memory := q.RAM / 4 // the engine's budget; the rest is for the system's cache, Go and the check
	if memory > 0 {
		memory = max(memory, entry.Describe().MinMemoryBytes)
	}
	r.child = request{
		Script: script{Seed: q.Seed, Writers: q.Writers, Keys: max(int(q.Bytes/meanBytes)/q.Writers, batchKeys)},
		Dir:    filepath.Join(dir.Path, "data"), Engine: q.Engine, Level: q.Level, Memory: memory,
		Acked: make([]uint64, q.Writers),
	}
	r.began = time.Now()
	dir.Show(r.screen)
	r.say("%s at %v: %s keys of %s in all, %d writers, seed %d; the first time they are put in a stride, then at random",
		q.Engine, q.Level, measure.Count(float64(q.Writers*r.child.Script.Keys)), measure.Size(q.Bytes), q.Writers, q.Seed)

	return r.all(ctx)
}

// keep moves what is left to a directory that no later run removes.
func (r *run) keep(parent string) error {
	dir, err := os.MkdirTemp(parent, "holdfast-evidence-")
	if err == nil {
		to := filepath.Join(dir, filepath.Base(r.child.Dir))
		if err = os.Rename(r.child.Dir, to); err == nil {
			r.say("what is left of it is kept: %s; of each writer so many batches must be there: %d", to, r.child.Acked)
		}
	}

	return err
}

// usage is the space on the disk that what is below a directory takes.
func usage(dir string) int64 {
	_, bytes := datadir.Usage(dir)
	return bytes
}

// run is one run of the command.
type run struct {
	Request
	screen  console.Screen
	command []string
	ram     *measure.RAM
	child   request
	began   time.Time
	kills   int
	written int64 // keys
	read    int64
}

func (r *run) say(format string, args ...any) {
	r.screen.Hanging(console.Length(time.Since(r.began))+": ", fmt.Sprintf(format, args...), 4)
}

// Ends of children.
const (
	shortest  = time.Second
	longest   = 40 * time.Second // or a third of the run
	inOpening = 6                // one in so many is killed within a second after its start
	closes    = 4                // one in so many closes the engine
	fullCheck = 10               // one in so many checks everything
)

// all runs child after child.
func (r *run) all(ctx context.Context) error {
	rnd := rand.New(rand.NewPCG(r.Seed, 1))
	for end := r.began.Add(r.For); time.Now().Before(end); {
		q, after := r.child, shortest+time.Duration(rnd.Int64N(int64(max(min(longest, r.For/3)-shortest, 1))))
		q.Full = rnd.IntN(fullCheck) == 0
		q.Seconds = time.Duration(24 * time.Hour).Seconds()
		if rnd.IntN(closes) == 0 {
			q.Seconds = after.Seconds()
		}
		opening := rnd.IntN(inOpening) == 0
		if opening {
			after = time.Duration(rnd.Int64N(int64(time.Second)))
		}
		if err := r.one(ctx, q, after, opening); err != nil {
			return err
		}
	}
	q := r.child
	q.Full = true // after a crash, then once more after Close
	if err := r.one(ctx, q, 0, false); err != nil {
		return err
	}
	q.Acked, q.Last = r.child.Acked, true
	if err := r.one(ctx, q, 0, false); err != nil {
		return err
	}
	r.say("held: %s keys were written, %s were read beside it, the process was killed %s; nothing was lost",
		measure.Count(float64(r.written)), measure.Count(float64(r.read)), console.Number(r.kills, "time"))

	return nil
}

// one starts a child and kills it so long after it has opened the engine, or after its start, unless it ends by itself;
// 0 lets it come to its end.
func (r *run) one(ctx context.Context, q request, after time.Duration, opening bool) error {
	p, err := child.Start(r.command, q)
	if err != nil {
		return err
	}
	if r.ram != nil {
		if err := r.ram.Add(p.PID()); err != nil {
			p.Kill()
			_, _ = io.Copy(io.Discard, p.Out)
			_, _ = p.Wait()

			return err
		}
	}
	defer context.AfterFunc(ctx, p.Kill)()
	var timer *time.Timer
	killed := make(chan struct{})
	arm := func() {
		timer = time.AfterFunc(after, func() {
			close(killed)
			p.Kill()
		})
	}
	if opening {
		arm()
	}
	var got message // of each kind the last one
	lines := bufio.NewScanner(p.Out)
	lines.Buffer(nil, 16<<20)

	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			break // it was killed while it wrote
		}

		switch {
		case m.Ack != nil:
			r.child.Acked[m.Ack.W] = m.Ack.N
		case m.Opened != nil:
			got.Opened = m.Opened
			copy(r.child.Acked, m.Opened.Found)
			if after > 0 && !opening {
				arm()
			}
		case m.Stats != nil:
			got.Stats = m.Stats
		case m.Last != nil:
			got.Last = m.Last
		default:
			got.Closed, got.Wrong, got.Full = m.Closed, m.Wrong, m.Full
		}
	}
	_, _ = io.Copy(io.Discard, p.Out)
	p.CloseInput()
	_, waited := p.Wait()
	byUs := timer != nil && !timer.Stop()
	if byUs {
		<-killed
	}
	if ctx.Err() != nil {
		return console.ErrInterrupted
	}
	r.tell(q, got, byUs && !got.Closed)

	switch {
	case got.Wrong != "":
		return fmt.Errorf("%w: %s", ErrBroken, got.Wrong)
	case got.Full != "":
		return fmt.Errorf("%w: %s", console.ErrIncomplete, got.Full)
	case got.Last != nil && len(got.Last.Damage) > 0:
		return fmt.Errorf("%w: %s", ErrBroken, got.Last.Damage[0])
	case got.Closed:
		return nil
	case byUs:
		r.kills++
		return nil
	}
	if r.ram != nil && waited != nil && strings.Contains(waited.Error(), "signal: killed") {
		return fmt.Errorf("%w: the system killed the process, most likely for its memory: give it more with --ram",
			console.ErrIncomplete)
	}

	return fmt.Errorf("%w: the process ended by itself: %w", ErrBroken, cmp.Or(waited, errors.New("without a word")))
}

// tell says how a child came to its end, and what it did.
func (r *run) tell(q request, got message, killed bool) {
	text := "closed"
	if killed {
		text = "killed"
	}

	switch o := got.Opened; {
	case o == nil:
		text += " while it opened the engine, or checked it"
	case q.Full && o.Bytes > 0:
		text += fmt.Sprintf("; opened in %.0f ms, all %s keys were checked, %.2f times their size on the disk", o.Millis,
			measure.Count(float64(o.Checked)), float64(o.Disk)/float64(o.Bytes))
	default:
		text += fmt.Sprintf("; opened in %.0f ms, %s keys were checked", o.Millis, measure.Count(float64(o.Checked)))
	}
	if s := got.Stats; s != nil {
		r.written, r.read = r.written+s.Keys, r.read+s.Reads
		text += fmt.Sprintf("; %s keys written, %s a second, %s read; a commit at p99.9 %s, at most %s; "+
			"%s of memory, %d files, %d goroutines",
			measure.Count(float64(s.Keys)), measure.Count(float64(s.Keys)/s.Seconds), measure.Count(float64(s.Reads)),
			measure.Duration(s.P999),
			measure.Duration(s.Longest), measure.Size(s.Own), s.Files, s.Goroutine)
	}
	text += "; " + measure.Size(usage(q.Dir)) + " on the disk"
	if l := got.Last; l != nil {
		text += fmt.Sprintf(", %s before and %s after compacting, %s after everything was deleted, %s after compacting that",
			measure.Size(l.BytesBefore), measure.Size(l.BytesAfter), measure.Size(l.BytesDeleted), measure.Size(l.BytesEmpty))
	}
	r.say("%s", text)
}

// Status is the exit status for the error of a run.
func Status(err error) int {
	return console.Status(err, console.Exit{Err: ErrBroken, Status: console.ExitWrong})
}
