package message_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

func withID(id string) message.Message {
	m := message.Message{Type: "t", Data: []byte(`{}`)}
	if id != "" {
		m.ID = fmt.Sprintf("00000000-0000-0000-0000-%012s", id)
	}
	return m
}

// A transaction sees what it has written; others see all of it or nothing, and go on from there.
func TestTransaction(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		db, err := kv.Open(st, kv.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		s, err := message.Open(db, message.Options{RetainEvery: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer storetest.Close(t, s)
		n, err := s.Namespace(ctx, message.Default)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Write(ctx, "a-1", withID("1")); err != nil {
			t.Fatal(err)
		}
		mine := errors.New("mine")
		full := &holdfast.Error{Class: holdfast.ErrFull}
		for _, want := range []error{mine, full, nil} {
			if want == error(full) {
				st.Locked(func() { st.Refuse = full })
			}
			err := db.Update(ctx, func(tx *kv.Tx) error {
				in := n.In(tx)
				if v, err := in.Version("a-1"); v != 0 || err != nil {
					t.Errorf("the version is %d, %v", v, err)
				}
				if v, err := in.Version("a-2"); v != message.NoStream || err != nil {
					t.Errorf("the version of no stream is %d, %v", v, err)
				}
				if _, err := in.WriteAfter("a-1", 5, withID("")); !errors.Is(err, message.ErrConflict) {
					t.Errorf("after a version that it has not: %v", err)
				}
				if r, err := in.WriteAfter("a-1", 0, withID("2"), withID("3")); r != (message.Result{Position: 1, Global: 2}) ||
					err != nil {
					t.Errorf("written: %v, %v", r, err)
				}
				if r, err := in.WriteAfter("a-1", 2, withID("4")); r != (message.Result{Position: 3, Global: 4}) || err != nil {
					t.Errorf("written: %v, %v", r, err)
				}
				if _, err := in.Write("a-1", withID("4")); !errors.Is(err, message.ErrBadMessage) {
					t.Errorf("an id of the same transaction: %v", err)
				}
				if r, err := in.Write("a-1", withID("1")); !r.Repeated || r.Position != 0 || err != nil {
					t.Errorf("a repeat: %v, %v", r, err)
				}
				if _, err := in.Write("b-1", withID("1")); !errors.Is(err, message.ErrIDTaken) {
					t.Errorf("the id of another stream: %v", err)
				}
				if r, err := in.Write("b-1", withID("")); r != (message.Result{Position: 0, Global: 5}) || err != nil {
					t.Errorf("written: %v, %v", r, err)
				}
				if v, err := in.Version("a-1"); v != 3 || err != nil {
					t.Errorf("the version is %d, %v", v, err)
				}
				return errors.Join(want, tx.Bucket("own").Put([]byte("k"), nil))
			})
			st.Locked(func() { st.Refuse = nil })
			if !errors.Is(err, want) {
				t.Fatal(err)
			}
			c, err := n.Count(ctx, "a")
			if want != nil && c != (message.Counts{Messages: 1, Streams: 1}) || want == nil && c != (message.Counts{Messages: 4,
				Streams: 1}) || err != nil {
				t.Errorf("after %v: %v, %v", want, c, err)
			}
		}
		if r, err := n.WriteAfter(ctx, "a-1", 3, withID("")); r.Position != 4 || err != nil {
			t.Errorf("afterwards: %v, %v", r, err)
		}
		if r, err := n.Write(ctx, "a-1", withID("2"), withID("3")); !r.Repeated || r.Position != 1 || err != nil {
			t.Errorf("a repeat of what a transaction has written: %v, %v", r, err)
		}
	})
}

// Transactions and calls write to the same streams, at the same time, and none is lost.
func testTransactions(t *testing.T, tg *target, o message.Options) {
	db, err := kv.Open(tg.Engine, kv.Options{Level: o.Level})
	if err != nil {
		t.Fatal(err)
	}
	s, err := message.Open(db, o)
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, s)
	n, err := s.Namespace(ctx, message.Default)
	if err != nil {
		t.Fatal(err)
	}
	const each = 20
	var work sync.WaitGroup
	for w := range 3 {
		work.Go(func() {
			for range each {
				if _, err := n.Write(ctx, fmt.Sprint("a-", w), withID("")); err != nil {
					t.Error(err)
				}
			}
		})
		work.Go(func() {
			for range each {
				err := db.Update(ctx, func(tx *kv.Tx) error {
					in := n.In(tx)
					for w := range 3 {
						v, err := in.Version(fmt.Sprint("a-", w))
						if err != nil {
							return err
						}
						if _, err := in.WriteAfter(fmt.Sprint("a-", w), v, withID("")); err != nil {
							return err
						}
					}
					_, err := tx.Bucket("n").NextSequence()
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	for w := range 3 {
		stream, at := fmt.Sprint("a-", w), int64(0)
		for m, err := range n.Read(ctx, message.Query{Stream: stream}) {
			if err != nil || m.Position != at {
				t.Fatal(m.Position, at, err)
			}
			at++
		}
		if at != 4*each {
			t.Errorf("stream %s has %d messages, want %d", stream, at, 4*each)
		}
	}
	if c, err := n.Count(ctx, ""); c != (message.Counts{Messages: 12 * each, Streams: 3}) || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}

// What is done for a message and that it is done are one commit.
func TestAckInTransaction(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		db, err := kv.Open(st, kv.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		s, err := message.Open(db, message.Options{RetainEvery: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer storetest.Close(t, s)
		n := namespace(t, s, message.Default)
		write(t, n, "a-1", withID(""), withID(""), withID(""))
		sub := subscribe(t, n, "sub", message.SubscriptionOptions{})
		all, err := sub.Claim(ctx, 3)
		if err != nil || len(all) != 3 {
			t.Fatal(all, err)
		}
		mine := errors.New("mine")
		for _, want := range []error{mine, nil} {
			err := db.Update(ctx, func(tx *kv.Tx) error {
				in := sub.In(tx)
				if err := in.Ack(all[0]); err != nil {
					t.Error(err)
				}
				if err := in.Ack(all[0]); !errors.Is(err, message.ErrLeaseLost) {
					t.Errorf("again: %v", err)
				}
				if err := in.Ack(all[1], all[1]); !errors.Is(err, message.ErrLeaseLost) {
					t.Errorf("twice: %v", err)
				}
				if err := in.Park("no", all[1]); err != nil {
					t.Error(err)
				}
				if err := n.In(tx).SavePosition("c", 4); !errors.Is(err, event.ErrAhead) {
					t.Errorf("a position that is ahead: %v", err)
				}
				if _, err := n.In(tx).Write("b-1", withID("")); err != nil {
					t.Error(err)
				}
				if err := n.In(tx).SavePosition("c", 4); err != nil {
					t.Error(err)
				}
				if at, err := n.In(tx).LoadPosition("c"); at != 4 || err != nil {
					t.Error(at, err)
				}
				return want
			})
			if err != want {
				t.Fatal(err)
			}
			info := sub.Info()
			parked, err := sub.Parked(ctx, 0, 0)
			_, position := n.LoadPosition(ctx, "c")
			if want != nil && (info.Done != 0 || info.Pending != 3 || len(parked) != 0 || position == nil) ||
				want == nil && (info.Done != 2 || info.Pending != 1 || len(parked) != 1 || position != nil) || err != nil {
				t.Errorf("after %v: %+v, %d parked, %v, %v", want, info, len(parked), position, err)
			}
		}
		if err := sub.Ack(ctx, all[0]); !errors.Is(err, message.ErrLeaseLost) {
			t.Errorf("afterwards: %v", err)
		}
		if err := sub.Ack(ctx, all[2]); err != nil {
			t.Error(err)
		}
		if err := sub.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A function may count, and is told that it may not remove or import, while another removal or import waits for it.
func TestCallsBesideOneThatWaits(t *testing.T) {
	for name, wait := range map[string]func(n *message.Namespace) error{
		"removal": func(n *message.Namespace) error { _, err := n.Delete(ctx, "x-1"); return err },
		"import": func(n *message.Namespace) error {
			_, err := n.Import(ctx, strings.NewReader(`{"id":"00000000-0000-0000-0000-000000000001","stream":"x-1","pos":7,`+
				`"gpos":7,"type":"t","time":"2024-01-01T00:00:00Z","data":{}}`), nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, n := memStore(t)
			write(t, n, "x-1", msg("t"))
			waiting := make(chan chan error, 1)
			update := storetest.Async(func() error {
				return s.DB().Update(ctx, func(tx *kv.Tx) error {
					if _, err := n.In(tx).Write("y-1", msg("t")); err != nil {
						return err
					}
					call := storetest.Async(func() error { return wait(n) })
					storetest.Unfinished(t, call)
					waiting <- call
					for _, err := range []error{func() error { _, err := n.Delete(ctx, "x-1"); return err }(), wait(n)} {
						if !errors.Is(err, kv.ErrNested) {
							t.Errorf("in a function: %v", err)
						}
					}
					list, err := n.Categories(ctx)
					if err != nil {
						return err
					}
					if got, err := n.Count(ctx, ""); got.Messages != 1 || len(list) != 1 {
						t.Errorf("%+v, %v, %v", got, list, err)
					}
					return nil
				})
			})
			storetest.Finished(t, nil, update, <-waiting)
		})
	}
}

// What a subscription cannot keep is refused at once, and the transaction goes on without it.
func TestParkOfTooMuchInTransaction(t *testing.T) {
	s, n := memStore(t)
	write(t, n, "x-1", msg("t"))
	sub := subscribe(t, n, "s", message.SubscriptionOptions{})
	deliveries, err := sub.Claim(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	other := deliveries[0]
	other.Token++
	if err := s.DB().Update(ctx, func(tx *kv.Tx) error {
		reason := strings.Repeat("x", holdfast.MaxValueSize)
		storetest.WantError(t, sub.In(tx).Park(reason, deliveries...), holdfast.ErrTooLarge)
		storetest.WantError(t, sub.In(tx).Ack(other), message.ErrLeaseLost)
		return tx.Bucket("b").Put([]byte("k"), nil)
	}); err != nil {
		t.Fatal(err)
	}
	if err := sub.Park(ctx, "", deliveries...); err != nil {
		t.Errorf("it was not parked, but is not the consumer's any more: %v", err)
	}
}
