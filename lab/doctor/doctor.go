// Package doctor examines what a directory's disk makes of a sync, whether that can be believed, and what the machine
// is to hold databases with. It measures with plain files; nothing of an engine is in its figures but in the part that
// says what an engine does there.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
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
	Logtree []Step `json:"logtree"`
	// Settings are what the engine ran with when nothing was named.
	Settings map[string]string `json:"logtree_settings"`
	Verdict  Verdict           `json:"verdict"`
	Advice   []Item            `json:"advice"`
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
	work, err := rundir.Make(cmp.Or(dir, "."), rundir.Options{Op: "doctor", Prefix: "holdfast-doctor-"})
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
	if r.Logtree, r.Settings, err = commits(ctx, filepath.Join(dir, "db")); err != nil {
		return nil, err
	}
	r.Verdict = judge(r)
	r.Advice = advise(r)

	return r, nil
}

// fail is an interrupt, or the error of a disk that cannot be measured.
func fail(err error) error {
	if errors.Is(err, context.Canceled) {
		return console.ErrInterrupted
	}

	return &holdfast.Error{Op: "doctor", Detail: "the disk cannot be measured", Cause: err}
}

// commits measures one writer's commits on logtree at each level, and returns its settings.
func commits(ctx context.Context, dir string) (steps []Step, settings map[string]string, err error) {
	e, err := all.Open("logtree", dir, holdfast.Options{})
	if err != nil {
		return nil, nil, err
	}

	// The engine's files are removed before the directory is, even if a commit fails.
	defer func() { err = errors.Join(err, e.Close(), os.RemoveAll(dir)) }()

	value := make([]byte, 128)
	for _, level := range e.Capabilities().Levels() {
		// Each commit sets a new key, so that none has only an old value to replace.
		n := 0
		step, err := timed(ctx, func() error {
			n++
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "%v/%d", level, n), value)

			return holdfast.Commit(e, &b, level)
		})
		if err != nil {
			return nil, nil, err
		}
		step.Name, step.About = level.String(), e.Capabilities().Promise(level).How
		steps = append(steps, step)
	}

	settings = map[string]string{}
	for _, s := range e.Capabilities().Settings {
		settings[s.Name] = s.Value
	}

	return steps, settings, nil
}

// show writes the report for a reader: the machine, the ladder, the engine, the verdict, and what to change.
func show(s console.Screen, r *Report) {
	m, p := r.Machine, r.Place
	about := fmt.Sprintf("%s, %s, %s %s", m.CPU, console.Number(m.CPUs, "CPU"), m.OS, m.Kernel)
	if m.VM != "" {
		about += ", a virtual machine by " + m.VM
	}
	if m.Container != "" {
		about += ", a container by " + m.Container
	}
	s.Wrapped("", about)
	memory := measure.Size(m.MemoryBytes)
	if p.MemoryLimit >= 0 {
		memory += fmt.Sprintf(", of which this process may take %s", measure.Size(p.MemoryLimit))
	}
	if used := p.TotalBytes - p.FreeBytes; p.TotalBytes > 0 && m.MemoryBytes > 0 {
		memory += fmt.Sprintf("; %s are in use on the file system, %sx as much", measure.Size(used),
			measure.Digits(float64(used)/float64(m.MemoryBytes)))
	}
	s.Wrapped("memory: ", memory)
	s.Wrapped("", m.Sentence())
	if p.MountPoint != "" {
		text := fmt.Sprintf("%s at %s (%s)", m.Disk.Device, p.MountPoint, strings.Join(p.MountOptions, ","))
		if p.ReadAhead >= 0 {
			text += fmt.Sprintf(", reads %s ahead", measure.Size(p.ReadAhead))
		}
		if p.Scheduler != "" {
			text += ", scheduler " + p.Scheduler
		}
		s.Wrapped("mounted: ", text)
	}
	if p.OpenFiles >= 0 && p.Mappings >= 0 {
		s.Wrapped("limits: ", fmt.Sprintf("a process may open %d files and have %d mappings", p.OpenFiles, p.Mappings))
	}

	for _, below := range p.Below {
		s.Wrapped("made of: ", below)
	}
	if p.TotalBytes > 0 {
		s.Wrapped("room: ", fmt.Sprintf("%s free of %s", measure.Size(p.FreeBytes), measure.Size(p.TotalBytes)))
	}
	s.Title("what a sync costs, in a plain file")
	steps(s, r.Ladder, false)
	s.Title("what Holdfast does here: a commit of 128 bytes on logtree, one writer")
	steps(s, r.Logtree, true)
	s.Wrapped("", r.bounds())
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

// bounds says what the engine keeps to if nothing is named.
func (r *Report) bounds() string {
	text := fmt.Sprintf("A power cut takes at most the last %v of Memory and Process, and what comes while that sync is "+
		"under way, unless Options.SyncEvery says otherwise.", holdfast.DefaultSyncEvery)
	if r.Verdict.Sync == Untrue {
		text = "A power cut may take anything, as a sync keeps nothing."
	}
	if n, err := strconv.ParseInt(r.Settings["memory"], 10, 64); err == nil {
		text += " Caches and write buffers take " + measure.Size(n) + " unless MemoryBytes does."
	}
	if files := r.Settings["files"]; files != "" {
		text += " At most " + files + " files of tables and segments are open for reading."
	}

	return text
}

// steps shows steps, with how each is done if that is asked for; the report as JSON has it of all.
func steps(s console.Screen, list []Step, how bool) {
	t := console.Columns(1, "what", "p50#", "p99#", "longest#", "times#")
	t.Columns[0].Wrap = 60
	if how {
		t.Columns = append(t.Columns, console.Column{Name: "how", Wrap: 60})
	}

	for _, step := range list {
		cells := []string{step.Name, measure.Duration(step.P50), measure.Duration(step.P99), measure.Duration(step.Max),
			fmt.Sprint(step.Times), step.About}
		style := console.Style("")
		if step.Refused != "" {
			cells, style = []string{step.Name, "n/a", "", "", "", step.Refused}, console.Dim
			if !how {
				cells[0] += ": " + step.Refused
			}
		}
		t.Row(style, cells[:len(t.Columns)]...)
	}
	s.Table(t)
}
