package server

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/projection"
	"github.com/holdfastdb/holdfast/store/task"
)

// No projection, and no operation of a program in a commit of a store, reaches a key that a server has written: tokens
// and options of subscriptions, the stores of all namespaces, and the database that they are in.
func TestKeysAreReserved(t *testing.T) {
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	e := mem.New()
	d, err := data.Open(e, data.Options{Level: holdfast.Memory})
	check(err)
	const long = "a-namespace-with-the-longest-name-that-there-may-be-0123456789ab"
	_, err = d.Create(ctx, message.NamespaceOptions{ID: long}, "")
	check(err)
	for _, ns := range []string{message.Default, long} {
		_, _, err := d.Tokens().Create(ctx, auth.Token{Namespace: ns, Role: auth.Read})
		check(err)
		err = d.SetSubscription(ctx, ns, "mails", message.SubscriptionOptions{Lease: time.Minute})
		check(err)
		log, err := d.Log(ctx, ns, "log")
		check(err)
		_, err = log.Append(ctx, event.Event{ID: "x", Type: "t"})
		check(err)
		tasks, err := d.Tasks(ctx, ns)
		check(err)
		_, err = tasks.Enqueue(ctx, task.Spec{Kind: "k"})
		check(err)
	}
	n, err := d.Messages().Namespace(ctx, message.Default)
	check(err)
	log, err := d.Log(ctx, message.Default, "log")
	check(err)
	check(d.DB().Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("b").Put([]byte("k"), nil) }))
	keys := [][]byte{[]byte(probeKey)}
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	check(it.Close())
	server := 0
	for _, key := range keys {
		if key[0] == 's' {
			server++
		}
		for i := range key {
			_, err := projection.New(projection.Messages(e, holdfast.Memory, n, message.Query{}),
				projection.Options{Name: "p", Prefix: string(key[:i+1])},
				func(*projection.Model, message.Message) error { return nil })
			if !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("a projection with the prefix %q: %v", key[:i+1], err)
			}
		}
		var b holdfast.Batch
		b.Delete(key)
		if err := log.SaveOffsetFor(ctx, keyspace.Server, "p", 1, &b); !errors.Is(err, holdfast.ErrBadKey) {
			t.Errorf("a model that deletes %q: %v", key, err)
		}
	}
	if server < 3 { // two subscriptions, and what is tried
		t.Errorf("%d keys of the server", server)
	}
	check(errors.Join(d.Close(), e.Close()))
}
