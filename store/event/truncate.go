package event

import (
	"context"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// TruncateBefore removes all events below position and returns by how many the log has become
// shorter, also with an error. A position at or below the first removes nothing; one above
// Last()+1 is ErrAhead.
//
// First the beginning of the log moves, at the level of the call: from then on the events are gone for every reader,
// also after a crash. Then they are deleted from the engine, in chunks where the engine needs that. If that ends
// early, because of a crash, an error, Close or ctx, the next call continues, even with the same position. Small
// events that were appended together are deleted together, once the last of them is truncated.
//
// ctx's error can come before anything has happened, and while the new beginning is applied but not yet
// durable: First then shows, a little later, whether the beginning has moved.
//
// Subscriptions and snapshots do not hold it back. One that has not come past what is removed gets ErrTruncated when
// it reads on: [Options].Logger is warned of it, [Store.Subscriptions] and [Store.Snapshots] show it. [Store.Retain],
// which computes the position, can keep what they have not read.
func (s *Store) TruncateBefore(ctx context.Context, pos uint64) (removed uint64, err error) {
	level, err := s.edit(ctx)
	if err != nil {
		return 0, err
	}
	first := s.first.Load()
	work := func() error {
		defer s.edited()
		return s.met(s.truncate(ctx, level, first, pos))
	}
	if ctx.Done() == nil {
		err = work()
	} else {
		// Only the engine can end this wait. A caller whose ctx ends leaves it to a goroutine.
		done := make(chan error, 1)
		go func() { done <- work() }()
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return max(first, min(pos, s.first.Load())) - first, err
}

func (s *Store) truncate(ctx context.Context, level holdfast.Level, first, pos uint64) error {
	if last := s.durable.Load(); pos > last+1 {
		return s.fail("truncate", ErrAhead, nil, "", "position %d, the last one is %d", pos, last)
	}
	if pos > first {
		var b holdfast.Batch
		chunks.Notes(&b, s.keys.Meta())
		if err := s.describe(level, &b, func(m *format.Meta) { m.First = pos }); err != nil {
			return err
		}
		s.first.Store(pos)
		s.warn()
	}
	return s.reclaim(ctx, level, max(first, pos))
}

// reclaim removes the events below first, and records how far it has come: searching for the first event that is there
// would walk over all that were removed before. Where the engine removes keys one by one it works in chunks, so that
// an append waits for one chunk at most.
func (s *Store) reclaim(ctx context.Context, level holdfast.Level, first uint64) error {
	s.aboutMu.Lock()
	pos := s.about.Removed
	s.aboutMu.Unlock()
	keys, singly := chunks.Keys, true
	if s.caps.NativeDeleteRange {
		keys, singly = chunks.Few, false
	}
	for pos < first {
		if err := s.alive(ctx); err != nil {
			return err
		}
		var b holdfast.Batch
		lo, hi, end := s.keys.Event(nil, pos), s.keys.Event(nil, first), first
		last, more, err := chunks.Cut(&b, s.eng, holdfast.Range{Lo: lo, Hi: hi}, keys, chunks.Bytes)
		switch {
		case !singly && (more || err != nil):
			b.Reset()
			b.DeleteRange(lo, hi)
		case err != nil:
			return err
		case more:
			at, ok := s.keys.Number(last)
			if !ok {
				return s.strange("truncate", last)
			}
			end = at + 1
		}
		switch err := s.describe(level, &b, func(m *format.Meta) { m.Removed = end }); {
		case err == nil:
			pos = end
		case errors.Is(err, holdfast.ErrTooLarge) && !singly: // the engine has a limit of its own
			keys, singly = chunks.Keys, true
		case errors.Is(err, holdfast.ErrTooLarge) && keys > 1:
			keys /= 2
		default:
			return err
		}
	}
	return nil
}
