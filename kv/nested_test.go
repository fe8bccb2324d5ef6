package kv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// What a function does with a store without its transaction would stay when the function fails. It is refused, whether
// the store has a part in the transaction or not.
func TestPlainCallsInAFunction(t *testing.T) {
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	engine := mem.New()
	defer engine.Close()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
	must(err)
	log, err := event.Open(db, event.Options{})
	must(err)
	messages, err := message.Open(db, message.Options{})
	must(err)
	_, err = messages.Create(ctx, message.NamespaceOptions{ID: "orders"})
	must(err)
	orders, err := messages.Namespace(ctx, "orders")
	must(err)
	subscription, err := orders.Subscribe(ctx, "mails", message.SubscriptionOptions{})
	must(err)
	tasks, err := task.Open(db, task.Options{})
	must(err)

	for name, call := range map[string]func(context.Context) error{
		"event: Append": func(ctx context.Context) error {
			_, err := log.Append(ctx, event.Event{Type: "x"})
			return err
		},
		"event: TruncateBefore": func(ctx context.Context) error {
			_, err := log.TruncateBefore(ctx, 1)
			return err
		},
		"event: Import": func(ctx context.Context) error {
			_, err := log.Import(ctx, event.Event{Position: 1, Type: "x"})
			return err
		},
		"message: Tombstone": func(ctx context.Context) error { _, err := orders.Tombstone(ctx, "order-2"); return err },
		"message: Truncate":  func(ctx context.Context) error { _, err := orders.Truncate(ctx, "order-2", 1); return err },
		"message: SetRetention": func(ctx context.Context) error {
			return orders.SetRetention(ctx, "order-2", message.Retention{MaxCount: 1})
		},
		"message: DeleteSubscription": func(ctx context.Context) error { return orders.DeleteSubscription(ctx, "none") },
		"event: SaveOffset":           func(ctx context.Context) error { return log.SaveOffset(ctx, "x", 0) },
		"message: Write": func(ctx context.Context) error {
			_, err := orders.Write(ctx, "order-1", message.Message{Type: "x", Data: []byte("{}")})
			return err
		},
		"message: Claim": func(ctx context.Context) error { _, err := subscription.Claim(ctx, 1); return err },
		"message: Close": func(context.Context) error { return subscription.Close() },
		"message: Create": func(ctx context.Context) error {
			_, err := messages.Create(ctx, message.NamespaceOptions{ID: "others"})
			return err
		},
		"task: Enqueue": func(ctx context.Context) error {
			_, err := tasks.Enqueue(ctx, task.Spec{Kind: "x"})
			return err
		},
		"task: Claim": func(ctx context.Context) error { _, err := tasks.Claim(ctx, task.ClaimOptions{}); return err },
		"kv: Update":  func(ctx context.Context) error { return db.Update(ctx, func(*kv.Tx) error { return nil }) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			err := db.Update(ctx, func(*kv.Tx) error { return call(ctx) })
			if !errors.Is(err, kv.ErrNested) {
				t.Errorf("in a function: %v", err)
			}
		})
	}
	if last := log.Last(); last != 0 {
		t.Errorf("the log has %d events", last)
	}

	// Elsewhere, meanwhile, they are not refused.
	done := make(chan error)
	must(db.Update(ctx, func(*kv.Tx) error {
		go func() {
			_, err := log.Append(ctx, event.Event{Type: "x"})
			done <- err
		}()
		return <-done
	}))
}

// A function that only reads has no turn, and does not wait for itself: what it writes elsewhere waits as any call.
func TestCallsInAView(t *testing.T) {
	engine := mem.New()
	defer engine.Close()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
	check(t, err)
	log, err := event.Open(db, event.Options{})
	check(t, err)
	began, end := make(chan bool), make(chan bool)
	updated := storetest.Async(func() error {
		return db.Update(ctx, func(*kv.Tx) error {
			close(began)
			<-end
			return nil
		})
	})
	<-began
	for name, read := range map[string]reader{"View": db.View, "Latest": db.Latest} {
		if err := read(ctx, func(*kv.Tx) error {
			_, err := log.Append(ctx, event.Event{Type: "x"})
			return err
		}); err != nil {
			t.Errorf("an append in a %s, beside an Update: %v", name, err)
		}
	}
	inView := storetest.Async(func() error {
		return db.View(ctx, func(*kv.Tx) error { return db.Update(ctx, func(*kv.Tx) error { return nil }) })
	})
	storetest.Unfinished(t, inView)
	time.Sleep(20 * time.Millisecond) // longer than who waits for itself is not told so
	close(end)
	storetest.Finished(t, nil, updated, inView)
	check(t, log.Close())
}

// To close a store in the function of a transaction of which it is a part would be to wait for oneself.
func TestCloseInAFunction(t *testing.T) {
	engine := mem.New()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
	check(t, err)
	log, err := event.Open(db, event.Options{})
	check(t, err)
	messages, err := message.Open(db, message.Options{})
	check(t, err)
	orders, err := messages.Namespace(ctx, message.Default)
	check(t, err)
	list, err := kv.Open(engine, kv.Options{Name: "list", Level: holdfast.Memory})
	check(t, err)
	elsewhere, err := message.Open(list, message.Options{Name: "elsewhere",
		Database: func(string) (*kv.DB, error) { return db, nil }})
	check(t, err)
	away, err := elsewhere.Namespace(ctx, message.Default)
	check(t, err)
	tasks, err := task.Open(db, task.Options{})
	check(t, err)
	for name, f := range map[string]func(tx *kv.Tx) (closed, err error){
		"log": func(tx *kv.Tx) (closed, err error) {
			_, err = log.In(tx).Append(event.Event{Type: "x"})
			return log.Close(), err
		},
		"messages": func(tx *kv.Tx) (closed, err error) {
			_, err = orders.In(tx).Write("x", message.Message{Type: "x", Data: []byte("{}")})
			return messages.Close(), err
		},
		"messages in another database": func(tx *kv.Tx) (closed, err error) {
			_, err = away.In(tx).Write("x", message.Message{Type: "x", Data: []byte("{}")})
			return elsewhere.Close(), err
		},
		"namespaces": func(tx *kv.Tx) (closed, err error) {
			_, err = messages.In(tx).Create(message.NamespaceOptions{ID: "a"})
			return messages.Close(), err
		},
		"tasks": func(tx *kv.Tx) (closed, err error) {
			_, err = tasks.In(tx).Enqueue(task.Spec{Kind: "x"})
			return tasks.Close(), err
		},
	} {
		update := storetest.Async(func() error {
			return db.Update(ctx, func(tx *kv.Tx) error {
				closed, err := f(tx)
				if !errors.Is(closed, kv.ErrNested) {
					t.Errorf("%s: %v", name, closed)
				}
				return err
			})
		})
		storetest.Finished(t, nil, update)
	}
	check(t, errors.Join(log.Close(), messages.Close(), elsewhere.Close(), tasks.Close(), engine.Close()))
}

// A store that is closed beside a transaction waits for that, and refuses what its function still calls: it would wait
// for the Close.
func TestCallsBesideAClose(t *testing.T) {
	for name, call := range map[string]func(log *event.Store, messages *message.Store) error{
		"event: CheckHistory": func(log *event.Store, _ *message.Store) error { return log.CheckHistory("", 1) },
		"event: Common":       func(log *event.Store, _ *message.Store) error { _, err := log.Common(""); return err },
		"message: Info": func(_ *event.Store, messages *message.Store) error {
			_, err := messages.Info(ctx, message.Default)
			return err
		},
		"message: Namespace": func(_ *event.Store, messages *message.Store) error {
			_, err := messages.Namespace(ctx, message.Default)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := kv.Open(mem.New(), kv.Options{Level: holdfast.Memory})
			check(t, err)
			log, err := event.Open(db, event.Options{})
			check(t, err)
			messages, err := message.Open(db, message.Options{})
			check(t, err)
			var closing []chan error
			updated := storetest.Async(func() error {
				return db.Update(ctx, func(tx *kv.Tx) error {
					_, err := log.In(tx).Append(event.Event{Type: "x"})
					check(t, err)
					_, err = messages.In(tx).Create(message.NamespaceOptions{ID: "others"})
					check(t, err)
					closing = append(closing, storetest.Async(log.Close), storetest.Async(messages.Close))
					storetest.Unfinished(t, closing...)
					for err == nil { // once, unless the machine is slow
						err = call(log, messages)
					}
					return err
				})
			})
			storetest.Finished(t, holdfast.ErrClosed, updated)
			storetest.Finished(t, nil, closing...)
		})
	}
}

// However deep in a function a call is made, it is told that it would wait for itself.
func TestCallDeepInAFunction(t *testing.T) {
	db, err := kv.Open(mem.New(), kv.Options{Level: holdfast.Memory})
	check(t, err)
	var deep func(n int) error
	deep = func(n int) error {
		if n > 0 {
			return deep(n - 1)
		}
		return db.Update(ctx, func(*kv.Tx) error { return nil })
	}
	for n := range 5 {
		n *= 1000
		update := storetest.Async(func() error { return db.Update(ctx, func(*kv.Tx) error { return deep(n) }) })
		storetest.Finished(t, kv.ErrNested, update)
	}
}
