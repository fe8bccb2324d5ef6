package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/message/aggregate"
)

// Seats of a concert, which two customers book at once. A real store is in an engine on disk.
func Example() {
	type (
		booked struct{ Seats int }
		hall   struct{ Booked int }
	)
	ctx := context.Background()
	store, err := message.Open(kv.On(mem.New()), message.Options{Level: holdfast.Memory})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	namespace, err := store.Namespace(ctx, message.Default)
	if err != nil {
		panic(err)
	}
	events := aggregate.NewEvents[booked]()
	aggregate.Register[booked](events, "Booked", 1)
	halls, err := aggregate.New(namespace, aggregate.Options[hall, booked]{
		Category: "hall", Events: events, SnapshotEvery: 100,
		Apply: func(h *hall, e booked) { h.Booked += e.Seats },
	})
	if err != nil {
		panic(err)
	}

	book := func(seats int, then func()) {
		h, err := halls.Do(ctx, "17", func(h *aggregate.Aggregate[hall, booked]) error {
			if h.State.Booked+seats > 10 {
				return errors.New("not enough seats are left")
			}
			fmt.Println(seats, "seats: there were", 10-h.State.Booked)
			then()
			h.Add(booked{seats})
			return nil
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("hall-17 has version %d: %d seats are left\n", h.Version, 10-h.State.Booked)
	}
	alone := func() {}
	book(4, sync.OnceFunc(func() { book(6, alone) })) // another customer is faster
	book(1, alone)
	// Output:
	// 4 seats: there were 10
	// 6 seats: there were 10
	// hall-17 has version 0: 4 seats are left
	// 4 seats: there were 4
	// hall-17 has version 1: 0 seats are left
	// not enough seats are left
}

// An account whose deposits were once stored in cents, as text.
func ExampleUpcast() {
	type deposited struct{ Euros int }
	type depositedCents struct{ Cents string }
	events := aggregate.NewEvents[deposited]()
	aggregate.Register[deposited](events, "Deposited", 2)
	aggregate.Upcast(events, "Deposited", 1, func(old depositedCents) (deposited, error) {
		var cents int
		_, err := fmt.Sscan(old.Cents, &cents)
		return deposited{cents / 100}, err
	})
	e, err := events.Decode(message.Message{Type: "Deposited", Data: []byte(`{"Cents": "1200"}`)})
	fmt.Println(e.Euros, err)
	// Output: 12 <nil>
}
