package data_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/internal/wrapped"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// cut is an engine that takes so many batches, and no more.
type cut struct {
	wrapped.Engine
	left int
}

func (c *cut) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if c.left == 0 {
		return holdfast.Receipt{}, holdfast.ErrPoisoned
	}
	c.left--

	return c.Engine.Apply(b, level)
}

// copied is an engine with what another one has, as a crash leaves it.
func copied(t *testing.T, from holdfast.Engine) *cut {
	t.Helper()
	var b holdfast.Batch
	for key, value := range all(t, from) {
		b.Set([]byte(key), []byte(value))
	}
	to := mem.New()
	testkit.Try(t, holdfast.Commit(to, &b, holdfast.Memory))

	return &cut{wrapped.Engine{Engine: to}, -1}
}

func all(t *testing.T, engine holdfast.Engine) map[string]string {
	t.Helper()
	keys := map[string]string{}
	it := engine.Scan(holdfast.Range{})
	for it.Next() {
		keys[string(it.Key())] = string(it.Value())
	}
	testkit.Try(t, it.Close())

	return keys
}

// A deletion that ends after any of its writes leaves a namespace that can be deleted, or none. Then the engine has
// nothing of it, and the next one of that id begins empty.
func TestDeletionIsCut(t *testing.T) {
	ctx := t.Context()
	session := func(engine holdfast.Engine, f func(d *data.Data)) {
		t.Helper()
		d, err := data.Open(engine, data.Options{Level: holdfast.Memory})
		testkit.Try(t, err)
		f(d)
		_ = d.Close() // it cannot write what it counts if the engine is cut
	}
	full := mem.New()
	var without map[string]string
	session(full, func(d *data.Data) {
		_, err := d.Create(ctx, message.NamespaceOptions{ID: "b"}, "")
		testkit.Try(t, err)
		db, err := d.Database("a") // it stays marked as a database
		testkit.Try(t, err)
		testkit.Try(t, db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("rows").Create() }))
		testkit.Try(t, db.Update(ctx, func(tx *kv.Tx) error { return tx.DeleteBucket("rows") }))
		_, _, err = d.Tokens().Create(ctx, auth.Token{Namespace: "b", Role: auth.Read})
		testkit.Try(t, err)
		without = all(t, full)

		_, err = d.Create(ctx, message.NamespaceOptions{ID: "a"}, auth.NewNamespaceSecret("a"))
		testkit.Try(t, err)
		for i := range 3 {
			appendTo(t, d, "a", fmt.Sprint("log", i))
			_, _, err = d.Tokens().Create(ctx, auth.Token{Namespace: "a", Role: auth.Write})
			testkit.Try(t, err)
		}
		n, err := d.Messages().Namespace(ctx, "a")
		testkit.Try(t, err)
		for i := range 10 {
			_, err = n.Write(ctx, fmt.Sprint("s-", i), message.Message{Type: "T", Data: []byte(`{}`)})
			testkit.Try(t, err)
		}
		_, err = n.Tombstone(ctx, "s-1")
		testkit.Try(t, err)
		testkit.Try(t, n.SavePosition(ctx, "c", 5))
		testkit.Try(t, d.SetSubscription(ctx, "a", "s", message.SubscriptionOptions{}))
		s, err := d.Subscription(ctx, "a", "s")
		testkit.Try(t, err)
		got, err := s.Claim(ctx, 2)
		testkit.Try(t, err)
		testkit.Try(t, s.Park(ctx, "why", got[0]))
		tasks, err := d.Tasks(ctx, "a")
		testkit.Try(t, err)
		_, err = tasks.Enqueue(ctx, task.Spec{Kind: "k"}, task.Spec{Kind: "k", Key: "k", Unique: "u"})
		testkit.Try(t, err)
		_, err = tasks.Claim(ctx, task.ClaimOptions{})
		testkit.Try(t, err)
		testkit.Try(t, db.Update(ctx, func(tx *kv.Tx) error {
			return errors.Join(tx.Bucket("rows", "deep").Put([]byte("k"), nil),
				tx.Bucket("more").PutUntil([]byte("k"), nil, time.Now().Add(time.Hour)))
		}))
	})

	there, gone := 0, 0
	for writes, deleted := 0, false; !deleted; writes++ {
		engine := copied(t, full)
		session(engine, func(d *data.Data) {
			engine.left = writes
			_, err := d.Delete(ctx, "a")
			deleted = err == nil
		})
		engine = copied(t, engine)
		session(engine, func(d *data.Data) {
			switch _, err := d.Info(ctx, "a"); {
			case errors.Is(err, message.ErrNoNamespace):
				gone++
			case err != nil || deleted:
				t.Fatalf("after %d writes: %v, and deleted: %v", writes, err, deleted)
			default:
				there++
				_, err := d.Delete(ctx, "a")
				testkit.Try(t, err)
			}
		})
		for key := range all(t, engine) {
			if _, ok := without[key]; !ok {
				t.Errorf("after %d writes the engine still has %q", writes, key)
			}
		}
	}
	if there < 5 || gone < 2 {
		t.Errorf("it was there %d times, and gone %d times", there, gone)
	}
}
