package task_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// A task is enqueued in the transaction that places the order, claimed, and completed in that of what it has made.
func Example() {
	ctx := context.Background()
	engine := mem.New() // or logtree.Open("data", holdfast.Options{}), at Power
	defer engine.Close()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory}) // at Power unless told otherwise
	if err != nil {
		log.Fatal(err)
	}
	tasks, err := task.Open(db, task.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tasks.Close()

	err = db.Update(ctx, func(tx *kv.Tx) error {
		if err := tx.Bucket("orders").Put([]byte("1"), []byte("placed")); err != nil {
			return err
		}
		_, err := tasks.In(tx).Enqueue(task.Spec{ID: "invoice-1", Kind: "invoice", Payload: []byte("order 1")})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}

	leases, err := tasks.Claim(ctx, task.ClaimOptions{Wait: true})
	if err != nil {
		log.Fatal(err)
	}
	l := leases[0]
	fmt.Println(l.Task.ID, l.Task.Kind, string(l.Task.Payload), l.Task.State)

	err = db.Update(ctx, func(tx *kv.Tx) error {
		if err := tx.Bucket("invoices").Put([]byte("1"), []byte("paid")); err != nil {
			return err
		}
		_, err := tasks.In(tx).Complete(l, task.Spec{Kind: "mail", After: []string{l.Task.ID}})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	counts, err := tasks.Count(ctx, "")
	fmt.Println(counts[task.Completed], counts[task.Waiting], err)
	// Output:
	// invoice-1 invoice order 1 running
	// 1 1 <nil>
}
