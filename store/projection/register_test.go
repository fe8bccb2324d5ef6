package projection_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/projection"
	"github.com/holdfastdb/holdfast/store/task"
)

// overlapping are prefixes and names of which one is the other's, or covers it.
var overlapping = [][2][2]string{
	{{"a", "x/"}, {"b", "x/y/"}},
	{{"a", "x/y/"}, {"b", "x/"}},
	{{"a", "x/"}, {"a", "x"}},
	{{"a", "x/"}, {"b", "x/"}},
}

// bothKinds makes a projection over the events or messages in an engine.
func bothKinds(t *testing.T, eng holdfast.Engine, f func(make func(name, prefix string) (runner, error))) {
	t.Helper()
	log, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	store, err := message.Open(kv.On(eng), message.Options{Level: holdfast.Memory, RetainEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	n, err := store.Namespace(ctx, message.Default)
	if err != nil {
		t.Fatal(err)
	}
	if log.Last() == 0 {
		_, err := log.Append(ctx, event.Event{Type: "t"})
		_, err2 := n.Write(ctx, "s-1", message.Message{Type: "t", Data: []byte("{}")})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
	}
	f(func(name, prefix string) (runner, error) {
		o := projection.Options{Name: name, Prefix: prefix}
		if name < "b" {
			return projection.New(projection.Events(log), o, func(m *projection.Model, _ event.Event) error {
				return projection.Set(m, "n", name)
			})
		}
		return projection.New(projection.Messages(eng, holdfast.Memory, n, message.Query{}), o,
			func(m *projection.Model, _ message.Message) error { return projection.Set(m, "n", name) })
	})
	if err := errors.Join(store.Close(), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// A prefix that overlaps with another projection's is refused when the projection is made, and, if the other is not in
// this program, before anything is changed.
func TestOverlap(t *testing.T) {
	for _, test := range overlapping {
		first, second := test[0], test[1]
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			eng := mem.New()
			defer eng.Close()
			bothKinds(t, eng, func(make func(name, prefix string) (runner, error)) {
				p, err := make(first[0], first[1])
				if err != nil {
					t.Fatal(err)
				}
				if _, err := make(second[0], second[1]); !errors.Is(err, holdfast.ErrBadOption) ||
					!strings.Contains(err.Error(), fmt.Sprintf("projection %q", first[0])) {
					t.Fatal(err)
				}
				if again, err := make(first[0], first[1]); err != nil { // the same one
					t.Fatal(err)
				} else if err := errors.Join(p.CatchUp(ctx), again.CatchUp(ctx)); err != nil {
					t.Fatal(err)
				}
			})

			// What another program has left in the same keys.
			copied := mem.New()
			defer copied.Close()
			var all holdfast.Batch
			it := eng.Scan(holdfast.Range{})
			for it.Next() {
				all.Set(it.Key(), it.Value())
			}
			if err := errors.Join(it.Close(), holdfast.Commit(copied, &all, holdfast.Memory)); err != nil {
				t.Fatal(err)
			}
			bothKinds(t, copied, func(make func(name, prefix string) (runner, error)) {
				other, err := make(second[0], second[1])
				if err != nil {
					t.Fatal(err)
				}
				wantError(t, other.CatchUp(ctx), holdfast.ErrBadOption)
				wantError(t, other.Run(ctx), holdfast.ErrBadOption)
				if first[1] != second[1] {
					wantError(t, other.Rebuild(ctx), holdfast.ErrBadOption)
				}
				value, err := projection.Get[string](projection.View{Reader: copied, Prefix: first[1]}, "n")
				if err != nil || value != first[0] {
					t.Fatal(value, err)
				}
			})

			// Once the first is rebuilt, and not run again, its prefix is free.
			freed := mem.New()
			defer freed.Close()
			if err := holdfast.Commit(freed, &all, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
			bothKinds(t, freed, func(make func(name, prefix string) (runner, error)) {
				p, err := make(first[0], first[1])
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Rebuild(ctx); err != nil {
					t.Fatal(err)
				}
			})
			again := mem.New()
			defer again.Close()
			all.Reset()
			it = freed.Scan(holdfast.Range{})
			for it.Next() {
				all.Set(it.Key(), it.Value())
			}
			if err := errors.Join(it.Close(), holdfast.Commit(again, &all, holdfast.Memory)); err != nil {
				t.Fatal(err)
			}
			bothKinds(t, again, func(make func(name, prefix string) (runner, error)) {
				p, err := make(second[0], second[1])
				if err != nil {
					t.Fatal(err)
				}
				if err := p.CatchUp(ctx); err != nil {
					t.Fatal(err)
				}
				value, err := projection.Get[string](p.View(), "n")
				if err != nil || value != second[0] {
					t.Fatal(value, err)
				}
			})
		})
	}
}

// A prefix that is free by its letters, because no store has so long a name, is refused while such a store is open.
func TestOverlapWithLongName(t *testing.T) {
	eng := mem.New()
	tasks, err := task.Open(kv.On(eng), task.Options{Name: "tals/" + strings.Repeat("x", 106), Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	log, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.Enqueue(ctx, task.Spec{Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	p, err := projection.New(projection.Events(log), projection.Options{Name: "totals", Prefix: "totals/"},
		func(*projection.Model, event.Event) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, p.CatchUp(ctx), holdfast.ErrBadOption)
	if n, err := tasks.Count(ctx, task.DefaultQueue); err != nil || n[task.Waiting] != 1 {
		t.Fatal(n, err)
	}
	if err := errors.Join(tasks.Close(), p.CatchUp(ctx), log.Close(), eng.Close()); err != nil {
		t.Fatal(err)
	}
}
