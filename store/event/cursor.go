package event

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/names"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// SaveOffset stores that the subscription of that name has come
// as far as position: the last one it has handled, 0 for none. The last save wins, so a
// subscription can be set back. Names have 1 to MaxIDSize bytes, which are UTF-8 without control characters. A
// position that readers do not see yet is ErrAhead; a truncated one is accepted. As in Append, ctx is checked
// until the save is applied, and not after.
func (s *Store) SaveOffset(ctx context.Context, subscription string, pos uint64) error {
	return s.save(ctx, "save offset", s.keys.Offset(subscription), subscription, pos, nil)
}

// LoadOffset returns what SaveOffset has saved last, or ErrNotFound. While a save is in progress it waits until that
// is durable. It also works after a failed write, except for a subscription whose own save has failed: its state is
// unknown until the log is opened again.
func (s *Store) LoadOffset(ctx context.Context, subscription string) (uint64, error) {
	pos, _, err := s.loadCursor(ctx, loadOffset, s.keys.Offset(subscription), subscription)
	return pos, err
}

const loadOffset = "load offset" // whose value is no more than a position

// DeleteOffset removes a subscription, and returns when that has reached the level of ctx or the store. It is no error
// if there is none. ErrBadOption: no subscription can have the name.
func (s *Store) DeleteOffset(ctx context.Context, subscription string) error {
	return s.drop(ctx, "delete offset", s.keys.Offset(subscription), subscription)
}

// SaveSnapshot keeps state, the state of the projection of that name after all events up
// to position. It replaces the one before. Names and positions are
// as in SaveOffset.
func (s *Store) SaveSnapshot(ctx context.Context, projection string, pos uint64, state []byte) error {
	return s.save(ctx, "save snapshot", s.keys.Snapshot(projection), projection, pos, state)
}

// LoadSnapshot returns what SaveSnapshot has saved last, or ErrNotFound. The state is the
// caller's. It works after a failed write as LoadOffset does.
func (s *Store) LoadSnapshot(ctx context.Context, projection string) (pos uint64, state []byte, err error) {
	return s.loadCursor(ctx, "load snapshot", s.keys.Snapshot(projection), projection)
}

// DeleteSnapshot removes a snapshot, as DeleteOffset does a subscription. It is no error if there is none.
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
	value, err := s.cursorValue(op, name, pos, s.durable.Load(), state)
	if err != nil {
		return err
	}
	var b holdfast.Batch
	b.Set(key, value)
	if int64(b.Size()) > s.maxBatch {
		return s.fail(op, holdfast.ErrTooLarge, nil, "", "it takes %d bytes, a batch at most %d", b.Size(), s.maxBatch)
	}
	return s.commitCursor(ctx, key, &b)
}

// cursorValue checks what is to be saved in a log with that last position, and encodes it.
func (s *Store) cursorValue(op, name string, pos, last uint64, state []byte) ([]byte, error) {
	if err := s.checkName(op, name); err != nil {
		return nil, err
	}
	if what := names.Wrong(name, s.maxID); what != "" { // one that was given before can be loaded and removed
		return nil, s.fail(op, holdfast.ErrBadOption, nil, "", "the name %s", what)
	}
	if pos > last {
		return nil, s.fail(op, ErrAhead, nil, "", "position %d, the last one is %d", pos, last)
	}
	if n := int64(format.CursorSize + len(state)); n > s.maxValue {
		return nil, s.fail(op, holdfast.ErrTooLarge, nil, "", "the state takes %d bytes, the limit is %d", n, s.maxValue)
	}
	return append(format.AppendCursor(make([]byte, 0, format.CursorSize+len(state)), pos), state...), nil
}

// decodeCursor is what cursorValue has encoded.
func (s *Store) decodeCursor(op, name string, value []byte) (pos uint64, state []byte, err error) {
	pos, state, ok := format.DecodeCursor(value)
	if !ok || op == loadOffset && len(state) > 0 {
		return 0, nil, s.fail(op, holdfast.ErrCorrupt, nil, "", "what is kept for %q cannot be read", name)
	}
	return pos, state, nil
}

func (s *Store) drop(ctx context.Context, op string, key []byte, name string) error {
	if err := s.checkName(op, name); err != nil {
		return err
	}
	var b holdfast.Batch
	b.Delete(key)
	return s.commitCursor(ctx, key, &b)
}

// save is the last save of an offset or snapshot that is not known to be durable, because it is in progress or has
// failed. Loads wait for it.
type save struct{ wait func() error }

// saving notes a save that has its place, and how it is waited for. It is called with the lock.
func (s *Store) saving(key string, wait func() error) *save {
	w := new(save)
	w.wait = sync.OnceValue(func() error {
		err := wait()
		if err == nil {
			s.turn.Lock()
			defer s.turn.Unlock()
			if s.saves[key] == w {
				delete(s.saves, key)
			}
		}
		return err
	})
	s.saves[key] = w
	return w
}

// unsaved returns the save of a key that is to be waited for, nil if there is none.
func (s *Store) unsaved(key []byte) *save {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.saves[string(key)]
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
	if err := s.take(ctx); err != nil {
		return s.met(err)
	}
	w, err := s.applyCursor(key, b, level)
	if err != nil {
		return s.met(err)
	}
	return w.wait()
}

// applyCursor is called in the call's turn, and gives it back.
func (s *Store) applyCursor(key []byte, b *holdfast.Batch, level holdfast.Level) (*save, error) {
	defer s.turn.Give()
	receipt, err := s.eng.Apply(b, level)
	if err != nil {
		return nil, err
	}
	s.saved.Add(receipt, level)
	return s.saving(string(key), func() error { return s.wait(receipt, nil) }), nil
}

func (s *Store) loadCursor(ctx context.Context, op string, key []byte, name string) (uint64, []byte, error) {
	if err := s.checkName(op, name); err != nil {
		return 0, nil, err
	}
	if err := s.enter(ctx); err != nil {
		return 0, nil, err
	}
	defer s.life.Leave()
	// An engine may show what a crash could still take back. Whatever was read had been applied by then: either the save
	// that is under way covers it, or it is safe. An engine that does not show that save yet is read again.
	var value []byte
	var missing bool
	for range 2 {
		var err error
		value, err = s.eng.Get(nil, key)
		missing = errors.Is(err, holdfast.ErrNotFound)
		if err != nil && !missing {
			return 0, nil, s.met(err)
		}
		w := s.unsaved(key)
		if w == nil {
			break
		}
		if err := receipts.WaitFor(ctx, w.wait); err != nil {
			return 0, nil, err
		}
	}
	if missing {
		return 0, nil, s.noCursor(op, name)
	}
	return s.decodeCursor(op, name, value)
}

func (s *Store) noCursor(op, name string) error {
	return s.fail(op, holdfast.ErrNotFound, nil, "", "there is none of the name %.80q", name)
}
