package task_test

import (
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/internal/storetest"
	"github.com/holdfastdb/holdfast/store/projection"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestOwnKeys: wherever users add operations of their own to a commit, or choose a prefix, none reaches into the keys
// of any kind of store, and a refused call changes nothing.
func TestOwnKeys(t *testing.T) {
	eng := mem.New()
	defer storetest.Close(t, eng)
	log, err := event.Open(eng, event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, log)
	tasks, err := task.Open(eng, task.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, tasks)
	if _, err := tasks.Enqueue(ctx, task.Spec{Kind: "mail"}); err != nil {
		t.Fatal(err)
	}
	first, err := log.Append(ctx, event.Event{Type: "a"}, event.Event{Type: "b"})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := tasks.Claim(ctx, task.ClaimOptions{Lease: time.Hour})
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	before := storetest.Keys(eng, holdfast.Range{})
	for _, kind := range []byte(keyspace.Kinds) {
		for what, add := range map[string]func(b *holdfast.Batch){
			"set":    func(b *holdfast.Batch) { b.Set([]byte{kind, 0, 'x'}, nil) },
			"letter": func(b *holdfast.Batch) { b.Set([]byte{kind}, nil) },
			"delete": func(b *holdfast.Batch) { b.Delete([]byte{kind, 0, 'm'}) },
			"range":  func(b *holdfast.Batch) { b.DeleteRange([]byte{kind}, []byte{kind + 1}) },
			"all":    func(b *holdfast.Batch) { b.DeleteRange(nil, nil) },
		} {
			with := func(b *holdfast.Batch) error { add(b); return nil }
			in := func(c *event.Commit) error { add(c.Batch); return nil }
			var own holdfast.Batch
			add(&own)
			for call, f := range map[string]func() error{
				"EnqueueWith":    func() error { _, err := tasks.EnqueueWith(ctx, with, task.Spec{Kind: "mail"}); return err },
				"CompleteWith":   func() error { _, err := tasks.CompleteWith(ctx, leases[0], with); return err },
				"AppendWith":     func() error { _, err := log.AppendWith(ctx, in, event.Event{Type: "a"}); return err },
				"SubmitWith":     func() error { _, err := log.SubmitWith(ctx, in, event.Event{Type: "a"}); return err },
				"ImportWith":     func() error { _, err := log.ImportWith(ctx, in, event.Event{Position: 9, Type: "a"}); return err },
				"RemoveWith":     func() error { _, err := log.RemoveWith(ctx, in, first.First); return err },
				"SaveOffsetWith": func() error { return log.SaveOffsetWith(ctx, "sub", 1, &own) },
			} {
				if err := f(); err == nil {
					t.Errorf("%s, %s of %q: accepted", call, what, kind)
				} else {
					storetest.WantError(t, err, holdfast.ErrBadKey)
				}
			}
		}
		for _, prefix := range []string{"", string(kind), string(kind) + "\x00", string(kind) + "\x04name", string(kind) + "/"} {
			_, err := projection.New(projection.Events(log), projection.Options{Name: "n", Prefix: prefix},
				func(*projection.Model, event.Event) error { return nil })
			storetest.WantError(t, err, holdfast.ErrBadOption)
		}
	}
	if after := storetest.Keys(eng, holdfast.Range{}); after != before {
		t.Errorf("%d keys, %d before", after, before)
	}
	if err := tasks.Complete(ctx, leases...); err != nil {
		t.Error(err)
	}
}
