// Package rundir keeps the directories that the lab's runs work in. A run makes one of its own below the directory
// that the user names, or else below the system's temporary directory, holds a lock in it as long as it lives, and
// removes it at its end. What a killed run left is removed by the next run in the same place: it has no lock.
package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Lock is the name of the file that is locked.
const Lock = "RUNNING"

// Options name the kind of runs, and how to remove a directory.
type Options struct {
	Op     string // the command, for errors
	Prefix string // of the directories' names; the process's number follows
	// Dead reports that the run which made a directory is dead though its lock is held still. nil: none is.
	Dead func(dir string) bool
	// Undo does what must be done before a directory can be removed. After an error it stays. It may be nil.
	Undo func(dir string) error
}

// Dir is the directory of one run.
type Dir struct {
	Path    string
	Parent  string   // that the user named, or that [Choose] has chosen
	Where   string   // Parent, its file system, and why it was chosen, for people
	Cleaned []string // directories that killed runs had left and that were removed
	op      string
	lock    *os.File // nil where there are no locks
}

// inMemory is measure.InMemory; tests replace it.
var inMemory = measure.InMemory

// Choose returns the directory in which a run works if the user names none, and why it is not the system's temporary
// directory; that is empty if it is. It is the first of these that is not memory: the system's temporary directory,
// /var/tmp, the current directory. A figure measured in memory says nothing about durability. If all are memory, it is
// the first, and why says so.
func Choose() (dir, why string) {
	temporary := os.TempDir()
	if !inMemory(temporary) {
		return temporary, ""
	}

	why = "the temporary directory " + temporary + " is in memory"
	for _, dir := range []string{"/var/tmp", "."} {
		if st, err := os.Stat(dir); err == nil && st.IsDir() && !inMemory(dir) {
			return dir, why
		}
	}

	return temporary, "it is in memory, as /var/tmp and the current directory are"
}

// Make makes a directory below parent, after it has removed there what killed runs left. An empty parent is what
// [Choose] chooses. The error is ErrBadOption; the directory of an engine is refused.
func Make(parent string, o Options) (_ *Dir, err error) {
	why := ""
	if parent == "" {
		parent, why = Choose()
	}
	d := &Dir{op: o.Op}
	if d.Parent, err = filepath.Abs(parent); err != nil {
		return nil, err
	}

	switch st, err := os.Stat(d.Parent); {
	case err != nil:
		return nil, d.Error(err)
	case !st.IsDir():
		return nil, &holdfast.Error{Op: o.Op, Path: d.Parent, Class: holdfast.ErrBadOption, Detail: "it is a file",
			Remedy: "name a directory with --dir"}
	}
	if engine, file := holdsEngine(d.Parent); engine != "" {
		return nil, &holdfast.Error{Op: o.Op, Path: d.Parent, Class: holdfast.ErrBadOption,
			Detail: file + " says that " + engine + " is the directory of an engine",
			Remedy: "name another directory on that disk with --dir"}
	}
	d.Where = d.Parent
	if fs := measure.FileSystem(d.Parent); fs != "" {
		d.Where += " on " + fs
	}
	if why != "" {
		d.Where += ", since " + why
	}
	d.Cleaned = CleanUp(d.Parent, o)
	if d.Path, err = os.MkdirTemp(d.Parent, o.Prefix+strconv.Itoa(os.Getpid())+"-"); err != nil {
		return nil, d.Error(err)
	}
	if d.lock, err = claim(d.Path); err != nil {
		return nil, errors.Join(d.Error(err), d.Close())
	}

	return d, nil
}

// Show says where the run works, and what it found there.
func (d *Dir) Show(s console.Screen) {
	s.Wrapped("directory: ", d.Where)

	for _, dir := range d.Cleaned {
		s.Wrapped("removed what a killed run had left: ", dir)
	}
}

// holdsEngine finds out whether dir, or one that it lies in, is an engine's, and which file says so: ours, or, in dir
// itself, one that Pebble, Badger and their like make. Names are compared as they are listed: a program called
// "holdfast" is no mark, whatever the file system thinks of upper case.
func holdsEngine(dir string) (engine, file string) {
	for at := dir; ; at = filepath.Dir(at) {
		entries, _ := os.ReadDir(at)
		for _, e := range entries {
			if name := e.Name(); !e.IsDir() && (name == "HOLDFAST" || at == dir && strings.HasPrefix(name, "MANIFEST")) {
				return at, name
			}
		}
		if at == filepath.Dir(at) {
			return "", ""
		}
	}
}

// escape makes a pattern that matches path alone.
func escape(path string) string {
	if filepath.Separator == '\\' {
		return path // there is nothing to escape with
	}

	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// Error is err of making or using the directory, as one that names the place and what to do.
func (d *Dir) Error(err error) error {
	return &holdfast.Error{Op: d.op, Path: d.Parent, Class: holdfast.ErrBadOption, Cause: console.WithoutPath(err),
		Remedy: "name a writable directory on a disk with room with --dir"}
}

// Close removes the directory.
func (d *Dir) Close() error {
	err := os.RemoveAll(d.Path)
	if d.lock != nil {
		d.lock.Close()
	}

	return err
}
