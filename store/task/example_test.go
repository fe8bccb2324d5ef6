package task_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/task"
)

// A task is enqueued with the event that it is about, claimed, and completed in the commit of what it has made.
func Example() {
	ctx := context.Background()
	engine := mem.New() // or logtree.Open("data", holdfast.Options{}), at Power
	defer engine.Close()
	events, err := event.Open(kv.On(engine), event.Options{Level: holdfast.Memory})
	if err != nil {
		log.Fatal(err)
	}
	defer events.Close()
	tasks, err := task.Open(kv.On(engine), task.Options{Level: holdfast.Memory})
	if err != nil {
		log.Fatal(err)
	}
	defer tasks.Close()

	_, err = events.AppendWith(ctx, func(c *event.Commit) error {
		_, err := tasks.EnqueueIn(c, task.Spec{ID: "invoice-1", Kind: "invoice", Payload: []byte("order 1")})
		return err
	}, event.Event{Type: "OrderPlaced"})
	if err != nil {
		log.Fatal(err)
	}

	leases, err := tasks.Claim(ctx, task.ClaimOptions{Wait: true})
	if err != nil {
		log.Fatal(err)
	}
	l := leases[0]
	fmt.Println(l.Task.ID, l.Task.Kind, string(l.Task.Payload), l.Task.State)

	_, err = tasks.CompleteWith(ctx, l, func(b *holdfast.Batch) error {
		b.Set([]byte("invoice 1"), []byte("paid"))
		return nil
	}, task.Spec{Kind: "mail", After: []string{l.Task.ID}})
	if err != nil {
		log.Fatal(err)
	}
	counts, err := tasks.Count(ctx, "")
	fmt.Println(counts[task.Completed], counts[task.Waiting], err)
	// Output:
	// invoice-1 invoice order 1 running
	// 1 1 <nil>
}
