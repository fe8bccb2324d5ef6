package postgres

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// counter counts what a program sends to its server: each write waits for an answer, or is one that nobody waits for.
type counter struct{ sent atomic.Int64 }

func (c *counter) tune(config *pgx.ConnConfig) {
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return counted2{conn, c}, err
	}
}

type counted2 struct {
	net.Conn
	c *counter
}

func (c counted2) Write(b []byte) (int, error) {
	c.c.sent.Add(1)
	if os.Getenv("TRIPS") != "" {
		fmt.Printf("%.200q\n", b)
	}
	return c.Conn.Write(b)
}

func TestRoundTrips(t *testing.T) {
	needServer(t)
	var c counter
	opened, err := OpenWith(at(os.Getenv(variable), t.Name()), holdfast.Options{}, c.tune)
	if err != nil {
		t.Fatal(err)
	}
	e := opened.(*engine)
	defer e.Close()
	e.stopBeats()
	e.window.Stop()
	ctx := context.Background()
	db := kv.On(e)
	messages, err := message.Open(db, message.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer messages.Close()
	if _, err := messages.Create(ctx, message.NamespaceOptions{ID: "shop"}); err != nil {
		t.Fatal(err)
	}
	shop, err := messages.Namespace(ctx, "shop")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := task.Open(db, task.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tasks.Close()
	events, err := event.Open(db, event.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()

	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2000 {
		put(t, e, holdfast.Memory, fmt.Sprintf("zz%05d", i), "value")
		if i == 100 && os.Getenv("TRIPS") != "" {
			break
		}
	}
	var lease task.Lease
	n := 0
	for _, o := range []struct {
		name string
		f    func()
	}{
		{"get", func() { _, err := e.Get(nil, fmt.Appendf(nil, "zz%05d", n)); must(err) }},
		{"get the same", func() { _, err := e.Get(nil, []byte("zz00000")); must(err) }},
		{"get absent", func() {
			_, err := e.Get(nil, []byte("zzz"))
			if err != holdfast.ErrNotFound {
				t.Fatal(err)
			}
		}},
		{"scan of 10", func() {
			it := e.Scan(holdfast.Range{Lo: []byte("zz00000"), Hi: []byte("zz00010")})
			for it.Next() {
			}
			must(it.Close())
		}},
		{"scan of 2000", func() {
			it := e.Scan(holdfast.Range{Lo: []byte("zz")})
			for it.Next() {
			}
			must(it.Close())
		}},
		{"commit", func() { put(t, e, holdfast.Power, "k", fmt.Sprint(n)) }},
		{"view", func() {
			must(db.View(ctx, func(tx *kv.Tx) error { _, err := tx.Bucket("b").Get([]byte("k")); _ = err; return nil }))
		}},
		{"update", func() {
			must(db.Update(ctx, func(tx *kv.Tx) error {
				b := tx.Bucket("b")
				b.Get([]byte("k"))
				b.Put([]byte("k"), fmt.Append(nil, n))
				return b.Put([]byte("l"), fmt.Append(nil, n))
			}))
		}},
		{"event append", func() { _, err := events.Append(ctx, event.Event{Type: "t", Data: []byte("data")}); must(err) }},
		{"event append with id", func() {
			_, err := events.Append(ctx, event.Event{ID: fmt.Sprint("id", n), Type: "t", Data: []byte("data")})
			must(err)
		}},
		{"message new stream", func() {
			_, err := shop.Write(ctx, fmt.Sprintf("order-%d", n), message.Message{Type: "t", Data: []byte("{}")})
			must(err)
		}},
		{"message same stream", func() {
			_, err := shop.Write(ctx, "order-x", message.Message{Type: "t", Data: []byte("{}")})
			must(err)
		}},
		{"message with id", func() {
			_, err := shop.Write(ctx, "order-x", message.Message{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), Type: "t", Data: []byte("{}")})
			must(err)
		}},
		{"enqueue", func() { _, err := tasks.Enqueue(ctx, task.Spec{Kind: "mail", Payload: []byte("x")}); must(err) }},
		{"enqueue with id", func() {
			_, err := tasks.Enqueue(ctx, task.Spec{ID: fmt.Sprint("mail", n), Kind: "mail", Payload: []byte("x")})
			must(err)
		}},
		{"cycle: enqueue", func() { _, err := tasks.Enqueue(ctx, task.Spec{Kind: "mail", Payload: []byte("x")}); must(err) }},
		{"cycle: claim", func() {}},
		{"cycle: complete", func() {}},
		{"three", func() {
			must(db.Update(ctx, func(tx *kv.Tx) error {
				_, err := shop.In(tx).Write("order-y", message.Message{Type: "t", Data: []byte("{}")})
				must(err)
				_, err = tasks.In(tx).Enqueue(task.Spec{Kind: "mail", Payload: []byte("x")})
				must(err)
				return tx.Bucket("b").Put(fmt.Append(nil, "key", n), fmt.Append(nil, n))
			}))
		}},
	} {
		var counts []int64
		const times = 20
		for range times {
			if o.name == "cycle: claim" {
				o.f = func() {
					l, err := tasks.Claim(ctx, task.ClaimOptions{})
					must(err)
					lease = l[0]
				}
			}
			if o.name == "cycle: complete" {
				l, err := tasks.Claim(ctx, task.ClaimOptions{})
				must(err)
				lease = l[0]
				o.f = func() { must(tasks.Complete(ctx, lease)) }
			}
			if os.Getenv("TRIPS") != "" {
				fmt.Println("---", o.name)
			}
			from := c.sent.Load()
			o.f()
			counts = append(counts, c.sent.Load()-from)
			n++
		}
		t.Log(o.name, counts)
	}
}
