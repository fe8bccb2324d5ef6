package clienttest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

const transactions = "/v1/transactions"

func msg(typ string) message.Message { return message.Message{Type: typ, Data: []byte(`{}`)} }

// state is what the default namespace, and one that is called other, have.
func state(t *testing.T, c *client.Client) (s string) {
	t.Helper()
	for _, id := range []string{message.Default, "other"} {
		n := c.Namespace(id)
		for m, err := range n.Read(ctx, message.Query{}) {
			check(t, err)
			s += fmt.Sprintln(id, m.Stream, m.Position, m.Global, m.Type)
		}
		for e, err := range n.Log("log").Events(ctx, 0, 0) {
			check(t, err)
			s += fmt.Sprintln(id, "log", e.Position, e.Type)
		}
		list, _, err := n.Tasks().List(ctx, task.Filter{})
		check(t, err)
		for _, k := range list {
			s += fmt.Sprintln(id, k.ID, k.Kind, k.State)
		}
	}
	return s
}

func serveTwo(t *testing.T) (c *client.Client, n, other *client.Namespace) {
	t.Helper()
	c, _ = serve(t)
	_, err := c.CreateNamespace(ctx, api.NewNamespace{ID: "other"})
	check(t, err)
	return c, c.Namespace(message.Default), c.Namespace("other")
}

// TestTransaction: messages of several streams and namespaces, events and tasks are one commit, and each operation sees
// those before it; a task is completed in it.
func TestTransaction(t *testing.T) {
	c, n, other := serveTwo(t)
	_, err := n.Tasks().Enqueue(ctx, task.Spec{ID: "job", Kind: "k"})
	check(t, err)
	leases, err := n.Tasks().Claim(ctx, task.ClaimOptions{Lease: time.Hour})
	check(t, err)

	var a, b, far *message.Result
	var e1, e2 *event.Result
	var made, next []task.Result
	check(t, c.Update(ctx, func(tx *client.Tx) error {
		a = n.In(tx).WriteAfter("a-1", message.NoStream, msg("A"), msg("B"))
		b = n.In(tx).WriteAfter("a-1", 1, msg("C"))
		far = other.In(tx).Write("b-1", msg("D"))
		e1 = other.Log("log").In(tx).AppendAfter(0, event.Event{Type: "E"})
		e2 = other.Log("log").In(tx).AppendAfter(1, event.Event{Type: "F"}, event.Event{Type: "G"})
		made = other.Tasks().In(tx).Enqueue(task.Spec{ID: "mail", Kind: "m", Unique: "u"},
			task.Spec{ID: "again", Kind: "m", Unique: "u"})
		next = n.Tasks().In(tx).Complete(leases[0], task.Spec{ID: "then", Kind: "t", After: []string{"job"}})
		return nil
	}))
	got := fmt.Sprintf("%+v %+v %+v %+v %+v %+v %+v", *a, *b, *far, *e1, *e2, made, next)
	if want := "{Position:0 Global:1 Repeated:false} {Position:2 Global:3 Repeated:false} " +
		"{Position:0 Global:1 Repeated:false} {First:1 Last:1 Repeated:false} {First:2 Last:3 Repeated:false} " +
		"[{ID:mail Existing:false} {ID:mail Existing:true}] [{ID:then Existing:false}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := state(t, c), `default a-1 0 1 A
default a-1 1 2 B
default a-1 2 3 C
default then t waiting
default job k completed
other b-1 0 1 D
other log 1 E
other log 2 F
other log 3 G
other mail m waiting
`; got != want {
		t.Errorf("%s, want %s", got, want)
	}

	before := state(t, c)
	failed := errors.New("no")
	if err := c.Update(ctx, func(tx *client.Tx) error { n.In(tx).Write("a-1", msg("X")); return failed }); err != failed {
		t.Errorf("an error of the function: %v", err)
	}
	check(t, c.Update(ctx, func(*client.Tx) error { return nil }))
	wrong := []func(tx *client.Tx){
		func(tx *client.Tx) { n.In(tx).Write("a-1", message.Message{Type: "T"}) },
		func(tx *client.Tx) { n.In(tx).Write("\xff", msg("T")) },
		func(tx *client.Tx) { n.Log("log").In(tx).Append(event.Event{ID: "\xff"}) },
		func(tx *client.Tx) { n.Tasks().In(tx).Enqueue(task.Spec{Kind: "\xff"}) },
		func(tx *client.Tx) { withToken(t, c, "x").Namespace("other").In(tx).Write("a", msg("T")) },
	}
	for i, f := range wrong {
		err := c.Update(ctx, func(tx *client.Tx) error {
			n.In(tx).Write("a-1", msg("X"))
			f(tx)
			return nil
		})
		if err == nil {
			t.Errorf("wrong %d is accepted", i)
		}
	}
	if after := state(t, c); after != before {
		t.Errorf("from %s to %s", before, after)
	}
}

// TestTransactionRefused: one operation that is refused refuses all, with the error of its single call and its number.
func TestTransactionRefused(t *testing.T) {
	c, n, other := serveTwo(t)
	const id = "0198c5d0-0000-7000-8000-000000000001"
	check(t, errOf(n.Write(ctx, "a-1", message.Message{ID: id, Type: "A", Data: []byte(`{}`)}, msg("B"))))
	check(t, errOf(n.Write(ctx, "ended-1", msg("A"))))
	check(t, errOf(n.Tombstone(ctx, "ended-1")))
	check(t, errOf(n.Log("log").Append(ctx, event.Event{ID: "e", Type: "E"})))
	check(t, errOf(n.Tasks().Enqueue(ctx, task.Spec{ID: "job", Kind: "k"}, task.Spec{ID: "gone", Kind: "k"})))
	leases, err := n.Tasks().Claim(ctx, task.ClaimOptions{Lease: time.Hour, N: 2})
	check(t, err)
	check(t, n.Tasks().Complete(ctx, leases[0]))
	check(t, n.Tasks().Cancel(ctx, leases[1].Task.ID))
	none := c.Namespace("none")

	before := state(t, c)
	for name, test := range map[string]struct {
		do       func(tx *client.Tx)
		class    error
		status   int
		conflict error
	}{
		"version": {func(tx *client.Tx) { n.In(tx).WriteAfter("a-1", 7, msg("X")) }, message.ErrConflict, 409,
			&message.Conflict{Stream: "a-1", Expected: 7, Actual: 1}},
		"version in the transaction": {func(tx *client.Tx) {
			other.In(tx).WriteAfter("b-1", message.NoStream, msg("X"))
		}, message.ErrConflict, 409, &message.Conflict{Stream: "b-1", Expected: -1, Actual: 0}},
		"position": {func(tx *client.Tx) {
			n.Log("log").In(tx).AppendAfter(0, event.Event{Type: "X"})
		}, event.ErrConflict, 409, &event.Conflict{Expected: 0, Actual: 1}},
		"id": {func(tx *client.Tx) {
			n.In(tx).Write("a-2", message.Message{ID: id, Type: "X", Data: []byte(`{}`)})
		}, message.ErrIDTaken, 409, nil},
		"repeat beside others": {func(tx *client.Tx) {
			n.Log("log").In(tx).Append(event.Event{ID: "e", Type: "E"})
		}, event.ErrIDTaken, 409, nil},
		"ended":     {func(tx *client.Tx) { n.In(tx).Write("ended-1", msg("X")) }, message.ErrEnded, 409, nil},
		"lease":     {func(tx *client.Tx) { n.Tasks().In(tx).Complete(leases[0]) }, task.ErrLeaseLost, 409, nil},
		"cancelled": {func(tx *client.Tx) { n.Tasks().In(tx).Complete(leases[1]) }, task.ErrCancelled, 409, nil},
		"task": {func(tx *client.Tx) {
			n.Tasks().In(tx).Enqueue(task.Spec{ID: "job", Kind: "k"})
		}, task.ErrExists, 409, nil},
		"after": {func(tx *client.Tx) {
			n.Tasks().In(tx).Enqueue(task.Spec{Kind: "k", After: []string{"no"}})
		}, holdfast.ErrNotFound, 404, nil},
		"kind": {func(tx *client.Tx) { n.Tasks().In(tx).Enqueue(task.Spec{}) }, holdfast.ErrBadOption, 400, nil},
		"data": {func(tx *client.Tx) {
			n.In(tx).Write("a-1", message.Message{Type: "T", Data: []byte(`[]`)})
		}, message.ErrBadMessage, 400, nil},
		"no messages": {func(tx *client.Tx) { n.In(tx).Write("a-1") }, message.ErrBadMessage, 400, nil},
		"stream":      {func(tx *client.Tx) { n.In(tx).Write("", msg("T")) }, message.ErrBadName, 400, nil},
		"expected":    {func(tx *client.Tx) { n.In(tx).WriteAfter("a-1", -2, msg("T")) }, message.ErrBadName, 400, nil},
		"log":         {func(tx *client.Tx) { n.Log("a/b").In(tx).Append(event.Event{}) }, holdfast.ErrBadOption, 400, nil},
		"last": {func(tx *client.Tx) {
			n.Log("log").In(tx).AppendAfter(1<<63, event.Event{})
		}, event.ErrBadEvent, 400, nil},
		"no namespace": {func(tx *client.Tx) { none.In(tx).Write("a-1", msg("T")) }, message.ErrNoNamespace, 404, nil},
	} {
		err := c.Update(ctx, func(tx *client.Tx) error {
			other.In(tx).Write("b-1", msg("first"))
			test.do(tx)
			n.Log("log").In(tx).Append(event.Event{Type: "last"})
			return nil
		})
		var e *client.Error
		if !errors.Is(err, test.class) || !errors.As(err, &e) || e.Status != test.status || e.Operation == nil ||
			*e.Operation != 1 || e.Unknown {
			t.Errorf("%s: %v (%+v), want %v", name, err, e, test.class)
		}
		var inMessages *message.Conflict
		var inLog *event.Conflict
		errors.As(err, &inMessages)
		errors.As(err, &inLog)
		if want, ok := test.conflict.(*message.Conflict); ok && (inMessages == nil || *inMessages != *want) {
			t.Errorf("%s: %+v, want %+v", name, inMessages, want)
		}
		if want, ok := test.conflict.(*event.Conflict); ok && (inLog == nil || *inLog != *want) {
			t.Errorf("%s: %+v, want %+v", name, inLog, want)
		}
		if after := state(t, c); after != before {
			t.Fatalf("%s: from %s to %s", name, before, after)
		}
	}
}

// TestTransactionRepeated: what is sent again as it was is answered with its first results, also if these cannot be
// found out in the stores any more. Anything else with ids that are known is refused, unless all of it are repeats.
func TestTransactionRepeated(t *testing.T) {
	c, d := serve(t)
	token := auth.NewNamespaceSecret(message.Default)
	check(t, d.Tokens().SetOwn(ctx, message.Default, token))
	c = withToken(t, c, token)
	n := c.Namespace(message.Default)
	check(t, errOf(c.CreateNamespace(ctx, api.NewNamespace{ID: "other"})))
	send := func(body string) (int, api.TransactionResult, api.Problem) {
		t.Helper()
		status, text := post(t, c, token, transactions, []byte(body))
		var r api.TransactionResult
		var p api.Problem
		check(t, json.Unmarshal(text, &r))
		check(t, json.Unmarshal(text, &p))
		return status, r, p
	}
	write := func(namespace, number string) string {
		return `{"namespace": "` + namespace + `", "write": {"stream": "a-1", "messages": [{"id": "` + someID + number +
			`", "type": "T", "data": {}}]}}`
	}
	log := `{"namespace": "default", "append": {"log": "log", "after": 0, "events": [{"id": "e", "type": "E"}]}}`
	enqueue := `{"namespace": "other", "enqueue": {"tasks": [{"id": "t", "kind": "k", "keep_ms": -1}]}}`
	of := func(operations ...string) string { return `{"operations": [` + strings.Join(operations, ",") + `]}` }

	all := of(write("default", "1"), log, enqueue)
	status, first, _ := send(all)
	if status != 200 || first.Repeated || len(first.Results) != 3 {
		t.Fatal(status, first)
	}
	repeat := func() {
		t.Helper()
		status, again, p := send(all)
		if status != 200 || !again.Repeated || !again.Results[0].Written.Repeated || !again.Results[1].Appended.Repeated {
			t.Errorf("%d %+v %+v", status, again, p)
			return
		}
		again.Results[0].Written.Repeated, again.Results[1].Appended.Repeated, again.Repeated = false, false, false
		if !reflect.DeepEqual(again, first) {
			t.Errorf("repeated: %+v, at first %+v", again, first)
		}
	}
	repeat()
	check(t, errOf(n.Write(ctx, "a-1", msg("U"))))
	repeat()

	// The task is done and forgotten, and the messages are gone.
	leases, err := c.Namespace("other").Tasks().Claim(ctx, task.ClaimOptions{Lease: time.Hour})
	check(t, err)
	completed := of(`{"namespace": "other", "complete": {"id": "t", "token": ` + fmt.Sprint(leases[0].Token) +
		`, "then": [{"kind": "k"}]}}`)
	status, done, p := send(completed)
	if status != 200 || done.Repeated || len(done.Results) != 1 || len(done.Results[0].Enqueued) != 1 {
		t.Fatal(status, done, p)
	}
	status, again, p := send(completed)
	if status != 200 || !again.Repeated || !reflect.DeepEqual(again.Results, done.Results) {
		t.Errorf("%d %+v %+v", status, again, p)
	}
	check(t, errOf(n.Truncate(ctx, "a-1", 2)))
	repeat()

	// Of others the ids decide.
	check(t, errOf(n.Write(ctx, "a-2", message.Message{ID: someID + "2", Type: "T", Data: []byte(`{}`)})))
	before := state(t, c)
	known := strings.Replace(write("default", "2"), "a-1", "a-2", 1)
	status, again, p = send(of(log, known))
	if status != 200 || !again.Repeated || again.Results[1].Written.Global == 0 || again.Results[0].Appended.First != 1 {
		t.Errorf("all are repeats: %d %+v %+v", status, again, p)
	}
	for i, body := range []string{of(write("default", "3"), known), of(write("default", "3"), log, known),
		of(`{"namespace": "default", "enqueue": {"tasks": [{"kind": "k"}]}}`, known)} {
		status, _, p := send(body)
		if status != 409 || p.Code != api.CodeIDTaken || p.Operation == nil || *p.Operation != 1 {
			t.Errorf("partly a repeat, %d: %d %+v", i, status, p)
		}
	}
	if after := state(t, c); after != before {
		t.Errorf("from %s to %s", before, after)
	}

	// Without ids it is done as often as it is sent.
	plain := of(`{"namespace": "default", "enqueue": {"tasks": [{"kind": "k"}]}}`)
	_, one, _ := send(plain)
	_, two, _ := send(plain)
	if two.Repeated || one.Results[0].Enqueued[0].ID == two.Results[0].Enqueued[0].ID {
		t.Errorf("%+v, %+v", one, two)
	}

	// A namespace, or a log, that was made anew has not had it.
	elsewhere := of(write("other", "1"))
	if status, r, p := send(elsewhere); status != 200 || r.Repeated {
		t.Fatal(status, r, p)
	}
	check(t, errOf(c.DeleteNamespace(ctx, "other")))
	if status, _, p := send(elsewhere); status != 404 || p.Code != api.CodeNoNamespace {
		t.Fatal(status, p)
	}
	check(t, errOf(c.CreateNamespace(ctx, api.NewNamespace{ID: "other"})))
	if status, r, p := send(elsewhere); status != 200 || r.Repeated {
		t.Error(status, r, p)
	}
	logged := of(log)
	if status, r, p := send(logged); status != 200 || !r.Repeated {
		t.Fatal(status, r, p)
	}
	check(t, n.Log("log").Delete(ctx))
	if status, r, p := send(logged); status != 200 || r.Repeated {
		t.Error(status, r, p)
	}
}

// TestTransactionTokens: a token must be one that writes in each namespace, and nothing is told of others.
func TestTransactionTokens(t *testing.T) {
	c, _, _ := serveTwo(t)
	secret := func(namespace, role string) *client.Client {
		t.Helper()
		k, err := c.CreateToken(ctx, api.NewToken{Namespace: namespace, Role: role})
		check(t, err)
		return withToken(t, c, k.Secret)
	}
	before := state(t, c)
	for name, test := range map[string]struct {
		c         *client.Client
		here      string
		there     string
		operation int // -1 if it is refused as a whole, -2 if not at all
	}{
		"own":                  {secret("other", "write"), "other", "other", -2},
		"of another":           {secret("other", "write"), "other", message.Default, 1},
		"of one that is none":  {secret("other", "write"), "other", "none", 1},
		"of all":               {secret("*", "write"), message.Default, "other", -2},
		"read only":            {secret("other", "read"), "other", "other", -1},
		"read only everywhere": {secret("*", "read"), message.Default, "other", -1},
		"admin of one":         {secret("other", "admin"), message.Default, "other", 0},
	} {
		err := test.c.Update(ctx, func(tx *client.Tx) error {
			test.c.Namespace(test.here).In(tx).Write("a-1", msg("T"))
			test.c.Namespace(test.there).Tasks().In(tx).Enqueue(task.Spec{Kind: "k"})
			return nil
		})
		if test.operation == -2 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			before = state(t, c)
			continue
		}
		var e *client.Error
		if !errors.Is(err, client.ErrForbidden) || !errors.As(err, &e) || e.Status != 403 ||
			(e.Operation == nil) != (test.operation == -1) || e.Operation != nil && *e.Operation != test.operation {
			t.Errorf("%s: %v (%+v)", name, err, e)
		}
		if after := state(t, c); after != before {
			t.Fatalf("%s: from %s to %s", name, before, after)
		}
	}
	if status, text := post(t, c, "", transactions, []byte(`{"operations": []}`)); status != 401 {
		t.Errorf("%d %s", status, text)
	}
}

// leveled notes the levels of batches.
type leveled struct {
	holdfast.Engine
	mu      sync.Mutex
	applied []holdfast.Level
}

func (e *leveled) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	e.mu.Lock()
	e.applied = append(e.applied, level)
	e.mu.Unlock()
	return e.Engine.Apply(b, level)
}

func (e *leveled) last() holdfast.Level {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.applied[len(e.applied)-1]
}

// TestTransactionLevels: a transaction reaches the server's level, or the stronger one that it names, also if it is a
// repeat of one that named none. The answer says which.
func TestTransactionLevels(t *testing.T) {
	below, err := logtree.Open(t.TempDir()+"/data", holdfast.Options{Logger: quiet})
	check(t, err)
	e := &leveled{Engine: below}
	c, d := serveOn(t, e, holdfast.Process)
	token := auth.NewNamespaceSecret(message.Default)
	check(t, d.Tokens().SetOwn(ctx, message.Default, token))
	const body = `{"operations": [{"namespace": "default", "write": {"stream": "a", "messages": [{"id": ` +
		`"0198c5d0-0000-7000-8000-000000000001", "type": "T", "data": {}}]}}]}`
	for i, test := range []struct {
		asked, told string
		reached     holdfast.Level
		status      int
	}{
		{"", "process", holdfast.Process, 200}, {"memory", "process", holdfast.Process, 200},
		{"power", "power", holdfast.Power, 200}, {"sure", "", holdfast.Power, 400},
	} {
		r, err := http.NewRequest("POST", c.Address()+transactions, strings.NewReader(body))
		check(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		if test.asked != "" {
			r.Header.Set(api.HeaderLevel, test.asked)
		}
		answer, err := http.DefaultClient.Do(r)
		check(t, err)
		var got api.TransactionResult
		if test.status == 200 {
			check(t, json.NewDecoder(answer.Body).Decode(&got))
		}
		check(t, answer.Body.Close())
		if answer.StatusCode != test.status || answer.Header.Get(api.HeaderLevel) != test.told || e.last() != test.reached ||
			test.status == 200 && got.Repeated != (i > 0) {
			t.Errorf("asked for %q: %s, told %q, reached %v, %+v", test.asked, answer.Status,
				answer.Header.Get(api.HeaderLevel), e.last(), got)
		}
	}
}

// TestTransactionLimits: what a body may have is counted in all operations; what a message's data have is not.
func TestTransactionLimits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: the race detector makes it slow, and there is one request at a time")
	}
	c, d := serve(t)
	token := auth.NewNamespaceSecret(message.Default)
	check(t, d.Tokens().SetOwn(ctx, message.Default, token))
	repeat := func(n int, text string) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	enqueue := func(tasks string) string { return `{"namespace":"default","enqueue":{"tasks":[` + tasks + `]}}` }
	write := func(data string) string {
		return `{"namespace":"default","write":{"stream":"a","messages":[{"type":"T","data":` + data + `}]}}`
	}
	for name, test := range map[string]struct {
		operations string
		code       string
	}{
		"none":                 {``, api.CodeBadRequest},
		"most operations":      {repeat(1000, write(`{}`)), ""},
		"too many operations":  {repeat(1001, write(`{}`)), api.CodeTooLarge},
		"many items":           {repeat(3, enqueue(repeat(4_000, `{"kind":"k"}`))), ""},
		"too many items":       {repeat(3, enqueue(repeat(40_000, `{"kind":"k"}`))), api.CodeTooLarge},
		"too many after":       {enqueue(`{"kind":"k","after":[` + repeat(100_001, `"x"`) + `]}`), api.CodeTooLarge},
		"items of data":        {write(`{"a":[` + repeat(200_000, "1") + `]}`), ""},
		"a task that is large": {enqueue(`{"kind":"k","payload":"` + strings.Repeat("A", 2<<20) + `"}`), api.CodeTooLarge},
		"nothing":              {`{"namespace":"default"}`, api.CodeBadRequest},
		"null":                 {`{"namespace":"default","write":null}`, api.CodeBadRequest},
		"two things": {`{"namespace":"default","enqueue":{"tasks":[]},"complete":{"id":"x","token":1}}`,
			api.CodeBadRequest},
		"no namespace":          {`{"enqueue":{"tasks":[]}}`, api.CodeBadRequest},
		"a field in upper case": {`{"namespace":"default","Write":{}}`, api.CodeBadRequest},
		"no stream":             {`{"namespace":"default","write":{"messages":[]}}`, api.CodeBadRequest},
		"no log":                {`{"namespace":"default","append":{"events":[{}]}}`, api.CodeBadRequest},
		"no events":             {`{"namespace":"default","append":{"log":"log","events":[]}}`, api.CodeBadRequest},
		"no token":              {`{"namespace":"default","complete":{"id":"x"}}`, api.CodeBadRequest},
		"a stream of dots":      {strings.Replace(write(`{}`), `"a"`, `".."`, 1), api.CodeBadRequest},
	} {
		status, text := post(t, c, token, transactions, []byte(`{"operations":[`+test.operations+`]}`))
		var p api.Problem
		check(t, json.Unmarshal(text, &p))
		if p.Code != test.code || (status == 200) != (test.code == "") {
			t.Errorf("%s: %d %.200s, want %q", name, status, text, test.code)
		}
	}
	body := `{"operations":[` + write(`{"a":"`+strings.Repeat("x", 65<<20)+`"}`) + `]}`
	if status, text := post(t, c, token, transactions, []byte(body)); status != 413 {
		t.Errorf("a body of 65 MiB: %d %s", status, text)
	}
}

// TestTransactionsConcurrent: transactions of two namespaces that move between streams of both, beside single writes:
// none is lost, none is done in half.
func TestTransactionsConcurrent(t *testing.T) {
	c, n, other := serveTwo(t)
	const writers, each = 8, 20
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			here, there := n, other
			if w%2 == 1 {
				here, there = other, n
			}
			for i := range each {
				if i%5 == 4 {
					if _, err := here.Write(ctx, "single", msg("S")); err != nil {
						t.Error(err)
					}
				}
				for {
					version, ok, err := here.Version(ctx, "sum")
					if err != nil {
						t.Error(err)
						return
					}
					if !ok {
						version = message.NoStream
					}
					err = c.Update(ctx, func(tx *client.Tx) error {
						there.In(tx).Write("copy", msg("C"))
						here.In(tx).WriteAfter("sum", version, msg("C"))
						here.Log("log").In(tx).Append(event.Event{Type: "C"})
						there.Tasks().In(tx).Enqueue(task.Spec{Kind: "k"})
						return nil
					})
					if err == nil {
						break
					}
					if !errors.Is(err, message.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	const want = writers / 2 * each
	for _, ns := range []*client.Namespace{n, other} {
		for _, stream := range []string{"copy", "sum"} {
			if v, _, err := ns.Version(ctx, stream); v != want-1 || err != nil {
				t.Errorf("%s of %s has version %d, %v", stream, ns.ID(), v, err)
			}
		}
		last, err := ns.Log("log").Last(ctx)
		counts, err2 := ns.Tasks().Count(ctx, task.DefaultQueue)
		if last != want || counts[task.Waiting] != want || err != nil || err2 != nil {
			t.Errorf("%s: %d events, %v, %v, %v", ns.ID(), last, counts, err, err2)
		}
		var global []int64
		for m, err := range ns.Read(ctx, message.Query{}) {
			check(t, err)
			global = append(global, m.Global)
		}
		if !slices.IsSorted(global) || len(global) != 2*want+writers/2*each/5 {
			t.Errorf("%d messages of %s", len(global), ns.ID())
		}
	}
}

// TestTransactionRemembered: a transaction whose results an earlier version has kept, in the database without a name,
// is known.
func TestTransactionRemembered(t *testing.T) {
	c, d := serve(t)
	token := auth.NewNamespaceSecret(message.Default)
	check(t, d.Tokens().SetOwn(ctx, message.Default, token))
	body := []byte(`{"operations": [{"namespace": "default", "enqueue": {"tasks": [{"id": "t", "kind": "k"}]}}]}`)
	send := func() (r api.TransactionResult) {
		t.Helper()
		status, text := post(t, c, token, transactions, body)
		check(t, json.Unmarshal(text, &r))
		if status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		return r
	}
	first := send()

	moved := 0
	for i := range 64 {
		from, err := kv.Open(d.Engine(), kv.Options{Name: fmt.Sprintf("results/%02x", i), Level: holdfast.Memory})
		check(t, err)
		check(t, kv.UpdateAll(ctx, []*kv.DB{from, d.DB()}, func(txs []*kv.Tx) error {
			for key, value := range txs[0].Bucket("holdfast", "transactions").All() {
				moved++
				until := time.Now().Add(time.Hour)
				err := errors.Join(txs[1].Bucket("holdfast", "transactions").PutUntil(key, value, until),
					txs[0].Bucket("holdfast", "transactions").Delete(key))
				if err != nil {
					return err
				}
			}
			return nil
		}))
	}
	if again := send(); moved != 1 || !again.Repeated || !reflect.DeepEqual(again.Results, first.Results) {
		t.Errorf("%d moved; %+v, at first %+v", moved, again, first)
	}
}

// TestTransactionReopened: a transaction is known after its server was started again, whose logs begin a new part of
// their histories then. A log that was made anew since has not had it.
func TestTransactionReopened(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	body := []byte(`{"operations": [
		{"namespace": "default", "append": {"log": "log", "events": [{"id": "e", "type": "E"}, {"id": "f", "type": "E"}]}},
		{"namespace": "default", "append": {"log": "other", "after": 0, "events": [{"type": "E"}]}},
		{"namespace": "default", "enqueue": {"tasks": [{"id": "t", "kind": "k"}]}}]}`)
	var first api.TransactionResult
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			e, err := logtree.Open(dir, holdfast.Options{})
			check(t, err)
			c, d := serveOn(t, e, holdfast.Process)
			token := auth.NewNamespaceSecret(message.Default)
			check(t, d.Tokens().SetOwn(ctx, message.Default, token))
			n := c.Namespace(message.Default)
			n = withToken(t, c, token).Namespace(n.ID())
			for range 2 {
				status, text := post(t, c, token, transactions, body)
				var r api.TransactionResult
				check(t, json.Unmarshal(text, &r))
				if status != 200 || r.Repeated == (first.Results == nil) {
					t.Fatalf("%d %s", status, text)
				}
				for _, one := range r.Results {
					if one.Appended != nil {
						one.Appended.Repeated = false
					}
				}
				if first.Results == nil {
					first = r
				}
				if !reflect.DeepEqual(r.Results, first.Results) {
					t.Errorf("%+v, at first %+v", r.Results, first.Results)
				}
			}
			if i == 2 { // what comes later makes no difference
				check(t, errOf(n.Log("log").Append(ctx, event.Event{Type: "F"})))
				check(t, errOf(n.Log("log").TruncateBefore(ctx, 3)))
			}
			if i < 3 {
				return
			}
			check(t, n.Log("other").Delete(ctx))
			check(t, n.Tasks().Delete(ctx, "t"))
			status, text := post(t, c, token, transactions, body)
			if status != 409 || !bytes.Contains(text, []byte(api.CodeIDTaken)) {
				t.Errorf("of a log that is another one: %d %s", status, text)
			}
		})
	}
}

// TestTransactionsOfOthers: while a transaction of one namespace is decided, those of others are not kept waiting by
// it, nor is who makes a namespace.
func TestTransactionsOfOthers(t *testing.T) {
	c, d := serve(t)
	for _, id := range []string{"slow", "other"} {
		check(t, errOf(c.CreateNamespace(ctx, api.NewNamespace{ID: id})))
	}
	transact := func(ctx context.Context, namespaces ...string) error {
		return c.Update(ctx, func(tx *client.Tx) error {
			for _, namespace := range namespaces {
				c.Namespace(namespace).In(tx).Write("a-1", msg("T"))
				c.Namespace(namespace).Tasks().In(tx).Enqueue(task.Spec{Kind: "k"})
			}
			return nil
		})
	}
	check(t, transact(ctx, "slow", "other", message.Default))
	slow, err := d.Database("slow")
	check(t, err)
	n, err := d.Messages().Namespace(ctx, "slow")
	check(t, err)
	inside, leave, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		ended <- slow.Update(ctx, func(tx *kv.Tx) error {
			_, err := n.In(tx).Write("a-1", msg("Slow"))
			close(inside)
			<-leave
			return err
		})
	}()
	<-inside
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	check(t, transact(limited, "other", message.Default))
	check(t, errOf(c.CreateNamespace(limited, api.NewNamespace{ID: "new"})))
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := slow.Update(short, func(*kv.Tx) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a transaction of the namespace did not wait: %v", err)
	}
	close(leave)
	check(t, <-ended)
	for id, want := range map[string]int64{"slow": 2, "other": 2, message.Default: 2} {
		info, err := c.Namespace(id).Info(ctx)
		if err != nil || info.Messages != want {
			t.Errorf("%s has %d messages, want %d: %v", id, info.Messages, want, err)
		}
	}
}
