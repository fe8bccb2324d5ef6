package event

import (
	"context"
	"errors"

	"github.com/holdfastdb/holdfast"
)

// truncateEvents is how many events are removed at a time where the cost of removing a
// range grows with what is in it.
const truncateEvents = 4096

// TruncateBefore removes all events below position and returns how many the log has become
// shorter by. A position at or below the first removes nothing; one above Last()+1 is
// ErrAhead.
//
// First the beginning of the log is moved, at the store's level: from then on the events
// are gone for every reader, after a crash too. Then the engine is told to drop them, in
// pieces where it needs that. If that ends early, because of a crash, an error or ctx, the
// next call, with the same position even, goes on with it. Small events that were appended together
// are dropped together, once the last of them is truncated.
func (s *Store) TruncateBefore(ctx context.Context, pos uint64) (removed uint64, err error) {
	s.truncating.Lock()
	defer s.truncating.Unlock()
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.leave()
	first := s.first.Load()
	if last := s.durable.Load(); pos > last+1 {
		return 0, s.fail("truncate", ErrAhead, nil, "", "position %d, the last one is %d", pos, last)
	}
	if pos > first {
		if err := s.commitMeta(pos); err != nil {
			return 0, err
		}
		s.first.Store(pos)
		removed, first = pos-first, pos
	}
	return removed, s.reclaim(ctx, first)
}

// reclaim removes the events below first.
func (s *Store) reclaim(ctx context.Context, first uint64) error {
	lo, err := s.edge(false)
	if err != nil || lo == 0 {
		return err
	}
	step := uint64(truncateEvents)
	if s.caps.NativeDeleteRange {
		step = first
	}
	var b holdfast.Batch
	for lo < first {
		if err := ctx.Err(); err != nil {
			return err
		}
		hi := min(lo+step, first)
		b.Reset()
		b.DeleteRange(s.keys.Event(nil, lo), s.keys.Event(nil, hi))
		err := s.commit(&b)
		switch {
		case err == nil:
			lo = hi
		case errors.Is(err, holdfast.ErrTooLarge) && hi-lo > 1:
			step = (hi - lo) / 2
		default:
			return err
		}
	}
	return nil
}
