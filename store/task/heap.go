package task

// heap is a binary heap. The first item is the least. If at is not nil it is told where each item lies, -1 for nowhere.
type heap[T any] struct {
	items []T
	less  func(a, b T) bool
	at    func(item T, i int)
}

func (h *heap[T]) set(i int, item T) {
	h.items[i] = item
	if h.at != nil {
		h.at(item, i)
	}
}

func (h *heap[T]) push(item T) {
	h.items = append(h.items, item)
	h.up(len(h.items)-1, item)
}

// fix puts item, whose order has changed, from i to where it belongs.
func (h *heap[T]) fix(i int, item T) {
	if i > 0 && h.less(item, h.items[(i-1)/2]) {
		h.up(i, item)
	} else {
		h.down(i, item)
	}
}

func (h *heap[T]) remove(i int) {
	if h.at != nil {
		h.at(h.items[i], -1)
	}
	last := len(h.items) - 1
	item := h.items[last]
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	if i < last {
		h.fix(i, item)
	}
}

func (h *heap[T]) up(i int, item T) {
	for i > 0 && h.less(item, h.items[(i-1)/2]) {
		h.set(i, h.items[(i-1)/2])
		i = (i - 1) / 2
	}
	h.set(i, item)
}

func (h *heap[T]) down(i int, item T) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if child+1 < len(h.items) && h.less(h.items[child+1], h.items[child]) {
			child++
		}
		if !h.less(h.items[child], item) {
			break
		}
		h.set(i, h.items[child])
		i = child
	}
	h.set(i, item)
}
