package policy

import (
	"math"
	"testing"
)

// TestFilesGrow: files become larger with what is stored, so that they stay few with a small budget too.
func TestFilesGrow(t *testing.T) {
	for _, x := range []struct{ memory, log, tables, segment, table int64 }{
		{8 << 20, 0, 0, 2 << 20, 512 << 10},
		{8 << 20, 100 << 20, 1 << 20, 2 << 20, 512 << 10},
		{8 << 20, 1 << 30, 64 << 20, 16 << 20, 1 << 20},
		{8 << 20, 100 << 30, 8 << 30, 64 << 20, 8 << 20},
		{128 << 20, 0, 0, 32 << 20, 8 << 20},
		{1 << 30, 100 << 30, 8 << 30, 64 << 20, 8 << 20},
	} {
		b := Budget{Memory: x.memory, Room: 1 << 50}
		if segment, table := b.Files(x.log, x.tables); segment != x.segment || table != x.table {
			t.Errorf("%+v: segments of %d, tables of %d bytes", x, segment, table)
		}
	}
	b := Budget{Memory: 128 << 20, Room: 32 << 20}
	if segment, table := b.Files(0, 0); segment != 2<<20 || table != 512<<10 || b.Memtable() != 2<<20 {
		t.Errorf("on a small disk: segments of %d, tables of %d, memtables of %d bytes", segment, table, b.Memtable())
	}
	b.Chosen = Sizes{Memtable: 1, Segment: 2, Table: 3}
	if segment, table := b.Files(1<<40, 1<<40); segment != 2 || table != 3 || b.Memtable() != 1 {
		t.Error("what was chosen is not taken")
	}
}

// TestNextSegment: segments double up to 8 MiB, and then follow the log.
func TestNextSegment(t *testing.T) {
	z := Sizes{Segment: 64 << 20}
	last := int64(0)
	for _, want := range []int64{256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 8 << 20} {
		if last = z.NextSegment(last, 0); last != want {
			t.Errorf("%d, not %d", last, want)
		}
	}
	if n := z.NextSegment(last, 1<<30); n != 16<<20 {
		t.Errorf("%d bytes for a log of 1 GiB", n)
	}
	if n := z.NextSegment(64<<20, 1<<40); n != 64<<20 {
		t.Errorf("%d bytes, more than full", n)
	}
}

func TestNewSegment(t *testing.T) {
	z := Sizes{Segment: 64 << 20}
	for _, x := range []struct {
		next, need int64
		n          int
		last       bool
		size       int64
	}{
		{next: 1 << 20, need: 1000, n: 900, size: 1 << 20},
		{next: 1 << 20, need: 1001 << 10, n: 1000 << 10, size: 4004 << 10},
		{next: 1 << 20, need: 50 << 20, n: 49 << 20, size: 64 << 20},
		{next: 1 << 20, need: 80 << 20, n: 79 << 20, size: 80 << 20},
		{next: 1 << 20, need: 1000, n: 900, last: true, size: 64 << 10},
		{next: 1 << 20, need: 100 << 10, n: 99 << 10, last: true, size: 100 << 10},
	} {
		if size := z.NewSegment(x.next, x.need, x.n, x.last); size != x.size {
			t.Errorf("%+v: %d", x, size)
		}
	}
}

// TestSmallerSegment: sizes are halved as long as the frame fits, to 64 KiB, or 4 KiB for the last room there is.
func TestSmallerSegment(t *testing.T) {
	least := func(size, need int64, last bool) int64 {
		for {
			smaller, ok := SmallerSegment(size, need, last)
			if !ok {
				return size
			}
			size = smaller
		}
	}
	if a, b, c := least(1<<20, 0, false), least(1<<20, 0, true), least(1<<20, 300<<10, true); a != 64<<10 || b != 4<<10 ||
		c != 512<<10 {
		t.Error(a, b, c)
	}
}

func TestReserve(t *testing.T) {
	for _, x := range []struct {
		log, have, size int64
		grows           bool
	}{
		{log: 1<<20 - 1, size: 64<<10 - 1},
		{log: 1 << 20, size: 64 << 10, grows: true},
		{log: 2 << 20, have: 64<<10 + 1, size: 128 << 10},
		{log: 2 << 20, have: 64 << 10, size: 128 << 10, grows: true},
		{log: 1 << 40, size: 2 << 20, grows: true}, // half a segment
	} {
		if size, grows := sizes.Reserve(x.log, x.have); size != x.size || grows != x.grows {
			t.Errorf("%+v: %d, %v", x, size, grows)
		}
	}
}

// TestRoomToMove: what is left for tables is what they need, a little at least, and no number overflows.
func TestRoomToMove(t *testing.T) {
	for _, x := range []struct{ free, needed, room int64 }{
		{0, 0, 0}, {1000, 0, 0}, {1 << 20, 0, 1<<20 - LeastStep/2}, {math.MaxInt64, 0, math.MaxInt64 - LeastStep/2},
		{1 << 20, 1 << 19, 1 << 19}, {1 << 19, 1 << 20, 0},
	} {
		if room := sizes.RoomToMove(x.free, x.needed); room != x.room {
			t.Errorf("of %d bytes %d can be moved where tables need %d", x.free, room, x.needed)
		}
	}
}

// TestThresholds: at the bound itself.
func TestThresholds(t *testing.T) {
	for name, ok := range map[string]bool{
		"a memtable at its limit takes it":     !sizes.Full(8<<20, 0),
		"one byte more does not":               sizes.Full(8<<20+1, 0),
		"range deletes fill it":                sizes.Full(0, MaxRangeTombstones),
		"one less does not":                    !sizes.Full(0, MaxRangeTombstones-1),
		"covered as much as a memtable":        sizes.FlushesEarly(8 << 20),
		"less":                                 !sizes.FlushesEarly(8<<20 - 1),
		"small segments have zeros":            Zeros(4<<20, 64<<20, 0),
		"large ones without Power commits not": !Zeros(4<<20+1, 64<<20, 1023),
		"with many they have":                  Zeros(64<<20, 64<<20, 1024),
		"dead keys as many as entries":         DeadKeys(MostPassed, MostPassed),
		"fewer":                                !DeadKeys(MostPassed, MostPassed+1),
		"too few at all":                       !DeadKeys(MostPassed-1, 0),
		"room for others":                      sizes.LeaveForOthers(100, 1000) == 100+2<<20+1000+LeastStep,
	} {
		if !ok {
			t.Error(name)
		}
	}
}

func TestTidy(t *testing.T) {
	oldest := []Tier{{ID: 1, Values: 100 << 20, Entries: 100 << 10}} // 1 KiB each
	for _, x := range []struct {
		name             string
		tidy             Tidy
		live             int64
		promising, flush bool
	}{
		{name: "nothing was deleted", tidy: Tidy{Tiers: oldest, Tail: 100 << 20}},
		{name: "little was", tidy: Tidy{Tiers: oldest, Deletes: 1023}},
		{name: "a MiB was", tidy: Tidy{Tiers: oldest, Deletes: 1024}, promising: true, flush: true},
		{name: "a MiB of a large log", tidy: Tidy{Tiers: oldest, Deletes: 1024, Disk: 100 << 20}},
		{name: "a range of not quite an eighth", tidy: Tidy{Tiers: oldest, Deletes: 1, Covered: 12 << 20, Disk: 100 << 20}},
		{name: "a range of it", tidy: Tidy{Tiers: oldest, Deletes: 1, Covered: 13 << 20, Disk: 100 << 20}, promising: true,
			flush: true},
		{name: "in the memtable", tidy: Tidy{Deletes: 1, Tail: 2 << 20}, live: 1 << 20, promising: true, flush: true},
		{name: "and most is alive", tidy: Tidy{Deletes: 1, Tail: 2 << 20}, live: 1<<20 + 1, promising: true},
	} {
		if x.tidy.Promising() != x.promising || x.tidy.Flush(x.live) != x.flush {
			t.Errorf("%s: promising %v, flush %v", x.name, x.tidy.Promising(), x.tidy.Flush(x.live))
		}
	}
	all := Tidy{Tiers: oldest, Deletes: 1, Covered: 100 << 20}
	if !all.Shrinks(1<<20, 0) || all.Shrinks(1<<20-1, 0) || all.Shrinks(1<<20, 1<<19) {
		t.Error("a segment is left where four times what is left is more, or not where it is less")
	}
}
