package datadir_test

import (
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast/driver/datadir"
)

func TestSameFileSystem(t *testing.T) {
	dir, below := t.TempDir(), t.TempDir()
	for _, c := range []struct {
		a, b string
		same bool
	}{{dir, below, true}, {dir, "/proc", false}, {dir, filepath.Join(dir, "none"), false}} {
		if same := datadir.SameFileSystem(c.a, c.b); same != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, same)
		}
	}
}
