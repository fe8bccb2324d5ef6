package enginetest

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// tree returns a checksum of each file below dir; some engines make very long ones.
func (a *trial) tree(dir string) map[string]string {
	a.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		files[name] = string(sum.Sum(nil))

		return err
	})
	if err != nil {
		a.Fatalf("%v", err)
	}

	return files
}

// wantsUntouched fails unless the files below dir are as they were before.
func (a *trial) wantsUntouched(dir string, before map[string]string) {
	a.Helper()

	after := a.tree(dir)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			a.Errorf("opening the directory for reading only changed %s", name)
		}
	}

	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[name]; !ok {
			a.Errorf("opening the directory for reading only made %s", name)
		}
	}
}

// A directory is opened for reading only by many at once, but not while it is open for writing, whether it was closed
// cleanly or left by a program that was killed. Nothing in it changes, no commit is taken, and what is shown is
// what the next writer finds. An engine that cannot do this says so and refuses.
func readingOnly(a *trial) {
	dir := a.made()
	reads := a.options()
	reads.ReadOnly = true
	if !a.s.caps.ReadOnly {
		before := a.tree(dir)
		a.wantsRefused("a directory for reading only", dir, reads, holdfast.ErrUnavailable)
		a.wantsUntouched(dir, before)
		a.wantsUnharmed(dir)

		return
	}

	// A reader makes nothing, not even the directory.
	missing := a.dir()
	a.wantsRefused("a directory that is not there, for reading only", missing, reads, fs.ErrNotExist)
	if exists(missing) {
		a.Errorf("a directory was made to be read")
	}
	o := a.options()
	o.SyncEvery = -1
	e, err := a.s.Open(dir, o)
	if err != nil {
		a.Fatalf("Open: %v", err)
	}
	a.wantsRefused("a directory that is open for writing, for reading only", dir, reads, holdfast.ErrLocked)
	a.set(e, "killed", "not yet")

	// A copy of the files while the engine is open is what a killed program leaves: what was applied last is in the log
	// alone.
	left := filepath.Join(a.TempDir(), "left")
	if err := copyTree(left, dir); err != nil {
		a.Fatalf("%v", err)
	}
	a.close(e)

	for _, dir := range []string{dir, left} {
		before := a.tree(dir)
		var readers []holdfast.Engine

		// Two readers at a time, and no writer beside them.
		for range 2 {
			e, err := a.s.Open(dir, reads)
			if err != nil {
				a.Fatalf("Open for reading only: %v", err)
			}
			a.Cleanup(func() { _ = e.Close() })
			readers = append(readers, e)
		}
		a.wantsRefused("a directory that is open for reading", dir, o, holdfast.ErrLocked)

		var shown commits.State[string]
		for _, e := range readers {
			if got := e.Capabilities().Strongest(); got != 0 {
				a.Errorf("an engine that only reads says that it gives %v", got)
			}

			for _, l := range holdfast.Levels() {
				for _, b := range []*holdfast.Batch{sets("k", "other"), new(holdfast.Batch)} {
					_, err := e.Apply(b, l)
					a.wantsErr("Apply to an engine that only reads", err, holdfast.ErrLevel)
				}
			}
			a.wantsErr("Sync of an engine that only reads", e.Sync(), holdfast.ErrLevel)
			a.wants(e, "k", "v")
			s, err := e.Snapshot()
			if err != nil {
				a.Fatalf("Snapshot: %v", err)
			}
			if shown, err = commits.Contents(s, holdfast.Range{}); err != nil {
				a.Errorf("Scan: %v", err)
			}
			_ = s.Close()
		}

		for _, e := range readers {
			a.close(e)
		}

		// What was shown must be what a writer finds: a reader may not show what recovery then drops.
		a.wantsUntouched(dir, before)
		e := a.open(dir)
		found, err := commits.Contents(e, holdfast.Range{})
		if d := commits.Difference(shown, found); err != nil || d != "" {
			a.Errorf("a reader shows something else than the next writer finds, %v: %s", err, d)
		}
		if given := a.given(); dir != left || given >= holdfast.Process {
			a.wants(e, "killed", "not yet")
		}
		a.close(e)
	}
}

// What a repair could not salvage Capabilities.Lost says, until the loss is accepted.
func repairLost(a *trial) {
	dir := a.made()
	a.write(filepath.Join(dir, markName), a.mark(dir)+"lost the values of 2 keys\n")

	for range 2 {
		e := a.open(dir)
		if lost := e.Capabilities().Lost; lost != "the values of 2 keys" {
			a.Errorf("a directory whose repair lost the values of 2 keys says that it lost %q", lost)
		}
		a.wants(e, "k", "v")
		a.close(e)
	}
}
