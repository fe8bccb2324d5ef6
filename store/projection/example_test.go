package projection_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/projection"
)

// How many events of each type a log has had. A real log is in an engine on disk, and a goroutine has Run follow it.
func Example() {
	ctx := context.Background()
	db := kv.On(mem.New())
	log, err := event.Open(db, event.Options{Name: "orders", Level: holdfast.Memory})
	if err != nil {
		panic(err)
	}
	defer log.Close()

	totals, err := projection.New(projection.Events(log), projection.Options{Name: "totals"},
		func(view *kv.Bucket, e event.Event) error {
			n, err := projection.Get[int](view, e.Type)
			if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
				return err
			}
			return projection.Set(view, e.Type, n+1)
		})
	if err != nil {
		panic(err)
	}
	for range 2 {
		if _, err := log.Append(ctx, event.Event{Type: "placed"}, event.Event{Type: "paid"}); err != nil {
			panic(err)
		}
		if err := totals.CatchUp(ctx); err != nil {
			panic(err)
		}
	}
	err = db.View(ctx, func(tx *kv.Tx) error {
		for entry, err := range projection.All[int](totals.View(tx), "") {
			fmt.Println(entry.Key, entry.Value, err)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	progress, err := totals.Progress(ctx)
	fmt.Printf("%+v %v\n", progress, err)
	// Output:
	// paid 2 <nil>
	// placed 2 <nil>
	// {Next:5 End:5 Applied:0} <nil>
}
