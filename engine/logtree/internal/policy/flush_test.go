package policy

import "testing"

// TestOrders: values are written in the order of their keys where keys are scattered, values small, nothing else puts
// them in order, and there is room.
func TestOrders(t *testing.T) {
	const full = 8 << 20
	scattered := func(change func(m *Memtable)) Memtable {
		m := Memtable{Bytes: full / 2, Keys: 32 << 10, Ascending: 16 << 10}
		if change != nil {
			change(&m)
		}

		return m
	}
	for _, x := range []struct {
		name string
		m    Memtable
		free int64
		want bool
	}{
		{"scattered", scattered(nil), 1 << 40, true},
		{"ascending", scattered(func(m *Memtable) { m.Ascending = m.Keys }), 1 << 40, false},
		{"two of three ascend", scattered(func(m *Memtable) { m.Ascending = m.Keys * 5 / 6 }), 1 << 40, false},
		{"one of three ascends", scattered(func(m *Memtable) { m.Ascending = m.Keys * 2 / 3 }), 1 << 40, true},
		{"descending", scattered(func(m *Memtable) { m.Ascending = 1 }), 1 << 40, true},
		{"long values", scattered(func(m *Memtable) { m.Keys, m.Ascending = 2<<10, 1<<10 }), 1 << 40, false},
		{"overwritten in the memtable", scattered(func(m *Memtable) { m.Keys, m.Ascending = 10, 5 }), 1 << 40, false},
		{"large values too", scattered(func(m *Memtable) { m.Large = full / 4 }), 1 << 40, false},
		{"a few large values", scattered(func(m *Memtable) { m.Large = full / 16 }), 1 << 40, true},
		{"little in it", scattered(func(m *Memtable) { m.Bytes = full / 8 }), 1 << 40, false},
		{"replaced", scattered(func(m *Memtable) { m.Replaced = 0.06 }), 1 << 40, false},
		{"hardly replaced", scattered(func(m *Memtable) { m.Replaced = 0.04 }), 1 << 40, true},
		{"the log waits for room", scattered(func(m *Memtable) { m.Urgent = true }), 1 << 40, false},
		{"a small disk", scattered(nil), full, false},
		{"no keys", Memtable{Bytes: full}, 1 << 40, false},
	} {
		z := Sizes{Memtable: full}
		if got := z.MayOrder(&x.m, x.free) && x.m.Orders(); got != x.want {
			t.Errorf("%s: %v", x.name, got)
		}
	}
}

// TestSweepTakesFlushed: to a sweep, what a flush has moved is as the log: it holds keys from anywhere, and takes room
// until the sweep has come to its end.
func TestSweepTakesFlushed(t *testing.T) {
	s := State{Sizes: sizes, Room: 1 << 40, Replaced: 1, Tiers: []Tier{
		{ID: 2, Values: 20 << 20, Entries: 200 << 10}, {ID: 1, Values: 100 << 20, Entries: 1 << 20}}}
	for id := range uint32(10) {
		s.Segments = append(s.Segments, Segment{ID: id + 1, Moved: true, Flushed: true, Used: 10 << 20,
			Payload: 10 << 20, Live: 9 << 20})
	}
	if c, due := Pick(&s); !due || c.Reason != Sweep || len(c.Victims) != 3 {
		t.Errorf("%v, %+v: 30 of 100 MiB may be moved at a time", due, c)
	}
}
