package message

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/heap"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// window is what a subscription knows of the messages that it has looked at. Only set and put change it, and what put
// has changed, rollBack takes back.
type window struct {
	items map[uint64]*item // by global positions; each is in ready or in later
	ready heap.Heap[*item] // what may be delivered, by global positions
	later heap.Heap[*item] // what is delivered, or has failed, by when it may be delivered again
	bytes int              // bytes of the messages that items have
	done  map[uint64]bool  // acknowledged, at or above floor
	floor uint64           // all below is done, but for items
	next  uint64           // the first global position that has not been looked at
	undo  []was            // what was changed since the last commit
}

const (
	doneWindows  = 16   // how many windows of messages that are done are remembered
	advanceEvery = 1024 // global positions that nobody wants, after which a restart does not begin with them again
)

func newWindow() window {
	at := func(it *item, i int) { it.at = i }
	return window{items: map[uint64]*item{}, done: map[uint64]bool{},
		ready: heap.Heap[*item]{At: at, Less: func(a, b *item) bool { return a.global < b.global }},
		later: heap.Heap[*item]{At: at, Less: func(a, b *item) bool { return a.Until.Before(b.Until) }}}
}

// item is a message that was looked at and is not done. What was delivered of it is not changed, but put anew.
type item struct {
	delivery
	m    Message // without a stream if it has to be read, again
	read uint64  // how many removals the namespace had had when m was read

	global uint64
	in     *heap.Heap[*item]
	at     int // in that heap
}

// delivery is what is kept of a message that was delivered.
type delivery struct {
	Attempts int       `json:"attempts,omitempty"`
	Reason   string    `json:"reason,omitempty"` // of the last failure
	Done     bool      `json:"done,omitempty"`
	Parked   time.Time `json:"parked,omitzero"`
	lease              // kept by Close alone
}

// was is what was known of the message at a global position.
type was struct {
	global uint64
	it     *item
	done   bool
}

// set says what is known of the message at a global position: an item, or that it is done, or nothing any more.
func (w *window) set(global uint64, it *item, done bool) {
	if was := w.items[global]; was != nil {
		was.in.Remove(was.at)
		w.bytes -= was.m.bytes()
		delete(w.items, global)
	}
	if it != nil {
		it.global = global
		w.items[global] = it
		w.bytes += it.m.bytes()
		if it.Until.IsZero() {
			w.move(it, &w.ready)
		} else {
			w.move(it, &w.later)
		}
	}
	if done {
		w.done[global] = true
	} else {
		delete(w.done, global)
	}
}

func (w *window) move(it *item, to *heap.Heap[*item]) {
	it.in = to
	to.Push(it)
}

// pass makes ready what may be delivered by now.
func (w *window) pass(now time.Time) {
	for len(w.later.Items) > 0 && !w.later.Items[0].Until.After(now) {
		it := w.later.Items[0]
		w.later.Remove(0)
		w.move(it, &w.ready)
	}
}

// read keeps the message of an item, which was read after so many removals.
func (w *window) read(it *item, m Message, removals uint64) {
	w.bytes += m.bytes() - it.m.bytes()
	it.m, it.read = m, removals
}

// put is set in a change.
func (w *window) put(global uint64, it *item, done bool) {
	w.undo = append(w.undo, was{global, w.items[global], w.done[global]})
	w.set(global, it, done)
}

// mark is a place in what is changed.
type mark struct {
	undo  int
	floor uint64
}

func (w *window) mark() mark { return mark{len(w.undo), w.floor} }

// rollBack takes back what was changed since a mark.
func (w *window) rollBack(m mark) {
	for _, was := range slices.Backward(w.undo[m.undo:]) {
		w.set(was.global, was.it, was.done)
	}
	w.floor = m.floor
	w.forget(m.undo)
}

// forget forgets what would take back changes, but for the first n.
func (w *window) forget(n int) {
	clear(w.undo[n:])
	w.undo = w.undo[:n]
}

// low is the first global position that is not done.
func (w *window) low() uint64 {
	if w.items[w.floor] != nil {
		return w.floor
	}
	low := w.next
	for at := range w.items {
		if at >= w.floor {
			low = min(low, at)
		}
	}
	return low
}

// advance adds to b that the floor rises as far as all is done.
func (s *Subscription) advance(b *holdfast.Batch) {
	low := s.low()
	if low <= s.floor {
		return
	}
	for at := range s.done {
		if at < low {
			b.Delete(s.n.keys.Delivery(nil, s.name, at))
			s.put(at, nil, false)
		}
	}
	s.floor = low
	b.Set(s.n.keys.Delivery(nil, s.name, 0), format.AppendNumber(nil, low))
}

// finish changes that a message is done with, and adds it to b.
func (s *Subscription) finish(b *holdfast.Batch, global uint64) {
	kept := global >= s.floor
	s.put(global, nil, kept)
	if kept {
		s.keep(b, global, delivery{Done: true})
	} else { // it was parked once
		b.Delete(s.n.keys.Delivery(nil, s.name, global))
	}
	s.advance(b)
}

// keep adds to b what is kept of a message while the subscription is open: not its lease.
func (s *Subscription) keep(b *holdfast.Batch, global uint64, d delivery) {
	d.lease = lease{}
	b.Set(s.n.keys.Delivery(nil, s.name, global), d.encode())
}

func (d *delivery) encode() []byte {
	value, _ := json.Marshal(d) // of numbers, strings and times
	return value
}
