package console

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfastdb/holdfast"
)

// WriteJSON writes v as all reports are written: indented by two, with a line feed at the end.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")

	return e.Encode(v)
}

// ReportFile is where a command's report goes as JSON: a file, standard output, or nowhere. A file is replaced as a
// whole each time it is written, so that what it holds is always a whole report.
type ReportFile struct {
	op, flag string    // for errors
	name     string    // the file; empty if there is none
	w        io.Writer // instead of a file: standard output, or a device or pipe
	next     time.Time // not before this is a checkpoint written

	page *ReportFile // the same as a page; nil if there is none
	html func(io.Writer, any) error
}

// OpenReport checks that a report can be written to the file of that name. "-" is standard output, and then t shows
// everything on standard error; an empty name is nowhere. The error is ErrBadOption; op is the command.
func (t *Terminal) OpenReport(op, name string) (*ReportFile, error) {
	return t.OpenOutput(op, "--json", name)
}

// OpenOutput is OpenReport for a file that another flag names. It must be none of others, which it would replace.
func (t *Terminal) OpenOutput(op, flag, name string, others ...string) (*ReportFile, error) {
	f := &ReportFile{op: op, flag: flag}
	switch name {
	case "":
		return f, nil
	case "-":
		f.w = t.Out
		t.Out, t.OutWidth = t.Err, t.ErrWidth

		return f, nil
	}

	st, err := os.Stat(name)
	switch {
	case err == nil && st.IsDir():
		return nil, f.refused(name, errors.New("it is a directory"))
	case err == nil && !st.Mode().IsRegular():
		if f.w, err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
			return nil, f.refused(name, err)
		}

		return f, nil
	}

	for _, other := range others {
		if sameFile(name, other) {
			return nil, f.refused(name, fmt.Errorf("it is %s, which would be replaced", other))
		}
	}
	f.name = name
	if behind, err := filepath.EvalSymlinks(name); err == nil { // the file is replaced, not the link to it
		f.name = behind
	}
	if err := f.replace(func(io.Writer) error { return nil }, false); err != nil {
		return nil, f.refused(name, err)
	}

	return f, nil
}

// sameFile reports that two names are of one file, or will be: their directories are one, and neither is there yet.
func sameFile(a, b string) bool {
	for _, part := range []func(string) string{filepath.Clean, filepath.Dir} {
		first, err := os.Stat(part(a))
		other, otherErr := os.Stat(part(b))
		if err == nil && otherErr == nil {
			return os.SameFile(first, other) && (first.Mode().IsRegular() || filepath.Base(a) == filepath.Base(b))
		}
		if err == nil || otherErr == nil {
			break
		}
	}

	return false
}

func (f *ReportFile) refused(name string, err error) error {
	return &holdfast.Error{Op: f.op, Path: name, Class: holdfast.ErrBadOption, Cause: WithoutPath(err),
		Remedy: "name a file that can be written with " + f.flag + ", or - for standard output"}
}

// checkpointShare is how much of a run's time checkpoints may take: one part of so many.
const checkpointShare = 20

// Checkpoint writes what value returns to the file, if there is one, so that it survives the end of the process. It
// does nothing if the last one was so short ago that writing would take more than a twentieth of the time. Errors are
// not returned: the report is written again at the end.
func (f *ReportFile) Checkpoint(value func() any) {
	began := time.Now()
	if f.name == "" || began.Before(f.next) {
		return
	}
	_ = f.replace(func(w io.Writer) error { return WriteJSON(w, value()) }, true)
	took := time.Since(began)
	f.next = began.Add(checkpointShare * took)
}

// Write writes v, the report at the end of the run.
func (f *ReportFile) Write(v any) error {
	err := f.Fill(func(w io.Writer) error { return WriteJSON(w, v) })
	if f.page != nil {
		err = errors.Join(err, f.page.Fill(func(w io.Writer) error { return f.html(w, v) }))
	}

	return err
}

// Fill writes what write does.
func (f *ReportFile) Fill(write func(io.Writer) error) error {
	switch {
	case f.w != nil:
		err := write(f.w)
		if c, ok := f.w.(*os.File); ok && c != os.Stdout {
			err = errors.Join(err, c.Close())
		}

		return err
	case f.name != "":
		if err := f.replace(write, true); err != nil {
			return &holdfast.Error{Op: f.op, Path: f.name, Detail: "the report cannot be written", Cause: WithoutPath(err)}
		}
	}

	return nil
}

// replace writes a temporary file, and gives it the name if keep is true. One that a killed run has left is used again.
func (f *ReportFile) replace(write func(io.Writer) error, keep bool) error {
	t, err := os.Create(filepath.Join(filepath.Dir(f.name), "."+filepath.Base(f.name)+".new"))
	if err != nil {
		return err
	}
	err = errors.Join(write(t), t.Chmod(0o644), t.Close())
	if err == nil && keep {
		err = os.Rename(t.Name(), f.name)
	}
	if err != nil || !keep {
		err = errors.Join(err, os.Remove(t.Name()))
	}

	return err
}

// maxReport is how many bytes a report may have that is not compressed.
const maxReport = 1 << 30

// ReadReport reads a file that [Terminal.OpenReport] has written, or what gzip made of it.
func ReadReport(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}

	return UnpackReport(text)
}

// UnpackReport undoes gzip, if it was used.
func UnpackReport(text []byte) ([]byte, error) {
	if !bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		return text, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	text, err = io.ReadAll(io.LimitReader(r, maxReport+1))
	if err == nil && len(text) > maxReport {
		err = fmt.Errorf("it has more than %d bytes when it is unpacked", maxReport)
	}

	return text, err
}

// WithoutPath takes a file name off err, for messages that name it already.
func WithoutPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}

	return err
}

// Files are where a command's report goes: as JSON, and as a page for people, which Page writes. The names are as those
// of [Terminal.OpenReport].
type Files struct {
	JSON, HTML string
	Page       func(w io.Writer, report any) error
}

// OpenFiles checks that the reports can be written. What it returns for JSON writes the page, too.
func (t *Terminal) OpenFiles(op string, files Files) (*ReportFile, error) {
	if files.JSON == "-" && files.HTML == "-" {
		return nil, Op(op).BadOption("--json and --html cannot both be standard output", "name a file for one of them")
	}
	f, err := t.OpenReport(op, files.JSON)
	if err == nil && files.HTML != "" {
		f.page, err = t.OpenOutput(op, "--html", files.HTML, files.JSON)
		f.html = files.Page
	}

	return f, err
}
