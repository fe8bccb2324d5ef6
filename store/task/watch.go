package task

import "slices"

// Watch calls ended once a task is not held under the lease any more, whoever has ended that; at once if it is not now.
// That is before the change is durable; a Heartbeat tells what it was. stop ends the watch: ended is not called after
// stop has returned. ended is called with the store's lock held: it neither blocks nor uses the store. If the store is
// closed or fails, it is not called. A nil ended watches nothing.
func (s *Store) Watch(l Lease, ended func()) (stop func()) {
	if ended == nil {
		return func() {}
	}
	s.lock()
	defer s.mu.Unlock()
	t, err := s.leased("watch", &l)
	if err != nil {
		ended()
		return func() {}
	}
	if s.watches == nil {
		s.watches = map[uint64][]*watch{}
	}
	w := &watch{ended}
	s.watches[t.num] = append(s.watches[t.num], w)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		left := slices.DeleteFunc(s.watches[t.num], func(other *watch) bool { return other == w })
		if s.watches[t.num] = left; len(left) == 0 {
			delete(s.watches, t.num)
		}
	}
}

type watch struct{ ended func() }

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
