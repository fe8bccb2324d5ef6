package main

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message/aggregate"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
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

// place is a decision on the present state of an order.
func place(o *aggregate.Aggregate[order, event], r *http.Request) error {
	customer := r.FormValue("customer")
	cents, err := strconv.Atoi(r.FormValue("cents"))
	if err != nil || customer == "" || cents <= 0 || o.State.Customer != "" {
		return fmt.Errorf("%w: it is there already, or lacks a customer or cents", errRefused)
	}
	o.Add(placed{customer, cents})

	return nil
}

// pay returns the decision to pay: the receipt is a task in the transaction of the payment.
func pay(tasks *task.Store) func(*aggregate.Aggregate[order, event], *http.Request) error {
	return func(o *aggregate.Aggregate[order, event], _ *http.Request) error {
		if o.State.Customer == "" || o.State.Paid {
			return fmt.Errorf("%w: it is not there, or is paid already", errRefused)
		}
		payment := paid{o.State.Customer, o.State.Cents}
		o.Add(payment)
		mail, err := worker.NewSpec(receipt(payment), task.Spec{Queue: "mail"})
		o.Also(func(tx *kv.Tx) error {
			_, err := tasks.In(tx).Enqueue(mail)
			return err
		})

		return err
	}
}
