package main

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

func newMachine(t *testing.T) *machine {
	t.Helper()
	engine, err := logtree.Open(t.TempDir(), holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := event.Open(kv.On(engine), event.Options{Level: holdfast.Process})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := events.Close(); err != nil {
			t.Error(err)
		}
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return &machine{engine: engine, events: events}
}

// apply applies the entries from index first to last; every third is none of the machine's.
func apply(m *machine, first, last uint64) {
	for i := first; i <= last; i++ {
		if i%3 != 0 {
			m.Apply(&raft.Log{Index: i, Data: fmt.Append(nil, "entry ", i), AppendedAt: time.Unix(int64(i), 1)})
		}
	}
}

// take returns the contents of a snapshot of m; later entries up to last are applied between Snapshot
// and Persist.
func take(t *testing.T, m *machine, last uint64) func() io.ReadCloser {
	t.Helper()
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	apply(m, m.applied+1, last)
	store := raft.NewInmemSnapshotStore()
	_, transport := raft.NewInmemTransport("")
	sink, err := store.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, transport)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Persist(sink); err != nil {
		t.Fatal(err)
	}
	return func() io.ReadCloser {
		_, from, err := store.Open(sink.ID())
		if err != nil {
			t.Fatal(err)
		}
		return from
	}
}

// want checks that m has the events of entries up to last.
func want(t *testing.T, m *machine, last uint64) {
	t.Helper()
	list, err := m.events.Read(context.Background(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := uint64(1); i <= last; i++ {
		if i%3 == 0 {
			continue
		}
		if n == len(list) {
			t.Fatalf("%d events, entry %d is missing", n, i)
		}
		if e := list[n]; string(e.Data) != fmt.Sprint("entry ", i) || index(e) != i || !e.Time.Equal(time.Unix(int64(i), 1)) {
			t.Fatalf("entry %d is %+v", i, e)
		}
		n++
	}
	if n != len(list) {
		t.Fatalf("%d events, want %d", len(list), n)
	}
}

// TestRestore restores snapshots that are newer than the machine, older, and empty, and applies
// again what it has.
func TestRestore(t *testing.T) {
	m := newMachine(t)
	empty := take(t, m, 20)
	older := take(t, m, 40)
	newer := take(t, m, 50)
	want(t, m, 50)

	fresh := newMachine(t)
	for _, step := range []struct {
		from func() io.ReadCloser
		last uint64
	}{{empty, 0}, {older, 20}, {newer, 40}, {older, 40}, {empty, 40}, {newer, 40}} {
		if err := fresh.Restore(step.from()); err != nil {
			t.Fatal(err)
		}
		want(t, fresh, step.last)
	}
	apply(fresh, 21, 50)
	want(t, fresh, 50)
	apply(fresh, 1, 50)
	want(t, fresh, 50)
}
