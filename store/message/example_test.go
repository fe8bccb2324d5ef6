package message_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// A stream for each account, written to only as it was read, and a reader of all of them.
func Example() {
	ctx := context.Background()
	engine := mem.New() // or logtree.Open("data", holdfast.Options{}), at Power
	defer engine.Close()
	store, err := message.Open(kv.On(engine), message.Options{Level: holdfast.Memory})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	bank, err := store.Namespace(ctx, message.Default)
	if err != nil {
		log.Fatal(err)
	}

	opened := message.Message{Type: "Opened", Data: []byte(`{"owner": "Ann"}`)}
	first, err := bank.WriteAfter(ctx, "account-1", message.NoStream, opened)
	if err != nil {
		log.Fatal(err)
	}
	_, err = bank.WriteAfter(ctx, "account-1", first.Position, message.Message{Type: "Deposited",
		Data: []byte(`{"amount": 10}`)})
	if err != nil {
		log.Fatal(err)
	}
	// Who has not read the deposit does not withdraw.
	_, err = bank.WriteAfter(ctx, "account-1", first.Position, message.Message{Type: "Withdrawn",
		Data: []byte(`{"amount": 5}`)})
	var conflict *message.Conflict
	fmt.Println(errors.As(err, &conflict), conflict)

	for m, err := range bank.Read(ctx, message.Query{Category: "account"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.Stream, m.Position, m.Type, string(m.Data))
	}
	// Output:
	// true expected version 0 of stream "account-1", it is 1
	// account-1 0 Opened {"owner": "Ann"}
	// account-1 1 Deposited {"amount": 10}
}

// Two streams are written to at once, or none: a transfer.
func ExampleNamespace_In() {
	ctx := context.Background()
	_, bank := exampleStore(ctx)
	amount := []byte(`{"amount": 10}`)
	err := bank.DB().Update(ctx, func(tx *kv.Tx) error {
		if _, err := bank.In(tx).Write("account-1", message.Message{Type: "Withdrawn", Data: amount}); err != nil {
			return err
		}
		_, err := bank.In(tx).Write("account-2", message.Message{Type: "Deposited", Data: amount})
		return err
	})
	count, _ := bank.Count(ctx, "account")
	fmt.Println(err, count.Messages, count.Streams)
	// Output: <nil> 2 2
}

// Workers share the messages of a category. What a worker does not acknowledge is delivered again.
func ExampleNamespace_Subscribe() {
	ctx := context.Background()
	_, shop := exampleStore(ctx)
	for i := range 3 {
		_, err := shop.Write(ctx, fmt.Sprint("order-", i), message.Message{Type: "Placed", Data: []byte(`{}`)})
		if err != nil {
			log.Fatal(err)
		}
	}
	mails, err := shop.Subscribe(ctx, "mails", message.SubscriptionOptions{Query: message.Query{Category: "order"}})
	if err != nil {
		log.Fatal(err)
	}
	defer mails.Close()
	for mails.Info().Behind > 0 { // a worker, of which there may be many
		deliveries, err := mails.Claim(ctx, 10)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range deliveries {
			fmt.Println("mail about", d.Stream)
		}
		if err := mails.Ack(ctx, deliveries...); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// mail about order-0
	// mail about order-1
	// mail about order-2
}

func exampleStore(ctx context.Context) (*message.Store, *message.Namespace) {
	store, err := message.Open(kv.On(mem.New()), message.Options{Level: holdfast.Memory})
	if err != nil {
		log.Fatal(err)
	}
	n, err := store.Namespace(ctx, message.Default)
	if err != nil {
		log.Fatal(err)
	}
	return store, n
}
