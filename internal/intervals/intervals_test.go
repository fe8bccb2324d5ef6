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

// A union from which keys are cut, and to which some are added beside its intervals, holds what a set of keys has to
// which the same was done; what is trimmed off a range is in it.
func TestUnionOfKeys(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	var keys []string // all, in order
	for _, a := range []string{"a", "b", "c"} {
		keys = append(keys, a, a+"\x00", a+"\x00\x00", a+"\x01")
	}
	for range 2000 {
		var u intervals.Union
		has := map[string]bool{}
		for step := range 20 {
			key := keys[rnd.IntN(len(keys))]
			lo, hi := key, keys[rnd.IntN(len(keys))]
			switch rnd.IntN(4) {
			case 0:
				u.Add([]byte(lo), []byte(hi))
				for _, k := range keys {
					has[k] = has[k] || within(k, lo, hi)
				}
			case 1:
				if was := u.Cut([]byte(key)); (was != nil) != has[key] || was != nil && string(was) != key {
					t.Fatalf("seed %d, step %d: %q was in it: %q; %q", seed, step, key, was, u)
				}
				has[key] = false
			case 2:
				beside := slices.ContainsFunc(u, func(i intervals.Interval) bool {
					return string(i.Lo) <= key+"\x00" && string(i.Hi) >= key
				})
				u.Extend([]byte(key))
				has[key] = has[key] || beside
			default:
				if lo >= hi {
					continue
				}
				from, to := u.Trim([]byte(lo), []byte(hi))
				for _, k := range keys {
					if within(k, lo, hi) && (k < string(from) || k >= string(to)) && !has[k] {
						t.Fatalf("seed %d, step %d: %q is trimmed off [%q, %q): %q", seed, step, k, lo, hi, u)
					}
				}
				if bytes.Compare(from, to) < 0 && u.Has(from) {
					t.Fatalf("seed %d, step %d: %q is left of [%q, %q): %q", seed, step, from, lo, hi, u)
				}
			}
			for _, k := range keys {
				if u.Has([]byte(k)) != has[k] {
					t.Fatalf("seed %d, step %d: %q is in it: %v; %q", seed, step, k, !has[k], u)
				}
			}
			for n := 1; n < len(u); n++ {
				if bytes.Compare(u[n-1].Hi, u[n].Lo) > 0 {
					t.Fatalf("seed %d: %q is not in order", seed, u)
				}
			}
		}
	}
}
