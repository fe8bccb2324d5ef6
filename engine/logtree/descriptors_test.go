//go:build linux || darwin

package logtree

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestFewFileDescriptors: where the process has no file descriptor left, batches may be refused, but nothing is
// poisoned. A sync of the directory, for the name of a new segment or the manifest, once needed one more when its file
// had got the last.
func TestFewFileDescriptors(t *testing.T) {
	e, err := Open(t.TempDir(), holdfast.Options{MemoryBytes: holdfast.MinMemoryBytes})
	try(t, err)
	defer e.Close()
	var old syscall.Rlimit
	try(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old))
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old)
	value, n := make([]byte, 20_000), 0
	set := func() error {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "key %d", n), value)
		n++
		return holdfast.Commit(e, &b, holdfast.Power)
	}
	for more := range 40 {
		f, err := os.Open(os.DevNull)
		try(t, err)
		few := old
		few.Cur = uint64(f.Fd()) + uint64(more%4)
		f.Close()
		try(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
		for range 20 {
			if err := set(); err != nil && (errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, syscall.EMFILE)) {
				t.Fatal(err)
			}
		}
		try(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old))
		err = set()
		for errors.Is(err, syscall.EMFILE) && !errors.Is(err, holdfast.ErrPoisoned) { // a flush that began with too few
			err = set()
		}
		if err != nil {
			t.Fatalf("with file descriptors again: %v", err)
		}
	}
}
