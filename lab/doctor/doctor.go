// Package doctor examines what a directory's disk makes of a sync, whether that can be believed, and what the machine
// is to hold databases with. It measures with plain files; nothing of an engine is in its figures but in the part that
// says what an engine does there.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// Schema is the version of the report as JSON.
const Schema = 1

// Report is what an examination found.
type Report struct {
	Schema  int             `json:"schema"`
	Machine measure.Machine `json:"machine"`
	Place   Place           `json:"place"`
	Ladder  []Step          `json:"ladder"`
	// Logtree is what a commit of 128 bytes takes on our own engine in that directory, by level.
	Logtree []Step  `json:"logtree"`
	Verdict Verdict `json:"verdict"`
	Advice  []Item  `json:"advice"`
}

// Place is the directory, what it lies on, and what the process may take. What is not known is empty, or -1 where that
// is a number.
type Place struct {
	MountPoint   string   `json:"mount_point"`
	MountOptions []string `json:"mount_options"`
	// Below are the devices that the device is made of, as RAID, LVM and encryption do it.
	Below      []string `json:"below"`
	ReadAhead  int64    `json:"read_ahead_bytes"`
	Scheduler  string   `json:"scheduler"`
	FreeBytes  int64    `json:"free_bytes"`
	TotalBytes int64    `json:"total_bytes"`
	// MemoryLimit is what a control group permits.
	MemoryLimit int64 `json:"memory_limit_bytes"`
	OpenFiles   int64 `json:"open_files_limit"`
	Mappings    int64 `json:"mappings_limit"`
}

// ErrUntrue says that a sync in the directory keeps nothing.
var ErrUntrue = errors.New("a sync there keeps nothing")

// Status is the exit status for an error of [Command].
func Status(err error) int {
	return console.Status(err, console.Exit{Err: ErrUntrue, Status: console.ExitWrong})
}

// Command examines dir, an existing directory that is not an engine's, and shows what it found; an empty name is the
// current directory. It takes some seconds. json names a file for the report, "-" for standard output; empty for none.
// The error is [ErrUntrue] if the verdict is that a sync keeps nothing.
func Command(ctx context.Context, dir, json string, t console.Terminal) (err error) {
	file, err := t.OpenReport("doctor", json)
	if err != nil {
		return err
	}
	work, err := rundir.Make(dir, rundir.Options{Op: "doctor", Prefix: "holdfast-doctor-"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	r, err := Examine(ctx, work.Path)
	if err != nil {
		return err
	}
	show(t.Screen(), r)
	if err := file.Write(r); err != nil {
		return err
	}
	if r.Verdict.Sync == Untrue {
		return ErrUntrue
	}
	return nil
}

// Examine measures in dir, an empty directory. It writes some 40 MB there, and removes them.
func Examine(ctx context.Context, dir string) (*Report, error) {
	r := &Report{Schema: Schema}
	var err error
	if r.Machine, err = measure.Describe(dir); err != nil {
		return nil, fail(err)
	}
	r.Place = lookAt(dir)
	if r.Ladder, err = climb(ctx, dir); err != nil {
		return nil, fail(err)
	}
	r.Machine.Disk.SyncP50 = r.step(stepSync).P50 // measured better than before
	if r.Logtree, err = commits(ctx, filepath.Join(dir, "db")); err != nil {
		return nil, err
	}
	r.Verdict = judge(r)
	r.Advice = advise(r)
	return r, nil
}

func fail(err error) error {
	if errors.Is(err, context.Canceled) {
		return console.ErrInterrupted
	}
	return &holdfast.Error{Op: "doctor", Detail: "the disk cannot be measured", Cause: err}
}

// commits measures one writer's commits on logtree at each level.
func commits(ctx context.Context, dir string) (steps []Step, err error) {
	e, err := all.Open("logtree", dir, holdfast.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close(), os.RemoveAll(dir)) }()
	value := make([]byte, 128)
	for _, level := range holdfast.Levels() {
		n := 0
		step, err := timed(ctx, func() error {
			n++
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "%v/%d", level, n), value)
			return holdfast.Commit(e, &b, level)
		})
		if err != nil {
			return nil, err
		}
		step.Name, step.About = level.String(), e.Capabilities().Promise(level).How
		steps = append(steps, step)
	}
	return steps, nil
}

func show(s console.Screen, r *Report) {
	m, p := r.Machine, r.Place
	s.Wrapped("", fmt.Sprintf("%s, %s, %s %s", m.CPU, console.Number(m.CPUs, "CPU"), m.OS, m.Kernel))
	memory := measure.Size(m.MemoryBytes)
	if p.MemoryLimit >= 0 {
		memory += fmt.Sprintf(", of which this process may take %s", measure.Size(p.MemoryLimit))
	}
	s.Wrapped("memory: ", memory)
	s.Wrapped("", m.Sentence())
	if p.MountPoint != "" {
		s.Wrapped("mounted: ", fmt.Sprintf("%s at %s (%s)", m.Disk.Device, p.MountPoint, strings.Join(p.MountOptions, ",")))
	}
	for _, below := range p.Below {
		s.Wrapped("made of: ", below)
	}
	if p.TotalBytes > 0 {
		s.Wrapped("room: ", fmt.Sprintf("%s free of %s", measure.Size(p.FreeBytes), measure.Size(p.TotalBytes)))
	}
	s.Printf("\n%s\n", s.Paint(console.Bold, "what a sync costs, in a plain file"))
	steps(s, r.Ladder)
	s.Printf("\n%s\n", s.Paint(console.Bold, "a commit of 128 bytes on logtree, one writer, here"))
	steps(s, r.Logtree)
	s.Printf("\n")
	style := map[Sync]console.Style{Untrue: console.Red, Plausible: console.Green}[r.Verdict.Sync]
	s.Wrapped(s.Paint(style, "can a sync be believed? "+string(r.Verdict.Sync)+".")+" ", strings.Join(r.Verdict.Why, " "))
	if len(r.Advice) == 0 {
		s.Printf("nothing to change.\n")
	}
	for _, a := range r.Advice {
		s.Wrapped("- ", a.What+": "+a.Do)
	}
	if runtime.GOOS != "linux" {
		s.Wrapped("", "What the file system and the device are is only looked up on Linux.")
	}
}

func steps(s console.Screen, list []Step) {
	right := func(name string) console.Column { return console.Column{Name: name, Right: true} }
	t := &console.Table{Keys: 1, Columns: []console.Column{{Name: "what", Wrap: 60}, right("p50"), right("p99"),
		right("longest"),
		right("times"), {Name: "how", Wrap: 60}}}
	for _, step := range list {
		if step.Refused != "" {
			t.Row(console.Dim, step.Name, "n/a", "", "", "", step.Refused)
			continue
		}
		t.Row("", step.Name, measure.Duration(step.P50), measure.Duration(step.P99), measure.Duration(step.Max),
			fmt.Sprint(step.Times), step.About)
	}
	s.Table(t)
}
