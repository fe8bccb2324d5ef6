package datadir_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// Check tells the directory that was opened from others that take its name later.
func TestCheck(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a directory with open files cannot be removed or renamed on Windows")
	}
	for what, replace := range map[string]func(dir string) error{
		"removed":  os.RemoveAll,
		"renamed":  func(dir string) error { return os.Rename(dir, dir+".away") },
		"unlocked": func(dir string) error { return os.Remove(filepath.Join(dir, "LOCK")) },
	} {
		dir := filepath.Join(t.TempDir(), "home")
		h, err := datadir.Open(dir, bolt)
		try(t, err)
		if err := h.Check(); err != nil {
			t.Errorf("before it was %s: %v", what, err)
		}
		try(t, replace(dir))
		if err := h.Check(); !errors.Is(err, holdfast.ErrReplaced) {
			t.Errorf("%s: %v", what, err)
		}
		other, err := datadir.Open(dir, bolt)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := h.Check(); !errors.Is(err, holdfast.ErrReplaced) {
			t.Errorf("%s, and made again: %v", what, err)
		}
		if err := errors.Join(other.Check(), h.Close(), other.Check(), other.Close()); err != nil {
			t.Errorf("%s: the other: %v", what, err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	h, err := datadir.Open(filepath.Join(b.TempDir(), "home"), bolt)
	try(b, err)
	defer h.Close()
	b.ReportAllocs()
	for b.Loop() {
		try(b, h.Check())
	}
}
