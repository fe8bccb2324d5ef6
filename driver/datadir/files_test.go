package datadir_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/driver/datadir"
)

// TestCopyFiles: a copy has the bytes of the original and takes no more room, whatever holes a file has. A link
// to a file is copied as the file; what cannot be copied is refused by name.
func TestCopyFiles(t *testing.T) {
	const hole = 4 << 20
	at := t.TempDir()
	from, to := filepath.Join(at, "from"), filepath.Join(at, "to")
	try(t, os.MkdirAll(filepath.Join(from, "sub"), 0o755))
	files := map[string][]int64{ // where there is data, and the size at the end
		"empty":      {0},
		"nothing":    {hole},
		"begin":      {0, hole},
		"sub/middle": {hole, 2 * hole, 5 * hole},
		"end":        {hole, hole + 5},
	}
	for name, offsets := range files {
		f, err := os.Create(filepath.Join(from, name))
		try(t, err)
		size := offsets[len(offsets)-1]
		for _, off := range offsets[:len(offsets)-1] {
			if _, err := f.WriteAt([]byte("data."), off); err != nil {
				t.Fatal(err)
			}
		}
		try(t, errors.Join(f.Truncate(size), f.Close()))
	}
	if runtime.GOOS != "windows" {
		try(t, os.Symlink("end", filepath.Join(from, "link")))
		files["link"] = nil
	}
	try(t, datadir.CopyFiles(t.Context(), from, to))
	for name := range files {
		want, err := os.ReadFile(filepath.Join(from, name))
		try(t, err)
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(want), err)
		}
	}
	_, wantBytes := datadir.Usage(from)
	if n, bytes := datadir.Usage(to); n != int64(len(files)) || bytes > wantBytes+hole {
		t.Errorf("%d files with %d bytes on the device; the original has %d bytes", n, bytes, wantBytes)
	}
	if left, err := os.ReadDir(to); err != nil || len(left) != len(files) {
		t.Errorf("%v, %v", left, err)
	}
	if err := datadir.CopyFiles(t.Context(), from, to); !errors.Is(err, os.ErrExist) {
		t.Errorf("into a directory that is there: %v", err)
	}
}

// TestCopyFilesRefuses: a copy without something that the original has would be taken for a whole one.
func TestCopyFilesRefuses(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("making a link needs a right")
	}
	at := t.TempDir()
	for name, link := range map[string]string{"directory": at, "nothing": "missing"} {
		from := filepath.Join(at, name)
		try(t, errors.Join(os.Mkdir(from, 0o755), os.Symlink(link, filepath.Join(from, "link"))))
		refused(t, from, "link")
	}
	from := filepath.Join(at, "s")
	try(t, os.Mkdir(from, 0o755))
	l, err := net.Listen("unix", filepath.Join(from, "socket"))
	try(t, err)
	defer l.Close()
	refused(t, from, "socket")
}

// refused checks that from is not copied because of a file in it.
func refused(t *testing.T, from, file string) {
	t.Helper()
	err := datadir.CopyFiles(t.Context(), from, from+".copy")
	if err == nil || !strings.Contains(err.Error(), filepath.Join(from, file)) {
		t.Errorf("%s: %v", file, err)
	}
}
