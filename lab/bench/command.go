package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// Status is the exit status for an error of [Lab.Command] or [Compare].
func Status(err error) int {
	return console.Status(err, console.Exit{Err: ErrWrong, Status: console.ExitWrong},
		console.Exit{Err: ErrRegression, Status: console.ExitRegression})
}

// Command is one run of the bench command. files are where the report goes. A run that is interrupted or
// breaks off shows and writes what it has measured until then; the file is written again and again while it
// goes on. [Status] tells the exit status of the error.
func (l Lab) Command(ctx context.Context, r Request, at Place, files console.Files,
	t console.Terminal,
) (err error) {
	var old *Report
	if r.Resume != "" {
		if old, err = r.resume(); err != nil {
			return err
		}
		files.JSON = cmp.Or(files.JSON, r.Resume)
	}
	plan, err := l.Plan(r)
	if err == nil && contender.Prepare(ctx, plan.Engines, t.Err) != nil && ctx.Err() == nil {
		plan, err = l.Plan(r) // without those that cannot be had
	}
	if err != nil {
		return err
	}
	file, err := t.OpenFiles("bench", files)
	if err != nil {
		return err
	}
	if at.FS != "" {
		unmount, failed := at.mount(context.WithoutCancel(ctx)) // the runner still has its directory there
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, unmount()) }()
		plan.Command += console.Flag("fs", at.FS)
	}
	runner, err := NewRunner(l, plan, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runner.Close()) }()
	if runner.old = old; old != nil {
		if err := runner.resumes(old); err != nil {
			return err
		}
	}
	s := screen{t.Screen()}
	s.Markdown = plan.Format == "markdown"
	if !machineReads(plan.Format) {
		s.header(plan, runner.machine)
		runner.dir.Show(s.Screen)
	}
	if old != nil && !machineReads(plan.Format) {
		s.Wrapped("", fmt.Sprintf("resumed: %d of %d measurements are in %s", len(old.Results), len(plan.Cells)*plan.Rounds,
			r.Resume))
	}
	p := newProgress(t, plan, file)
	report, err := runner.Run(ctx, p)
	p.End()
	if len(report.Results) > 0 {
		err = errors.Join(err, s.write(l, report, plan.Detail, plan.Format), file.Write(report))
		switch saved := files.JSON != "" && files.JSON != "-"; {
		case machineReads(plan.Format) || plan.Detail.Full:
		case saved:
			s.Printf("more: holdfast compare %s --full\n", files.JSON)
		default:
			s.Printf("more: --full also shows latencies, costs and settings; --json FILE keeps all for holdfast compare FILE\n")
		}
		if report.Partial != "" && files.JSON != "" && files.JSON != "-" && !machineReads(plan.Format) {
			s.Printf("go on: %s%s\n", plan.Command, console.Flag("resume", files.JSON))
		}
	}

	return errors.Join(err, report.void())
}

// imageSize is the size in bytes of an image, of which only what is written takes room.
const imageSize = 8 << 30

// mount makes the image of FS, and lets Dir be in it. What killed runs have left below Dir goes first.
func (at *Place) mount(ctx context.Context) (unmount func() error, err error) {
	if !slices.Contains(blockdev.FileSystems(), at.FS) {
		return nil, op.Unknown("file system", at.FS, blockdev.FileSystems())
	}
	if at.Dir == "" {
		at.Dir, _ = rundir.Choose()
	}
	if _, err := blockdev.CleanUp(at.Dir); err != nil {
		return nil, err
	}
	disk, err := blockdev.MakeFileSystem(ctx, blockdev.Options{FS: at.FS, Dir: at.Dir, Size: imageSize})
	if err != nil {
		return nil, err
	}
	at.Dir = disk.Path()

	return disk.Close, nil
}

// void is what the void measurements make of the run: an error that wraps ErrWrong, or ErrIncomplete if it was
// the disk that failed.
func (r *Report) void() error {
	void, disk := r.Void(), 0
	for _, result := range void {
		if result.DiskFailed {
			disk++
		}
	}

	switch {
	case len(void) == 0:
		return nil
	case len(void) == disk:
		return fmt.Errorf("%d of %d measurements met a disk that was full or took no writes: %w", disk, len(r.Results),
			console.ErrIncomplete)
	}

	return fmt.Errorf("%d of %d measurements: %w", len(void), len(r.Results), ErrWrong)
}

// listIndent is where what is said of a name begins.
const listIndent = 22

// List writes the engines, workloads and presets, and with settings what the engines run with, for which each is
// made ready and opened once.
func (l Lab) List(ctx context.Context, t console.Terminal, settings bool) {
	s := screen{t.Screen()}
	if settings {
		_ = contender.Prepare(ctx, l.engineNames(), t.Err) // those that fail say why in their descriptions
	}
	s.Printf("%s (and null and floor, which are always measured)\n", s.Paint(console.Bold, "engines"))

	for _, e := range l.Engines {
		s.engine(e.Describe())
	}

	last, several := StoreKind(""), false
	for i, p := range l.Peers {
		switch {
		case p.Nodes > 1:
			if !several {
				s.Printf("%s, where quorum is named\n", s.Paint(console.Bold, "on three nodes of this machine"))
			}
			several = true
		case p.Kind == "" && i == 0:
			s.Printf("%s, where they are named\n", s.Paint(console.Bold, "engines with larger choices"))
		case p.Kind != last:
			s.Printf("%s, which the workloads on such stores measure too\n",
				s.Paint(console.Bold, "other stores of "+string(p.Kind)))
			last = p.Kind
		}
		s.engine(p.Describe())
	}
	s.Printf("%s\n", s.Paint(console.Bold, "workloads"))

	for _, w := range l.Workloads {
		s.Hanging(fmt.Sprintf("  %-18s  ", w.Name), w.about(), listIndent)
	}
	s.Title("presets")

	for _, p := range Presets() {
		plan, err := l.Plan(Request{Preset: p.Name})
		if err != nil {
			continue // nothing that it measures is there
		}
		about := fmt.Sprintf("%s: %s of %v, about %s", p.About, console.Number(plan.Rounds, "round"),
			p.For.Round(time.Millisecond), console.Length(plan.Estimate()))
		if plan.Rounds < measure.MinRounds {
			about += "; too few rounds for a claim who is faster"
		}
		s.Hanging(fmt.Sprintf("  %-18s  ", p.Name), about, listIndent)
	}
	s.Title("levels")

	for _, level := range holdfast.Levels() {
		s.Printf("  %-18s  %s\n", level, level.Survives())
	}
	if settings {
		s.listSettings(l, defaultMemory)
	}
}

// engine writes what an engine gives for each level asked, how, and its caveats.
func (s screen) engine(c holdfast.Capabilities) {
	library := c.Library
	if library == "" {
		library = "part of holdfast"
	}
	s.Printf("  %s   %s\n", s.Paint(console.Bold, c.Engine), library)

	for _, asked := range holdfast.Levels() {
		switch p := c.Promise(asked); {
		case p.Given == 0:
			s.Hanging(fmt.Sprintf("    %-9v", asked), "refused: "+p.Why, 13)
		case p.Given > asked:
			s.Hanging(fmt.Sprintf("    %-9v", asked), fmt.Sprintf("gives %v: %s", p.Given, p.Why), 13)
		case p.CutMayCorrupt:
			s.Hanging(fmt.Sprintf("    %-9v", asked), p.How+"; a power cut may cost the whole store", 13)
		default:
			s.Hanging(fmt.Sprintf("    %-9v", asked), p.How, 13)
		}
	}

	for _, caveat := range c.Caveats {
		s.Hanging("    - ", caveat, 6)
	}
	s.Printf("\n")
}
