package clienttest_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/inprocess"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// real makes a client of a real server, with a wire between them.
func real(t *testing.T) (*client.Client, *inprocess.Wire) {
	t.Helper()
	e := mem.New()
	d, err := data.Open(e, data.Options{Level: holdfast.Memory, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	token := auth.NewNamespaceSecret(message.Default)
	if err := d.Tokens().SetOwn(ctx, message.Default, token); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(d, server.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	w := &inprocess.Wire{RoundTripper: inprocess.Transport(s)}
	c, err := client.New(
		"http://localhost",
		client.Options{Token: token, HTTP: &http.Client{Transport: w}, Logger: quiet},
	)
	if err != nil {
		t.Fatal(err)
	}
	return c, w
}

// TestLostAnswers: what is tried again after its answer was lost is done once, and the caller is told what the first
// try has done; what cannot be tried again is not, and the caller is told that it is not known.
func TestLostAnswers(t *testing.T) {
	c, w := real(t)
	n := c.Namespace(message.Default)
	k, l := n.Tasks(), n.Log("log")
	object := []byte(`{}`)
	claim := func() task.Lease {
		t.Helper()
		leases, err := k.Claim(ctx, task.ClaimOptions{Lease: time.Hour})
		if err != nil || len(leases) != 1 {
			t.Fatalf("%d leases, %v", len(leases), err)
		}
		return leases[0]
	}
	enqueue := func(specs ...task.Spec) []task.Result {
		t.Helper()
		r, err := k.Enqueue(ctx, specs...)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var held, snoozed task.Lease
	var delivered message.Delivery
	sub := n.Subscription("mails")
	deliver := func() message.Delivery {
		t.Helper()
		sub, err := n.Subscribe(ctx, "mails", message.SubscriptionOptions{Query: message.Query{Category: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		list, err := sub.Claim(ctx, 1)
		if err != nil || len(list) != 1 {
			t.Fatalf("%d deliveries, %v", len(list), err)
		}
		return list[0]
	}
	var then []task.Result
	for i, test := range []struct {
		name   string
		before func()
		do     func() (any, error)
		want   string
		err    error // with Unknown
	}{
		{name: "write", do: func() (any, error) {
			return n.Write(ctx, "a-1", message.Message{Type: "T", Data: object}, message.Message{Type: "T", Data: object})
		}, want: "{Position:0 Global:1 Repeated:false}"},
		{name: "write after", do: func() (any, error) {
			return n.WriteAfter(ctx, "a-1", 1, message.Message{Type: "T", Data: object})
		}, want: "{Position:2 Global:3 Repeated:false}"},
		{name: "write with an id", do: func() (any, error) {
			return n.Write(ctx, "a-1", message.Message{ID: "0198f0f0-0000-7000-8000-000000000001", Type: "T", Data: object})
		}, want: "{Position:3 Global:4 Repeated:true}"},
		{name: "write to two streams", do: func() (any, error) {
			var a, b *message.Result
			err := c.Update(ctx, func(tx *client.Tx) error {
				a = n.In(tx).Write("a-2", message.Message{Type: "T", Data: object})
				b = n.In(tx).Write("a-3", message.Message{Type: "T", Data: object})
				return nil
			})
			return []message.Result{*a, *b}, err
		}, want: "[{Position:0 Global:5 Repeated:false} {Position:0 Global:6 Repeated:false}]"},
		{name: "conflict", do: func() (any, error) {
			_, err := n.WriteAfter(ctx, "a-1", 1, message.Message{Type: "T", Data: object})
			var e *message.Conflict
			return errors.As(err, &e) && *e == message.Conflict{Stream: "a-1", Expected: 1, Actual: 3}, nil
		}, want: "true"},
		{name: "append", do: func() (any, error) { return l.Append(ctx, event.Event{}, event.Event{}) },
			want: "{First:1 Last:2 Repeated:false}"},
		{name: "append after", do: func() (any, error) { return l.AppendAfter(ctx, 2, event.Event{}) },
			want: "{First:3 Last:3 Repeated:false}"},
		{name: "enqueue", do: func() (any, error) {
			r, err := k.Enqueue(ctx, task.Spec{Kind: "x", Unique: "u"}, task.Spec{Kind: "y", Queue: "other", Payload: object})
			return fmt.Sprint(r[0].Existing, r[1].Existing, len(r[0].ID)), err
		}, want: "false false 36"},
		{name: "enqueue what is there", do: func() (any, error) {
			r, err := k.Enqueue(ctx, task.Spec{Kind: "x", Unique: "u"}, task.Spec{Kind: "z", Queue: "other"})
			return fmt.Sprint(r[0].Existing, r[1].Existing), err
		}, want: "true false"},
		{name: "enqueue an id that is taken", before: func() { enqueue(task.Spec{ID: "own", Kind: "a", Queue: "other"}) },
			do:  func() (any, error) { return k.Enqueue(ctx, task.Spec{ID: "own", Kind: "b", Queue: "other"}) },
			err: task.ErrExists},
		{name: "complete", before: func() { held = claim() }, do: func() (any, error) { return nil, k.Complete(ctx, held) },
			want: "<nil>"},
		{name: "complete again", do: func() (any, error) {
			return nil, k.Complete(ctx, task.Lease{Task: held.Task, Token: 1})
		}, want: "<nil>"},
		{name: "complete with", before: func() { enqueue(task.Spec{Kind: "x"}); held = claim() }, do: func() (any, error) {
			var err error
			then, err = k.CompleteThen(ctx, held, task.Spec{Kind: "next", Queue: "next"}, task.Spec{Kind: "k",
				Queue: "next"})
			return len(then), err
		}, want: "2"},
		{name: "transaction", before: func() { enqueue(task.Spec{Kind: "x"}); held = claim() }, do: func() (any, error) {
			var r *event.Result
			var first, second []task.Result
			err := c.Update(ctx, func(tx *client.Tx) error {
				first = k.In(tx).Complete(held, task.Spec{Kind: "k", Queue: "third"})
				second = k.In(tx).Enqueue(task.Spec{Kind: "k", Queue: "third", Unique: "t"})
				r = n.Log("other").In(tx).AppendAfter(0, event.Event{})
				return nil
			})
			return fmt.Sprintf("%v %v %+v", first[0].Existing, second[0].Existing, *r), err
		}, want: "false false {First:1 Last:1 Repeated:false}"},
		{name: "fail", before: func() { enqueue(task.Spec{Kind: "x"}); held = claim() },
			do: func() (any, error) {
				return nil, k.Fail(ctx, held, task.Failure{Message: "no paper"}, task.FailOptions{Dead: true})
			}, want: "<nil>"},
		{name: "fail again", do: func() (any, error) {
			return nil, k.Fail(ctx, held, task.Failure{Message: "no ink"}, task.FailOptions{})
		}, err: task.ErrLeaseLost},
		{name: "snooze", before: func() { enqueue(task.Spec{Kind: "x"}); snoozed = claim() },
			do: func() (any, error) { return nil, k.Snooze(ctx, snoozed, time.Hour) }, want: "<nil>"},
		{name: "acknowledge", before: func() { delivered = deliver() },
			do: func() (any, error) { return nil, sub.Ack(ctx, delivered) }, err: message.ErrLeaseLost},
		{name: "retry", do: func() (any, error) { return nil, k.Retry(ctx, held.Task.ID) }, err: inprocess.ErrBroken},
		{name: "delete", do: func() (any, error) { return n.Delete(ctx, "a-1") }, err: inprocess.ErrBroken},
		{name: "delete queue's task", do: func() (any, error) { return nil, k.Delete(ctx, then[0].ID) },
			err: holdfast.ErrNotFound},
		{name: "truncate", before: func() { _, _ = n.Write(ctx, "a-1", message.Message{Type: "T", Data: object}) },
			do: func() (any, error) { return n.Truncate(ctx, "a-1", 100) }, want: "0"},
		{name: "cancel", do: func() (any, error) { return nil, k.Cancel(ctx, then[1].ID) }, want: "<nil>"},
		{name: "position", do: func() (any, error) { return nil, n.SavePosition(ctx, "c", 3) }, want: "<nil>"},
	} {
		if test.before != nil {
			test.before()
		}
		f := inprocess.Unheard
		if i%2 == 1 && test.err == nil { // an answer without a body cannot break off
			f = inprocess.HalfSent
		}
		w.Tries, w.Fault = nil, inprocess.First(1, f)
		got, err := test.do()
		w.Fault = nil
		var e *client.Error
		if test.err != nil {
			if !errors.Is(err, test.err) || !errors.As(err, &e) || !e.Unknown {
				t.Errorf("%s: %v, want %v, and Unknown", test.name, err, test.err)
			}
		} else if text := fmt.Sprintf("%+v", got); err != nil || text != test.want {
			t.Errorf("%s: %s, %v, want %s", test.name, text, err, test.want)
		}
	}
	count := 0
	for _, err := range n.Read(ctx, message.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	if third, err := k.Count(ctx, "third"); err != nil || third[task.Waiting] != 2 {
		t.Errorf("%v, %v", third, err)
	}
	last, err := l.Last(ctx)
	counts, err2 := k.Count(ctx, "other")
	if count != 2 || last != 3 || counts[task.Waiting] != 3 || err != nil || err2 != nil {
		t.Errorf("%d messages, %d events, %v, %v, %v", count, last, counts, err, err2)
	}
}
