package message

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	s.pass(time.Now())
	room, from := min(s.o.Window-len(s.items), doneWindows*s.o.Window-len(s.done), most-len(s.ready.Items)), s.next
	full := s.bytes >= ClaimBytes
	s.turn.Unlock()
	end := s.n.log().Last()
	if room <= 0 || from > end || full {
		return nil
	}
	read := s.n.removals.Load()
	next, err := s.n.walk(ctx, &s.o.Query, from, end, func(m Message) bool {
		global := uint64(m.Global)
		s.turn.Lock()
		defer s.turn.Unlock()
		s.next = global + 1
		if s.items[global] == nil && !s.done[global] {
			s.set(global, &item{m: m, read: read}, false)
			room--
		}
		return room > 0 && s.bytes < ClaimBytes
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
	removals := s.n.removals.Load()
	c.endRemoved(b, removals)
	s.pass(now)
	for len(s.ready.Items) > 0 && len(c.claimed) < c.most {
		it := s.ready.Items[0]
		if it.Attempts >= s.o.MaxAttempts {
			s.park(b, it, cmp.Or(it.Reason, fmt.Sprintf("delivered %d times, and never acknowledged: its leases ran out, or "+
				"its consumers were gone", it.Attempts)))
			continue
		}

		// It is read again if it may have been removed since it was loaded.
		if it.m.Stream == "" || it.read != removals {
			m, err := s.n.at(c.ctx, it.global)
			if errors.Is(err, holdfast.ErrNotFound) {
				s.finish(b, it.global)
				continue
			}
			if err != nil {
				if len(c.claimed) > 0 {
					break // the next claim says so
				}
				return err
			}
			s.read(it, m, removals)
		}
		if size += it.m.bytes(); size > ClaimBytes && len(c.claimed) > 0 {
			break
		}
		to := &item{delivery: it.delivery} // the consumer has the message
		to.Attempts++
		to.lease = s.lease(now)
		s.put(it.global, to, false)
		s.keep(b, it.global, to.delivery)
		c.claimed = append(c.claimed, Delivery{it.m, to.Attempts, to.Token, s})
	}
	if len(s.later.Items) > 0 {
		c.wait = s.later.Items[0].Until.Sub(now)
	}
	if s.low() >= s.floor+advanceEvery {
		s.advance(b)
	}
	return nil
}

// endRemoved ends what consumers have and was removed: it would hold the window until their leases end.
func (c *claiming) endRemoved(b *holdfast.Batch, removals uint64) {
	s := c.s
	if removals == s.removals {
		return
	}
	for _, it := range slices.Clone(s.later.Items) {
		_, err := s.n.at(c.ctx, it.global)
		if errors.Is(err, holdfast.ErrNotFound) {
			s.finish(b, it.global)
		} else if err != nil {
			return // the next claim looks again
		}
	}
	s.removals = removals
}
