package logtree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestVerifyOpen: the check of an open database finds no damage beside writers and Compact, and finds a byte flipped in
// each kind of file.
func TestVerifyOpen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "db")
	e, err := Open(dir, holdfast.Options{MemoryBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { e.Close() }()
	ctx := context.Background()
	verify := func() []error {
		t.Helper()
		damage, err := holdfast.Verify(ctx, e)
		if err != nil {
			t.Fatal(err)
		}
		return damage
	}
	write := func(from, to int, level holdfast.Level) {
		for i := from; i < to; i++ {
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "%05d", i*7919%5000), make([]byte, 200+i%50*i%3000))
			if i%100 == 0 {
				b.DeleteRange(fmt.Appendf(nil, "%05d", i%5000), fmt.Appendf(nil, "%05d", i%5000+50))
			}
			r, err := e.Apply(&b, level)
			if err == nil {
				err = r.Wait()
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}
	if damage := verify(); len(damage) > 0 {
		t.Errorf("empty: %v", damage)
	}
	var group sync.WaitGroup
	group.Go(func() { write(0, 3000, holdfast.Process) })
	group.Go(func() { write(2000, 4000, holdfast.Memory) })
	group.Go(func() {
		for range 3 {
			if err := holdfast.Compact(ctx, e, holdfast.Range{}); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5 {
		if damage := verify(); len(damage) > 0 {
			t.Errorf("beside writers: %v", damage)
		}
	}
	group.Wait()
	write(0, 10, holdfast.Memory) // in no file yet
	if damage := verify(); len(damage) > 0 {
		t.Errorf("with commits in memory only: %v", damage)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := holdfast.Verify(ended, e); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if err := holdfast.Compact(ctx, e, holdfast.Range{}); err != nil {
		t.Fatal(err)
	}
	write(0, 10, holdfast.Process) // in the log's tail
	if damage := verify(); len(damage) > 0 {
		t.Errorf("compacted: %v", damage)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := holdfast.Verify(ctx, e); !errors.Is(err, holdfast.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	// Nothing makes or removes files meanwhile.
	if e, err = Open(dir, holdfast.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"*.seg", "*.run"} {
		names, err := filepath.Glob(filepath.Join(dir, kind))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		found := 0
		for _, name := range names {
			f, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 1)
			flip := func() {
				if _, err := f.ReadAt(b, 100); err != nil {
					t.Fatal(err)
				}
				b[0] ^= 1
				if _, err := f.WriteAt(b, 100); err != nil {
					t.Fatal(err)
				}
			}
			flip()
			if damage := verify(); len(damage) > 0 {
				found++
				if !errors.Is(damage[0], holdfast.ErrCorrupt) {
					t.Errorf("%s: %v", name, damage)
				}
			}
			flip()
			f.Close()
		}
		if found < len(names)-1 { // the prepared segment holds nothing yet
			t.Errorf("of %d files %s damage was found in %d", len(names), kind, found)
		}
	}
	if damage := verify(); len(damage) > 0 {
		t.Errorf("with all bytes as they were: %v", damage)
	}
}
