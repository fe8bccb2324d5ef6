package bench

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/holdfastdb/holdfast/store/event"
)

// eventRandom is reads of some events, from any on, of all that are there. The data of the one at position p is the
// value of key p-1.
type eventRandom struct{ events, read int }

// eventPreload is how many events one append of the preload has.
const eventPreload = 1000

// client is client i, which has read to read n events and compare them; they count from 0.
func (r eventRandom) client(t Task, i int, read func(first uint32, n int) error) func() error {
	random := rand.New(rand.NewPCG(t.Seed, uint64(i)))
	n := min(r.read, r.events)

	return func() error { return read(uint32(random.IntN(r.events-n+1)), n) }
}

func (r eventRandom) engine(t Task) (Load, error) {
	values := newKVValues(kvMoreValue, t.Seed)
	log, err := openTableLoaded(t, openEvents, func(s *event.Store) error { return r.fill(s, values) })
	if err != nil {
		return Load{}, err
	}

	return log.load(
		func(i int) func() error {
			return r.client(t, i, func(first uint32, n int) error { return compareValues(log.store, values, first, n) })
		},
		func(store *event.Store) (int64, int64, error) {
			return int64(r.events), int64(r.events), compareValues(store, values, 0, r.events)
		}), nil
}

func (r eventRandom) fill(s *event.Store, values kvValues) error {
	batch := make([]event.Event, min(eventPreload, r.events))
	for i := range batch {
		batch[i] = event.Event{Type: eventType, Data: values.lay(make([]byte, values.size))}
	}

	for at := 0; at < r.events; at += len(batch) {
		batch = batch[:min(len(batch), r.events-at)]
		for i := range batch {
			values.fill(batch[i].Data, uint32(at+i), 0)
		}
		if _, err := s.Append(context.Background(), batch...); err != nil {
			return err
		}
	}

	return nil
}

// compareValues reads n events, the first of which counts from 0, and compares them.
func compareValues(s *event.Store, values kvValues, first uint32, n int) error {
	at := first
	for r, err := range s.Records(context.Background(), uint64(first)+1, n) {
		if err != nil {
			return err
		}
		if r.Position != uint64(at)+1 || string(r.Type) != eventType {
			return fmt.Errorf("%w: position %d holds event %d of type %q", ErrWrong, at+1, r.Position, r.Type)
		}
		if err := values.check(r.Data, at, 0); err != nil {
			return err
		}
		at++
	}
	if got := int(at - first); got != n {
		return fmt.Errorf("%w: %d events read from position %d, of %d", ErrWrong, got, first+1, n)
	}

	return nil
}

func (r eventRandom) floor(t Task) (Load, error) {
	return floorReads(t, r.events, kvMoreValue, func(i int, f *kvFloorReader) func() error {
		return r.client(t, i, f.scan)
	})
}

func (r eventRandom) null(t Task) (Load, error) {
	n := newKVNull(t, r.events, kvMoreValue)
	return n.load(func(i int) func() error { return r.client(t, i, n.scan) }), nil
}
