package event_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// exampleLog is a log in memory. A real one is opened in an engine on disk, at the
// default level: Power.
func exampleLog() *event.Store {
	log, err := event.Open(kv.On(mem.New()), event.Options{Name: "orders", Level: holdfast.Memory})
	if err != nil {
		panic(err)
	}
	return log
}

func Example() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()

	at, err := log.Append(ctx,
		event.Event{Type: "placed", Data: []byte("3 apples")},
		event.Event{Type: "paid", Data: []byte("4.50")},
	)
	if err != nil {
		panic(err)
	}
	fmt.Printf("safe at positions %d to %d\n", at.First, at.Last)

	for e, err := range log.Events(ctx, 1, 0) {
		if err != nil {
			panic(err)
		}
		fmt.Printf("%d %s: %s\n", e.Position, e.Type, e.Data)
	}
	// Output:
	// safe at positions 1 to 2
	// 1 placed: 3 apples
	// 2 paid: 4.50
}

func ExampleStore_Follow() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()
	if _, err := log.Append(ctx, event.Event{Type: "old"}); err != nil {
		panic(err)
	}

	following := make(chan bool)
	go func() {
		_, _ = log.Append(ctx, event.Event{Type: "new"})
		<-following
		_, _ = log.Append(ctx, event.Event{Type: "last"})
	}()
	for e, err := range log.Follow(ctx, 1) {
		if err != nil {
			panic(err)
		}
		fmt.Println(e.Position, e.Type)
		if e.Type == "new" {
			close(following)
		}
		if e.Type == "last" {
			break
		}
	}
	// Output:
	// 1 old
	// 2 new
	// 3 last
}

// Of two who decide on the same state, one has to look again.
func ExampleStore_AppendAfter() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()

	seen := log.Last()
	_, err := log.AppendAfter(ctx, seen, event.Event{Type: "taken by me"})
	fmt.Println("first:", err)
	_, err = log.AppendAfter(ctx, seen, event.Event{Type: "taken by you"})
	var conflict *event.Conflict
	if errors.As(err, &conflict) {
		fmt.Printf("second: expected %d, found %d\n", conflict.Expected, conflict.Actual)
	}
	// Output:
	// first: <nil>
	// second: expected 0, found 1
}

// Many who decide on one state: each reads what is new, decides, and appends if nothing has come in
// between; otherwise it does so again. A conflict waits until what was in the way can be read, so
// this does not spin.
func ExampleStore_AppendAfter_again() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()
	if _, err := log.Append(ctx, event.Event{Type: "10 seats"}); err != nil {
		panic(err)
	}

	book := func(who int) error {
		seats, last := 0, uint64(0)
		for {
			for e, err := range log.Events(ctx, last+1, 0) {
				if err != nil {
					return err
				}
				switch last = e.Position; e.Type {
				case "10 seats":
					seats += 10
				case "booked":
					seats--
				}
			}
			if seats == 0 {
				return errors.New("full")
			}
			_, err := log.AppendAfter(ctx, last, event.Event{Type: "booked", Data: fmt.Append(nil, who)})
			if !errors.Is(err, event.ErrConflict) {
				return err
			}
		}
	}
	var booked, refused atomic.Int32
	var customers sync.WaitGroup
	for who := range 12 {
		customers.Go(func() {
			if book(who) == nil {
				booked.Add(1)
			} else {
				refused.Add(1)
			}
		})
	}
	customers.Wait()
	fmt.Println(booked.Load(), "booked,", refused.Load(), "refused")
	// Output: 10 booked, 2 refused
}

// A log that has lost events, by the repair of a damaged engine perhaps, is read as far as the reader can do without
// them: what is missing is an error, again and again, and nothing is passed over but by the reader's own decision.
func ExampleGap() {
	ctx := context.Background()
	engine := mem.New()
	log, err := event.Open(kv.On(engine), event.Options{Name: "orders", Level: holdfast.Memory})
	if err != nil {
		panic(err)
	}
	defer log.Close()
	for range 9 {
		if _, err := log.Append(ctx, event.Event{Type: "order"}); err != nil {
			panic(err)
		}
	}
	var b holdfast.Batch
	b.DeleteRange([]byte("e\x06orderse\x00\x00\x00\x00\x00\x00\x00\x04"),
		[]byte("e\x06orderse\x00\x00\x00\x00\x00\x00\x00\x07"))
	if err := holdfast.Commit(engine, &b, holdfast.Memory); err != nil {
		panic(err)
	}

	for from := uint64(1); from <= log.Last(); {
		for e, err := range log.Events(ctx, from, 0) {
			var gap *event.Gap
			switch {
			case errors.As(err, &gap):
				fmt.Printf("lost: %d to %d\n", gap.Position, gap.Next-1)
				from = gap.Next
			case err != nil:
				panic(err)
			default:
				from = e.Position + 1
			}
		}
	}
	fmt.Println("read up to", log.Last())
	// Output:
	// lost: 4 to 6
	// read up to 9
}

// An append that may or may not have happened is simply done again.
func ExampleStore_Append_id() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()

	for range 2 {
		at, err := log.Append(ctx, event.Event{ID: "payment-17", Type: "paid"})
		fmt.Println(at.First, at.Repeated, err)
	}
	fmt.Println("events:", log.Last())
	// Output:
	// 1 false <nil>
	// 1 true <nil>
	// events: 1
}

// One goroutine keeps many appends under way, and all of them share few syncs.
func ExampleStore_Submit() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()

	var last event.Pending
	for i := range 1000 {
		var err error
		if last, err = log.Submit(ctx, event.Event{Type: "reading", Data: fmt.Append(nil, i)}); err != nil {
			panic(err)
		}
	}
	at, err := last.Wait() // for this one and all before it
	fmt.Println(at.Last, err)
	// Output: 1000 <nil>
}

// A subscription goes on where it was, after a restart too.
func ExampleStore_SaveOffset() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()
	if _, err := log.Append(ctx, event.Event{Type: "a"}, event.Event{Type: "b"}, event.Event{Type: "c"}); err != nil {
		panic(err)
	}

	for range 3 {
		done, err := log.LoadOffset(ctx, "mailer")
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			panic(err)
		}
		events, err := log.Read(ctx, done+1, 2)
		if err != nil {
			panic(err)
		}
		for _, e := range events {
			fmt.Print(e.Type, " ")
			if err := log.SaveOffset(ctx, "mailer", e.Position); err != nil {
				panic(err)
			}
		}
		fmt.Println("end")
	}
	// Output:
	// a b end
	// c end
	// end
}

// A projection is kept as a snapshot, and the events that it covers are let go.
func ExampleStore_TruncateBefore() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()
	if _, err := log.Append(ctx, event.Event{Data: []byte("1")}, event.Event{Data: []byte("2")},
		event.Event{Data: []byte("3")}); err != nil {
		panic(err)
	}

	if err := log.SaveSnapshot(ctx, "sum", 2, []byte("3")); err != nil {
		panic(err)
	}
	removed, err := log.TruncateBefore(ctx, 3)
	fmt.Println("removed", removed, err)
	_, err = log.Read(ctx, 1, 0)
	fmt.Println(err)

	pos, state, err := log.LoadSnapshot(ctx, "sum")
	fmt.Printf("%s up to %d, %v\n", state, pos, err)
	for e := range log.Events(ctx, pos+1, 0) {
		fmt.Printf("then %s\n", e.Data)
	}
	// Output:
	// removed 2 <nil>
	// mem event read: truncated: position 1 is gone, the log begins at 3; begin at the first position, or at a snapshot
	// 3 up to 2, <nil>
	// then 3
}

// A log is kept short by a call now and then. It can be told to wait for those who read it, and tells of those who come
// too late.
func ExampleStore_Retain() {
	ctx := context.Background()
	log := exampleLog()
	defer log.Close()
	for range 10 {
		if _, err := log.Append(ctx, event.Event{Type: "reading"}); err != nil {
			panic(err)
		}
	}
	if err := log.SaveOffset(ctx, "mailer", 4); err != nil {
		panic(err)
	}

	done, err := log.Retain(ctx, event.Retention{MaxEvents: 3, KeepUnread: true})
	fmt.Println("removed", done.Removed, err)
	done, err = log.Retain(ctx, event.Retention{MaxEvents: 3})
	fmt.Println("removed", done.Removed, err)
	for _, s := range done.Subscriptions {
		fmt.Printf("%s was at %d and has missed %d of the %d after it\n", s.Name, s.Position, s.Missed, s.Lag)
	}
	// Output:
	// removed 4 <nil>
	// removed 3 <nil>
	// mailer was at 4 and has missed 3 of the 6 after it
}
