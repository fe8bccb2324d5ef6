package pebble

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

// A log that is closed keeps no space that it reserved and did not need, and all that was
// written to it.
func TestClosedLogGivesBackItsReserve(t *testing.T) {
	dir := t.TempDir()
	e, err := open(vfs.Default, dir, never)
	try(t, err)
	const most = 1 << 20
	largest := func() (n int64) {
		names, err := filepath.Glob(filepath.Join(dir, "data", "*.log"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			info, err := os.Stat(name)
			try(t, err)
			n = max(n, info.Sys().(*syscall.Stat_t).Blocks*512)
		}
		return n
	}
	const commits = 20
	for n := range uint64(commits) {
		commit(t, e, n+1, holdfast.Process)
	}
	if got := largest(); got < most {
		t.Skipf("this file system reserves nothing: %d bytes", got)
	}
	try(t, e.Close())
	if got := largest(); got > most {
		t.Errorf("a closed log of a few kB takes %d bytes", got)
	}
	e, err = open(vfs.Default, dir, never)
	try(t, err)
	defer e.Close()
	if n, err := count(e); n != commits || err != nil {
		t.Errorf("%d commits of %d: %v", n, commits, err)
	}
}
