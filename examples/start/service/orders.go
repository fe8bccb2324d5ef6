package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfastdb/holdfast/store/message/aggregate"
)

// order is the state of an order: what its events have made of it.
type order struct {
	Customer string
	Cents    int
	Paid     bool
}

type event interface{ apply(*order) }

type placed struct {
	Customer string
	Cents    int
}

type paid struct {
	Customer string
	Cents    int
}

func (e placed) apply(o *order) { o.Customer, o.Cents = e.Customer, e.Cents }
func (e paid) apply(o *order)   { o.Paid = true }

// types are the events that there are. What is stored has these names; raise the number when a type changes.
func types() *aggregate.Events[event] {
	events := aggregate.NewEvents[event]()
	aggregate.Register[placed](events, "Placed", 1)
	aggregate.Register[paid](events, "Paid", 1)

	return events
}

var errRefused = errors.New("refused")

// place and pay are decisions on the present state of an order.
func place(o *aggregate.Aggregate[order, event], r *http.Request) error {
	customer := r.FormValue("customer")
	cents, err := strconv.Atoi(r.FormValue("cents"))
	if err != nil || customer == "" || cents <= 0 || o.State.Customer != "" {
		return fmt.Errorf("%w: it is there already, or lacks a customer or cents", errRefused)
	}
	o.Add(placed{customer, cents})

	return nil
}

func pay(o *aggregate.Aggregate[order, event], _ *http.Request) error {
	if o.State.Customer == "" || o.State.Paid {
		return fmt.Errorf("%w: it is not there, or is paid already", errRefused)
	}
	o.Add(paid{o.State.Customer, o.State.Cents})

	return nil
}
