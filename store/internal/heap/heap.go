// Package heap has a binary heap whose items know where they lie, so that any of them can be taken out: for leases, by
// when they end, and for whatever else comes due.
package heap

// Heap is a binary heap. Items[0] is the least. If At is not nil it is told where each item lies, -1 for nowhere.
type Heap[T any] struct {
	Items []T
	Less  func(a, b T) bool
	At    func(item T, i int)
}

func (h *Heap[T]) set(i int, item T) {
	h.Items[i] = item
	if h.At != nil {
		h.At(item, i)
	}
}

// Push puts an item in.
func (h *Heap[T]) Push(item T) {
	h.Items = append(h.Items, item)
	h.up(len(h.Items)-1, item)
}

// Fix puts item, whose order has changed, from i to where it belongs.
func (h *Heap[T]) Fix(i int, item T) {
	if i > 0 && h.Less(item, h.Items[(i-1)/2]) {
		h.up(i, item)
	} else {
		h.down(i, item)
	}
}

// Remove takes out the item at i.
func (h *Heap[T]) Remove(i int) {
	if h.At != nil {
		h.At(h.Items[i], -1)
	}
	last := len(h.Items) - 1
	item := h.Items[last]
	var none T
	h.Items[last] = none
	h.Items = h.Items[:last]
	if i < last {
		h.Fix(i, item)
	}
}

func (h *Heap[T]) up(i int, item T) {
	for i > 0 && h.Less(item, h.Items[(i-1)/2]) {
		h.set(i, h.Items[(i-1)/2])
		i = (i - 1) / 2
	}
	h.set(i, item)
}

func (h *Heap[T]) down(i int, item T) {
	for {
		child := 2*i + 1
		if child >= len(h.Items) {
			break
		}
		if child+1 < len(h.Items) && h.Less(h.Items[child+1], h.Items[child]) {
			child++
		}
		if !h.Less(h.Items[child], item) {
			break
		}
		h.set(i, h.Items[child])
		i = child
	}
	h.set(i, item)
}
