package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/inprocess"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

type Welcome struct{ To string }

func (Welcome) Kind() string { return "welcome" }

// What the documentation shows, over the network.
func Example_documentation() {
	program := func(ctx context.Context, token string, data []byte, workers worker.Workers, paid message.Message,
		lease task.Lease) error {
		c, err := client.New("http://127.0.0.1:8080", client.Options{Token: os.Getenv("HOLDFAST_TOKEN")})
		orders := c.Namespace("orders")

		placed := message.Message{Type: "Placed", Data: []byte(`{"items": 3}`)}
		r, err := orders.WriteAfter(ctx, "order-17", message.NoStream, placed) // else message.ErrConflict

		for m, err := range orders.Follow(ctx, message.Query{Category: "order"}) { // goes on when the server was away
			if err != nil {
				return err // ctx's, or one that does not pass
			}
			fmt.Println(m.Stream, m.Position, m.Type)
		}

		log := orders.Log("audit")
		_, err = log.Append(ctx, event.Event{Type: "Login", Data: data})

		runner, err := worker.New(orders.Tasks(), &workers, worker.Options{Queues: []string{"mail"}})
		_, err = worker.Enqueue(ctx, orders.Tasks(), Welcome{To: "ada@example.org"}, task.Spec{Queue: "mail"})

		var conflict *message.Conflict
		switch {
		case errors.Is(err, message.ErrConflict) && errors.As(err, &conflict):
			fmt.Println(conflict.Expected, conflict.Actual)
		case errors.Is(err, client.ErrUnauthorized), errors.Is(err, client.ErrForbidden): // the token
		case errors.Is(err, holdfast.ErrFull): // the server's disk
		}

		var at *message.Result
		err = c.Update(ctx, func(tx *client.Tx) error {
			at = orders.In(tx).WriteAfter("order-17", 3, paid)
			log.In(tx).Append(event.Event{Type: "Paid", Data: data})
			orders.Tasks().In(tx).Complete(lease, task.Spec{Kind: "receipt"})
			return nil
		})
		fmt.Println(at.Position, err)

		_, err = orders.Write(holdfast.WithLevel(ctx, holdfast.Power), "payment-17", paid)

		sql := "select stream, data from messages where stream = ?"
		columns, rows, err := c.Namespace("shop").Query(ctx, sql, "order-17")
		for row, err := range rows { // values: nil, int64, float64, string, []byte
			if err != nil {
				return err
			}
			fmt.Println(columns, row)
		}

		owners := []string{"*.db.example.org", "10.0.0.0/8"}
		c, err = client.New("https://holdfast.example.org", client.Options{Token: token, Owners: owners})
		_, _, _ = c, r, runner
		return err
	}
	_ = program
}

// A program writes, reads and runs tasks over the network as it would with stores of its own. Here the server is in the
// program, and there is no network between them.
func Example() {
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	engine := mem.New()
	defer engine.Close()
	d, err := data.Open(engine, data.Options{Level: holdfast.Memory})
	fail(err)
	defer d.Close()
	token := auth.NewNamespaceSecret(message.Default)
	fail(d.Tokens().SetOwn(ctx, message.Default, token))
	s, err := server.New(d, server.Options{})
	fail(err)

	c, err := client.New("http://localhost", client.Options{Token: token,
		HTTP: &http.Client{Transport: inprocess.Transport(s)}})
	fail(err)
	orders := c.Namespace(message.Default)
	placed := message.Message{Type: "Placed", Data: []byte(`{"items":3}`)}
	r, err := orders.WriteAfter(ctx, "order-17", message.NoStream, placed)
	fail(err)
	fmt.Println("written at", r.Position)
	_, err = orders.WriteAfter(ctx, "order-17", message.NoStream, placed)
	fmt.Println("again:", errors.Is(err, message.ErrConflict))
	for m, err := range orders.Follow(ctx, message.Query{Category: "order"}) {
		fail(err)
		fmt.Println(m.Stream, m.Type, string(m.Data))
		break
	}

	var workers worker.Workers
	worker.Register(&workers, func(_ context.Context, t *worker.Task[Welcome]) error {
		fmt.Println("welcome", t.Args.To)
		return nil
	})
	_, err = worker.Enqueue(ctx, orders.Tasks(), Welcome{To: "ada@example.org"}, task.Spec{})
	fail(err)
	runner, err := worker.New(orders.Tasks(), &workers, worker.Options{})
	fail(err)
	n, err := runner.RunDue(ctx)
	fmt.Println(n, "run,", err)
	// Output:
	// written at 0
	// again: true
	// order-17 Placed {"items":3}
	// welcome ada@example.org
	// 1 run, <nil>
}

// A transaction writes to several streams, completes a task and enqueues the next one: all of it, or nothing.
func Example_transaction() {
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	engine := mem.New()
	defer engine.Close()
	d, err := data.Open(engine, data.Options{Level: holdfast.Memory})
	fail(err)
	defer d.Close()
	token := auth.NewNamespaceSecret(message.Default)
	fail(d.Tokens().SetOwn(ctx, message.Default, token))
	s, err := server.New(d, server.Options{})
	fail(err)
	c, err := client.New("http://localhost", client.Options{Token: token,
		HTTP: &http.Client{Transport: inprocess.Transport(s)}})
	fail(err)

	bank := c.Namespace(message.Default)
	_, err = bank.Tasks().Enqueue(ctx, task.Spec{Kind: "transfer"})
	fail(err)
	leases, err := bank.Tasks().Claim(ctx, task.ClaimOptions{})
	fail(err)
	transfer := func(version int64) error {
		var from, to *message.Result
		err := c.Update(ctx, func(tx *client.Tx) error {
			to = bank.In(tx).Write("account-2", message.Message{Type: "Credited", Data: []byte(`{"amount":5}`)})
			from = bank.In(tx).WriteAfter("account-1", version,
				message.Message{Type: "Debited", Data: []byte(`{"amount":5}`)})
			bank.Tasks().In(tx).Complete(leases[0], task.Spec{Kind: "receipt"})
			return nil
		})
		if err == nil {
			fmt.Println("at", from.Global, "and", to.Global)
		}
		return err
	}
	err = transfer(7) // the account is at another version
	var e *client.Error
	fmt.Println(errors.Is(err, message.ErrConflict), errors.As(err, &e), "operation", *e.Operation)
	fail(transfer(message.NoStream))
	// Output:
	// true true operation 1
	// at 2 and 1
}

// A consumer that keeps its position elsewhere keeps the history with it.
func Example_history() {
	ctx := context.Background()
	var orders *client.Namespace
	var next int64
	history, err := orders.History(ctx)             // when the position is reached
	_ = message.Query{From: next, History: history} // when the consumer comes again
	_ = err
}
