package event

import (
	"context"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/pieces"
)

// TruncateBefore removes all events below position and returns how many the log has become
// shorter by. A position at or below the first removes nothing; one above Last()+1 is
// ErrAhead.
//
// First the beginning of the log is moved, at the store's level: from then on the events
// are gone for every reader, after a crash too. Then the engine is told to drop them, in
// pieces where it needs that. If that ends early, because of a crash, an error, Close or ctx, the
// next call, with the same position even, goes on with it. Small events that were appended together
// are dropped together, once the last of them is truncated.
func (s *Store) TruncateBefore(ctx context.Context, pos uint64) (removed uint64, err error) {
	s.truncating.Lock()
	defer s.truncating.Unlock()
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.door.Leave()
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
	return removed, s.met(s.reclaim(ctx, first))
}

// reclaim removes the events below first. Where the engine removes keys one by one it does so in
// pieces, so that an append waits for one of them at most.
func (s *Store) reclaim(ctx context.Context, first uint64) error {
	pos, err := s.edge(false)
	if err != nil || pos == 0 || pos >= first {
		return err
	}
	lo, hi := s.keys.Event(nil, pos), s.keys.Event(nil, first)
	keys := 0 // of a piece; 0 for all at once
	if !s.caps.NativeDeleteRange {
		keys = pieces.Keys
	}
	var b holdfast.Batch
	for more := true; more; {
		if err := s.alive(ctx); err != nil {
			return err
		}
		end := hi
		if more = keys > 0; more {
			if end, more, err = s.cut(lo, hi, keys); err != nil {
				return err
			}
		}
		b.Reset()
		b.DeleteRange(lo, end)
		switch err := s.commit(&b); {
		case err == nil:
			lo = end
		case errors.Is(err, holdfast.ErrTooLarge) && keys != 1: // the engine has a limit of its own
			if more = true; keys == 0 {
				keys = 2 * pieces.Keys
			}
			keys /= 2
		default:
			return err
		}
	}
	return nil
}

// cut returns where the first piece of the events from lo to hi ends, and whether there are others
// behind it.
func (s *Store) cut(lo, hi []byte, keys int) (end []byte, more bool, err error) {
	last, more, err := pieces.Cut(s.eng, holdfast.Range{Lo: lo, Hi: hi}, keys, pieces.Bytes)
	if err != nil || !more {
		return hi, false, err
	}
	if _, ok := s.keys.Position(last); !ok {
		return nil, false, s.strange("truncate", last)
	}
	return append(last, 0), true, nil
}
