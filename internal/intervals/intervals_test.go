package intervals_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/intervals"
)

// within reports whether key is in [lo, hi).
func within(key, lo, hi string) bool { return key >= lo && (hi == "" || key < hi) }

// TestSplit: random batches, have the same result applied in order and split.
func TestSplit(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	name := func(n int) string { return string([]byte{'a' + byte(r.IntN(n))}) }
	for round := range 5000 {
		want, got := map[string]string{}, map[string]string{}
		for range r.IntN(10) {
			want[name(20)] = "old"
		}
		maps.Copy(got, want)
		var ops []holdfast.Op
		for i := range r.IntN(30) {
			key, value := name(20), string(rune('A'+i))
			switch r.IntN(4) {
			case 0:
				ops = append(ops, holdfast.Op{Kind: holdfast.KindDelete, Key: []byte(key)})
				delete(want, key)
			case 1:
				hi := name(20)
				if r.IntN(10) == 0 {
					key = ""
				}
				if r.IntN(10) == 0 {
					hi = ""
				}
				ops = append(ops, holdfast.Op{Kind: holdfast.KindDeleteRange, Key: []byte(key), Value: []byte(hi)})
				maps.DeleteFunc(want, func(k, _ string) bool { return within(k, key, hi) })
			default:
				ops = append(ops, holdfast.Op{Kind: holdfast.KindSet, Key: []byte(key), Value: []byte(value)})
				want[key] = value
			}
		}
		shown := slices.Clone(ops)
		covered, left := intervals.Split(ops)
		for i, c := range covered {
			maps.DeleteFunc(got, func(k, _ string) bool { return within(k, string(c.Lo), string(c.Hi)) })
			if i > 0 && string(covered[i-1].Hi) >= string(c.Lo) {
				t.Fatalf("seed %d, round %d: %q are not disjoint and in order", seed, round, covered)
			}
		}
		for _, op := range left {
			if op.Kind == holdfast.KindDelete {
				delete(got, string(op.Key))
			} else {
				got[string(op.Key)] = string(op.Value)
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d, round %d: %q\ncomes to %v, not %v", seed, round, shown, got, want)
		}
	}
}

// The union of random intervals holds what one of them holds.
func TestUnion(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		var r intervals.Union
		var all []intervals.Interval
		for range rnd.IntN(8) {
			i := intervals.Interval{Lo: []byte{byte(rnd.IntN(20))}, Hi: []byte{byte(rnd.IntN(20))}}
			switch rnd.IntN(8) {
			case 0:
				i.Lo = nil
			case 1:
				i.Hi = nil
			}
			all = append(all, i)
			r.Add(i.Lo, i.Hi)
		}
		for n := range 21 {
			k, want := []byte{byte(n)}, false
			for _, i := range all {
				want = want || bytes.Compare(i.Lo, k) <= 0 && (len(i.Hi) == 0 || bytes.Compare(k, i.Hi) < 0)
			}
			if got := r.Has(k); got != want {
				t.Fatalf("seed %d: %v holds %v: %v; it is made of %v", seed, r, k, got, all)
			}
		}
		for n := 1; n < len(r); n++ {
			if bytes.Compare(r[n-1].Hi, r[n].Lo) >= 0 || len(r[n-1].Hi) == 0 {
				t.Fatalf("seed %d: %v is not disjoint and in order", seed, r)
			}
		}
	}
}
