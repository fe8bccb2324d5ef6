package db

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/vfs"
)

// keptValues is how many bytes of values the cache of tables has at least: what it has beyond all bytes of the tables.
func (d *DB) keptValues() int64 {
	n := d.tables.Cache.Bytes()
	for _, t := range d.view.Load().ver.Tables {
		n -= 2 * t.Info.FileBytes // blocks take more in memory
	}
	return n
}

// TestValuesKept: values that walks have read are in memory, within the budget, and go with their tables. What rots in
// the file then is no matter to walks, either way; a get, an opening and Verify find it.
func TestValuesKept(t *testing.T) {
	d, c := scanned(t, true)
	const keys, bad = 400, 200
	value := func(i int) []byte { return fmt.Appendf(nil, "value %05d of a hundred bytes or so%66d", i, i) }
	d.put(t, func(b *holdfast.Batch) {
		for i := range keys {
			b.Set(scanKey(i), value(i))
		}
	})
	for range 3 {
		if n, err := countScan(d); n != keys || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := d.keptValues(); n < keys*100 || n > keys*130 {
		t.Errorf("%d bytes are kept of %d values", n, keys)
	}
	name := format.SegmentName(c.Dir, 1)
	image, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	image[bytes.Index(image, value(bad))+50] ^= 1
	if err := os.WriteFile(name, image, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, reverse := range []bool{false, true} {
		it, n := d.Scan(holdfast.Range{Reverse: reverse}), 0
		for ; it.Next(); n++ {
			i := n
			if reverse {
				i = keys - 1 - n
			}
			if !bytes.Equal(it.Key(), scanKey(i)) || !bytes.Equal(it.Value(), value(i)) {
				t.Fatalf("entry %d is %q = %q", n, it.Key(), it.Value())
			}
		}
		if err := it.Close(); n != keys || err != nil {
			t.Errorf("reverse %v: %d entries, %v", reverse, n, err)
		}
	}
	if _, err := d.Get(nil, scanKey(bad)); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Error("a get:", err)
	}
	d.put(t, func(b *holdfast.Batch) { b.DeleteRange(scanKey(0), scanKey(keys)) })
	if n := d.keptValues(); n > 0 {
		t.Errorf("%d bytes are kept of values that no table names", n)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestKeptValuesHideNoRot: an opening knows nothing of what was in memory, and Verify never does.
func TestKeptValuesHideNoRot(t *testing.T) {
	d, c := scanned(t, true)
	const keys, bad = 400, 200
	d.put(t, func(b *holdfast.Batch) {
		for i := range keys {
			b.Set(scanKey(i), bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 50))
		}
	})
	for range 3 {
		if n, err := countScan(d); n != keys || err != nil {
			t.Fatal(n, err)
		}
	}
	name := format.SegmentName(c.Dir, 1)
	image, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	image[bytes.Index(image, bytes.Repeat([]byte{bad, 0}, 50))] ^= 1
	if err := os.WriteFile(name, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := countScan(d); n != keys || err != nil {
		t.Error("from memory:", n, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if v, err := check.Verify(c.FS, c.Dir); err != nil || len(v.Damage) == 0 {
		t.Error("Verify:", err, v.Damage)
	}
	if d, err = Open(c); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if n, err := countScan(d); n != bad || !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("opened anew: %d entries, %v", n, err)
	}
}

// TestValuesBesideChanges compares walks and gets with the reference, many at a time, while keys are put and deleted,
// and flushes, merges and sweeps go on. With little memory, what the cache keeps comes and goes all the time.
func TestValuesBesideChanges(t *testing.T) {
	t.Parallel()
	for _, memory := range []int64{minMemory, 1 << 20, 32 << 20} {
		t.Run(fmt.Sprint(memory), func(t *testing.T) {
			t.Parallel()
			c := testConfig(vfs.OS(), t.TempDir())
			c.Memory = memory
			// Tables and segments are small, so that there are many, and flushed values come to tables with much memory too.
			c.Sizes = Sizes{Memtable: min(memory/5, 256<<10), Table: 16 << 10}
			d, err := Open(c)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			model := mem.New()
			defer model.Close()
			const keys = 3000
			t.Logf("-db.seed=%d", *seed)
			rnd := rand.New(rand.NewPCG(*seed, 1))
			kept := int64(0)
			for round := range night.Or(300, 40) {
				var b holdfast.Batch
				lo := rnd.IntN(keys)
				for i := range 200 {
					at := rnd.IntN(keys)
					if round%3 == 0 {
						at = (lo + i) % keys
					}
					if rnd.IntN(10) == 0 {
						b.Delete(scanKey(at))
					} else {
						b.Set(scanKey(at), bytes.Repeat([]byte{byte(round), byte(at)}, []int{0, 5, 50, 500}[rnd.IntN(4)]))
					}
				}
				if rnd.IntN(8) == 0 {
					b.DeleteRange(scanKey(lo), scanKey(lo+50))
				}
				if err := commit(d, &b, holdfast.Memory); err != nil {
					t.Fatal(err)
				}
				if err := holdfast.Commit(model, &b, holdfast.Memory); err != nil {
					t.Fatal(err)
				}
				got, err := d.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				want, err := model.Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				var readers sync.WaitGroup
				for i := range uint64(3) {
					readers.Go(func() {
						if err := sameWalks(got, want, keys, rand.New(rand.NewPCG(*seed+uint64(round), i))); err != nil {
							t.Errorf("round %d: %v", round, err)
						}
					})
				}

				// The next batch is committed beside walks of this state.
				if round%2 == 0 {
					b.Reset()
					for range 100 {
						b.Set(scanKey(rnd.IntN(keys)), bytes.Repeat([]byte{byte(round), 'x'}, 50))
					}
					if err := errors.Join(commit(d, &b, holdfast.Memory),
						holdfast.Commit(model, &b, holdfast.Memory)); err != nil {
						t.Fatal(err)
					}
				}
				readers.Wait()
				if err := errors.Join(got.Close(), want.Close()); err != nil || t.Failed() {
					t.Fatal(err)
				}
				kept = max(kept, d.keptValues())
			}
			if memory > minMemory && kept <= 0 {
				t.Error("no values were kept: this tests nothing")
			}
		})
	}
}

// sameWalks compares walks from anywhere, most of them short and from few places, and gets.
func sameWalks(got, want holdfast.Reader, keys int, rnd *rand.Rand) error {
	for range 60 {
		at := rnd.IntN(keys/100) * 100
		r := holdfast.Range{Lo: scanKey(at), Reverse: rnd.IntN(4) == 0}
		switch rnd.IntN(4) {
		case 0:
			r.Hi = scanKey(at + rnd.IntN(100))
		case 1:
			r.Lo, r.Hi = nil, scanKey(at)
		}
		most := 1 + rnd.IntN(100)
		if rnd.IntN(10) == 0 {
			most = keys
		}
		g, w := got.Scan(r), want.Scan(r)
		for n := range most {
			a, b := g.Next(), w.Next()
			if a != b || a && (!bytes.Equal(g.Key(), w.Key()) || !bytes.Equal(g.Value(), w.Value())) {
				return fmt.Errorf("entry %d of %q, %q, reverse %v: %v %q = %.20q, want %v %q = %.20q; %v", n, r.Lo, r.Hi,
					r.Reverse, a, g.Key(), g.Value(), b, w.Key(), w.Value(), g.Err())
			}
			if !a {
				break
			}
		}
		if err := errors.Join(g.Close(), w.Close()); err != nil {
			return err
		}
		key := scanKey(rnd.IntN(keys))
		a, errA := got.Get(nil, key)
		b, errB := want.Get(nil, key)
		if !bytes.Equal(a, b) || !errors.Is(errA, errB) {
			return fmt.Errorf("%q is %.20q, %v, want %.20q, %v", key, a, errA, b, errB)
		}
	}
	return nil
}
