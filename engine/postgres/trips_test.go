package postgres

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// counter counts the messages that a program sends to its server and waits for.
type counter struct{ sent atomic.Int64 }

func (c *counter) tune(config *pgx.ConnConfig) {
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return countedConn{conn, c}, err
	}
}

type countedConn struct {
	net.Conn
	c *counter
}

func (c countedConn) Write(b []byte) (int, error) {
	if !bytes.HasPrefix(b, []byte("Q")) || !bytes.HasSuffix(b, []byte("COMMIT\x00")) { // the end of a state that was read
		c.c.sent.Add(1)
	}
	return c.Conn.Write(b)
}

// quiet makes an engine send nothing by itself, which would be counted. It keeps its space for the whole test, also on
// a machine that is too busy for what the test does to come in time.
func quiet(e *engine) {
	e.stopBeats()
	e.window.Stop()
	e.lease.extend(time.Now().Add(time.Hour))
}

// What an operation costs in round trips does not grow.
func TestRoundTrips(t *testing.T) {
	needServer(t)
	var c counter
	opened, err := OpenWith(at(os.Getenv(variable), spaceOf(t)), holdfast.Options{}, c.tune)
	if err != nil {
		t.Fatal(err)
	}
	e := opened.(*engine)
	defer e.Close()
	quiet(e)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.clear()) // of another run
	ctx := context.Background()
	db := kv.On(e)
	messages, err := message.Open(db, message.Options{})
	must(err)
	defer messages.Close()
	_, err = messages.Create(ctx, message.NamespaceOptions{ID: "shop"})
	must(err)
	shop, err := messages.Namespace(ctx, "shop")
	must(err)
	tasks, err := task.Open(db, task.Options{})
	must(err)
	defer func() { _ = tasks.Close() }()
	events, err := event.Open(db, event.Options{})
	must(err)
	defer events.Close()
	var all holdfast.Batch
	for i := range 2000 {
		all.Set(fmt.Appendf(nil, "zz%05d", i), []byte("value"))
	}
	must(holdfast.Commit(e, &all, holdfast.Memory))

	n := 0 // of this operation
	scan := func(lo, hi string) func() error {
		return func() error {
			it := e.Scan(holdfast.Range{Lo: []byte(lo), Hi: []byte(hi)})
			for it.Next() {
			}
			return it.Close()
		}
	}
	write := func(stream string, id string) error {
		_, err := shop.Write(ctx, stream, message.Message{ID: id, Type: "placed", Data: []byte("{}")})
		return err
	}
	append1 := func(id string) error {
		_, err := events.Append(ctx, event.Event{ID: id, Type: "placed", Data: []byte("data")})
		return err
	}
	grown := func() string { return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) }
	for ; n < 50; n++ { // by then it is known that they grow
		must(append1(grown()))
		must(write("order-x", grown()))
	}
	enqueue := func(id string) error {
		_, err := tasks.Enqueue(ctx, task.Spec{ID: id, Kind: "mail", Payload: []byte("data")})
		return err
	}
	claim := func() error {
		_, err := tasks.Claim(ctx, task.ClaimOptions{})
		return err
	}
	three := func(tx *kv.Tx) error {
		for _, key := range []string{"k", "l", "absent"} {
			if _, err := tx.Bucket("b").Get([]byte(key)); err != nil && key != "absent" {
				return err
			}
		}
		return nil
	}
	var lease []task.Lease
	for _, o := range []struct {
		name   string
		want   int64 // at most, of one that follows others of the same kind
		before func() error
		f      func() error
	}{
		{"Get, read before", 0, nil, func() error {
			_, err := e.Get(nil, []byte("zz00000"))
			return err
		}},
		{"Get of an absent key, read before", 0, nil, func() error {
			if _, err := e.Get(nil, []byte("zzz")); err != holdfast.ErrNotFound {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		}},
		{"Get, not read before", 1, func() error { e.cache.drop(); return nil }, func() error {
			_, err := e.Get(nil, []byte("zz00000"))
			return err
		}},
		{"scan of 10 keys", 1, nil, scan("zz00000", "zz00010")},
		{"scan of 2,000 keys", 3, nil, scan("zz", "")},
		{"commit", 1, nil, func() error { put(t, e, holdfast.Power, "k", fmt.Sprint(n)); return nil }},
		{"View that reads one key", 1, nil, func() error {
			return db.View(ctx, func(tx *kv.Tx) error {
				_, _ = tx.Bucket("b").Get([]byte("k"))
				return nil
			})
		}},
		{"Update that reads one key and writes two", 1, nil, func() error {
			return db.Update(ctx, func(tx *kv.Tx) error {
				b := tx.Bucket("b")
				_, _ = b.Get([]byte("k"))
				must(b.Put([]byte("k"), fmt.Append(nil, n)))
				return b.Put([]byte("l"), fmt.Append(nil, n))
			})
		}},
		{"Update that reads three keys, which a View has read before", 1, func() error {
			e.cache.drop()
			put(t, e, holdfast.Memory, "k", "v") // from here on it takes what is read
			return db.View(ctx, three)
		}, func() error {
			return db.Update(ctx, func(tx *kv.Tx) error {
				must(three(tx))
				return tx.Bucket("b").Put([]byte("k"), fmt.Append(nil, n))
			})
		}},
		{"event: append", 1, nil, func() error { return append1("") }},
		{"event: append with an id that grows", 1, nil, func() error { return append1(grown()) }},
		{"event: append with another id", 2, nil, func() error { return append1(fmt.Sprint("!", rand.Int())) }},
		{"message: write to a new stream", 3, nil, func() error { return write(fmt.Sprintf("order-%d", n), "") }},
		{"message: write to a stream", 1, nil, func() error { return write("order-x", "") }},
		{"message: write to a stream, with an id that grows", 1, nil, func() error { return write("order-x", grown()) }},
		{"message: write to a stream, with another id", 2, nil, func() error {
			return write("order-x", fmt.Sprintf("00000000-0000-4000-8000-%012d", rand.Int64N(1e12)))
		}},
		{"task: enqueue", 1, nil, func() error { return enqueue("") }},
		{"task: enqueue with an id", 2, nil, func() error { return enqueue(fmt.Sprint("mail", n)) }},
		{"task: claim", 1, nil, claim},
		{"task: complete", 1, func() (err error) {
			lease, err = tasks.Claim(ctx, task.ClaimOptions{})
			return err
		}, func() error { return tasks.Complete(ctx, lease...) }},
		{"event: append of 100, with ids", 2, nil, func() error {
			var list []event.Event
			for i := range 100 {
				list = append(list, event.Event{ID: fmt.Sprint("!", i, ".", rand.Int()), Type: "placed", Data: []byte("data")})
			}
			_, err := events.Append(ctx, list...)
			return err
		}},
		{"message: write of 100, with ids", 2, nil, func() error {
			var list []message.Message
			for i := range 100 {
				id := fmt.Sprintf("00000000-0000-4000-8%03d-%012d", i, rand.IntN(1e12))
				list = append(list, message.Message{ID: id, Type: "placed", Data: []byte("{}")})
			}
			_, err := shop.Write(ctx, "order-x", list...)
			return err
		}},
		{"task: enqueue of 100, with ids", 2, nil, func() error {
			var list []task.Spec
			for i := range 100 {
				list = append(list, task.Spec{ID: fmt.Sprint("task", n, ".", i), Kind: "mail", Payload: []byte("data")})
			}
			_, err := tasks.Enqueue(ctx, list...)
			return err
		}},
		{"task: claim of 100, by a store that was opened anew", 7, func() error {
			must(tasks.Close())
			e.cache.drop()
			put(t, e, holdfast.Memory, "k", "v") // from here on it takes what is read
			tasks, err = task.Open(db, task.Options{})
			return err
		}, func() (err error) {
			lease, err = tasks.Claim(ctx, task.ClaimOptions{N: 100})
			return err
		}},
		{"task: complete of 100, not read before", 1, func() (err error) {
			for range 100 {
				must(enqueue(""))
			}
			lease, err = tasks.Claim(ctx, task.ClaimOptions{N: 100})
			e.cache.drop()
			e.w.guess.careful = 1 // see TestGuesses
			return err
		}, func() error { return tasks.Complete(ctx, lease...) }},
		{"transaction of an event, a message, a task and a key", 1, nil, func() error {
			return db.Update(ctx, func(tx *kv.Tx) error {
				_, err := events.In(tx).Append(event.Event{Type: "placed", Data: []byte("data")})
				must(err)
				_, err = shop.In(tx).Write("order-x", message.Message{Type: "placed", Data: []byte("{}")})
				must(err)
				_, err = tasks.In(tx).Enqueue(task.Spec{Kind: "mail", Payload: []byte("data")})
				must(err)
				return tx.Bucket("b").Put(fmt.Append(nil, "key", n), fmt.Append(nil, n))
			})
		}},
	} {
		var trips []int64
		for range 10 {
			n++
			if o.before != nil {
				must(o.before())
			}
			idle(t, e) // and its connection is the next one's
			from := c.sent.Load()
			must(o.f())
			trips = append(trips, c.sent.Load()-from)
		}

		// At first statements are prepared. Of the others it is the middle one, because a task store that was just opened
		// may look in the background what there is to do.
		last := slices.Sorted(slices.Values(trips[5:]))
		if last[len(last)/2] > o.want {
			t.Errorf("%s: %d round trips, want %d at most", o.name, trips, o.want)
		}
	}
}
