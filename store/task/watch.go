package task

import "slices"

// Watch calls ended once a task is not held under the lease any more, whoever has ended that; at once if it is not now.
// That is before the change is durable, and not before the transaction has its place that it is a part of; a Heartbeat
// tells what it was. stop ends the watch: ended is not called after
// stop has returned. ended is called with the store's lock held: it neither blocks nor uses the store. If the store is
// closed or fails, it is not called. A nil ended watches nothing.
func (s *Store) Watch(l Lease, ended func()) (stop func()) {
	if ended == nil {
		return func() {}
	}
	s.lock()
	defer s.turn.Unlock()
	w := &watch{ended: ended}
	if s.joined == nil {
		s.watchFor(w, &l)
	} else { // what the transaction has done so far may be taken back
		s.late = append(s.late, func() { s.watchFor(w, &l) })
	}
	return func() {
		s.turn.Lock()
		defer s.turn.Unlock()
		if w.over = true; w.num == 0 {
			return
		}
		left := slices.DeleteFunc(s.watches[w.num], func(other *watch) bool { return other == w })
		if s.watches[w.num] = left; len(left) == 0 {
			delete(s.watches, w.num)
		}
	}
}

type watch struct {
	ended func()
	num   uint64 // the task's, once it is watched
	over  bool
}

// watchFor lets w watch the task of a lease.
func (s *Store) watchFor(w *watch, l *Lease) {
	if w.over {
		return
	}
	t, err := s.leased("watch", l)
	if err != nil {
		w.ended()
		return
	}
	if s.watches == nil {
		s.watches = map[uint64][]*watch{}
	}
	w.num = t.num
	s.watches[w.num] = append(s.watches[w.num], w)
}

// tellWatches tells those who watch tasks that run no more after the change.
func (x *tx) tellWatches() {
	if len(x.s.watches) == 0 {
		return
	}
	for _, m := range x.moves {
		if m.old != nil && m.old.state() == Running && (m.new == nil || m.new.state() != Running) {
			for _, w := range x.s.watches[m.old.num] {
				w.ended()
			}
			delete(x.s.watches, m.old.num)
		}
	}
}
