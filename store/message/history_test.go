package message_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// keysOf returns an engine with the same keys: the other, closed and opened again, or a copy of it.
func keysOf(t testing.TB, from holdfast.Engine) holdfast.Engine {
	to := mem.New()
	var b holdfast.Batch
	it := from.Scan(holdfast.Range{})
	for it.Next() {
		b.Set(it.Key(), it.Value())
	}
	if err := errors.Join(it.Close(), holdfast.Commit(to, &b, holdfast.Memory)); err != nil {
		t.Fatal(err)
	}
	return to
}

// firstError is the error with which reading or following a query begins, nil if there is none.
func firstError(n *message.Namespace, q message.Query, follow bool) error {
	c, cancel := context.WithCancel(ctx)
	defer cancel()
	seq := n.Read(c, q)
	if follow {
		seq = n.Follow(c, q)
	}
	for _, err := range seq {
		return err
	}
	return nil
}

// A query begins at most where the next message goes, whether it is of the namespace, a category or a stream.
func TestAhead(t *testing.T) {
	s, n := memStore(t)
	defer closeStore(t, s)
	write(t, n, "a-1", msg("t"), msg("t"), msg("t"))
	write(t, n, "a-2", msg("t"), msg("t"))
	write(t, n, "gone-1", msg("t"), msg("t"), msg("t"))
	if _, err := n.Delete(ctx, "gone-1"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    message.Query
		next int64
	}{
		{message.Query{}, 9},
		{message.Query{Category: "a"}, 9},
		{message.Query{Category: "none"}, 9},
		{message.Query{Types: []string{"none"}}, 9},
		{message.Query{Category: "a", Group: message.Group{Size: 2}}, 9},
		{message.Query{Stream: "a-1"}, 3},
		{message.Query{Stream: "a-1", Types: []string{"none"}}, 3},
		{message.Query{Stream: "a-2"}, 2},
		{message.Query{Stream: "gone-1"}, 3}, // the next write goes behind what was removed
		{message.Query{Stream: "none-1"}, 0},
	} {
		q := c.q
		for _, from := range []int64{-5, 0, c.next - 1, c.next} {
			if q.From = from; firstError(n, q, false) != nil {
				t.Errorf("%+v: %v", q, firstError(n, q, false))
			}
		}
		for _, from := range []int64{c.next + 1, c.next + 1000, 1<<63 - 1} {
			q.From = from
			for _, follow := range []bool{false, true} {
				if err := firstError(n, q, follow); !errors.Is(err, message.ErrAhead) || !errors.Is(err, event.ErrAhead) {
					t.Errorf("%+v, followed: %v: %v", q, follow, err)
				}
			}
		}
		// A follower at the end waits, and gets what comes.
		if q = c.q; len(q.Types) > 0 || q.Category == "none" || q.Group.Size > 0 {
			continue
		}
		stream := q.Stream
		if stream == "" {
			stream = "a-9"
		}
		synctest.Test(t, func(t *testing.T) {
			st, n := memStore(t)
			defer closeStore(t, st)
			write(t, n, stream, msg("before"))
			q.From = 2
			if q.Stream != "" {
				q.From = 1
			}
			got := make(chan message.Message, 1)
			go func() {
				for m := range n.Follow(t.Context(), q) {
					got <- m
					return
				}
			}()
			synctest.Wait()
			write(t, n, stream, msg("after"))
			if m := <-got; m.Type != "after" {
				t.Errorf("%+v", m)
			}
		})
	}
	if _, err := n.Subscribe(ctx, "s", message.SubscriptionOptions{Query: message.Query{From: 10}}); !errors.Is(err,
		message.ErrAhead) {
		t.Errorf("a subscription beyond the end: %v", err)
	}
	if _, err := n.Subscription(ctx, "s"); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("it was made all the same: %v", err)
	}
	sub, err := n.Subscribe(ctx, "s", message.SubscriptionOptions{Query: message.Query{From: 9}})
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.Close(); err != nil {
		t.Fatal(err)
	}
}

// A consumer that names the history of its position is told if the namespace was put back to a copy and has got as long
// as it was, or longer; and goes on where what it has read is still there.
func TestQueryHistory(t *testing.T) {
	o := message.Options{Level: holdfast.Memory}
	var eng holdfast.Engine = mem.New()
	s := openStore(t, eng, o)
	n := namespace(t, s, message.Default)
	write(t, n, "a-1", msg("1"), msg("2"))
	write(t, n, "b-1", msg("3"))
	closeStore(t, s)
	backup := keysOf(t, eng)

	eng = keysOf(t, eng)
	s = openStore(t, eng, o)
	n = namespace(t, s, message.Default)
	write(t, n, "a-1", msg("4"), msg("5"))
	write(t, n, "c-1", msg("6"))
	history, err := n.History(ctx)
	if err != nil {
		t.Fatal(err)
	}
	read := []struct {
		q  message.Query
		ok bool // what was read before From is in the backup too
	}{
		{message.Query{From: 7}, false},
		{message.Query{From: 5}, false},
		{message.Query{From: 4}, true},
		{message.Query{From: 1}, true},
		{message.Query{Category: "a", From: 6}, false},
		{message.Query{Category: "b", From: 4}, true},
		{message.Query{Stream: "a-1", From: 4}, false},
		{message.Query{Stream: "a-1", From: 3}, false},
		{message.Query{Stream: "a-1", From: 2}, true},
		{message.Query{Stream: "b-1", From: 1}, true},
		{message.Query{Stream: "c-1", From: 1}, false},
		{message.Query{Stream: "c-1"}, true},
	}
	check := func(n *message.Namespace, all bool) {
		t.Helper()
		for _, c := range read {
			q := c.q
			q.History = history
			for _, follow := range []bool{false, true} {
				if follow && (c.ok || all) {
					continue // it waits
				}
				err := firstError(n, q, follow)
				if want := c.ok || all; (err == nil) != want || err != nil && !errors.Is(err, message.ErrAhead) {
					t.Errorf("%+v, followed: %v: %v", q, follow, err)
				}
			}
		}
	}
	check(n, true)
	closeStore(t, s)
	s = openStore(t, keysOf(t, eng), o) // opened again
	check(namespace(t, s, message.Default), true)
	closeStore(t, s)

	s = openStore(t, backup, o)
	n = namespace(t, s, message.Default)
	write(t, n, "a-1", msg("x"), msg("y"), msg("z"))
	write(t, n, "c-1", msg("x"))
	write(t, n, "d-1", msg("x"), msg("y"))
	now, err := n.History(ctx)
	if err != nil || now == history {
		t.Fatal(now, err)
	}
	// The backup was made before the history began, so it does not know it: only who has read nothing goes on.
	for _, c := range read {
		q := c.q
		q.History = history
		if err := firstError(n, q, false); (err == nil) != (q.From <= 1 && q.Stream == "" || q.From == 0) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	closeStore(t, s)

	// A copy that was made while the history went on.
	s = openStore(t, eng, o)
	n = namespace(t, s, message.Default)
	if history, err = n.History(ctx); err != nil {
		t.Fatal(err)
	}
	copied := keysOf(t, eng)
	write(t, n, "a-1", msg("7"), msg("8"))
	closeStore(t, s)
	s = openStore(t, copied, o)
	n = namespace(t, s, message.Default)
	write(t, n, "a-1", msg("x"), msg("y"), msg("z"))
	for _, c := range []struct {
		q  message.Query
		ok bool
	}{
		{message.Query{From: 7}, true}, {message.Query{From: 8}, false}, {message.Query{From: 9}, false},
		{message.Query{Stream: "a-1", From: 4}, true}, {message.Query{Stream: "a-1", From: 5}, false},
		{message.Query{Stream: "a-1", From: 6}, false}, {message.Query{Stream: "b-1", From: 1}, true},
		{message.Query{Category: "b", From: 7}, true}, {message.Query{Category: "b", From: 8}, false},
	} {
		c.q.History = history
		if err := firstError(n, c.q, false); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.q, err)
		}
		if sub, err := n.Subscribe(ctx, "s", message.SubscriptionOptions{Query: c.q}); c.q.Stream == "" {
			if (err == nil) != c.ok {
				t.Errorf("subscribed to %+v: %v", c.q, err)
			}
			if err == nil {
				if err := errors.Join(sub.Close(), n.DeleteSubscription(ctx, "s")); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	// A namespace that was made anew, and one that was cleared, have another history, in the same engine too.
	if history, err = n.History(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Clear(ctx, message.Default); err != nil {
		t.Fatal(err)
	}
	n = namespace(t, s, message.Default)
	write(t, n, "a-1", msg("1"), msg("2"), msg("3"), msg("4"), msg("5"), msg("6"), msg("7"), msg("8"), msg("9"))
	for _, q := range []message.Query{{From: 9}, {Category: "a", From: 9}, {Stream: "a-1", From: 3}} {
		if err := firstError(n, q, false); err != nil {
			t.Error(err)
		}
		q.History = history
		if err := firstError(n, q, false); !errors.Is(err, message.ErrAhead) {
			t.Errorf("%+v after Clear: %v", q, err)
		}
	}
	closeStore(t, s)
}
