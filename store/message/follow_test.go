package message_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

// testFollow has followers of all kinds while many write: each gets every message once, in order.
func testFollow(t *testing.T, tg *target, o message.Options) {
	s := openStore(t, tg.Engine, o)
	defer closeStore(t, s)
	n := namespace(t, s, message.Default)
	const writers, each, streams = 4, 60, 5
	var queries []message.Query
	for i := range streams {
		queries = append(queries, message.Query{Stream: fmt.Sprint("a-", i)})
	}
	queries = append(queries, message.Query{Category: "a"}, message.Query{}, message.Query{Types: []string{"odd"}},
		message.Query{Category: "a", Group: message.Group{Member: 0, Size: 2}},
		message.Query{Category: "a", Group: message.Group{Member: 1, Size: 2}}, message.Query{Category: "b"})
	following, giveUp := context.WithCancel(ctx)
	defer giveUp()
	got := make([][]message.Message, len(queries))
	counts := make([]atomic.Int64, len(queries))
	var followers, writing sync.WaitGroup
	for i, q := range queries {
		followers.Go(func() {
			for m, err := range n.Follow(following, q) {
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				got[i] = append(got[i], m)
				counts[i].Add(1)
			}
		})
	}
	for w := range writers {
		writing.Go(func() {
			for i := range each {
				typ := []string{"even", "odd"}[i%2]
				if i%10 == 9 {
					_, err := writeAll(ctx, n, streamWrite{Stream: fmt.Sprint("b-", w), Messages: []message.Message{msg(typ)}},
						streamWrite{Stream: fmt.Sprint("a-", (w+i)%streams), Messages: []message.Message{msg(typ), msg(typ)}})
					if err != nil {
						t.Error(err)
					}
					continue
				}
				if _, err := n.Write(ctx, fmt.Sprint("a-", (w+i)%streams), msg(typ)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	if n.Last() != writers*each/10*12 {
		t.Fatal(n.Last())
	}
	want := make([][]message.Message, len(queries))
	for i, q := range queries {
		want[i] = read(t, n, q)
	}
	for i := range queries {
		for counts[i].Load() < int64(len(want[i])) { // each comes, or the test does not end
			_, err := n.Write(ctx, "tick", msg("tick"))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	giveUp()
	followers.Wait()
	for i, q := range queries {
		if len(want[i]) == 0 {
			t.Fatalf("%+v: the test covers nothing", q)
		}
		for j := range want[i] {
			if err := same(got[i][j], want[i][j]); err != nil {
				t.Fatalf("%+v: message %d: %v", q, j, err)
			}
		}
		for _, m := range got[i][len(want[i]):] {
			if m.Stream != "tick" {
				t.Fatalf("%+v: %+v too many", q, m)
			}
		}
	}
}

// Of writers that expect the same version exactly one wins it, and who loses finds there what it lost to.
func testConflicts(t *testing.T, tg *target, o message.Options) {
	s := openStore(t, tg.Engine, o)
	defer closeStore(t, s)
	n := namespace(t, s, message.Default)
	const writers, each, streams = 6, 15, 2
	var wg sync.WaitGroup
	var conflicts atomic.Int64
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				stream := fmt.Sprint("a-", i%streams)
				for {
					version, ok, err := n.Version(ctx, stream)
					if err != nil {
						t.Error(err)
						return
					}
					if !ok {
						version = message.NoStream
					}
					r, err := n.WriteAfter(ctx, stream, version, msg(fmt.Sprint(w)))
					var c *message.Conflict
					if errors.As(err, &c) && errors.Is(err, message.ErrConflict) {
						conflicts.Add(1)
						now, _, err := n.Version(ctx, stream)
						if c.Expected != version || c.Actual <= version || now < c.Actual || err != nil {
							t.Errorf("%+v after version %d, readers see %d, %v", c, version, now, err)
							return
						}
						continue
					}
					if err != nil || r.Position != version+1 {
						t.Error(r, version, err)
						return
					}
					break
				}
			}
		})
	}
	wg.Wait()
	for i := range streams {
		all := read(t, n, message.Query{Stream: fmt.Sprint("a-", i)})
		if i == 0 && len(all) != writers*(each+1)/2 || i == 1 && len(all) != writers*(each/2) {
			t.Errorf("%d messages", len(all))
		}
		for j, m := range all {
			if m.Position != int64(j) {
				t.Errorf("message %d is at %d", j, m.Position)
			}
		}
	}
	if conflicts.Load() > writers*writers*each {
		t.Errorf("%d conflicts", conflicts.Load())
	}
}

// What is not durable is neither read nor followed nor counted as a version, and a repeat waits for it.
func TestInFlight(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		s := openStore(t, st, message.Options{Level: holdfast.Memory})
		defer closeStore(t, s)
		n := namespace(t, s, message.Default)
		write(t, n, "a-1", msg("0"))
		st.Hold()
		before := st.Applied
		in := msg("1")
		in.ID = "00000000-0000-4000-8000-000000000001"
		first := storetest.Async(func() error {
			_, err := writeAll(ctx, n, streamWrite{Stream: "a-1", Messages: []message.Message{in}},
				streamWrite{Stream: "b-1", Messages: []message.Message{msg("1")}})
			return err
		})
		st.AwaitApplied(before + 1)
		follower := storetest.Async(func() error {
			for m, err := range n.Follow(ctx, message.Query{Stream: "a-1", From: 1}) {
				if err == nil && m.Type != "1" {
					t.Errorf("%+v", m)
				}
				return err
			}
			return nil
		})
		repeat := storetest.Async(func() error {
			r, err := n.Write(ctx, "a-1", in)
			if !r.Repeated || r.Position != 1 {
				t.Errorf("%+v", r)
			}
			return err
		})
		if _, ok, err := n.Version(ctx, "b-1"); ok || err != nil {
			t.Error(ok, err)
		}
		conflict := storetest.Async(func() error { _, err := n.WriteAfter(ctx, "a-1", 0, msg("2")); return err })
		for _, q := range []message.Query{{}, {Stream: "a-1"}, {Category: "a"}} {
			if got := read(t, n, q); len(got) != 1 {
				t.Errorf("%+v: %+v", q, got)
			}
		}
		if v, _, err := n.Version(ctx, "a-1"); v != 0 || err != nil {
			t.Error(v, err)
		}
		if m, err := n.LastMessage(ctx, "a-1", ""); m.Type != "0" || err != nil {
			t.Error(m, err)
		}
		if list, err := n.Streams(ctx, "", "", 0); len(list) != 1 || list[0].Version != 0 || err != nil {
			t.Error(list, err)
		}
		storetest.Unfinished(t, first, follower, repeat, conflict)
		st.Release(-1)
		storetest.Finished(t, nil, first, follower, repeat)
		storetest.Finished(t, message.ErrConflict, conflict)
	})
}

// A failed sync ends followers and writes, and reading goes on.
func TestPoisoned(t *testing.T) {
	st := storetest.NewFakeEngine()
	s := openStore(t, st, message.Options{Level: holdfast.Memory})
	n := namespace(t, s, message.Default)
	write(t, n, "a-1", msg("0"))
	follower := storetest.Async(func() error {
		for _, err := range n.Follow(ctx, message.Query{Category: "a", From: 2}) {
			return err
		}
		return nil
	})
	st.Hold()
	broken := errors.New("broken")
	st.Locked(func() { st.Fail = broken })
	_, err := n.Write(ctx, "a-1", msg("1"))
	storetest.WantError(t, err, holdfast.ErrPoisoned)
	storetest.Finished(t, holdfast.ErrPoisoned, follower)
	if got := read(t, n, message.Query{Category: "a"}); len(got) != 1 {
		t.Fatal(got)
	}
	_ = s.Close()
}

// Followers that begin while the store is closed get ErrClosed, or end with it. The race detector watches.
func TestFollowBesideClose(t *testing.T) {
	for range 100 {
		s := openStore(t, mem.New(), message.Options{Level: holdfast.Memory})
		n := namespace(t, s, message.Default)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for _, err := range n.Follow(ctx, message.Query{}) {
					if !errors.Is(err, holdfast.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		closeStore(t, s)
		wg.Wait()
		for _, q := range []message.Query{{}, {From: 9}, {Stream: "a"}, {Category: "a"}} {
			ended := false
			for _, err := range n.Read(ctx, q) {
				ended = errors.Is(err, holdfast.ErrClosed)
			}
			if !ended {
				t.Errorf("%+v of a closed store", q)
			}
		}
	}
}
