package bench

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// The first study: an event store, by its three benchmarks. It had SQLite through a pure Go driver
// with synchronous=NORMAL, and Pebble with and without Sync, and took the two modes without a sync
// for equally durable.
const (
	eventType   = "BenchEvent"
	eventRing   = 20_000 // distinct events; data is {"index": i}
	eventRead   = 100    // events of one read
	eventStored = 1000   // events there when reading
)

func eventWorkloads() []Workload { return eventStudy(coldFew, coldMany) }

// eventStudy is the table of workloads, with cold reads of few and of many events.
func eventStudy(few, many int) []Workload {
	list := []Workload{
		eventAppend(1, "append one event", map[figure]string{
			{"sqlite-go", holdfast.Process}: "47 us",
			{"pebble", holdfast.Power}:      `4,586 us: "the bug"`,
			{"pebble", holdfast.Memory}:     `1.4 us: "same durability as SQLite"`,
		}),
		eventAppend(100, "append 100 events in one batch", map[figure]string{
			{"sqlite-go", holdfast.Process}: "1.1 ms",
			{"pebble", holdfast.Power}:      "5.42 ms",
			{"pebble", holdfast.Memory}:     "73 us",
		}),
		{
			Name: "event/read-100", About: "read events 1 to 100 out of 1,000, which were appended one by one",
			Unit: "events", Items: eventRead, Reads: true, Filled: "events appended one by one",
			Study: study(map[figure]string{
				{"sqlite-go", 0}: "139 us",
				{"pebble", 0}:    "104 us",
			}),
			Engine: eventReadEngine, Floor: eventReadFloor, Null: eventNull(eventRead),
		},
	}
	const filled = "events appended 1,000 at a time"
	one := eventRandom{events: few, read: 1}

	list = append(list, Workload{
		Name: "event/read-1", Unit: "events", Items: 1, Reads: true, Filled: filled, Overhead: 3 * time.Second,
		About:  "read one of 1,000,000 events of 128 bytes, a random one; they were appended 1,000 at a time",
		Engine: one.engine, Floor: one.floor, Null: one.null,
	})
	for _, c := range coldSizes(few, many) {
		r := eventRandom{events: c.n, read: eventRead}
		list = append(list, Workload{
			Name: "event/cold-read" + c.suffix, Unit: "events", Items: eventRead,
			Reads: true, Cold: true, Filled: filled,
			Overhead: c.overhead,
			About: "read 100 of " + c.about + " events of 128 bytes, from a random one on, with nothing in memory; they were " +
				"appended 1,000 at a time",
			Engine: r.engine, Floor: r.floor, Null: r.null,
		})
	}

	return list
}

func eventAppend(n int, about string, figures map[figure]string) Workload {
	return Workload{
		Name: fmt.Sprintf("event/append-%d", n), About: about, Unit: "events", Items: n, Study: study(figures),
		Engine: func(t Task) (Load, error) { return eventAppendEngine(t, n) },
		Floor:  func(t Task) (Load, error) { return floorAppends(t, n, eventRecord) },
		Null:   eventNull(n),
	}
}

// figure names a measurement of a study; level is 0 for reads.
type figure struct {
	engine string
	level  holdfast.Level
}

// What is said of an engine where a study has no figure.
const (
	notAtLevel = "never measured at this level"
	notInStudy = "not in the study"
)

// study looks figures up, and tells an engine that the study did not have from a level at which it
// was not measured.
func study(figures map[figure]string) func(string, holdfast.Level) string {
	return func(engine string, given holdfast.Level) string {
		if text, ok := figures[figure{engine, given}]; ok {
			return text
		}
		if text, ok := figures[figure{engine, 0}]; ok {
			return text
		}

		for f := range figures {
			if f.engine == engine {
				return notAtLevel
			}
		}

		return notInStudy
	}
}

// eventInputs are all events that a run can append, made before the clock starts. A client takes
// them in turn, from its own place on.
type eventInputs struct {
	events []event.Event
	hashes []uint64
	ends   []int64 // bytes of the events before each, and of all
	seed   maphash.Seed
}

func newEventInputs(n int) *eventInputs {
	in := &eventInputs{seed: maphash.MakeSeed(), events: make([]event.Event, 0, n), hashes: make([]uint64, 0, n),
		ends: []int64{0}}
	for i := range n {
		data := fmt.Appendf(nil, `{"index": %d}`, i)
		in.events = append(in.events, event.Event{Type: eventType, Data: data})
		in.hashes = append(in.hashes, maphash.Bytes(in.seed, data))
		in.ends = append(in.ends, in.ends[i]+int64(len(eventType)+len(data)))
	}

	return in
}

// turns returns a function that gives client i of clients its next batch: the index of the first event.
func (in *eventInputs) turns(i, clients, batch int) func() int {
	batches := len(in.events) / batch
	next := i * batches / clients

	return func() int {
		at := next * batch
		if next++; next == batches {
			next = 0
		}

		return at
	}
}

func eventNull(n int) func(Task) (Load, error) {
	return func(t Task) (Load, error) {
		in, log := newEventInputs(eventRing), newAckSums(manyBuckets)
		var position atomic.Uint64

		return nullLoad(func(i int) func() error {
			turn := in.turns(i, t.Clients, n)

			return func() error {
				at := turn()
				log.add(position.Add(uint64(n))-uint64(n)+1, in.hashes[at:at+n]...)

				return nil
			}
		}, log.count.Load), nil
	}
}

// eventRecord makes the floor's records as large as an event's type and data.
const eventRecord = len(eventType) + len(`{"index": 10000}`) - kvKeySize

func eventReadFloor(t Task) (Load, error) {
	return floorReads(t, eventStored, eventRecord, func(_ int, f *kvFloorReader) func() error {
		return func() error { return f.read(0, eventRead) }
	})
}

// openEventLog opens the store under test.
func openEventLog(t Task) (*table[*event.Store], error) { return openTable(t, openEvents) }

func openEvents(e holdfast.Engine, level holdfast.Level) (*event.Store, func() error, error) {
	store, err := event.Open(kv.On(e), event.Options{Level: level})
	if err != nil {
		return nil, nil, err
	}

	return store, store.Close, nil
}

func eventAppendEngine(t Task, n int) (Load, error) {
	in, acked := newEventInputs(eventRing), newAckSums(manyBuckets)
	log, err := openEventLog(t)
	if err != nil {
		return Load{}, err
	}
	var put atomic.Int64
	load := log.load(
		func(i int) func() error {
			ctx, turn := context.Background(), in.turns(i, t.Clients, n)

			return func() error {
				at := turn()
				result, err := log.store.Append(ctx, in.events[at:at+n]...)
				if err != nil {
					return err
				}
				if result.Last != result.First+uint64(n)-1 {
					return fmt.Errorf("%w: %d events acknowledged at positions %d to %d", ErrWrong, n, result.First, result.Last)
				}
				acked.add(result.First, in.hashes[at:at+n]...)
				put.Add(in.ends[at+n] - in.ends[at])

				return nil
			}
		},
		func(store *event.Store) (int64, int64, error) {
			checked, err := acked.check(store.Last(), t.Seed, func(first, last uint64) ([]uint64, error) {
				return in.readHashes(store, first, last)
			})

			return acked.count.Load(), checked, err
		})
	load.Put = put.Load

	return load, nil
}

// readHashes reads the events from first to last and returns the hashes of their data. It checks
// the types, and that no position is missing.
func (in *eventInputs) readHashes(s *event.Store, first, last uint64) ([]uint64, error) {
	hashes := make([]uint64, 0, last-first+1)
	for r, err := range s.Records(context.Background(), first, int(last-first+1)) {
		if err != nil {
			return hashes, err
		}
		if want := first + uint64(len(hashes)); r.Position != want || string(r.Type) != eventType {
			return hashes, fmt.Errorf("position %d holds event %d of type %q", want, r.Position, r.Type)
		}
		hashes = append(hashes, maphash.Bytes(in.seed, r.Data))
	}

	return hashes, nil
}

func eventReadEngine(t Task) (Load, error) {
	in := newEventInputs(eventStored)
	log, err := openTableLoaded(t, openEvents, func(s *event.Store) error {
		for _, e := range in.events { // one by one: the store keeps what is appended together together
			if _, err := s.Append(context.Background(), e); err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return Load{}, err
	}

	return log.load(
		func(int) func() error {
			return func() error { return in.compare(log.store, 1, eventRead) }
		},
		func(store *event.Store) (int64, int64, error) {
			return eventStored, eventStored, in.compare(store, 1, eventStored)
		}), nil
}

// compare reads n events from position first on, byte for byte, from a log that begins with the
// inputs.
func (in *eventInputs) compare(s *event.Store, first uint64, n int) error {
	at := first
	for r, err := range s.Records(context.Background(), first, n) {
		if err != nil {
			return err
		}
		if r.Position != at || string(r.Type) != eventType || !bytes.Equal(r.Data, in.events[at-1].Data) {
			return fmt.Errorf("%w: position %d holds event %d of type %q: %q", ErrWrong, at, r.Position, r.Type, r.Data)
		}
		at++
	}
	if at != first+uint64(n) {
		return fmt.Errorf("%w: %d events read from position %d, of %d", ErrWrong, at-first, first, n)
	}

	return nil
}
