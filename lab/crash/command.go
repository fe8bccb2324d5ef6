package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/bench"
)

// Command is one run of the crash command. json names a file for the report, "-" for standard
// output; empty for none. [Status] tells the exit status of its error.
func (l Lab) Command(ctx context.Context, q Request, at Place, json string, t bench.Terminal) (err error) {
	plan, err := l.plan(q)
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
	r, err := newRunner(l, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	s := screenOf(t)
	s.header(plan)
	for _, dir := range r.swept {
		s.wrapped("removed what a killed run had left: ", dir)
	}
	p := newProgress(t.Err, t.ErrWidth() > 0, t.ErrWidth)
	report, err := r.run(ctx, plan, p)
	p.end()
	if err != nil {
		return err
	}
	s.report(report)
	if err := jsonOut.commit(report); err != nil {
		return err
	}
	switch broken := report.brokenRows(); {
	case report.heldControls():
		return ErrControl
	case broken > 0:
		return fmt.Errorf("%d of %d rows: %w", broken, len(report.Results), ErrBroken)
	}
	return nil
}

// Replay checks again what a run has kept as evidence in dir, and leaves that as it is. The error is
// ErrBroken if it is found again.
func (l Lab) Replay(ctx context.Context, dir string, at Place, t bench.Terminal) (err error) {
	r, err := newRunner(l, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	f, j, fatal, err := r.replayOne(ctx, dir)
	if err != nil {
		return err
	}
	s := screenOf(t)
	s.wrapped("", fmt.Sprintf("%s at %v, %s, %s: %s", f.Engine, f.Level, f.Kind, f.Subject, f.When))
	s.wrapped("", fmt.Sprintf("batches 1 to %d were issued and 1 to %d must be there; 1 to %d are, %d is the last one of which something is", f.Issued, f.Bound, j.Survived, j.Last))
	s.wrapped("", fmt.Sprintf("lost %d, torn %d, out of order %d, wrong %d", j.Lost, j.Torn, j.OutOfOrder, j.Wrong))
	for _, finding := range j.Findings {
		s.wrapped("  ", finding)
	}
	if fatal || j.broken() {
		return ErrBroken
	}
	s.wrapped("", "nothing is wrong this time, also when it is written to; what the run had found:")
	for _, finding := range f.Findings {
		s.wrapped("  ", finding)
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
		return nil, &holdfast.Error{Op: "crash", Path: name, Class: holdfast.ErrBadOption, Cause: err, Remedy: "name a file that can be written with --json, or - for standard output"}
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
