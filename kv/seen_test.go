package kv_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/vfs"
)

// slowApply is an engine in which a batch is there for a while before Apply returns.
type slowApply struct {
	*storetest.FakeEngine
	there, on chan struct{}
}

func (e *slowApply) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	r, err := e.FakeEngine.Apply(b, level)
	if b.Len() > 0 {
		e.there <- struct{}{}
		<-e.on
	}
	return r, err
}

// A View does not show what a crash can take back, also not a transaction that the engine shows and whose Apply has not
// returned.
func TestViewDuringApply(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, fake *storetest.FakeEngine) {
		e := &slowApply{fake, make(chan struct{}), make(chan struct{})}
		db, err := kv.Open(e, kv.Options{Level: holdfast.Memory})
		check(t, err)
		fake.Hold()
		put := storetest.Async(func() error {
			return db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("b").Put([]byte("k"), nil) })
		})
		<-e.there
		view := storetest.Async(func() error {
			return db.View(ctx, func(tx *kv.Tx) error {
				durable := false
				_, err := tx.Bucket("b").Get([]byte("k"))
				if err == holdfast.ErrNotFound {
					return nil
				}
				if fake.Locked(func() { durable = fake.Settled > 0 }); err == nil && !durable {
					err = errors.New("View shows what is not durable")
				}
				return err
			})
		})
		storetest.Unfinished(t, put) // and View has had time
		close(e.on)
		fake.Release(-1)
		storetest.Finished(t, nil, put, view)
	})
}

// An Update that writes nothing returns when what it has seen survives its own level, whatever level that was written
// at.
func TestSeenAtAWeakerLevel(t *testing.T) {
	put := func(tx *kv.Tx) error { return tx.Bucket("b").Put([]byte("k"), nil) }
	get := func(tx *kv.Tx) error {
		_, err := tx.Bucket("b").Get([]byte("k"))
		return err
	}
	last := func(log *event.Store, tx *kv.Tx) error {
		if last, err := log.In(tx).Last(); last != 1 || err != nil {
			return fmt.Errorf("the last position is %d, %w", last, err)
		}
		return nil
	}
	for name, test := range map[string]struct {
		write func(db *kv.DB, log *event.Store) error
		see   func(log *event.Store, tx *kv.Tx) error
	}{
		"a key": {
			func(db *kv.DB, _ *event.Store) error { return db.Update(ctx, put) },
			func(_ *event.Store, tx *kv.Tx) error { return get(tx) },
		},
		"an event": {
			func(_ *kv.DB, log *event.Store) error { _, err := log.Append(ctx, event.Event{Type: "t"}); return err },
			last,
		},
	} {
		for _, mine := range []error{nil, errors.New("mine")} {
			t.Run(fmt.Sprint(name, ", then ", mine), func(t *testing.T) {
				fs := vfs.NewMem()
				e, err := logtree.OpenMem(fs, "db", holdfast.Options{SyncEvery: -1})
				check(t, err)
				db, err := kv.Open(e, kv.Options{Level: holdfast.Process})
				check(t, err)
				log, err := event.Open(db, event.Options{})
				check(t, err)
				check(t, test.write(db, log))
				if err := db.Update(holdfast.WithLevel(ctx, holdfast.Power), func(tx *kv.Tx) error {
					return errors.Join(test.see(log, tx), mine)
				}); !errors.Is(err, mine) {
					t.Fatal(err)
				}
				fs.Halt()
				_, _ = log.Close(), e.Close()

				e, err = logtree.OpenMem(fs.Crash(nil), "db", holdfast.Options{})
				check(t, err)
				db = kv.On(e)
				log, err = event.Open(db, event.Options{})
				check(t, err)
				check(t, db.Update(ctx, func(tx *kv.Tx) error { return test.see(log, tx) }))
				check(t, errors.Join(log.Close(), e.Close()))
			})
		}
	}
}

// When the function has returned, a goroutine that it has left behind has no part in the transaction, also not while
// that is written.
func TestLeftBehindWhileItIsWritten(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, fake *storetest.FakeEngine) {
		e := &slowApply{fake, make(chan struct{}), make(chan struct{})}
		db, err := kv.Open(e, kv.Options{Level: holdfast.Memory})
		check(t, err)
		var left *kv.Tx
		put := storetest.Async(func() error {
			return db.Update(ctx, func(tx *kv.Tx) error { left = tx; return tx.Bucket("b").Put([]byte("k"), nil) })
		})
		<-e.there
		if err := left.Bucket("b").Put([]byte("late"), nil); !errors.Is(err, kv.ErrTxDone) {
			t.Errorf("a write while the transaction is applied: %v", err)
		}
		close(e.on)
		storetest.Finished(t, nil, put)
	})
}
