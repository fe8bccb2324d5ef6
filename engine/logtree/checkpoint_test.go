package logtree

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// fill puts so many keys, in several segments and tables.
func fill(t *testing.T, e holdfast.Engine, from, to int) {
	t.Helper()
	var b holdfast.Batch
	for i := from; i < to; i++ {
		b.Reset()
		b.Set(fmt.Appendf(nil, "key %06d", i), fmt.Appendf(nil, "%d%s", i, strings.Repeat("x", 900)))
		try(t, holdfast.Commit(e, &b, holdfast.Memory))
	}
}

// holds fails unless the engine has the keys that fill puts, and only these.
func holds(t *testing.T, e holdfast.Engine, keys int) {
	t.Helper()
	it := e.Scan(holdfast.Range{})
	defer it.Close()
	n := 0
	for ; it.Next(); n++ {
		want := fmt.Sprintf("%d%s", n, strings.Repeat("x", 900))
		if string(it.Key()) != fmt.Sprintf("key %06d", n) || string(it.Value()) != want {
			t.Fatalf("entry %d is %q", n, it.Key())
		}
	}
	if it.Err() != nil || n != keys {
		t.Fatalf("%d keys, want %d: %v", n, keys, it.Err())
	}
}

// A checkpoint that fails for want of room or links, or is ended, leaves nothing and changes nothing, at whichever of
// its operations that is.
func TestCheckpointFails(t *testing.T) {
	fsys := vfs.NewMem()
	e, err := OpenMem(fsys, "db", holdfast.Options{MemoryBytes: holdfast.MinMemoryBytes})
	try(t, err)
	defer e.Close()
	keys := 3000
	fill(t, e, 0, keys)
	try(t, e.Sync())
	ctx, cancel := context.WithCancel(context.Background())
	for _, x := range []struct {
		kind   vfs.Kind
		cause  error
		class  error
		cancel bool
	}{
		{vfs.OpLink, syscall.EXDEV, holdfast.ErrUnavailable, false},
		{vfs.OpLink, syscall.EMLINK, holdfast.ErrUnavailable, false},
		{vfs.OpLink, syscall.ENOSPC, holdfast.ErrFull, false},
		{vfs.OpCreate, syscall.ENOSPC, holdfast.ErrFull, false},
		{vfs.OpWrite, syscall.ENOSPC, holdfast.ErrFull, false},
		{vfs.OpSync, syscall.EIO, syscall.EIO, false},
		{vfs.OpRename, syscall.EIO, syscall.EIO, false},
		{vfs.OpLink, nil, context.Canceled, true},
	} {
		for skip := 0; ; skip += 3 {
			seen, failed := 0, false
			fsys.SetHook(func(op vfs.Op) error {
				if op.Kind != x.kind || !strings.HasPrefix(op.Name, "copy/") && !strings.HasPrefix(op.To, "copy/") {
					return nil
				}
				if seen++; seen != skip+1 {
					return nil
				}
				if failed = true; x.cancel {
					cancel()
				}
				return x.cause
			})
			err := holdfast.Checkpoint(ctx, e, "copy")
			fsys.SetHook(nil)
			names, listed := fsys.List("copy")
			try(t, listed)
			if !failed || err == nil { // it has come to its end before; a cancellation of the last link may come too late
				if err == nil && !x.cancel && failed {
					t.Fatalf("%v %d fails with %v, and Checkpoint returns nil", x.kind, skip, x.cause)
				}
				for _, name := range names {
					try(t, fsys.Remove(filepath.Join("copy", name)))
				}
				ctx, cancel = context.WithCancel(context.Background())
				break
			}
			if !errors.Is(err, x.class) || len(names) > 0 {
				t.Fatalf("%v %d fails with %v: %v; it leaves %v", x.kind, skip, x.cause, err, names)
			}
			if x.cancel {
				ctx, cancel = context.WithCancel(context.Background())
			}
			keys++
			fill(t, e, keys-1, keys)
			try(t, e.Sync())
		}
	}
	cancel()
	holds(t, e, keys)
	try(t, holdfast.Checkpoint(context.Background(), e, "copy"))
	if err := holdfast.Checkpoint(context.Background(), e, "copy"); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("into a directory that has one: %v", err)
	}
	c, err := OpenMem(fsys, "copy", holdfast.Options{})
	try(t, err)
	defer c.Close()
	holds(t, c, keys)
}

// A database that is open for reading only can be checkpointed, also one that was killed: what only its log holds is
// copied.
func TestCheckpointOfReader(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	e, err := Open(dir, holdfast.Options{MemoryBytes: holdfast.MinMemoryBytes})
	try(t, err)
	fill(t, e, 0, 2000)
	copied := filepath.Join(t.TempDir(), "copy")
	try(t, holdfast.Checkpoint(context.Background(), e, copied))
	try(t, e.Close())
	for _, of := range []string{dir, copied} { // the copy has not been opened: it is as a kill would have left it
		r, err := Open(of, holdfast.Options{ReadOnly: true})
		try(t, err)
		again := filepath.Join(t.TempDir(), "again")
		try(t, holdfast.Checkpoint(context.Background(), r, again))
		try(t, r.Close())
		v, err := Verify(again)
		if err != nil || len(v.Damage) > 0 {
			t.Fatalf("%v, %v", v, err)
		}
		c, err := Open(again, holdfast.Options{})
		try(t, err)
		fill(t, c, 2000, 2100)
		holds(t, c, 2100)
		try(t, c.Close())
	}
}
