package db

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// cutUp fills a database with keys in order and deletes every second one of them with a range delete of its own.
func cutUp(t testing.TB, x *drive, keys int) {
	t.Helper()
	if _, err := x.each(keys, func(b *holdfast.Batch, i int) { b.Set(stepKey(i), []byte("some value")) }); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Flush(); err != nil {
		t.Fatal(err)
	}
	x.work()
	if _, err := x.each(keys/2, func(b *holdfast.Batch, i int) {
		// Not in order, so that many memtables cut the same tables.
		i = i * 7919 % (keys / 2)
		b.DeleteRange(stepKey(2*i), stepKey(2*i+1))
	}); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Flush(); err != nil {
		t.Fatal(err)
	}
}

// refs is how many parts of tables the manifest names, and how many tables.
func (d *DB) refs() (refs, tables int) {
	l := d.Inspect()
	return l.Refs, len(l.Tables)
}

// BenchmarkManifest measures the manifests of 20 flushes that follow on 35,000 scattered range deletes.
func BenchmarkManifest(b *testing.B) {
	for range b.N {
		x := newDrive(b, 8<<20)
		cutUp(b, x, 70_000)
		refs, _ := x.d.refs()
		bytes := int64(0)
		for i := range 20 {
			x.d.put(b, sets(string(stepKey(100_000+i))))
			n, err := x.fs.Size(filepath.Join("db", format.ManifestName))
			if err != nil {
				b.Fatal(err)
			}
			bytes += n
			x.work()
		}
		b.ReportMetric(float64(refs), "refs-at-first")
		refs, _ = x.d.refs()
		b.ReportMetric(float64(refs), "refs-at-last")
		b.ReportMetric(float64(bytes)/20, "manifest-B/flush")
	}
}

// TestCutsAreMergedAway: range deletes that cut tables into many parts leave as many entries in the manifest. A merge
// rewrites such tables, and the entries go, with what was deleted. They once stayed for ever.
func TestCutsAreMergedAway(t *testing.T) {
	const keys = 4000
	for _, reopen := range []bool{false, true} {
		x := newDrive(t, 1<<20)
		cutUp(t, x, keys)
		before, _ := x.d.refs()
		if before < keys/4 {
			t.Fatalf("%d parts of tables: this tests nothing", before)
		}
		if reopen {
			if err := x.d.Close(); err != nil {
				t.Fatal(err)
			}
			x.open()
		}
		for i := range 3 {
			x.d.put(t, sets(string(stepKey(keys+i))))
			x.work()
		}
		if refs, tables := x.d.refs(); refs > tables {
			t.Errorf("%d parts of %d tables, %d before", refs, tables, before)
		}
		if n, err := x.fs.Size(filepath.Join("db", format.ManifestName)); err != nil || n > 1000 {
			t.Errorf("the manifest has %d bytes, %v", n, err)
		}
		for range 2 {
			for i := range keys {
				v, err := x.d.Get(nil, stepKey(i))
				if deleted := i%2 == 0; deleted != errors.Is(err, holdfast.ErrNotFound) || !deleted && string(v) != "some value" {
					t.Fatalf("key %d: %q, %v", i, v, err)
				}
			}
			if n := x.count(); n != keys/2+3 {
				t.Errorf("%d keys", n)
			}
			if err := x.d.Close(); err != nil {
				t.Fatal(err)
			}
			x.open()
		}
	}
}
