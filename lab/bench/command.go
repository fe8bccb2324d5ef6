package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Terminal is where a command writes.
type Terminal struct {
	Out, Err io.Writer
	// OutWidth and ErrWidth return the number of columns, 0 where the writer is no terminal.
	OutWidth, ErrWidth func() int
	// Color permits colours, on terminals.
	Color bool
}

// plainWidth is assumed where there is no terminal.
const plainWidth = 120

func (t Terminal) out() screen {
	s := screen{w: t.Out, width: t.OutWidth(), color: t.Color}
	if s.width == 0 {
		s.width, s.color = plainWidth, false
	}
	return s
}

// Command is one run of the bench command. json names a file for the report, "-" for standard
// output; empty for none. The error is ErrWrong if a measurement is void.
func (l Lab) Command(ctx context.Context, r Request, at Place, json string, t Terminal) (err error) {
	plan, err := l.Plan(r)
	if err != nil {
		return err
	}
	jsonOut, err := openJSON(json, t.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, jsonOut.discard()) }()
	if json == "-" {
		t.Out, t.OutWidth = t.Err, t.ErrWidth
	}
	runner, err := NewRunner(l, plan, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, runner.Close()) }()
	s := t.out()
	s.header(plan, runner.Machine())
	for _, dir := range runner.swept {
		s.wrapped("removed what a killed run had left: ", dir)
	}
	width := t.ErrWidth()
	p := newProgress(t.Err, plan, width > 0, t.ErrWidth)
	report, err := runner.Run(ctx, p)
	p.end()
	if err != nil {
		return err
	}
	s.report(l, report)
	if err := jsonOut.commit(report); err != nil {
		return err
	}
	if void := report.Void(); len(void) > 0 {
		return fmt.Errorf("%d of %d measurements: %w", len(void), len(report.Results), ErrWrong)
	}
	return nil
}

// jsonFile is the report's file, which appears only once it is complete.
type jsonFile struct {
	w    io.Writer
	f    *os.File // nil unless a temporary file
	name string
}

func openJSON(name string, stdout io.Writer) (*jsonFile, error) {
	switch name {
	case "":
		return &jsonFile{}, nil
	case "-":
		return &jsonFile{w: stdout}, nil
	}
	refuse := func(err error) (*jsonFile, error) {
		return nil, &holdfast.Error{Op: "bench", Path: name, Class: holdfast.ErrBadOption, Cause: unwrapPath(err), Remedy: "name a file that can be written with --json, or - for standard output"}
	}
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() {
		if st.IsDir() {
			return refuse(errors.New("it is a directory"))
		}
		f, err := os.OpenFile(name, os.O_WRONLY, 0) // a device or pipe
		if err != nil {
			return refuse(err)
		}
		return &jsonFile{w: f}, nil
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return refuse(err)
	}
	return &jsonFile{w: f, f: f, name: name}, nil
}

// commit writes the report and gives the file its name.
func (j *jsonFile) commit(r *Report) error {
	if j.w == nil {
		return nil
	}
	if err := r.WriteJSON(j.w); err != nil {
		return err
	}
	if j.f == nil {
		return nil
	}
	f := j.f
	err := errors.Join(f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), j.name)
	}
	if err == nil {
		j.f = nil
	}
	return err
}

// discard removes what was not committed.
func (j *jsonFile) discard() error {
	if j.f == nil {
		return nil
	}
	_ = j.f.Close()
	return os.Remove(j.f.Name())
}

// List writes the engines, workloads and presets.
func (l Lab) List(t Terminal) {
	s := t.out()
	s.printf("%s (and null and floor, which are always measured)\n", s.paint(bold, "engines"))
	for _, e := range l.Engines {
		s.engine(e.Describe())
	}
	if len(l.Peers) > 0 {
		s.printf("%s, which the raft workloads measure too\n", s.paint(bold, "other stores for Raft"))
	}
	for _, e := range l.Peers {
		s.engine(e.Describe())
	}
	s.printf("%s\n", s.paint(bold, "workloads"))
	for _, w := range l.Workloads {
		s.printf("  %-18s  %s\n", w.Name, w.About)
	}
	s.printf("\n%s\n", s.paint(bold, "presets"))
	for _, p := range Presets() {
		s.printf("  %-18s  %s: %s of %v\n", p.Name, p.About, number(p.Rounds, "round"), p.For.Round(time.Millisecond))
	}
	s.printf("\n%s\n", s.paint(bold, "levels"))
	for _, level := range holdfast.Levels() {
		s.printf("  %-18s  %s\n", level, level.Survives())
	}
}

// engine writes what an engine gives for each level asked, how, and its caveats.
func (s screen) engine(c holdfast.Capabilities) {
	library := c.Library
	if library == "" {
		library = "part of holdfast"
	}
	s.printf("  %s   %s\n", s.paint(bold, c.Engine), library)
	for _, asked := range holdfast.Levels() {
		switch p := c.Promise(asked); {
		case p.Given == 0:
			s.hanging(fmt.Sprintf("    %-9v", asked), "refused: "+p.Why, 13)
		case p.Given > asked:
			s.hanging(fmt.Sprintf("    %-9v", asked), fmt.Sprintf("gives %v: %s", p.Given, p.Why), 13)
		case p.CutMayCorrupt:
			s.hanging(fmt.Sprintf("    %-9v", asked), p.How+"; a power cut may cost the whole store", 13)
		default:
			s.hanging(fmt.Sprintf("    %-9v", asked), p.How, 13)
		}
	}
	for _, caveat := range c.Caveats {
		s.hanging("    - ", caveat, 6)
	}
	s.printf("\n")
}
