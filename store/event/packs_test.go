package event_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// entry is one of the engine's under the events of the log without a name.
type entry struct {
	pos   uint64
	value []byte
}

func entries(t *testing.T, eng holdfast.Engine) (all []entry) {
	t.Helper()
	it := eng.Scan(holdfast.Range{Lo: []byte("e\x00e"), Hi: []byte("e\x00f")})
	defer it.Close()
	for it.Next() {
		all = append(all, entry{binary.BigEndian.Uint64(it.Key()[3:]), bytes.Clone(it.Value())})
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func eventKey(pos uint64) []byte { return binary.BigEndian.AppendUint64([]byte("e\x00e"), pos) }

func commitOK(t *testing.T, eng holdfast.Engine, b *holdfast.Batch) {
	t.Helper()
	if err := holdfast.Commit(eng, b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
}

// Small events of one append share an entry of the engine; large ones, and those that come alone, do
// not.
func TestPacking(t *testing.T) {
	small := func(n int) []event.Event {
		events := make([]event.Event, n)
		for i := range events {
			events[i] = event.Event{Type: "small", Data: make([]byte, 20)}
		}
		return events
	}
	large := event.Event{Data: make([]byte, 10<<10)}
	for _, c := range []struct {
		events []event.Event
		want   []uint64 // last position of each entry
	}{
		{small(1), []uint64{1}},
		{small(2), []uint64{2}},
		{small(100), []uint64{100}},
		{small(300), []uint64{128, 256, 300}},
		{[]event.Event{large, large}, []uint64{1, 2}},
		{append(append(small(2), large), small(3)...), []uint64{2, 3, 6}},
		{[]event.Event{{Data: make([]byte, 3000)}, {Data: make([]byte, 3000)}, {Data: make([]byte, 3000)}}, []uint64{2, 3}},
	} {
		eng := mem.New()
		s := openLog(t, eng, event.Options{Level: holdfast.Memory})
		appendOK(t, s, c.events...)
		var got []uint64
		for _, e := range entries(t, eng) {
			got = append(got, e.pos)
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%d events are in entries that end at %v, want %v", len(c.events), got, c.want)
		}
		if back := readOK(t, s, 1, 0); len(back) != len(c.events) {
			t.Errorf("%d events came back, of %d", len(back), len(c.events))
		}
		closeLog(t, s)
	}
}

// testPacks appends runs of all sizes and reads from and up to anywhere, then truncates to anywhere.
func testPacks(t *testing.T, tg *target, o event.Options) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	s := openLog(t, tg.Engine, o)
	var want []event.Event
	base := time.Unix(1_700_000_000, 0)
	for _, n := range []int{1, 2, 3, 1, 1, 127, 128, 129, 300, 1, 40, 2} {
		batch := make([]event.Event, n)
		named := r.IntN(3) == 0
		for i := range batch {
			pos := uint64(len(want) + 1)
			e := event.Event{Position: pos, Type: fmt.Sprint("t", r.IntN(3)),
				Time: base.Add(time.Duration(r.Int64N(int64(time.Hour))) - 30*time.Minute)}
			switch r.IntN(40) {
			case 0:
				e.Data = bytes.Repeat([]byte{1}, 9000)
			case 1, 2:
				e.Metadata = bytes.Repeat([]byte{2}, 1000+r.IntN(5))
			case 3, 4, 5:
				e.Origin = fmt.Sprint("origin ", pos)
			default:
				e.Data = bytes.Repeat([]byte{3}, r.IntN(260))
			}
			if r.IntN(9) == 0 {
				e.Time = time.Unix(r.Int64N(18e9)-9e9, r.Int64N(1e9))
			}
			if named {
				e.ID = fmt.Sprint("id ", pos)
			}
			batch[i], want = e, append(want, e)
		}
		if at := appendOK(t, s, batch...); at.Last != uint64(len(want)) {
			t.Fatal(at)
		}
	}
	check := func(from uint64, limit int) {
		t.Helper()
		pos := from
		for rec, err := range s.Records(ctx, from, limit) {
			if err != nil {
				t.Fatal(err)
			}
			if pos > uint64(len(want)) {
				t.Fatalf("there is an event at position %d", rec.Position)
			}
			if err := same(rec.Event(), want[pos-1]); err != nil {
				t.Fatalf("from %d, position %d: %v", from, pos, err)
			}
			pos++
		}
		end := uint64(len(want)) + 1
		if limit > 0 {
			end = min(end, from+uint64(limit))
		}
		if pos != end {
			t.Fatalf("reading %d events from position %d ended before %d, not %d", limit, from, pos, end)
		}
		for i, e := range readOK(t, s, from, limit) {
			if err := same(e, want[from-1+uint64(i)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 60 {
		check(1+r.Uint64N(uint64(len(want))), []int{0, 1, 2, 100, 1 + r.IntN(len(want))}[r.IntN(5)])
	}
	// A follower that begins within a pack, and leaves within one.
	from := 1 + r.Uint64N(uint64(len(want)))
	pos, leave := from, from+r.Uint64N(uint64(len(want))-from+1)
	for e, err := range s.Follow(ctx, from) {
		if err != nil {
			t.Fatal(err)
		}
		if err := same(e, want[pos-1]); err != nil {
			t.Fatal(err)
		}
		if pos++; pos > leave {
			break
		}
	}
	for first := uint64(1); first <= uint64(len(want)); {
		first += 1 + r.Uint64N(120)
		first = min(first, uint64(len(want))+1)
		if _, err := s.TruncateBefore(ctx, first); err != nil {
			t.Fatal(err)
		}
		wantHead(t, s, first, uint64(len(want)))
		if first > uint64(len(want)) {
			break
		}
		check(first, 0)
		check(first, 1)
		_, err := s.Read(ctx, first-1, 1)
		wantError(t, err, event.ErrTruncated)
		if r.IntN(3) == 0 {
			closeLog(t, s)
			s = openLog(t, tg.Engine, o)
			wantHead(t, s, first, uint64(len(want)))
		}
	}
	closeLog(t, s)
}

// Truncation leaves a pack while it holds an event that is not truncated, and removes it then.
func TestTruncatePack(t *testing.T) {
	eng := mem.New()
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	defer closeLog(t, s)
	appendOK(t, s, typed("1", "2", "3", "4")...)
	appendOK(t, s, typed("5")...)
	for _, c := range []struct {
		before uint64
		left   int
	}{{2, 2}, {4, 2}, {5, 1}, {6, 0}} {
		if _, err := s.TruncateBefore(ctx, c.before); err != nil {
			t.Fatal(err)
		}
		if left := len(entries(t, eng)); left != c.left {
			t.Errorf("before %d: %d entries are left, want %d", c.before, left, c.left)
		}
		if got := readOK(t, s, 0, 0); len(got) != int(6-c.before) || len(got) > 0 && got[0].Position != c.before {
			t.Errorf("before %d: %d events are left", c.before, len(got))
		}
	}
}

// A store of format 1, in which every event has an entry of its own, is read and gone on with. Here it left an event
// that was truncated and not removed; that is done with the next truncation.
func TestFormat1(t *testing.T) {
	eng := mem.New()
	record := func(typ string) []byte {
		return append(append(append([]byte{1}, make([]byte, 8)...), byte(len(typ)), 0, 0, 0), typ...)
	}
	var b holdfast.Batch
	b.Set([]byte("e\x00m"), append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 100}, 0, 0, 0, 0, 0, 0, 0, 2))
	b.Set(eventKey(1), record("one"))
	b.Set(eventKey(2), record("two"))
	b.Set(eventKey(3), record("three"))
	commitOK(t, eng, &b)
	before, err := eng.Get(nil, []byte("e\x00m"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
	if !errors.Is(err, holdfast.ErrVersion) || !strings.Contains(err.Error(), "the store has format 1") ||
		!strings.Contains(err.Error(), "Options.Upgrade") {
		t.Errorf("opened without being asked to upgrade: %v", err)
	}
	if after, err := eng.Get(nil, []byte("e\x00m")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the description is %q, %v", after, err)
	}
	s := openLog(t, eng, event.Options{Level: holdfast.Memory, Upgrade: true})
	defer closeLog(t, s)
	wantHead(t, s, 2, 3)
	if s.IDWindow() != 100 {
		t.Error(s.IDWindow())
	}
	appendOK(t, s, typed("four", "five")...)
	appendOK(t, s, typed("six")...)
	wantTypes(t, s, 2, "two", "three", "four", "five", "six")
	wantTypes(t, s, 5, "five", "six")
	if _, err := s.TruncateBefore(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if left := entries(t, eng); left[0].pos != 2 {
		t.Errorf("the first entry left is at %d", left[0].pos)
	}
	// A program that does not know packs must not take it for its own.
	if meta, err := eng.Get(nil, []byte("e\x00m")); err != nil || meta[0] != 3 {
		t.Errorf("the description is %q, %v", meta, err)
	}
}

// Damaged packs are told, and what stands before the damage is read.
func TestBadPacks(t *testing.T) {
	change := func(value []byte, f func([]byte)) []byte {
		value = bytes.Clone(value)
		f(value)
		return value
	}
	for _, c := range []struct {
		name string
		bad  func(value []byte) (uint64, []byte) // of the pack of positions 4 to 6
		good uint64                              // the last position that can be read
	}{
		{"cut", func(v []byte) (uint64, []byte) { return 6, v[:len(v)-1] }, 5},
		{"cut in the first", func(v []byte) (uint64, []byte) { return 6, v[:12] }, 3},
		{"head only", func(v []byte) (uint64, []byte) { return 6, v[:10] }, 3},
		{"too long", func(v []byte) (uint64, []byte) { return 6, append(v, 0) }, 5},
		{"one more", func(v []byte) (uint64, []byte) { return 6, change(v, func(v []byte) { v[1]++ }) }, 3},
		{"one less", func(v []byte) (uint64, []byte) { return 6, change(v, func(v []byte) { v[1]-- }) }, 3},
		{"more than there are positions", func(v []byte) (uint64, []byte) {
			return 6, change(v, func(v []byte) { v[1] = 200 })
		}, 3},
		{"one only", func(v []byte) (uint64, []byte) { return 4, change(v, func(v []byte) { v[1] = 1 }) }, 3},
		{"none", func(v []byte) (uint64, []byte) { return 4, change(v, func(v []byte) { v[1] = 0 }) }, 3},
		{"another version", func(v []byte) (uint64, []byte) { return 6, change(v, func(v []byte) { v[0] = 3 }) }, 3},
		{"a length beyond the end", func(v []byte) (uint64, []byte) {
			return 6, change(v, func(v []byte) { v[15] = 127 })
		}, 3},
		{"at another key", func(v []byte) (uint64, []byte) { return 5, v }, 3},
		{"missing", nil, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			eng := mem.New()
			s := openLog(t, eng, event.Options{Level: holdfast.Memory})
			defer closeLog(t, s)
			appendOK(t, s, typed("1", "2", "3")...)
			appendOK(t, s, typed("4", "5", "6")...)
			appendOK(t, s, typed("7", "8", "9")...)
			readOK(t, s, 1, 0)
			var b holdfast.Batch
			b.Delete(eventKey(6))
			if c.bad != nil {
				pos, value := c.bad(bytes.Clone(entries(t, eng)[1].value))
				b.Set(eventKey(pos), value)
			}
			commitOK(t, eng, &b)
			last := uint64(0)
			var failed error
			for r, err := range s.Records(ctx, 1, 0) {
				if failed = err; err == nil {
					last = r.Position
				}
			}
			wantError(t, failed, holdfast.ErrCorrupt)
			if last != c.good {
				t.Errorf("read up to position %d, want %d", last, c.good)
			}
		})
	}
}

// The loop's body may close the store, and then the engine.
func TestCloseInLoop(t *testing.T) {
	eng := mem.New()
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	appendOK(t, s, typed("1", "2", "3")...)
	seen := 0
	var last error
	for _, err := range s.Records(context.Background(), 1, 0) {
		if last = err; err != nil {
			break
		}
		seen++
		closeLog(t, s)
		if err := eng.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 1 || !errors.Is(last, holdfast.ErrClosed) {
		t.Errorf("%d events, then %v", seen, last)
	}
}
