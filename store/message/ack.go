package message

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
)

// change changes what a consumer has, and adds to b what is kept of it.
type change func(b *holdfast.Batch, it *item)

// Ack says that messages are done, and returns when that has reached its level: they are never delivered again.
// ErrLeaseLost: some of them are no longer the caller's; the others are done.
func (s *Subscription) Ack(ctx context.Context, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, s.acked)
}

func (s *Subscription) acked(b *holdfast.Batch, it *item) { s.finish(b, it.global) }

// Fail says that messages could not be handled, and why. They are delivered again after a while, or parked if this was
// the last attempt. Errors are those of Ack.
func (s *Subscription) Fail(ctx context.Context, reason string, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, s.failed(reason))
}

func (s *Subscription) failed(reason string) change {
	return func(b *holdfast.Batch, it *item) {
		if it.Attempts >= s.o.MaxAttempts {
			s.park(b, it, reason)
			return
		}
		to := *it
		to.Reason, to.lease = reason, lease{Until: time.Now().Add(s.o.Backoff(it.Attempts))}
		s.put(it.global, &to, false)
		s.keep(b, it.global, to.delivery)
	}
}

// Park parks messages at once, whatever attempt it is. Errors are those of Ack.
func (s *Subscription) Park(ctx context.Context, reason string, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, s.parked(reason))
}

func (s *Subscription) parked(reason string) change {
	return func(b *holdfast.Batch, it *item) { s.park(b, it, reason) }
}

// Extend restarts the leases of deliveries. Errors are those of Ack.
func (s *Subscription) Extend(ctx context.Context, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, func(_ *holdfast.Batch, it *item) {
		to := *it
		to.Until = time.Now().Add(s.o.Lease)
		s.put(it.global, &to, false)
	})
}

// Return gives back deliveries that no consumer has seen: it is as if they had not been delivered, and they are again
// at once. Errors are those of Ack.
func (s *Subscription) Return(ctx context.Context, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, func(b *holdfast.Batch, it *item) {
		to := *it
		to.Attempts, to.lease = it.Attempts-1, lease{}
		s.put(it.global, &to, false)
		if to.Attempts == 0 && to.Reason == "" {
			b.Delete(s.n.keys.Delivery(nil, s.name, it.global))
			return
		}
		s.keep(b, it.global, to.delivery)
	})
}

// settle makes a change to what the caller has, all in one commit.
func (s *Subscription) settle(ctx context.Context, deliveries []Delivery, change change) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	var lost error
	err := s.update(ctx, s.n.store.o.Level, func(b *holdfast.Batch) error {
		lost = s.changeAll(b, deliveries, change)
		return nil
	})
	return errors.Join(err, lost)
}

// changeAll makes a change to those deliveries that are the caller's, and returns ErrLeaseLost if others are not.
func (s *Subscription) changeAll(b *holdfast.Batch, deliveries []Delivery, change change) (lost error) {
	for i := range deliveries {
		it, err := s.held(&deliveries[i])
		if err != nil {
			lost = err
			continue
		}
		change(b, it)
	}
	return lost
}

// SubscriptionTx is a subscription in a transaction of its namespace's database, and is used as that is. So what is
// done for a message, and that it is done, are one commit: exactly once, as far as it is in the database.
//
//	err := db.Update(ctx, func(tx *kv.Tx) error {
//		if err := tx.Bucket("seen").Put(key, value); err != nil {
//			return err
//		}
//		return mails.In(tx).Ack(delivery)
//	})
type SubscriptionTx struct {
	s  *Subscription
	tx *kv.Tx
}

// In returns the subscription as a part of a transaction. Until the function of that has returned, nothing else is
// claimed or acknowledged.
func (s *Subscription) In(tx *kv.Tx) SubscriptionTx { return SubscriptionTx{s, tx} }

// Ack is [Subscription.Ack] in the transaction. ErrLeaseLost: some of the deliveries are no longer the caller's; then
// none is done.
func (t SubscriptionTx) Ack(deliveries ...Delivery) error { return t.settle(deliveries, t.s.acked) }

// Fail is [Subscription.Fail] in the transaction. Errors are those of Ack.
func (t SubscriptionTx) Fail(reason string, deliveries ...Delivery) error {
	return t.settle(deliveries, t.s.failed(reason))
}

// Park is [Subscription.Park] in the transaction. Errors are those of Ack.
func (t SubscriptionTx) Park(reason string, deliveries ...Delivery) error {
	return t.settle(deliveries, t.s.parked(reason))
}

func (t SubscriptionTx) settle(deliveries []Delivery, change change) error {
	return t.s.updateIn(t.tx, func(b *holdfast.Batch) error { return t.s.changeAll(b, deliveries, change) })
}
