package raftlog

import (
	"errors"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// edit is a write that touches entries which readers may see.
type edit struct {
	format.Span
	// keeps is true if what is still found in the span is what was there before: entries are
	// deleted and none can be appended among them.
	keeps bool
	done  chan struct{} // closed when it is settled
	err   error         // set before done is closed: what is in the span is not known
}

// wait returns when the edit is settled.
func (e *edit) wait() error {
	<-e.done
	return e.err
}

// beginEdit announces an edit to readers, before it is applied.
func (s *Store) beginEdit(span format.Span, keeps bool) *edit {
	e := &edit{Span: span, keeps: keeps, done: make(chan struct{})}
	s.edit.Store(e)
	return e
}

// endEdit tells those who wait how it ended. unknown is the error after which nobody knows what is
// in the span; it then stays announced.
func (s *Store) endEdit(e *edit, unknown error) {
	if e.err = unknown; unknown == nil {
		s.edit.Store(nil)
	}
	close(e.done)
}

// alone runs f while no other edit is under way and nothing is left in the dead span. mu is not held.
func (s *Store) alone(f func() error) error {
	s.editing.Lock()
	defer s.editing.Unlock()
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.edit.Load() != nil { // one has failed
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.state()
	}
	if err := s.reclaim(); err != nil {
		return err
	}
	return f()
}

// overwrite is the part of store for entries that are no mere append. It is called by alone.
func (s *Store) overwrite(e *encoder, logs []*raft.Log, n int, touched format.Span, ascending bool) error {
	ed := s.beginEdit(touched, false)
	s.mu.Lock()
	err := s.place(e, logs, n, touched, ascending)
	m := s.mark()
	s.mu.Unlock()
	if err != nil && !inPart(err) {
		s.endEdit(ed, nil) // without effect
		return err
	}
	waited := s.settle(m)
	s.endEdit(ed, waited)
	if waited != nil {
		return waited
	}
	return err
}

// pieceSize is how many indexes are removed at a time where the cost of removing a range grows with
// what is in it.
const pieceSize = 4096

// DeleteRange deletes the entries from min to max, both included, and returns when that has reached
// the store's level and their space is the engine's again. Indexes without entries are no error, nor
// is min > max, which names nothing. All of the entries go at once, for readers and in a crash.
//
// Where the engine removes keys one by one, they are then removed in pieces. If that ends early,
// because of a crash or an error, the next call, with whatever range, goes on with it.
//
// A monotonic store refuses with ErrOrder to delete entries that have others on both sides.
func (s *Store) DeleteRange(min, max uint64) error {
	return s.alone(func() error {
		if min > max {
			return nil
		}
		e := s.encoders.Get().(*encoder)
		defer s.free(e)
		if err := s.remove(e, min, max); err != nil {
			return err
		}
		return s.reclaim()
	})
}

// remove deletes the entries for all to see; some may be left as the dead span. It is called with
// editing held.
func (s *Store) remove(e *encoder, lo, hi uint64) error {
	// Whether an edge of the log moves, and where to, is planned for the log as it is once
	// everything applied has happened. Appends may come in between: then the plan is made anew,
	// which ends because what is deleted can at most cease to be all there is, or the end of it.
	for {
		s.mu.Lock()
		p, m := s.planned, s.mark()
		err := s.state()
		s.mu.Unlock()
		if err != nil || p.empty() || lo >= p.end || hi < p.begin {
			return err
		}
		dead := format.Span{Lo: max(lo, p.begin), Hi: min(hi, p.last())}
		prefix, suffix := dead.Lo == p.begin, dead.Hi == p.last()
		if s.monotonic && !prefix && !suffix {
			return s.fail("delete", ErrOrder, nil, "", "entries %d to %d have others on both sides, the log goes from %d to %d", dead.Lo, dead.Hi, p.begin, p.last())
		}
		after := p
		switch {
		case prefix && suffix:
			after.begin, after.end = 0, 0
		case prefix || suffix:
			// The neighbour is looked up in the engine, which is sure to show only what is
			// durable.
			if err := s.settle(m); err != nil {
				return err
			}
			if prefix {
				after.begin, err = s.neighbour(dead.Hi+1, p.last(), false)
			} else {
				after.end, err = s.neighbour(p.begin, dead.Lo-1, true)
				after.end++
			}
			if err != nil {
				return err
			}
		}
		if done, err := s.apply(e, p, after, dead, suffix); done || err != nil {
			return err
		}
	}
}

// neighbour returns the index of the entry that becomes an edge of the log. There is one from lo to
// hi.
func (s *Store) neighbour(lo, hi uint64, last bool) (uint64, error) {
	index, found, err := s.edge(lo, hi, last)
	if err == nil && !found {
		err = s.fail("delete", holdfast.ErrCorrupt, nil, damaged, "there are no entries from %d to %d, one of which is an end of the log", lo, hi)
	}
	return index, err
}

// apply makes after of the log, which p was the plan for, by deleting what is in dead. It reports
// whether it did: not if the log has changed too much.
func (s *Store) apply(e *encoder, p, after bounds, dead format.Span, suffix bool) (bool, error) {
	// All of it in one batch, unless that could be much work; then what is left is the dead span.
	pieces := !s.caps.NativeDeleteRange && dead.Hi-dead.Lo >= pieceSize
	// What is touched is all that the log loses, a gap before a suffix too: an append can come there
	// while readers still see the old end.
	touched := dead
	if suffix && !after.empty() {
		touched.Lo = after.end
	}
	for {
		ed := s.beginEdit(touched, !suffix)
		s.mu.Lock()
		err := s.state()
		done := err == nil && (s.planned.begin == p.begin) && (s.planned.end == p.end || !suffix)
		if done {
			if !suffix {
				after.end = s.planned.end
			}
			// The commit index goes down with the log: what comes to be there is not committed.
			if after.commit = s.planned.commit; after.empty() {
				after.commit = 0
			} else {
				after.commit = min(after.commit, after.last())
			}
			after.dead = nil
			e.batch.Reset()
			if pieces {
				after.dead = &dead
			} else {
				from, to := s.span(dead.Lo, dead.Hi)
				e.batch.DeleteRange(from, to)
			}
			s.describe(&e.batch, e, after)
			var receipt holdfast.Receipt
			if receipt, err = s.eng.Apply(&e.batch, s.level); err == nil {
				s.applied(receipt, after)
				if suffix {
					s.lowerStaged(after)
				}
			}
		}
		m := s.mark()
		s.mu.Unlock()
		if errors.Is(err, holdfast.ErrTooLarge) && !pieces {
			pieces = true
			s.endEdit(ed, nil)
			continue
		}
		if err != nil || !done {
			s.endEdit(ed, nil) // without effect
			return false, err
		}
		err = s.settle(m)
		s.endEdit(ed, err)
		return true, err
	}
}

// lowerStaged makes the staged commit index one of the log b, whose end has been deleted.
func (s *Store) lowerStaged(b bounds) {
	limit := uint64(0) // none
	if !b.empty() {
		limit = b.last() + 1
	}
	for staged := s.staged.Load(); staged > limit && !s.staged.CompareAndSwap(staged, limit); {
		staged = s.staged.Load()
	}
}

// reclaim removes what is left in the dead span. It is called with editing held.
func (s *Store) reclaim() error {
	s.mu.Lock()
	dead := s.planned.dead
	s.mu.Unlock()
	if dead == nil {
		return nil
	}
	e := s.encoders.Get().(*encoder)
	defer s.free(e)
	for lo, step := dead.Lo, uint64(pieceSize); ; {
		// Empty pieces are skipped: a span can be much longer than what is in it.
		first, found, err := s.edge(lo, dead.Hi, false)
		if err != nil {
			return err
		}
		if found {
			lo = first
		}
		hi := dead.Hi
		if found && hi-lo >= step {
			hi = lo + step - 1
		}
		switch err := s.removePiece(e, lo, hi, found && hi < dead.Hi); {
		case err == nil && hi == dead.Hi:
			return nil
		case err == nil:
			lo = hi + 1
		case errors.Is(err, holdfast.ErrTooLarge) && hi > lo:
			step = (hi-lo)/2 + 1
		default:
			return err
		}
	}
}

// removePiece removes the entries from lo to hi of the dead span, which ends there unless more is
// left.
func (s *Store) removePiece(e *encoder, lo, hi uint64, more bool) error {
	s.mu.Lock()
	err := s.state()
	if err == nil {
		after := s.planned
		e.batch.Reset()
		from, to := s.span(lo, hi)
		e.batch.DeleteRange(from, to)
		if !more {
			after.dead = nil
		}
		s.describe(&e.batch, e, after)
		var receipt holdfast.Receipt
		if receipt, err = s.eng.Apply(&e.batch, s.level); err == nil {
			s.applied(receipt, after)
		}
	}
	m := s.mark()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.settle(m)
}
