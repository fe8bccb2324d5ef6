package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
)

// CheckOverlap returns ErrBadOption if target, a directory that need not be there yet, is one of the sources, lies in
// one or has one in it, or lies in any directory that an engine made, unless that is in its [Temp]. Links are followed,
// also dangling ones. Sources are files or directories; one that is not there is ignored. op is for the error.
func CheckOverlap(op, target string, sources ...string) error {
	refuse := func(detail string, cause error) error {
		return &holdfast.Error{Op: op, Path: target, Class: holdfast.ErrBadOption, Detail: detail, Cause: cause,
			Remedy: "name a directory elsewhere"}
	}
	if target == "" {
		return refuse("no directory is named", nil)
	}
	at, err := resolve(target, 0)
	if err != nil {
		return refuse("", err)
	}

	held := make([]fs.FileInfo, len(sources)) // nil where nothing is
	for i, s := range sources {
		if held[i], err = os.Stat(s); err != nil {
			held[i] = nil
		}
	}

	// Upwards from the target: is it a source, or in one, or in a directory of an engine? Files are compared, not names,
	// because a directory can have several.
	below := ""
	for dir := range above(at) {
		from := below
		below = dir
		st, err := os.Stat(dir)
		if err != nil {
			continue // not there yet
		}

		for i, s := range held {
			switch {
			case s == nil || !os.SameFile(st, s):
			case dir == at:
				return refuse("it is "+sources[i]+" itself", nil)
			default:
				return refuse("it lies in "+sources[i], nil)
			}
		}

		// The target itself may be marked: then it is not empty, which Make says.
		if dir != at && marked(dir) && (from == at || !isTemp(dir, from)) {
			return refuse("it lies in "+dir+", which an engine made", nil)
		}
	}

	// And the other way round: a source that lies in the target.
	st, err := os.Stat(at)
	if err != nil {
		return nil // nothing is in it
	}

	for i, s := range sources {
		if held[i] == nil {
			continue
		}
		whole, err := resolve(s, 0)
		if err != nil {
			return refuse("", err)
		}

		for dir := range above(filepath.Dir(whole)) {
			if other, err := os.Stat(dir); err == nil && os.SameFile(st, other) {
				return refuse(s+" lies in it", nil)
			}
		}
	}

	return nil
}

// above yields dir and all directories that it lies in.
func above(dir string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for yield(dir) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
		}
	}
}

// maxLinks is how many dangling links are followed; systems follow 40 others.
const maxLinks = 40

// resolve returns the absolute path to which name leads, or would lead if what is missing were made.
func resolve(name string, links int) (string, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	whole, err := filepath.EvalSymlinks(name)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return whole, err
	}

	// Something on the way is missing: a directory, or what the name leads to, which may be a dangling link. The directory
	// is resolved first, and then the name in it.
	dir := filepath.Dir(name)
	if dir == name {
		return "", err
	}
	if dir, err = resolve(dir, links); err != nil {
		return "", err
	}
	name = filepath.Join(dir, filepath.Base(name))
	to, err := os.Readlink(name)
	if err != nil { // no link
		return name, nil
	}
	if links == maxLinks {
		return "", fmt.Errorf("%s: too many links", name)
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(dir, to)
	}

	return resolve(to, links+1)
}

// marked reports whether an engine made dir. If it is not sure, the answer is no: where names have no case, another
// file may match the mark's name.
func marked(dir string) bool {
	const begin = "holdfast "
	for _, mark := range []string{MarkName, hiddenName} {
		name := filepath.Join(dir, mark)
		if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() {
			continue
		}
		f, closeFile, err := OpenToRead(name)
		if err != nil {
			continue
		}
		var head [len(begin)]byte
		_, err = io.ReadFull(f, head[:])
		_ = closeFile()
		if err == nil && string(head[:]) == begin {
			return true
		}
	}

	return false
}
