//go:build unix

package crash

import (
	"os"
	"sync/atomic"
	"testing"
)

// TestSweepSparesWhoBegins: a run that is just making its directory is no killed one.
func TestSweepSparesWhoBegins(t *testing.T) {
	parent := t.TempDir()
	var done atomic.Bool
	swept := make(chan []string)
	go func() {
		var all []string
		for !done.Load() {
			all = append(all, sweep(parent)...)
		}
		swept <- all
	}()
	for range 500 {
		dir, err := os.MkdirTemp(parent, dirPrefix)
		if err != nil {
			t.Error(err)
			break
		}
		lock, err := claim(dir)
		if err != nil {
			t.Errorf("claiming: %v", err)
			break
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
		lock.Close()
	}
	done.Store(true)
	if all := <-swept; len(all) > 0 {
		t.Errorf("%d directories of living runs were swept", len(all))
	}
}
