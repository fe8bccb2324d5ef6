package all_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestCloseUnderStores: an engine that is closed before the stores in it says so and names them, closes all the same,
// and keeps what was applied. The stores then answer ErrClosed, and can be closed.
func TestCloseUnderStores(t *testing.T) {
	for _, entry := range all.Engines() {
		level := entry.Describe().Strongest()
		if level == 0 || !entry.Describe().AtomicBatches {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			dir := ""
			if level > holdfast.Memory {
				dir = t.TempDir()
			}
			e, err := entry.Open(dir, holdfast.Options{})
			try(t, err)
			watched := metrics.Watch(e) // passes on who opens stores in it
			events, err := event.Open(watched, event.Options{Name: "orders", Level: level})
			try(t, err)
			tasks, err := task.Open(e, task.Options{Name: "mail", Level: level})
			try(t, err)
			messages, err := message.Open(e, message.Options{Level: level})
			try(t, err)
			raft, err := raftlog.Open(e, raftlog.Options{Level: level})
			try(t, err)
			closed, err := event.Open(e, event.Options{Name: "closed", Level: level})
			try(t, err)
			try(t, closed.Close())
			_, err = events.Submit(t.Context(), event.Event{Type: "made"}) // nobody waits for it
			try(t, err)

			err = watched.Close()
			for errors.Is(err, holdfast.ErrBusy) { // a store reads in the background
				if !strings.Contains(err.Error(), `event log "orders"`) {
					t.Fatalf("no store in: %v", err)
				}
				err = watched.Close()
			}
			if !errors.Is(err, holdfast.ErrStoresOpen) {
				t.Errorf("Close: %v, want ErrStoresOpen", err)
			}
			for _, name := range []string{`event log "orders"`, `task store "mail"`, "message store", "raftlog store"} {
				if err != nil && !strings.Contains(err.Error(), name) {
					t.Errorf("no %s in: %v", name, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), `"closed"`) {
				t.Errorf("a store that was closed is named: %v", err)
			}
			if _, err := events.Append(t.Context(), event.Event{Type: "made"}); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("Append: %v, want ErrClosed", err)
			}
			if _, err := tasks.Enqueue(t.Context(), task.Spec{Kind: "k", Queue: "q"}); !errors.Is(err, holdfast.ErrClosed) {
				t.Errorf("Enqueue: %v, want ErrClosed", err)
			}
			for _, s := range []interface{ Close() error }{events, tasks, messages, raft} {
				if err := s.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
					t.Errorf("Close of %T: %v", s, err)
				}
			}
			if level == holdfast.Memory {
				return
			}

			// In order, and with all that was applied.
			e, err = entry.Open(dir, holdfast.Options{})
			try(t, err)
			events, err = event.Open(e, event.Options{Name: "orders"})
			try(t, err)
			if last := events.Last(); last != 1 {
				t.Errorf("the last event is %d, want 1", last)
			}
			try(t, events.Close())
			try(t, e.Close())
		})
	}
}
