package message

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
)

// ClaimBytes is about how many bytes of data and metadata a call of [Subscription.Claim] or [Subscription.Parked]
// returns at most. One message is returned whatever its size.
const ClaimBytes = 8 << 20

func (m *Message) bytes() int { return len(m.Data) + len(m.Metadata) }

// Claim waits until there is a message to be delivered, and delivers up to most of them, which is at least 1, and no
// more than fit in [ClaimBytes]. They are the caller's until their leases end. The error is ctx's, ErrClosed after
// Close, or the failure that keeps messages from coming. What is delivered when ctx ends is returned, without an error.
func (s *Subscription) Claim(ctx context.Context, most int) ([]Delivery, error) {
	if most < 1 {
		return nil, s.n.store.fail("claim", holdfast.ErrBadOption, nil, "claim at least one", "a claim of %d messages", most)
	}
	topic := ""
	if s.o.Query.Category != "" {
		topic = "c" + s.o.Query.Category
	}
	if err := s.n.enter(ctx); err != nil {
		return nil, err
	}
	defer s.n.leave()
	news, err := s.n.tail.subscribe(s.n, topic)
	if err != nil {
		return nil, s.n.ended(err)
	}
	defer s.n.tail.unsubscribe(s.n, topic, news)
	for {
		// What was loaded before a failure, or before ctx ended, is delivered all the same.
		failed := s.fill(ctx, most)
		c := claiming{s: s, ctx: ctx, most: most}
		err := c.take()
		if len(c.claimed) > 0 && err == nil {
			return c.claimed, nil
		}
		if err = cmp.Or(err, failed); err != nil {
			return nil, s.n.ended(err)
		}
		again := time.NewTimer(cmp.Or(c.wait, time.Hour))
		select {
		case <-c.changed:
		case <-news.changed:
		case <-again.C:
		case <-news.ended:
			err = s.n.ended(news.err)
		case <-ctx.Done():
			err = ctx.Err()
		}
		again.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// fill looks at more messages, if there are fewer than most to be delivered.
func (s *Subscription) fill(ctx context.Context, most int) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	s.turn.Lock()
	room, from := min(s.o.Window-len(s.items), doneWindows*s.o.Window-len(s.done)), s.next
	now, held := time.Now(), 0
	for _, it := range s.items {
		if !it.Until.After(now) {
			most--
		}
		held += it.m.bytes()
	}
	s.turn.Unlock()
	room = min(room, most)
	end := s.n.log().Last()
	if room <= 0 || from > end || held >= ClaimBytes {
		return nil
	}
	read := s.n.removals.Load()
	next, err := s.n.walk(ctx, &s.o.Query, from, end, func(m Message) bool {
		global := uint64(m.Global)
		s.turn.Lock()
		defer s.turn.Unlock()
		s.next = global + 1
		if s.items[global] == nil && !s.done[global] {
			s.items[global] = &item{m: m, read: read}
			room--
			held += m.bytes()
		}
		return room > 0 && held < ClaimBytes
	})
	s.turn.Lock()
	defer s.turn.Unlock()
	s.next = max(s.next, next) // also if ctx has ended: the next claim goes on there
	return err
}

// claiming is a claim of what can be delivered now.
type claiming struct {
	s       *Subscription
	ctx     context.Context
	most    int
	claimed []Delivery
	wait    time.Duration   // how long to wait at most if nothing is claimed, 0 if forever
	changed <-chan struct{} // and what tells of a change
}

// errUnchanged: a claim has found nothing to change.
var errUnchanged = errors.New("unchanged")

// take claims messages.
func (c *claiming) take() error {
	// It waits for the commit before a consumer sees a message: what that does to its process must not undo the attempt.
	err := c.s.update(c.ctx, min(c.s.n.store.o.Level, holdfast.Process), func(b *holdfast.Batch) error {
		err := c.decide(b)
		if err == nil && b.Len() == 0 {
			err = errUnchanged
		}
		return err
	})
	if err == errUnchanged {
		return nil
	}
	return err
}

// decide delivers what can be delivered, the oldest first, and parks or ends what is not to be.
func (c *claiming) decide(b *holdfast.Batch) error {
	s, now, size := c.s, time.Now(), 0
	c.changed = s.changed

	// Removed messages that consumers have are done: they would hold the window until their leases end.
	removals := s.n.removals.Load()
	gone := removals != s.removals

	for _, global := range slices.Sorted(maps.Keys(s.items)) {
		it := s.items[global]
		if left := it.Until.Sub(now); left > 0 {
			if gone {
				if _, err := s.n.at(c.ctx, global); errors.Is(err, holdfast.ErrNotFound) {
					s.finish(b, global)
					continue
				} else if err != nil {
					gone = false // looked at again by the next claim
				}
			}
			if c.wait == 0 || left < c.wait {
				c.wait = left
			}
			continue
		}
		if len(c.claimed) == c.most {
			gone = false // those behind it are looked at by the next claim
			break
		}
		if it.Attempts >= s.o.MaxAttempts {
			s.park(b, global, it, cmp.Or(it.Reason, fmt.Sprintf("delivered %d times, and never acknowledged: its leases ran "+
				"out, or its consumers were gone", it.Attempts)))
			continue
		}

		// It is read again if it may have been removed since it was loaded.
		if it.m.Stream == "" || it.read != removals {
			m, err := s.n.at(c.ctx, global)
			if errors.Is(err, holdfast.ErrNotFound) {
				s.finish(b, global)
				continue
			}
			if err != nil {
				if len(c.claimed) > 0 {
					gone = false
					break // the next claim says so
				}
				return err
			}
			it.m, it.read = m, removals
		}
		if size += it.m.bytes(); size > ClaimBytes && len(c.claimed) > 0 {
			gone = false
			break
		}
		to := &item{delivery: it.delivery} // the consumer has the message
		to.Attempts++
		to.lease = s.lease(now)
		s.put(global, to, false)
		s.keep(b, global, to.delivery)
		c.claimed = append(c.claimed, Delivery{it.m, to.Attempts, to.Token, s})
	}
	if gone {
		s.removals = removals
	}
	if s.low() >= s.floor+advanceEvery {
		s.advance(b)
	}
	return nil
}
