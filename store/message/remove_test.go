package message_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// positions are those of the messages of a stream.
func positions(t testing.TB, n *message.Namespace, stream string) (all []int64) {
	t.Helper()
	for _, m := range read(t, n, message.Query{Stream: stream}) {
		all = append(all, m.Position)
	}
	return all
}

// What a stream's retention does not keep is removed from time to time, in namespaces that are not open too.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mem.New()
		o := message.Options{Level: holdfast.Memory}
		s := openStore(t, eng, o)
		n := namespace(t, s, message.Default)
		for i := range 10 {
			for _, stream := range []string{"count-1", "age-1", "both-1", "all-1"} {
				write(t, n, stream, msg(fmt.Sprint(i)))
			}
			time.Sleep(time.Hour)
		}
		for stream, r := range map[string]message.Retention{
			"count-1": {MaxCount: 3}, "age-1": {MaxAge: 4*time.Hour + time.Second},
			"both-1": {MaxCount: 5, MaxAge: 150 * time.Minute},
		} {
			if err := n.SetRetention(ctx, stream, r); err != nil {
				t.Fatal(err)
			}
			if got, err := n.Retention(ctx, stream); got != r || err != nil {
				t.Fatal(got, err)
			}
		}
		storetest.WantError(t, n.SetRetention(ctx, "a", message.Retention{MaxAge: -1}), holdfast.ErrBadOption)
		closeStore(t, s)
		s = openStore(t, eng, o)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		n = namespace(t, s, message.Default)
		for stream, want := range map[string][]int64{
			"count-1": {7, 8, 9}, "age-1": {7, 8, 9}, "both-1": {8, 9}, "all-1": {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
		} {
			if got := positions(t, n, stream); !slices.Equal(got, want) {
				t.Errorf("%s: %d, want %d", stream, got, want)
			}
		}
		// Nothing is removed again and again, and what is set to zero is kept.
		if removed, err := n.Retain(ctx); removed != 0 || err != nil {
			t.Error(removed, err)
		}
		if err := n.SetRetention(ctx, "count-1", message.Retention{}); err != nil {
			t.Error(err)
		}
		write(t, n, "count-1", msg("10"))
		if removed, err := n.Retain(ctx); removed != 0 || err != nil {
			t.Error(removed, err)
		}
		closeStore(t, s)
	})
}

// Removing leaves nothing behind for the messages removed but what keeps the version.
func TestRemoveLeavesNothing(t *testing.T) {
	eng := mem.New()
	s := openStore(t, eng, message.Options{Level: holdfast.Memory})
	defer closeStore(t, s)
	n := namespace(t, s, message.Default)
	write(t, n, "keep-1", msg("0"))
	before := storetest.Keys(eng, holdfast.Range{})
	for i := range 3000 { // more than a page, and more blocks than one
		in := msg("t")
		in.ID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		write(t, n, "gone-1", in)
	}
	write(t, n, "keep-1", msg("1"))
	if removed, err := n.Delete(ctx, "gone-1"); removed != 3000 || err != nil {
		t.Fatal(removed, err)
	}
	// The second message, its id, its place and block; one hole; the stream's version; counts of a category and of all,
	// and where they end; and the last block of the category that is gone, which may get more.
	if more := storetest.Keys(eng, holdfast.Range{}) - before; more > 4+1+1+3+1 {
		t.Errorf("%d keys more", more)
	}
	if v, ok, err := n.Version(ctx, "gone-1"); v != 2999 || !ok || err != nil {
		t.Error(v, ok, err)
	}
	if r := write(t, n, "gone-1", msg("t")); r.Position != 3000 {
		t.Error(r)
	}
}

// A category is found again that is written to in the block where all of it was removed.
func TestWriteWhereAllWasRemoved(t *testing.T) {
	_, n := memStore(t)
	for i := range int64(40) {
		write(t, n, "a-1", msg("t"))
		if got := read(t, n, message.Query{Category: "a"}); len(got) != 1 || got[0].Global != i+1 {
			t.Fatalf("after %d messages: %+v", i+1, got)
		}
		if removed, err := n.Delete(ctx, "a-1"); removed != 1 || err != nil {
			t.Fatal(removed, err)
		}
		if got := read(t, n, message.Query{Category: "a"}); got != nil {
			t.Fatalf("%+v", got)
		}
	}
}

// A write beside the removal of its stream gets its place before or after it, and never one that was given.
func TestWriteBesideRemoval(t *testing.T) {
	_, n := memStore(t)
	const rounds = 200
	done := storetest.Async(func() error {
		for range rounds {
			if _, err := n.Delete(ctx, "a-1"); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range int64(rounds) {
		if r := write(t, n, "a-1", msg("t")); r.Position != i {
			t.Fatal(r, i)
		}
	}
	storetest.Finished(t, nil, done)
	if _, err := n.Delete(ctx, "a-1"); err != nil {
		t.Fatal(err)
	}
	if c, err := n.Count(ctx, ""); c != (message.Counts{}) || err != nil {
		t.Fatal(c, err)
	}
	if list, err := n.Categories(ctx); list != nil || err != nil {
		t.Fatal(list, err)
	}
}

// A stream that is ended while others write to it, by themselves or in transactions, stays so: who has looked at it
// before does not take that back, and nothing is left of what came before.
func TestTombstoneBesideWrites(t *testing.T) {
	ended := func(t *testing.T, s *message.Store, n *message.Namespace) {
		t.Helper()
		_, err := n.Write(ctx, "x-1", msg("t"))
		storetest.WantError(t, err, message.ErrEnded)
		if got := read(t, n, message.Query{Stream: "x-1"}); len(got) > 0 {
			t.Errorf("%d messages are left", len(got))
		}
		closeStore(t, s)
	}
	var removed int64
	tombstone := func(n *message.Namespace) (err error) {
		removed, err = n.Tombstone(ctx, "x-1")
		return err
	}

	s, _ := memStore(t)
	n := namespace(t, s, message.Default)
	var ending chan error
	if _, err := s.DB().Submit(ctx, func(tx *kv.Tx) error { // nobody waits for it
		if _, err := n.In(tx).Write("x-1", msg("t")); err != nil {
			return err
		}
		ending = storetest.Async(func() error { return tombstone(n) })
		storetest.Unfinished(t, ending)
		_, err := n.In(tx).Write("x-1", msg("t"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	storetest.Finished(t, nil, ending)
	if removed != 2 {
		t.Errorf("%d messages removed of two", removed)
	}
	ended(t, s, n)

	for range 30 {
		s, _ := memStore(t)
		n := namespace(t, s, message.Default)
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				for range 200 {
					if _, err := n.Write(ctx, "x-1", msg("t")); errors.Is(err, message.ErrEnded) {
						return
					} else if err != nil {
						t.Error(err)
					}
				}
			})
		}
		if err := tombstone(n); err != nil {
			t.Fatal(err)
		}
		writers.Wait()
		ended(t, s, n)
	}
}
