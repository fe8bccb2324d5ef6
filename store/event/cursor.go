package event

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/keyspace"
)

// SaveOffset stores that the subscription of that name has come
// as far as position: the last one it has handled, 0 for none. The last save wins, so a
// subscription can be set back. Names have 1 to MaxIDSize bytes, which are UTF-8 without control characters. A
// position that readers do not see yet is ErrAhead; a truncated one is accepted. As in Append, ctx is checked
// until the save is applied, and not after.
func (s *Store) SaveOffset(ctx context.Context, subscription string, pos uint64) error {
	return s.save(ctx, "save offset", s.keys.Offset(subscription), subscription, pos, nil, nil)
}

// SaveOffsetWith is SaveOffset and, in the same commit, the operations of with on the caller's own keys, such as those
// of a read model: after any crash, either all of it is there or nothing. So what has been done for an event is done
// exactly once. Package projection does that for read models. The batch is not changed, and can be reused after the
// call. ErrBadKey: an operation reaches for keys that a store can have, as in AppendWith.
func (s *Store) SaveOffsetWith(ctx context.Context, subscription string, pos uint64, with *holdfast.Batch) error {
	if err := with.Err(); err != nil {
		return err
	}
	return s.save(ctx, "save offset", s.keys.Offset(subscription), subscription, pos, nil, with)
}

// LoadOffset returns what SaveOffset has saved last, or ErrNotFound. While a save is in progress it waits until that
// is durable. It also works after a failed write, except for a subscription whose own save has failed: its state is
// unknown until the log is opened again.
func (s *Store) LoadOffset(ctx context.Context, subscription string) (uint64, error) {
	pos, rest, err := s.loadCursor(ctx, "load offset", s.keys.Offset(subscription), subscription)
	if err == nil && len(rest) > 0 {
		return 0, s.fail("load offset", holdfast.ErrCorrupt, nil, "", "the offset of %q is %d bytes too long", subscription,
			len(rest))
	}
	return pos, err
}

// DeleteOffset removes a subscription. It is no error if there is none.
func (s *Store) DeleteOffset(ctx context.Context, subscription string) error {
	return s.drop(ctx, "delete offset", s.keys.Offset(subscription), subscription)
}

// SaveSnapshot keeps state, the state of the projection of that name after all events up
// to position. It replaces the one before. Names and positions are
// as in SaveOffset.
func (s *Store) SaveSnapshot(ctx context.Context, projection string, pos uint64, state []byte) error {
	return s.save(ctx, "save snapshot", s.keys.Snapshot(projection), projection, pos, state, nil)
}

// LoadSnapshot returns what SaveSnapshot has saved last, or ErrNotFound. The state is the
// caller's. It works after a failed write as LoadOffset does.
func (s *Store) LoadSnapshot(ctx context.Context, projection string) (pos uint64, state []byte, err error) {
	return s.loadCursor(ctx, "load snapshot", s.keys.Snapshot(projection), projection)
}

// DeleteSnapshot removes a snapshot. It is no error if there is none.
func (s *Store) DeleteSnapshot(ctx context.Context, projection string) error {
	return s.drop(ctx, "delete snapshot", s.keys.Snapshot(projection), projection)
}

func (s *Store) checkName(op, name string) error {
	if len(name) == 0 || len(name) > s.maxID {
		return s.fail(op, holdfast.ErrBadOption, nil, "", "the name has %d bytes, 1 to %d are allowed", len(name), s.maxID)
	}
	return nil
}

func (s *Store) save(ctx context.Context, op string, key []byte, name string, pos uint64, state []byte,
	with *holdfast.Batch) error {
	if err := s.checkName(op, name); err != nil {
		return err
	}
	if what := names.Wrong(name, s.maxID); what != "" { // one that was given before can be loaded and removed
		return s.fail(op, holdfast.ErrBadOption, nil, "", "the name %s", what)
	}
	if last := s.durable.Load(); pos > last {
		return s.fail(op, ErrAhead, nil, "", "position %d, the last one is %d", pos, last)
	}
	if n := int64(format.CursorSize + len(state)); n > s.maxValue {
		return s.fail(op, holdfast.ErrTooLarge, nil, "", "the state takes %d bytes, the limit is %d", n, s.maxValue)
	}
	var b holdfast.Batch
	b.Set(key, append(format.AppendCursor(make([]byte, 0, format.CursorSize+len(state)), pos), state...))
	if with != nil {
		if err := keyspace.Check("event "+op, with); err != nil {
			return err
		}
		b.Append(with)
	}
	if int64(b.Size()) > s.maxBatch {
		return s.fail(op, holdfast.ErrTooLarge, nil, "", "it takes %d bytes, a batch at most %d", b.Size(), s.maxBatch)
	}
	return s.commitCursor(ctx, key, &b)
}

func (s *Store) drop(ctx context.Context, op string, key []byte, name string) error {
	if err := s.checkName(op, name); err != nil {
		return err
	}
	var b holdfast.Batch
	b.Delete(key)
	return s.commitCursor(ctx, key, &b)
}

// saving holds, for loads, the last save of each key that is not known to be durable, because it is in progress or
// has failed.
type saving struct {
	mu   sync.Mutex // covers order too
	last map[string]*save
}

type save struct {
	done chan struct{} // closed when it is settled
	err  error         // set before done is closed
}

func (s *Store) commitCursor(ctx context.Context, key []byte, b *holdfast.Batch) error {
	level, err := s.at(ctx)
	if err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	c, w := &s.saving, &save{done: make(chan struct{})}
	c.mu.Lock()
	receipt, err := s.eng.Apply(b, level)
	if err == nil {
		c.last[string(key)] = w
	}
	c.mu.Unlock()
	if err != nil {
		return s.met(err)
	}
	w.err = s.wait(receipt, nil)
	c.mu.Lock()
	if w.err == nil && c.last[string(key)] == w {
		delete(c.last, string(key))
	}
	c.mu.Unlock()
	close(w.done)
	return w.err
}

func (s *Store) loadCursor(ctx context.Context, op string, key []byte, name string) (uint64, []byte, error) {
	if err := s.checkName(op, name); err != nil {
		return 0, nil, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer s.life.Leave()
	value, err := s.eng.Get(nil, key)
	missing := errors.Is(err, holdfast.ErrNotFound)
	if err != nil && !missing {
		return 0, nil, s.met(err)
	}
	// An engine may show what a crash could still take back. Whatever was read had been
	// applied by then: either this save covers it, or it is safe.
	s.saving.mu.Lock()
	w := s.saving.last[string(key)]
	s.saving.mu.Unlock()
	if w != nil {
		select {
		case <-w.done:
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
		if w.err != nil {
			return 0, nil, w.err
		}
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
