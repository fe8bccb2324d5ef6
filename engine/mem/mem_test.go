package mem

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"pgregory.net/rapid"
)

// The reference model itself is checked against a Go map.
func TestAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := New()
		model := map[string]string{}
		key := rapid.SliceOfN(rapid.SampledFrom([]byte("abc")), 1, 3)
		bound := rapid.SliceOfN(rapid.SampledFrom([]byte("abc")), 0, 3)
		type frozen struct {
			snap  holdfast.Snapshot
			model map[string]string
		}
		var snaps []frozen
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			var b holdfast.Batch
			for range rapid.IntRange(1, 5).Draw(t, "ops") {
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0, 1:
					k, v := key.Draw(t, "key"), rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "value")
					b.Set(k, v)
					model[string(k)] = string(v)
				case 2:
					k := key.Draw(t, "key")
					b.Delete(k)
					delete(model, string(k))
				case 3:
					lo, hi := bound.Draw(t, "lo"), bound.Draw(t, "hi")
					b.DeleteRange(lo, hi)
					maps.DeleteFunc(model, func(k, _ string) bool { return within(k, lo, hi) })
				}
			}
			if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
			r := holdfast.Range{Lo: bound.Draw(t, "lo"), Hi: bound.Draw(t, "hi"), Reverse: rapid.Bool().Draw(t, "reverse")}
			same(t, e, model, r)
			for _, s := range snaps {
				same(t, s.snap, s.model, r)
			}
			if s, err := e.Snapshot(); err != nil {
				t.Fatal(err)
			} else if rapid.Bool().Draw(t, "keep the snapshot") {
				snaps = append(snaps, frozen{s, maps.Clone(model)})
			} else {
				s.Close()
			}
		}
		size := 0
		for k, v := range model {
			size += len(k) + len(v)
		}
		if m := e.Metrics(); m.MemoryBytes != int64(size) || m.OpenSnapshots != int64(len(snaps)) || m.OpenIterators != 0 {
			t.Fatalf("metrics say %+v; %d bytes and %d snapshots are there", m, size, len(snaps))
		}
	})
}

func within(k string, lo, hi []byte) bool {
	return k >= string(lo) && (len(hi) == 0 || k < string(hi))
}

func same(t *rapid.T, r holdfast.Reader, model map[string]string, over holdfast.Range) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(model))
	if over.Reverse {
		slices.Reverse(keys)
	}
	it := r.Scan(over)
	defer it.Close()
	for _, k := range keys {
		if v, err := r.Get([]byte("x"), []byte(k)); err != nil || string(v) != "x"+model[k] {
			t.Fatalf("Get(%q) = %q, %v; want x%q", k, v, err, model[k])
		}
		if !within(k, over.Lo, over.Hi) {
			continue
		}
		if !it.Next() || string(it.Key()) != k || !bytes.Equal(it.Value(), []byte(model[k])) {
			t.Fatalf("scan of %q to %q (reverse %v) is at %q = %q, want %q = %q", over.Lo, over.Hi, over.Reverse, it.Key(),
				it.Value(), k, model[k])
		}
	}
	if it.Next() {
		t.Fatalf("scan of %q to %q (reverse %v) has %q as well", over.Lo, over.Hi, over.Reverse, it.Key())
	}
}
