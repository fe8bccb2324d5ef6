package projection_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/projection"
)

// BenchmarkCatchUp makes views of a log: one that counts in a few keys, and one with a key for each event.
func BenchmarkCatchUp(b *testing.B) {
	const events = 20_000
	engine, err := logtree.Open(b.TempDir(), holdfast.Options{})
	fatal(b)(err)
	defer storetest.Close(b, engine)
	log, err := event.Open(kv.On(engine), event.Options{Level: holdfast.Process})
	fatal(b)(err)
	defer storetest.Close(b, log)
	batch := make([]event.Event, 1000)
	for i := range batch {
		batch[i] = event.Event{Type: fmt.Sprint("type-", i%100), Data: make([]byte, 100)}
	}
	for range events / len(batch) {
		_, err := log.Append(ctx, batch...)
		fatal(b)(err)
	}
	for name, apply := range map[string]func(view *kv.Bucket, e event.Event) error{
		"counters": func(view *kv.Bucket, e event.Event) error {
			n, err := projection.Get[int](view, e.Type)
			if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
				return err
			}
			return projection.Set(view, e.Type, n+1)
		},
		"rows": func(view *kv.Bucket, e event.Event) error {
			return view.Put(fmt.Appendf(nil, "%08d", e.Position), e.Data)
		},
	} {
		b.Run(name, func(b *testing.B) {
			p, err := projection.New(projection.Events(log), projection.Options{Name: name}, apply)
			fatal(b)(err)
			for b.Loop() {
				fatal(b)(errors.Join(p.Rebuild(ctx), p.CatchUp(ctx)))
			}
			b.ReportMetric(events*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
