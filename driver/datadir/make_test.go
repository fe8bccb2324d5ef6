package datadir_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// fill puts one file into a directory.
func fill(partial string) (datadir.Loss, error) {
	return datadir.Loss{}, os.WriteFile(filepath.Join(partial, "file"), []byte("contents"), 0o644)
}

// TestMake: a directory gets its name when it is filled, with the parents that it lacks, and its files are those of
// fill.
func TestMake(t *testing.T) {
	at := t.TempDir()
	dir := filepath.Join(at, "a", "b")
	err := datadir.Make("copy", dir, func(partial string) (datadir.Loss, error) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it has its name before it is filled: %v", err)
		}
		return fill(partial)
	})
	try(t, err)
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "contents" {
		t.Errorf("%q, %v", b, err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestMakeFails: what fails leaves nothing, and what is there already stays as it is.
func TestMakeFails(t *testing.T) {
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	for _, dir := range []string{"full", "other.partial", "engine"} {
		try(t, os.Mkdir(path(dir), 0o755))
	}
	for name, text := range map[string]string{"full/file": "", "other.partial/theirs": "",
		"engine/HOLDFAST": "holdfast 1\nengine x\nformat 1\n"} {
		try(t, os.WriteFile(path(name), []byte(text), 0o644))
	}
	for dir, say := range map[string]string{
		"":                 "no directory",
		path("full"):       "not empty",
		path("other"):      "other.partial: bad option: it is there already, and is not what an interrupted copy leaves",
		path("engine"):     "not empty",
		path("engine/sub"): "an engine made",
		path("full/file"):  "not a directory",
	} {
		err := datadir.Make("copy", dir, func(string) (datadir.Loss, error) {
			t.Errorf("%q is filled", dir)
			return datadir.Loss{}, nil
		})
		if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v; want %q", dir, err, say)
		}
	}
	failed := errors.New("the disk is on fire")
	err := datadir.Make("copy", path("new"), func(partial string) (datadir.Loss, error) {
		_, err := fill(partial)
		return datadir.Loss{}, errors.Join(err, failed)
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	err = datadir.Make(
		"copy",
		path("new"),
		func(string) (datadir.Loss, error) { return datadir.Loss{Lost: "all of it"}, nil },
	)
	if err == nil {
		t.Error("what is lost is not kept, and that is no error")
	}
	if left, err := os.ReadDir(at); err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestMakeInPlace: an empty directory is filled through a link to it, which stays, and keeps its mode.
func TestMakeInPlace(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("to make a link needs a right, and there are no modes")
	}
	at := t.TempDir()
	dir, link, dangling := filepath.Join(at, "dir"), filepath.Join(at, "link"), filepath.Join(at, "dangling")
	try(t, errors.Join(os.Mkdir(dir, 0o710), os.Symlink("dir", link), os.Symlink("nothing", dangling)))
	if err := datadir.Make("copy", dangling, fill); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("through a link to nothing: %v", err)
	}
	t.Chdir(dir)
	if err := datadir.Make("copy", ".", fill); !errors.Is(err, holdfast.ErrBadOption) ||
		!strings.Contains(err.Error(), "working directory") {
		t.Errorf("the working directory: %v", err)
	}
	t.Chdir(at)
	try(t, datadir.Make("copy", link, fill))
	for _, name := range []string{link, dangling} {
		if st, err := os.Lstat(name); err != nil || st.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v", name, err)
		}
	}
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o710 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
}

// TestMakeAfterKill: what a killed process has left under the name of a directory that is being made is removed by the
// next one that makes it, unless it could be opened, or is none of ours.
func TestMakeAfterKill(t *testing.T) {
	const mark = "holdfast 1\nengine x\nformat 1\n"
	for what, c := range map[string]struct {
		files map[string]string
		kept  bool
	}{
		"nothing":        {},
		"a lock":         {files: map[string]string{"LOCK": "", "HOLDFAST.tmp": "hold"}},
		"being made":     {files: map[string]string{"HOLDFAST": mark + "state making\n", "data": "x"}},
		"hidden":         {files: map[string]string{"HOLDFAST.partial": mark, "data": "x", "TEMP/data": "x"}},
		"whole":          {files: map[string]string{"HOLDFAST": mark, "data": "x"}, kept: true},
		"somebody else":  {files: map[string]string{"letter.txt": "x"}, kept: true},
		"a damaged mark": {files: map[string]string{"HOLDFAST": "x", "data": "x"}, kept: true},
	} {
		t.Run(what, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "dir")
			try(t, os.Mkdir(dir+".partial", 0o755))
			for name, text := range c.files {
				at := filepath.Join(dir+".partial", name)
				try(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o644)))
			}
			err := datadir.Make("copy", dir, fill)
			if c.kept != errors.Is(err, holdfast.ErrBadOption) || !c.kept && err != nil {
				t.Fatal(err)
			}
			for name := range c.files {
				if _, err := os.Stat(filepath.Join(dir+".partial", name)); (err == nil) != c.kept {
					t.Errorf("%s: %v", name, err)
				}
			}
			if got, err := os.ReadDir(dir); !c.kept && (err != nil || len(got) != 1 || got[0].Name() != "file") {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}

// TestMakeTwice: while a directory is being made nobody else makes it, or removes what is there of it.
func TestMakeTwice(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories cannot be locked")
	}
	dir := filepath.Join(t.TempDir(), "dir")
	try(t, datadir.Make("copy", dir, func(partial string) (datadir.Loss, error) {
		err := datadir.Make("copy", dir, func(string) (datadir.Loss, error) {
			t.Error("it is made twice")
			return datadir.Loss{}, nil
		})
		if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), "another copy is making it") {
			t.Error(err)
		}
		return fill(partial)
	}))
	if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
		t.Error(err)
	}
}

// TestResume: what a fill leaves that fails, or that was killed, is there for the next one, unless it says that it is
// of no use; what cannot be a begin is left alone; and the directory has its name and its mark only at the end.
func TestResume(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories cannot be locked")
	}
	const mark = "holdfast 1\nengine x\nformat 1\n"
	dir := filepath.Join(t.TempDir(), "above", "dir")
	failed := errors.New("the line is dead")
	resume := func(stay bool, err error) (found []string, got error) {
		got = datadir.Resume("restore", dir, []byte(mark), func(partial string) (bool, error) {
			entries, err2 := os.ReadDir(partial)
			try(t, err2)
			for _, e := range entries {
				found = append(found, e.Name())
			}
			if _, there := os.Stat(dir); there == nil {
				t.Error("it has its name before it is filled")
			}
			if _, open := datadir.ReadMark("open", partial); !errors.Is(open, holdfast.ErrForeign) {
				t.Errorf("what is there can be opened: %v", open)
			}
			try(t, os.WriteFile(filepath.Join(partial, fmt.Sprint("file-", len(entries))), nil, 0o644))
			return stay, err
		})
		return found, got
	}
	expect := func(found []string, err, want error, names string) {
		t.Helper()
		if !errors.Is(err, want) || strings.Join(found, " ") != names {
			t.Errorf("%q, %v; want %s, %v", found, err, names, want)
		}
	}

	found, err := resume(false, failed)
	expect(found, err, failed, "HOLDFAST.partial")
	if _, err := os.Stat(filepath.Dir(dir)); err == nil {
		t.Error("what is of no use has stayed")
	}
	found, err = resume(true, failed)
	expect(found, err, failed, "HOLDFAST.partial")

	// Killed while the mark was written; and something that Make was killed at.
	try(t, os.Truncate(filepath.Join(dir+".partial", "HOLDFAST.partial"), 5))
	found, err = resume(true, failed)
	expect(found, err, failed, "HOLDFAST.partial file-1")
	try(t, os.WriteFile(filepath.Join(dir+".partial", "HOLDFAST"), []byte(mark+"state making\n"), 0o644))
	found, err = resume(true, nil)
	expect(found, err, nil, "HOLDFAST.partial file-1 file-2")
	if m, err := datadir.ReadMark("open", dir); err != nil || m.Engine != "x" {
		t.Errorf("%+v, %v", m, err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}

	// What could be opened is nobody's to go on with.
	dir += "-2"
	try(t, os.Mkdir(dir+".partial", 0o755))
	try(t, os.WriteFile(filepath.Join(dir+".partial", "HOLDFAST"), []byte(mark), 0o644))
	found, err = resume(true, nil)
	expect(found, err, holdfast.ErrBadOption, "")
}

// TestTemp: what a killed program has left for a time in a directory is removed by the next one that opens it, and no
// part of it meanwhile.
func TestTemp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engine")
	id := datadir.Spec{Engine: "x", Format: 1}
	h, err := datadir.Open(dir, id)
	try(t, errors.Join(err, h.Made(), os.WriteFile(filepath.Join(dir, "data"), []byte("12345"), 0o644)))
	files, _ := datadir.Usage(dir)

	temp := datadir.Temp(dir)
	try(t, os.Mkdir(temp, 0o700))
	try(t, datadir.Make("backup", filepath.Join(temp, "a", "copy"), fill))
	if err := datadir.Make("backup", temp, fill); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("a copy in its place: %v", err)
	}
	if err := datadir.Make("backup", filepath.Join(dir, "sub", "TEMP", "copy"), fill); !errors.Is(
		err,
		holdfast.ErrBadOption,
	) {
		t.Errorf("a copy elsewhere in the directory: %v", err)
	}
	if now, _ := datadir.Usage(dir); now != files {
		t.Errorf("%d files, %d before", now, files)
	}
	to := filepath.Join(t.TempDir(), "to")
	try(t, datadir.CopyFiles(t.Context(), dir, to))
	if _, err := os.Stat(datadir.Temp(to)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is copied: %v", err)
	}

	try(t, errors.Join(h.Close(), os.WriteFile(filepath.Join(dir, "HOLDFAST.tmp"), nil, 0o644)))
	id.ReadOnly = true
	h, err = datadir.Open(dir, id)
	try(t, err)
	if _, err := os.Stat(filepath.Join(temp, "a", "copy", "file")); err != nil {
		t.Errorf("a reader has removed it: %v", err)
	}
	try(t, h.Close())
	id.ReadOnly = false
	h, err = datadir.Open(dir, id)
	try(t, err)
	left, err := os.ReadDir(dir)
	if names := fmt.Sprint(left); err != nil || names != "[- HOLDFAST - LOCK - data]" {
		t.Errorf("%s, %v", names, err)
	}
	try(t, h.Close())
}
