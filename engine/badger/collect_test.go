package badger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
)

func large(n, version int) []byte {
	v := bytes.Repeat([]byte{byte(n + 1), byte(version + 1)}, valueThreshold/2+n)
	return v
}

const garbageKeys = 130

// garbage returns a directory with a value log of which most is overwritten, as the library's
// compactions have found. Of the keys, every tenth has version 0, the others 1.
func garbage(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	e := mustOpen(t, dir, hooks{})
	for n := range garbageKeys {
		commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.Set(key(n), large(n, 0)) })
	}
	closeAll(t, e)
	e = mustOpen(t, dir, hooks{})
	for n := range garbageKeys {
		if n%10 != 0 {
			commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.Set(key(n), large(n, 1)) })
		}
	}
	for n := range 6 { // so many tables that they are worth compacting
		closeAll(t, e)
		e = mustOpen(t, dir, hooks{})
		commit(t, e, holdfast.Process, func(b *holdfast.Batch) { b.Set(key(1000+n), nil) })
	}
	closeAll(t, e)
	e = mustOpen(t, dir, hooks{})
	if err := e.db.Flatten(2); err != nil {
		t.Fatal(err)
	}
	closeAll(t, e)
	return dir
}

// checkLarge checks every step-th key.
func checkLarge(t *testing.T, r holdfast.Reader, step int) {
	t.Helper()
	for n := 0; n < garbageKeys; n += step {
		version := 1
		if n%10 == 0 {
			version = 0
		}
		if v, err := r.Get(nil, key(n)); err != nil || !bytes.Equal(v, large(n, version)) {
			t.Errorf("Get of key %d gives %d bytes, %v", n, len(v), err)
		}
	}
}

func TestCollect(t *testing.T) {
	dir := garbage(t)
	again := t.TempDir()
	copyDir(t, again, dir)
	t.Run("gives space back", func(t *testing.T) { collects(t, dir) })
	t.Run("a failed sync", func(t *testing.T) { collectFails(t, again) })
}

func valueLogs(t *testing.T, e *engine) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(e.logs.dir, "*.vlog"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Collecting gives space back, moves what is still needed under readers and snapshots, and has
// synced it before the old file goes.
func collects(t *testing.T, dir string) {
	e := mustOpen(t, dir, hooks{})
	snapshot, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	old := valueLogs(t, e)
	before := e.Metrics().DiskBytes

	// Every log is synced while all old files are still there.
	synced := map[string]bool{}
	e.logs.hooks.sync = func(path string) error {
		synced[path] = true
		for _, f := range old {
			if st, err := os.Stat(f); err != nil || st.Size() == 0 {
				t.Errorf("%s is gone when %s is synced: %v", f, path, err)
			}
		}
		return nil
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					checkLarge(t, snapshot, 10)
				}
			}
		})
	}
	found, err := e.collect()
	if err != nil || !found {
		t.Errorf("collect: %v, %v", found, err)
	}
	e.logs.hooks.sync = nil
	close(stop)
	readers.Wait()
	for _, f := range []string{e.logs.wal.Name(), e.logs.values.Name(), e.logs.dir} {
		if !synced[f] {
			t.Errorf("%s was not synced", f)
		}
	}
	gone := 0
	for _, f := range old {
		if _, err := os.Stat(f); err != nil {
			gone++
		}
	}
	after := e.Metrics().DiskBytes
	t.Logf("%d of %d files gone, %d MiB on disk before, %d after", gone, len(old), before>>20, after>>20)
	if gone != 1 || after >= before {
		t.Errorf("nothing was given back")
	}
	checkLarge(t, e, 1)
	checkLarge(t, snapshot, 1)
	closeAll(t, snapshot, e)
	checkLarge(t, mustOpen(t, dir, hooks{}), 1)
}

// If what was moved cannot be synced, the old file stays, and the engine is poisoned.
func collectFails(t *testing.T, dir string) {
	e := mustOpen(t, dir, hooks{})
	old := valueLogs(t, e)
	cause := errors.New("the device is gone")
	e.logs.hooks.sync = func(string) error { return cause }
	if _, err := e.collect(); !errors.Is(err, cause) || !errors.Is(err, holdfast.ErrPoisoned) {
		t.Fatalf("collect: %v", err)
	}
	for _, f := range old {
		if _, err := os.Stat(f); err != nil {
			t.Error(err)
		}
	}
	var b holdfast.Batch
	b.Set(key(0), nil)
	if _, err := e.Apply(&b, holdfast.Process); !errors.Is(err, cause) {
		t.Errorf("Apply: %v", err)
	}
	checkLarge(t, e, 1)
	if err := e.Close(); !errors.Is(err, cause) {
		t.Errorf("Close: %v", err)
	}
	checkLarge(t, mustOpen(t, dir, hooks{}), 1)
}
