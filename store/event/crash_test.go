package event_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// crashEvent is the event with that id: all of it follows from the id.
func crashEvent(id string) event.Event {
	h := fnv.New64a()
	h.Write([]byte(id))
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	data := make([]byte, r.IntN(300))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return event.Event{Type: "crash", ID: id, Origin: id[:1], Data: data, Time: time.Unix(int64(r.Uint32()), 0)}
}

// child appends from several goroutines, follows itself, and tells its parent what was
// acknowledged and seen, one line each:
//
//	a POSITION ID   the event was acknowledged
//	f POSITION ID   the follower saw the event
//	o POSITION      the offset was saved
//	t POSITION      everything before was truncated
//
// Its argument tells it from the other children on its directory.
func child(c *storetest.Child) {
	s, err := event.Open(kv.On(c.Engine), event.Options{Level: c.Level})
	c.Check(err)
	var followed atomic.Uint64
	for w := range 4 {
		go func() {
			for n := 0; ; n++ {
				var batch []event.Event
				for k := range 1 + (n+w)%3 {
					batch = append(batch, crashEvent(fmt.Sprintf("%d-%s-%d-%d", w, c.Args, n, k)))
				}
				p, err := s.Submit(ctx, batch...)
				c.Check(err)
				if w == 3 && n%4 != 0 {
					continue // never waited for, never acknowledged
				}
				r, err := p.Wait()
				c.Check(err)
				for k := range batch {
					c.Say("a %d %s", r.First+uint64(k), batch[k].ID)
				}
				if before := min(r.First/2, followed.Load()); w == 0 && n%50 == 49 {
					_, err := s.TruncateBefore(ctx, before)
					c.Check(err)
					c.Say("t %d", before)
				}
			}
		}()
	}
	for e, err := range s.Follow(ctx, s.Last()+1) {
		c.Check(err)
		c.Say("f %d %s", e.Position, e.ID)
		followed.Store(e.Position)
		if e.Position%20 == 0 {
			c.Check(s.SaveOffset(ctx, "follower", e.Position))
			c.Say("o %d", e.Position)
		}
	}
}

// witness is what the parent was told by all children on one directory.
type witness struct {
	ids           map[uint64]string // of events acknowledged or seen by a follower
	acked, seen   int
	offset, trunc uint64
}

func (w *witness) hear(t *testing.T, line string) {
	var kind, id string
	var pos uint64
	fmt.Sscan(line, &kind, &pos, &id)
	switch kind {
	case "a", "f":
		if was, ok := w.ids[pos]; ok && was != id {
			t.Errorf("position %d was told to hold %q and %q", pos, was, id)
		}
		w.ids[pos] = id
		if kind == "a" {
			w.acked++
		} else {
			w.seen++
		}
	case "o":
		w.offset = max(w.offset, pos)
	case "t":
		w.trunc = max(w.trunc, pos)
	default:
		t.Errorf("the child said %q", line)
	}
}

// TestCrash kills processes in the middle of appending, and checks what their successor
// finds against what they had said.
func TestCrash(t *testing.T) {
	storetest.Survivors(t, func(t *testing.T, tg *target, r *rand.Rand) {
		w := &witness{ids: map[uint64]string{}}
		for round := range 2 {
			storetest.Kill(t, tg, fmt.Sprint("r", round), time.Duration(20+r.IntN(300))*time.Millisecond,
				func(line string) bool {
					w.hear(t, line)
					return w.acked > 0 && w.seen > 0
				})
			checkCrashed(t, tg, w)
		}
		if w.acked == 0 || w.seen == 0 {
			t.Fatalf("%d acknowledged, %d seen: nothing was tested", w.acked, w.seen)
		}
	})
}

func checkCrashed(t *testing.T, tg *target, w *witness) {
	t.Helper()
	tg.Open(t)
	defer tg.Close(t)
	s := openLog(t, tg.Engine, event.Options{Level: tg.Level})
	defer closeLog(t, s)

	pos, ids := s.First(), map[string]uint64{}
	for e, err := range s.Events(ctx, 0, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Position != pos {
			t.Fatalf("position %d follows %d", e.Position, pos-1)
		}
		if was, ok := ids[e.ID]; ok {
			t.Fatalf("the id %q is at positions %d and %d", e.ID, was, e.Position)
		}
		ids[e.ID] = e.Position
		want := crashEvent(e.ID)
		want.Position = pos
		if err := same(e, want); err != nil {
			t.Fatal(err)
		}
		pos++
	}
	if pos != s.Last()+1 || s.First() < w.trunc {
		t.Fatalf("the log goes from %d to %d, reading ends before %d, %d was truncated", s.First(), s.Last(), pos, w.trunc)
	}
	for p, id := range w.ids {
		if p >= s.First() && ids[id] != p {
			t.Fatalf("the event %q, told at position %d, is at %d now (0 is nowhere), the log goes from %d to %d", id, p,
				ids[id], s.First(), s.Last())
		}
	}
	if got, err := s.LoadOffset(ctx, "follower"); w.offset > 0 && (err != nil || got < w.offset || got > s.Last()) {
		t.Fatalf("the offset %d has become %d: %v", w.offset, got, err)
	}
	// Ids are still known, even of some that are truncated, and appending goes on.
	tried := 0
	for p, id := range w.ids {
		r, err := s.Append(ctx, crashEvent(id))
		if err != nil || !r.Repeated || r.First != p {
			t.Fatalf("event %q of position %d appended again: %+v, %v", id, p, r, err)
		}
		if tried++; tried == 50 {
			break
		}
	}
	r, err := s.Append(ctx, crashEvent(fmt.Sprintf("9-after-%d", s.Last())))
	if err != nil || r.First != pos {
		t.Fatalf("the next append is at %d, want %d: %v", r.First, pos, err)
	}
	w.ids[r.First] = fmt.Sprintf("9-after-%d", pos-1)
}
