package projection_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/projection"
)

// earlierPrefix is that of the view that keepEarlier keeps.
const earlierPrefix = "views/totals/"

// keepEarlier moves the view of a projection to where earlier versions kept it: under a prefix that the engine has a
// note of, with the position under the prefix itself. There are large values among others.
func keepEarlier(t *testing.T, eng holdfast.Engine, p runner, prefix, name string, large int) {
	t.Helper()
	var b holdfast.Batch
	b.Set([]byte("s\x00p"+prefix), []byte("\x01"+name))
	fatal(t)(kv.On(eng).At(holdfast.Memory).Update(ctx, func(tx *kv.Tx) error {
		view := p.View(tx)
		for key, value := range view.All() {
			b.Set([]byte(prefix+string(key)), value)
		}
		for about := range view.Buckets() {
			for _, value := range view.Bucket(about).All() {
				b.Set([]byte(prefix), value)
			}
		}
		return tx.DeleteBucket(name)
	}))
	fatal(t)(holdfast.Commit(eng, &b, holdfast.Memory))
	for i := range large {
		b.Reset()
		b.Set(fmt.Append(nil, prefix, "large-", i), make([]byte, 200<<10))
		fatal(t)(holdfast.Commit(eng, &b, holdfast.Memory))
	}
}

// left counts what earlier versions have kept.
func left(eng holdfast.Engine) int {
	return storetest.Keys(eng, holdfast.Prefix([]byte("views/"))) + storetest.Keys(eng, holdfast.Prefix([]byte("s\x00p")))
}

// withLarge checks the view after so many events, beside large values.
func withLarge(t *testing.T, eng holdfast.Engine, p runner, large int, last uint64) {
	t.Helper()
	fatal(t)(kv.On(eng).At(holdfast.Memory).Update(ctx, func(tx *kv.Tx) error {
		for i := range large {
			key := fmt.Append(nil, "large-", i)
			if value, err := p.View(tx).Get(key); err != nil || len(value) != 200<<10 {
				t.Fatalf("%s: %d bytes, %v", key, len(value), err)
			}
			fatal(t)(p.View(tx).Delete(key))
		}
		return nil
	}))
	check(t, eng, p, last)
}

// The view that an earlier version has kept is carried over, and nothing of it stays, whatever crash or failing write
// comes between.
func TestCarriedOver(t *testing.T) {
	const events, large = 30, 8
	o := projection.Options{Name: "totals"}
	each(t, func(t *testing.T, k kind) {
		// What lies in the engine, as another version has left it.
		eng := mem.New()
		add, p, shut := k.open(fatal(t), eng, holdfast.Memory, o)
		add(events)
		fatal(t)(p.CatchUp(ctx))
		keepEarlier(t, eng, p, earlierPrefix, "totals", large)
		shut()

		st := storetest.NewFakeEngine() // batches of 1 MiB
		all := chunked(t, eng)
		for _, b := range all {
			fatal(t)(holdfast.Commit(st, b, holdfast.Memory))
		}
		st.Record = true
		opened := len(st.Batches)
		add, p, shut = k.open(fatal(t), st, holdfast.Memory, o)
		before, err := p.Progress(ctx)
		if err != nil || before.Next != events+1 {
			t.Fatal(before, err)
		}
		fatal(t)(p.CatchUp(ctx))
		if n := left(st); n > 0 {
			t.Fatalf("%d old keys are left", n)
		}
		after, err := p.Progress(ctx)
		if err != nil || after != before {
			t.Fatal(after, err)
		}
		batches := st.Batches[opened:]
		if len(batches) < 5 {
			t.Fatalf("the large values were carried over in %d commits", len(batches))
		}
		withLarge(t, st, p, large, events)
		add(5)
		fatal(t)(p.CatchUp(ctx))
		check(t, st, p, events+5)
		shut()

		for n := range len(batches) + 1 {
			crashed := mem.New()
			for _, b := range append(all[:len(all):len(all)], batches[:n]...) {
				fatal(t)(holdfast.Commit(crashed, b, holdfast.Memory))
			}
			add, p, shut := k.open(fatal(t), crashed, holdfast.Memory, o)
			g, err := p.Progress(ctx)
			if err != nil || g != before {
				t.Fatalf("after %d commits: %+v, %v", n, g, err)
			}
			fatal(t)(p.CatchUp(ctx))
			if n := left(crashed); n > 0 {
				t.Fatalf("%d old keys are left", n)
			}
			withLarge(t, crashed, p, large, events)
			add(5)
			fatal(t)(p.CatchUp(ctx))
			check(t, crashed, p, events+5)
			shut()
		}
	})
}

// chunked returns all keys of an engine in batches of less than 1 MiB.
func chunked(t *testing.T, eng holdfast.Engine) (batches []*holdfast.Batch) {
	t.Helper()
	it := eng.Scan(holdfast.Range{})
	for it.Next() {
		if n := len(batches); n == 0 || batches[n-1].Size() > 500<<10 {
			batches = append(batches, new(holdfast.Batch))
		}
		batches[len(batches)-1].Set(it.Key(), it.Value())
	}
	fatal(t)(it.Close())
	return batches
}

// A view of an earlier version is rebuilt without being carried over, and one that has no position is not used.
func TestEarlierRemoved(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		for what, f := range map[string]func(eng holdfast.Engine, p runner) error{
			"rebuilt": func(eng holdfast.Engine, p runner) error { return p.Rebuild(ctx) },
			"without a position": func(eng holdfast.Engine, p runner) error {
				if err := p.Rebuild(ctx); err != nil { // for the subscription
					return err
				}
				var b holdfast.Batch
				b.Set([]byte("s\x00p"+earlierPrefix), []byte("\x01totals"))
				b.Set([]byte(earlierPrefix+"a"), []byte("1"))
				return holdfast.Commit(eng, &b, holdfast.Memory)
			},
		} {
			eng := mem.New()
			add, p, shut := k.open(fatal(t), eng, holdfast.Memory, projection.Options{Name: "totals"})
			add(30)
			fatal(t)(p.CatchUp(ctx))
			keepEarlier(t, eng, p, earlierPrefix, "totals", 1)
			fatal(t)(errors.Join(f(eng, p), p.CatchUp(ctx)))
			check(t, eng, p, 30)
			if n := left(eng); n > 0 {
				t.Errorf("%s: %d old keys are left", what, n)
			}
			shut()
		}
	})
}

// Of several views of one name it is not known which one is meant. The view of another projection is not touched, and
// a bucket of the program is not removed for one that is carried over.
func TestEarlierNames(t *testing.T) {
	eng := mem.New()
	add, p, shut := kinds[1].open(fatal(t), eng, holdfast.Memory, projection.Options{Name: "totals"})
	add(30)
	fatal(t)(p.CatchUp(ctx))
	keepEarlier(t, eng, p, earlierPrefix, "totals", 0)
	var b holdfast.Batch
	b.Set([]byte("s\x00pviews/2/"), []byte("\x01totals"))
	b.Set([]byte("s\x00pviews/3/"), []byte("\x01another"))
	b.Set([]byte("views/3/"), make([]byte, 8))
	fatal(t)(holdfast.Commit(eng, &b, holdfast.Memory))
	wantError(t, p.CatchUp(ctx), holdfast.ErrBadOption)
	_, err := p.Progress(ctx)
	wantError(t, err, holdfast.ErrBadOption)
	fatal(t)(errors.Join(p.Rebuild(ctx), p.CatchUp(ctx)))
	check(t, eng, p, 30)
	if n := left(eng); n != 2 {
		t.Fatalf("%d old keys, want those of the other projection", n)
	}

	keepEarlier(t, eng, p, earlierPrefix, "totals", 0)
	db := kv.On(eng).At(holdfast.Memory)
	fatal(t)(db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("totals").Put([]byte("k"), nil) }))
	wantError(t, p.CatchUp(ctx), holdfast.ErrBadOption)
	if _, err := eng.Get(nil, []byte(earlierPrefix)); err != nil {
		t.Fatal(err)
	}
	fatal(t)(db.Update(ctx, func(tx *kv.Tx) error { return tx.DeleteBucket("totals") }))
	fatal(t)(p.CatchUp(ctx))
	check(t, eng, p, 30)

	// What was carried over in part gives way to what is there now.
	keepEarlier(t, eng, p, earlierPrefix, "totals", 0)
	fatal(t)(db.Update(ctx, func(tx *kv.Tx) error {
		return errors.Join(p.View(tx).Bucket("\x00projection").Create(), p.View(tx).Put([]byte("stale"), nil))
	}))
	fatal(t)(p.CatchUp(ctx))
	check(t, eng, p, 30)
	shut()
}

// An early position, which has no history, is taken as it is, and checked by its number.
func TestEarlyPosition(t *testing.T) {
	for next, want := range map[byte]int{3: 3, 6: 0, 7: -1} {
		eng := mem.New()
		store, err := message.Open(kv.On(eng), message.Options{Level: holdfast.Memory})
		fatal(t)(err)
		n, err := store.Namespace(ctx, message.Default)
		fatal(t)(err)
		for range 5 {
			_, err := n.Write(ctx, "s-1", message.Message{Type: "t", Data: []byte("{}")})
			fatal(t)(err)
		}
		var b holdfast.Batch
		b.Set([]byte("s\x00p"+earlierPrefix), []byte("\x01n"))
		b.Set([]byte(earlierPrefix), []byte{0, 0, 0, 0, 0, 0, 0, next})
		fatal(t)(holdfast.Commit(eng, &b, holdfast.Memory))
		applied := 0
		p, err := projection.New(projection.Messages(store.DB(), n, message.Query{}), projection.Options{Name: "n"},
			func(*kv.Bucket, message.Message) error { applied++; return nil })
		fatal(t)(err)
		err = p.CatchUp(ctx)
		if want < 0 && !errors.Is(err, event.ErrAhead) || want >= 0 && (err != nil || applied != want) {
			t.Errorf("position %d: %d applied, %v", next, applied, err)
		}
		fatal(t)(store.Close())
	}
}
