package message

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// Parked is a message that is not delivered any more.
type Parked struct {
	Message
	Attempts int
	Reason   string    // of the last failure
	At       time.Time // when it was parked
}

// park changes that a message is not delivered any more, and adds it to b.
func (s *Subscription) park(b *holdfast.Batch, it *item, reason string) {
	d := it.delivery
	d.Reason, d.Parked, d.lease = reason, time.Now().UTC(), lease{}
	b.Set(s.n.keys.Parked(nil, s.name, it.global), d.encode())
	s.finish(b, it.global)
}

// Parked returns up to limit parked messages, and no more than fit in [ClaimBytes], in the order of their global
// positions, from the first behind the position after on: there are no more if it returns none. A limit of 0 leaves it
// to the bytes; one below is ErrBadOption.
func (s *Subscription) Parked(ctx context.Context, after int64, limit int) (list []Parked, err error) {
	if err := s.n.store.checkLimit("parked", limit); err != nil {
		return nil, err
	}
	if err := s.n.enter(ctx); err != nil {
		return nil, err
	}
	defer s.n.leave()
	kept := map[uint64]*delivery{}
	full := errors.New("full")
	err = s.n.deliveries(format.TableParked, s.name, uint64(max(after, 0))+1, func(global uint64, d *delivery) error {
		if limit > 0 && len(kept) == limit {
			return full
		}
		kept[global] = d
		return nil
	})
	if err != nil && err != full {
		return nil, s.n.ended(err)
	}
	size := 0
	for _, global := range slices.Sorted(maps.Keys(kept)) {
		m, err := s.n.at(ctx, global)
		if errors.Is(err, holdfast.ErrNotFound) { // removed
			m = Message{Global: int64(global)}
		} else if err != nil {
			return nil, err
		}
		if size += m.bytes(); size > ClaimBytes && len(list) > 0 {
			break
		}
		d := kept[global]
		list = append(list, Parked{m, d.Attempts, d.Reason, d.Parked})
	}
	return list, nil
}

// Replay delivers parked messages again, as if for the first time, and returns how many of the global positions had
// one. It takes no more than the window has room for; the others stay parked.
func (s *Subscription) Replay(ctx context.Context, globals ...int64) (replayed int, err error) {
	return s.unpark(ctx, globals, true)
}

// Discard forgets parked messages, and returns how many of the global positions had one.
func (s *Subscription) Discard(ctx context.Context, globals ...int64) (discarded int, err error) {
	return s.unpark(ctx, globals, false)
}

func (s *Subscription) unpark(ctx context.Context, globals []int64, again bool) (n int, err error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return 0, err
	}
	err = s.update(ctx, s.n.store.o.Level, func(b *holdfast.Batch) error {
		for _, at := range globals {
			if again && len(s.items) >= s.o.Window {
				break
			}
			global := uint64(max(at, 0))
			if s.items[global] != nil { // replayed, and the engine may not show it
				continue
			}
			key := s.n.keys.Parked(nil, s.name, global)
			if _, err := s.n.store.eng.Get(nil, key); errors.Is(err, holdfast.ErrNotFound) {
				continue
			} else if err != nil {
				return err
			}
			b.Delete(key)
			if again {
				_, err := s.n.at(ctx, global)
				if errors.Is(err, holdfast.ErrNotFound) { // removed
					continue
				}
				if err != nil {
					return err
				}
				s.put(global, &item{}, false)
				s.keep(b, global, delivery{})
			}
			n++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}
