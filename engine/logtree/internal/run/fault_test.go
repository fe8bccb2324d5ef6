package run

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/holdfastdb/holdfast/vfs"
)

// TestMemoryFault cuts a mapped file, so that touching it is a memory fault. Who recovers from that has
// a reader that still works, also from other goroutines, once the bytes are back.
func TestMemoryFault(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run")
	pairs := ascending(100_000)
	image, _ := build(t, pairs, blockTarget)
	if err := os.WriteFile(name, image, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := f.(vfs.Mapper); !ok {
		f.Close()
		t.Skip("files are not mapped on", runtime.GOOS)
	}
	r, err := Open(f, testID, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	it := r.Iter()
	faults := func(what string, f func()) {
		t.Helper()
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if recover() == nil {
				t.Error(what, "made no fault")
			}
		}()
		f()
	}
	if err := os.Truncate(name, 0); err != nil {
		t.Fatal(err)
	}
	faults("Get", func() { r.Get(pairs[5].key) })
	faults("First", func() { it.First() })
	if it.Err() == nil || it.Next() || it.Prev() {
		t.Error("an iterator goes on after a fault:", it.Err())
	}
	if err := os.WriteFile(name, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if !it.First() || !it.Next() || it.Entry() != pairs[1].e {
		t.Error(it.Err())
	}
	if err := os.Truncate(name, 4096); err != nil {
		t.Fatal(err)
	}
	faults("a scan", func() {
		for it.Next() {
		}
	})
	if it.Err() == nil || it.Next() {
		t.Error("an iterator goes on after a fault:", it.Err())
	}
	faults("Verify", func() { _ = r.Verify() })
	if err := os.WriteFile(name, image, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if failed, problem := readAll(r, pairs, nil); failed || problem != "" {
			t.Error("when the bytes are back:", failed, problem)
		}
	}()
	<-done
	if err := r.Verify(); err != nil {
		t.Error(err)
	}
}
