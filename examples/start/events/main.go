// Events keeps an event log in the directory events-data. Run it twice: the second run adds nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

func main() {
	ctx := context.Background()
	engine := must(logtree.Open("events-data", holdfast.Options{}))
	events := must(event.Open(kv.On(engine), event.Options{})) // at Power: what was answered survives a power cut

	// An id makes it safe to append again, after a crash or an answer that was lost.
	placed := must(events.Append(ctx, event.Event{Type: "OrderPlaced", Data: []byte("3 apples"), ID: "order-17"}))
	fmt.Printf("placed at position %d, again: %t\n", placed.First, placed.Repeated)

	// A decision that was made on the first event: it is refused if there is another one by now.
	_, err := events.AppendAfter(ctx, placed.First, event.Event{Type: "OrderPaid", Data: []byte("4.50"), ID: "pay-17"})
	if err != nil && !errors.Is(err, event.ErrConflict) {
		log.Fatal(err)
	}

	// A reader goes on from the offset that it has saved: the position of the last event that it has handled.
	done, err := events.LoadOffset(ctx, "printer")
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		log.Fatal(err)
	}

	for e, err := range events.Events(ctx, done+1, 0) { // with Follow it would wait for what comes, without polling
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("read", e.Position, e.Type, string(e.Data))
		if err := events.SaveOffset(ctx, "printer", e.Position); err != nil {
			log.Fatal(err)
		}
	}

	if err := errors.Join(events.Close(), engine.Close()); err != nil { // stores first, then their engine
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}

	return v
}
