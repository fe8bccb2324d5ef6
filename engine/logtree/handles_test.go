package logtree

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestNothingStaysOpen: whichever operation fails once, and whatever comes of it, no file and no mapping is open when
// the engine is closed, or could not be opened.
func TestNothingStaysOpen(t *testing.T) {
	for kind := vfs.OpCreate; kind <= vfs.OpClose; kind++ {
		errs := []error{syscall.EIO}
		switch {
		case kind.Mutates():
			errs = append(errs, syscall.ENOSPC)
		case kind == vfs.OpOpen || kind == vfs.OpMap:
			errs = append(errs, syscall.EMFILE)
		}

		for _, err := range errs {
			t.Run(fmt.Sprintf("%v/%v", kind, err), func(t *testing.T) {
				t.Parallel()
				next := func(skip int64) int64 { return 1 + skip + skip/2 }
				if testing.Short() {
					next = func(skip int64) int64 { return 1 + 2*skip }
				}

				for skip := int64(0); ; skip = next(skip) {
					fsys := vfs.NewMem()
					fsys.SetMapping(true)
					struck := false
					faults := vfs.Faults(vfs.Fault{Kind: kind, Skip: skip, Count: 1, Err: err})
					fsys.SetHook(func(op vfs.Op) error {
						err := faults(op)
						struck = struck || err != nil
						return err
					})
					what := busyLife(fsys)
					fsys.SetHook(nil)
					fsys.Unmap()
					if n := fsys.Handles(); n != 0 {
						t.Fatalf("number %d fails: %d are open behind %v", skip, n, what)
					}
					if !struck {
						break
					}
				}
			})
		}
	}
}

// busyLife opens a database, uses it in every way, closes it, and does so again. It returns what failed.
func busyLife(fsys *vfs.Mem) (failed error) {
	ctx := context.Background()
	note := func(err error) { failed = errors.Join(failed, err) }

	for life := range 2 {
		e, err := OpenMem(fsys, "db", holdfast.Options{MemoryBytes: holdfast.MinMemoryBytes})
		if err != nil {
			note(err)
			continue
		}
		for i := range 20 {
			var b holdfast.Batch
			for k := range 10 {
				b.Set(fmt.Appendf(nil, "key %03d", (i*7+k*31)%200), make([]byte, 20+i*60))
			}
			if i%10 == 9 {
				b.Set(fmt.Appendf(nil, "large %d", i), make([]byte, 200_000))
				b.DeleteRange([]byte("key 100"), []byte("key 120"))
			}
			note(holdfast.Commit(e, &b, holdfast.Level(1+i%3)))
		}
		snapshot, err := e.Snapshot()
		note(err)
		note(holdfast.Compact(ctx, e, holdfast.Range{}))
		if snapshot != nil {
			it := snapshot.Scan(holdfast.Range{})
			for it.Next() {
			}
			note(errors.Join(it.Close(), snapshot.Close()))
		}
		note(holdfast.Checkpoint(ctx, e, fmt.Sprintf("copy%d", life)))
		note(e.Close())
	}

	return failed
}
