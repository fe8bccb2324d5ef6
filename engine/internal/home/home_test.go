package home_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/home"
)

var bolt = home.Identity{Engine: "bbolt", Format: 2, Level: holdfast.Power}

func TestOpenRemembers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	h, err := home.Open(dir, bolt)
	if err != nil {
		t.Fatal(err)
	}
	if !h.New {
		t.Error("a new directory is not New")
	}
	if _, err := home.Open(dir, bolt); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("a second opener got %v", err)
	}
	if err := errors.Join(h.Made(), h.Close()); err != nil {
		t.Fatal(err)
	}
	if id, err := home.Identify(dir); err != nil || id != bolt {
		t.Errorf("identified as %+v, %v", id, err)
	}
	h, err = home.Open(dir, bolt)
	if err != nil {
		t.Fatal(err)
	}
	if h.New {
		t.Error("an old directory is New")
	}
	h.Close()

	older := bolt
	older.Format = 3
	if h, err = home.Open(dir, older); err != nil {
		t.Errorf("an older format was refused: %v", err)
	} else {
		h.Close()
	}
}

func TestOpenRefuses(t *testing.T) {
	mark := func(text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "HOLDFAST"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, dir string)
		want    error
		say     string
	}{
		{"another engine", mark("holdfast 1\nengine pebble\nformat 1\n"), holdfast.ErrForeign, "engine pebble"},
		{"another level", mark("holdfast 1\nengine bbolt\nformat 2\nlevel process\n"), holdfast.ErrForeign, "level process"},
		{"newer format", mark("holdfast 1\nengine bbolt\nformat 3\nlevel power\n"), holdfast.ErrVersion, "format 3"},
		{"newer mark", mark("holdfast 2\nengine bbolt\nformat 2\nshape round\n"), holdfast.ErrVersion, "version 2"},
		{"empty mark", mark(""), holdfast.ErrCorrupt, "incomplete"},
		{"damaged mark", mark("holdfast 1\nengine\x00bbolt"), holdfast.ErrCorrupt, "line"},
		{"somebody's files", func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}, holdfast.ErrForeign, "thesis.txt"},
		{"a file", func(t *testing.T, dir string) {
			if err := errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}, holdfast.ErrForeign, "it is a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(t, dir)
			before, _ := filepath.Glob(dir + "/*")
			_, err := home.Open(dir, bolt)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v; want %v with %q and the path", err, c.want, c.say)
			}
			if strings.Contains(c.name, "files") {
				if after, _ := filepath.Glob(dir + "/*"); len(after) != len(before) {
					t.Errorf("somebody's directory now holds %v", after)
				}
			}
		})
	}
	if _, err := home.Open("", bolt); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("no directory: %v", err)
	}
	below := filepath.Join(t.TempDir(), "file")
	os.WriteFile(below, nil, 0o644)
	if _, err := home.Open(filepath.Join(below, "dir"), bolt); err == nil {
		t.Error("a directory below a file was opened")
	}
}

// A crash while the directory was being made leaves nothing that keeps the next Open out.
func TestOpenAfterCrashWhileMaking(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"LOCK", "HOLDFAST.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("hold"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := home.Open(dir, bolt)
	if err != nil {
		t.Fatal(err)
	}
	if !h.New {
		t.Error("it is not New")
	}
	h.Close()
}

// A directory that was made and has lost its data is not made again; one whose making was
// interrupted is.
func TestLostData(t *testing.T) {
	id := home.Identity{Engine: "bbolt", Format: 1, Keeps: "data.bbolt"}
	dir := t.TempDir()
	for range 2 { // the first is interrupted
		h, err := home.Open(dir, id)
		if err != nil {
			t.Fatal(err)
		}
		if !h.New {
			t.Error("a directory that was never made is not New")
		}
		h.Close()
	}
	h, err := home.Open(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, id.Keeps)
	if err := errors.Join(os.WriteFile(data, nil, 0o644), h.Made(), h.Close()); err != nil {
		t.Fatal(err)
	}
	if h, err = home.Open(dir, id); err != nil {
		t.Fatal(err)
	}
	if h.New {
		t.Error("a directory that was made is New")
	}
	if err := errors.Join(h.Close(), os.Remove(data)); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Open(dir, id); !errors.Is(err, holdfast.ErrCorrupt) || !strings.Contains(err.Error(), "data.bbolt is gone") {
		t.Errorf("without its data: %v", err)
	}
}
