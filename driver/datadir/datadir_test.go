package datadir_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

var bolt = datadir.Spec{Engine: "bbolt", Format: 2, Level: holdfast.Power}

func TestOpenRemembers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	h, err := datadir.Open(dir, bolt)
	try(t, err)
	if !h.New {
		t.Error("a new directory is not New")
	}
	if _, err := datadir.Open(dir, bolt); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("a second opener got %v", err)
	}
	try(t, errors.Join(h.Made(), h.Close()))
	want := datadir.Mark{Engine: "bbolt", Format: 2, Level: holdfast.Power}
	if mark, err := datadir.ReadMark("read", dir); err != nil || mark != want {
		t.Errorf("its mark is %+v, %v", mark, err)
	}
	h, err = datadir.Open(dir, bolt)
	try(t, err)
	if h.New {
		t.Error("an old directory is New")
	}
	h.Close()

	older := bolt
	older.Format = 3
	if h, err = datadir.Open(dir, older); err != nil {
		t.Errorf("an older format was refused: %v", err)
	} else {
		h.Close()
	}
}

func TestOpenRefuses(t *testing.T) {
	mark := func(text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			try(t, os.WriteFile(filepath.Join(dir, "HOLDFAST"), []byte(text), 0o644))
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
			try(t, os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o644))
		}, holdfast.ErrForeign, "thesis.txt"},
		{"a file", func(t *testing.T, dir string) {
			try(t, errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o644)))
		}, holdfast.ErrForeign, "it is a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(t, dir)
			before, _ := filepath.Glob(dir + "/*")
			_, err := datadir.Open(dir, bolt)
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
	if _, err := datadir.Open("", bolt); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("no directory: %v", err)
	}
	below := filepath.Join(t.TempDir(), "file")
	os.WriteFile(below, nil, 0o644)
	if _, err := datadir.Open(filepath.Join(below, "dir"), bolt); err == nil {
		t.Error("a directory below a file was opened")
	}
}

// A crash while the directory was being made leaves nothing that keeps the next Open out.
func TestOpenAfterCrashWhileMaking(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"LOCK", "HOLDFAST.tmp"} {
		try(t, os.WriteFile(filepath.Join(dir, name), []byte("hold"), 0o644))
	}
	h, err := datadir.Open(dir, bolt)
	try(t, err)
	if !h.New {
		t.Error("it is not New")
	}
	h.Close()
}

// A directory that was made and has lost its data is not made again; one whose making was
// interrupted is.
func TestLostData(t *testing.T) {
	id := datadir.Spec{Engine: "bbolt", Format: 1, Keeps: "data.bbolt"}
	dir := t.TempDir()
	for range 2 { // the first is interrupted
		h, err := datadir.Open(dir, id)
		try(t, err)
		if !h.New {
			t.Error("a directory that was never made is not New")
		}
		h.Close()
	}
	h, err := datadir.Open(dir, id)
	try(t, err)
	data := filepath.Join(dir, id.Keeps)
	try(t, errors.Join(os.WriteFile(data, nil, 0o644), h.Made(), h.Close()))
	if h, err = datadir.Open(dir, id); err != nil {
		t.Fatal(err)
	}
	if h.New {
		t.Error("a directory that was made is New")
	}
	try(t, errors.Join(h.Close(), os.Remove(data)))
	_, err = datadir.Open(dir, id)
	if !errors.Is(err, holdfast.ErrCorrupt) || !strings.Contains(err.Error(), "data.bbolt is gone") {
		t.Errorf("without its data: %v", err)
	}
}

// TestLost: the mark of a directory that was made by a repair names what is lost until that is accepted, however often
// it is opened.
func TestLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engine")
	id := datadir.Spec{Engine: "bbolt", Format: 3, Level: holdfast.Power}
	err := datadir.Make("repair", dir, func(partial string) (datadir.Loss, error) {
		h, err := datadir.Open(partial, id)
		if err != nil {
			return datadir.Loss{}, err
		}
		if err := errors.Join(h.Made(), datadir.Hide(partial), h.Close()); err != nil {
			return datadir.Loss{}, err
		}
		if _, err := datadir.Open(partial, id); !errors.Is(err, holdfast.ErrForeign) {
			t.Errorf("a hidden directory was opened: %v", err)
		}
		return datadir.Loss{Lost: "2 keys\nof 3"}, nil
	})
	try(t, err)
	for _, id.ReadOnly = range []bool{false, true, false} {
		h, err := datadir.Open(dir, id)
		try(t, err)
		if h.Lost != "2 keys of 3" {
			t.Errorf("it says that it lost %q", h.Lost)
		}
		if _, err := datadir.Accept(dir); !errors.Is(err, holdfast.ErrLocked) {
			t.Errorf("accepted while it is open: %v", err)
		}
		try(t, h.Close())
	}
	for _, want := range []string{"2 keys of 3", ""} {
		if lost, err := datadir.Accept(dir); err != nil || lost != want {
			t.Errorf("Accept: %q, %v; want %q", lost, err, want)
		}
	}
	got, err := datadir.ReadMark("read", dir)
	want := datadir.Mark{Engine: "bbolt", Format: 3, Level: holdfast.Power, Loss: datadir.Loss{Accepted: got.Accepted}}
	if err != nil || got != want || got.Accepted == "" {
		t.Errorf("%+v, %v", got, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "HOLDFAST"))
	if err != nil || !strings.HasPrefix(string(text), "holdfast 2\n") {
		t.Errorf("%q, %v", text, err) // version 1 would be opened by programs that do not know what it means
	}
	h, err := datadir.Open(dir, id)
	try(t, err)
	if h.Loss != got.Loss {
		t.Errorf("opened: %+v", h.Loss)
	}
	try(t, h.Close())
}

// TestReadOnly: a directory can have many readers and a holder at once; writers are refused, and nothing is made.
func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engine")
	id := datadir.Spec{Engine: "bbolt", Format: 3}
	reads := id
	reads.ReadOnly = true
	if _, err := datadir.Open(dir, reads); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a directory that is not there: %v", err)
	}
	h, err := datadir.Open(dir, id)
	try(t, err)
	if _, err := datadir.Open(dir, reads); !errors.Is(err, holdfast.ErrLocked) {
		t.Fatalf("with a writer: %v", err)
	}
	try(t, h.Close())
	if _, err := datadir.Open(dir, reads); !errors.Is(err, holdfast.ErrForeign) {
		t.Fatalf("a directory that was not finished: %v", err)
	}
	if h, err = datadir.Open(dir, id); err == nil {
		err = errors.Join(h.Made(), h.Close())
	}
	try(t, err)
	for _, locked := range []bool{true, false} {
		if !locked { // a copy that came without it
			try(t, os.Remove(filepath.Join(dir, "LOCK")))
		}
		var open []func() error
		for range 2 {
			h, err := datadir.Open(dir, reads)
			try(t, err)
			release, err := datadir.Hold(dir)
			try(t, err)
			open = append(open, h.Close, release)
		}
		if _, err := os.Stat(filepath.Join(dir, "LOCK")); (err == nil) != locked {
			t.Errorf("the file LOCK: %v", err)
		}
		for locked && len(open) > 0 {
			if _, err := datadir.Open(dir, id); !errors.Is(err, holdfast.ErrLocked) {
				t.Errorf("a writer with %d readers: %v", len(open), err)
			}
			if err := open[0](); err != nil {
				t.Error(err)
			}
			open = open[1:]
		}
		for _, end := range open {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	}
}

// try ends the test with err, unless it is nil.
func try(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
