package event_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// benchTargets runs f on every engine at the weakest level it gives: what the store adds
// shows most there.
func benchTargets(b *testing.B, f func(b *testing.B, eng holdfast.Engine, level holdfast.Level)) {
	seen := map[string]bool{}
	storetest.Benchmarks(b, func(b *testing.B, tg *target) {
		if !seen[tg.Entry.Name] {
			seen[tg.Entry.Name] = true
			f(b, tg.Engine, tg.Level)
		}
	})
}

func benchEvents(n int) []event.Event {
	events := make([]event.Event, n)
	for i := range events {
		events[i] = event.Event{Type: "BenchEvent", Data: make([]byte, 128)}
	}
	return events
}

// bare is a loop that gives the engine the bytes of events, one key for each, and nothing else. For a
// single event that is what the store does.
type bare struct {
	batch       holdfast.Batch
	key, record []byte
	pos         uint64
}

func (l *bare) build(n int) {
	if l.key == nil {
		l.key = append([]byte("e\x00e"), make([]byte, 8)...)
		l.record = make([]byte, 9+4+len("BenchEvent")+128)
	}
	l.batch.Reset()
	for range n {
		l.pos++
		binary.BigEndian.PutUint64(l.key[3:], l.pos)
		binary.BigEndian.PutUint64(l.record[1:], uint64(time.Now().UnixNano()))
		l.batch.Set(l.key, l.record)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 100} {
		events := benchEvents(n)
		benchTargets(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
			b.Run(fmt.Sprint(n, "/engine"), func(b *testing.B) {
				b.ReportAllocs()
				var l bare
				for b.Loop() {
					l.build(n)
					if err := holdfast.Commit(eng, &l.batch, level); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run(fmt.Sprint(n, "/store"), func(b *testing.B) {
				b.ReportAllocs()
				s := openLog(b, eng, event.Options{Name: "store", Level: level})
				defer closeLog(b, s)
				for b.Loop() {
					if _, err := s.Append(ctx, events...); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkAppendWithID(b *testing.B) {
	benchTargets(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
		b.ReportAllocs()
		s := openLog(b, eng, event.Options{Level: level})
		defer closeLog(b, s)
		events := benchEvents(1)
		for i := 0; b.Loop(); i++ {
			events[0].ID = fmt.Sprintf("01J%023d", i)
			if _, err := s.Append(ctx, events...); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkOffset saves an offset and loads it.
func BenchmarkOffset(b *testing.B) {
	benchTargets(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
		b.ReportAllocs()
		s := openLog(b, eng, event.Options{Level: level})
		defer closeLog(b, s)
		for b.Loop() {
			if err := s.SaveOffset(ctx, "sub", 0); err != nil {
				b.Fatal(err)
			}
			if _, err := s.LoadOffset(ctx, "sub"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkTransaction appends an event with an id and saves an offset in one transaction.
func BenchmarkTransaction(b *testing.B) {
	benchTargets(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
		b.ReportAllocs()
		db, err := kv.Open(eng, kv.Options{Level: level})
		if err != nil {
			b.Fatal(err)
		}
		s := openLog(b, eng, event.Options{Level: level})
		defer closeLog(b, s)
		events := benchEvents(1)
		for i := 0; b.Loop(); i++ {
			events[0].ID = fmt.Sprintf("01J%023d", i)
			err := db.Update(ctx, func(tx *kv.Tx) error {
				r, err := s.In(tx).Append(events...)
				if err != nil {
					return err
				}
				return s.In(tx).SaveOffset("sub", r.Last)
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRead100 reads 100 events out of 1,000 in order: as the engine's own entries, one for each,
// and from a log to which they were appended together, or one by one.
func BenchmarkRead100(b *testing.B) {
	benchTargets(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
		s := openLog(b, eng, event.Options{Name: "together", Level: level})
		defer closeLog(b, s)
		if _, err := s.Append(ctx, benchEvents(1000)...); err != nil {
			b.Fatal(err)
		}
		single := openLog(b, eng, event.Options{Name: "single", Level: level})
		defer closeLog(b, single)
		var pending event.Pending
		for _, e := range benchEvents(1000) {
			var err error
			if pending, err = single.Submit(ctx, e); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := pending.Wait(); err != nil {
			b.Fatal(err)
		}
		var l bare
		l.build(1000)
		if err := holdfast.Commit(eng, &l.batch, level); err != nil {
			b.Fatal(err)
		}
		bytes := 0
		b.Run("engine", func(b *testing.B) {
			b.ReportAllocs()
			lo, hi := append([]byte("e\x00e"), make([]byte, 8)...), append([]byte("e\x00e"), make([]byte, 8)...)
			lo[10], hi[10] = 1, 101
			for b.Loop() {
				it := eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
				n := 0
				for it.Next() {
					n++
					bytes += len(it.Key()) + len(it.Value())
				}
				if err := it.Close(); err != nil || n != 100 {
					b.Fatal(n, err)
				}
			}
		})
		records := func(b *testing.B, s *event.Store) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for r, err := range s.Records(ctx, 1, 100) {
					if err != nil {
						b.Fatal(err)
					}
					n++
					bytes += len(r.Data)
				}
				if n != 100 {
					b.Fatal(n)
				}
			}
		}
		b.Run("records", func(b *testing.B) { records(b, s) })
		b.Run("single", func(b *testing.B) { records(b, single) })
		b.Run("events", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if events, err := s.Read(ctx, 1, 100); err != nil || len(events) != 100 {
					b.Fatal(err)
				}
			}
		})
	})
}

// The store allocates nothing for an append, nor for an event that is read as a Record.
func TestAllocations(t *testing.T) {
	if storetest.Race {
		t.Skip("the race detector allocates itself")
	}
	s := openLog(t, storetest.Nothing(), event.Options{Level: holdfast.Memory})
	for _, n := range []int{1, 100} {
		events := benchEvents(n)
		if got := storetest.Allocations(1000, func() {
			if _, err := s.Append(ctx, events...); err != nil {
				t.Fatal(err)
			}
		}); got != 0 {
			t.Errorf("an append of %d makes %v allocations", n, got)
		}
	}
	// Nor if the context names a level.
	named, events := holdfast.WithLevel(ctx, holdfast.Memory), benchEvents(1)
	if got := storetest.Allocations(1000, func() {
		if _, err := s.Append(named, events...); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("an append whose context names a level makes %v allocations", got)
	}
	// Nor does the caller for the slice that one event is passed in.
	if got := storetest.Allocations(1000, func() {
		if _, err := s.Append(ctx, event.Event{Type: "one"}); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("an append of a single event makes %v allocations", got)
	}
	closeLog(t, s)

	s = memLog(t)
	appendOK(t, s, benchEvents(5000)...)
	read := func(limit int) float64 {
		return storetest.Allocations(100, func() {
			for _, err := range s.Records(ctx, 1, limit) {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	// Not one more for each of 127 more events of the same page; a busy machine may empty a pool meanwhile.
	if one, more := read(1), read(128); more > one+63 {
		t.Errorf("reading 1 event makes %v allocations, reading 128 makes %v", one, more)
	}
}
