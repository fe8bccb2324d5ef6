package message_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

func subscribe(t testing.TB, n *message.Namespace, name string, o message.SubscriptionOptions) *message.Subscription {
	t.Helper()
	s, err := n.Subscribe(ctx, name, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// claim claims messages, which must be those at the global positions.
func claim(t testing.TB, s *message.Subscription, most int, want ...int64) []message.Delivery {
	t.Helper()
	got, err := s.Claim(ctx, most)
	if err != nil {
		t.Fatal(err)
	}
	var globals []int64
	for _, d := range got {
		globals = append(globals, d.Global)
	}
	if !slices.Equal(globals, want) {
		t.Fatalf("claimed %d, want %d", globals, want)
	}
	return got
}

// nothing checks that there is nothing to claim for now. It is called in a bubble of synctest.
func nothing(t testing.TB, s *message.Subscription) {
	t.Helper()
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if got, err := s.Claim(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(got, err)
	}
}

// A message is delivered until it is acknowledged: after its lease, after a failure and its pause, and after a
// restart.
func TestSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mem.New()
		open := func() (*message.Store, *message.Namespace) {
			s := openStore(t, eng, message.Options{Level: holdfast.Memory})
			return s, namespace(t, s, message.Default)
		}
		st, n := open()
		for i := range 6 {
			write(t, n, fmt.Sprint([]string{"a-", "b-"}[i%2], i), msg("t"))
		}
		o := message.SubscriptionOptions{Query: message.Query{Category: "a"}, MaxAttempts: 3}
		s := subscribe(t, n, "sub", o)
		_, err := n.Subscribe(ctx, "sub", o)
		storetest.WantError(t, err, holdfast.ErrLocked)
		storetest.WantError(t, n.DeleteSubscription(ctx, "sub"), holdfast.ErrLocked)
		first := claim(t, s, 2, 1, 3)
		claim(t, s, 9, 5)
		nothing(t, s)
		if err := s.Ack(ctx, first[1]); err != nil {
			t.Fatal(err)
		}
		if err := s.Fail(ctx, "not today", first[0]); err != nil {
			t.Fatal(err)
		}
		storetest.WantError(t, s.Ack(ctx, first[0]), message.ErrLeaseLost)
		nothing(t, s)
		again := claim(t, s, 9, 1) // after a second
		if again[0].Attempt != 2 {
			t.Fatal(again)
		}
		time.Sleep(20 * time.Second)
		if err := s.Extend(ctx, again...); err != nil {
			t.Fatal(err)
		}
		late := claim(t, s, 9, 5) // the lease of the second claim has ended
		time.Sleep(25 * time.Second)
		if err := s.Ack(ctx, again[0]); err != nil {
			t.Fatal(err)
		}
		if i := s.Info(); i != (message.SubscriptionInfo{Done: 4, Behind: 2, Pending: 1}) {
			t.Fatalf("%+v", i)
		}
		closeStore(t, st)
		storetest.WantError(t, s.Ack(ctx, late...), holdfast.ErrClosed)
		st, n = open()
		s = subscribe(t, n, "sub", o)
		last := claim(t, s, 9, 5) // at once
		if last[0].Attempt != 3 {
			t.Fatalf("%+v", last)
		}
		storetest.WantError(t, s.Ack(ctx, late...), message.ErrLeaseLost)
		// The third attempt fails, and the message is parked.
		if err := s.Fail(ctx, "broken", last...); err != nil {
			t.Fatal(err)
		}
		write(t, n, "a-9", msg("t"))
		claim(t, s, 9, 7)
		closeStore(t, st)
		st, n = open()
		s = subscribe(t, n, "sub", o)
		seven := claim(t, s, 9, 7)
		parked, err := s.Parked(ctx, 0, 0)
		if err != nil || len(parked) != 1 || parked[0].Global != 5 || parked[0].Attempts != 3 ||
			parked[0].Reason != "broken" ||
			parked[0].Stream != "a-4" || parked[0].At.IsZero() {
			t.Fatalf("%+v %v", parked, err)
		}
		if k, err := s.Replay(ctx, 5, 1, 7); k != 1 || err != nil {
			t.Fatal(k, err)
		}
		closeStore(t, st)
		st, n = open()
		s = subscribe(t, n, "sub", o)
		five := claim(t, s, 9, 5, 7)
		if five[0].Attempt != 1 {
			t.Fatal(five)
		}
		storetest.WantError(t, s.Ack(ctx, seven...), message.ErrLeaseLost)
		if err := s.Park(ctx, "later", five...); err != nil {
			t.Fatal(err)
		}
		if k, err := s.Discard(ctx, 7, 9); k != 1 || err != nil {
			t.Fatal(k, err)
		}
		if parked, err := s.Parked(ctx, 0, 1); err != nil || len(parked) != 1 || parked[0].Global != 5 {
			t.Fatal(parked, err)
		}
		if i := s.Info(); i != (message.SubscriptionInfo{Done: 7}) {
			t.Fatalf("%+v", i)
		}
		waiting := storetest.Async(func() error { _, err := s.Claim(ctx, 1); return err })
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		storetest.Finished(t, holdfast.ErrClosed, waiting)
		storetest.WantError(t, s.Close(), holdfast.ErrClosed)
		before := storetest.Keys(eng, holdfast.Range{})
		if err := n.DeleteSubscription(ctx, "sub"); err != nil {
			t.Fatal(err)
		}
		if gone := before - storetest.Keys(eng, holdfast.Range{}); gone != 2 { // where it began, and what is parked
			t.Errorf("%d keys removed", gone)
		}
		closeStore(t, st)
	})
}

// testConsumers has many consumers share the messages of many writers: each message is acknowledged once, also after
// failures and restarts, and nothing is kept of those that are done.
func testConsumers(t *testing.T, tg *target, o message.Options) {
	st := openStore(t, tg.Engine, o)
	defer func() { closeStore(t, st) }()
	const messages, consumers = 200, 4
	o2 := message.SubscriptionOptions{Backoff: func(int) time.Duration { return time.Millisecond }, Window: 32}
	var mu sync.Mutex
	acked := map[int64]int{}
	for round := range 2 {
		n := namespace(t, st, message.Default)
		s := subscribe(t, n, "sub", o2)
		limit := []int{messages / 2, messages}[round]
		stop, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		if round == 0 {
			wg.Go(func() {
				for i := range messages {
					if _, err := n.Write(ctx, fmt.Sprint("a-", i%7), msg("t")); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range consumers {
			wg.Go(func() {
				for {
					got, err := s.Claim(stop, 3)
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
					for _, d := range got {
						if d.Global%5 == 0 && d.Attempt < 3 {
							if err := s.Fail(ctx, "again", d); err != nil {
								t.Error(err)
							}
							continue
						}
						if err := s.Ack(ctx, d); err != nil {
							t.Error(err)
						}
						mu.Lock()
						acked[d.Global]++
						if len(acked) >= limit {
							cancel()
						}
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		cancel()
		if round == 1 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if i := s.Info(); i.Done != messages {
				t.Errorf("%+v", i)
			}
		}
		closeStore(t, st)
		st = openStore(t, tg.Engine, o)
	}
	for global := range int64(messages) {
		if acked[global+1] != 1 {
			t.Errorf("the message at %d was acknowledged %d times", global+1, acked[global+1])
		}
	}
	s := subscribe(t, namespace(t, st, message.Default), "sub", o2)
	if i := s.Info(); i != (message.SubscriptionInfo{Done: messages}) {
		t.Errorf("%+v", i)
	}
}

// What the engine refuses changes nothing: the message is still its consumer's, and nothing is passed over.
func TestRefusedAck(t *testing.T) {
	st := storetest.NewFakeEngine()
	s := openStore(t, st, message.Options{Level: holdfast.Memory})
	defer closeStore(t, s)
	n := namespace(t, s, message.Default)
	write(t, n, "a-1", msg("t"))
	sub := subscribe(t, n, "sub", message.SubscriptionOptions{})
	got := claim(t, sub, 1, 1)
	st.Locked(func() { st.Refuse, st.Spare = holdfast.ErrFull, 0 })
	storetest.WantError(t, sub.Ack(ctx, got...), holdfast.ErrFull)
	storetest.WantError(t, sub.Fail(ctx, "why", got...), holdfast.ErrFull)
	storetest.WantError(t, sub.Park(ctx, "why", got...), holdfast.ErrFull)
	if i := sub.Info(); i != (message.SubscriptionInfo{Done: 0, Behind: 1, Pending: 1}) {
		t.Errorf("%+v", i)
	}
	write := func(refuse error) { st.Locked(func() { st.Refuse = refuse }) }
	write(nil)
	if err := sub.Ack(ctx, got...); err != nil { // it is still the caller's
		t.Error(err)
	}
	if _, err := n.Write(ctx, "a-1", msg("t")); err != nil {
		t.Error(err)
	}
	write(holdfast.ErrFull)
	_, err := sub.Claim(ctx, 1)
	storetest.WantError(t, err, holdfast.ErrFull)
	write(nil)
	second := claim(t, sub, 1, 2)
	if second[0].Attempt != 1 {
		t.Errorf("%+v", second)
	}
	if err := sub.Park(ctx, "why", second...); err != nil {
		t.Error(err)
	}
	write(holdfast.ErrFull)
	_, err = sub.Replay(ctx, 2)
	storetest.WantError(t, err, holdfast.ErrFull)
	if i := sub.Info(); i != (message.SubscriptionInfo{Done: 2}) {
		t.Errorf("%+v", i)
	}
	write(nil)
	if k, err := sub.Replay(ctx, 2); k != 1 || err != nil {
		t.Error(k, err)
	}
	claim(t, sub, 1, 2)
}

func TestPositions(t *testing.T) {
	_, n := memStore(t)
	write(t, n, "a", msg("0"), msg("1"))
	_, err := n.LoadPosition(ctx, "c")
	storetest.WantError(t, err, holdfast.ErrNotFound)
	if err := n.SavePosition(ctx, "c", 2); err != nil {
		t.Fatal(err)
	}
	if at, err := n.LoadPosition(ctx, "c"); at != 2 || err != nil {
		t.Fatal(at, err)
	}
	storetest.WantError(t, n.SavePosition(ctx, "c", -1), holdfast.ErrBadOption)
	if err := errors.Join(n.DeletePosition(ctx, "c"), n.DeletePosition(ctx, "c")); err != nil {
		t.Fatal(err)
	}
}
