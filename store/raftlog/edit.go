package raftlog

import (
	"errors"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// edit is a write that touches entries which readers may see.
type edit struct {
	format.Span
	// keeps is true if entries still found in the span are those from before: entries are
	// deleted and none can be appended among them.
	keeps bool
	done  chan struct{} // closed when it is settled
	err   error         // set before done is closed: the contents of the span are unknown
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

// endEdit wakes the readers that wait for the edit. unknown is the error after which the contents of
// the span are unknown; the edit then stays announced.
func (s *Store) endEdit(e *edit, unknown error) {
	if e.err = unknown; unknown == nil {
		s.edit.Store(nil)
	}
	close(e.done)
}

// turns is a fair mutex: waiters get it in the order in which they came. So a caller that removes a long span in
// chunks, and asks again at once after each, lets all others in between.
type turns chan struct{} // of capacity 1

func (t turns) lock()   { t <- struct{}{} }
func (t turns) unlock() { <-t }

// turn runs f while no other edit is in progress. mu is not held.
func (s *Store) turn(f func() error) error {
	s.editing.lock()
	defer s.editing.unlock()
	if err := s.life.Enter(); err != nil {
		return err
	}
	defer s.life.Leave()
	if s.edit.Load() != nil { // one has failed
		s.mu.Lock()
		defer s.mu.Unlock()

		return s.state()
	}

	return f()
}

// alone is turn for an f that needs the indexes of touched not to be in a dead span.
func (s *Store) alone(touched format.Span, f func() error) error {
	for {
		clear := false
		err := s.turn(func() error {
			if clear = !s.isDead(touched); clear {
				return f()
			}

			return s.removeChunk(touched)
		})
		if err != nil || clear {
			return err
		}
	}
}

// isDead reports whether an index of span is in a dead span.
func (s *Store) isDead(span format.Span) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.planned.dead.meets(span)
}

// overwrite is the part of store for edits. It is called by alone.
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

// everything is the span of all indexes.
var everything = format.Span{Hi: noEnd}

// DeleteRange deletes the entries from min to max, both included, and returns when that has reached
// the store's level and the engine can use their space again. Indexes without entries are no error, nor
// is min > max, which names nothing. The deletion is atomic, for readers and in a crash.
//
// Where the engine removes keys one by one, more than a chunk (512 entries or 1 MiB) is then removed in
// chunks, and every other call gets its turn in between. If that ends early, because of a crash, an
// error or Close, the next call of DeleteRange continues it, whatever its range, except a call that
// deletes the end of the log, for which raft waits: that removes only its own entries. After Close it
// returns nil all the same, because the entries are deleted.
//
// A monotonic store refuses with ErrOrder to delete entries that have others on both sides.
func (s *Store) DeleteRange(min, max uint64) error {
	var d deletion
	for !d.placed {
		err := s.turn(func() (err error) {
			if min > max {
				d.placed = true
				return nil
			}

			e := s.encoders.Get().(*encoder)
			defer s.free(e)
			if d, err = s.remove(e, min, max); err != nil || d.placed {
				return err
			}

			return s.removeChunk(everything) // this dead span comes first
		})
		if err != nil {
			return err
		}
	}
	var err error
	if !d.end && s.removing.CompareAndSwap(false, true) {
		defer s.removing.Store(false)
		err = s.removeAll(everything)
	} else if d.gone != nil {
		err = s.removeAll(*d.gone)
	}
	if errors.Is(err, holdfast.ErrClosed) {
		return nil // the deletion has taken effect, the rest can wait
	}

	return err
}

// deletion is the state of a call of DeleteRange.
type deletion struct {
	placed bool         // it has taken effect; deleted entries may still be in a dead span
	gone   *format.Span // what it has deleted, nil for nothing
	end    bool         // that was the end of the log, and not all of it
}

// removeAll removes the dead entries among the indexes of wanted, chunk by chunk.
func (s *Store) removeAll(wanted format.Span) error {
	for s.isDead(wanted) {
		err := s.turn(func() error {
			if !s.isDead(wanted) { // any more
				return nil
			}

			return s.removeChunk(wanted)
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// remove deletes the entries for all readers; some may be left in a dead span. It is not placed if
// there is no room for another dead span. It is called with editing held.
func (s *Store) remove(e *encoder, lo, hi uint64) (deletion, error) {
	// Whether an edge of the log moves, and where to, is planned for the log as it will be once
	// everything applied has settled. If an append comes in between, the plan is made again. That
	// ends: an append can only make the deleted entries cease to be the whole log, or its end.
	for {
		s.mu.Lock()
		p, m := s.planned, s.mark()
		err := s.state()
		s.mu.Unlock()
		if err != nil || p.empty() || lo >= p.end || hi < p.begin {
			return deletion{placed: true}, err
		}
		gone := format.Span{Lo: max(lo, p.begin), Hi: min(hi, p.last())}
		prefix, suffix := gone.Lo == p.begin, gone.Hi == p.last()
		if s.monotonic && !prefix && !suffix {
			return deletion{}, s.fail("delete", ErrOrder, nil, "",
				"entries %d to %d have others on both sides, the log goes from %d to %d", gone.Lo, gone.Hi, p.begin, p.last())
		}
		// The engine is asked for the neighbour and for the keys to delete, and must show only
		// durable entries.
		if err := s.settle(m); err != nil {
			return deletion{}, err
		}

		after := p
		switch {
		case prefix && suffix:
			after.begin, after.end = 0, 0
		case prefix:
			after.begin, err = s.neighbour(gone.Hi+1, p.last(), false, p.holes())
		case suffix:
			after.end, err = s.neighbour(p.begin, gone.Lo-1, true, p.holes())
			after.end++
		}
		if err == nil {
			after.dead, err = s.erase(&e.batch, p, gone)
		}
		if err != nil || len(after.dead.list()) > maxSpans {
			return deletion{}, err
		}

		switch done, err := s.apply(e, p, after, gone, suffix); {
		case errors.Is(err, holdfast.ErrTooLarge) && s.chunkKeys > 1:
			s.chunkKeys /= 2 // the engine has a limit of its own
		case done || err != nil:
			return deletion{placed: true, gone: &gone, end: suffix && !prefix}, err
		}
	}
}

// erase sets b to the removal of the entries in gone, and returns the dead spans that p then has: with gone, and an
// empty b, if it is to be removed in chunks.
func (s *Store) erase(b *holdfast.Batch, p bounds, gone format.Span) (*spans, error) {
	b.Reset()
	from, to := s.span(gone.Lo, gone.Hi)
	atOnce, keys := s.caps.NativeDeleteRange && s.chunkKeys == chunks.Keys, s.chunkKeys
	if atOnce {
		keys = chunks.Few
	}

	_, more, err := chunks.Cut(b, s.eng, holdfast.Range{Lo: from, Hi: to}, keys, chunks.Bytes)
	switch {
	case atOnce && (more || err != nil):
		b.Reset()
		b.DeleteRange(from, to)

		return p.dead, nil
	case more:
		b.Reset()
		return p.dead.with(gone), nil
	}

	return p.dead, err
}

// neighbour returns the index of the entry that becomes an edge of the log. There is one from lo to
// hi.
func (s *Store) neighbour(lo, hi uint64, last bool, holes []format.Span) (uint64, error) {
	index, found, err := s.live(lo, hi, last, holes)
	if err == nil && !found {
		err = s.fail("delete", holdfast.ErrCorrupt, nil, damaged,
			"there are no entries from %d to %d, one of which is an end of the log", lo, hi)
	}

	return index, err
}

// apply changes the log, for which p was the plan, into after, with e's batch, which deletes the entries in gone. It
// reports whether it did: not if the log has changed too much.
func (s *Store) apply(e *encoder, p, after bounds, gone format.Span, suffix bool) (bool, error) {
	// The edit touches all indexes that the log loses, also a gap before a suffix: an append can
	// come there while readers still see the old end.
	touched := gone
	if suffix && !after.empty() {
		touched.Lo = after.end
	}
	ed := s.beginEdit(touched, !suffix)
	s.mu.Lock()
	err := s.state()
	done := err == nil && (s.planned.begin == p.begin) && (s.planned.end == p.end || !suffix)
	if done {
		if !suffix {
			after.end = s.planned.end
		}
		// The commit index goes down with the log: entries stored there later are not committed.
		if after.commit = s.planned.commit; after.empty() {
			after.commit = 0
		} else {
			after.commit = min(after.commit, after.last())
		}
		if after.void = s.planned.void; suffix {
			void := format.Span{Lo: after.end, Hi: gone.Hi}
			if after.void != nil {
				void.Hi = max(void.Hi, after.void.Hi)
			}
			after.void = &void
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
	if err != nil || !done {
		s.endEdit(ed, nil) // without effect
		return false, err
	}
	err = s.settle(m)
	s.endEdit(ed, err)

	return true, err
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

// removeChunk removes a chunk of the first dead span that has an index of wanted, and leaves the rest in it. The chunk
// begins at the first such index; if the span cannot be divided any more, at the end of it that frees the indexes of
// wanted sooner. It is called with editing held, and there is such a span.
func (s *Store) removeChunk(wanted format.Span) error {
	s.mu.Lock()
	all := s.planned.dead // changes under editing
	s.mu.Unlock()
	dead, _ := all.meeting(wanted)
	down := false
	if len(*all) < maxSpans {
		dead.Lo = max(dead.Lo, wanted.Lo)
	} else {
		down = dead.Hi-max(dead.Lo, wanted.Lo) < min(dead.Hi, wanted.Hi)-dead.Lo
	}

	e := s.encoders.Get().(*encoder)
	defer s.free(e)

	for {
		chunk, err := s.cut(&e.batch, dead, down)
		if err != nil {
			return err
		}
		if err := s.removeDead(e, all.without(chunk)); !errors.Is(err, holdfast.ErrTooLarge) || s.chunkKeys == 1 {
			return err
		}
		s.chunkKeys /= 2 // the engine has a limit of its own
	}
}

// cut returns a chunk from the beginning of a dead span, or from its end, and sets b to the removal of its entries.
func (s *Store) cut(b *holdfast.Batch, dead format.Span, down bool) (format.Span, error) {
	b.Reset()
	from, to := s.span(dead.Lo, dead.Hi)
	key, more, err := chunks.Cut(b, s.eng, holdfast.Range{Lo: from, Hi: to, Reverse: down}, s.chunkKeys, chunks.Bytes)
	if err != nil || !more {
		return dead, err
	}

	index, ok := s.keys.Number(key)
	switch {
	case !ok:
		return dead, s.strange(key)
	case down:
		return format.Span{Lo: index, Hi: dead.Hi}, nil
	default:
		return format.Span{Lo: dead.Lo, Hi: index}, nil
	}
}

// removeDead applies e's batch, which removes the dead entries except those in rest.
func (s *Store) removeDead(e *encoder, rest *spans) error {
	s.mu.Lock()
	err := s.state()
	if err == nil {
		after := s.planned
		after.dead = rest
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
