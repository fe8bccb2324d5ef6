// Messages keeps bank accounts as aggregates in the directory messages-data: an account is the stream of its events.
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
	"github.com/holdfastdb/holdfast/store/message/aggregate"
)

type moved struct{ Amount int } // an event; a program with several has an interface
type account struct{ Balance int }

func main() {
	ctx := context.Background()
	engine := must(logtree.Open("messages-data", holdfast.Options{}))
	store := must(message.Open(kv.On(engine), message.Options{})) // at Power
	bank := must(store.Namespace(ctx, message.Default))
	events := aggregate.NewEvents[moved]()
	aggregate.Register[moved](events, "Moved", 1)
	accounts := must(aggregate.New(bank, aggregate.Options[account, moved]{Category: "account", Events: events,
		Apply: func(a *account, e moved) { a.Balance += e.Amount }, SnapshotEvery: 100}))

	// Do loads the account, decides, and writes after the version that it has read; after a conflict it does so again.
	move := func(a *aggregate.Aggregate[account, moved], amount int) error {
		if a.State.Balance+amount < 0 {
			return fmt.Errorf("account %s has only %d", a.ID, a.State.Balance)
		}
		a.Add(moved{amount})
		return nil
	}
	for _, amount := range []int{100, -30, -500} {
		_, err := accounts.Do(ctx, "ann", func(a *aggregate.Aggregate[account, moved]) error { return move(a, amount) })
		fmt.Printf("%d: %v\n", amount, err)
	}

	// Everything is a message: all accounts are the category "account", in the order of global positions.
	for m, err := range bank.Read(ctx, message.Query{Category: "account"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.Stream, m.Position, m.Type, string(m.Data))
	}
	if err := errors.Join(store.Close(), engine.Close()); err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
