package datadir

import (
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
)

// TestCloseBesideChildren: a directory that was closed can be opened at once, also while this process starts others.
// A child has a copy of the locked file until it runs its program.
func TestCloseBesideChildren(t *testing.T) {
	var over atomic.Bool
	var children sync.WaitGroup
	for range 2 {
		children.Go(func() {
			for !over.Load() {
				if err := exec.Command(os.Args[0], "-test.run=^$").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer children.Wait()
	defer over.Store(true)
	dir := t.TempDir()
	for range 2000 {
		h, err := Open(dir, Spec{Engine: "test", Format: 1})
		try(t, err)
		try(t, h.Close())
		release, err := Hold(dir)
		try(t, err)
		try(t, release())
	}
}
