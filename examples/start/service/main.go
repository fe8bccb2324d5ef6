// Service is a shop in one process and one directory: orders are aggregates, what customers have spent is a read model,
// receipts are mailed by tasks, and Holdfast's page, API and metrics are served beside the shop's own routes.
//
//	go run ./examples/start/service --dir /tmp/shop
//	curl -X POST '127.0.0.1:8080/shop/orders/17/place?customer=ann&cents=1250'
//	curl -X POST 127.0.0.1:8080/shop/orders/17/pay
//	curl 127.0.0.1:8080/shop/spent/ann
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/message/aggregate"
	"github.com/holdfastdb/holdfast/store/projection"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// receipt is the arguments of a kind of task.
type receipt paid

func (receipt) Kind() string { return "receipt" }

func main() {
	dir := flag.String("dir", "service-data", "its `directory`")
	addr := flag.String("addr", "127.0.0.1:8080", "its `address`")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	// The engine, watched for its metrics, and in it the data of a server. The program uses the same stores.
	engine := metrics.Watch(must(logtree.Open(*dir, holdfast.Options{})))
	stored := must(data.Open(engine, data.Options{})) // at Power
	shop := must(stored.Messages().Namespace(ctx, message.Default))
	tasks := must(stored.Tasks(context.Background(), message.Default)) // it stays open until stored is closed

	// Aggregates.
	events := types()
	orders := must(aggregate.New(shop, aggregate.Options[order, event]{Category: "order", Events: events,
		Apply: func(o *order, e event) { e.apply(o) }, SnapshotEvery: 100}))

	// A projection: what customers have spent. At Process, because what a power cut takes of it is made again.
	payments := message.Query{Category: "order", Types: []string{"Paid"}}
	spent := must(projection.New(projection.Messages(shop.DB().At(holdfast.Process), shop, payments),
		projection.Options{Name: "spent"}, func(view *kv.Bucket, in message.Message) error {
			e, err := events.Decode(in)
			if err != nil {
				return err
			}
			p := e.(paid)
			cents, err := projection.Get[int](view, p.Customer)
			if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
				return err
			}

			return projection.Set(view, p.Customer, cents+p.Cents)
		}))

	// Tasks: a receipt is mailed for each payment.
	var workers worker.Workers
	worker.Register(&workers, func(_ context.Context, t *worker.Task[receipt]) error {
		fmt.Printf("mail to %s: %d cents received\n", t.Args.Customer, t.Args.Cents)
		return nil // after an error it is tried again
	})
	mails := must(worker.New(tasks, &workers, worker.Options{Queues: []string{"mail"}}))

	// Page, API and metrics, beside the program's own routes; backups by the engine that is used, not by all.
	console := must(server.New(stored, server.Options{Backup: logtree.Backup}))
	routes := http.NewServeMux()
	routes.Handle("/", console)

	for action, decide := range map[string]func(*aggregate.Aggregate[order, event], *http.Request) error{
		"place": place, "pay": pay(tasks)} {
		routes.HandleFunc("POST /shop/orders/{id}/"+action, func(w http.ResponseWriter, r *http.Request) {
			o, err := orders.Do(r.Context(), r.PathValue("id"),
				func(o *aggregate.Aggregate[order, event]) error { return decide(o, r) })
			reply(w, o, err)
		})
	}
	routes.HandleFunc("GET /shop/spent/{customer}", func(w http.ResponseWriter, r *http.Request) {
		var cents int
		err := shop.DB().View(r.Context(), func(tx *kv.Tx) (err error) {
			view := spent.View(tx)
			cents, err = projection.Get[int](view, r.PathValue("customer"))
			return err
		})
		reply(w, cents, err)
	})
	_, token, err := console.Tokens().Create(ctx, auth.Token{Namespace: auth.Everywhere, Role: auth.Admin,
		Description: "of this run", Expires: time.Now().Add(24 * time.Hour)})
	check(err)
	listener := must(net.Listen("tcp", *addr))
	fmt.Printf("http://%s/page/ with the token %s\n", listener.Addr(), token)

	// Run everything until an interrupt, or until something fails; then end it in order: requests, loops, stores, engine.
	web := &http.Server{Handler: routes, ReadHeaderTimeout: 10 * time.Second}
	var running sync.WaitGroup
	ended := make(chan error, 3)
	for _, run := range []func(context.Context) error{spent.Run, mails.Run,
		func(context.Context) error { return web.Serve(listener) }} {
		running.Go(func() { ended <- run(ctx); stop() })
	}
	<-ctx.Done()

	last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = errors.Join(console.Stop(last), web.Shutdown(last)) // followers end, and requests are answered
	running.Wait()
	close(ended)

	for e := range ended {
		if !errors.Is(e, http.ErrServerClosed) {
			err = cmp.Or(err, e)
		}
	}
	check(errors.Join(err, stored.Close(), engine.Close()))
}

func reply(w http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, errRefused):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, holdfast.ErrNotFound):
		http.Error(w, "not found", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		_ = json.NewEncoder(w).Encode(v) // the client may be gone
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
