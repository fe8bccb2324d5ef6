package rundir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
)

const prefix = "run-"

// TestEnginesDirectoriesAreRefused: nothing is made in the directory of an engine, nor below it.
func TestEnginesDirectoriesAreRefused(t *testing.T) {
	ours := filepath.Join(t.TempDir(), "db[1]")
	e, err := bbolt.Open(ours, holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(ours, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	bare, other := t.TempDir(), t.TempDir()
	for name, dir := range map[string]string{"MANIFEST-000001": bare, "holdfast": other, "report.json": other} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for dir, says := range map[string]string{ours: "HOLDFAST", below: ours, bare: "MANIFEST-000001", other: ""} {
		before, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Make(dir, Options{Op: "test", Prefix: prefix})
		switch {
		case says == "":
			if err != nil {
				t.Errorf("%s: %v", dir, err)
				continue
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), says),
			!strings.Contains(err.Error(), "--dir"):
			t.Errorf("%s: %v", dir, err)
		}
		if after, err := os.ReadDir(dir); err != nil || len(after) != len(before) {
			t.Errorf("%s: left behind: %v, %v", dir, after, err)
		}
	}
}

// TestChosenOnADisk: unless a directory is named it is the system's temporary one, but not if that is memory.
func TestChosenOnADisk(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Setenv("TMP", temporary)
	defer func(was func(string) bool) { inMemory = was }(inMemory)
	for _, test := range []struct {
		name   string
		memory []string
		dir    []string // any of these
		says   string
	}{
		{"a disk", nil, []string{temporary}, ""},
		{"memory", []string{temporary}, []string{"/var/tmp", "."},
			"since the temporary directory " + temporary + " is in memory"},
		{"only here", []string{temporary, "/var/tmp"}, []string{"."}, "is in memory"},
		{"nowhere", []string{temporary, "/var/tmp", "."}, []string{temporary}, "since it is in memory, as /var/tmp"},
	} {
		inMemory = func(dir string) bool { return slices.Contains(test.memory, dir) }
		dir, why := Choose()
		if !slices.Contains(test.dir, dir) || (why == "") != (test.says == "") {
			t.Errorf("%s: %s, %q", test.name, dir, why)
		}
		d, err := Make("", Options{Op: "test", Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		if abs, err := filepath.Abs(dir); err != nil || d.Parent != abs || !strings.HasPrefix(d.Where, abs) ||
			!strings.Contains(d.Where, test.says) {
			t.Errorf("%s: in %s: %q, %v", test.name, d.Parent, d.Where, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
