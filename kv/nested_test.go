package kv_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
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
		"event: SaveOffset": func(ctx context.Context) error { return log.SaveOffset(ctx, "x", 0) },
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
