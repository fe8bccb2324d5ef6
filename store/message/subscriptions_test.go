package message_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

// A delivery is named by its global position and its token alone, and no other has the same token.
func TestDeliveriesByToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mem.New()
		st := openStore(t, eng, message.Options{Level: holdfast.Memory})
		n := namespace(t, st, message.Default)
		for range 6 {
			write(t, n, "a-1", msg("t"))
		}
		s := subscribe(t, n, "sub", message.SubscriptionOptions{})
		named := func(d message.Delivery) message.Delivery {
			return message.Delivery{Message: message.Message{Global: d.Global}, Token: d.Token}
		}
		seen := map[uint64]bool{}
		take := func(most int, want ...int64) []message.Delivery {
			list := claim(t, s, most, want...)
			for i, d := range list {
				if seen[d.Token] || d.Token == 0 || d.Token >= 1<<53 {
					t.Fatalf("the token of %d is %d", d.Global, d.Token)
				}
				seen[d.Token] = true
				list[i] = named(d)
			}
			return list
		}
		list := take(4, 1, 2, 3, 4)
		for _, wrong := range []message.Delivery{
			{Message: message.Message{Global: 1}},
			{Message: message.Message{Global: 1}, Token: list[1].Token},
			{Message: message.Message{Global: 99}, Token: list[0].Token},
			{Message: message.Message{Global: -1}, Token: list[0].Token},
			{Message: message.Message{Global: 5}}, // not delivered
		} {
			storetest.WantError(t, s.Ack(ctx, wrong), message.ErrLeaseLost)
		}
		time.Sleep(20 * time.Second)
		for _, err := range []error{
			s.Ack(ctx, list[0]), s.Extend(ctx, list[1]), s.Fail(ctx, "later", list[2]), s.Park(ctx, "bad", list[3]),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, done := range []message.Delivery{list[0], list[2], list[3]} {
			storetest.WantError(t, s.Ack(ctx, done), message.ErrLeaseLost)
		}
		take(9, 5, 6)
		again := take(1, 3) // after a second
		storetest.WantError(t, s.Ack(ctx, list[2]), message.ErrLeaseLost)
		// After a restart, and the end of the leases, all that was not done is delivered again, and the old tokens are worth
		// nothing.
		closeStore(t, st)
		time.Sleep(time.Minute)
		st = openStore(t, eng, message.Options{Level: holdfast.Memory})
		n = namespace(t, st, message.Default)
		s = subscribe(t, n, "sub", message.SubscriptionOptions{})
		last := take(9, 2, 3, 5, 6)
		storetest.WantError(t, s.Ack(ctx, list[1], again[0]), message.ErrLeaseLost)
		if err := s.Ack(ctx, last...); err != nil {
			t.Fatal(err)
		}
		// One of another subscription's is not taken for this one's.
		other := subscribe(t, n, "other", message.SubscriptionOptions{})
		theirs := claim(t, other, 1, 1)
		storetest.WantError(t, s.Ack(ctx, theirs...), message.ErrLeaseLost)
		closeStore(t, st)
	})
}

// Subscriptions lists all, open or not, with what they lag behind and have parked.
func TestSubscriptions(t *testing.T) {
	eng := mem.New()
	st := openStore(t, eng, message.Options{Level: holdfast.Memory})
	defer closeStore(t, st)
	n := namespace(t, st, message.Default)
	list := func(after string, limit int, want ...message.SubscriptionState) {
		t.Helper()
		got, err := n.Subscriptions(ctx, after, limit)
		if err != nil || len(got) != len(want) {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%d is %+v, want %+v", i, got[i], want[i])
			}
			if one, err := n.Subscription(ctx, want[i].Name); err != nil || one != want[i] {
				t.Fatalf("%+v, %v; want %+v", one, err, want[i])
			}
		}
	}
	list("", 0)
	for range 10 {
		write(t, n, "a-1", msg("t"))
	}
	subscribe(t, n, "ab", message.SubscriptionOptions{Query: message.Query{From: 11}})
	a := subscribe(t, n, "a", message.SubscriptionOptions{})
	c := subscribe(t, n, "c", message.SubscriptionOptions{})
	got := claim(t, a, 5, 1, 2, 3, 4, 5)
	if err := a.Ack(ctx, got[0], got[1]); err != nil {
		t.Fatal(err)
	}
	if err := a.Park(ctx, "bad", got[2], got[3]); err != nil {
		t.Fatal(err)
	}
	info := func(done, behind int64, pending int) message.SubscriptionInfo {
		return message.SubscriptionInfo{Done: done, Behind: behind, Pending: pending}
	}
	of := func(name string, open bool, i message.SubscriptionInfo, parked int) message.SubscriptionState {
		return message.SubscriptionState{Name: name, Open: open, SubscriptionInfo: i, Parked: parked}
	}
	isA, isAB, isC := of("a", true, info(4, 6, 1), 2), of("ab", true, info(10, 0, 0), 0), of("c", true, info(0, 10, 0), 0)
	list("", 0, isA, isAB, isC)
	list("", 2, isA, isAB)
	list("a", 0, isAB, isC)
	list("aa", 1, isAB)
	list("c", 0)
	storetest.Close(t, a)
	storetest.Close(t, c)
	isA.Open, isC.Open = false, false
	list("", 0, isA, isAB, isC)
	if err := n.DeleteSubscription(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	list("", 0, isAB, isC)
	_, err := n.Subscription(ctx, "a")
	storetest.WantError(t, err, holdfast.ErrNotFound)
	_, err = n.Subscription(ctx, "")
	storetest.WantError(t, err, holdfast.ErrNotFound)
}
