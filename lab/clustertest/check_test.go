package clustertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfastdb/holdfast/store/event"
)

// outcome is what a client knows of its append.
type outcome int

const (
	acked   outcome = iota + 1 // done, at pos
	unknown                    // perhaps done, perhaps to be done yet
	refused                    // not done
)

// op is an append or a read as a client saw it. Times are in nanoseconds since the beginning.
type op struct {
	client    int
	call, ret int64

	// An append.
	id      string
	outcome outcome
	pos     uint64

	// A read, where id is empty: the length, and the event at one position unless it was 0.
	last, at uint64
	seen     string
}

// check finds out whether replicas, the events of each node at the end, are what clients were told.
func check(history []op, replicas map[string][]event.Event) error {
	var names []string
	for name := range replicas {
		names = append(names, name)
	}
	slices.Sort(names)
	first := replicas[names[0]]
	at := map[string]uint64{}
	index := uint64(0)
	for i, e := range first {
		if e.Position != uint64(i)+1 {
			return fmt.Errorf("%s: position %d follows %d events", names[0], e.Position, i)
		}
		if was := at[e.ID]; was != 0 {
			return fmt.Errorf("%s: event %q is at positions %d and %d", names[0], e.ID, was, e.Position)
		}
		at[e.ID] = e.Position
		if want := eventOf(e.ID); e.Type != want.Type || !bytes.Equal(e.Data, want.Data) || len(e.Metadata) != 8 {
			return fmt.Errorf("%s: event %q at position %d is not what was appended", names[0], e.ID, e.Position)
		}
		was := index
		if index = binary.BigEndian.Uint64(e.Metadata); index <= was {
			return fmt.Errorf("%s: raft index %d at position %d follows %d", names[0], index, e.Position, was)
		}
	}
	for _, name := range names[1:] {
		other := replicas[name]
		for i := range min(len(first), len(other)) {
			if !same(first[i], other[i]) {
				return fmt.Errorf("position %d differs: %q on %s, %q on %s", i+1, first[i].ID, names[0], other[i].ID, name)
			}
		}
		if len(first) != len(other) {
			return fmt.Errorf("%d events on %s, %d on %s", len(first), names[0], len(other), name)
		}
	}

	called := map[string]bool{}
	for _, o := range history {
		if o.id == "" {
			if o.last > uint64(len(first)) {
				return fmt.Errorf("a read saw %d events, there are %d", o.last, len(first))
			}
			if o.at != 0 && first[o.at-1].ID != o.seen {
				return fmt.Errorf("a read saw %q at position %d, where %q is", o.seen, o.at, first[o.at-1].ID)
			}
			continue
		}
		called[o.id] = true
		switch is := at[o.id]; {
		case o.outcome == acked && is == 0:
			return fmt.Errorf("lost: %q was acknowledged at position %d", o.id, o.pos)
		case o.outcome == acked && is != o.pos:
			return fmt.Errorf("moved: %q was acknowledged at position %d and is at %d", o.id, o.pos, is)
		case o.outcome == refused && is != 0:
			return fmt.Errorf("%q was refused and is at position %d", o.id, is)
		}
	}
	for id, pos := range at {
		if !called[id] {
			return fmt.Errorf("%q, at position %d, was never appended", id, pos)
		}
	}
	return linearizable(history, at)
}

func same(a, b event.Event) bool {
	return a.Position == b.Position && a.Time.Equal(b.Time) && a.Type == b.Type && a.ID == b.ID && a.Origin == b.Origin &&
		bytes.Equal(a.Metadata, b.Metadata) && bytes.Equal(a.Data, b.Data)
}

// linearizable looks for an order of all operations that agrees with their times and with the
// positions at the end. These say where an append took effect whose outcome its client never learned, and so
// the log's length is state enough. What is read of an event has been compared with the end.
func linearizable(history []op, at map[string]uint64) error {
	var ops []porcupine.Operation
	for _, o := range history {
		if o.id != "" {
			if o.pos = at[o.id]; o.pos == 0 {
				continue // it never took effect
			}
			if o.outcome == unknown {
				o.ret = math.MaxInt64
			}
		}
		ops = append(ops, porcupine.Operation{ClientId: o.client, Input: o, Call: o.call, Return: o.ret})
	}
	model := porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			length, o := state.(uint64), input.(op)
			if o.id != "" {
				return o.pos == length+1, o.pos
			}
			return o.last == length, length
		},
	}
	switch porcupine.CheckOperationsTimeout(model, ops, 2*time.Minute) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%d operations could not be checked within two minutes", len(ops))
	}
	return fmt.Errorf("not linearizable: no order of %d operations explains what they returned", len(ops))
}

// TestChecker shows what check finds: every kind of history that must not be, and none in one that
// may.
func TestChecker(t *testing.T) {
	events := func(ids ...string) []event.Event {
		var list []event.Event
		for i, id := range ids {
			e := eventOf(id)
			e.Position, e.Time = uint64(i)+1, time.Unix(1, int64(i))
			e.Metadata = binary.BigEndian.AppendUint64(nil, uint64(i)*2+3)
			list = append(list, e)
		}
		return list
	}
	all := func(ids ...string) [3][]event.Event {
		return [3][]event.Event{events(ids...), events(ids...), events(ids...)}
	}
	// changed is "a" and "b" everywhere, but for "b" on one node.
	changed := func(node int, change func(b *event.Event)) [3][]event.Event {
		nodes := all("a", "b")
		change(&nodes[node][1])
		return nodes
	}
	put := func(id string, call, ret int64, o outcome, pos uint64) op {
		return op{client: 1, id: id, call: call, ret: ret, outcome: o, pos: pos}
	}
	get := func(call, ret int64, last, at uint64, seen string) op {
		return op{client: 2, call: call, ret: ret, last: last, at: at, seen: seen}
	}
	ab := []op{put("a", 1, 2, acked, 1), put("b", 3, 4, acked, 2)}
	with := func(more ...op) []op { return append(more, ab...) }
	for _, c := range []struct {
		name    string
		history []op
		nodes   [3][]event.Event
		want    string // part of the error
	}{
		{"good", with(get(0, 0, 0, 0, ""), get(5, 6, 2, 1, "a"), get(1, 4, 1, 1, "a")), all("a", "b"), ""},
		{"unknown, not there", with(put("c", 1, 2, unknown, 0)), all("a", "b"), ""},
		{"unknown, there, later", with(put("c", 1, 2, unknown, 0)), all("a", "b", "c"), ""},
		{"unknown, before its call", with(put("c", 5, 6, unknown, 0)), all("c", "a", "b"), "moved"},
		{"unknown, between", []op{put("a", 1, 2, acked, 1), put("b", 3, 4, acked, 3), put("c", 5, 6, unknown, 0)},
			all("a", "c", "b"), "not linearizable"},
		{"lost", ab, all("a"), "lost"},
		{"lost, all", ab, [3][]event.Event{}, "lost"},
		{"lost on one node", ab, [3][]event.Event{events("a", "b"), events("a", "b"), events("a")}, "2 events on a, 1 on c"},
		{"replaced", with(put("c", 5, 6, unknown, 0)), all("a", "c"), "lost"},
		{"twice", ab, all("a", "b", "a"), "positions 1 and 3"},
		{"another order on one node", ab, [3][]event.Event{events("a", "b"), events("b", "a"), events("a", "b")},
			"position 1 differs"},
		{"another time on one node", ab, changed(2, func(b *event.Event) { b.Time = b.Time.Add(1) }), "position 2 differs"},
		{"another data on one node", ab, changed(2, func(b *event.Event) { b.Data = []byte("x") }), "position 2 differs"},
		{"damaged on all", ab, changed(0, func(b *event.Event) { b.Data = []byte("x") }), "not what was appended"},
		{"a gap", ab, changed(0, func(b *event.Event) { b.Position = 3 }), "position 3 follows 1"},
		{"an old raft index", ab, changed(0, func(b *event.Event) { b.Metadata = make([]byte, 8) }), "raft index 0"},
		{"refused, there", with(put("c", 1, 2, refused, 0)), all("a", "b", "c"), "was refused"},
		{"never appended", ab, all("a", "b", "c"), "was never appended"},
		{"against time", []op{put("a", 5, 6, acked, 1), put("b", 3, 4, acked, 2)}, all("a", "b"), "not linearizable"},
		{"moved", []op{put("a", 1, 2, acked, 1), put("b", 3, 4, acked, 3)}, all("a", "b"), "moved"},
		{"stale read", with(get(5, 6, 1, 1, "a")), all("a", "b"), "not linearizable"},
		{"read of the future", with(get(0, 2, 2, 1, "a")), all("a", "b"), "not linearizable"},
		{"read of what is lost", with(get(5, 6, 3, 0, "")), all("a", "b"), "a read saw 3 events"},
		{"read of what was replaced", with(get(5, 6, 2, 2, "c")), all("a", "b"), `a read saw "c"`},
	} {
		err := check(c.history, map[string][]event.Event{"a": c.nodes[0], "b": c.nodes[1], "c": c.nodes[2]})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}
