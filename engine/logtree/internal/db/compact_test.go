package db

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestCompact: what was overwritten and deleted gives its space back, as far as it is worth it, and nothing that can be
// read changes, though others write and read and compact meanwhile.
func TestCompact(t *testing.T) {
	t.Parallel()
	const n, size = 20_000, 200
	c := testConfig(vfs.NewMem(), "db")
	c.Memory = 4 << 20
	if err := errors.Join(c.FS.MkdirAll(c.Dir), c.FS.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := rand.New(rand.NewPCG(1, 1))
	want := map[string]byte{}
	round := func(mark byte) {
		value := make([]byte, size)
		for i := range value {
			value[i] = mark
		}
		var b holdfast.Batch
		for range n {
			k := fmt.Sprint("key ", r.IntN(n))
			if r.IntN(8) == 0 {
				b.Delete([]byte(k))
				delete(want, k)
			} else {
				b.Set([]byte(k), value)
				want[k] = mark
			}
			if b.Len() == 50 {
				if err := commit(d, &b, holdfast.Process); err != nil {
					t.Fatal(err)
				}
				b.Reset()
			}
		}
		if err := commit(d, &b, holdfast.Process); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		got := 0
		it := d.Scan(holdfast.Range{})
		defer it.Close()
		for it.Next() {
			got++
			if len(it.Value()) != size || it.Value()[size-1] != want[string(it.Key())] {
				t.Fatalf("%q is %.10q", it.Key(), it.Value())
			}
		}
		if err := it.Err(); err != nil || got != len(want) {
			t.Fatalf("%d of %d keys: %v", got, len(want), err)
		}
	}
	round(1)
	round(2)
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for range 3 {
				if err := d.Compact(t.Context(), holdfast.Range{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	round(3)
	others.Wait()
	check()
	for range 2 { // the second time there is nothing to do
		if err := d.Compact(t.Context(), holdfast.Range{}); err != nil {
			t.Fatal(err)
		}
		live := int64(len(want)) * (size + 20)
		if used := d.Inspect().Used(); used > live*5/4 {
			t.Errorf("%d bytes of log are kept for %d", used, live)
		}
		if tiers := len(d.Inspect().Tiers); tiers != 1 {
			t.Errorf("there are %d tiers", tiers)
		}
	}
	check()
	var b holdfast.Batch
	b.DeleteRange(nil, nil)
	if err := commit(d, &b, holdfast.Process); err != nil {
		t.Fatal(err)
	}
	clear(want)
	if err := d.Compact(t.Context(), holdfast.Range{}); err != nil {
		t.Fatal(err)
	}
	if l := d.Inspect(); len(l.Tables) > 0 || l.Used() > 0 {
		t.Errorf("of what was deleted, %d tables and %d bytes are left", len(l.Tables), l.Used())
	}
	check()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Compact(t.Context(), holdfast.Range{}); !errors.Is(err, holdfast.ErrClosed) {
		t.Error(err)
	}
}

// TestCompactEnds: a compaction that is cancelled leaves the database as good as it was, and the next one goes on.
func TestCompactEnds(t *testing.T) {
	t.Parallel()
	d, c := manual(t)
	defer func() { d.Close() }()
	fill := func() {
		for i := range 400 {
			d.put(t, sets(fmt.Sprint("key ", i%100)))
		}
	}
	fill()
	before := d.Inspect().Used()
	for calls := range 40 {
		err := d.Compact(&countdown{Context: t.Context(), calls: calls}, holdfast.Range{})
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if d.Inspect().Requested {
			t.Fatal("it goes on")
		}
		if _, err := d.Work(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Compact(t.Context(), holdfast.Range{}); err != nil {
		t.Fatal(err)
	}
	if after := d.Inspect().Used(); after > before/2 {
		t.Errorf("%d bytes of %d are left", after, before)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if d, err = Open(c); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		k := fmt.Sprint("key ", i)
		if v, err := d.Get(nil, []byte(k)); string(v) != "value of "+k || err != nil {
			t.Errorf("%s is %q, %v", k, v, err)
		}
	}
}

// countdown is a context that is cancelled after so many looks at it.
type countdown struct {
	context.Context
	calls int
}

func (c *countdown) Err() error {
	if c.calls--; c.calls < 0 {
		return context.Canceled
	}
	return nil
}

// TestCompactOnAFullDisk: where there is no room for what has to be moved, Compact says so and nothing is lost; it does
// its work once there is.
func TestCompactOnAFullDisk(t *testing.T) {
	t.Parallel()
	const n, size = 10_000, 1000
	x := newDrive(t, 4<<20)
	value := make([]byte, size)
	for range 2 {
		if _, err := x.each(n, func(b *holdfast.Batch, i int) { b.Set(scattered(i*3/4), value) }); err != nil {
			t.Fatal(err)
		}
	}
	x.fs.SetCapacity(1) // whatever is free
	err := x.d.Compact(t.Context(), holdfast.Range{})
	if !errors.Is(err, holdfast.ErrFull) {
		t.Fatal(err)
	}
	keys := x.count()
	if keys != n*3/4 {
		t.Errorf("there are %d keys", keys)
	}
	x.fs.SetCapacity(-1)
	before := x.d.Inspect().Used()
	if err := x.d.Compact(t.Context(), holdfast.Range{}); err != nil {
		t.Fatal(err)
	}
	if after := x.d.Inspect().Used(); after >= before || after > int64(keys)*size*11/10 || x.count() != keys {
		t.Errorf("%d bytes of %d are left for %d keys", after, before, x.count())
	}
}

// TestCompactBesideDamage: what cannot be read stays where it is, and keeps what it names; the rest is compacted. The
// answer once was that there was no room.
func TestCompactBesideDamage(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{".run", ".seg"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			const n = 20_000
			x := newDrive(t, 2<<20)
			value, odd := bytes.Repeat([]byte("v"), 100), bytes.Repeat([]byte("Q"), 100)
			if _, err := x.each(n, func(b *holdfast.Batch, i int) {
				if i == 77 {
					b.Set(scattered(i), odd)
				} else {
					b.Set(scattered(i), value)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := x.d.Close(); err != nil {
				t.Fatal(err)
			}
			if kind == ".seg" {
				flip(t, x.fs, kind, odd)
			} else {
				flip(t, x.fs, kind, nil)
			}
			x.open()
			for range 2 {
				if _, err := x.each(n/2, func(b *holdfast.Batch, i int) { b.Set(scattered(100+2*i%(n-100)), value) }); err != nil {
					t.Fatal(err)
				}
				if err := x.d.Compact(t.Context(), holdfast.Range{}); err != nil {
					t.Fatal(err)
				}
			}
			if m := x.d.Metrics(); m.Poison != nil || !errors.Is(m.Trouble, holdfast.ErrCorrupt) {
				t.Errorf("poison %v, trouble %v", m.Poison, m.Trouble)
			}
			bad := 0
			for i := range n {
				v, err := x.d.Get(nil, scattered(i))
				if errors.Is(err, holdfast.ErrCorrupt) {
					bad++
				} else if err != nil || len(v) != len(value) {
					t.Fatalf("key %d: %v", i, err)
				}
			}
			if bad > n/20 || kind == ".seg" && bad != 1 {
				t.Errorf("%d of %d keys cannot be read", bad, n)
			}
		})
	}
}
