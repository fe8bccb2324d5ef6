package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// Welcome is a mail to somebody new.
type Welcome struct {
	To string `json:"to"`
}

func (Welcome) Kind() string { return "welcome" }

// Defaults: there is one welcome a day for everybody, however often it is enqueued.
func (Welcome) Defaults() task.Spec {
	return task.Spec{Queue: "mail", MaxAttempts: 5, Unique: worker.ByArgs, UniqueFor: 24 * time.Hour}
}

// Mailer has what its workers need.
type Mailer struct {
	from string
	sent chan string
}

func (m *Mailer) Welcome(ctx context.Context, t *worker.Task[Welcome]) error {
	if t.Args.To == "" {
		return worker.Dead(errors.New("there is no address")) // and there will be none
	}
	m.sent <- fmt.Sprintf("from %s to %s: welcome (attempt %d)", m.from, t.Args.To, t.Attempt)
	return nil
}

func Example() {
	eng := mem.New() // all.Open for a directory
	defer eng.Close()
	tasks, err := task.Open(kv.On(eng), task.Options{Level: holdfast.Memory}) // Power by default
	if err != nil {
		log.Fatal(err)
	}
	defer tasks.Close()

	var workers worker.Workers
	mailer := &Mailer{from: "us", sent: make(chan string)}
	worker.Register(&workers, mailer.Welcome).Timeout = time.Minute
	runner, err := worker.New(tasks, &workers, worker.Options{Queues: []string{"mail"}, Concurrency: 4})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background()) // a program uses signal.NotifyContext
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()

	first, err := worker.Enqueue(ctx, tasks, Welcome{To: "ada"}, task.Spec{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-mailer.sent)
	again, err := worker.Enqueue(ctx, tasks, Welcome{To: "ada"}, task.Spec{})
	fmt.Println("again:", again.Existing, again.ID == first.ID, err)

	stop() // what runs is completed
	fmt.Println("ended:", <-ended)
	t, err := tasks.Get(context.Background(), first.ID)
	fmt.Println(t.State, err)
	// Output:
	// from us to ada: welcome (attempt 1)
	// again: true true <nil>
	// ended: <nil>
	// completed <nil>
}
