package table

import (
	"bytes"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/holdfastdb/holdfast"
)

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// FuzzReader reads any bytes as a table, also with all checksums made right. However it is read, it must
// end, say the same, and have no error but ErrCorrupt or ErrVersion.
func FuzzReader(f *testing.F) {
	image, _, _ := smallRun(f)
	f.Add(image, false)
	f.Add(image, true)
	f.Add(image[:len(image)-1], true)
	empty, _ := build(f, nil, 100)
	f.Add(empty, true)
	one, _ := build(f, ascending(1), 100)
	f.Add(one, true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		b = bytes.Clone(b)
		if seal {
			reseal(b)
		}
		var first []pair
		var firstFailed bool
		for m, mode := range modes {
			r, err := mode.open(b, testID)
			if err != nil {
				if !errors.Is(err, holdfast.ErrCorrupt) && !errors.Is(err, holdfast.ErrVersion) {
					t.Fatal(err)
				}
				return // all read the same at this point
			}
			it := r.Iter()
			var pairs []pair
			for it.Next() {
				pairs = append(pairs, pair{bytes.Clone(it.Key()), it.Entry()})
				if len(pairs) > len(b) {
					t.Fatal("it has more entries than bytes")
				}
			}
			failed := it.Err() != nil
			if failed && !errors.Is(it.Err(), holdfast.ErrCorrupt) {
				t.Fatal(it.Err())
			}
			if m == 0 {
				first, firstFailed = pairs, failed
			}
			if failed != firstFailed || len(pairs) != len(first) {
				t.Fatalf("%s: %d entries, %v; %s: %d, %v", modes[0].name, len(first), firstFailed, mode.name, len(pairs), it.Err())
			}
			for i, p := range pairs {
				if !bytes.Equal(p.key, first[i].key) || p.e != first[i].e {
					t.Fatalf("%s has %v, %s %v", modes[0].name, first[i], mode.name, p)
				}
			}
			n := len(pairs)
			for r.Init(it); it.Prev(); n-- {
				if !failed && (n == 0 || !bytes.Equal(it.Key(), pairs[n-1].key) || it.Entry() != pairs[n-1].e) {
					t.Fatal("Prev does not go the way of Next at", n)
				}
			}
			if !failed && (it.Err() != nil || n != 0) {
				t.Fatal("Prev ends at", n, it.Err())
			}
			sound := r.Verify() == nil
			if sound && failed {
				t.Fatal("Verify finds nothing, a scan does")
			}
			for _, p := range pairs[:min(len(pairs), 200)] {
				e, ok, err := r.Get(p.key)
				if err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
					t.Fatal(err)
				}
				if sound && (!ok || e != p.e || !it.SeekGE(p.key) || it.Entry() != p.e) {
					t.Fatalf("Verify finds nothing, but Get(%v) is %+v, %v, %v", p, e, ok, err)
				}
				it.SeekGE(p.key)
				it.SeekLT(p.key)
				it.Next()
			}
			r.Close()
		}
	})
}

// FuzzBlock reads any bytes as a block. What find says of a key is what decode does.
func FuzzBlock(f *testing.F) {
	image, pairs, _ := smallRun(f)
	r, err := modes[0].open(image, testID)
	if err != nil {
		f.Fatal(err)
	}
	x, err := r.index()
	if err != nil {
		f.Fatal(err)
	}
	for i := range x.n {
		lo, hi := x.block(i)
		f.Add(image[lo:hi], pairs[i].key)
	}
	f.Fuzz(func(t *testing.T, b, key []byte) {
		blk, ok := parseBlock(b)
		if !ok {
			return
		}
		for _, strict := range []bool{false, true} {
			if g, ok := blk.search(key, strict); ok && (g < -1 || g >= blk.n) {
				t.Fatal("group", g, "of", blk.n)
			}
		}
		blk.get(key)
		var win window
		for g := range blk.n {
			if !win.decode(&blk, g) {
				if win.n != 0 {
					t.Fatal("a malformed group leaves entries")
				}
				continue
			}
			lo, hi, _ := blk.group(g)
			written := bytes.Equal(win.appendTo(nil), b[lo:hi]) // as a writer would; others must only do no harm
			for j := 0; written && j < win.n; j++ {
				if j > 0 && bytes.Compare(win.key(j-1), win.key(j)) >= 0 {
					break
				}
				e, found, ok := find(b, lo, hi, win.key(j))
				if !ok || !found || e != win.entries[j] {
					t.Fatalf("entry %d of group %d is %+v, find says %+v, %v, %v", j, g, win.entries[j], e, found, ok)
				}
			}
			if e, found, ok := find(b, lo, hi, key); ok && found && written {
				has := false
				for j := range win.n {
					has = has || bytes.Equal(win.key(j), key) && win.entries[j] == e
				}
				if !has {
					t.Fatalf("find has %+v for %q, decode has not", e, key)
				}
			}
		}
	})
}
