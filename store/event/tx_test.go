package event_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

func openDB(t *testing.T, eng holdfast.Engine) *kv.DB {
	t.Helper()
	db, err := kv.Open(eng, kv.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// A transaction sees what it has appended and saved; others see all of it or nothing.
func TestTransaction(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		db := openDB(t, st)
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		defer closeLog(t, s)
		if _, err := s.Append(ctx, named("a")...); err != nil {
			t.Fatal(err)
		}
		mine := errors.New("mine")
		for try, want := range []error{mine, nil} {
			err := db.Update(ctx, func(tx *kv.Tx) error {
				log := s.In(tx)
				if last, err := log.Last(); last != 1 || err != nil {
					t.Errorf("the last position is %d, %v", last, err)
				}
				if r, err := log.Append(named("a")...); !r.Repeated || r.First != 1 || err != nil {
					t.Errorf("a repeat: %v, %v", r, err)
				}
				if _, err := log.AppendAfter(0, named("b")...); !errors.Is(err, event.ErrConflict) {
					t.Errorf("after a position that is not the last: %v", err)
				}
				if r, err := log.AppendAfter(1, named("b", "c")...); r.First != 2 || r.Last != 3 || err != nil {
					t.Errorf("appended: %v, %v", r, err)
				}
				if _, err := log.Append(named("c")...); !errors.Is(err, event.ErrBadEvent) {
					t.Errorf("an id of the same transaction: %v", err)
				}
				if r, err := log.AppendAfter(3, typed("t")...); r.First != 4 || err != nil {
					t.Errorf("appended: %v, %v", r, err)
				}
				if err := log.SaveOffset("sub", 5); !errors.Is(err, event.ErrAhead) {
					t.Errorf("an offset that is ahead: %v", err)
				}
				if err := log.SaveOffset("sub", 4); err != nil {
					t.Error(err)
				}
				if err := log.SaveOffset("a\x00b", 1); !errors.Is(err, holdfast.ErrBadOption) {
					t.Errorf("an offset whose name has a control character: %v", err)
				}
				if at, err := log.LoadOffset("sub"); at != 4 || err != nil {
					t.Errorf("the offset is %d, %v", at, err)
				}
				if err := tx.Bucket("own").Put([]byte("k"), nil); err != nil {
					t.Error(err)
				}
				if last := s.Last(); last != 1 {
					t.Errorf("readers see position %d before it is there", last)
				}
				return want
			})
			if err != want {
				t.Fatal(err)
			}
			_, offset := s.LoadOffset(ctx, "sub")
			own := db.View(ctx, func(tx *kv.Tx) error { _, err := tx.Bucket("own").Get([]byte("k")); return err })
			if try == 0 && (s.Last() != 1 || !errors.Is(offset, holdfast.ErrNotFound) || own != holdfast.ErrNotFound) ||
				try == 1 && (s.Last() != 4 || offset != nil || own != nil) {
				t.Errorf("after try %d: last %d, %v, %v", try, s.Last(), offset, own)
			}
		}
		if r, err := s.Append(ctx, named("b", "c")...); !r.Repeated || r.First != 2 || err != nil {
			t.Errorf("a repeat of what a transaction has appended: %v, %v", r, err)
		}
		if r, err := s.Append(ctx, named("d")...); r.First != 5 || err != nil {
			t.Errorf("after the transaction: %v, %v", r, err)
		}
	})
}

// A transaction that writes nothing, or fails, waits for an offset that it has loaded.
func TestOffsetsThatAreSeen(t *testing.T) {
	mine := errors.New("mine")
	for _, want := range []error{nil, mine} {
		fakeEngines(t, func(t *testing.T, st *fakeEngine) {
			db := openDB(t, st)
			s := openLog(t, st, event.Options{Level: holdfast.Memory})
			defer closeLog(t, s)
			if _, err := s.Append(ctx, named("a")...); err != nil {
				t.Fatal(err)
			}
			st.Hold()
			defer st.Release(-1)
			before := uint64(0)
			st.Locked(func() { before = st.Applied })
			saved := storetest.Async(func() error { return s.SaveOffset(ctx, "sub", 1) })
			st.AwaitApplied(before + 1)
			seen := storetest.Async(func() error {
				return db.Update(ctx, func(tx *kv.Tx) error {
					if at, err := s.In(tx).LoadOffset("sub"); at != 1 || err != nil {
						t.Errorf("the offset is %d, %v", at, err)
					}
					return want
				})
			})
			storetest.Unfinished(t, saved, seen)
			st.Release(-1)
			storetest.Finished(t, nil, saved)
			storetest.Finished(t, want, seen)
		})
	}
}

// What the engine refuses is not there, and what it takes readers see once it is durable, whether anybody waits for it
// or not.
func TestTransactionsAreSettled(t *testing.T) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		db := openDB(t, st)
		s := openLog(t, st, event.Options{Level: holdfast.Memory})
		defer closeLog(t, s)
		appending := func(tx *kv.Tx) error {
			if _, err := s.In(tx).Append(named("a")...); err != nil {
				return err
			}
			return s.In(tx).SaveOffset("sub", 1)
		}
		full := &holdfast.Error{Class: holdfast.ErrFull}
		st.Locked(func() { st.Refuse = full })
		if err := db.Update(ctx, appending); !errors.Is(err, holdfast.ErrFull) {
			t.Errorf("refused: %v", err)
		}
		st.Locked(func() { st.Refuse = nil })
		if _, err := s.LoadOffset(ctx, "sub"); !errors.Is(err, holdfast.ErrNotFound) {
			t.Errorf("the offset of what was refused: %v", err)
		}

		st.Hold()
		if _, err := db.Submit(ctx, appending); err != nil {
			t.Fatal(err)
		}
		followed := storetest.Async(func() error {
			for _, err := range s.Follow(ctx, 1) {
				return err
			}
			return nil
		})
		loaded := storetest.Async(func() error { _, err := s.LoadOffset(ctx, "sub"); return err })
		storetest.Unfinished(t, followed, loaded)
		if _, err := db.Submit(ctx, func(tx *kv.Tx) error {
			if last, err := s.In(tx).Last(); last != 1 || err != nil {
				t.Errorf("a transaction sees %d, %v", last, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		st.Release(-1)
		storetest.Finished(t, nil, followed, loaded)
	})
}

// Appends of transactions and others get positions one after another, in the order of their commits, and what a
// transaction counts in a bucket is what it has appended.
func testTransactions(t *testing.T, tg *target, o event.Options) {
	db, err := kv.Open(tg.Engine, kv.Options{Level: o.Level})
	if err != nil {
		t.Fatal(err)
	}
	s := openLog(t, tg.Engine, o)
	defer closeLog(t, s)
	var work sync.WaitGroup
	const each = 20
	for w := range 4 {
		work.Go(func() {
			for i := range each {
				if _, err := s.Append(ctx, event.Event{ID: fmt.Sprint("plain", w, i)}); err != nil {
					t.Error(err)
				}
			}
		})
		work.Go(func() {
			for i := range each {
				err := db.Update(ctx, func(tx *kv.Tx) error {
					last, err := s.In(tx).Last()
					if err != nil {
						return err
					}
					if _, err := s.In(tx).AppendAfter(last, event.Event{ID: fmt.Sprint("tx", w, i), Type: "tx"}); err != nil {
						return err
					}
					_, err = tx.Bucket("n").NextSequence()
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	wantHead(t, s, 1, 8*each)
	counted := uint64(0)
	if err := db.View(ctx, func(tx *kv.Tx) (err error) {
		counted, err = tx.Bucket("n").Sequence()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	appended := uint64(0)
	for _, e := range readOK(t, s, 1, 0) {
		if e.Type == "tx" {
			appended++
		}
	}
	if counted != 4*each || appended != counted {
		t.Errorf("%d counted, %d appended, of %d", counted, appended, 4*each)
	}
}

// While a function has the log, others wait no longer than their contexts last, and readers go on.
func TestBlockedTransaction(t *testing.T) {
	st := storetest.NewFakeEngine()
	db := openDB(t, st)
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	if _, err := s.Append(ctx, typed("a")...); err != nil {
		t.Fatal(err)
	}
	began, end := make(chan bool), make(chan bool)
	blocked := storetest.Async(func() error {
		return db.Update(ctx, func(tx *kv.Tx) error {
			_, err := s.In(tx).Append(typed("b")...)
			close(began)
			<-end
			return err
		})
	})
	<-began
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := s.Append(short, typed("c")...); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an append: %v", err)
	}
	if err := s.SaveOffset(short, "sub", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an offset: %v", err)
	}
	if got := readOK(t, s, 1, 0); len(got) != 1 {
		t.Errorf("readers see %d events", len(got))
	}
	close(end)
	storetest.Finished(t, nil, blocked)
	err := db.Update(ctx, func(tx *kv.Tx) error {
		if _, err := s.In(tx).Append(typed("d")...); err != nil {
			return err
		}
		_, err := s.Append(ctx, typed("e")...)
		return err
	})
	if !errors.Is(err, kv.ErrNested) {
		t.Errorf("an append outside of the transaction that has the log: %v", err)
	}
	wantHead(t, s, 1, 2)
}

// patient is an engine whose receipt of one batch keeps the first who waits for it.
type patient struct {
	*fakeEngine
	token uint64
	met   atomic.Bool
	wait  chan bool
}

func (e *patient) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	_, err := e.fakeEngine.Apply(b, level)
	return holdfast.NewReceipt(e, e.Applied), err
}

func (e *patient) Wait(token uint64) error {
	if token == e.token && e.met.CompareAndSwap(false, true) {
		<-e.wait
	}
	return e.fakeEngine.Wait(token)
}

// A transaction that appends what an import has just brought waits for that import, and not for an edit that waits for
// the transaction.
func TestRepeatOfAnImportBesideAnEdit(t *testing.T) {
	st := &patient{fakeEngine: newFakeEngine(), wait: make(chan bool)}
	s := openLog(t, st, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	if _, err := s.Import(ctx, event.Event{Position: 5, Type: "t"}); err != nil {
		t.Fatal(err)
	}
	st.token = st.Applied + 1
	imported := storetest.Async(func() error {
		_, err := s.Import(ctx, event.Event{Position: 2, Type: "t", ID: "a"})
		return err
	})
	for !st.met.Load() {
		time.Sleep(time.Millisecond)
	}
	removed := storetest.Async(func() error { _, err := s.Remove(ctx, 5); return err })
	storetest.Unfinished(t, imported, removed)

	updated := storetest.Async(func() error {
		return openDB(t, st).Update(ctx, func(tx *kv.Tx) error {
			r, err := s.In(tx).Append(named("a")...)
			if !r.Repeated || r.First != 2 {
				t.Errorf("a repeat: %+v", r)
			}
			return err
		})
	})
	storetest.Unfinished(t, imported, removed, updated)
	close(st.wait)
	storetest.Finished(t, nil, imported, removed, updated)
}
