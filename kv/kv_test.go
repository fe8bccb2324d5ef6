package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

var ctx = context.Background()

// each calls f with a database in every kind of engine, at the strongest level that it gives.
func each(t *testing.T, f func(t *testing.T, db *kv.DB)) {
	for _, entry := range storetest.Engines() {
		t.Run(entry.Name, func(t *testing.T) {
			dir := t.TempDir()
			if entry.Name == "mem" {
				dir = ""
			}
			engine, err := entry.Open(dir, holdfast.Options{})
			check(t, err)
			db, err := kv.Open(engine, kv.Options{Level: engine.Capabilities().Strongest()})
			check(t, err)
			f(t, db)
			check(t, engine.Close())
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keys reads all keys of a bucket and their values, forwards, and compares what a walk backwards finds.
func keys(t *testing.T, b *kv.Bucket) string {
	t.Helper()
	var there, back []string
	for k, v := range b.All() {
		there = append(there, fmt.Sprintf("%s=%s", k, v))
	}
	for k, v := range b.Range(holdfast.Range{Reverse: true}) {
		back = append(back, fmt.Sprintf("%s=%s", k, v))
	}
	slices.Reverse(back)
	if !slices.Equal(there, back) {
		t.Errorf("forwards %q, backwards %q", there, back)
	}
	return strings.Join(there, " ")
}

func TestUpdate(t *testing.T) {
	each(t, func(t *testing.T, db *kv.DB) {
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			b := tx.Bucket("users")
			if _, err := b.Get([]byte("a")); err != holdfast.ErrNotFound {
				t.Errorf("a key of no bucket: %v", err)
			}
			check(t, b.Put([]byte("b"), []byte("2")))
			check(t, b.Put([]byte("a"), nil))
			check(t, b.Put([]byte("c"), []byte("3")))
			check(t, b.Delete([]byte("b")))
			check(t, b.Bucket("in").Put([]byte("x"), []byte("y")))
			if got := keys(t, b); got != "a= c=3" {
				t.Errorf("own changes: %s", got)
			}
			if value, err := b.Get([]byte("a")); err != nil || value == nil || len(value) > 0 {
				t.Errorf("an empty value is %v, %v", value, err)
			}
			return nil
		}))
		for _, read := range []func(context.Context, func(*kv.Tx) error) error{db.View, db.Latest, db.Update} {
			check(t, read(ctx, func(tx *kv.Tx) error {
				if got := keys(t, tx.Bucket("users")); got != "a= c=3" {
					t.Errorf("later: %s", got)
				}
				if got := keys(t, tx.Bucket("users", "in")); got != "x=y" {
					t.Errorf("later: %s", got)
				}
				if got := slices.Collect(tx.Buckets()); !slices.Equal(got, []string{"users"}) {
					t.Errorf("buckets: %q", got)
				}
				return nil
			}))
		}
	})
}

// What a function can ask its transaction.
func TestAsked(t *testing.T) {
	each(t, func(t *testing.T, db *kv.DB) {
		err := db.Update(ctx, func(tx *kv.Tx) error {
			b := tx.Bucket("b")
			size := tx.Size()
			check(t, b.Put([]byte("k"), make([]byte, 1000)))
			if _, err := b.Get([]byte("k")); err != nil || size != 0 || tx.Size() < 1000 || tx.Size() > 1500 {
				t.Errorf("it has %d bytes, and had %d; %v", tx.Size(), size, err)
			}
			if b.Tx() != tx || tx.DB().Name() != db.Name() || tx.Err() != nil {
				t.Errorf("another transaction, or %v", tx.Err())
			}
			_ = b.Put(nil, nil)
			if !errors.Is(tx.Err(), holdfast.ErrBadKey) {
				t.Errorf("after a write that is refused: %v", tx.Err())
			}
			return nil
		})
		if !errors.Is(err, holdfast.ErrBadKey) {
			t.Error(err)
		}
	})
}

// Whatever makes a transaction fail, nothing of it is there.
func TestNothingIsLeft(t *testing.T) {
	mine := errors.New("mine")
	key := []byte("k")
	put := func(key, value []byte, path ...string) func(tx *kv.Tx) error {
		return func(tx *kv.Tx) error {
			_ = tx.Bucket(path...).Put(key, value) // the transaction remembers
			return nil
		}
	}
	deep := slices.Repeat([]string{strings.Repeat("n", 1000)}, 17)
	nested := func(tx *kv.Tx) error { return tx.DB().Update(ctx, func(*kv.Tx) error { return nil }) }
	for name, test := range map[string]struct {
		f    func(tx *kv.Tx) error
		want error
	}{
		"an error":       {func(tx *kv.Tx) error { return mine }, mine},
		"an empty key":   {put(nil, nil, "b"), holdfast.ErrBadKey},
		"a long key":     {put(make([]byte, 1<<16), nil, "b"), holdfast.ErrBadKey},
		"no name":        {put(key, nil, ""), holdfast.ErrBadOption},
		"no path":        {put(key, nil), holdfast.ErrBadOption},
		"a long name":    {put(key, nil, strings.Repeat("n", 1<<16)), holdfast.ErrBadOption},
		"too deep":       {put(key, nil, deep...), holdfast.ErrBadKey},
		"a large value":  {put(key, make([]byte, 64<<20), "b"), holdfast.ErrTooLarge},
		"an ended ctx":   {func(*kv.Tx) error { return context.Canceled }, context.Canceled},
		"another's turn": {nested, kv.ErrNested},
		"a time of 1960": {func(tx *kv.Tx) error {
			_ = tx.Bucket("b").PutUntil(key, nil, time.Unix(-1e9, 0))
			return nil
		}, holdfast.ErrBadOption},
		"no bucket": {func(tx *kv.Tx) error { return tx.DeleteBucket("none") }, kv.ErrNoBucket},
	} {
		t.Run(name, func(t *testing.T) {
			engine := mem.New()
			defer engine.Close()
			db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
			check(t, err)
			err = db.Update(ctx, func(tx *kv.Tx) error {
				check(t, tx.Bucket("before").Put([]byte("k"), []byte("v")))
				return test.f(tx)
			})
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if n := storetest.Keys(engine, holdfast.Range{}); n > 0 {
				t.Errorf("%d keys are left", n)
			}
			check(t, db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("after").Create() }))
		})
	}
}

func TestPanicLeavesNothing(t *testing.T) {
	engine := mem.New()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
	check(t, err)
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("the panic has not come through")
			}
		}()
		_ = db.Update(ctx, func(tx *kv.Tx) error {
			check(t, tx.Bucket("b").Put([]byte("k"), nil))
			panic("mine")
		})
	}()
	check(t, db.Update(ctx, func(tx *kv.Tx) error {
		if there, err := tx.Bucket("b").Exists(); there || err != nil {
			t.Error(there, err)
		}
		return nil
	}))
	check(t, engine.Close())
}

// A transaction that is used after its end, or by two goroutines at once, says so, and does nothing.
func TestMisuse(t *testing.T) {
	engine := mem.New()
	defer engine.Close()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
	check(t, err)
	var old *kv.Tx
	var bucket *kv.Bucket
	var cursor *kv.Cursor
	check(t, db.Update(ctx, func(tx *kv.Tx) error {
		old, bucket = tx, tx.Bucket("b")
		check(t, bucket.Put([]byte("k"), []byte("v")))
		cursor = bucket.Cursor()
		cursor.First()
		return nil
	}))
	_, get := bucket.Get([]byte("k"))
	cursor.Next()
	for what, err := range map[string]error{"get": get, "put": bucket.Put([]byte("l"), nil), "cursor": cursor.Err(),
		"delete": old.DeleteBucket("b")} {
		if !errors.Is(err, kv.ErrTxDone) {
			t.Errorf("%s after the end: %v", what, err)
		}
	}
	err = db.View(ctx, func(tx *kv.Tx) error { return tx.Bucket("b").Put([]byte("k"), nil) })
	if !errors.Is(err, kv.ErrReadOnly) {
		t.Errorf("a write in a View: %v", err)
	}

	// Many at once: each call works or says what is wrong; if one write was refused, the transaction is.
	var failed, errs int
	var mu sync.Mutex
	for range 100 {
		err := db.Update(ctx, func(tx *kv.Tx) error {
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					if err := tx.Bucket("c").Put([]byte{byte(i + 1)}, nil); err != nil {
						mu.Lock()
						errs++
						mu.Unlock()
					}
				})
			}
			all.Wait()
			return nil
		})
		if err != nil {
			failed++
		}
	}
	if (errs > 0) != (failed > 0) {
		t.Errorf("%d writes were refused, and %d transactions", errs, failed)
	}
}

// A function that never returns keeps others waiting no longer than their contexts last; another database goes on.
func TestBlockedFunction(t *testing.T) {
	engine := mem.New()
	defer engine.Close()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
	check(t, err)
	other, err := kv.Open(engine, kv.Options{Name: "other", Level: holdfast.Memory})
	check(t, err)
	began, end := make(chan bool), make(chan bool)
	var blocked sync.WaitGroup
	blocked.Go(func() {
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			close(began)
			<-end
			return tx.Bucket("b").Create()
		}))
	})
	<-began
	check(t, other.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("b").Create() }))
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := db.Update(short, func(*kv.Tx) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a waiting Update: %v", err)
	}
	check(t, db.View(ctx, func(*kv.Tx) error { return nil }))
	close(end)
	blocked.Wait()
	check(t, db.Update(ctx, func(tx *kv.Tx) error {
		there, err := tx.Bucket("b").Exists()
		if !there {
			t.Error("the blocked transaction is not there")
		}
		return err
	}))
}

// Transactions over pairs of databases, in any order, come to an end, and none of what they count is lost.
func TestUpdateAll(t *testing.T) {
	engine := mem.New()
	defer engine.Close()
	var all []*kv.DB
	for i := range 8 {
		db, err := kv.Open(engine, kv.Options{Name: fmt.Sprint(i), Level: holdfast.Memory})
		check(t, err)
		all = append(all, db)
	}
	var work sync.WaitGroup
	for g := range 64 {
		work.Go(func() {
			for i := range 50 {
				a, b := all[(g*7+i)%8], all[(g*3+i*5+1)%8]
				if a == b {
					continue
				}
				err := kv.UpdateAll(ctx, []*kv.DB{a, b}, func(txs []*kv.Tx) error {
					for _, tx := range txs {
						if _, err := tx.Bucket("n").NextSequence(); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	want, got := 0, uint64(0)
	for g := range 64 {
		for i := range 50 {
			if (g*7+i)%8 != (g*3+i*5+1)%8 {
				want += 2
			}
		}
	}
	for _, db := range all {
		check(t, db.View(ctx, func(tx *kv.Tx) error {
			n, err := tx.Bucket("n").Sequence()
			got += n
			return err
		}))
	}
	if got != uint64(want) {
		t.Errorf("%d steps counted, of %d", got, want)
	}
	if err := kv.UpdateAll(ctx, []*kv.DB{all[0], all[0]}, func([]*kv.Tx) error { return nil }); !errors.Is(err,
		holdfast.ErrBadOption) {
		t.Errorf("the same database twice: %v", err)
	}
}

// What was written waits for its level, a View shows only what is durable, and Latest and Update the rest too.
func TestLevels(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, fake *storetest.FakeEngine) {
		db, err := kv.Open(fake, kv.Options{Level: holdfast.Memory})
		check(t, err)
		set := func(value string) func(*kv.Tx) error {
			return func(tx *kv.Tx) error { return tx.Bucket("b").Put([]byte("k"), []byte(value)) }
		}
		get := func(tx *kv.Tx) string {
			value, err := tx.Bucket("b").Get([]byte("k"))
			check(t, err)
			return string(value)
		}
		check(t, db.Update(ctx, set("old")))
		fake.Hold()
		p, err := db.Submit(ctx, set("new"))
		check(t, err)
		check(t, db.Latest(ctx, func(tx *kv.Tx) error {
			if got := get(tx); got != "new" {
				t.Errorf("Latest sees %s", got)
			}
			return nil
		}))
		viewed := make(chan string)
		go func() {
			_ = db.View(ctx, func(tx *kv.Tx) error { viewed <- get(tx); return nil })
		}()
		fake.AwaitWaiters(1)
		mine := errors.New("mine")
		decided := make(chan error)
		go func() {
			decided <- db.Update(ctx, func(tx *kv.Tx) error {
				if got := get(tx); got != "new" {
					t.Errorf("Update sees %s", got)
				}
				return mine
			})
		}()
		fake.AwaitWaiters(2)
		select {
		case <-viewed:
			t.Error("View has not waited")
		case <-decided:
			t.Error("a decision was known before what it was made of was safe")
		default:
		}
		fake.Release(-1)
		check(t, p.Wait())
		if got := <-viewed; got != "new" && got != "old" || fake.Late == (got == "new") {
			t.Errorf("View sees %s", got)
		}
		if err := <-decided; err != mine {
			t.Errorf("decided: %v", err)
		}
	})
}

// A transaction whose context has ended meanwhile is not made.
func TestContextEnds(t *testing.T) {
	engine := mem.New()
	defer engine.Close()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
	check(t, err)
	ending, end := context.WithCancel(ctx)
	if err := db.Update(ending, func(tx *kv.Tx) error {
		end()
		return tx.Bucket("b").Create()
	}); err != context.Canceled {
		t.Errorf("%v", err)
	}
	if n := storetest.Keys(engine, holdfast.Range{}); n > 0 {
		t.Errorf("%d keys are left", n)
	}
}

// What is open for reading only can be read.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	engine, err := logtree.Open(dir, holdfast.Options{})
	check(t, err)
	create := func(tx *kv.Tx) error { return tx.Bucket("b").Create() }
	check(t, kv.On(engine).Update(ctx, create))
	check(t, engine.Close())
	engine, err = logtree.Open(dir, holdfast.Options{ReadOnly: true})
	check(t, err)
	db, err := kv.Open(engine, kv.Options{})
	check(t, err)
	for _, read := range []func(context.Context, func(*kv.Tx) error) error{db.View, kv.On(engine).Latest} {
		check(t, read(ctx, func(tx *kv.Tx) error {
			there, err := tx.Bucket("b").Exists()
			if !there {
				t.Error("the bucket is not there")
			}
			return err
		}))
	}
	if err := db.Update(ctx, create); !errors.Is(err, holdfast.ErrLevel) {
		t.Errorf("an Update: %v", err)
	}
	check(t, engine.Close())
}

// Whoever reads while transactions are made sees all of each or nothing.
func TestReadersSeeWholeTransactions(t *testing.T) {
	each(t, func(t *testing.T, db *kv.DB) {
		var writing, reading sync.WaitGroup
		for range 2 {
			writing.Go(func() {
				for range 150 {
					check(t, db.Update(ctx, func(tx *kv.Tx) error {
						n, err := tx.Bucket("b").NextSequence()
						for _, key := range []string{"x", "y", "z"} {
							check(t, tx.Bucket("b").Put([]byte(key), fmt.Append(nil, n)))
						}
						return err
					}))
				}
			})
		}
		var done atomic.Bool
		for _, read := range []func(context.Context, func(*kv.Tx) error) error{db.View, db.Latest, db.Update} {
			reading.Go(func() {
				for !done.Load() {
					check(t, read(ctx, func(tx *kv.Tx) error {
						b := tx.Bucket("b")
						n, err := b.Sequence()
						check(t, err)
						want := fmt.Sprintf("x=%d y=%[1]d z=%[1]d", n)
						if got := keys(t, b); n > 0 && got != want {
							t.Errorf("%s, and the sequence is %d", got, n)
						}
						return nil
					}))
				}
			})
		}
		writing.Wait()
		done.Store(true)
		reading.Wait()
	})
}

func TestExpiry(t *testing.T) {
	each(t, func(t *testing.T, db *kv.DB) {
		now := time.Unix(1e9, 0)
		db, err := kv.Open(db.Engine(), kv.Options{Level: db.Level(), Now: func() time.Time { return now }})
		check(t, err)
		soon := now.Add(time.Minute)
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			b := tx.Bucket("b")
			for _, key := range []string{"again", "deleted", "gone", "later"} {
				check(t, b.PutUntil([]byte(key), []byte("v"), soon))
			}
			check(t, b.Put([]byte("stays"), []byte("v")))
			return b.PutUntil([]byte("later"), []byte("w"), now.Add(time.Hour))
		}))
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			b := tx.Bucket("b")
			check(t, b.Delete([]byte("deleted")))
			return b.Put([]byte("again"), []byte("w"))
		}))
		now = soon
		check(t, db.View(ctx, func(tx *kv.Tx) error {
			if got := keys(t, tx.Bucket("b")); got != "again=w later=w stays=v" {
				t.Errorf("after the time: %s", got)
			}
			return nil
		}))
		if n, err := db.RemoveExpired(ctx); n != 4 || err != nil {
			t.Errorf("%d removed, %v", n, err)
		}
		// Three keys, the entry of the one that is to expire, and what says that there are the bucket and the format.
		if n := storetest.Keys(db.Engine(), holdfast.Range{}); n != 6 {
			t.Errorf("the engine has %d keys", n)
		}
	})
}

// With the last bucket go the entries of what was to expire: they have its keys, and there may be no further Update.
// What the same transaction writes after that expires.
func TestExpiryEndsWithTheLastBucket(t *testing.T) {
	each(t, func(t *testing.T, db *kv.DB) {
		now := time.Unix(1e9, 0)
		db, err := kv.Open(db.Engine(), kv.Options{Level: db.Level(), Now: func() time.Time { return now }})
		check(t, err)
		left := func(want int) {
			t.Helper()
			if n := storetest.Keys(db.Engine(), holdfast.Range{}); n != want {
				t.Errorf("the engine has %d keys, want %d", n, want)
			}
		}
		put := func(tx *kv.Tx, bucket string) error {
			return tx.Bucket(bucket).PutUntil([]byte("k"), nil, now.Add(time.Hour))
		}
		check(t, db.Update(ctx, func(tx *kv.Tx) error { return errors.Join(put(tx, "a"), put(tx, "b"), put(tx, "c")) }))
		left(10) // the format, and of each bucket that it is there, the key and its entry
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			return errors.Join(tx.DeleteBucket("a"), tx.DeleteBucket("b"))
		}))
		left(6) // the entries stay as long as there is a bucket
		check(t, db.Update(ctx, func(tx *kv.Tx) error { return errors.Join(tx.DeleteBucket("c"), put(tx, "d")) }))
		left(4)
		now = now.Add(time.Hour)
		check(t, db.Update(ctx, func(*kv.Tx) error { return nil }))
		left(2)
		check(t, db.Update(ctx, func(tx *kv.Tx) error { return errors.Join(put(tx, "d"), tx.DeleteBucket("d")) }))
		left(1)
	})
}

func TestBucketNames(t *testing.T) {
	each(t, func(t *testing.T, db *kv.DB) {
		names := []string{"\x00", "\x00\x01", "\x00\xff", "a", "a\x00", "a\x00\x01", "a\x01", "ab", "b", "\xff", "\xff\xff"}
		slices.Sort(names)
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			for _, out := range names {
				for _, in := range names {
					check(t, tx.Bucket(out, in).Put([]byte("k"), []byte(out+in)))
				}
			}
			return nil
		}))
		check(t, db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("a").DeleteBucket("a") }))
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			check(t, tx.DeleteBucket("\xff"))
			if there, err := tx.Bucket("\xff", "a").Exists(); there || err != nil {
				t.Errorf("in a deleted bucket: %v, %v", there, err)
			}
			return tx.Bucket("\xff").Create()
		}))
		check(t, db.View(ctx, func(tx *kv.Tx) error {
			if got := slices.Collect(tx.Buckets()); !slices.Equal(got, names) {
				t.Errorf("%q, want %q", got, names)
			}
			for _, out := range names {
				want := slices.Clone(names)
				if out == "a" {
					want = slices.DeleteFunc(want, func(name string) bool { return name == "a" })
				}
				if out == "\xff" {
					want = nil
				}
				if got := slices.Collect(tx.Bucket(out).Buckets()); !slices.Equal(got, want) {
					t.Errorf("in %q: %q, want %q", out, got, want)
				}
				for _, in := range want {
					if value, err := tx.Bucket(out, in).Get([]byte("k")); string(value) != out+in {
						t.Errorf("%q in %q: %q, %v", in, out, value, err)
					}
				}
			}
			return nil
		}))
	})
}

func TestCursor(t *testing.T) {
	each(t, func(t *testing.T, db *kv.DB) {
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			for _, key := range []string{"b", "d", "f", "h"} {
				check(t, tx.Bucket("b").Put([]byte(key), nil))
			}
			return tx.Bucket("a").Put([]byte("z"), nil)
		}))
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			b := tx.Bucket("b")
			check(t, b.Put([]byte("c"), nil))
			check(t, b.Delete([]byte("f")))
			check(t, b.DeleteRange([]byte("g"), nil))
			check(t, b.Put([]byte("k"), nil))
			c := b.Cursor()
			var path []byte
			note := func(key, _ []byte) {
				if key == nil {
					key = []byte("-")
				}
				path = append(path, key...)
			}
			note(c.First())
			note(c.Next())
			note(c.Next())
			note(c.Prev())
			note(c.Prev())
			note(c.Prev())
			note(c.Next())
			note(c.Seek([]byte("e")))
			note(c.Prev())
			note(c.Last())
			note(c.Next())
			note(c.Seek([]byte("l")))
			if string(path) != "bcdcb--kdk--" || c.Err() != nil {
				t.Errorf("%s, %v", path, c.Err())
			}
			for key := range b.All() { // deleting on the way
				check(t, b.Delete(bytes.Clone(key)))
			}
			if n, err := b.Count(); n != 0 || err != nil {
				t.Errorf("%d keys are left, %v", n, err)
			}
			return nil
		}))
	})
}

// A cursor goes over the state in which it was placed, also when it turns around, and whatever is read meanwhile.
func TestCursorSeesOneState(t *testing.T) {
	each(t, func(t *testing.T, db *kv.DB) {
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			for _, key := range []string{"a", "b", "c", "d"} {
				tx.Bucket("b").Put([]byte(key), nil)
			}
			return nil
		}))
		check(t, db.Update(ctx, func(tx *kv.Tx) error {
			b := tx.Bucket("b")
			c := b.Cursor()
			c.First()
			check(t, b.DeleteRange([]byte("b"), []byte("d")))
			check(t, b.Put([]byte("aa"), nil))
			if n, err := b.Count(); n != 3 || err != nil {
				t.Errorf("there are %d keys, %v", n, err)
			}
			saw := ""
			for _, move := range []func() ([]byte, []byte){c.Next, c.Next, c.Prev, c.Next, c.Next, c.Prev, c.Prev, c.Prev} {
				key, _ := move()
				saw += string(key)
			}
			if saw != "bcbcdcba" {
				t.Errorf("the cursor has gone over %s", saw)
			}
			if key, _ := c.Seek([]byte("a")); string(key) != "a" {
				t.Errorf("placed at %s", key)
			}
			if key, _ := c.Next(); string(key) != "aa" {
				t.Errorf("placed again, it goes on to %s", key)
			}
			return nil
		}))
	})
}

// A transaction that is begun on a poisoned engine is told so, also when its database was opened again, and other
// engines since.
func TestOpenOnPoisonedEngine(t *testing.T) {
	e := storetest.NewFakeEngine()
	db, err := kv.Open(e, kv.Options{Name: "a", Level: holdfast.Memory})
	check(t, err)
	log, err := event.Open(db, event.Options{Level: holdfast.Memory})
	check(t, err)
	_, err = log.Append(ctx, event.Event{})
	check(t, err)
	e.Locked(func() { e.Fail = errors.New("input/output error") })
	if _, err := log.Append(ctx, event.Event{}); !errors.Is(err, holdfast.ErrPoisoned) {
		t.Fatal(err)
	}

	for _, others := range []bool{false, true} {
		if others {
			_, err := kv.Open(mem.New(), kv.Options{Level: holdfast.Memory})
			check(t, err)
		}
		again, err := kv.Open(e, kv.Options{Name: "a", Level: holdfast.Memory})
		check(t, err)
		err = again.Update(ctx, func(tx *kv.Tx) error {
			_, err := log.In(tx).Append(event.Event{})
			return err
		})
		if !errors.Is(err, holdfast.ErrPoisoned) {
			t.Errorf("after others %v: %v", others, err)
		}
	}
	if err := log.Close(); err != nil && !errors.Is(err, holdfast.ErrPoisoned) {
		t.Error(err)
	}
}
