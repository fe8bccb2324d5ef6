package policy

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var seeds = flag.Int("policy.seeds", 3, "how many seeds the simulation runs for each workload")

// model is a database without bytes: tiers of keys that name segments. Its values are all of one size.
type model struct {
	State
	size    int64 // of a key and its value
	tiers   []modelTier
	log     []Segment // by id, all that are alive
	current Segment   // of the log
	memory  map[int]int
	number  uint32
	fruit   bool // the last compaction has changed something, or something was flushed
	moved   int64
	merged  int64 // entries that compactions have rewritten
}

// modelTier says in which segment the value of each key lies; 0: it is deleted.
type modelTier struct {
	id   uint64
	keys map[int]uint32
}

const entryBytes = 20 // of a table

func newModel(size int64, room int64) *model {
	m := &model{size: size, memory: map[int]int{}, number: 1}
	m.State = State{Sizes: Sizes{Memtable: 16 << 10, Segment: 16 << 10, Table: 8 << 10}, Room: room}
	m.current = Segment{ID: 1}
	return m
}

// put sets a key, or deletes it.
func (m *model) put(key int, deletes bool) {
	if m.current.Used+m.size > m.Segment {
		m.log = append(m.log, m.current)
		m.number++
		m.current = Segment{ID: m.number}
	}
	m.memory[key] = int(m.current.ID)
	if deletes {
		m.memory[key] = 0
	} else {
		m.current.Used += m.size
		m.current.Payload += m.size
	}
	if int64(len(m.memory))*m.size >= m.Memtable {
		m.flush()
	}
}

// flush makes a tier of the memtable, in which a segment of the log ends.
func (m *model) flush() {
	m.log = append(m.log, m.current)
	m.number++
	m.current = Segment{ID: m.number}
	keys, replaced := map[int]uint32{}, int64(0)
	for k, id := range m.memory {
		keys[k] = uint32(id)
		if slices.ContainsFunc(m.tiers, func(t modelTier) bool { _, has := t.keys[k]; return has }) {
			replaced++
		}
	}
	m.Replaced = Replaced(m.Replaced, int64(len(keys)), replaced)
	id := uint64(1)
	if len(m.tiers) > 0 {
		id = m.tiers[0].id + 1
	}
	m.tiers = slices.Insert(m.tiers, 0, modelTier{id, keys})
	clear(m.memory)
	m.fruit = true
}

// count makes the numbers for a decision, and drops segments that nothing names.
func (m *model) count() {
	live := map[uint32]int64{}
	m.Tiers = nil
	for _, t := range m.tiers {
		n := Tier{ID: t.id, FileBytes: entryBytes * int64(len(t.keys))}
		for _, id := range t.keys {
			if id == 0 {
				n.Tombstones++
				continue
			}
			n.Values += m.size
			n.Entries++
			live[id] += m.size
		}
		m.Tiers = append(m.Tiers, n)
	}
	m.log = slices.DeleteFunc(m.log, func(s Segment) bool { return live[s.ID] == 0 })
	m.Segments = slices.Clone(m.log)
	for i := range m.Segments {
		m.Segments[i].Live = live[m.Segments[i].ID]
	}
}

// compact does what Pick says. A sweep is done as one step, and takes in the moved segments that Takes says.
func (m *model) compact(c Compaction) error {
	victims := map[uint32]bool{}
	for _, id := range c.Victims {
		i := slices.IndexFunc(m.Segments, func(s Segment) bool { return s.ID == id })
		if i < 0 || m.Segments[i].Damaged || victims[id] {
			return fmt.Errorf("segment %d is emptied: it is not there, damaged, or named twice", id)
		}
		victims[id] = true
	}
	if len(victims) > 0 && (c.Oldest != m.tiers[len(m.tiers)-1].id || c.Newest != m.tiers[0].id) {
		return fmt.Errorf("segments are emptied, and not all tiers take part: %+v", c)
	}
	if c.Reason == Sweep {
		share, _ := newer(m.Tiers)
		for i := range m.Segments {
			if s := &m.Segments[i]; s.Moved && Takes(s, share, m.Replaced) {
				victims[s.ID] = true
			}
		}
	}

	// The newest tier that takes part and has a key is right about it.
	all, tiers := map[int]uint32{}, []modelTier{}
	before := 0
	for _, t := range slices.Backward(m.tiers) {
		if t.id < c.Oldest || t.id > c.Newest {
			continue
		}
		before++
		maps.Copy(all, t.keys)
	}
	bottom := c.Oldest == m.tiers[len(m.tiers)-1].id
	moved := int64(0)
	var into *Segment
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if all[k] == 0 && bottom {
			delete(all, k)
		} else if victims[all[k]] {
			if into == nil || into.Used+m.size > m.Segment {
				m.number++
				m.log = append(m.log, Segment{ID: m.number, Moved: true})
				into = &m.log[len(m.log)-1]
			}
			into.Used += m.size
			into.Payload += m.size
			all[k] = into.ID
			moved += m.size
		}
	}
	if c.Reason != Sweep && moved > m.Room {
		return fmt.Errorf("%d bytes are moved, and there is room for %d: %+v", moved, m.Room, c)
	}
	done := false
	for _, t := range m.tiers {
		switch {
		case t.id < c.Oldest || t.id > c.Newest:
			tiers = append(tiers, t)
		case !done && len(all) > 0:
			tiers, done = append(tiers, modelTier{c.Oldest, all}), true
		}
	}
	m.tiers = tiers
	m.merged += int64(len(all))
	m.moved += moved
	m.fruit = before > 1 || len(victims) > 0
	return nil
}

// work compacts until nothing is due.
func (m *model) work(seen map[Reason]int) error {
	for n := 0; ; n++ {
		m.count()
		c, due := Pick(&m.State)
		if !due {
			return nil
		}
		if !m.fruit {
			return nil // package db does not ask again about what had nothing to do
		}
		if n > 100 {
			return fmt.Errorf("there is no end: %+v", c)
		}
		seen[c.Reason]++
		if err := m.compact(c); err != nil {
			return err
		}
	}
}

// used is how long the segments are that tables name, and alive what a reader sees in them.
func (m *model) used() (used, alive int64) {
	for _, s := range m.log {
		used += s.Used
	}
	all := map[int]uint32{}
	for _, t := range slices.Backward(m.tiers) {
		maps.Copy(all, t.keys)
	}
	for _, id := range all {
		if id != 0 {
			alive += m.size
		}
	}
	return used, alive
}

// TestSimulate runs workloads on a model: each compaction that is picked can be done, there is an end, tiers stay few,
// space stays bounded, and not much is written for that. Each seed is the same history every time.
func TestSimulate(t *testing.T) {
	const keys = 1000
	seen := map[Reason]int{}
	for _, w := range []struct {
		name   string
		size   int64
		next   func(r *rand.Rand, i int) (key int, deletes bool)
		space  float64 // of what is alive, over two segments: so much garbage is not worth the work
		merged float64 // entries rewritten for each that was put
		moved  float64 // bytes moved for each that was put
	}{
		{"small values, anywhere", 100, func(r *rand.Rand, _ int) (int, bool) { return r.IntN(keys), false }, 1.2, 4, 3},
		{"large values, anywhere", 1000, func(r *rand.Rand, _ int) (int, bool) { return r.IntN(keys), false }, 1.6, 15, 1.1},
		{"small values, few often", 100, func(r *rand.Rand, i int) (int, bool) {
			if i < keys {
				return i, false
			}
			return int(math.Pow(r.Float64(), 8) * keys), false
		}, 1.2, 3, 2.2},
		{"ascending", 200, func(_ *rand.Rand, i int) (int, bool) { return i, false }, 1, 8, 0},
		{"queue", 300, func(_ *rand.Rand, i int) (int, bool) {
			if i%2 == 1 && i > 2*keys {
				return i/2 - keys, true
			}
			return i / 2, false
		}, 1.2, 5, 0.3},
		{"set and deleted", 600, func(r *rand.Rand, _ int) (int, bool) { return r.IntN(keys), r.IntN(2) == 0 }, 1.4, 11, 0.7},
	} {
		worst, merged, moved := 0.0, 0.0, 0.0
		for seed := range *seeds {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			m := newModel(w.size, math.MaxInt64)
			const puts = 12 * keys
			for i := range puts {
				m.put(w.next(r, i))
				if !m.fruit {
					continue
				}
				if err := m.work(seen); err != nil {
					t.Fatalf("%s, seed %d, put %d: %v", w.name, seed, i, err)
				}
				m.fruit = false
				used, alive := m.used()
				if i > 2*keys {
					worst = max(worst, float64(used-2*m.Segment)/float64(alive))
				}
				if n := len(m.tiers); n > 4*MinTiers {
					t.Fatalf("%s, seed %d, put %d: %d tiers", w.name, seed, i, n)
				}
			}
			merged = max(merged, float64(m.merged)/puts)
			moved = max(moved, float64(m.moved)/float64(puts*w.size))
		}
		t.Logf("%s: at most %.2f times what is alive; %.1f entries rewritten and %.2f bytes moved for each put",
			w.name, worst, merged, moved)
		if worst > w.space || merged > w.merged || moved > w.moved {
			t.Errorf("%s: more than %.2f, %.1f, %.2f", w.name, w.space, w.merged, w.moved)
		}
	}
	t.Log(seen)
	for _, reason := range []Reason{Sweep, EmptySegments, NewerTiers, LikeSizes} {
		if seen[reason] == 0 {
			t.Errorf("%v was never a reason: this tests little", reason)
		}
	}
}

// TestSimulateWithoutRoom: with room for little, and the log waiting, something is always given back as long as there
// is garbage that can be moved.
func TestSimulateWithoutRoom(t *testing.T) {
	const keys = 700
	for seed := range *seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		m := newModel(1000, 32<<10)
		m.Urgent = true
		seen := map[Reason]int{}
		for i := range 4 * keys {
			m.put(r.IntN(keys), false)
			if !m.fruit {
				continue
			}
			if err := m.work(seen); err != nil {
				t.Fatalf("seed %d, put %d: %v", seed, i, err)
			}
			m.fruit = false
			if len(m.tiers) > 1 {
				t.Fatalf("seed %d, put %d: %d tiers: not all garbage is known", seed, i, len(m.tiers))
			}
			for _, s := range m.Segments {
				if g := s.garbage(); g*worthOneUrgent >= s.Used && s.Used-g <= m.Room && s.ID < m.current.ID {
					t.Fatalf("seed %d, put %d: segment %d has %d bytes of garbage of %d and stays", seed, i, s.ID, g, s.Used)
				}
			}
		}
		if seen[MakeRoom] == 0 || seen[EmptySegments] == 0 {
			t.Errorf("seed %d: %v: this tests little", seed, seen)
		}
	}
}
