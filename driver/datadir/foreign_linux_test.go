package datadir_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// What no engine has made is called that, whatever is in it, and is not damage.
func TestForeign(t *testing.T) {
	pipes := t.TempDir() // as / has devices
	if err := syscall.Mkfifo(filepath.Join(pipes, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{pipes: "it has no file HOLDFAST", t.TempDir(): "it has no file HOLDFAST",
		file: "it is a file"} {
		_, err := datadir.ReadMark("inspect", dir)
		_, accepting := datadir.Accept(dir)
		for _, err := range []error{err, accepting} {
			if !errors.Is(err, holdfast.ErrForeign) || errors.Is(err, holdfast.ErrCorrupt) ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", dir, err, says)
			}
		}
	}
	if _, err := datadir.Accept(filepath.Join(pipes, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
