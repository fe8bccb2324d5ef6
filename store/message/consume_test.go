package message_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
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
		nothing(t, s)
		time.Sleep(time.Minute)
		last := claim(t, s, 9, 5) // the lease has outlived the store, and ended
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
		nothing(t, s)
		time.Sleep(time.Minute)
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
		time.Sleep(time.Minute)
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

// TestLeasesSurvive: what consumers have is theirs after an orderly restart, of the subscription or of the store, and
// no restart counts as an attempt. After a crash it is delivered again at once, and the attempt counts.
func TestLeasesSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mem.New()
		o := message.SubscriptionOptions{Lease: time.Hour, MaxAttempts: 3}
		var st *message.Store
		var s *message.Subscription
		open := func() {
			st = openStore(t, eng, message.Options{Level: holdfast.Memory})
			s = subscribe(t, namespace(t, st, message.Default), "sub", o)
		}
		open()
		write(t, namespace(t, st, message.Default), "a-1", msg("t"), msg("t"))
		got := claim(t, s, 9, 1, 2)
		for i := range 10 {
			if i%2 == 0 {
				storetest.Close(t, s)
			}
			closeStore(t, st)
			open()
			nothing(t, s)
		}
		if err := s.Extend(ctx, got...); err != nil {
			t.Error(err)
		}
		if err := s.Ack(ctx, got[0]); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Hour)
		again := claim(t, s, 9, 2)
		if again[0].Attempt != 2 || again[0].Token == got[1].Token {
			t.Errorf("%+v after %+v", again, got)
		}
		storetest.WantError(t, s.Ack(ctx, got[1]), message.ErrLeaseLost)
		closeStore(t, st)
	})
}

// TestReturn: a delivery that nobody has seen was none.
func TestReturn(t *testing.T) {
	_, n := memStore(t)
	s := subscribe(t, n, "sub", message.SubscriptionOptions{MaxAttempts: 2})
	write(t, n, "a-1", msg("t"))
	for range 10 {
		got := claim(t, s, 1, 1)
		if got[0].Attempt != 1 {
			t.Fatal(got)
		}
		if err := s.Return(ctx, got...); err != nil {
			t.Fatal(err)
		}
		storetest.WantError(t, s.Ack(ctx, got...), message.ErrLeaseLost)
	}
	if i := s.Info(); i.Pending != 0 {
		t.Errorf("%+v", i)
	}
}

// TestClaimIsCounted: a claim returns no message before the engine keeps how often it was delivered, and none that is
// parked before it is seen among the parked.
func TestClaimIsCounted(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		s := openStore(t, st, message.Options{Level: holdfast.Memory})
		defer closeStore(t, s)
		n := namespace(t, s, message.Default)
		sub := subscribe(t, n, "sub", message.SubscriptionOptions{MaxAttempts: 1, Lease: time.Nanosecond})
		write(t, n, "a-1", msg("t"))
		for range 2 { // the second time it is parked
			st.Hold()
			short, cancel := context.WithCancel(ctx)
			claimed := storetest.Async(func() error { _, err := sub.Claim(short, 1); return err })
			st.AwaitWaiters(1)
			storetest.Unfinished(t, claimed)
			st.Release(-1)
			cancel()
			<-claimed
		}
		if parked, err := sub.Parked(ctx, 0, 0); err != nil || len(parked) != 1 || parked[0].Reason == "" {
			t.Errorf("%+v, %v", parked, err)
		}
	})
}

// TestClaimIsBounded: a claim delivers as many messages as fit, and at least one; only what it delivers is an attempt.
func TestClaimIsBounded(t *testing.T) {
	_, n := memStore(t)
	s := subscribe(t, n, "sub", message.SubscriptionOptions{MaxAttempts: 2, Lease: time.Hour,
		Backoff: func(int) time.Duration { return time.Hour }})
	large := message.Message{Type: "t", Data: fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("x", message.ClaimBytes/3))}
	largest := message.Message{Type: "t", Data: fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("x", message.ClaimBytes+1))}
	write(t, n, "a-1", large, large, large, largest, msg("t"))
	first := claim(t, s, 100, 1, 2)
	if err := s.Fail(ctx, "later", first...); err != nil {
		t.Fatal(err)
	}
	claim(t, s, 100, 3)
	claim(t, s, 100, 4)
	claim(t, s, 100, 5)
	if err := s.Park(ctx, "no", first...); !errors.Is(err, message.ErrLeaseLost) {
		t.Fatal(err)
	}
	for _, most := range []int{0, -1} {
		_, err := s.Claim(ctx, most)
		storetest.WantError(t, err, holdfast.ErrBadOption)
	}
}

// TestClaimEndsWhileItLoads: what a claim has loaded when its context ends is delivered.
func TestClaimEndsWhileItLoads(t *testing.T) {
	_, n := memStore(t)
	for i := range 300 {
		write(t, n, fmt.Sprint("a-", i%3), msg("t"))
	}
	s := subscribe(t, n, "sub", message.SubscriptionOptions{Lease: time.Hour})
	total := 0
	for calls := int64(2); total < 300 && calls < 5000; calls++ {
		short, cancel := context.WithCancel(ctx)
		var left atomic.Int64
		left.Store(calls)
		got, err := s.Claim(endsAfter{short, &left}, 1000)
		cancel()
		if err == nil == (len(got) == 0) {
			t.Fatal(len(got), err)
		}
		for _, d := range got {
			if d.Attempt != 1 {
				t.Fatalf("%+v", d)
			}
		}
		total += len(got)
	}
	if total != 300 {
		t.Errorf("%d of 300 were delivered", total)
	}
}

// TestRemovedWhileDelivered: a message that is removed is done: it holds no room in the window while a consumer has it,
// and is not delivered although it was loaded before.
func TestRemovedWhileDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, n := memStore(t)
		defer closeStore(t, st)
		s := subscribe(t, n, "sub", message.SubscriptionOptions{Window: 3, Lease: time.Hour})
		write(t, n, "a-1", msg("t"), msg("t"), msg("t"))
		write(t, n, "b-1", msg("t"), msg("t"))
		had := claim(t, s, 3, 1, 2, 3)
		nothing(t, s)
		next := make(chan []message.Delivery)
		go func() { got, _ := s.Claim(ctx, 9); next <- got }()
		synctest.Wait()
		if _, err := n.Delete(ctx, "a-1"); err != nil {
			t.Fatal(err)
		}
		if got := <-next; len(got) != 2 || got[0].Stream != "b-1" {
			t.Fatalf("%+v", got)
		}
		storetest.WantError(t, s.Ack(ctx, had...), message.ErrLeaseLost)

		// Loaded, and then removed.
		write(t, n, "c-1", msg("t"), msg("t"), msg("t"))
		claim(t, s, 1, 6) // the window has no room for more
		if _, err := n.Delete(ctx, "c-1"); err != nil {
			t.Fatal(err)
		}
		nothing(t, s)
		if i := s.Info(); i.Pending != 2 {
			t.Errorf("%+v", i)
		}
	})
}

// TestRemovedBehindClaim: a removed message that a consumer has is done, also if the claim that comes next has enough
// before it gets there.
func TestRemovedBehindClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, n := memStore(t)
		defer closeStore(t, st)
		s := subscribe(t, n, "sub", message.SubscriptionOptions{Window: 3, Lease: time.Hour})
		write(t, n, "a-1", msg("t"), msg("t"))
		write(t, n, "b-1", msg("t"))
		write(t, n, "c-1", msg("t"))
		had := claim(t, s, 3, 1, 2, 3)
		if err := s.Return(ctx, had[:2]...); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Delete(ctx, "b-1"); err != nil {
			t.Fatal(err)
		}
		claim(t, s, 1, 1)
		claim(t, s, 9, 2, 4)
	})
}

// TestPanickingBackoff: what a panic has begun is taken back, and others go on.
func TestPanickingBackoff(t *testing.T) {
	_, n := memStore(t)
	s := subscribe(t, n, "sub", message.SubscriptionOptions{Lease: time.Hour, Backoff: func(attempt int) time.Duration {
		if attempt > 1 {
			panic("no")
		}
		return -1
	}})
	write(t, n, "a-1", msg("t"), msg("t"))
	first := claim(t, s, 1, 1)
	if err := s.Fail(ctx, "again", first...); err != nil {
		t.Fatal(err)
	}
	had := claim(t, s, 2, 1, 2)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = s.Fail(ctx, "again", had[1], had[0])
	}()
	if i := s.Info(); i.Pending != 2 {
		t.Errorf("%+v", i)
	}
	if err := s.Ack(ctx, had...); err != nil { // both are still the caller's
		t.Error(err)
	}
}

// TestLargeOptions: no option is too large to be used, since a server stores what its clients ask for.
func TestLargeOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, n := memStore(t)
		defer closeStore(t, st)
		s := subscribe(t, n, "sub", message.SubscriptionOptions{
			Window: math.MaxInt, Lease: math.MaxInt64, MaxAttempts: math.MaxInt,
		})
		write(t, n, "a-1", msg("t"), msg("t"))
		had := claim(t, s, 1, 1)
		claim(t, s, math.MaxInt, 2)
		nothing(t, s)
		if err := s.Ack(ctx, had...); err != nil {
			t.Error(err)
		}
	})
}
