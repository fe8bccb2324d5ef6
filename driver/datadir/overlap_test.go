package datadir_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

func TestCheckOverlap(t *testing.T) {
	at := t.TempDir()
	path := func(parts ...string) string { return filepath.Join(append([]string{at}, parts...)...) }
	must := func(err error) {
		t.Helper()
		try(t, err)
	}
	source, other := path("source"), path("other")
	must(os.MkdirAll(path("source", "data"), 0o755))
	must(os.MkdirAll(path("other", "data"), 0o755))
	must(os.MkdirAll(path("empty"), 0o755))
	must(os.WriteFile(path("other", "HOLDFAST"), []byte("holdfast 1\nengine x\nformat 1\n"), 0o644))
	must(os.MkdirAll(path("no", "HOLDFAST"), 0o755)) // a directory of that name
	must(os.WriteFile(path("file"), nil, 0o644))
	links := runtime.GOOS != "windows" // where making one needs a right
	if links {
		must(os.Symlink(source, path("link")))
		must(os.Symlink(filepath.Join("source", "new"), path("dangling")))
		must(os.Symlink("loop", path("loop")))
		must(os.Symlink(at, path("empty", "up")))
	}
	for _, c := range []struct {
		target, source, say string // say "" is no error
		link                bool
	}{
		{path("source"), source, "itself", false},
		{path("source", "new"), source, "lies in " + source, false},
		{path("source", "data", "a", "b"), source, "lies in " + source, false},
		{path("source", ".."), source, "lies in it", false},
		{at, source, source + " lies in it", false},
		{at, path("file"), "lies in it", false},
		{path("new", "..", "source", "new"), source, "lies in " + source, false},
		{path("source2"), source, "", false},
		{path("new", "deep"), source, "", false},
		{path("source", "new"), path("missing"), "", false},
		{path("empty"), source, "", false},
		{path("new"), path("file"), "", false},
		{path("other", "data", "new"), source, "an engine made", false},
		{path("other", "data", "new"), other, "lies in " + other, false},
		{path("no", "new"), source, "", false},
		{other, source, "", false}, // that it is not empty others say
		{path("link", "new"), source, "lies in " + source, true},
		{path("link"), source, "itself", true},
		{path("source", "new"), path("link"), "lies in " + path("link"), true},
		{path("dangling"), source, "lies in " + source, true},
		{path("dangling", "deep"), source, "lies in " + source, true},
		{path("empty", "up", "source", "x"), source, "lies in " + source, true},
		{path("loop", "x"), source, "loop", true},
	} {
		if c.link && !links {
			continue
		}
		err := datadir.CheckOverlap("copy", c.target, c.source)
		if c.say == "" {
			if err != nil {
				t.Errorf("%s of %s: %v", c.target, c.source, err)
			}
		} else if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), c.say) ||
			!strings.HasPrefix(err.Error(), "copy "+c.target) {
			t.Errorf("%s of %s: %v; want an error with %q", c.target, c.source, err, c.say)
		}
	}
}

// TestRelative: a name is taken from where the process is.
func TestRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	try(t, os.Mkdir("source", 0o755))
	err := datadir.CheckOverlap("copy", filepath.Join("source", "new"), "source")
	if !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("inside: %v", err)
	}
	if err := datadir.CheckOverlap("copy", "new", "source"); err != nil {
		t.Errorf("next to it: %v", err)
	}
}
