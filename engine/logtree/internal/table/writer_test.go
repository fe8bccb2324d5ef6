package table

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
)

func TestHash(t *testing.T) {
	if hash([]byte("a")) != 0xd24ec4f1a98c6e5b || hash([]byte("abc")) != 0x44bc2cf5ad770999 {
		t.Error("of a or abc")
	}
	b := make([]byte, 300)
	for i := range b {
		b[i] = byte(i*7 + 1)
	}
	for _, v := range []struct {
		n    int
		want uint64
	}{
		{0, 0xef46db3751d8e999}, {1, 0x8a4127811b21e730}, {3, 0xb6e6c910c2fd373a}, {4, 0x22eda2cf6af4c124}, {5,
			0x1da48e4b4cafab76},
		{8, 0xc6f1803a5e0b3222}, {12, 0x9178b724dce384c0}, {16, 0xafe8f989a0735a8e}, {31, 0x6ab1c40e29f50073}, {32,
			0x5a0756fbe9ecd3d1},
		{33, 0xdc50cdc37bb9c183}, {63, 0x10dd94885c71894a}, {64, 0x90083da9cdb9d795}, {100, 0xd248bfc5208b0b16}, {300,
			0xe99d1b8a38d407dd},
	} {
		if got := hash(b[:v.n]); got != v.want {
			t.Errorf("of %d bytes: %#x, want %#x", v.n, got, v.want)
		}
	}
}

// TestFilter counts false positives for keys like those in the table and for others.
func TestFilter(t *testing.T) {
	t.Parallel()
	for _, keys := range benchKeys {
		pairs := keys.pairs(100_000)
		image, _ := build(t, pairs, blockTarget)
		r, err := modes[0].open(image, testID)
		if err != nil {
			t.Fatal(err)
		}
		wrong, n := 0, 0
		for _, p := range pairs {
			if !r.MayContain(p.key) {
				t.Fatal(p, "is not in the filter")
			}
			binary.BigEndian.PutUint64(p.key[8:], binary.BigEndian.Uint64(p.key[8:])+1<<40)
			for _, key := range [][]byte{p.key, p.key[:15], append(p.key, 0)} {
				if n++; r.MayContain(key) {
					wrong++
				}
			}
		}
		rate := float64(wrong) / float64(n)
		t.Logf("%s: %.2f %% false positives", keys.name, 100*rate)
		if rate > 0.015 {
			t.Errorf("%s: %.2f %% false positives", keys.name, 100*rate)
		}
	}
}

// TestSize holds what an entry costs, and what Size foretells.
func TestSize(t *testing.T) {
	t.Parallel()
	f := new(memFile)
	w := NewWriter(f, testID)
	const n = 200_000
	for _, p := range ascending(n) {
		if err := w.Add(p.key, p.e); err != nil {
			t.Fatal(err)
		}
	}
	foretold := w.Size()
	info, err := w.Finish(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f bytes per entry", float64(info.FileBytes)/n)
	if info.FileBytes > 10*n {
		t.Errorf("%d bytes for %d entries", info.FileBytes, n)
	}
	if d := info.FileBytes - foretold; d < -info.FileBytes/100 || d > info.FileBytes/100 {
		t.Errorf("Size said %d, it is %d", foretold, info.FileBytes)
	}
	for i, size := range f.writes[:len(f.writes)-1] {
		if size < writeSize {
			t.Errorf("write %d of %d has %d bytes", i, len(f.writes), size)
		}
	}
	if f.syncs != 0 || f.closed != 0 {
		t.Error(f.syncs, "syncs,", f.closed, "closes")
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		key   string
		e     Entry
		class error
	}{
		{"empty key", "", Entry{}, holdfast.ErrBadKey},
		{"long key", strings.Repeat("x", holdfast.MaxKeySize+1), Entry{}, holdfast.ErrBadKey},
		{"same key", "k", Entry{}, holdfast.ErrBadKey},
		{"key below", "j", Entry{}, holdfast.ErrBadKey},
		{"prefix", "k"[:0] + "j\xff", Entry{}, holdfast.ErrBadKey},
		{"tombstone with length", "l", Entry{Tombstone: true, Len: 1}, holdfast.ErrBadOption},
		{"value beyond 4 GiB", "l", Entry{Place: 1<<32 - 1, Len: 2}, holdfast.ErrBadOption},
	} {
		w := NewWriter(new(memFile), testID)
		if err := w.Add([]byte("k"), Entry{}); err != nil {
			t.Fatal(err)
		}
		if err := w.Add([]byte(c.key), c.e); !errors.Is(err, c.class) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := w.Finish(0); !errors.Is(err, c.class) {
			t.Errorf("%s: Finish afterwards: %v", c.name, err)
		}
	}
	w := NewWriter(new(memFile), testID)
	if _, err := w.Finish(0); err != nil {
		t.Fatal(err)
	}
	if err := w.Add([]byte("k"), Entry{}); !errors.Is(err, holdfast.ErrClosed) {
		t.Error("Add after Finish:", err)
	}
}

func TestWriterFaults(t *testing.T) {
	f := &memFile{failWrite: syscall.ENOSPC}
	w := NewWriter(f, testID)
	_ = w.Add([]byte("k"), Entry{})
	if _, err := w.Finish(0); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	f.failWrite = nil
	if _, err := w.Finish(0); !errors.Is(err, syscall.ENOSPC) {
		t.Error("Finish after a failed write:", err)
	}
	// Room allocated in advance is given back: the footer ends the file.
	f = &memFile{b: make([]byte, 100_000)}
	w = NewWriter(f, testID)
	_ = w.Add([]byte("k"), Entry{Len: 3})
	info, err := w.Finish(0)
	if err != nil || info.FileBytes != int64(len(f.b)) {
		t.Fatal(err, info, len(f.b))
	}
	if r, err := modes[0].open(f.b, testID); err != nil || r.Verify() != nil {
		t.Error(err)
	}
}
