package datadir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/datadir"
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
	for name, text := range map[string]string{"full/file": "", "engine/HOLDFAST": "holdfast 1\nengine x\nformat 1\n"} {
		try(t, os.WriteFile(path(name), []byte(text), 0o644))
	}
	for dir, say := range map[string]string{
		"":                 "no directory",
		path("full"):       "not empty",
		path("other"):      "other.partial: bad option: it is there already; remove it if it was left by an interrupted copy",
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
	err = datadir.Make("copy", path("new"), func(string) (datadir.Loss, error) { return datadir.Loss{Lost: "all of it"}, nil })
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
