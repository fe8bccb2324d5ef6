package filesystems_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/sqlite"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// TestFaultsAreNoDamage: a device that cannot be read or written is not a damaged database, wherever it happens, and
// when it is well again, everything is there.
func TestFaultsAreNoDamage(t *testing.T) {
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{sqlite.Name, sqlite.NameGo} {
		if _, err := all.Lookup(name); err == nil { // one of them needs cgo
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				faultsRound(t, name)
			})
		}
	}
}

func faultsRound(t *testing.T, engine string) {
	o := blockdev.Options{FS: "ext4", Dir: t.TempDir()}
	disk, err := blockdev.New(t.Context(), o)
	try(t, err)
	if lines := fullChild(t, "write", engine, filepath.Join(disk.Path(), "db")); len(lines) > 0 {
		t.Fatal(lines)
	}
	rec := disk.Freeze()
	try(t, disk.Close())
	defer rec.Close()
	image := rec.Cut(blockdev.Position(rec.Len()), blockdev.Everything())

	for _, fault := range []blockdev.Fault{{Reads: true}, {Reads: true, Times: 1}, {Writes: true},
		{Writes: true, Flushes: true}, {Flushes: true}} {
		for after := int64(0); after < 40; after += 1 + night.Or(after/4, 2*after) {
			fault.After = after
			d, err := blockdev.Restore(t.Context(), o, image)
			try(t, err)
			d.Fail(fault)
			if lines := fullChild(t, "use", engine, filepath.Join(d.Path(), "db")); len(lines) > 0 {
				t.Errorf("%+v: %q", fault, lines)
			}
			d.Fail(blockdev.Fault{})
			try(t, d.Close())
		}
	}
}

// use reads all that write has written, and writes more. It complains of missing keys, and of errors that speak of
// damage or of a full disk.
func use(engine, dir string) {
	e, err := all.Open(engine, dir, holdfast.Options{})
	if err == nil {
		n := 0
		it := e.Scan(holdfast.Range{})
		for it.Next() {
			n++
		}
		if err = it.Close(); err == nil && n < 3*2*written {
			fmt.Println("keys are missing:", n, "are there")
		}
		for i := 0; err == nil && i < written; i += 7 {
			_, err = e.Get(nil, fmt.Appendf(nil, "0/%04d", i))
		}
		for i := 0; err == nil && i < 50; i++ {
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "more/%04d", i), make([]byte, 1000))
			err = holdfast.Commit(e, &b, holdfast.Power)
		}
		err = errors.Join(err, e.Close())
	}
	if errors.Is(err, holdfast.ErrCorrupt) || errors.Is(err, holdfast.ErrFull) {
		fmt.Println("error", err)
	}
}

var try = testkit.Try

// onDisk runs a test with every engine that keeps something, some at once: they wait for disks. By day one binding of
// SQLite does for both; TestFaultsAreNoDamage compares their errors.
func onDisk(t *testing.T, f func(t *testing.T, e all.Entry)) {
	_, err := all.Lookup(sqlite.Name)
	for _, e := range all.Engines() {
		if e.Name == sqlite.NameGo && err == nil && !night.Is() {
			continue
		}
		if e.Describe().Strongest() >= holdfast.Process {
			t.Run(e.Name, func(t *testing.T) {
				t.Parallel()
				f(t, e)
			})
		}
	}
}
