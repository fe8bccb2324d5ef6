package filesystems_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// TestNoInodes: where no file can be made any more, though there is room, a commit to logtree returns, with ErrFull
// once the log needs a file; some deletes work yet; and all goes on when there are inodes again. A commit hung once:
// the flush and the log's next segment took the last inode from each other.
func TestNoInodes(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills disks")
	}
	for _, left := range night.Or([]int{8, 12, 16, 20}, []int{8, 12}) {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			root := fileSystem(t, blockdev.Options{FS: "ext4", Inodes: 64})
			ballast := noInodes(t, root)
			for range left {
				try(t, os.Remove(ballast[0]))
				ballast = ballast[1:]
			}
			e, err := logtree.Open(filepath.Join(root, "db"), holdfast.Options{})
			try(t, err)
			defer func() { try(t, e.Close()) }()
			key := func(i int) []byte { return fmt.Appendf(nil, "%08x", uint32(i)*2654435761) }
			commit := func(change func(b *holdfast.Batch)) error {
				var b holdfast.Batch
				change(&b)
				done := make(chan error, 1)
				go func() { done <- holdfast.Commit(e, &b, holdfast.Process) }()
				return testkit.Receive(t, "the end of a commit", done)
			}
			set := func(i int) error {
				return commit(func(b *holdfast.Batch) { b.Set(key(i), make([]byte, 4000)) })
			}
			n := 0
			for err = set(n); err == nil && n < 60_000; err = set(n) {
				n++
			}
			t.Logf("%d sets: %v", n, err)
			if !errors.Is(err, holdfast.ErrFull) {
				t.Fatalf("after %d sets: %v, want ErrFull", n, err)
			}
			for refused := 0; refused < 20; n++ { // background work may free one yet
				if err := set(n); errors.Is(err, holdfast.ErrFull) {
					refused++
				} else {
					try(t, err)
				}
			}
			deleted := 0
			for ; deleted < n; deleted++ {
				err := commit(func(b *holdfast.Batch) { b.Delete(key(deleted)) })
				if errors.Is(err, holdfast.ErrFull) {
					break
				}
				try(t, err)
			}
			t.Logf("%d of %d deletes", deleted, n)
			if deleted == 0 {
				t.Errorf("%d deletes", deleted)
			}
			for _, name := range ballast {
				try(t, os.Remove(name))
			}
			for ; deleted < n; deleted++ {
				try(t, commit(func(b *holdfast.Batch) { b.Delete(key(deleted)) }))
			}
			for i := range 300 {
				try(t, set(i))
			}
		})
	}
}

// TestNoInodeForACopy: what cannot even be begun for want of room says that, and not that the directory must be
// writable.
func TestNoInodeForACopy(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills disks")
	}
	root := fileSystem(t, blockdev.Options{FS: "ext4", Inodes: 64})
	e, err := logtree.Open(filepath.Join(root, "db"), holdfast.Options{})
	try(t, err)
	defer func() { try(t, e.Close()) }()
	noInodes(t, root)
	ctx := context.Background()
	if _, err := logtree.Backup(ctx, e, filepath.Join(root, "backup")); !errors.Is(err, holdfast.ErrFull) {
		t.Errorf("a backup: %v, want ErrFull", err)
	}
	if err := holdfast.Checkpoint(ctx, e, filepath.Join(root, "checkpoint")); !errors.Is(err, holdfast.ErrFull) {
		t.Errorf("a checkpoint: %v, want ErrFull", err)
	}
	if _, err := logtree.Open(filepath.Join(root, "new"), holdfast.Options{}); !errors.Is(err, holdfast.ErrFull) {
		t.Errorf("a new directory: %v, want ErrFull", err)
	}
}

// noInodes makes files until none can be made any more.
func noInodes(t *testing.T, root string) (files []string) {
	t.Helper()
	for i := 0; ; i++ {
		name := filepath.Join(root, fmt.Sprint("ballast", i))
		err := os.WriteFile(name, nil, 0o644)
		if errors.Is(err, syscall.ENOSPC) {
			return files
		}
		try(t, err)
		files = append(files, name)
	}
}
