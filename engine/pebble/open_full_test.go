package pebble

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	lib "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// unmerged makes a database whose tables are to be merged as soon as it is opened with the ordinary thresholds, and
// whose log has to be flushed before; a crash has left it. It returns how many commits it has.
func unmerged(t *testing.T) (left *vfs.MemFS, commits uint64) {
	mem := vfs.NewCrashableMem()
	o, err := never.WithDefaults()
	try(t, err)
	keep := func(o *lib.Options) { o.L0CompactionThreshold, o.L0StopWritesThreshold = 1000, 1000 }
	e, err := start(mem, "data", here, o, keep)
	try(t, err)
	write := func() {
		for range 20 {
			commits++
			commit(t, e, commits, holdfast.Power)
		}
		var ends holdfast.Batch // that every table has: tables that overlap are merged
		ends.Set([]byte("a"), nil)
		ends.Set([]byte("z"), nil)
		try(t, holdfast.Commit(e, &ends, holdfast.Power))
	}
	for range 8 {
		write()
		try(t, e.db.Flush())
	}
	write()
	left = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: seeded(1)})
	try(t, e.Close())
	return left, commits
}

// openOn opens a database on fs, and fails the test if that does not return.
func openOn(t *testing.T, fs vfs.FS) (e *engine, err error) {
	t.Helper()
	o, err := never.WithDefaults()
	try(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		e, err = start(fs, "data", here, o)
	}()
	testkit.Receive(t, "the end of Open", done)
	return e, err
}

// Pebble's Open waits for a merge that it has begun. A merge that finds the disk full must not wait for what comes only
// after Open: a writer, or Close.
func TestOpenWaitsForMerge(t *testing.T) {
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
		left, commits := unmerged(t)
		var tables atomic.Int64
		fault := func(path string) error {
			if strings.HasSuffix(path, ".sst") && tables.Add(1) > 1 { // the first one has what was in the log
				return full
			}
			return nil
		}
		created := &createsFS{FS: left, fault: fault}
		_, err := openOn(t, created)
		if !errors.Is(err, full) || errors.Is(err, holdfast.ErrFull) != (full != syscall.EIO) {
			t.Errorf("%v: Open: %v", full, err)
		}
		if tables.Load() < 2 {
			t.Error("nothing was merged: the test covers nothing")
		}
		again := startOn(t, left, never)
		if n, err := count(again); n != commits || err != nil {
			t.Errorf("then %d commits are left of %d: %v", n, commits, err)
		}
	}
}

// createsFS asks fault before a file is made.
type createsFS struct {
	vfs.FS
	fault func(path string) error
}

func (c *createsFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := c.fault(name); err != nil {
		return nil, err
	}
	return c.FS.Create(name, category)
}

// Wherever a disk fills while a database is opened and closed that needs its log flushed and its tables merged, both
// return, and nothing is lost.
func TestOpenMergesOnFullDisk(t *testing.T) {
	left, commits := unmerged(t)
	opened := 0
	for room := int64(0); ; room++ {
		disk := left.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: seeded(1)})
		var used atomic.Int64
		fault := func(string) error {
			if used.Add(1) > room {
				return syscall.ENOSPC
			}
			return nil
		}
		e, err := openOn(t, &observedFS{FS: disk, write: fault, sync: fault})
		if err != nil {
			if !errors.Is(err, holdfast.ErrFull) {
				t.Errorf("room for %d writes and syncs: %v, want ErrFull", room, err)
			}
		} else if opened++; e.Close() == nil {
			if room < 20 {
				t.Errorf("opened and closed after %d writes and syncs: the test covers nothing", room)
			}
			return
		}
		again := startOn(t, disk, never)
		if n, err := count(again); n != commits || err != nil {
			t.Fatalf("room for %d writes and syncs: then %d commits are left of %d: %v", room, n, commits, err)
		}
		try(t, again.Close())
	}
}

// A Compact ends with the poison when the disk fills: the merges that it waits for may never run.
func TestCompactOnFullDisk(t *testing.T) {
	left, _ := unmerged(t)
	var full atomic.Bool
	fault := func(path string) error {
		if full.Load() && strings.HasSuffix(path, ".sst") {
			return syscall.ENOSPC
		}
		return nil
	}
	o, err := never.WithDefaults()
	try(t, err)
	keep := func(o *lib.Options) { o.L0CompactionThreshold, o.L0StopWritesThreshold = 1000, 1000 }
	e, err := start(&createsFS{FS: left, fault: fault}, "data", here, o, keep)
	try(t, err)
	full.Store(true)
	done := make(chan error, 1)
	go func() { done <- e.Compact(context.Background(), holdfast.Range{}) }()
	err = testkit.Receive(t, "the end of Compact", done)
	if !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Compact: %v, want the poison", err)
	}
	if err := e.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close: %v", err)
	}
}
