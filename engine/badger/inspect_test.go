package badger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	lib "github.com/dgraph-io/badger/v4"

	"github.com/holdfastdb/holdfast"
)

// crashed returns a copy of a directory as a kill would have left it, with ten keys of
// small values and, if wanted, one large one, and the newest log of each kind.
func crashed(t *testing.T, withLarge bool) (dir, wal, values string) {
	t.Helper()
	e := mustOpen(t, t.TempDir(), hooks{})
	for n := range 10 {
		commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(key(n), bytes.Repeat([]byte("v"), 100)) })
	}
	if withLarge {
		commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(key(10), large(10, 0)) })
	}
	dir = t.TempDir()
	copied := func(f *os.File) string { return filepath.Join(dir, "data", filepath.Base(f.Name())) }
	wal, values = copied(e.logs.wal.File), copied(e.logs.values.File)
	copyDir(t, dir, e.datadir.Dir)
	return dir, wal, values
}

// copyDir copies a directory and leaves the holes in its files out.
func copyDir(t *testing.T, to, from string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		src, err := os.Open(path)
		if err != nil {
			return err
		}
		defer src.Close()
		st, err := src.Stat()
		if err != nil {
			return err
		}
		end, err := lastByte(src, 0)
		if err != nil {
			return err
		}
		if _, err := src.Seek(0, io.SeekStart); err != nil { // where looking for data has left it
			return err
		}
		dst, err := os.Create(target)
		if err != nil {
			return err
		}
		_, err = io.CopyN(dst, src, end)
		return errors.Join(err, dst.Truncate(st.Size()), dst.Close())
	})
	try(t, err)
}

func overwrite(t *testing.T, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	try(t, err)
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	closeAll(t, f)
}

func endOf(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Open(path)
	try(t, err)
	defer f.Close()
	st, err := f.Stat()
	try(t, err)
	end, err := logEnd(f, st.Size())
	try(t, err)
	return end
}

// A crash while the library makes or deletes a log leaves an empty one, which it would
// not open by itself.
func TestEmptyLogs(t *testing.T) {
	dir, wal, values := crashed(t, true)
	for _, path := range []string{
		walPath(filepath.Dir(wal), 99), walPath(filepath.Dir(wal), 0), valuePath(filepath.Dir(values), 99),
		valuePath(filepath.Dir(values), 0),
	} {
		try(t, os.WriteFile(path, nil, 0o600))
	}
	if got := count(t, mustOpen(t, dir, hooks{})); got != 11 {
		t.Errorf("%d keys, want 11", got)
	}
}

// A torn end of a log that was in use is cut off and counted, even if it claims lengths that no
// memory could hold.
func TestTornLog(t *testing.T) {
	dir, wal, values := crashed(t, true)
	claim := []byte{64, 0}
	claim = binary.AppendUvarint(claim, 60000)
	claim = binary.AppendUvarint(claim, 1<<32-1)
	claim = append(binary.AppendUvarint(claim, 0), "torn"...)
	overwrite(t, wal, endOf(t, wal), claim)
	overwrite(t, values, endOf(t, values), []byte("torn too"))
	e := mustOpen(t, dir, hooks{})
	if got, want := e.Metrics().TornBytes, int64(len(claim)+len("torn too")); got != want {
		t.Errorf("%d bytes were torn, want %d", got, want)
	}
	if got := count(t, e); got != 11 {
		t.Errorf("%d keys, want 11", got)
	}
	closeAll(t, e)
	if got := mustOpen(t, dir, hooks{}).Metrics().TornBytes; got != 0 {
		t.Errorf("%d bytes torn when opened again", got)
	}
}

// The log may be cut anywhere: what is left is whole transactions from the beginning.
func TestLogCutAnywhere(t *testing.T) {
	_, wal, _ := crashed(t, false)
	data, err := os.ReadFile(wal)
	try(t, err)
	whole := endOf(t, wal)
	ends := map[int64]bool{}
	for cut := int64(logHeader); cut <= whole; cut++ {
		end, err := logEnd(bytes.NewReader(data[:cut]), cut)
		if err != nil || end > cut {
			t.Fatalf("cut at %d: the end is at %d, %v", cut, end, err)
		}
		ends[end] = true
	}
	if len(ends) != 11 || !ends[logHeader] || !ends[whole] {
		t.Errorf("cut anywhere, ten transactions have %d different ends: %v", len(ends), ends)
	}
}

// In directories that were closed, and in logs that were left for the next one, nothing can be
// torn: damage is an error that names the file.
func TestDamage(t *testing.T) {
	t.Parallel()
	closed := func(t *testing.T) (dir, data string) {
		dir = t.TempDir()
		for round := range 2 {
			e := mustOpen(t, dir, hooks{})
			for n := range 50 {
				commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(key(round*50+n), bytes.Repeat([]byte("v"), 100)) })
			}
			commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(key(1000+round), large(round, 0)) })
			closeAll(t, e)
		}
		return dir, filepath.Join(dir, "data")
	}
	newest := func(t *testing.T, pattern string) string {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		return found[len(found)-1]
	}
	size := func(t *testing.T, path string) int64 {
		st, err := os.Stat(path)
		try(t, err)
		return st.Size()
	}
	for name, damage := range map[string]func(t *testing.T, data string){
		"a block of a table": func(t *testing.T, data string) { overwrite(t, newest(t, data+"/*.sst"), 100, []byte{0xff}) },
		"the index of a table": func(t *testing.T, data string) {
			path := newest(t, data+"/*.sst")
			overwrite(t, path, size(t, path)-60, []byte{0xff, 0xff, 0xff})
		},
		"the end of a table": func(t *testing.T, data string) {
			path := newest(t, data+"/*.sst")
			overwrite(t, path, size(t, path)-4, []byte{0xff, 0xff, 0xff, 0xff})
		},
		"a table without its end": func(t *testing.T, data string) {
			path := newest(t, data+"/*.sst")
			try(t, os.Truncate(path, size(t, path)/2))
		},
		"a missing table": func(t *testing.T, data string) {
			try(t, os.Remove(newest(t, data+"/*.sst")))
		},
		"a missing manifest": func(t *testing.T, data string) {
			try(t, os.Remove(filepath.Join(data, lib.ManifestFilename)))
		},
		"the length of the manifest's first record": func(t *testing.T, data string) {
			overwrite(t, filepath.Join(data, lib.ManifestFilename), 8, []byte{0, 0, 0, 60})
		},
		"a first record of the manifest that seems torn": func(t *testing.T, data string) {
			path := filepath.Join(data, lib.ManifestFilename)
			overwrite(t, path, 8, binary.BigEndian.AppendUint32(nil, uint32(size(t, path)-8)))
		},
		"the length of the manifest's last record": func(t *testing.T, data string) {
			path := filepath.Join(data, lib.ManifestFilename)
			b, err := os.ReadFile(path)
			try(t, err)
			at, last := 8, 0
			for at < len(b) {
				last, at = at, at+8+int(binary.BigEndian.Uint32(b[at:]))
			}
			overwrite(t, path, int64(last), binary.BigEndian.AppendUint32(nil, uint32(at-last)+1))
		},
		"a value of the newest value log": func(t *testing.T, data string) {
			found, err := filepath.Glob(data + "/*.vlog")
			try(t, err)
			for _, path := range found {
				if size(t, path) > valueThreshold {
					overwrite(t, path, 1000, []byte{0xff})
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, data := closed(t)
			damage(t, data)
			e, err := Open(dir, holdfast.Options{})
			if err == nil {
				defer e.Close()
				_, err = e.Get(nil, key(1000))
			}
			var what *holdfast.Error
			if !errors.Is(err, holdfast.ErrCorrupt) || !errors.As(err, &what) || what.Path == "" {
				t.Fatalf("Open and Get: %v", err)
			}
			t.Log(err)
		})
	}

	t.Run("an old log", func(t *testing.T) {
		dir, wal, _ := crashed(t, false)
		if err := os.Truncate(wal, endOf(t, wal)); err != nil { // as an earlier recovery leaves it
			t.Fatal(err)
		}
		overwrite(t, wal, 250, []byte{1})
		if _, err := Open(dir, holdfast.Options{}); !errors.Is(err, holdfast.ErrCorrupt) {
			t.Fatal(err)
		}
	})

	t.Run("notes of garbage", func(t *testing.T) {
		dir, data := closed(t)
		overwrite(t, filepath.Join(data, "DISCARD"), 0, bytes.Repeat([]byte{0xff}, 64))
		if got := count(t, mustOpen(t, dir, hooks{})); got != 102 {
			t.Errorf("%d keys, want 102", got)
		}
	})
}

// A value that is damaged while the engine is open is an error, though the library answers it
// with an empty value.
func TestDamagedValue(t *testing.T) {
	e := mustOpen(t, t.TempDir(), hooks{})
	commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set(key(1), large(1, 0)) })
	overwrite(t, e.logs.values.Name(), 5000, []byte("damage"))
	if v, err := e.Get(nil, key(1)); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("Get gives %d bytes, %v", len(v), err)
	}
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		if v := it.Value(); len(v) != 0 {
			t.Errorf("Scan gives %d bytes", len(v))
		}
	}
	if err := it.Close(); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("Close of the iterator: %v", err)
	}
}

// large is a value that goes to the value log.
func large(n, version int) []byte {
	v := bytes.Repeat([]byte{byte(n + 1), byte(version + 1)}, valueThreshold/2+n)
	return v
}
