package event

import (
	"context"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// TruncateBefore removes all events below position and returns how many the log has become
// shorter by, beside an error too. A position at or below the first removes nothing; one above
// Last()+1 is ErrAhead.
//
// First the beginning of the log is moved, at the store's level: from then on the events
// are gone for every reader, after a crash too. Then the engine is told to drop them, in
// pieces where it needs that. If that ends early, because of a crash, an error, Close or ctx, the
// next call, with the same position even, goes on with it. Small events that were appended together
// are dropped together, once the last of them is truncated.
//
// ctx's error can come before anything has happened, and while what has been applied is not yet known
// to be safe: First then tells, a little later, whether the beginning has moved.
func (s *Store) TruncateBefore(ctx context.Context, pos uint64) (removed uint64, err error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return 0, err
	}
	select {
	case s.truncating <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if err := s.enter(ctx); err != nil {
		<-s.truncating
		return 0, err
	}
	first := s.first.Load()
	work := func() error {
		defer func() {
			s.life.Leave()
			<-s.truncating
		}()
		return s.met(s.truncate(ctx, first, pos))
	}
	if ctx.Done() == nil {
		err = work()
	} else {
		// Nobody but the engine can end its waiting, so whoever gives up leaves that to another.
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

func (s *Store) truncate(ctx context.Context, first, pos uint64) error {
	if last := s.durable.Load(); pos > last+1 {
		return s.fail("truncate", ErrAhead, nil, "", "position %d, the last one is %d", pos, last)
	}
	if pos > first {
		var b holdfast.Batch
		if err := s.describe(&b, func(m *format.Meta) { m.First = pos }); err != nil {
			return err
		}
		s.first.Store(pos)
	}
	return s.reclaim(ctx, max(first, pos))
}

// reclaim removes the events below first, and notes how far it has come: to look for the first that is there would be
// to walk over all that were removed before. Where the engine removes keys one by one it does so in pieces, so that
// an append waits for one of them at most.
func (s *Store) reclaim(ctx context.Context, first uint64) error {
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
			at, ok := s.keys.Position(last)
			if !ok {
				return s.strange("truncate", last)
			}
			end = at + 1
		}
		switch err := s.describe(&b, func(m *format.Meta) { m.Removed = end }); {
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
