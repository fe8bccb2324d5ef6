package layers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// What is read through layers is what a map has to which the same was done, at once or in pieces, and a copy of layers
// stays as it was, whatever is written later.
func TestState(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	key := func() []byte { return fmt.Appendf(nil, "%02d", r.IntN(40)) }
	for round := range 300 {
		engine := mem.New()
		want := map[string]string{}
		state := State{Below: engine, Layers: make([]Layer, r.IntN(4))}
		type copied struct {
			state State
			want  map[string]string
		}
		var copies []copied
		for place := len(state.Layers); place >= 0; place-- {
			for range r.IntN(8) {
				b, edit, taken := new(holdfast.Batch), NewEdit(), 0
				take := func() {
					state.Layers[place].TakeFrom(edit, b, taken)
					taken = b.Size()
				}
				for range r.IntN(12) {
					if place < len(state.Layers) && r.IntN(2) == 0 {
						take()
					}
					k := key()
					switch r.IntN(8) {
					case 0:
						hi := key()
						if r.IntN(5) == 0 {
							hi = nil
						}
						b.DeleteRange(k, hi)
						maps.DeleteFunc(want, func(at, _ string) bool {
							return at >= string(k) && (hi == nil || at < string(hi))
						})
					case 1, 2:
						b.Delete(k)
						delete(want, string(k))
					default:
						value := fmt.Sprint("v", r.IntN(1000))[:r.IntN(3)]
						b.Set(k, []byte(value))
						want[string(k)] = value
					}
				}
				if place < len(state.Layers) {
					take()
					copies = append(copies, copied{State{engine, slices.Clone(state.Layers)}, maps.Clone(want)})
				} else if err := holdfast.Commit(engine, b, holdfast.Memory); err != nil {
					t.Fatal(err)
				}
			}
		}
		copies = append(copies, copied{state, want})
		// The same from batches that have each key once.
		again := State{Below: engine, Layers: make([]Layer, len(state.Layers))}
		for i := range state.Layers {
			var b holdfast.Batch
			state.Layers[i].AppendTo(&b)
			if most := len(state.Layers[i].gone) + int(state.Layers[i].keys.Count()); b.Len() != most {
				t.Fatalf("seed %d, round %d: a layer of %d keys and ranges makes %d operations", seed, round, most, b.Len())
			}
			again.Layers[i].Take(&b)
		}
		copies = append(copies, copied{again, want})
		for i := range copies {
			c := &copies[i]
			for n := range 40 {
				k := fmt.Sprintf("%02d", n)
				got, err := c.state.Get([]byte(k))
				if value, ok := c.want[k]; err != nil || (got != nil) != ok || string(got) != value {
					t.Fatalf("seed %d, round %d: copy %d of %d: %s is %q, %v", seed, round, i, len(copies), k, got, err)
				}
			}
			within := holdfast.Range{Lo: key(), Hi: key(), Reverse: r.IntN(2) == 0}
			var got, expected []string
			it := c.state.Scan(within)
			for it.Next() {
				got = append(got, string(it.Key())+"="+string(it.Value()))
			}
			if err := it.Err(); err != nil {
				t.Fatal(err)
			}
			if err := it.Close(); err != nil {
				t.Fatal(err)
			}
			for _, k := range slices.Sorted(maps.Keys(c.want)) {
				if k >= string(within.Lo) && k < string(within.Hi) {
					expected = append(expected, k+"="+c.want[k])
				}
			}
			if within.Reverse {
				slices.Reverse(expected)
			}
			if !slices.Equal(got, expected) {
				t.Fatalf("seed %d, round %d: copy %d of %d: in %+v there is %q, want %q", seed, round, i, len(copies), within,
					got, expected)
			}
		}
		if err := engine.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
