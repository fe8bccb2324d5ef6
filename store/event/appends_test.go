package event_test

import (
	"cmp"
	"iter"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// recorded is an engine that keeps the batches that it gets.
type recorded struct {
	holdfast.Engine
	batches [][]holdfast.Op
}

func (r *recorded) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	var ops []holdfast.Op
	for op := range b.Ops() {
		ops = append(ops, holdfast.Op{Kind: op.Kind, Key: append([]byte{}, op.Key...), Value: append([]byte{}, op.Value...)})
	}
	r.batches = append(r.batches, ops)

	return r.Engine.Apply(b, level)
}

// TestAppends: of each batch it is told which events it appends, whether they have records or packs; of removals,
// truncations and another log's nothing is.
func TestAppends(t *testing.T) {
	e := &recorded{Engine: mem.New()}
	ctx := t.Context()
	log, err := event.Open(kv.On(e), event.Options{Name: "log", Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	other, err := event.Open(kv.On(e), event.Options{Name: "lo", Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	asked := func(position uint64) (order int, appends bool) {
		ops := e.batches[len(e.batches)-1]

		return event.Appends("log", position)(iter.Seq[holdfast.Op](func(yield func(holdfast.Op) bool) {
			for _, op := range ops {
				if !yield(op) {
					return
				}
			}
		}))
	}
	for _, n := range []int{1, 3, 200, 1, 2} {
		events := make([]event.Event, n)
		for i := range events {
			events[i] = event.Event{Type: "E", Data: make([]byte, i%7*1000)}
		}
		r, err := log.Append(ctx, events...)
		if err != nil {
			t.Fatal(err)
		}
		first, last := r.First, r.First+uint64(n)-1
		for position := uint64(1); position < last+5; position++ {
			want := 0
			if position < first || position > last {
				want = cmp.Compare(first, position)
			}
			if order, appends := asked(position); !appends || order != want {
				t.Fatalf("%d to %d, asked for %d: %d, %v", first, last, position, order, appends)
			}
		}
		if _, err := other.Append(ctx, events...); err != nil {
			t.Fatal(err)
		}
		if _, appends := asked(first); appends {
			t.Fatal("another log's events are taken for this one's")
		}
	}
	if _, err := log.Remove(ctx, 3, 50, 100); err != nil {
		t.Fatal(err)
	}
	if _, appends := asked(51); appends {
		t.Error("a removal is taken for an append")
	}
	if _, err := log.TruncateBefore(ctx, 20); err != nil {
		t.Fatal(err)
	}
	if _, appends := asked(20); appends {
		t.Error("a truncation is taken for an append")
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
}
