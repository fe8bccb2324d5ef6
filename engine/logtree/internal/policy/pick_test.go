package policy

import (
	"math"
	"reflect"
	"slices"
	"testing"
)

// sizes are those of the tests: least garbage is 1 MiB.
var sizes = Sizes{Memtable: 8 << 20, Segment: 4 << 20, Table: 1 << 20}

// tiers makes tiers, newest first, of files of so many bytes each. They name values of 1,000 bytes, 1 MiB of them in
// the oldest and none in the others.
func tiers(files ...int64) (all []Tier) {
	for i, n := range files {
		all = append(all, Tier{ID: uint64(len(files) - i), FileBytes: n})
	}
	if n := len(all); n > 0 {
		all[n-1].Values, all[n-1].Entries = 1<<20, 1<<20/1000
	}
	return all
}

// logSegments makes segments of the log of 4 MiB each with so much garbage in percent.
func logSegments(garbage ...int64) (all []Segment) {
	for i, n := range garbage {
		all = append(all, Segment{ID: uint32(i + 1), Used: 4 << 20, Payload: 4_000_000, Live: 4_000_000 * (100 - n) / 100})
	}
	return all
}

// TestPick: one row for each rule, on both sides of its bound.
func TestPick(t *testing.T) {
	small := func(s *State) { // keys and values of 100 bytes
		last := &s.Tiers[len(s.Tiers)-1]
		last.Values, last.Entries, s.Replaced = 10_000_000, 100_000, 0.5
	}
	for _, x := range []struct {
		name    string
		tiers   []Tier
		segs    []Segment
		change  func(*State)
		reason  Reason // 0: nothing is due
		oldest  uint64
		newest  uint64
		victims []uint32
	}{
		{name: "nothing is there"},
		{name: "one tier", tiers: tiers(100), segs: logSegments(0, 0)},
		{name: "three of like size", tiers: tiers(100, 100, 100)},
		{name: "four of like size", tiers: tiers(100, 100, 100, 100), reason: LikeSizes, oldest: 1, newest: 4},
		{name: "the fourth is more than twice the others", tiers: tiers(100, 100, 100, 601)},
		{name: "the fourth is twice the others", tiers: tiers(100, 100, 100, 600), reason: LikeSizes, oldest: 1, newest: 4},
		{name: "a large fifth stays", tiers: tiers(100, 100, 100, 100, 10_000), reason: LikeSizes, oldest: 2, newest: 5},
		{name: "those of a compaction under way stay", tiers: tiers(100, 100, 100, 100, 100),
			change: func(s *State) { s.Floor = 2 }},
		{name: "newer ones beside a compaction under way", tiers: tiers(100, 100, 100, 100, 100, 100),
			change: func(s *State) { s.Floor = 2 }, reason: LikeSizes, oldest: 3, newest: 6},
		{name: "all take part in a compaction under way", tiers: tiers(100, 100, 100, 100),
			change: func(s *State) { s.Floor = 4 }},

		{name: "newer tiers hold a fifth", tiers: tiers(100, 1000),
			change: func(s *State) { s.Tiers[0].Values = 1 << 20 / 5 }},
		{name: "newer tiers hold more", tiers: tiers(100, 1000),
			change: func(s *State) { s.Tiers[0].Values = 1<<20/5 + 1000 },
			reason: NewerTiers, oldest: 1, newest: 2},
		{name: "tombstones hold more", tiers: tiers(100, 1000), change: func(s *State) { s.Tiers[0].Tombstones = 250 },
			reason: NewerTiers, oldest: 1, newest: 2},
		{name: "not beside a compaction under way", tiers: tiers(100, 1000),
			change: func(s *State) { s.Tiers[0].Tombstones, s.Floor = 250, 1 }},

		{name: "a fifth is garbage", tiers: tiers(100), segs: logSegments(0, 50, 0, 50), reason: EmptySegments,
			oldest: 1, newest: 1, victims: []uint32{2, 4}},
		{name: "just over a fifth", tiers: tiers(100), segs: logSegments(0, 42, 0, 42), reason: EmptySegments,
			oldest: 1, newest: 1, victims: []uint32{2}},
		{name: "less is", tiers: tiers(100), segs: logSegments(0, 50, 0, 0, 0)},
		{name: "the emptiest first, until a tenth is left", tiers: tiers(100), segs: logSegments(10, 60, 95, 5, 5),
			reason: EmptySegments, oldest: 1, newest: 1, victims: []uint32{3, 2}},
		{name: "what is thinly spread stays", tiers: tiers(100), segs: logSegments(100, 9, 9, 9),
			reason: EmptySegments, oldest: 1, newest: 1, victims: []uint32{1}},
		{name: "also where there is more garbage than may be", tiers: tiers(100), segs: logSegments(100, 90, 9, 9),
			change: func(s *State) { s.Segments[1].Damaged = true },
			reason: EmptySegments, oldest: 1, newest: 1, victims: []uint32{1}},
		{name: "a segment at most is moved, or a tenth", tiers: tiers(100), segs: logSegments(40, 40, 40, 40),
			reason: EmptySegments, oldest: 1, newest: 1, victims: []uint32{1}},
		{name: "no room to move", tiers: tiers(100), segs: logSegments(60, 60, 60, 60),
			change: func(s *State) { s.Room = 1 << 20 }},
		{name: "no room for the first", tiers: tiers(100), segs: logSegments(80, 50, 50, 95),
			change: func(s *State) { s.Room = 1 << 19 }, reason: EmptySegments, oldest: 1, newest: 1, victims: []uint32{4}},
		{name: "damaged, open and of the log's end", tiers: tiers(100), segs: logSegments(80, 80, 80, 0),
			change: func(s *State) { s.Segments[0].Damaged, s.Segments[1].Open, s.Segments[2].InLog = true, true, true }},
		{name: "many small ones", tiers: tiers(100), change: func(s *State) {
			for i := range 40 {
				s.Segments = append(s.Segments, Segment{ID: uint32(i + 1), Used: 200_000, Payload: 1000, Live: 1000})
			}
		}, reason: EmptySegments, oldest: 1, newest: 1,
			victims: []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}},
		{name: "many small ones among larger ones", tiers: tiers(100), segs: logSegments(0, 0, 0, 0, 0, 0, 0, 0),
			change: func(s *State) {
				for i := range 40 {
					s.Segments = append(s.Segments, Segment{ID: uint32(i + 9), Used: 200_000, Payload: 1000, Live: 1000})
				}
			}},

		{name: "no room for the log", tiers: tiers(100, 100), segs: logSegments(90),
			change: func(s *State) { s.Urgent = true },
			reason: MakeRoom, oldest: 1, newest: 2},
		{name: "no room, all merged", tiers: tiers(100), segs: logSegments(0, 4, 6),
			change: func(s *State) { s.Urgent = true },
			reason: EmptySegments, oldest: 1, newest: 1, victims: []uint32{3}},
		{name: "no room, and no garbage", tiers: tiers(100), segs: logSegments(0, 4),
			change: func(s *State) { s.Urgent = true }},

		{name: "no room for a sweep", tiers: tiers(100), segs: logSegments(16, 16, 16, 16, 16, 16, 16, 16, 16),
			change: func(s *State) { small(s); s.Urgent = true },
			reason: EmptySegments, oldest: 1, newest: 1, victims: []uint32{1}},
		{name: "small values, little garbage", tiers: tiers(100), segs: logSegments(14, 14, 14, 14, 14, 14, 14, 14),
			change: small},
		{name: "small values, enough garbage", tiers: tiers(100), segs: logSegments(slices.Repeat([]int64{16}, 20)...),
			change: small, reason: Sweep, oldest: 1, newest: 1, victims: []uint32{1, 2, 3, 4, 5, 6, 7}},
		{name: "four segments are moved at least", tiers: tiers(100), segs: logSegments(16, 16, 16, 16, 16, 16),
			change: small, reason: Sweep, oldest: 1, newest: 1, victims: []uint32{1, 2, 3, 4}},
		{name: "what newer tiers replace counts", tiers: tiers(100, 1000), segs: logSegments(10, 10, 10, 10),
			change: func(s *State) { small(s); s.Tiers[0].Values = 4_000_000 },
			reason: Sweep, oldest: 1, newest: 2, victims: []uint32{1, 2, 3, 4}},
		{name: "if they replace something", tiers: tiers(100, 1000), segs: logSegments(10, 10, 10, 10),
			change: func(s *State) { small(s); s.Tiers[0].Values, s.Replaced = 4_000_000, 0 },
			reason: NewerTiers, oldest: 1, newest: 2},
		{name: "segments of moved values are chosen later", tiers: tiers(100), segs: logSegments(20, 20, 20, 20),
			change: func(s *State) { small(s); s.Segments[0].Moved = true },
			reason: Sweep, oldest: 1, newest: 1, victims: []uint32{2, 3, 4}},
		{name: "a sweep needs room", tiers: tiers(100), segs: logSegments(20, 20, 20, 20, 10),
			change: func(s *State) { small(s); s.Room = sizes.Segment - 1 }, reason: 0},

		{name: "worn", tiers: tiers(100, 100, 10_000),
			change: func(s *State) { s.Tiers[0].Worn, s.Tiers[1].Worn = true, true },
			reason: Worn, oldest: 2, newest: 2},
		{name: "worn, but no room for the log", tiers: tiers(100),
			change: func(s *State) { s.Tiers[0].Worn, s.Urgent = true, true }},
		{name: "worn, but in a compaction under way", tiers: tiers(100, 10_000),
			change: func(s *State) { s.Tiers[1].Worn, s.Floor = true, 1 }},
	} {
		s := &State{Sizes: sizes, Tiers: x.tiers, Segments: x.segs, Room: math.MaxInt64}
		if x.change != nil {
			x.change(s)
		}
		c, due := Pick(s)
		want := Compaction{x.reason, x.oldest, x.newest, x.victims}
		if due != (x.reason != 0) || !reflect.DeepEqual(c, want) {
			t.Errorf("%s: %v, %+v, not %+v", x.name, c.Reason, c, want)
		}
	}
}

// TestPickRequested: a request empties what has garbage, as far as there is room.
func TestPickRequested(t *testing.T) {
	for _, x := range []struct {
		name    string
		request Request
		room    int64
		victims []uint32
		short   bool
	}{
		{name: "a quarter of the log, those with a twentieth", request: Request{Below: 100}, room: 100 << 20,
			victims: []uint32{4, 2, 3}},
		{name: "what was tried is not tried again", request: Request{Below: 100, Tried: map[uint32]bool{4: true, 2: true}},
			room: 100 << 20, victims: []uint32{3}},
		{name: "newer ones stay", request: Request{Below: 3}, room: 100 << 20, victims: []uint32{2}},
		{name: "others than those of the range stay", request: Request{Below: 100, Garbage: map[uint32]int64{3: 1 << 20}},
			room: 100 << 20, victims: []uint32{3}},
		{name: "none has garbage of the range", request: Request{Below: 100, Garbage: map[uint32]int64{}}, room: 100 << 20},
		{name: "no room for some", request: Request{Below: 100}, room: 1 << 20, victims: []uint32{4}, short: true},
		{name: "no room for any", request: Request{Below: 100}, room: 100, short: true},
	} {
		s := &State{Sizes: sizes, Segments: logSegments(4, 60, 30, 90, 0, 0), Room: x.room}
		victims, short := PickRequested(s, &x.request)
		if !reflect.DeepEqual(victims, x.victims) || short != x.short {
			t.Errorf("%s: %v, short %v", x.name, victims, short)
		}
	}
}

// TestTakes: a sweep empties moved segments of which a tenth is garbage, or will be when it comes to them.
func TestTakes(t *testing.T) {
	for _, x := range []struct {
		live            int64
		share, replaced float64
		takes           bool
	}{
		{1000, 0, 0, false}, {901, 0, 0, false}, {899, 0, 0, true}, {0, 0, 0, true},
		{1000, 0.3, 0.3, false}, {1000, 0.3, 0.4, true}, {1000, 1, 0, false},
	} {
		if s := (Segment{Payload: 1000, Live: x.live}); Takes(&s, x.share, x.replaced) != x.takes {
			t.Errorf("%+v", x)
		}
	}
}

// TestShrink: limits become less until they are the least, and stay there.
func TestShrink(t *testing.T) {
	l, steps := sizes.StepLimits(Sweep), 0
	if l != (Limits{1 << 20, 3 << 20}) || sizes.StepLimits(EmptySegments) != (Limits{1 << 20, 1 << 20}) {
		t.Errorf("%+v", l)
	}
	if less, ok := sizes.Shrink(l); !ok || less != (Limits{1 << 17, 1 << 17}) {
		t.Errorf("%+v, an eighth of %+v", less, l)
	}
	for {
		less, ok := sizes.Shrink(l)
		if !ok {
			break
		}
		if less.Written >= l.Written || less.Moved > less.Written {
			t.Fatalf("%+v after %+v", less, l)
		}
		l, steps = less, steps+1
	}
	if l.Written != LeastStep || steps != 2 {
		t.Errorf("%+v after %d steps", l, steps)
	}
	if _, ok := (Sizes{Table: 1000}).Shrink(Limits{1000, 1000}); ok {
		t.Error("small tables have smaller steps")
	}
}
