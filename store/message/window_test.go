package message

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestWindow changes a window at random and takes changes back, and compares it with plain maps: what is known of a
// message is what was put last and not taken back, and the heaps and the number of bytes fit it.
func TestWindow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	w, now := newWindow(), time.Now()
	w.next = 51
	type state struct {
		items map[uint64]*item
		done  map[uint64]bool
		floor uint64
	}
	present := func() state { return state{maps.Clone(w.items), maps.Clone(w.done), w.floor} }
	model := present()
	var marks []mark
	var before []state
	for step := range 20_000 {
		global := 1 + r.Uint64N(50)
		switch k := r.IntN(12); {
		case k < 8:
			it, done := (*item)(nil), k == 0
			if k > 1 {
				it = &item{m: Message{Data: make([]byte, r.IntN(9))}}
				if r.IntN(2) == 0 {
					it.lease = lease{1, now.Add(time.Duration(r.IntN(100)-20) * time.Second)}
				}
			}
			w.put(global, it, done)
			delete(model.items, global)
			delete(model.done, global)
			if it != nil {
				model.items[global] = it
			} else if done {
				model.done[global] = true
			}
		case k == 8:
			w.floor = r.Uint64N(50)
			model.floor = w.floor
		case k == 9:
			now = now.Add(time.Second)
			w.pass(now)
			if it := w.items[global]; it != nil {
				w.read(it, Message{Data: make([]byte, r.IntN(9))}, 0)
			}
		case k == 10 && len(marks) < 5:
			marks, before = append(marks, w.mark()), append(before, present())
		case len(marks) == 0:
			w.forget(0)
		default:
			last := len(marks) - 1
			w.rollBack(marks[last])
			model = before[last]
			marks, before = marks[:last], before[:last]
		}

		low, bytes, ready := w.next, 0, 0
		for global, it := range model.items {
			if bytes += it.m.bytes(); global >= model.floor {
				low = min(low, global)
			}
			if it.in == &w.ready {
				ready++
			}
			if it.global != global || it.in.Items[it.at] != it || it.in == &w.later && it.Until.IsZero() ||
				it.in == &w.ready && it.Until.After(now) {
				t.Fatalf("step %d: at %d is %+v", step, global, it)
			}
		}
		if !maps.Equal(w.items, model.items) || !maps.Equal(w.done, model.done) || w.floor != model.floor ||
			w.bytes != bytes || w.low() != low || len(w.ready.Items) != ready ||
			len(w.ready.Items)+len(w.later.Items) != len(model.items) {
			t.Fatalf("step %d: %d bytes, low %d, %d ready, floor %d; want %d, %d, %d, %d", step, w.bytes, w.low(),
				len(w.ready.Items), w.floor, bytes, low, ready, model.floor)
		}
		older := func(it *item) bool { return it.global < w.ready.Items[0].global }
		if ready > 0 && slices.ContainsFunc(w.ready.Items, older) {
			t.Fatalf("step %d: %d is not the oldest", step, w.ready.Items[0].global)
		}
	}
}
