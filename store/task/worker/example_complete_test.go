package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// Import reads a file in steps.
type Import struct {
	Table string
	Rows  int
}

func (Import) Kind() string { return "import" }

// Check looks at what was imported.
type Check struct{ Table string }

func (Check) Kind() string { return "check" }

// A task shows how far it is, goes on from there in its next attempt, and ends in one commit with its result and the
// task that follows.
func ExampleExecution_CompleteIn() {
	eng := mem.New()
	defer eng.Close()
	db, err := kv.Open(eng, kv.Options{Level: holdfast.Memory}) // Power by default
	if err != nil {
		log.Fatal(err)
	}
	tasks, err := task.Open(db, task.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer tasks.Close()
	var workers worker.Workers
	worker.Register(&workers, func(ctx context.Context, t *worker.Task[Import]) error {
		row := 0
		fmt.Sscan(string(t.Output), &row) // none at first
		fmt.Println("attempt", t.Attempt, "begins with row", row)
		for ; row < t.Args.Rows; row++ {
			if row == 2 && t.Attempt == 1 {
				return worker.RetryIn(time.Nanosecond, errors.New("row 2 cannot be read"))
			}
			if err := t.SetOutput(ctx, row+1); err != nil {
				return err
			}
		}
		next, err := worker.NewSpec(Check{Table: t.Args.Table}, task.Spec{Queue: "checks"})
		if err != nil {
			return err
		}
		return db.Update(ctx, func(tx *kv.Tx) error {
			if err := tx.Bucket("imported").Put([]byte(t.Args.Table), fmt.Append(nil, row)); err != nil {
				return err
			}
			_, err := t.CompleteIn(tx, next)
			return err
		})
	})
	runner, err := worker.New(tasks, &workers, worker.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := worker.Enqueue(ctx, tasks, Import{Table: "t", Rows: 4}, task.Spec{}); err != nil {
		log.Fatal(err)
	}
	for n := 0; n < 2; {
		ran, err := runner.RunDue(ctx)
		if err != nil {
			log.Fatal(err)
		}
		n += ran
	}
	err = db.View(ctx, func(tx *kv.Tx) error {
		rows, err := tx.Bucket("imported").Get([]byte("t"))
		fmt.Println("rows imported:", string(rows))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	next, _, err := tasks.List(ctx, task.Filter{Queue: "checks"})
	fmt.Println("next:", next[0].Kind, next[0].State, err)
	// Output:
	// attempt 1 begins with row 0
	// attempt 2 begins with row 2
	// rows imported: 4
	// next: check waiting <nil>
}
