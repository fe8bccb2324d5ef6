// Orders is a service whose orders are the events that they have had. Each request is a decision on one order, made on
// its present state. What customers have spent is a read model, made of the events. Mail is a task, which is enqueued
// in the transaction that writes the event that it tells of: there is no payment without its mail, and no mail without
// a payment.
//
//	orders --dir /tmp/orders --addr 127.0.0.1:8080
//	curl -X POST '127.0.0.1:8080/orders/17/place?customer=ann&cents=1250'
//	curl -X POST '127.0.0.1:8080/orders/17/pay'
//	curl '127.0.0.1:8080/customers'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/message/aggregate"
	"github.com/holdfastdb/holdfast/store/projection"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// An event is what has happened to an order.
type event interface{ apply(o *order) }

type placed struct {
	Customer string
	Cents    int
}
type paid struct{}

// order is the state of an order.
type order struct {
	Customer string
	Cents    int
	Paid     bool
}

func (e placed) apply(o *order) { o.Customer, o.Cents = e.Customer, e.Cents }
func (e paid) apply(o *order)   { o.Paid = true }

var errRefused = errors.New("refused")

// place is a decision, and so is pay.
func place(o *aggregate.Aggregate[order, event], r *http.Request) error {
	customer := r.FormValue("customer")
	cents, err := strconv.Atoi(r.FormValue("cents"))
	if err != nil || o.State.Customer != "" || customer == "" || cents <= 0 {
		return fmt.Errorf("%w: it is there already, or lacks a customer or cents", errRefused)
	}
	o.Add(placed{customer, cents})

	return nil
}

func (s *service) pay(o *aggregate.Aggregate[order, event], _ *http.Request) error {
	if o.State.Customer == "" || o.State.Paid {
		return fmt.Errorf("%w: it is not there, or is paid already", errRefused)
	}
	o.Add(paid{})
	spec, err := worker.NewSpec(mail{o.State.Customer, "order " + o.ID + " is paid"}, task.Spec{})
	o.Also(func(tx *kv.Tx) error {
		_, err := s.tasks.In(tx).Enqueue(spec)
		return err
	})
	return err
}

// mail is the arguments of a kind of task.
type mail struct{ To, Text string }

func (mail) Kind() string { return "mail" }
func (mail) Defaults() task.Spec {
	return task.Spec{Backoff: task.Backoff{First: time.Second, Max: time.Hour}}
}

// customer is what the read model has for each.
type customer struct{ Orders, Cents int }

type service struct {
	engine    holdfast.Engine
	db        *kv.DB
	store     *message.Store
	tasks     *task.Store
	orders    *aggregate.Repository[order, event]
	customers *projection.Projection[message.Message]
	mails     *worker.Runner
}

// open opens the service in a directory. send is called again after an error, and may be after a crash.
func open(ctx context.Context, dir string, send func(mail) error) *service {
	engine := must(logtree.Open(dir, holdfast.Options{}))
	db := kv.On(engine) // at Power
	store := must(message.Open(db, message.Options{}))
	tasks := must(task.Open(db, task.Options{}))
	n := must(store.Namespace(ctx, message.Default))
	events := aggregate.NewEvents[event]()
	aggregate.Register[placed](events, "Placed", 1)
	aggregate.Register[paid](events, "Paid", 1)
	orders := must(aggregate.New(n, aggregate.Options[order, event]{Category: "order", Events: events,
		Apply: func(o *order, e event) { e.apply(o) }, SnapshotEvery: 100}))
	// At Process: what a power cut takes of a read model is made again.
	placements := projection.Messages(db.At(holdfast.Process), n,
		message.Query{Category: "order", Types: []string{"Placed"}})
	customers := must(projection.New(placements, projection.Options{Name: "customers"},
		func(view *kv.Bucket, in message.Message) error {
			e, err := events.Decode(in)
			if err != nil {
				return err
			}
			p := e.(placed)
			c, err := projection.Get[customer](view, p.Customer)
			if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
				return err
			}

			return projection.Set(view, p.Customer, customer{c.Orders + 1, c.Cents + p.Cents})
		}))
	var workers worker.Workers
	worker.Register(&workers, func(_ context.Context, t *worker.Task[mail]) error { return send(t.Args) })
	mails := must(worker.New(tasks, &workers, worker.Options{}))
	return &service{engine, db, store, tasks, orders, customers, mails}
}

// run keeps the read model up to date and sends mail, until ctx ends or one of them fails.
func (s *service) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- s.customers.Run(ctx) }()
	go func() { ended <- s.mails.Run(ctx) }()
	err := <-ended
	stop()

	return errors.Join(err, <-ended)
}

func (s *service) close() error {
	return errors.Join(s.tasks.Close(), s.store.Close(), s.engine.Close())
}

func (s *service) routes() http.Handler {
	routes := http.NewServeMux()
	post := func(pattern string, decide func(o *aggregate.Aggregate[order, event], r *http.Request) error) {
		routes.HandleFunc("POST "+pattern, func(w http.ResponseWriter, r *http.Request) {
			o, err := s.orders.Do(r.Context(), r.PathValue("id"),
				func(o *aggregate.Aggregate[order, event]) error { return decide(o, r) })
			reply(w, o, err)
		})
	}
	post("/orders/{id}/place", place)
	post("/orders/{id}/pay", s.pay)
	routes.HandleFunc("GET /customers", func(w http.ResponseWriter, r *http.Request) {
		list := map[string]customer{}
		err := s.db.View(r.Context(), func(tx *kv.Tx) error {
			for c, err := range projection.All[customer](s.customers.View(tx), "") {
				if err != nil {
					return err
				}
				list[c.Key] = c.Value
			}
			return nil
		})
		reply(w, list, err)
	})

	return routes
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, errRefused) {
			status = http.StatusConflict
		}
		http.Error(w, err.Error(), status)

		return
	}
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}

	return v
}

func main() {
	dir, addr := flag.String("dir", "orders", "its `directory`"), flag.String("addr", "127.0.0.1:8080", "its `address`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	s := open(ctx, *dir, func(m mail) error { log.Printf("mail to %s: %s", m.To, m.Text); return nil })
	server := &http.Server{Addr: *addr, Handler: s.routes()}
	go func() { log.Print(server.ListenAndServe()); stop() }()
	err := s.run(ctx) // until an interrupt, most likely
	log.Print(errors.Join(err, server.Shutdown(context.Background()), s.close()))
}
