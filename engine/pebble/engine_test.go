package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	lib "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

func seeded(n uint64) *rand.Rand { return rand.New(rand.NewPCG(n, n)) }

// Bounds of DeleteRange mean the same in memtables and in tables as in the contract.
func TestDeleteRangeBounds(t *testing.T) {
	keys := []string{"\x00", "a", "b", "b\x00", "c", strings.Repeat("\xff", holdfast.MaxKeySize)}
	bounds := []string{"", "\x00", "a", "b", "c", "d", strings.Repeat("\xff", holdfast.MaxKeySize)}
	for _, lo := range bounds {
		for _, hi := range bounds {
			e := startOn(t, vfs.NewMem(), never)
			var b holdfast.Batch
			for _, k := range keys {
				b.Set([]byte(k), []byte("v"))
			}
			try(t, holdfast.Commit(e, &b, holdfast.Memory))
			b.Reset()
			b.DeleteRange([]byte(lo), []byte(hi))
			try(t, holdfast.Commit(e, &b, holdfast.Process))
			for _, where := range []string{"memtable", "table"} {
				for _, k := range keys {
					_, err := e.Get(nil, []byte(k))
					gone := k >= lo && (hi == "" || k < hi)
					if gone != errors.Is(err, holdfast.ErrNotFound) || err != nil && !gone {
						t.Errorf("%s: DeleteRange(%.4q, %.4q), then Get(%.4q): %v", where, lo, hi, k, err)
					}
				}
				try(t, e.db.Flush())
			}
			try(t, e.Close())
		}
	}
}

// A receipt may be waited for by many, again and again, while its ticket is reused, and
// after Close.
func TestReceipts(t *testing.T) {
	e := startOn(t, vfs.NewMem(), never)
	var receipts []holdfast.Receipt
	var wg sync.WaitGroup
	for n := uint64(1); n <= 300; n++ {
		r, err := e.Apply(numbered(new(holdfast.Batch), n, 8), holdfast.Levels()[n%3])
		try(t, err)
		if n%5 == 0 {
			continue
		}
		receipts = append(receipts, r)
		for range 4 {
			wg.Go(func() {
				for range 3 {
					if err := r.Wait(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	late, err := e.Apply(numbered(new(holdfast.Batch), 301, 8), holdfast.Power)
	try(t, err)
	try(t, e.Close())
	for _, r := range append(receipts, late) {
		if err := r.Wait(); err != nil {
			t.Errorf("after Close: %v", err)
		}
	}
}

// The settings that are reported are those in force.
func TestSettings(t *testing.T) {
	dir := t.TempDir()
	e, err := Open(dir, holdfast.Options{MemoryBytes: 60 << 20})
	try(t, err)
	defer e.Close()
	got := map[string]string{}
	for _, s := range e.Capabilities().Settings {
		got[s.Name] = s.Value
	}
	for name, want := range map[string]string{
		"format_major_version":            fmt.Sprint(int(lib.FormatNewest)),
		"mem_table_size":                  fmt.Sprint(10 << 20),
		"cache_size":                      fmt.Sprint(60 << 20),
		"mem_table_stop_writes_threshold": "4",
		"disable_wal":                     "false",
		"filter_policy":                   "rocksdb.BuiltinBloomFilter",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// Damage to what had been synced is found, with the file it is in.
func TestDamage(t *testing.T) {
	flip := func(t *testing.T, path string, at int64) {
		t.Helper()
		content, err := os.ReadFile(path)
		try(t, err)
		content[at] ^= 0x40
		try(t, os.WriteFile(path, content, 0o644))
	}
	find := func(t *testing.T, dir, pattern string) string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		return found[len(found)-1]
	}
	// A directory as a killed process leaves it.
	killed := func(t *testing.T) string {
		t.Helper()
		dir := t.TempDir()
		o, _ := never.WithDefaults()
		e, err := start(vfs.Default, filepath.Join(dir, "live"), here, o)
		try(t, err)
		for n := uint64(1); n <= 200; n++ {
			try(t, holdfast.Commit(e, numbered(new(holdfast.Batch), n, 1000), holdfast.Power))
			if n == 50 || n == 80 {
				try(t, e.db.Flush())
			}
		}
		try(t, os.CopyFS(filepath.Join(dir, "data"), os.DirFS(filepath.Join(dir, "live"))))
		try(t, e.Close())
		return filepath.Join(dir, "data")
	}
	reopen := func(data string) (uint64, error) {
		o, _ := never.WithDefaults()
		e, err := start(vfs.Default, data, here, o)
		if err != nil {
			return 0, err
		}
		n, err := count(e)
		for _, said := range []error{err, e.Metrics().Poison, e.Close()} {
			if said != nil && (strings.Contains(said.Error(), "\n") || !errors.Is(said, holdfast.ErrCorrupt)) {
				t.Errorf("an error of several lines, or of another class: %v", said)
			}
		}
		return n, err
	}

	t.Run("none", func(t *testing.T) {
		if n, err := reopen(killed(t)); n != 200 || err != nil {
			t.Fatal(n, err)
		}
	})
	for _, at := range []int64{0, 20, 500, 30_000, 40_000} {
		t.Run(fmt.Sprint("log at ", at), func(t *testing.T) {
			data := killed(t)
			flip(t, find(t, data, "*.log"), at)
			if n, err := reopen(data); !errors.Is(err, holdfast.ErrCorrupt) {
				t.Errorf("%d commits found: %v", n, err)
			}
		})
	}
	t.Run("table", func(t *testing.T) {
		data := killed(t)
		flip(t, find(t, data, "*.sst"), 100)
		n, err := reopen(data)
		var e *holdfast.Error
		if !errors.Is(err, holdfast.ErrCorrupt) || !errors.As(err, &e) || !strings.HasSuffix(e.Path, ".sst") {
			t.Errorf("%d commits found: %v", n, err)
		}
	})
	for _, at := range []int64{0, 10, 60} {
		t.Run(fmt.Sprint("manifest at ", at), func(t *testing.T) {
			data := killed(t)
			path := find(t, data, "MANIFEST-*")
			flip(t, path, at)
			n, err := reopen(data)
			if !errors.Is(err, holdfast.ErrCorrupt) {
				t.Errorf("%d commits found: %v", n, err)
			}
		})
	}
	for _, missing := range []string{"*.sst", "MANIFEST-*", "marker.manifest*", "marker.format*"} {
		t.Run("missing "+missing, func(t *testing.T) {
			data := killed(t)
			try(t, os.Remove(find(t, data, missing)))
			if n, err := reopen(data); !errors.Is(err, holdfast.ErrCorrupt) {
				t.Errorf("%d commits found: %v", n, err)
			}
		})
	}
	t.Run("newer", func(t *testing.T) {
		data := killed(t)
		old := find(t, data, "marker.format*")
		try(t, os.Rename(old, old[:strings.LastIndex(old, ".")]+".999"))
		if _, err := reopen(data); !errors.Is(err, holdfast.ErrVersion) {
			t.Error(err)
		}
	})
}

// A manifest torn at any byte is torn, not damaged; one flipped anywhere before its last
// record is damaged.
func TestDamageOfManifest(t *testing.T) {
	fs := vfs.NewMem()
	e := startOn(t, fs, never)
	for n := uint64(1); n <= 5; n++ {
		commit(t, e, n, holdfast.Power)
		try(t, e.db.Flush())
	}
	names, err := fs.List("data")
	try(t, err)
	newest := ""
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST-") && name > newest {
			newest = name
		}
	}
	content, err := readFile(fs, fs.PathJoin("data", newest))
	try(t, err)
	last := 0 // where the last record begins
	for at := 0; at < len(content); {
		last = at
		at += plainHeader + int(content[at+4]) + int(content[at+5])<<8
	}
	for n := range content {
		if at, damaged := damage(content[:n]); damaged {
			t.Errorf("cut after %d bytes: damage at %d", n, at)
		}
		flipped := bytes.Clone(content)
		flipped[n] ^= 1
		if _, damaged := damage(flipped); damaged != (n < last) {
			t.Errorf("flipped at byte %d of %d, the last record begins at %d: damaged is %t", n, len(content), last, damaged)
		}
	}
	if at, damaged := damage(content); damaged || last == 0 {
		t.Errorf("nothing was done: damage at %d", at)
	}
}

// What a range without a lower bound has deleted stays deleted when tables are merged, also
// in a build with the race detector, where Pebble takes rarer paths.
func TestDeletedStaysDeleted(t *testing.T) {
	for range 10 {
		fs := vfs.NewMem()
		for session := range 3 {
			e := startOn(t, fs, never)
			var b holdfast.Batch
			switch session {
			case 0:
				b.Set([]byte("\x00\xff"), make([]byte, 5000))
				b.Set([]byte("b"), nil)
			case 1:
				b.DeleteRange(nil, []byte("\x00b"))
				b.DeleteRange([]byte("\x00\x00"), nil)
			case 2:
				it := e.Scan(holdfast.Range{})
				if it.Next() || it.Err() != nil {
					t.Errorf("there is still key %q: %v", it.Key(), it.Err())
				}
				if err := it.Close(); err != nil {
					t.Error(err)
				}
			}
			try(t, holdfast.Commit(e, &b, holdfast.Power))
			try(t, e.Close())
		}
	}
}

// While an engine is open whose directory was replaced, Pebble does not let this process open the new one. That is a
// directory in use, not damage.
func TestSecondOpener(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "engine")
	old, err := Open(dir, holdfast.Options{})
	try(t, err)
	try(t, os.Rename(dir, dir+".away"))
	if _, err := Open(dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrLocked) ||
		errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("a second opener gets %v", err)
	}
	if err := old.Close(); !errors.Is(err, holdfast.ErrReplaced) {
		t.Errorf("Close: %v", err)
	}
	e, err := Open(dir, holdfast.Options{})
	try(t, err)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
