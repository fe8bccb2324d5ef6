// Tasks keeps a queue of tasks in the directory tasks-data, and runs them. A user and the task that welcomes them are
// one transaction.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

type welcome struct{ To string } // the arguments of a kind of task

func (welcome) Kind() string { return "welcome" }

func main() {
	ctx, stop := context.WithCancel(context.Background()) // a service uses signal.NotifyContext
	engine := must(logtree.Open("tasks-data", holdfast.Options{}))
	db := kv.On(engine)                          // at Power
	tasks := must(task.Open(db, task.Options{})) // part of its transactions
	var workers worker.Workers
	worker.Register(&workers, func(_ context.Context, t *worker.Task[welcome]) error {
		if t.Attempt == 1 {
			return worker.RetryIn(0, errors.New("the mail server is down")) // any error: it is tried again
		}
		fmt.Printf("welcome, %s (attempt %d)\n", t.Args.To, t.Attempt)
		stop()

		return nil
	})
	runner := must(worker.New(tasks, &workers, worker.Options{Queues: []string{"mail"}}))
	spec := must(worker.NewSpec(welcome{"ada"}, task.Spec{Queue: "mail"}))
	var results []task.Result
	must(0, db.Update(ctx, func(tx *kv.Tx) (err error) { // all of it, or nothing
		tx.Bucket("users").Put([]byte("ada"), []byte("new")) // your own data; an error is that of Update
		results, err = tasks.In(tx).Enqueue(spec)
		return err
	}))

	err := runner.Run(ctx) // until ctx ends; what runs then is completed
	t := must(tasks.Get(context.Background(), results[0].ID))
	fmt.Println("task", t.Kind, "is", t.State)
	if err := errors.Join(err, tasks.Close(), engine.Close()); err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}

	return v
}
