package message

import (
	"errors"
	"time"

	"github.com/holdfastdb/holdfast"
)

// ErrLeaseLost: a delivery's lease ran out, and the message was delivered again, or the delivery is done with.
var ErrLeaseLost = errors.New("holdfast: lease lost")

// Delivery is a message that a consumer has for the time of its lease.
//
// Its Global and its Token name it: a consumer in another process, which knows no more, acknowledges, extends, fails or
// parks it as Delivery{Message: Message{Global: global}, Token: token}.
type Delivery struct {
	Message
	Attempt int // from 1
	// Token identifies this delivery among all deliveries of the message, also across restarts. It is above 0 and below
	// 2^53. Tokens follow the clock in microseconds: if that is set back between two openings of the subscription, a
	// token could come again.
	Token uint64
	s     *Subscription // nil if it was named from elsewhere
}

// lease is who has a message, and until when.
type lease struct {
	Token uint64    `json:"token,omitempty"` // of its delivery, 0 if it is not delivered
	Until time.Time `json:"until,omitzero"`  // when it may be delivered again
}

// left is what is left of a lease that Close has kept: no more than a lease has from the beginning, for the clock may
// have been ahead.
func (l lease) left(now time.Time, most time.Duration) lease {
	if l.Token == 0 || !l.Until.After(now) {
		return lease{}
	}
	l.Until = now.Add(min(l.Until.Sub(now), most)) // from here on by the time that passes
	return l
}

// lease begins a lease of a delivery, whose token is a new one.
func (s *Subscription) lease(now time.Time) lease {
	s.token = max(s.token+1, uint64(max(now.UnixMicro(), 0)))
	return lease{s.token, now.Add(s.o.Lease)}
}

// held returns the item of a delivery, or ErrLeaseLost if that is not the caller's any more.
func (s *Subscription) held(d *Delivery) (*item, error) {
	it := s.items[uint64(d.Global)]
	other := d.s != nil && (d.s.name != s.name || d.s.n.number != s.n.number)
	if other || d.Token == 0 || it == nil || it.Token != d.Token {
		return nil, s.n.store.fail("acknowledge", ErrLeaseLost, nil, "", "global position %d, token %d", d.Global, d.Token)
	}
	return it, nil
}

// keepLeases stores which messages consumers have, and until when. It is called with the turn taken.
func (s *Subscription) keepLeases() error {
	var b holdfast.Batch
	now := time.Now()
	for global, it := range s.items {
		if d := it.delivery; d.Token != 0 && d.Until.After(now) {
			d.Until = d.Until.UTC()
			b.Set(s.n.keys.Delivery(nil, s.name, global), d.encode())
		}
	}
	if b.Len() == 0 {
		return nil
	}
	receipt, err := s.n.applyAt(&b, min(s.n.store.o.Level, holdfast.Process))
	if err != nil {
		return err
	}
	return receipt.Wait()
}
