package datadir_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/holdfastdb/holdfast/internal/datadir"
)

// TestCopyFiles: a copy has the bytes of the original and takes no more room, whatever holes a file has. Links are
// left out.
func TestCopyFiles(t *testing.T) {
	const hole = 4 << 20
	at := t.TempDir()
	from, to := filepath.Join(at, "from"), filepath.Join(at, "to")
	if err := os.MkdirAll(filepath.Join(from, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string][]int64{ // where there is data, and the size at the end
		"empty":      {0},
		"nothing":    {hole},
		"begin":      {0, hole},
		"sub/middle": {hole, 2 * hole, 5 * hole},
		"end":        {hole, hole + 5},
	}
	for name, offsets := range files {
		f, err := os.Create(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		size := offsets[len(offsets)-1]
		for _, off := range offsets[:len(offsets)-1] {
			if _, err := f.WriteAt([]byte("data."), off); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if runtime.GOOS != "windows" {
		for name, to := range map[string]string{"link": "end", "dir": "sub"} {
			if err := os.Symlink(to, filepath.Join(from, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := datadir.CopyFiles(from, to); err != nil {
		t.Fatal(err)
	}
	for name := range files {
		want, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(want), err)
		}
	}
	wantFiles, wantBytes := datadir.Usage(from)
	if n, bytes := datadir.Usage(to); n != wantFiles || n != int64(len(files)) || bytes > wantBytes+hole {
		t.Errorf("%d files with %d bytes on the device; the original has %d and %d", n, bytes, wantFiles, wantBytes)
	}
	if left, err := os.ReadDir(to); err != nil || len(left) != len(files) {
		t.Errorf("%v, %v", left, err)
	}
	if err := datadir.CopyFiles(from, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("into a directory that is there: %v", err)
	}
}
