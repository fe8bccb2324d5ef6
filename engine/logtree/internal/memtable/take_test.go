package memtable

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestTake: Take gives what Next comes to, up to the bound, and stops where a version is no value in the image.
func TestTake(t *testing.T) {
	pool := NewPool(64<<10, 8<<20, 1<<30)
	for _, kind := range keyKinds {
		if kind.next == nil || kind.name == "long" {
			continue
		}
		for i := range uint64(4) {
			seed := *seed + i
			r := rand.New(rand.NewPCG(seed, 1))
			im := NewImage(pool)
			table := New(im)
			n := 1 + r.IntN(1200)
			for i := range n {
				seq := uint64(i + 1)
				key := kind.next(r, i)
				switch r.IntN(12) {
				case 0:
					rec, own := put(im, holdfast.KindDelete, key, nil)
					table.Add(rec, own, seq)
				case 1:
					table.AddPointer(key, Pointer{At: seq, Len: 9, Sum: 1}, seq)
				default:
					rec, own := put(im, holdfast.KindSet, key, bytes.Repeat([]byte{byte(i)}, r.IntN(300)))
					table.Add(rec, own, seq)
				}
			}
			for range 20 {
				checkTake(t, r, table, kind.next(r, r.IntN(n)), kind.next(r, r.IntN(n)), uint64(r.IntN(n+2)))
				if t.Failed() {
					t.Fatalf("%s, -memtable.seed=%d, %d versions", kind.name, seed, n)
				}
			}
			table.Release()
			im.Release()
		}
	}
}

func checkTake(t *testing.T, r *rand.Rand, table *Table, from, bound []byte, maxSeq uint64) {
	t.Helper()
	if r.IntN(3) == 0 {
		bound = nil
	}
	a, b := table.Iter(maxSeq), table.Iter(maxSeq)
	on := b.SeekGE(from)
	if a.SeekGE(from) != on {
		t.Fatal("two searches differ")
	}
	var got []Pair
	for on {
		most := r.IntN(40)
		deleted := 0
		if got, deleted = a.Take(got[:0], most, bound); len(got) > most {
			t.Fatalf("%d pairs, not more than %d were wanted", len(got), most)
		}
		inside := func() bool { return on && (len(bound) == 0 || bytes.Compare(b.Version().Key, bound) < 0) }
		pass := func() {
			for ; deleted > 0 && inside() && b.Version().Kind == holdfast.KindDelete; deleted-- {
				on = b.Next()
			}
		}
		for i, p := range got {
			pass()
			v := b.Version()
			if !inside() || v.Kind != holdfast.KindSet || v.InLog {
				t.Fatalf("pair %d, %.40q, should not have been taken", i, p.Key)
			}
			if !bytes.Equal(p.Key, v.Key) || !bytes.Equal(p.Value, v.Value) {
				t.Fatalf("pair %d is %.40q = %.40q, want %.40q = %.40q", i, p.Key, p.Value, v.Key, v.Value)
			}
			on = b.Next()
		}
		if pass(); deleted != 0 {
			t.Fatalf("%d deleted keys too many were counted", deleted)
		}
		if a.Valid() != on || on && !equal(a.Version(), b.Version()) {
			t.Fatalf("after %d pairs the iterator is elsewhere", len(got))
		}
		if !on {
			return
		}
		v := b.Version()
		if len(got) < most && !v.InLog && inside() {
			t.Fatalf("%.40q was not taken, after %d of %d", v.Key, len(got), most)
		}
		if len(got) < most { // what cannot be taken is stepped over
			if on = b.Next(); a.Next() != on {
				t.Fatal("two steps differ")
			}
		}
	}
}

// TestTakeWhileAdding takes all of a fixed state again and again while another goroutine adds newer versions and keys.
func TestTakeWhileAdding(t *testing.T) {
	im := NewImage(NewPool(4<<10, 0, 0)) // chunks come often
	table := New(im)
	const keys, more = 500, 20_000
	var seq atomic.Uint64
	add := func(i int, value string) {
		rec, own := put(im, holdfast.KindSet, fmt.Appendf(nil, "key/%06d", i), []byte(value))
		table.Add(rec, own, seq.Load()+1)
		seq.Add(1)
	}
	for i := range keys {
		add(10*i, "old")
	}
	var writing sync.WaitGroup
	writing.Go(func() {
		r := rand.New(rand.NewPCG(1, 2))
		for range more {
			add(r.IntN(10*keys), "new")
		}
	})
	for done := false; !done; {
		done = seq.Load() == keys+more
		it := table.Iter(keys)
		var pairs []Pair
		for on := it.First(); on; on = it.Valid() {
			pairs, _ = it.Take(pairs, 100, nil)
		}
		if len(pairs) != keys {
			t.Fatalf("%d keys, want %d", len(pairs), keys)
		}
		for i, p := range pairs {
			if string(p.Key) != fmt.Sprintf("key/%06d", 10*i) || string(p.Value) != "old" {
				t.Fatalf("pair %d is %q = %q", i, p.Key, p.Value)
			}
		}
	}
	writing.Wait()
	it := table.Iter(math.MaxUint64)
	it.First()
	pairs := make([]Pair, 0, 16)
	if n := testing.AllocsPerRun(100, func() {
		if pairs, _ = it.Take(pairs[:0], 16, nil); !it.Valid() {
			it.First()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestAscending: of the newest versions of keys, those count that were added after that of the key before.
func TestAscending(t *testing.T) {
	for _, x := range []struct {
		name            string
		key             func(i int) int
		keys, ascending int64
	}{
		{"ascending", func(i int) int { return i }, 1000, 1000},
		{"descending", func(i int) int { return -i }, 1000, 1},
		{"four sequences", func(i int) int { return i%4*1000 + i }, 1000, 997},
		{"one key again and again, among others", func(i int) int { return i % 2 * i }, 501, 500},
		{"every key twice", func(i int) int { return i % 500 }, 500, 500},
	} {
		im := NewImage(NewPool(4<<10, 8<<20, 1<<30))
		table := New(im)
		for i := range 1000 {
			rec, own := put(im, holdfast.KindSet, fmt.Appendf(nil, "%09d", 100_000+x.key(i)), []byte("value"))
			table.Add(rec, own, uint64(i+1))
		}
		it := table.Iter(math.MaxUint64)
		if keys, ascending := it.Ascending(); keys != x.keys || ascending != x.ascending {
			t.Errorf("%s: %d of %d keys, not %d of %d", x.name, ascending, keys, x.ascending, x.keys)
		}
	}
}
