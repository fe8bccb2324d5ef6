package message

import (
	"context"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// SubscriptionInfo is the progress of a subscription.
type SubscriptionInfo struct {
	Done    int64 // all messages up to this global position are done, but for those that were replayed
	Behind  int64 // global positions from there to the last
	Pending int   // messages that are delivered, or wait to be delivered again
}

// SubscriptionState is a subscription of a namespace, open or not.
type SubscriptionState struct {
	Name string
	Open bool
	// Of one that is not open, Pending are those that will be delivered again at once.
	SubscriptionInfo
	Parked int
}

// Subscriptions describes up to limit subscriptions, in the order of their names' bytes, from the first that comes
// after the name after on. A limit of 0 means all; one below is ErrBadOption. It opens none, and takes time in
// proportion to the messages that are pending and parked. What is applied and not durable yet counts.
func (n *Namespace) Subscriptions(ctx context.Context, after string, limit int) (list []SubscriptionState, err error) {
	if err := n.store.checkLimit("subscriptions", limit); err != nil {
		return nil, err
	}
	if err := n.enter(ctx); err != nil {
		return nil, err
	}
	defer n.leave()
	lo, hi := n.keys.Bounds(format.TableDeliveries)
	if after != "" {
		lo = n.keys.AfterPlaced(format.TableDeliveries, after)
	}
	for limit == 0 || len(list) < limit {
		if err := holdfast.CheckContext(ctx); err != nil {
			return nil, err
		}
		name, err := n.nextName(lo, hi)
		if err != nil || name == "" {
			return list, n.ended(err)
		}
		state, err := n.subscription(name)
		if err == nil {
			list = append(list, state)
		} else if !errors.Is(err, holdfast.ErrNotFound) { // or it has been deleted meanwhile
			return nil, n.ended(err)
		}
		lo = n.keys.AfterPlaced(format.TableDeliveries, name)
	}
	return list, nil
}

// Subscription describes the subscription of that name without opening it. ErrNotFound: there is none.
func (n *Namespace) Subscription(ctx context.Context, name string) (SubscriptionState, error) {
	if err := n.enter(ctx); err != nil {
		return SubscriptionState{}, err
	}
	defer n.leave()
	state, err := n.subscription(name)
	return state, n.ended(err)
}

func (n *Namespace) subscription(name string) (state SubscriptionState, err error) {
	state.Name = name
	floor, err := n.storedNumber(n.keys.Delivery(nil, name, 0))
	if errors.Is(err, holdfast.ErrNotFound) {
		return state, n.store.fail("subscription", holdfast.ErrNotFound, nil, "", "there is none of the name %.80q", name)
	}
	if err != nil {
		return state, err
	}
	state.Done, state.Behind = int64(floor)-1, max(n.Last()-int64(floor)+1, 0)
	n.mu.Lock()
	open := n.subscriptions[name]
	n.mu.Unlock()
	if open != nil && open.loaded.Load() {
		state.Open, state.SubscriptionInfo = true, open.Info()
	} else if err := n.deliveries(format.TableDeliveries, name, 1, func(_ uint64, d *delivery) error {
		if !d.Done {
			state.Pending++
		}
		return nil
	}); err != nil {
		return state, err
	}
	return state, n.each(format.TableParked, name, 0, func(uint64, []byte, []byte) error {
		state.Parked++
		return nil
	})
}

// Info returns the progress of the subscription.
func (s *Subscription) Info() SubscriptionInfo {
	s.turn.Lock()
	defer s.turn.Unlock()
	pending := 0
	for _, it := range s.items {
		if it.Attempts > 0 {
			pending++
		}
	}
	low := s.low()
	return SubscriptionInfo{Done: int64(low) - 1, Behind: max(s.n.Last()-int64(low)+1, 0), Pending: pending}
}
