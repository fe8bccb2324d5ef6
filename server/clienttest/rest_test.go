package clienttest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

func object(n int) message.Message {
	return message.Message{Type: "T", Data: fmt.Appendf(nil, `{"n":%d}`, n)}
}

// TestSubscription: consumers over the network share a subscription as those of a program do.
func TestSubscription(t *testing.T) {
	c, _ := serve(t)
	n := c.Namespace(message.Default)
	s, err := n.Subscribe(ctx, "mails", message.SubscriptionOptions{Query: message.Query{Category: "order",
		Types: []string{"T"}}, Lease: time.Hour, MaxAttempts: 2})
	check(t, err)
	waiting := make(chan []message.Delivery)
	go func() { // before there is anything
		d, err := s.Claim(ctx, 10)
		if err != nil {
			t.Error(err)
		}
		waiting <- d
	}()
	for i := range 5 {
		check(t, errOf(n.Write(ctx, fmt.Sprintf("order-%d", i), object(i))))
	}
	got := <-waiting
	for len(got) < 5 {
		more, err := s.Claim(ctx, 10)
		check(t, err)
		got = append(got, more...)
	}
	for i, d := range got {
		if d.Stream != fmt.Sprintf("order-%d", i) || d.Attempt != 1 || string(d.Data) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Errorf("delivery %d is %+v", i, d)
		}
	}
	check(t, s.Ack(ctx, got[0], got[1]))
	if err := s.Ack(ctx, got[0]); !errors.Is(err, message.ErrLeaseLost) {
		t.Errorf("acknowledged again: %v", err)
	}
	check(t, s.Extend(ctx, got[2]))
	check(t, s.Park(ctx, "bad", got[3], got[4]))
	parked, err := s.Parked(ctx, 0, 0)
	check(t, err)
	if len(parked) != 2 || parked[0].Reason != "bad" || parked[1].Stream != "order-4" || parked[0].At.IsZero() {
		t.Errorf("parked: %+v", parked)
	}
	if parked, err = s.Parked(ctx, parked[0].Global, 1); len(parked) != 1 || err != nil {
		t.Errorf("parked: %+v, %v", parked, err)
	}
	k, err := s.Replay(ctx, got[3].Global, 12345)
	check(t, err)
	m, err := s.Discard(ctx, got[4].Global)
	check(t, err)
	if k != 1 || m != 1 {
		t.Errorf("%d replayed, %d discarded", k, m)
	}
	again, err := s.Claim(ctx, 10)
	check(t, err)
	if len(again) != 1 || again[0].Global != got[3].Global {
		t.Errorf("replayed: %+v", again)
	}
	check(t, s.Fail(ctx, "not now", again[0]))
	info, err := s.Info(ctx)
	check(t, err)
	if info.Name != "mails" || info.Category != "order" || info.Parked != 0 || info.Pending != 2 {
		t.Errorf("%+v", info)
	}
	list, err := n.Subscriptions(ctx)
	check(t, err)
	if len(list) != 1 || list[0].Name != "mails" {
		t.Errorf("%+v", list)
	}
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := s.Claim(short, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a claim whose context ends: %v", err)
	}
	check(t, n.DeleteSubscription(ctx, "mails"))
	if _, err := n.Subscription("mails").Info(ctx); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
	for _, o := range []message.SubscriptionOptions{{Backoff: func(int) time.Duration { return 0 }}, {Lease: -1},
		{Query: message.Query{Stream: "s"}}} {
		if _, err := n.Subscribe(ctx, "x", o); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// TestNotUTF8: JSON would make one text of these two, and the second event, or task, a repeat of the first.
func TestNotUTF8(t *testing.T) {
	c, _ := serve(t)
	n := c.Namespace(message.Default)
	for _, text := range []string{"\xfe", "\xff"} {
		for _, e := range []event.Event{{ID: text}, {Type: text}, {Origin: text}} {
			if r, err := n.Log("l").Append(ctx, e); !errors.Is(err, event.ErrBadEvent) {
				t.Errorf("%+v: %+v, %v", e, r, err)
			}
		}
		for _, s := range []task.Spec{{Kind: "k", ID: text}, {Kind: "k", Queue: text}, {Kind: text}, {Kind: "k", Key: text},
			{Kind: "k", Sequence: text}, {Kind: "k", Unique: text},
			{Kind: "k", After: []string{text}}} {
			if r, err := n.Tasks().Enqueue(ctx, s); !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("%+v: %+v, %v", s, r, err)
			}
			if r, err := n.Tasks().CompleteThen(ctx, task.Lease{}, s); !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("%+v: %+v, %v", s, r, err)
			}
		}
		if r, err := n.Write(ctx, text, object(1)); !errors.Is(err, message.ErrBadName) {
			t.Errorf("%+v, %v", r, err)
		}
		m := message.Message{Type: text, Data: object(1).Data}
		if r, err := n.Write(ctx, "s", m); !errors.Is(err, message.ErrBadMessage) {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestAdministration: namespaces and tokens are made and removed, and let in whom they are for.
func TestAdministration(t *testing.T) {
	c, _ := serve(t)
	made, err := c.CreateNamespace(ctx, api.NewNamespace{ID: "orders", Description: "of orders"})
	check(t, err)
	if _, err := c.CreateNamespace(ctx, api.NewNamespace{ID: "orders"}); !errors.Is(err, message.ErrNamespaceExists) {
		t.Errorf("made again: %v", err)
	}
	server, err := c.Server(ctx)
	check(t, err)
	if server.Engine != "mem" || server.Level != "memory" || !server.Ready {
		t.Errorf("%+v", server)
	}
	with := func(token string) *client.Client { return withToken(t, c, token) }
	own := with(made.Token)
	check(t, errOf(own.Namespace("orders").Write(ctx, "s-1", object(1))))
	if _, err := own.Namespace(message.Default).Write(ctx, "s-1", object(1)); !errors.Is(err, client.ErrForbidden) {
		t.Errorf("in another namespace: %v", err)
	}
	if _, err := own.Namespaces(ctx); !errors.Is(err, client.ErrForbidden) {
		t.Errorf("all namespaces: %v", err)
	}
	end := time.Now().Add(time.Hour)
	token, err := own.CreateToken(ctx, api.NewToken{Namespace: "orders", Role: "read", Description: "for a page",
		Expires: &end})
	check(t, err)
	reader := with(token.Secret)
	me, err := reader.Token(ctx)
	check(t, err)
	if me.ID != token.ID || me.Role != "read" || me.Secret != "" || me.Namespace != "orders" {
		t.Errorf("%+v", me)
	}
	i, err := reader.Namespace("orders").Info(ctx)
	check(t, err)
	if i.Messages != 1 || i.Last != 1 || i.Description != "of orders" || i.Token != "" {
		t.Errorf("%+v", i)
	}
	if _, err := reader.Namespace("orders").Write(ctx, "s-1", object(1)); !errors.Is(err, client.ErrForbidden) {
		t.Errorf("a reader writes: %v", err)
	}
	list, err := c.Tokens(ctx, "orders")
	check(t, err)
	if !slices.ContainsFunc(list, func(k api.Token) bool { return k.ID == token.ID && k.Secret == "" }) {
		t.Errorf("%+v", list)
	}
	check(t, c.RevokeToken(ctx, token.ID))
	_, err = reader.Token(ctx)
	if !errors.Is(err, client.ErrUnauthorized) || strings.Contains(err.Error(), token.Secret) {
		t.Errorf("revoked: %v", err)
	}
	all, err := c.Namespaces(ctx)
	check(t, err)
	if len(all) != 2 {
		t.Errorf("%+v", all)
	}
	if removed, err := c.DeleteNamespace(ctx, "orders"); removed != 1 || err != nil {
		t.Errorf("%d, %v", removed, err)
	}
	if _, err := c.Namespace("orders").Write(ctx, "s-1", object(1)); !errors.Is(err, message.ErrNoNamespace) {
		t.Errorf("deleted: %v", err)
	}
	for _, err := range c.Namespace("orders").Follow(ctx, message.Query{}) {
		if !errors.Is(err, message.ErrNoNamespace) {
			t.Errorf("deleted: %v", err)
		}
	}
}

// TestTransfer: what is exported is imported with its positions, compressed or not; a backup is an archive.
func TestTransfer(t *testing.T) {
	from, _ := serve(t)
	n := from.Namespace(message.Default)
	for i := range 1200 {
		if i%100 == 0 {
			batch := make([]message.Message, 100)
			for k := range batch {
				batch[k] = object(i + k)
			}
			check(t, errOf(n.Write(ctx, fmt.Sprintf("a-%d", i), batch...)))
		}
	}
	for _, packed := range []bool{false, true} {
		var out bytes.Buffer
		exported, err := n.Export(ctx, &out, message.ExportOptions{Gzip: packed})
		check(t, err)
		if want := map[bool]int64{false: 1200, true: -1}[packed]; exported != want {
			t.Errorf("%d exported", exported)
		}
		to, _ := serve(t)
		there := to.Namespace(message.Default)
		data := out.Bytes()
		done, err := there.Import(ctx, bytes.NewReader(data))
		check(t, err)
		again, err := there.Import(ctx, bytes.NewReader(data))
		check(t, err)
		if done != (message.ImportResult{Imported: 1200, Last: 1200}) ||
			again != (message.ImportResult{Known: 1200, Last: 1200}) {
			t.Errorf("%+v, then %+v", done, again)
		}
		at := int64(1)
		for m, err := range there.Read(ctx, message.Query{}) {
			check(t, err)
			if m.Global != at || string(m.Data) != fmt.Sprintf(`{"n":%d}`, at-1) {
				t.Fatalf("%+v at %d", m, at)
			}
			at++
		}
		if at != 1201 {
			t.Errorf("%d are there", at-1)
		}
		streams, err := there.Streams(ctx, "", "", 0)
		check(t, err)
		if len(streams) != 12 {
			t.Errorf("%d streams", len(streams))
		}
	}
	if _, err := n.Import(ctx, strings.NewReader("nonsense\n")); !errors.Is(err, message.ErrBadMessage) ||
		!strings.Contains(err.Error(), "line 1") {
		t.Errorf("nonsense is imported: %v", err)
	}
	var backup bytes.Buffer
	check(t, from.Backup(ctx, &backup))
	files := 0
	for r := tar.NewReader(&backup); ; files++ {
		if _, err := r.Next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if files == 0 {
		t.Error("the backup is empty")
	}
}

// TestLevels: a write names its level, by the client or by its context, and the engine's refusal comes back.
func TestLevels(t *testing.T) {
	c, _ := serve(t) // the engine gives Memory, and nothing else
	n := c.Namespace(message.Default)
	check(t, errOf(n.Write(holdfast.WithLevel(ctx, holdfast.Memory), "s", object(1))))
	power := holdfast.WithLevel(ctx, holdfast.Power)
	if _, err := n.Write(power, "s", object(1)); !errors.Is(err, holdfast.ErrLevel) {
		t.Errorf("messages at Power: %v", err)
	}
	if _, err := n.Tasks().Enqueue(power, task.Spec{Kind: "x"}); !errors.Is(err, holdfast.ErrLevel) {
		t.Errorf("tasks at Power: %v", err)
	}
}
