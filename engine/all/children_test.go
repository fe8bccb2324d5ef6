package all_test

import (
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// An engine that a test has closed can be opened at once, in whatever process, though the tests beside it start
// children.
func TestCloseBesideChildren(t *testing.T) {
	entry, err := all.Lookup("bbolt")
	if err != nil {
		t.Fatal(err)
	}
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !over.Load() {
				cmd := exec.Command(os.Args[0], "-test.run=^$")
				if err := cmd.Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	dir := t.TempDir()
	for range 300 {
		e, err := entry.Open(dir, holdfast.Options{Level: holdfast.Process})
		if err == nil {
			err = e.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	over.Store(true)
	wg.Wait()
}
