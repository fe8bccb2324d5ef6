package table

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestNear walks by Near and Skip, both ways, from anywhere, with and without bounds: what is near is what single steps
// would come to, and it ends at the bound.
func TestNear(t *testing.T) {
	for i := range uint64(12) {
		seed := *firstSeed + i
		rnd := rand.New(rand.NewPCG(seed, 1))
		pairs := randomPairs(rnd, 1+rnd.IntN(1500))
		if rnd.IntN(2) == 0 {
			pairs = ascending(1 + rnd.IntN(1500))
		}
		image, _ := build(t, pairs, 200<<rnd.IntN(6))
		absent := absentKeys(pairs)
		for _, mode := range modes {
			r, err := mode.open(image, testID)
			if err != nil {
				t.Fatal(err)
			}
			it := r.Iter()
			for range 30 {
				at := rnd.IntN(len(pairs))
				if !it.SeekGE(pairs[at].key) {
					t.Fatalf("-table.seed=%d: %v", seed, it.Err())
				}
				var bound []byte
				switch k := rnd.IntN(4); {
				case k < 2:
					bound = pairs[rnd.IntN(len(pairs))].key
				case k == 2:
					bound = absent[rnd.IntN(len(absent))]
				}
				for turns := rnd.IntN(4); turns >= 0; turns-- {
					at = checkNear(t, rnd, it, pairs, at, rnd.IntN(2) == 0, bound, rnd.IntN(2) == 0)
					if t.Failed() {
						t.Fatalf("-table.seed=%d, %s, %d entries", seed, mode.name, len(pairs))
					}
				}
			}
			r.Close()
		}
	}
}

// checkNear goes on from entry at, one way, for some time, and returns where it came to.
func checkNear(t *testing.T, rnd *rand.Rand, it *Iter, pairs []pair, at int, back bool, bound []byte, open bool) int {
	within := func(i int) bool {
		c := bytes.Compare(pairs[i].key, bound)
		return len(bound) == 0 || !back && c < 0 || back && (c > 0 || c == 0 && !open)
	}
	for range 1 + rnd.IntN(40) {
		most := 1 + rnd.IntN(2*windowSize)
		near := it.Near(back, most, bound, open)
		n := len(near.Entries)
		if n < 1 || n > most || len(near.Begin) != n+1 {
			t.Fatalf("%d entries and %d keys are near of %d", n, len(near.Begin)-1, most)
		}
		first := at
		if back {
			first = at - n + 1
		}
		for i := range n {
			if key := near.Keys[near.Begin[i]:near.Begin[i+1]]; !bytes.Equal(key, pairs[first+i].key) {
				t.Fatalf("%.40q is near, want %v", key, pairs[first+i])
			}
			same(t, "Near", near.Entries[i], pairs[first+i].e)
			if n > 1 && !within(first+i) {
				t.Fatalf("%v is near, beyond %.40q", pairs[first+i], bound)
			}
		}
		if n < most && n > 1 && within(at) { // it ends for a reason: the window does, or the bound is there
			next, more := first+n, it.pos+n < it.win.n
			if back {
				next, more = first-1, it.pos-n >= 0
			}
			if more && within(next) {
				t.Fatalf("%v is not near, and at hand", pairs[next])
			}
			full := it.shown == windowGroups || it.group+it.shown == it.blk.n
			if !back && !full && within(next) {
				t.Fatalf("%v is not near, though it is wanted, and the window has room for its group", pairs[next])
			}
		}
		step := rnd.IntN(n)
		if back {
			step = -step
		}
		it.Skip(step)
		at += step
		if !bytes.Equal(it.Key(), pairs[at].key) || it.Entry() != pairs[at].e {
			t.Fatalf("Skip(%d) is at %.40q, want %v", step, it.Key(), pairs[at])
		}
		if back && at > 0 {
			at--
			back := it.Prev()
			if !back {
				t.Fatal("Prev ends too early:", it.Err())
			}
		} else if !back && at < len(pairs)-1 {
			at++
			if !it.Next() {
				t.Fatal("Next ends too early:", it.Err())
			}
		}
	}
	return at
}

// TestMalformedGroup: a walk that reads several groups at a time shows all entries before a malformed one,
// whichever way it comes, and then an error. The block's checksum is right.
func TestMalformedGroup(t *testing.T) {
	pairs := ascending(400)
	image, _ := build(t, pairs, maxBlock/8)
	sound, err := modes[0].open(image, testID)
	if err != nil {
		t.Fatal(err)
	}
	x, err := sound.index()
	if err != nil {
		t.Fatal(err)
	}
	lo, hi := x.block(0)
	blk, ok := parseBlock(image[lo:hi])
	if !ok || blk.n < 3*windowGroups {
		t.Fatal("the block is too small for this test", blk.n)
	}
	for bad := range blk.n {
		begin, _, _ := blk.group(bad)
		damaged := bytes.Clone(image)
		damaged[int(lo)+begin] |= 0xe0 // the first entry of a group has no suffix
		reseal(damaged)
		before := bad * groupSize
		for _, mode := range modes {
			r, err := mode.open(damaged, testID)
			if err != nil {
				t.Fatal(err)
			}
			it := r.Iter()
			n := 0
			for ; it.Next(); n++ {
				if n < len(pairs) && !bytes.Equal(it.Key(), pairs[n].key) {
					t.Fatalf("%s, group %d: %q is entry %d", mode.name, bad, it.Key(), n)
				}
			}
			if n != before || !errors.Is(it.Err(), holdfast.ErrCorrupt) {
				t.Errorf("%s, group %d: forward %d entries, want %d, and %v", mode.name, bad, n, before, it.Err())
			}
			r.Init(it)
			n = len(pairs)
			for it.Prev() {
				if n--; n >= 0 && !bytes.Equal(it.Key(), pairs[n].key) {
					t.Fatalf("%s, group %d: %q is entry %d", mode.name, bad, it.Key(), n)
				}
			}
			if after := min(before+groupSize, len(pairs)); n != after && bad < blk.n-1 ||
				!errors.Is(it.Err(), holdfast.ErrCorrupt) {
				t.Errorf("%s, group %d: backward down to %d, want %d, and %v", mode.name, bad, n, after, it.Err())
			}
			// From the error, a search elsewhere goes on.
			if far := sort.Search(len(pairs), func(i int) bool { return i >= before+groupSize }); far < len(pairs) {
				if !it.SeekGE(pairs[far].key) || it.Err() != nil || !bytes.Equal(it.Key(), pairs[far].key) {
					t.Errorf("%s, group %d: a search behind it: %v", mode.name, bad, it.Err())
				}
			}
			r.Close()
		}
	}
}
