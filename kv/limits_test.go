package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/internal/wrapped"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// limitedEngine has limits below those of the contract, as engines over databases do.
type limitedEngine struct {
	wrapped.Engine
	key, value, batch int64
	longest           int // key so far
}

func (e *limitedEngine) Capabilities() holdfast.Capabilities {
	c := e.Engine.Capabilities()
	c.MaxKeySize, c.MaxValueSize, c.MaxBatchSize = e.key, e.value, e.batch

	return c
}

func (e *limitedEngine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	for op := range b.Ops() {
		if op.Kind == holdfast.KindDeleteRange {
			continue
		}
		if e.longest = max(e.longest, len(op.Key)); int64(len(op.Key)) > e.key {
			return holdfast.Receipt{}, fmt.Errorf("the store was told of keys up to %d bytes, and writes one of %d", e.key,
				len(op.Key))
		}
		if int64(len(op.Value)) > e.value {
			return holdfast.Receipt{}, &holdfast.Error{Op: "apply", Class: holdfast.ErrTooLarge, Detail: "a value"}
		}
	}
	if int64(b.Size()) > e.batch {
		return holdfast.Receipt{}, &holdfast.Error{Op: "apply", Class: holdfast.ErrTooLarge, Detail: "a batch"}
	}

	return e.Engine.Apply(b, level)
}

// The longest names that each store takes fit in keys of 2,600 bytes, which is what an engine over PostgreSQL has; a
// bucket's keys, which may be longer elsewhere, are refused by their length there. What is too large for the engine is
// ErrTooLarge of the store, costs nothing, and the store goes on.
func TestStoresKeepToLimits(t *testing.T) {
	const most = 2600
	engine := &limitedEngine{Engine: wrapped.Engine{Engine: mem.New()}, key: most, value: 64 << 10, batch: 128 << 10}
	level := holdfast.Memory
	db, err := kv.Open(engine, kv.Options{Name: "orders", Level: level})
	check(t, err)
	large := bytes.Repeat([]byte("x"), 100<<10)
	text := func(n int) string { return strings.Repeat("n", n) }

	log, err := event.Open(db, event.Options{Name: text(event.MaxNameSize), Level: level})
	check(t, err)
	defer storetest.Close(t, log)
	messages, err := message.Open(db, message.Options{Name: text(message.MaxNameSize), Level: level, RetainEvery: -1})
	check(t, err)
	defer storetest.Close(t, messages)
	_, err = messages.Create(ctx, message.NamespaceOptions{ID: text(message.MaxNameSize)})
	check(t, err)
	space, err := messages.Namespace(ctx, text(message.MaxNameSize))
	check(t, err)
	tasks, err := task.Open(db, task.Options{Name: text(task.MaxNameSize)})
	check(t, err)
	defer storetest.Close(t, tasks)

	stream := text(message.MaxStreamSize)
	json := func(n int) message.Message {
		return message.Message{Type: "T", Data: fmt.Appendf(nil, `{"a":%q}`, text(n))}
	}
	spec := task.Spec{ID: text(task.MaxTextSize), Queue: text(task.MaxNameSize), Kind: text(task.MaxTextSize),
		Key: text(task.MaxTextSize), Sequence: text(task.MaxTextSize), Unique: text(task.MaxTextSize)}
	bucket := func(key, value int) func() error {
		return func() error {
			return db.Update(ctx, func(tx *kv.Tx) error {
				return tx.Bucket(text(kv.MaxNameSize)).Put([]byte(text(key)), make([]byte, value))
			})
		}
	}
	for _, test := range []struct {
		what string
		do   func() error
		want error
	}{
		{"an event", func() error {
			_, err := log.Append(ctx, event.Event{ID: text(event.MaxIDSize), Type: "T"})
			return err
		}, nil},
		{"an offset", func() error { return log.SaveOffset(ctx, text(event.MaxIDSize), 1) }, nil},
		{"a snapshot", func() error { return log.SaveSnapshot(ctx, text(event.MaxIDSize), 1, nil) }, nil},
		{"a large event", func() error { _, err := log.Append(ctx, event.Event{Type: "T", Data: large}); return err },
			holdfast.ErrTooLarge},
		{"a large snapshot", func() error { return log.SaveSnapshot(ctx, "s", 1, large) }, holdfast.ErrTooLarge},
		{"many events", func() error {
			_, err := log.Append(ctx, event.Event{Data: large[:50<<10]}, event.Event{Data: large[:50<<10]},
				event.Event{Data: large[:50<<10]})
			return err
		}, holdfast.ErrTooLarge},
		{"an event again", func() error { _, err := log.Append(ctx, event.Event{Type: "T"}); return err }, nil},

		{"a message", func() error { _, err := space.Write(ctx, stream, json(1)); return err }, nil},
		{"a position", func() error { return space.SavePosition(ctx, text(event.MaxIDSize), 1) }, nil},
		{"a large message", func() error { _, err := space.Write(ctx, "a-1", json(100<<10)); return err },
			holdfast.ErrTooLarge},
		{"many messages", func() error {
			_, err := space.Write(ctx, "a-1", json(50<<10), json(50<<10), json(50<<10))
			return err
		}, holdfast.ErrTooLarge},
		{"a message again", func() error { _, err := space.Write(ctx, "a-1", json(1)); return err }, nil},

		{"a task", func() error { _, err := tasks.Enqueue(ctx, spec); return err }, nil},
		{"a large task", func() error { _, err := tasks.Enqueue(ctx, task.Spec{Kind: "k", Payload: large}); return err },
			holdfast.ErrTooLarge},
		{"a task again", func() error { _, err := tasks.Enqueue(ctx, task.Spec{Kind: "k"}); return err }, nil},

		{"a key", bucket(1000, 1), nil},
		{"a long key", bucket(most, 1), holdfast.ErrBadKey},
		{"a large value", bucket(1, 100<<10), holdfast.ErrTooLarge},
		{"a key again", bucket(1, 1), nil},
	} {
		err := test.do()
		if !errors.Is(err, test.want) || errors.Is(err, holdfast.ErrPoisoned) {
			t.Errorf("%s: got %v, want %v", test.what, err, test.want)
		}
		if test.want != nil && err != nil {
			t.Logf("%s: %.300v", test.what, err)
		}
	}
	t.Logf("the longest key has %d bytes", engine.longest)
}

// slowEngine takes long to give a snapshot.
type slowEngine struct {
	wrapped.Engine
	asked, answer chan struct{}
}

func (e *slowEngine) Snapshot() (holdfast.Snapshot, error) {
	close(e.asked)
	<-e.answer
	return e.Engine.Snapshot()
}

// A View of an engine that is slow to read keeps no Update waiting.
func TestViewOfASlowEngine(t *testing.T) {
	engine := &slowEngine{wrapped.Engine{Engine: mem.New()}, make(chan struct{}), make(chan struct{})}
	defer engine.Close()
	db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	viewed := make(chan error)
	go func() {
		viewed <- db.View(context.Background(), func(tx *kv.Tx) error {
			_, err := tx.Bucket("b").Get([]byte("k"))
			return err
		})
	}()
	<-engine.asked
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	updated := make(chan error, 1)
	go func() {
		updated <- db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("b").Put([]byte("k"), nil) })
	}()
	select {
	case err := <-updated:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("an Update waits for a View")
	}
	close(engine.answer)
	if err := <-viewed; err != nil {
		t.Error(err)
	}
}
