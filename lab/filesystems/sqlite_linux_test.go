package filesystems_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/sqlite"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// TestFaultsAreNoDamage: a device that cannot be read or written is not a damaged database, wherever it happens, and
// when it is well again, everything is there.
func TestFaultsAreNoDamage(t *testing.T) {
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
	for _, name := range []string{sqlite.NameGo, sqlite.Name} {
		if entry, err := all.Lookup(name); err == nil { // one of them needs cgo
			t.Run(name, func(t *testing.T) { faultsRound(t, entry.Open) })
		}
	}
}

func faultsRound(t *testing.T, open func(string, holdfast.Options) (holdfast.Engine, error)) {
	const keys = 300
	o := blockdev.Options{FS: "ext4", Dir: t.TempDir()}
	disk, err := blockdev.New(t.Context(), o)
	try(t, err)
	e, err := open(filepath.Join(disk.Path(), "db"), holdfast.Options{})
	try(t, err)
	key := func(n int) []byte { return fmt.Appendf(nil, "%04d", n) }
	for n := range keys {
		var b holdfast.Batch
		b.Set(key(n), make([]byte, 1000))
		try(t, holdfast.Commit(e, &b, holdfast.Power))
	}
	rec := disk.Freeze() // as a kill leaves it: the log is there, and has to be read
	_ = e.Close()
	try(t, disk.Close())
	defer rec.Close()
	image := rec.Cut(blockdev.Position(rec.Len()), blockdev.Everything())
	use := func(dir string, write bool) error {
		e, err := open(dir, holdfast.Options{})
		if err != nil {
			return err
		}
		n := 0
		it := e.Scan(holdfast.Range{})
		for it.Next() {
			n++
		}
		if err = it.Close(); err == nil && n < keys {
			t.Errorf("%d keys, want %d", n, keys)
		}
		for i := 0; err == nil && i < keys; i += 7 {
			_, err = e.Get(nil, key(i))
		}
		for i := 0; err == nil && write && i < 50; i++ {
			var b holdfast.Batch
			b.Set(key(keys+i), make([]byte, 1000))
			err = holdfast.Commit(e, &b, holdfast.Power)
		}
		return errors.Join(err, e.Close())
	}
	for _, fault := range []blockdev.Fault{{Reads: true}, {Reads: true, Times: 1}, {Writes: true},
		{Writes: true, Flushes: true},
		{Flushes: true}} {
		for after := int64(0); after < 40; after += 1 + after/4 {
			fault.After = after
			d, err := blockdev.Restore(t.Context(), o, image)
			try(t, err)
			dir := filepath.Join(d.Path(), "db")
			d.Fail(fault)
			if err := use(dir, true); err != nil {
				if errors.Is(err, holdfast.ErrCorrupt) || errors.Is(err, holdfast.ErrFull) {
					t.Errorf("%+v: %v", fault, err)
				}
			}
			d.Fail(blockdev.Fault{})
			try(t, d.Close())
		}
	}
}

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// onDisk runs a test with every engine that keeps something.
func onDisk(t *testing.T, f func(t *testing.T, e all.Entry)) {
	for _, e := range all.Engines() {
		if e.Describe().Strongest() >= holdfast.Process {
			t.Run(e.Name, func(t *testing.T) { f(t, e) })
		}
	}
}

// fill opens an engine three times, and writes in it each time.
func fill(t *testing.T, e all.Entry, dir string, level holdfast.Level) {
	t.Helper()
	for part := range 3 {
		eng, err := e.Open(dir, holdfast.Options{Level: level})
		try(t, err)
		for i := range 200 {
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "%d/%04d", part, i), bytes.Repeat([]byte{byte(i)}, 500))
			b.Set(fmt.Appendf(nil, "empty/%d/%04d", part, i), nil)
			try(t, holdfast.Commit(eng, &b, level))
		}
		try(t, eng.Close())
	}
}
