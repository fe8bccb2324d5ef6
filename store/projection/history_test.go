package projection_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/projection"
)

// copied returns an engine with the same keys.
func copied(t *testing.T, from holdfast.Engine) holdfast.Engine {
	t.Helper()
	to := mem.New()
	var b holdfast.Batch
	it := from.Scan(holdfast.Range{})
	for it.Next() {
		b.Set(it.Key(), it.Value())
	}
	if err := errors.Join(it.Close(), holdfast.Commit(to, &b, holdfast.Memory)); err != nil {
		t.Fatal(err)
	}
	return to
}

// A view that is kept in another engine than the messages does not go on when these were put back to a copy, whether
// that is shorter than what was applied, as long, or longer. It goes on when they were only opened again.
func TestSourcePutBack(t *testing.T) {
	for _, query := range []message.Query{{}, {Category: "s"}, {Stream: "s-1"}} {
		view := mem.New()
		source := holdfast.Engine(mem.New())
		applied := 0
		run := func(write int) error {
			t.Helper()
			source = copied(t, source) // opened again
			store, err := message.Open(kv.On(source), message.Options{Level: holdfast.Memory})
			if err != nil {
				t.Fatal(err)
			}
			defer storetest.Close(t, store)
			n, err := store.Namespace(ctx, message.Default)
			if err != nil {
				t.Fatal(err)
			}
			for range write {
				if _, err := n.Write(ctx, "s-1", message.Message{Type: "t", Data: []byte("{}")}); err != nil {
					t.Fatal(err)
				}
			}
			p, err := projection.New(projection.Messages(kv.On(view).At(holdfast.Memory), n, query),
				projection.Options{Name: "n"}, func(*kv.Bucket, message.Message) error {
					applied++
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			_, failed := p.Progress(ctx)
			err = p.CatchUp(ctx)
			if (failed == nil) != (err == nil) {
				t.Errorf("%+v: progress %v, and then %v", query, failed, err)
			}
			if err == nil {
				return nil
			}
			if again := p.Run(ctx); !errors.Is(again, event.ErrAhead) {
				t.Errorf("%+v: run: %v", query, again)
			}
			return err
		}
		if err := run(20); err != nil || applied != 20 {
			t.Fatal(applied, err)
		}
		backup := copied(t, source)
		if err := run(10); err != nil || applied != 30 {
			t.Fatal(applied, err)
		}
		if err := run(1); err != nil || applied != 31 {
			t.Fatal(applied, err)
		}
		for _, write := range []int{0, 5, 11, 12, 40} {
			source = copied(t, backup)
			if err := run(write); !errors.Is(err, event.ErrAhead) || applied != 31 {
				t.Errorf("%+v, %d written to the copy: %d applied, %v", query, write, applied, err)
			}
		}
	}
}

// repaired is an engine in which a loss was accepted.
type repaired struct{ holdfast.Engine }

func (r *repaired) Capabilities() holdfast.Capabilities {
	c := r.Engine.Capabilities()
	c.Accepted = "a loss"
	return c
}

// A view of which something may be lost is not used on. Rebuilt, it is.
func TestAccepted(t *testing.T) {
	eng := mem.New()
	at := func(eng holdfast.Engine, each func(log *event.Store, p *projection.Projection[event.Event])) {
		log, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		defer storetest.Close(t, log)
		p, err := projection.New(projection.Events(log), projection.Options{Name: "n"},
			func(view *kv.Bucket, e event.Event) error { return projection.Set(view, fmt.Sprint(e.Position), true) })
		if err != nil {
			t.Fatal(err)
		}
		each(log, p)
	}
	at(eng, func(log *event.Store, p *projection.Projection[event.Event]) {
		if _, err := log.Append(ctx, event.Event{}, event.Event{}); err != nil {
			t.Fatal(err)
		}
		if err := p.CatchUp(ctx); err != nil {
			t.Fatal(err)
		}
	})
	for range 2 {
		at(&repaired{eng}, func(_ *event.Store, p *projection.Projection[event.Event]) {
			_, err := p.Progress(ctx)
			wantError(t, err, holdfast.ErrCorrupt)
			wantError(t, p.CatchUp(ctx), holdfast.ErrCorrupt)
			wantError(t, p.Run(ctx), holdfast.ErrCorrupt)
		})
	}
	at(&repaired{eng}, func(_ *event.Store, p *projection.Projection[event.Event]) {
		if err := errors.Join(p.Rebuild(ctx), p.CatchUp(ctx), p.CatchUp(ctx)); err != nil {
			t.Fatal(err)
		}
		if got := contents[bool](t, eng, p); !got["2"] {
			t.Fatal(got)
		}
	})
}
