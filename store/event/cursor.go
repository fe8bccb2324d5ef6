package event

import (
	"context"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// SaveOffset remembers, at the store's level, that the subscription of that name has come
// as far as position: the last one it has handled, 0 for none. The last save wins, so a
// subscription can be set back. Names have 1 to MaxIDSize bytes. A position that readers
// have not been shown is ErrAhead; one that is truncated is as good as any.
func (s *Store) SaveOffset(ctx context.Context, subscription string, pos uint64) error {
	return s.save(ctx, "save offset", s.keys.Offset(subscription), subscription, pos, nil)
}

// LoadOffset returns what SaveOffset has saved last, or ErrNotFound.
func (s *Store) LoadOffset(ctx context.Context, subscription string) (uint64, error) {
	pos, rest, err := s.loadCursor(ctx, "load offset", s.keys.Offset(subscription), subscription)
	if err == nil && len(rest) > 0 {
		return 0, s.fail("load offset", holdfast.ErrCorrupt, nil, "", "the offset of %q is %d bytes too long", subscription, len(rest))
	}
	return pos, err
}

// DeleteOffset forgets a subscription; one that is not there is no error.
func (s *Store) DeleteOffset(ctx context.Context, subscription string) error {
	return s.drop(ctx, "delete offset", s.keys.Offset(subscription), subscription)
}

// SaveSnapshot keeps state, the state of the projection of that name after all events up
// to position, at the store's level. It replaces the one before. Names and positions are
// as in SaveOffset.
func (s *Store) SaveSnapshot(ctx context.Context, projection string, pos uint64, state []byte) error {
	return s.save(ctx, "save snapshot", s.keys.Snapshot(projection), projection, pos, state)
}

// LoadSnapshot returns what SaveSnapshot has saved last, or ErrNotFound. The state is the
// caller's.
func (s *Store) LoadSnapshot(ctx context.Context, projection string) (pos uint64, state []byte, err error) {
	return s.loadCursor(ctx, "load snapshot", s.keys.Snapshot(projection), projection)
}

// DeleteSnapshot removes a snapshot; one that is not there is no error.
func (s *Store) DeleteSnapshot(ctx context.Context, projection string) error {
	return s.drop(ctx, "delete snapshot", s.keys.Snapshot(projection), projection)
}

func (s *Store) checkName(op, name string) error {
	if len(name) == 0 || len(name) > s.maxID {
		return s.fail(op, holdfast.ErrBadOption, nil, "", "the name has %d bytes, 1 to %d are allowed", len(name), s.maxID)
	}
	return nil
}

func (s *Store) save(ctx context.Context, op string, key []byte, name string, pos uint64, state []byte) error {
	if err := s.checkName(op, name); err != nil {
		return err
	}
	if last := s.durable.Load(); pos > last {
		return s.fail(op, ErrAhead, nil, "", "position %d, the last one is %d", pos, last)
	}
	if n := int64(format.CursorSize + len(state)); n > s.maxValue {
		return s.fail(op, holdfast.ErrTooLarge, nil, "", "the state takes %d bytes, the limit is %d", n, s.maxValue)
	}
	var b holdfast.Batch
	b.Set(key, append(format.AppendCursor(make([]byte, 0, format.CursorSize+len(state)), pos), state...))
	if int64(b.Size()) > s.maxBatch {
		return s.fail(op, holdfast.ErrTooLarge, nil, "", "the state takes %d bytes, a batch at most %d", len(state), s.maxBatch)
	}
	return s.commitCursor(ctx, &b)
}

func (s *Store) drop(ctx context.Context, op string, key []byte, name string) error {
	if err := s.checkName(op, name); err != nil {
		return err
	}
	var b holdfast.Batch
	b.Delete(key)
	return s.commitCursor(ctx, &b)
}

func (s *Store) commitCursor(ctx context.Context, b *holdfast.Batch) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.door.Leave()
	s.cursorMu.Lock()
	receipt, err := s.eng.Apply(b, s.level)
	if err == nil {
		s.cursor = receipt
	}
	s.cursorMu.Unlock()
	return s.wait(receipt, err)
}

func (s *Store) loadCursor(ctx context.Context, op string, key []byte, name string) (uint64, []byte, error) {
	if err := s.checkName(op, name); err != nil {
		return 0, nil, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer s.door.Leave()
	value, err := s.eng.Get(nil, key)
	missing := errors.Is(err, holdfast.ErrNotFound)
	if err != nil && !missing {
		return 0, nil, s.met(err)
	}
	// An engine may show what a crash could still take back. Whatever was read had been
	// applied by then, so this receipt covers it.
	s.cursorMu.Lock()
	receipt := s.cursor
	s.cursorMu.Unlock()
	if err := s.wait(receipt, nil); err != nil {
		return 0, nil, err
	}
	if missing {
		return 0, nil, holdfast.ErrNotFound
	}
	pos, rest, ok := format.DecodeCursor(value)
	if !ok {
		return 0, nil, s.fail(op, holdfast.ErrCorrupt, nil, "", "what is kept for %q cannot be read", name)
	}
	return pos, rest, nil
}
