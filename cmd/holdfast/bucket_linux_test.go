package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/backup"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// putNumber commits a key of a number.
func putNumber(t *testing.T, e holdfast.Engine, n int) {
	t.Helper()
	var batch holdfast.Batch
	batch.Set(fmt.Appendf(nil, "%08d", n), bytes.Repeat([]byte{byte(n)}, 2000))
	try(t, holdfast.Commit(e, &batch, holdfast.Process))
}

// numbers returns how many keys are in a restored state. They have no gap.
func numbers(t *testing.T, bucket string) (int, error) {
	t.Helper()
	ctx := t.Context()
	from, err := backup.OpenBucket(ctx, bucket)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	into := filepath.Join(t.TempDir(), "restored")
	if _, err := backup.Restore(ctx, from, into, backup.RestoreOptions{}); err != nil {
		return 0, err
	}
	e, err := logtree.Open(into, holdfast.Options{})
	try(t, err)
	n, it := 0, e.Scan(holdfast.Range{})
	for it.Next() {
		n++
		if string(it.Key()) != fmt.Sprintf("%08d", n) || !bytes.Equal(it.Value(), bytes.Repeat([]byte{byte(n)}, 2000)) {
			t.Fatalf("key %d is %s", n, it.Key())
		}
	}
	try(t, it.Close())
	try(t, e.Close())

	return n, nil
}

// TestBucketPowerCut backs up to a directory on another machine, a recorded disk here, and cuts that machine's power at
// many moments: what was safe by then can be restored from what is left.
func TestBucketPowerCut(t *testing.T) {
	for _, m := range []blockdev.Mount{{FS: "ext4", Options: "noauto_da_alloc"}, {FS: "xfs"}} {
		t.Run(m.FS, func(t *testing.T) {
			if err := blockdev.Check(m.FS); err != nil {
				t.Skip(err)
			}
			ctx := t.Context()
			o := blockdev.Options{FS: m.FS, Mount: m.Options}
			disk, err := blockdev.New(ctx, o)
			try(t, err)
			defer disk.Close()
			e, err := logtree.Open(filepath.Join(t.TempDir(), "db"), holdfast.Options{MemoryBytes: 1 << 20})
			try(t, err)
			bucket, err := backup.MakeBucket(ctx, "file://"+filepath.Join(disk.Path(), "backups", "orders"))
			try(t, err)
			b, err := backup.Start(e, bucket, backup.Options{Every: 5 * time.Millisecond, BaseBytes: 512 << 10})
			try(t, err)
			marks := map[blockdev.Position]int{}
			n := 0
			for range 12 {
				for range 100 {
					n++
					putNumber(t, e, n)
				}
				at, has := time.Now(), n
				testkit.Until(t, "safe", func() bool { return b.Status().Safe.After(at) })
				marks[disk.Mark(uint64(has))] = has
			}

			// The cut comes without an end of the backup.
			record := disk.Freeze()
			defer record.Close()
			_ = b.Close(context.Background())
			try(t, e.Close())
			try(t, bucket.Close())
			try(t, disk.Close())
			try(t, record.Err())

			cuts, restored := 0, 0
			for at := 1; at <= record.Len(); at += 1 + record.Len()/night.Or(200, 20) {
				policy := []blockdev.Policy{blockdev.Nothing(), blockdev.Everything(), blockdev.Torn(uint64(at)),
					blockdev.Subset(uint64(at))}[cuts%4]
				cuts++
				safe := 0
				for mark, has := range marks {
					if int(mark) < at {
						safe = max(safe, has)
					}
				}
				mounted, err := record.Cut(blockdev.Position(at), policy).Mount(ctx, o)
				if err != nil && safe == 0 {
					continue // the file system was hardly made
				}
				try(t, err)
				got, err := numbers(t, "file://"+filepath.Join(mounted.Path(), "backups", "orders"))
				try(t, mounted.Close())
				switch {
				case safe == 0 && (errors.Is(err, holdfast.ErrNotFound) || errors.Is(err, holdfast.ErrBadOption)):
				case err != nil:
					t.Errorf("cut at %d of %d, %v: %d were safe: %v", at, record.Len(), policy, safe, err)
				case got < safe:
					t.Errorf("cut at %d of %d, %v: %d are restored, %d were safe", at, record.Len(), policy, got, safe)
				default:
					restored++
				}
			}
			t.Logf("%d events, %d cuts, %d restored", record.Len(), cuts, restored)
			if restored < cuts/4 {
				t.Errorf("only %d of %d cuts left a state", restored, cuts)
			}
		})
	}
}

// TestBucketFull backs up to a directory whose file system is full. The database goes on, the error says what to do,
// and with room the backup goes on by itself, also with room that --backup-keep makes.
func TestBucketFull(t *testing.T) {
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
	ctx := t.Context()
	m, err := blockdev.MakeFileSystem(ctx, blockdev.Options{Size: 32 << 20})
	try(t, err)
	defer func() { try(t, m.Close()) }()
	e, err := logtree.Open(filepath.Join(t.TempDir(), "db"), holdfast.Options{MemoryBytes: 1 << 20})
	try(t, err)
	address := "file://" + filepath.Join(m.Path(), "orders")
	bucket, err := backup.MakeBucket(ctx, address)
	try(t, err)
	b, err := backup.Start(e, bucket, backup.Options{Every: 5 * time.Millisecond, BaseBytes: 1 << 20})
	try(t, err)
	n := 0
	write := func(count int) {
		for range count {
			n++
			putNumber(t, e, n)
		}
	}
	write(200)
	at, before := time.Now(), n
	testkit.Until(t, "safe", func() bool { return b.Status().Safe.After(at) })

	fill := filepath.Join(m.Path(), "other")
	f, err := os.Create(fill)
	try(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	try(t, f.Close())
	testkit.Until(t, "full", func() bool {
		write(20)
		return b.Status().Err != nil
	})
	if err := b.Status().Err; !errors.Is(err, holdfast.ErrFull) {
		t.Errorf("a full bucket: %v", err)
	}
	if has, err := numbers(t, address); err != nil || has < before {
		t.Errorf("%d keys are restored of the full bucket, %d were safe: %v", has, before, err)
	}

	// States can be removed although there is no room; that those that are kept can be restored is tested elsewhere.
	if _, err := backup.Prune(ctx, bucket, backup.Keep{Hourly: 1}); err != nil && !errors.Is(err, holdfast.ErrFull) {
		t.Error(err)
	}
	try(t, os.Remove(fill))
	at = time.Now()
	testkit.Until(t, "safe again", func() bool { return b.Status().Safe.After(at) })
	if err := b.Status().Err; err != nil {
		t.Error(err)
	}
	write(50)
	try(t, b.Close(context.Background()))
	try(t, e.Close())
	try(t, bucket.Close())
	if has, err := numbers(t, address); err != nil || has != n {
		t.Errorf("%d keys are restored, %d were written: %v", has, n, err)
	}
	left, err := filepath.Glob(filepath.Join(m.Path(), "orders", "*", "*", "*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("what could not be written has left %q, %v", left, err)
	}
}

// TestRestoreFull restores to a disk without enough room. The error says so, and with room the restore goes on.
func TestRestoreFull(t *testing.T) {
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
	ctx := t.Context()
	m, err := blockdev.MakeFileSystem(ctx, blockdev.Options{Size: 64 << 20})
	try(t, err)
	defer func() { try(t, m.Close()) }()
	e, err := logtree.Open(filepath.Join(t.TempDir(), "db"), holdfast.Options{MemoryBytes: 1 << 20})
	try(t, err)
	address := "file://" + filepath.Join(t.TempDir(), "orders")
	bucket, err := backup.MakeBucket(ctx, address)
	try(t, err)
	b, err := backup.Start(e, bucket, backup.Options{})
	try(t, err)
	const keys = 6000 // of 2 kB
	for n := range keys {
		putNumber(t, e, n+1)
	}
	try(t, b.Close(ctx))
	try(t, e.Close())

	fill := filepath.Join(m.Path(), "other")
	f, err := os.Create(fill)
	try(t, err)
	var st syscall.Statfs_t
	try(t, syscall.Statfs(m.Path(), &st))
	try(t, syscall.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-6<<20))
	try(t, f.Close())
	into := filepath.Join(m.Path(), "restored")
	_, err = backup.Restore(ctx, bucket, into, backup.RestoreOptions{})
	if !errors.Is(err, holdfast.ErrFull) {
		t.Errorf("without room: %v", err)
	}
	if _, err := os.Stat(into); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	try(t, os.Remove(fill))
	r, err := backup.Restore(ctx, bucket, into, backup.RestoreOptions{})
	try(t, err)
	e, err = logtree.Open(into, holdfast.Options{})
	try(t, err)
	n, it := 0, e.Scan(holdfast.Range{})
	for it.Next() {
		n++
	}
	try(t, it.Close())
	try(t, e.Close())
	try(t, bucket.Close())
	if n != keys {
		t.Errorf("%d keys are restored, %d were written; %+v", n, keys, r)
	}
}
