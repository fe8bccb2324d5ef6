// Transactions keeps a shop in the directory transactions-data. An order is a row of the program's own, a message, and
// a mail that is to be sent: all three are there, or none. Two orders are all that it has goods for.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

func main() {
	ctx := context.Background()
	engine := must(logtree.Open("transactions-data", holdfast.Options{}))
	db := kv.On(engine) // at Power
	messages := must(message.Open(db, message.Options{}))
	shop := must(messages.Namespace(ctx, message.Default))
	mails := must(task.Open(db, task.Options{}))
	for _, customer := range []string{"ada", "bob", "cyd"} {
		err := db.Update(ctx, func(tx *kv.Tx) error {
			orders := tx.Bucket("orders")
			n, _ := orders.NextSequence() // an error is remembered, and is that of Update
			id := fmt.Sprint("order-", n)
			orders.Put([]byte(id), []byte(customer))
			placed := message.Message{Type: "Placed", Data: fmt.Appendf(nil, `{"customer": %q}`, customer)}
			if _, err := shop.In(tx).WriteAfter(id, message.NoStream, placed); err != nil {
				return err
			}
			if n > 2 {
				return errors.New("sold out") // nothing of it is written: no row, no number, no message
			}
			_, err := mails.In(tx).Enqueue(task.Spec{Kind: "confirm", Payload: []byte(id)})
			return err
		})
		fmt.Printf("%s: %v\n", customer, err)
	}
	must(0, db.View(ctx, func(tx *kv.Tx) error {
		for id, customer := range tx.Bucket("orders").All() {
			fmt.Printf("%s of %s\n", id, customer)
		}
		return nil
	}))
	waiting, _, err := mails.List(ctx, task.Filter{})
	fmt.Println(must(shop.Count(ctx, "order")).Messages, "messages,", len(waiting), "mails")
	must(0, errors.Join(err, mails.Close(), messages.Close(), engine.Close()))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
