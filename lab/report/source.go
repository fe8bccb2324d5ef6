package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/crash"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Source is a report of bench or of crash, with the name that the page calls it by.
type Source struct {
	Name  string
	JSON  []byte        // as it was written
	Bench *bench.Report // or Crash
	Crash *crash.Report
}

var (
	// ErrReport is in the chain of the error for a file that holds no report of bench or crash, or not a whole one.
	ErrReport = errors.New("not a report of holdfast bench or crash")
	// ErrMixed says that reports were made under conditions that differ, so that their figures must not be compared.
	ErrMixed = errors.New("the reports cannot be compared")
)

// Read reads a file that bench or crash has written with --json. What is truncated or anything else is ErrReport.
func Read(path string) (Source, error) {
	text, err := console.ReadReport(path)
	if err != nil {
		return Source{}, refused(path, err)
	}

	return Parse(path, text)
}

// ReadAll reads the reports in a file system, those in files whose names match the pattern.
func ReadAll(files fs.FS, pattern string) (list []Source, err error) {
	names, err := fs.Glob(files, pattern)
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err == nil {
			text, err = console.UnpackReport(text)
		}
		if err != nil {
			return nil, refused(name, err)
		}
		s, err := Parse(name, text)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}

	return list, err
}

func refused(path string, cause error) error {
	return &holdfast.Error{Op: "report", Path: path, Class: ErrReport, Cause: console.WithoutPath(cause),
		Remedy: "name files that holdfast bench or crash has written with --json"}
}

// Parse is Read for a report that came from path.
func Parse(path string, text []byte) (s Source, err error) {
	s = Source{Name: filepath.Base(path), JSON: text}
	var head struct {
		Schema any `json:"schema"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return Source{}, refused(path, fmt.Errorf("it is not complete JSON: %w", err))
	}

	switch head.Schema {
	case bench.Schema:
		s.Bench, err = bench.ParseReport(path, text)
	case crash.Schema:
		s.Crash, err = crash.ParseReport(path, text)
	default:
		return Source{}, refused(path, fmt.Errorf("its schema is %.40q; this build reads %q and %q", fmt.Sprint(head.Schema),
			bench.Schema, crash.Schema))
	}
	if err != nil {
		return Source{}, fmt.Errorf("%w: %w", ErrReport, err)
	}

	return s, nil
}

// Load reads files. The error is ErrMixed if they differ in what they were made on, unless mixed permits that.
func Load(paths []string, mixed bool) (list []Source, err error) {
	for _, path := range paths {
		s, err := Read(path)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	if err := refuse(list); err != nil && !mixed {
		return nil, err
	}

	return list, nil
}

// Of is the source of a report that was just made: a *bench.Report or a *crash.Report.
func Of(report any) (Source, error) {
	var s Source
	switch r := report.(type) {
	case *bench.Report:
		s = Source{Name: "bench.json", Bench: r}
	case *crash.Report:
		s = Source{Name: "crash.json", Crash: r}
	default:
		return s, fmt.Errorf("%T is no report", report)
	}
	var text bytes.Buffer
	err := console.WriteJSON(&text, report)
	s.JSON = text.Bytes()

	return s, err
}

// name gives sources that have the same name a number.
func name(sources []Source) {
	times := map[string]int{}
	for i := range sources {
		s := &sources[i]
		times[s.Name]++
		if n := times[s.Name]; n > 1 {
			s.Name = fmt.Sprintf("%s (%d)", s.Name, n)
		}
	}
}

// difference is a condition that differs between two sources.
type difference struct{ What, First, Other string }

func (d difference) String() string { return fmt.Sprintf("%s: %s and %s", d.What, d.First, d.Other) }

// differences lists how the conditions of the sources differ from those of the first that states them: the machine, the
// disk, the memory that was given.
func differences(sources []Source) (list []difference) {
	type condition struct{ what, value string }

	first := map[string]string{}
	said := map[difference]bool{}
	for _, s := range sources {
		var of []condition
		add := func(what string, value any) { of = append(of, condition{what, fmt.Sprint(value)}) }
		machine := func(m measure.Machine) {
			add("operating system", m.OS+"/"+m.Arch)
			add("CPUs", m.CPUs)
			add("Go", m.Go)
			if m.Kernel != "" || s.Bench != nil { // else an older report of crash, or nothing is known
				add("kernel", m.Kernel)
				add("CPU", m.CPU)
				add("memory", m.MemoryBytes)
				add("virtual machine", m.VM)
			}
		}
		if r := s.Bench; r != nil {
			m := r.Machine
			machine(m)
			add("file system", m.Disk.Family())
			add("disk", m.Disk.Device+" "+m.Disk.Kind+" "+m.Disk.Cache)
			add("memory for a measurement", r.Plan.RAMBytes)
		} else {
			machine(s.Crash.Machine) // a crash report has no figure of the disk
		}

		for _, c := range of {
			was, known := first[c.what]
			if !known {
				first[c.what] = c.value
				continue
			}
			if d := (difference{c.what, was, c.value}); was != c.value && !said[d] {
				said[d] = true
				list = append(list, d)
			}
		}
	}

	return list
}

// Differences lists how the conditions differ under which the reports were made, in words.
func Differences(sources []Source) (list []string) {
	for _, d := range differences(sources) {
		list = append(list, d.String())
	}

	return list
}

// refuse is ErrMixed if the conditions differ.
func refuse(sources []Source) error {
	texts := Differences(sources)
	if len(texts) == 0 {
		return nil
	}

	return &holdfast.Error{Op: "report", Class: ErrMixed, Detail: strings.Join(texts, "; "),
		Remedy: "to have them side by side all the same, with a mark on every plot, add --mixed"}
}
