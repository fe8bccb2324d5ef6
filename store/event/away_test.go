package event_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/event"
)

// TestServerGoesAway: a server that goes away in the middle of a scan, and comes back, is nothing that readers and
// followers notice.
func TestServerGoesAway(t *testing.T) {
	eng := &storetest.Away{Engine: mem.New(), After: 3}
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	storetest.CloseAtEnd(t, s)
	const events = 300
	for i := range events {
		appendOK(t, s, event.Event{Type: fmt.Sprint(i)})
	}

	eng.On.Store(true)
	n := uint64(0)
	for e, err := range s.Events(ctx, 1, 0) {
		if n++; err != nil || e.Position != n {
			t.Fatalf("event %d: %+v, %v", n, e, err)
		}
	}
	if n != events || eng.Lost.Load() == 0 {
		t.Errorf("%d events, %d scans were cut off", n, eng.Lost.Load())
	}

	n = 0
	following, stop := context.WithCancel(ctx)
	defer stop()
	for e, err := range s.Follow(following, 1) {
		if errors.Is(err, context.Canceled) {
			break
		}
		if n++; err != nil || e.Position != n {
			t.Fatalf("event %d: %+v, %v", n, e, err)
		}
		if n == events {
			stop()
		}
	}
}
