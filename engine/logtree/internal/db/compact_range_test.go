package db

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestCompactRange: of a range, the space of what was deleted and overwritten comes back; elsewhere no table is read
// anew and no segment is emptied. Keys of all ranges lie in all segments of the log, or in segments of their own.
func TestCompactRange(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	const spaces, n, size = 8, 400, 2000
	for _, mixed := range []bool{false, true} {
		t.Run(fmt.Sprint("mixed ", mixed), func(t *testing.T) {
			c := testConfig(vfs.NewMem(), "db")
			c.Memory, c.Manual = 1<<20, true
			c.Sizes.Segment, c.Sizes.Table = 256<<10, 8<<10
			if err := errors.Join(c.FS.MkdirAll(c.Dir), c.FS.SyncDir("/")); err != nil {
				t.Fatal(err)
			}
			d, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { d.Close() }()
			key := func(space, i int) []byte { return fmt.Appendf(nil, "space %d key %04d", space, i) }
			want := map[string]string{}
			r := rand.New(rand.NewPCG(1, 2))
			set := func(space, i int) {
				value := make([]byte, size)
				for j := range value {
					value[j] = byte(r.Uint32())
				}
				var b holdfast.Batch
				b.Set(key(space, i), value)
				if err := commit(d, &b, holdfast.Process); err != nil {
					t.Fatal(err)
				}
				want[string(key(space, i))] = string(value)
			}
			for i := range spaces * n {
				space, at := i/n, i%n
				if mixed {
					space, at = i%spaces, i/spaces
				}
				set(space, at)
			}
			part := holdfast.Range{Lo: key(3, 0), Hi: key(4, 0)}
			if err := d.Compact(t.Context(), holdfast.Range{}); err != nil {
				t.Fatal(err)
			}
			// Half of the keys of two spaces are deleted, and flushed: afterwards no table knows of them.
			for _, space := range []int{3, 5} {
				var b holdfast.Batch
				b.DeleteRange(key(space, 0), key(space, n/2))
				if err := commit(d, &b, holdfast.Process); err != nil {
					t.Fatal(err)
				}
				for i := range n / 2 {
					delete(want, string(key(space, i)))
				}
			}
			if err := d.Flush(); err != nil {
				t.Fatal(err)
			}
			kept := map[uint64]bool{}
			before := d.Inspect()
			for _, f := range before.Tables {
				if f.Largest < string(part.Lo) || f.Smallest >= string(part.Hi) {
					kept[f.ID] = true
				}
			}
			if err := d.Compact(t.Context(), part); err != nil {
				t.Fatal(err)
			}
			dead := int64(n / 2 * size)
			after := d.Inspect()
			if gave := before.Used() - after.Used(); gave < dead*9/10 || !mixed && gave > dead*3/2 {
				t.Errorf("%d bytes were given back, of %d deleted in the range", gave, dead)
			}
			moved := after.OtherBytes - before.OtherBytes
			t.Logf("%d bytes, then %d; %d were written", before.Used(), after.Used(), moved)
			if !mixed {
				for _, f := range after.Tables {
					delete(kept, f.ID)
				}
				if len(kept) > 8 { // some share a segment with the range
					t.Errorf("%d tables outside of the range were rewritten", len(kept))
				}
				if moved > dead {
					t.Errorf("%d bytes were written for %d of garbage", moved, dead)
				}
			}
			// Again, there is nothing to do, and nowhere else either.
			for _, r := range []holdfast.Range{part, {Lo: key(6, 0)}, {Hi: key(2, 0)}} {
				if err := d.Compact(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if l := d.Inspect(); l.Used() != after.Used() || l.OtherBytes != after.OtherBytes {
				t.Errorf("%d bytes became %d, and %d were written, for nothing", after.Used(), l.Used(),
					l.OtherBytes-after.OtherBytes)
			}
			for range 2 {
				got := 0
				it := d.Scan(holdfast.Range{})
				for it.Next() {
					if got++; want[string(it.Key())] != string(it.Value()) {
						t.Fatalf("%q is %.10q", it.Key(), it.Value())
					}
				}
				if err := it.Close(); err != nil || got != len(want) {
					t.Fatalf("%d of %d keys: %v", got, len(want), err)
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				c.New = false
				if d, err = Open(c); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
