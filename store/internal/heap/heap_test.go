package heap

import (
	"math/rand/v2"
	"testing"
)

type item struct{ order, at int }

// TestHeap puts items in, changes their order and takes any of them out: the first is always the least, and each knows
// where it lies.
func TestHeap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	h := Heap[*item]{Less: func(a, b *item) bool { return a.order < b.order }, At: func(it *item, i int) { it.at = i }}
	for range 20_000 {
		switch k := r.IntN(4); {
		case k < 2 && len(h.Items) < 100 || len(h.Items) == 0:
			h.Push(&item{order: r.IntN(50)})
		case k == 2:
			it := h.Items[r.IntN(len(h.Items))]
			it.order = r.IntN(50)
			h.Fix(it.at, it)
		default:
			it := h.Items[r.IntN(len(h.Items))]
			h.Remove(it.at)
			if it.at != -1 {
				t.Fatal("what was taken out lies at", it.at)
			}
		}
		for i, it := range h.Items {
			if it.at != i || it.order < h.Items[0].order {
				t.Fatalf("%+v lies at %d, behind %+v", *it, i, *h.Items[0])
			}
		}
	}
}
