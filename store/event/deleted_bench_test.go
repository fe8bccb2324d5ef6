package event_test

import (
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
)

// deletedEvents is how many events, each an entry of its own, are deleted before what follows is measured.
const deletedEvents = 200_000

// submitAll appends n events one by one and waits for the last.
func submitAll(b *testing.B, s *event.Store, n int, e event.Event) {
	b.Helper()
	var last event.Pending
	for i := range n {
		var err error
		if e.ID != "" {
			e.ID = fmt.Sprintf("01J%023d", i)
		}
		if last, err = s.Submit(ctx, e); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := last.Wait(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkAfterTruncation opens a log of which everything but its last events was truncated, and truncates one event
// more. What either takes must not depend on how much was deleted. -benchtime=20x is enough.
func BenchmarkAfterTruncation(b *testing.B) {
	benchTargets(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
		s := openLog(b, eng, event.Options{Level: level})
		e := benchEvents(1)[0]
		submitAll(b, s, deletedEvents, e)
		truncate := func(before uint64) {
			if _, err := s.TruncateBefore(ctx, before); err != nil {
				b.Fatal(err)
			}
		}
		truncate(s.Last() + 1)
		for left := range 3 {
			if left > 0 {
				appendOK(b, s, e)
			}
			b.Run(fmt.Sprint("open/", left), func(b *testing.B) {
				for b.Loop() {
					closeLog(b, s)
					s = openLog(b, eng, event.Options{Level: level})
				}
			})
		}
		b.Run("one", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				appendOK(b, s, e)
				b.StartTimer()
				truncate(s.First() + 1)
			}
		})
		closeLog(b, s)
	})
}

// BenchmarkSmallIDWindow appends events with ids, 20,000 an iteration, to a log that forgets ids soon.
func BenchmarkSmallIDWindow(b *testing.B) {
	benchTargets(b, func(b *testing.B, eng holdfast.Engine, level holdfast.Level) {
		s := openLog(b, eng, event.Options{Level: level, IDWindow: 16})
		for b.Loop() {
			submitAll(b, s, 20_000, event.Event{Type: "t", ID: "x"})
		}
		closeLog(b, s)
	})
}
