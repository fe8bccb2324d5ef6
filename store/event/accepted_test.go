package event_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// repaired is an engine in which a loss was accepted.
type repaired struct{ holdfast.Engine }

func (r *repaired) Capabilities() holdfast.Capabilities {
	c := r.Engine.Capabilities()
	c.Accepted = "a loss"
	return c
}

// TestAccepted: whatever kind of keys is lost, all of them or some, once the loss was accepted the events that are
// there are known by their ids, those that are not are a gap, and no position is given twice.
func TestAccepted(t *testing.T) {
	o := event.Options{Level: holdfast.Memory}
	eng := mem.New()
	s := openLog(t, eng, o)
	for i := range 40 {
		appendOK(t, s, named(fmt.Sprint("a", i))...)
	}
	_, err := s.Import(ctx, at(named("i")[0], 45))
	fatal(t, err)
	_, err = s.TruncateBefore(ctx, 4)
	fatal(t, err)
	fatal(t, s.SaveOffset(ctx, "sub", 45))
	fatal(t, s.SaveSnapshot(ctx, "state", 40, []byte("state")))
	before := readOK(t, s, 0, 0)
	closeLog(t, s)

	kinds := map[string]bool{"": true}
	it := eng.Scan(holdfast.Range{})
	for it.Next() {
		kinds[kindOf(it.Key())] = true
	}
	it.Close()
	if len(kinds) != 7 {
		t.Fatal(kinds)
	}
	for kind := range kinds {
		for seed := range uint64(6) {
			r := rand.New(rand.NewPCG(seed, 1))
			left := mem.New()
			var b holdfast.Batch
			lost := map[uint64]bool{}
			it := eng.Scan(holdfast.Range{})
			for it.Next() {
				k := kindOf(it.Key())
				if k == kind && (seed == 0 || r.IntN(2) == 0) || kind == "" && r.IntN(4) == 0 {
					if k == "event" {
						var pos uint64
						_, _ = fmt.Sscanf(event.KeyName(it.Key()), "event %d", &pos)
						lost[pos] = true
					}
					continue
				}
				b.Set(it.Key(), it.Value())
			}
			fatal(t, errors.Join(it.Close(), holdfast.Commit(left, &b, holdfast.Memory)))
			what := fmt.Sprintf("kind %q, seed %d", kind, seed)
			s, err := event.Open(kv.On(&repaired{left}), o)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			there := map[uint64]bool{}
			for from := uint64(0); ; {
				var gap *event.Gap
				for e, err := range s.Events(ctx, from, 0) {
					if errors.As(err, &gap) {
						break
					}
					fatal(t, err)
					there[e.Position] = true
				}
				if gap == nil {
					break
				}
				for pos := gap.Position; pos < gap.Next; pos++ {
					if there[pos] {
						t.Fatalf("%s: a gap at %d, where an event is", what, pos)
					}
				}
				if from = gap.Next; from > s.Last() {
					break
				}
			}
			for _, e := range before {
				if !there[e.Position] && !lost[e.Position] {
					t.Fatalf("%s: event %d is skipped without a word", what, e.Position)
				}
				r, err := s.Append(ctx, event.Event{Type: e.Type, ID: e.ID})
				if err != nil || r.Repeated != there[e.Position] || r.Repeated && r.First != e.Position || there[r.First] &&
					!r.Repeated {
					t.Fatalf("%s: event %d, there: %v, appended again: %+v, %v", what, e.Position, there[e.Position], r, err)
				}
			}
			if pos, err := s.LoadOffset(ctx, "sub"); err == nil && pos > s.Last() {
				t.Errorf("%s: an offset of %d, the last event is %d", what, pos, s.Last())
			}
			// What was lost at the end stays lost when it is opened again.
			closeLog(t, s)
			s = openLog(t, &repaired{left}, o)
			r2 := appendOK(t, s, event.Event{Type: "next"})
			if r2.First <= s.Last()-1 {
				t.Errorf("%s: position %d is given twice", what, r2.First)
			}
			closeLog(t, s)
		}
	}
}

// kindOf is what a log keeps under a key, in a word or two.
func kindOf(key []byte) string {
	word, _, _ := strings.Cut(event.KeyName(key), " ")
	return word
}
