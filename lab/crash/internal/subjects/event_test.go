package subjects

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/event"
)

// appendsOf is what is in a log after the appends that begin at positions below end; its last position too.
func appendsOf(h *protocol.History, end uint64) (found []commits.Found, last uint64) {
	for n := uint64(1); n < end; {
		list := scriptOf(h.Seed).appended(h.Generation(n), n)
		for i := range list {
			list[i].Position = n + uint64(i)
			found = append(found, eventEntry(list[i]))
		}
		n += uint64(len(list))
		last = n - 1
	}
	return found, last
}

// eventSize is the number of events in the append that begins at position n.
func eventSize(h *protocol.History, n uint64) uint64 {
	return uint64(len(scriptOf(h.Seed).appended(h.Generation(n), n)))
}

func TestEventJudgeFindsWhatIsWrong(t *testing.T) {
	base := &protocol.History{Seed: 8}
	base.Begin(0, 1)
	all, last := appendsOf(base, 60)
	// several is the first position of an append of some events in the middle, and their number.
	var several, size uint64
	var starts []uint64
	for n := uint64(1); n <= last; n += eventSize(base, n) {
		starts = append(starts, n)
		if s := eventSize(base, n); several == 0 && n > 20 && s >= 3 {
			several, size = n, s
		}
	}
	if several == 0 {
		t.Fatal("no such append; take another seed")
	}
	story := func() *protocol.History {
		h := &protocol.History{Seed: 8, Survives: holdfast.Power, Level: holdfast.Power}
		h.Begin(0, 1)
		h.Issued = last + 8
		for i, n := range starts {
			h.Promise(protocol.Ack{N: n + eventSize(h, n) - 1, Batch: true, Level: holdfast.Power,
				At: time.Duration(i) * time.Millisecond})
		}
		h.Offset = protocol.Interval{Low: 16, High: 32}
		return h
	}
	around := func(first, offset uint64, events []commits.Found) []commits.Found {
		return append([]commits.Found{{Key: entryFirst, N: first}, {Key: entryOffset, N: offset}}, events...)
	}
	without := func(from, n uint64) []commits.Found {
		return slices.DeleteFunc(slices.Clone(all), func(e commits.Found) bool { return e.N >= from && e.N < from+n })
	}
	changed := slices.Clone(all)
	changed[several].Sum[0] ^= 1
	fewer, _ := appendsOf(base, starts[len(starts)-2])
	first := func(low, high uint64) func(*protocol.History) {
		return func(h *protocol.History) { h.First = protocol.Interval{Low: low, High: high} }
	}
	invented := append(slices.Clone(all), commits.Found{Key: "e/90", N: last + 20})
	missing := fmt.Sprintf("positions %d to %d are missing", several, several+size-1)
	for name, test := range map[string]struct {
		found []commits.Found
		more  func(h *protocol.History)
		want  counts
		says  string
	}{
		"all":                 {found: around(1, 16, all)},
		"an offset under way": {found: around(1, 32, all)},
		"the last ones lost": {
			found: around(1, 16, fewer),
			want:  counts{lost: 2}, says: "2 acknowledged ones are lost"},
		"one event missing": {
			found: around(1, 16, without(several+1, 1)),
			want:  counts{torn: 1, lost: 1}, says: "is there in part: 1 events are missing"},
		"an append missing": {
			found: around(1, 16, without(several, size)),
			want:  counts{order: 1, lost: 1}, says: missing},
		"another event": {
			found: around(1, 16, changed),
			want:  counts{wrong: 1}, says: "does not hold what was appended there"},
		"invented events": {
			found: around(1, 16, invented),
			want:  counts{wrong: -1}, says: "which were never appended"},
		"an offset lost": {
			found: around(1, 0, all),
			want:  counts{wrong: 1}, says: "the saved offset is 0, and must be from 16 to 32"},
		"an offset invented": {
			found: around(1, 33, all),
			want:  counts{wrong: 1}, says: "the saved offset is 33"},
		"the front cut off": {
			found: around(9, 16, all[8:]),
			want:  counts{wrong: 1}, says: "the first position is 9, and must be from 1 to 1"},
		"the front as it must": {found: around(9, 16, all[8:]), more: first(9, 9)},
		"the front not yet":    {found: around(5, 16, all[4:]), more: first(1, 9)},
		"the front come back": {
			found: around(1, 16, all), more: first(9, 9),
			want: counts{wrong: 1}, says: "must be from 9 to 9"},
		"a follower saw more": {
			found: around(1, 16, all), more: func(h *protocol.History) { h.Shown = last + 1 },
			want: counts{wrong: 1}, says: "a follower was shown everything up to"},
		"an offset beyond the end": {
			found: around(1, 32, all[:20]), more: func(h *protocol.History) { h.Bound, h.Acks = 0, nil },
			want: counts{wrong: -1}, says: "but the log ends with 20"},
	} {
		t.Run(name, func(t *testing.T) {
			h := story()
			if test.more != nil {
				test.more(h)
			}
			j := eventJudge(h, test.found)
			got := counts{lost: j.Lost, torn: j.Torn, order: j.OutOfOrder, wrong: j.Wrong}
			if test.want.wrong < 0 { // at least one
				if j.Wrong == 0 {
					t.Errorf("%+v", j)
				}
			} else if got != test.want {
				t.Errorf("%+v, want %+v: %q", got, test.want, j.Findings)
			}
			if test.says == "" && len(j.Findings) > 0 || !strings.Contains(strings.Join(j.Findings, "\n"), test.says) {
				t.Errorf("it says %q, want %q", j.Findings, test.says)
			}
		})
	}
}

// TestEventModelIsTheStore: what the judge expects is what a log holds.
func TestEventModelIsTheStore(t *testing.T) {
	e := mem.New()
	defer e.Close()
	s, err := event.Open(kv.On(e), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	h := &protocol.History{Seed: 4, Survives: holdfast.Process}
	h.Begin(2, 1)
	for n := uint64(1); n < 300; {
		result, err := s.Append(t.Context(), scriptOf(h.Seed).appended(2, n)...)
		if err != nil || result.First != n {
			t.Fatalf("%+v, %v", result, err)
		}
		n = result.Last + 1
		h.Issued, h.Bound = result.Last, result.Last
	}
	if err := s.SaveOffset(t.Context(), follower, 64); err != nil {
		t.Fatal(err)
	}
	if _, err := s.TruncateBefore(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	h.Offset, h.First = protocol.Interval{Low: 64, High: 64}, protocol.Interval{Low: 100, High: 100}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := &check{spec: protocol.Spec{Level: holdfast.Memory}}
	var found []commits.Found
	if err := eventRead(c, e, func(e commits.Found) { found = append(found, e) }); err != nil {
		t.Fatal(err)
	}
	if j := eventJudge(h, found); j.Broken() || len(j.Findings) > 0 || j.Survived != h.Issued || len(c.said) > 0 {
		t.Errorf("%+v, %q", j, c.said)
	}
	h.Seed++
	if j := eventJudge(h, found); j.Wrong == 0 {
		t.Error("another log passes too")
	}
}
