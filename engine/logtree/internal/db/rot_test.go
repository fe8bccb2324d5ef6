package db

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/check"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestRottenValue: a value that cannot be read stays where it is, and all others are moved and written as before. It
// once stopped all writing, again after each opening.
func TestRottenValue(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	const n = 10_000
	x := newDrive(t, 2<<20)
	value, odd := bytes.Repeat([]byte("v"), 200), bytes.Repeat([]byte("Q"), 200)
	if _, err := x.each(n, func(b *holdfast.Batch, i int) {
		v := value
		if i == 77 {
			v = odd
		}
		b.Set(scattered(i), v)
	}); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, x.fs, ".seg", odd)
	x.open()
	rnd := rand.New(rand.NewPCG(1, 1))
	for session := range 2 {
		if done, err := x.each(4*n, func(b *holdfast.Batch, _ int) {
			b.Set(scattered(100+rnd.IntN(n-100)),
				value)
		}); err != nil {
			t.Fatalf("session %d, after %d overwrites: %v", session, done, err)
		}
		if _, err := x.d.Get(nil, scattered(77)); !errors.Is(err, holdfast.ErrCorrupt) {
			t.Errorf("session %d: the damaged value: %v", session, err)
		}
		if v, err := x.d.Get(nil, scattered(78)); err != nil || !bytes.Equal(v, value) {
			t.Errorf("session %d: another value: %v", session, err)
		}
		m := x.d.Metrics()
		if m.Poison != nil || !errors.Is(m.Trouble, holdfast.ErrCorrupt) {
			t.Errorf("session %d: poison %v, trouble %v", session, m.Poison, m.Trouble)
		}
		if used := x.fs.Used(); used > 3*n*208 {
			t.Errorf("session %d: %d bytes on disk for %d of data", session, used, n*208)
		}
		if err := x.d.Close(); err != nil {
			t.Fatal(err)
		}
		v, err := check.Verify(x.fs, "db")
		if err != nil || len(v.Damage) == 0 {
			t.Errorf("session %d: Verify: %v, %v", session, err, v.Damage)
		}
		x.open()
	}
}

// TestDamagedTable: a table of which a block cannot be read is left out of merges, and everything else goes on.
func TestDamagedTable(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	const n = 20_000
	x := newDrive(t, 2<<20)
	value := make([]byte, 100)
	if _, err := x.each(n, func(b *holdfast.Batch, i int) { b.Set(scattered(i), value) }); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	flip(t, x.fs, ".run", nil)
	x.open()
	rnd := rand.New(rand.NewPCG(1, 1))
	if done, err := x.each(3*n, func(b *holdfast.Batch, _ int) { b.Set(scattered(rnd.IntN(n)), value) }); err != nil {
		t.Fatalf("after %d overwrites: %v", done, err)
	}
	if m := x.d.Metrics(); m.Poison != nil || !errors.Is(m.Trouble, holdfast.ErrCorrupt) {
		t.Errorf("poison %v, trouble %v", m.Poison, m.Trouble)
	}
	bad := 0
	for i := range n {
		v, err := x.d.Get(nil, scattered(i))
		if errors.Is(err, holdfast.ErrCorrupt) {
			bad++
		} else if err != nil || !bytes.Equal(v, value) {
			t.Fatalf("key %d: %v", i, err)
		}
	}
	if bad > n/20 {
		t.Errorf("%d of %d keys cannot be read for one damaged block", bad, n)
	}
	if tiers := len(x.d.Inspect().Tiers); tiers > 20 {
		t.Errorf("%d tiers", tiers)
	}
}

// TestDamagedTableAmongTiers: whichever table is damaged, merges of what is newer, and of what is older, lose
// nothing of what can be read. Keys of tiers below a damaged one were once dropped where tiers above it were merged.
func TestDamagedTableAmongTiers(t *testing.T) {
	key := func(i int) []byte { return fmt.Appendf(nil, "key %04d", i) }
	made := newDrive(t, 2<<20)
	want := map[int]string{}
	rnd := rand.New(rand.NewPCG(2, 2))
	round := func(d *DB, n int) {
		t.Helper()
		var b holdfast.Batch
		for range n {
			i := rnd.IntN(400)
			want[i] = fmt.Sprintf("value %x of %d", rnd.Uint64(), i)
			b.Set(key(i), []byte(want[i]))
		}
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
		d.rotate()
		if _, err := d.flush(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{300, 40, 30, 20} {
		round(made.d, n)
	}
	if tiers := len(made.d.Inspect().Tiers); tiers < 3 {
		t.Fatalf("%d tiers: this tests nothing", tiers)
	}
	if err := made.d.Close(); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(want)
	names, err := made.fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if filepath.Ext(name) != ".run" {
			continue
		}
		want = maps.Clone(before)
		x := &drive{t: t, fs: made.fs.Clone(), c: made.c}
		x.c.FS = x.fs
		if err := x.fs.Flip(filepath.Join("db", name), 100, 0); err != nil {
			t.Fatal(err)
		}
		x.open()
		for range 6 {
			round(x.d, 25)
			x.work()
		}
		unreadable := 0
		for i, value := range want {
			v, err := x.d.Get(nil, key(i))
			if errors.Is(err, holdfast.ErrCorrupt) {
				unreadable++
			} else if err != nil || string(v) != value {
				t.Errorf("%s damaged: key %d is %q, %v, want %q", name, i, v, err, value)
			}
		}
		if unreadable == 0 || unreadable == len(want) {
			t.Errorf("%s damaged: %d of %d keys cannot be read", name, unreadable, len(want))
		}
		if err := x.d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnreadablePages: what lies in pages of a mapped file that cannot be read stays out of merges, be it values or
// an index, and everything else goes on, as it does where the damage shows in a checksum.
func TestUnreadablePages(t *testing.T) {
	const n = 2000
	for _, kind := range []string{".seg", ".run"} {
		x := movingSteps(t, n, true)
		name := format.SegmentName("db", 1)
		if kind == ".run" {
			name = format.TableName("db", x.d.Inspect().Tables[0].ID)
		}
		if err := x.fs.Spoil(name, 4096, 8192); err != nil {
			t.Fatal(err)
		}
		x.d.put(t, func(b *holdfast.Batch) {
			for i := 0; i < n; i += 3 {
				b.Set(stepKey(i), stepValue(i+1))
			}
		})
		x.d.compactor.edit.running = nil
		x.moveAll()
		for len(x.d.Inspect().Compacting) > 0 {
			if _, err := x.d.compactor.step(); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		if m := x.d.Metrics(); m.Poison != nil || !isUnreadable(m.Trouble) {
			t.Errorf("%s: poison %v, trouble %v", kind, m.Poison, m.Trouble)
		}
		for _, s := range x.d.Inspect().Segments {
			if kind == ".seg" && !s.Moved && !s.InLog && s.ID != 1 {
				t.Errorf("segment %d was not emptied", s.ID)
			}
		}
		for i := range n {
			want := stepValue(i)
			if i%3 == 0 {
				want = stepValue(i + 1)
			}
			if v, err := x.d.Get(nil, stepKey(i)); !isUnreadable(err) && (err != nil || !bytes.Equal(v, want)) {
				t.Fatalf("%s: key %d: %q, %v", kind, i, v, err)
			}
		}
	}
}

// TestMergeChecksAgain: a table that rots after it was read is not merged as it is, with a new checksum over
// the rot.
func TestMergeChecksAgain(t *testing.T) {
	const n = 500
	x := movingSteps(t, n, true)
	x.d.compactor.edit.running = nil
	if got := x.count(); got != n {
		t.Fatalf("%d of %d keys", got, n)
	}
	name := format.TableName("db", x.d.Inspect().Tables[0].ID)
	for bit := range int64(8) {
		if err := x.fs.Flip(name, 200+100*bit, int(bit)); err != nil {
			t.Fatal(err)
		}
	}
	x.d.put(t, func(b *holdfast.Batch) {
		for i := 0; i < n; i += 3 {
			b.Set(stepKey(i), stepValue(i))
		}
	})
	x.moveAll()
	for len(x.d.Inspect().Compacting) > 0 {
		if _, err := x.d.compactor.step(); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	x.open()
	bad := 0
	for i := range n {
		v, err := x.d.Get(nil, stepKey(i))
		if errors.Is(err, holdfast.ErrCorrupt) {
			bad++
		} else if err != nil || !bytes.Equal(v, stepValue(i)) {
			t.Fatalf("key %d: %q, %v", i, v, err)
		}
	}
	if bad == n { // what was in memory may still be right
		t.Errorf("none of %d keys can be read", n)
	}
}

// TestRotAfterFirstRead flips bits of a table that has been read, in a database that is open. What it answers must
// still be right, or an error, whether there is memory for what was read or not.
func TestRotAfterFirstRead(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, memory := range []int64{minMemory, 4 << 20} {
		c := testConfig(vfs.OS(), t.TempDir())
		c.Memory, c.SyncEvery, c.Manual = memory, -1, true
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		const keys = 600
		d.put(t, func(b *holdfast.Batch) {
			for i := range keys {
				b.Set(scanKey(2*i), fmt.Appendf(nil, "value %d", i))
			}
		})
		names, err := filepath.Glob(filepath.Join(c.Dir, "*.run"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			f, err := os.OpenFile(name, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			image, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			readRight(t, d, keys)
			for at := 0; at < len(image) && !t.Failed(); at += 5 {
				if _, err := f.WriteAt([]byte{image[at] ^ 1<<(at%8)}, int64(at)); err != nil {
					t.Fatal(err)
				}
				readRight(t, d, keys)
				if _, err := f.WriteAt(image[at:at+1], int64(at)); err != nil {
					t.Fatal(err)
				}
				if t.Failed() {
					t.Fatalf("memory %d, %s, byte %d", memory, name, at)
				}
			}
		}
	}
}

// readRight reads the keys that [TestRotAfterFirstRead] has put, and some between them.
func readRight(t *testing.T, d *DB, keys int) {
	t.Helper()
	for i := 0; i < 2*keys; i += 9 {
		v, err := d.Get(nil, scanKey(i))
		want, there := fmt.Sprintf("value %d", i/2), i%2 == 0
		switch {
		case errors.Is(err, holdfast.ErrCorrupt):
		case there && (err != nil || string(v) != want), !there && !errors.Is(err, holdfast.ErrNotFound):
			t.Errorf("Get(%q) = %q, %v", scanKey(i), v, err)
		}
	}
	for _, reverse := range []bool{false, true} {
		it, n := d.Scan(holdfast.Range{Reverse: reverse}), 0
		for ; it.Next(); n++ {
			i := n
			if reverse {
				i = keys - 1 - n
			}
			if !bytes.Equal(it.Key(), scanKey(2*i)) || string(it.Value()) != fmt.Sprintf("value %d", i) {
				t.Errorf("entry %d of a scan, reverse %v: %q = %q", n, reverse, it.Key(), it.Value())
				break
			}
		}
		if err := it.Close(); err == nil && n != keys || err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
			t.Errorf("a scan, reverse %v, has %d entries, %v", reverse, n, err)
		}
	}
}
