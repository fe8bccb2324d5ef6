package logtree

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/vfs"
)

var update = flag.Bool("update", false,
	"make the golden directories of the present format that are not there; the others stay as they are")

// golden is where the directories are kept that each format's programs have made: closed in order, and as kill -9
// leaves them. A text file next to each lists what is in it.
const golden = "testdata"

// TestGolden opens a copy of every golden directory: what older programs have written stays readable, and writable, for
// ever.
func TestGolden(t *testing.T) {
	if *update {
		to := filepath.Join(golden, fmt.Sprint("format-", dirFormat))
		try(t, os.MkdirAll(to, 0o755))
		for name, make := range map[string]func(*testing.T, string){"closed": makeGolden, "scattered": makeScattered} {
			if _, err := os.Stat(filepath.Join(to, name)); errors.Is(err, fs.ErrNotExist) {
				make(t, to)
			}
		}
	}
	listings, err := filepath.Glob(filepath.Join(golden, "format-*", "*.txt"))
	if err != nil || len(listings) < 3 {
		t.Fatalf("%v, %v", listings, err)
	}
	for _, listing := range listings {
		t.Run(strings.TrimSuffix(listing, ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(listing)
			try(t, err)
			dir := filepath.Join(t.TempDir(), "db")
			try(t, datadir.CopyFiles(t.Context(), strings.TrimSuffix(listing, ".txt"), dir))
			in, err := Inspect(dir)
			if err != nil || len(in.Damage) > 0 {
				t.Fatalf("Inspect: %v, %+v", err, in)
			}
			cut, roles := 0, map[string]int{}
			for _, s := range in.Segments {
				roles[s.Role]++
			}
			for _, tier := range in.Manifest.Tiers {
				for _, r := range tier.Refs {
					if len(r.Lo) > 0 || len(r.Hi) > 0 {
						cut++
					}
				}
			}
			t.Logf("%d files; %v, %d tiers, %d cut tables, %d segments and %d batches in the tail", len(in.Files), roles,
				len(in.Manifest.Tiers), cut, len(in.Log.Segments), in.Log.Batches)
			moved, tail := "moved values", 2
			if filepath.Base(listing) == "scattered.txt" {
				moved, tail = "moved values of a flush", 1
			}
			if roles[moved] == 0 || cut == 0 || len(in.Manifest.Tiers) < 2 || len(in.Log.Segments) < tail {
				t.Error("it does not have everything")
			}
			got := opened(t, dir)
			if list(got) != string(want) {
				t.Errorf("it holds\n%s\nnot\n%s", list(got), want)
			}
			into := filepath.Join(t.TempDir(), "repaired")
			if r, err := Repair(t.Context(), dir, into, holdfast.Options{}); err != nil || !r.Complete() {
				t.Errorf("Repair: %v, %+v", err, r)
			} else if repaired := opened(t, into); !maps.Equal(repaired, got) {
				t.Errorf("repaired it holds\n%s", list(repaired))
			}
			e := openFor(t, dir)
			var b holdfast.Batch
			b.Set([]byte("new"), []byte("value"))
			try(t, errors.Join(holdfast.Commit(e, &b, holdfast.Power), e.Close()))
			got["new"] = "value"
			if again := opened(t, dir); !maps.Equal(again, got) {
				t.Errorf("after a commit it holds\n%s", list(again))
			}
		})
	}
}

// list is the listing's form.
func list(all map[string]string) string {
	var s strings.Builder
	for _, key := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&s, "%q = %q\n", key, all[key])
	}
	return s.String()
}

// newGolden opens a new database in dir. What is in it depends on nothing but the code.
func newGolden(t *testing.T, dir string, name byte, sizes db.Sizes) (*db.DB, *datadir.Handle) {
	h, err := datadir.Open(dir, datadir.Spec{Engine: Name, Format: dirFormat, Keeps: "MANIFEST"})
	try(t, err)
	d, err := db.Open(db.Config{FS: vfs.OS(), Dir: dir, New: true, ID: [16]byte{'g', 'o', 'l', 'd', 'e', name, dirFormat},
		Memory: 1 << 20, Logger: slog.New(slog.DiscardHandler), SyncEvery: -1, Manual: true, Sizes: sizes})
	try(t, err)
	try(t, h.Made())
	return d, h
}

// makeScattered makes one whose keys come in an order of their own, so that flushes have moved their values.
func makeScattered(t *testing.T, to string) {
	dir := filepath.Join(t.TempDir(), "db")
	d, h := newGolden(t, dir, 's', db.Sizes{Memtable: 256 << 10, Segment: 32 << 10, Table: 1 << 10})
	var b holdfast.Batch
	for i := range 210 {
		b.Reset()
		b.Set(fmt.Appendf(nil, "key/%03d", i*97%211), bytes.Repeat(fmt.Appendf(nil, "%d,", i), 200))
		if i%40 == 39 {
			b.DeleteRange(fmt.Appendf(nil, "key/%03d", i), fmt.Appendf(nil, "key/%03d", i+3))
		}
		try(t, holdfast.Commit(d, &b, holdfast.Power))
		if i == 99 || i == 199 {
			try(t, d.Flush())
		}
	}
	try(t, os.WriteFile(filepath.Join(to, "scattered.txt"), []byte(list(contents(t, d))), 0o644))
	try(t, datadir.CopyFiles(t.Context(), dir, filepath.Join(to, "scattered"))) // as kill -9 leaves it
	try(t, errors.Join(d.Close(), h.Close()))
}

// makeGolden makes those with compactions.
func makeGolden(t *testing.T, to string) {
	dir := filepath.Join(t.TempDir(), "db")
	d, h := newGolden(t, dir, 'n', db.Sizes{Memtable: 160 << 10, Segment: 2 << 10, Table: 4 << 10})
	var b holdfast.Batch
	for i := range 900 {
		b.Reset()
		b.Set(fmt.Appendf(nil, "log/%06d", i), fmt.Appendf(nil, "entry %d", i))
		b.Set(fmt.Appendf(nil, "key/%03d", i*i%211), bytes.Repeat(fmt.Appendf(nil, "%d,", i), 1+i%7))
		switch {
		case i%50 == 49:
			b.DeleteRange([]byte("log/"), fmt.Appendf(nil, "log/%06d", i-120))
		case i%60 == 0:
			b.DeleteRange(fmt.Appendf(nil, "key/%03d", i%200), fmt.Appendf(nil, "key/%03d", i%200+3))
		case i%9 == 0:
			b.Delete(fmt.Appendf(nil, "key/%03d", i%211))
		}
		r, err := d.Apply(&b, holdfast.Levels()[i%3])
		if err == nil {
			err = r.Wait()
		}
		try(t, err)
		if i%100 == 0 && i <= 600 {
			try(t, d.Sync())
			if _, err := d.Work(2); err != nil {
				t.Fatal(err)
			}
		}
	}
	try(t, d.Sync())
	listing := list(contents(t, d))
	keep := func(name string) {
		if err := errors.Join(datadir.CopyFiles(t.Context(), dir, filepath.Join(to, name)),
			os.WriteFile(filepath.Join(to, name+".txt"), []byte(listing), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	keep("killed")
	try(t, errors.Join(d.Close(), h.Close()))
	keep("closed")
}

// TestMisplacedEmptyValues: earlier versions gave an empty value at the end of a replayed batch the place of the batch
// behind it. Such a database is not damaged: nothing finds anything in it, and nothing is lost from it.
func TestMisplacedEmptyValues(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	try(t, datadir.CopyFiles(t.Context(), filepath.Join(golden, "empty-values", "db"), dir))
	want := map[string]string{"a": "", "b": "1", "c": "", "d": "2", "e": "", "f": "",
		"xa": "first", "xb": "first", "xc": "first", "xd": "first", "xe": "first"}
	sound := func(when string) {
		t.Helper()
		if v, err := Verify(dir); err != nil || len(v.Damage) > 0 || v.Values != int64(len(want)) {
			t.Errorf("%s: Verify: %v, %+v", when, err, v)
		}
		into := filepath.Join(t.TempDir(), "repaired")
		if r, err := Repair(t.Context(), dir, into, holdfast.Options{}); err != nil || !r.Complete() {
			t.Errorf("%s: Repair: %v, %+v", when, err, r)
		} else if got := opened(t, into); !maps.Equal(got, want) {
			t.Errorf("%s: repaired it holds\n%s", when, list(got))
		}
	}
	sound("as it was")
	if got := opened(t, dir); !maps.Equal(got, want) {
		t.Errorf("it holds\n%s", list(got))
	}

	// A rewrite of the tables, and of the segments, must not carry the wrong places into something worse.
	for n := range 3 {
		e := openFor(t, dir)
		var b holdfast.Batch
		b.Set([]byte("f"), []byte(fmt.Sprint(n)))
		b.Set([]byte("g"), nil)
		want["f"], want["g"] = fmt.Sprint(n), ""
		try(t, holdfast.Commit(e, &b, holdfast.Power))
		try(t, holdfast.Compact(t.Context(), e, holdfast.Range{}))
		if damage, err := holdfast.Verify(t.Context(), e); err != nil || len(damage) > 0 {
			t.Errorf("Verify while it is open: %v, %v", damage, err)
		}
		try(t, e.Close())
		sound(fmt.Sprint("compacted ", n+1))
	}
}
