package message_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// A namespace is made and deleted together with what else is in a transaction, and the next one sees that at once,
// whether the engine shows it or not.
func TestNamespacesInTransactions(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		db, err := kv.Open(st, kv.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		o := message.Options{RetainEvery: -1}
		s, err := message.Open(db, o)
		if err != nil {
			t.Fatal(err)
		}
		before := storetest.Keys(st, holdfast.Range{})
		create := func(tx *kv.Tx) error {
			info, err := s.In(tx).Create(message.NamespaceOptions{ID: "a", Description: "d"})
			if err != nil {
				return err
			}
			if got, err := s.In(tx).Info("a"); err != nil || got.Description != "d" || !got.Created.Equal(info.Created) {
				t.Errorf("%+v, %v", got, err)
			}
			return tx.Bucket("b").Put([]byte("a"), nil)
		}
		mine := errors.New("mine")
		err = db.Update(ctx, func(tx *kv.Tx) error { return errors.Join(create(tx), mine) })
		storetest.WantError(t, err, mine)
		if _, err := s.Info(ctx, "a"); !errors.Is(err, message.ErrNoNamespace) {
			t.Fatal(err)
		}
		st.Hold()
		pending, err := db.Submit(ctx, create)
		if err != nil {
			t.Fatal(err)
		}
		again := storetest.Async(func() error { return db.Update(ctx, create) })
		st.AwaitWaiters(1)
		st.Release(-1)
		storetest.Finished(t, message.ErrNamespaceExists, again)
		if err := pending.Wait(); err != nil {
			t.Fatal(err)
		}
		old := namespace(t, s, "a")
		write(t, old, "x", msg("one"), msg("two"))

		// Deleted and made again, before what was in it is removed.
		remove := func() (d *message.Deletion) {
			t.Helper()
			st.Hold()
			pending, err := db.Submit(ctx, func(tx *kv.Tx) error {
				if d, err = s.In(tx).Delete("a"); err != nil {
					return err
				}
				_, err := s.In(tx).Info("a")
				storetest.WantError(t, err, message.ErrNoNamespace)
				return tx.Bucket("b").Delete([]byte("a"))
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Namespace(ctx, "a"); !errors.Is(err, message.ErrNoNamespace) {
				t.Error(err)
			}
			st.Release(-1)
			if err := pending.Wait(); err != nil {
				t.Fatal(err)
			}
			return d
		}
		d := remove()
		if err := db.Update(ctx, create); err != nil {
			t.Fatal(err)
		}
		fresh := namespace(t, s, "a")
		write(t, fresh, "x", msg("three"))
		if n, err := d.Finish(ctx); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		_, err = old.Write(ctx, "x", msg("four"))
		storetest.WantError(t, err, message.ErrNoNamespace)
		if got := read(t, fresh, message.Query{}); len(got) != 1 || got[0].Type != "three" {
			t.Fatal(got)
		}

		// What Finish does not do is done when the store is next opened, though the namespace was open.
		d = remove()
		closeStore(t, s)
		_, err = d.Finish(ctx)
		storetest.WantError(t, err, holdfast.ErrClosed)
		if s, err = message.Open(db, o); err != nil {
			t.Fatal(err)
		}
		if got := storetest.Keys(st, holdfast.Range{}) - before; got != 2 { // of the bucket and the database
			t.Errorf("%d keys are left", got)
		}
		closeStore(t, s)
	})
}

// Nothing is acknowledged in a namespace from the moment on in which it is deleted: the rest of the transaction, and
// others before Finish, are told that it is not there.
func TestNoWritesAfterADeletion(t *testing.T) {
	s, _ := memStore(t)
	if _, err := s.Create(ctx, message.NamespaceOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	n := namespace(t, s, "a")
	write(t, n, "x", msg("one"))
	for _, again := range []bool{false, true} { // another of that name is made in the same transaction
		var d *message.Deletion
		err := s.DB().Update(ctx, func(tx *kv.Tx) (err error) {
			if _, err = n.In(tx).Write("x", msg("two")); err != nil {
				return err
			}
			if d, err = s.In(tx).Delete("a"); err != nil {
				return err
			}
			if again {
				if _, err = s.In(tx).Create(message.NamespaceOptions{ID: "a"}); err != nil {
					return err
				}
			}
			_, err = n.In(tx).Write("x", msg("three"))
			storetest.WantError(t, err, message.ErrNoNamespace)
			_, err = n.In(tx).Version("x")
			storetest.WantError(t, err, message.ErrNoNamespace)
			if _, err := d.Finish(ctx); !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("finished before there is a place: %v", err)
			}
			if !again {
				return errors.New("mine")
			}
			return nil
		})
		if again != (err == nil) {
			t.Fatal(err)
		}
		if again {
			_, err := n.Write(ctx, "x", msg("four"))
			storetest.WantError(t, err, message.ErrNoNamespace)
			if removed, err := d.Finish(ctx); removed != 2 || err != nil {
				t.Error(removed, err)
			}
		} else if _, err := d.Finish(ctx); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("finished after a failure: %v", err)
		} else if got := read(t, n, message.Query{}); len(got) != 1 {
			t.Errorf("%d messages are left of one", len(got))
		}
	}
	closeStore(t, s)
}

// A call of the store inside a transaction of its database would wait for itself.
func TestNamespaceOutsideOfItsTransaction(t *testing.T) {
	s, _ := memStore(t)
	err := s.DB().Update(ctx, func(*kv.Tx) error {
		_, err := s.Create(ctx, message.NamespaceOptions{ID: "a"})
		return err
	})
	storetest.WantError(t, err, kv.ErrNested)
	closeStore(t, s)
}

// A namespace can be in a database of its own, and is no part of transactions of its store's then.
func TestNamespaceInADatabaseOfItsOwn(t *testing.T) {
	engine := mem.New()
	own, err := kv.Open(engine, kv.Options{Name: "own", Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("refused")
	s := openStore(t, engine, message.Options{Level: holdfast.Memory, Database: func(id string) (*kv.DB, error) {
		if id == "a" {
			return own, nil
		}
		return nil, refused
	}})
	if _, err := s.Create(ctx, message.NamespaceOptions{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	_, err = s.Namespace(ctx, message.Default)
	storetest.WantError(t, err, refused)
	n := namespace(t, s, "a")
	writeIn := func(db *kv.DB) error {
		return db.Update(ctx, func(tx *kv.Tx) error {
			_, err := n.In(tx).Write("x", msg("one"))
			return err
		})
	}
	storetest.WantError(t, writeIn(s.DB()), holdfast.ErrBadOption)
	if err := errors.Join(writeIn(own), writeIn(n.DB())); err != nil {
		t.Fatal(err)
	}
	if removed, err := s.Delete(ctx, "a"); removed != 2 || err != nil {
		t.Fatal(removed, err)
	}
	closeStore(t, s)
}

// Namespaces that many make and delete at once get numbers of their own, and each is there, or not, as was said last.
// With the race detector it also shows that what is kept of the list in memory is changed in turn.
func TestNamespacesAtOnce(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		s, err := message.Open(kv.On(st).At(holdfast.Memory), message.Options{Level: holdfast.Memory, RetainEvery: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		const clients, each = 8, 20
		var all sync.WaitGroup
		for c := range clients {
			all.Go(func() {
				for i := range each {
					id := fmt.Sprintf("n%d-%d", c, i)
					_, err := s.Create(ctx, message.NamespaceOptions{ID: id})
					if err == nil && i%2 == 1 {
						_, err = s.Delete(ctx, id)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		list, err := s.Namespaces(ctx, "", 0)
		if err != nil || len(list) != 1+clients*each/2 {
			t.Errorf("%d namespaces, want the default one and %d: %v", len(list), clients*each/2, err)
		}
	})
}

// endsLater is a context that ends after it was looked at so often.
type endsLater struct {
	context.Context
	looks *int
}

func (c endsLater) Err() error {
	if *c.looks--; *c.looks < 0 {
		return context.Canceled
	}
	return nil
}

// A call whose context ends does not make the store forget a namespace that is open.
func TestNamespaceAsAContextEnds(t *testing.T) {
	eng := mem.New()
	o := message.Options{Level: holdfast.Memory}
	s := openStore(t, eng, o)
	n := namespace(t, s, message.Default)
	write(t, n, "a-1", msg("1"))
	for looks := range 10 {
		_, err := s.Namespace(endsLater{ctx, &looks}, message.Default)
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if again := namespace(t, s, message.Default); again != n {
			t.Fatal("there are two of it")
		}
	}
	closeStore(t, s)
	closeStore(t, openStore(t, eng, o))
}

// To finish a deletion in the function of a transaction of which a subscription there is a part would be to wait for
// oneself.
func TestFinishInAFunction(t *testing.T) {
	s, n := memStore(t)
	write(t, n, "x-1", msg("t"))
	sub := subscribe(t, n, "s", message.SubscriptionOptions{})
	var d *message.Deletion
	if err := s.DB().Update(ctx, func(tx *kv.Tx) (err error) {
		d, err = s.In(tx).Delete(n.ID())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	finished := storetest.Async(func() error {
		return s.DB().Update(ctx, func(tx *kv.Tx) error {
			if err := sub.In(tx).Ack(); err != nil {
				return err
			}
			_, err := d.Finish(ctx)
			return err
		})
	})
	storetest.Finished(t, kv.ErrNested, finished)
	if n, err := d.Finish(ctx); n != 1 || err != nil {
		t.Errorf("%d messages, %v", n, err)
	}
}

// In the function of a transaction of a namespace's own database the namespace is not deleted, nor the store closed:
// that would wait for the parts of the transaction.
func TestDeleteInAFunction(t *testing.T) {
	list, err := kv.Open(mem.New(), kv.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	own, err := kv.Open(list.Engine(), kv.Options{Name: "own", Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	s, err := message.Open(list, message.Options{Database: func(string) (*kv.DB, error) { return own, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	n := namespace(t, s, message.Default)
	sub := subscribe(t, n, "s", message.SubscriptionOptions{})
	inside := func(calls ...func() error) {
		t.Helper()
		storetest.Finished(t, nil, storetest.Async(func() error {
			return own.Update(ctx, func(tx *kv.Tx) error {
				if err := sub.In(tx).Ack(); err != nil {
					return err
				}
				for _, call := range calls {
					storetest.WantError(t, call(), kv.ErrNested)
				}
				return nil
			})
		}))
	}
	inside(func() error { _, err := s.Delete(ctx, n.ID()); return err },
		func() error { _, err := s.Clear(ctx, n.ID()); return err }, s.Close)
	write(t, n, "x-1", msg("t")) // it is there

	// Also as long as a deletion is not finished, or is just being finished.
	var d *message.Deletion
	if err := list.Update(ctx, func(tx *kv.Tx) (err error) { d, err = s.In(tx).Delete(n.ID()); return err }); err != nil {
		t.Fatal(err)
	}
	var finished chan error
	inside(s.Close, func() error {
		finished = storetest.Async(func() error { _, err := d.Finish(ctx); return err })
		storetest.Unfinished(t, finished)
		return s.Close()
	})
	storetest.Finished(t, nil, finished)
}
