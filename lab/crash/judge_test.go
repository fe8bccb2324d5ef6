package crash

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/store/event"
)

// told is a history in which one victim was promised the batches 1 to acked at level, and began issued.
func told(survives, level holdfast.Level, acked, issued uint64) *history {
	h := &history{Seed: 5, Survives: survives, Level: level}
	h.begin(0, 1)
	l := &ledger{issued: issued}
	for n := uint64(1); n <= acked; n++ {
		l.acks = append(l.acks, ack{n: n, batch: true, level: level, at: time.Duration(n) * time.Millisecond})
	}
	h.add(l, never)
	return h
}

// entriesOf is what an engine holds that is in that state.
func entriesOf(h *history, s commits.State[commits.Written]) []entry {
	var found []entry
	for _, e := range s {
		found = append(found, commits.NewFound(e.Key, planOf(h.Seed).Value(nil, e.Key, e.Value)))
	}
	return found
}

// after is the state after all batches up to n but those left out.
func after(h *history, n uint64, without ...uint64) (s commits.State[commits.Written]) {
	for i := uint64(1); i <= n; i++ {
		if !slices.Contains(without, i) {
			s.Apply(planOf(h.Seed).Ops(h.generation(i), i))
		}
	}
	return s
}

// counts are those of a judgement.
type counts struct{ survived, acked, kept, lost, gone, torn, order, wrong int }

func countsOf(j Judgement) counts {
	return counts{int(j.Survived), j.Acked, j.Kept, j.Lost, j.Gone, j.Torn, j.OutOfOrder, j.Wrong}
}

// TestModelIsTheEngine: what the judge expects after every number of batches is what a correct engine holds, for every
// weight of values.
func TestModelIsTheEngine(t *testing.T) {
	weights := map[int]bool{}
	for seed := uint64(1); len(weights) < 3; seed++ {
		p := planOf(seed)
		if weights[p.Large] {
			continue
		}
		weights[p.Large] = true
		e := mem.New()
		h := &history{Seed: seed, Survives: holdfast.Process}
		h.begin(3, 1)
		c := &check{spec: spec{Seed: seed}, report: &reporter{w: &strings.Builder{}}}
		var b holdfast.Batch
		var scratch []byte
		for n := uint64(1); n <= 700; n++ {
			p.Fill(&b, &scratch, 3, n)
			if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
			if n%100 != 0 && n > 20 {
				continue
			}
			h.Issued, h.Bound = n, n
			var found []entry
			if err := kvRead(c, e, func(e entry) { found = append(found, e) }); err != nil {
				t.Fatal(err)
			}
			if j := kvJudge(h, found); j.broken() || j.Survived != n || len(j.Findings) > 0 {
				t.Fatalf("seed %d after %d batches: %+v", seed, n, j)
			}
		}
		if said := c.report.w.(*strings.Builder).String(); said != "" {
			t.Errorf("the check saw %q", said)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJudgeFindsWhatIsWrong makes each kind of violation by hand.
func TestJudgeFindsWhatIsWrong(t *testing.T) {
	const acked, issued = 50, 60
	power := func() *history { return told(holdfast.Power, holdfast.Power, acked, issued) }
	whole := func(h *history) []entry { return entriesOf(h, after(h, acked)) }
	// inside is the place of an entry of a batch in the middle that has set more keys that are there.
	inside := func(t *testing.T, found []entry) int {
		for i, e := range found {
			if strings.HasPrefix(e.Key, "s/") && e.N < 40 && e.N > 10 {
				return i
			}
		}
		t.Fatal("no such key; take another seed")
		return 0
	}
	for name, test := range map[string]struct {
		history *history
		found   func(t *testing.T, h *history) []entry
		want    counts
		says    string
	}{
		"all that was acknowledged": {power(), func(_ *testing.T, h *history) []entry { return whole(h) },
			counts{survived: 50, acked: 50, kept: 50}, ""},
		"more than was acknowledged": {power(), func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, 57)) },
			counts{survived: 57, acked: 50, kept: 50}, ""},
		"all that was issued": {power(), func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, issued)) },
			counts{survived: 60, acked: 50, kept: 50}, ""},
		"the last ones lost": {power(), func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, 47)) },
			counts{survived: 47, acked: 50, kept: 47, lost: 3}, "only the first 47 are there: 3 acknowledged ones are lost"},
		"everything lost": {power(), func(*testing.T, *history) []entry { return nil },
			counts{acked: 50, lost: 50}, "only the first 0 are there"},
		"a weaker level loses": {told(holdfast.Power, holdfast.Process, acked, issued), func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, 47)) },
			counts{survived: 47, acked: 50, kept: 47, gone: 3}, ""},
		"weaker company loses": {
			func() *history {
				h := told(holdfast.Power, holdfast.Power, 47, issued)
				h.add(&ledger{acks: []ack{{n: 48, batch: true, level: holdfast.Memory}}}, never)
				return h
			}(),
			func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, 47)) },
			counts{survived: 47, acked: 47, kept: 47}, ""},
		"what Sync promised lost": {
			func() *history {
				h := told(holdfast.Power, holdfast.Process, acked, issued)
				h.add(&ledger{acks: []ack{{n: 49, level: holdfast.Power}}}, never)
				return h
			}(),
			func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, 47)) },
			counts{survived: 47, acked: 50, kept: 47, lost: 1, gone: 3}, "batch 49 and all before it"},
		"a key of a batch missing": {power(), func(t *testing.T, h *history) []entry {
			found := whole(h)
			i := inside(t, found)
			return slices.Delete(found, i, i+1)
		}, counts{torn: 1, lost: 1, acked: 50, kept: 49}, "is there in part"},
		"the last batch in part": {power(), func(_ *testing.T, h *history) []entry {
			s := after(h, 49)
			s.Apply(planOf(h.Seed).Ops(0, 50)[:1])
			return entriesOf(h, s)
		}, counts{survived: 49, acked: 50, kept: 49, torn: 1, lost: 1}, "batch 50 is there in part"},
		"a deletion that did not happen": {power(), func(t *testing.T, h *history) []entry {
			for n := uint64(1); n < 40; n++ {
				for _, gone := range after(h, n-1) {
					_, there := after(h, n).Get(gone.Key)
					end := after(h, acked)
					if _, again := end.Get(gone.Key); !there && !again {
						end.Apply([]commits.Op[commits.Written]{commits.Set(gone.Key, gone.Value)})
						return entriesOf(h, end)
					}
				}
			}
			t.Fatal("no such key; take another seed")
			return nil
		}, counts{torn: 1, lost: 1, acked: 50, kept: 49}, "which it deleted, is still there"},
		"a batch missing under later ones": {power(), func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, acked, 30)) },
			counts{survived: 29, acked: 50, kept: 49, order: 1, lost: 1}, "batch 30 is not there, but later ones up to 50 are"},
		"two batches missing under later ones that nobody was promised": {
			told(holdfast.Power, holdfast.Power, 20, issued), func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, acked, 30, 31)) },
			counts{survived: 29, acked: 20, kept: 20, order: 2}, "batch 31 is not there"},
		"a key that nobody wrote": {power(), func(_ *testing.T, h *history) []entry {
			return append(whole(h), commits.NewFound("zebra", planOf(h.Seed).Value(nil, "zebra", commits.Written{N: 9, Gen: 0, Size: 30})))
		}, counts{survived: 50, acked: 50, kept: 50, wrong: 1}, "that batch did not write this key"},
		"a value that says nothing": {power(), func(_ *testing.T, h *history) []entry {
			return append(whole(h), commits.NewFound("zebra", []byte("x")))
		},
			counts{survived: 50, acked: 50, kept: 50, wrong: 1}, "no batch wrote it"},
		"a batch that was never issued": {power(), func(_ *testing.T, h *history) []entry {
			return append(whole(h), commits.NewFound(commits.NumberKey(61), planOf(h.Seed).Value(nil, commits.NumberKey(61), commits.Written{N: 61, Gen: 0, Size: 30})))
		}, counts{survived: 50, acked: 50, kept: 50, wrong: 1}, "no batch wrote it"},
		"a damaged byte": {power(), func(t *testing.T, h *history) []entry {
			found := whole(h)
			found[inside(t, found)].Sum[3] ^= 1
			return found
		}, counts{acked: 50, kept: 49, lost: 1, torn: 1, wrong: 1}, "its bytes are damaged"},
		"a value cut short": {power(), func(t *testing.T, h *history) []entry {
			found := whole(h)
			found[inside(t, found)].Len--
			return found
		}, counts{acked: 50, kept: 49, lost: 1, torn: 1, wrong: 1}, "it was written with"},
		"a key twice": {power(), func(_ *testing.T, h *history) []entry {
			found := whole(h)
			return append(found, found[0])
		}, counts{survived: 50, acked: 50, kept: 50, wrong: 1}, "is there twice"},
		"a batch that a crash had taken back": {
			func() *history {
				h := told(holdfast.Power, holdfast.Power, 50, 60)
				h.begin(1, 51)
				h.add(&ledger{issued: 70, acks: []ack{{n: 55, batch: true, level: holdfast.Power}}}, never)
				return h
			}(),
			func(_ *testing.T, h *history) []entry {
				found := entriesOf(h, after(h, 55))
				return append(found, commits.NewFound(commits.NumberKey(58), planOf(h.Seed).Value(nil, commits.NumberKey(58), commits.Written{N: 58, Gen: 0, Size: 30})))
			},
			counts{survived: 55, acked: 1, kept: 1, wrong: 1}, "a crash had taken that batch back"},
		"what a follower was shown taken back": {
			func() *history {
				h := power()
				h.add(&ledger{shown: []ack{{n: 56, level: holdfast.Power}}}, never)
				return h
			}(),
			func(_ *testing.T, h *history) []entry { return entriesOf(h, after(h, 52)) },
			counts{survived: 52, acked: 50, kept: 50, wrong: 1}, "a follower was shown everything up to 56, but only 52 survived"},
	} {
		t.Run(name, func(t *testing.T) {
			j := kvJudge(test.history, test.found(t, test.history))
			got := countsOf(j)
			if test.want.survived == 0 {
				got.survived = 0 // depends on the key that the seed has there
			}
			if got != test.want {
				t.Errorf("%+v, want %+v: %q", got, test.want, j.Findings)
			}
			if broken := test.want.lost+test.want.torn+test.want.order+test.want.wrong > 0; j.broken() != broken {
				t.Errorf("broken %v: %+v", j.broken(), j)
			}
			if test.says == "" && len(j.Findings) > 0 || !strings.Contains(strings.Join(j.Findings, "\n"), test.says) {
				t.Errorf("it says %q, want %q", j.Findings, test.says)
			}
		})
	}
}

// TestWindow: from the first acknowledgement that is gone to the last one.
func TestWindow(t *testing.T) {
	for _, level := range []holdfast.Level{holdfast.Process, holdfast.Power} {
		h := told(holdfast.Power, level, 50, 60)
		if j := kvJudge(h, entriesOf(h, after(h, 40))); j.Window != 9 {
			t.Errorf("at %v it is %v ms, not from the one at 41 ms to the one at 50 ms", level, j.Window)
		}
		if j := kvJudge(h, entriesOf(h, after(h, 50))); j.Window != 0 {
			t.Errorf("at %v nothing is lost, but it is %v ms", level, j.Window)
		}
	}
}

func TestSecondOpening(t *testing.T) {
	h := told(holdfast.Power, holdfast.Power, 50, 60)
	found := entriesOf(h, after(h, 50))
	changed := slices.Clone(found)
	changed[3].Sum[0] ^= 1
	for name, test := range map[string]struct {
		second []entry
		says   string
	}{
		"the same":         {slices.Clone(found), ""},
		"one less":         {found[:len(found)-1], "is missing"},
		"one more":         {append(slices.Clone(found), entry{Key: "zebra"}), "after the last of"},
		"another":          {changed, "should be"},
		"a batch more":     {entriesOf(h, after(h, 51)), "opened again"},
		"nothing at all":   {nil, "is missing"},
		"one in between":   {slices.Insert(slices.Clone(found), 2, entry{Key: "b/x"}), "should be"},
		"one of the first": {found[1:], "should be"},
	} {
		var j Judgement
		j.again(found, test.second)
		if (j.Wrong == 1) != (test.says != "") || !strings.Contains(strings.Join(j.Findings, ""), test.says) {
			t.Errorf("%s: %+v", name, j)
		}
	}
}

// appendsOf is what is in a log after the appends that begin at positions below end; its last position too.
func appendsOf(h *history, end uint64) (found []entry, last uint64) {
	for n := uint64(1); n < end; {
		list := planOf(h.Seed).appended(h.generation(n), n)
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
func eventSize(h *history, n uint64) uint64 {
	return uint64(len(planOf(h.Seed).appended(h.generation(n), n)))
}

func TestEventJudgeFindsWhatIsWrong(t *testing.T) {
	base := &history{Seed: 8}
	base.begin(0, 1)
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
	story := func() *history {
		h := &history{Seed: 8, Survives: holdfast.Power, Level: holdfast.Power}
		h.begin(0, 1)
		l := &ledger{issued: last + 8}
		for i, n := range starts {
			l.acks = append(l.acks, ack{n: n + eventSize(h, n) - 1, batch: true, level: holdfast.Power, at: time.Duration(i) * time.Millisecond})
		}
		l.saved = []mark{{value: 16}, {16, holdfast.Power, 0}, {value: 32}}
		h.add(l, never)
		return h
	}
	around := func(first, offset uint64, events []entry) []entry {
		return append([]entry{{Key: entryFirst, N: first}, {Key: entryOffset, N: offset}}, events...)
	}
	without := func(from, n uint64) []entry {
		return slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return e.N >= from && e.N < from+n })
	}
	changed := slices.Clone(all)
	changed[several].Sum[0] ^= 1
	fewer, _ := appendsOf(base, starts[len(starts)-2])
	for name, test := range map[string]struct {
		found []entry
		more  func(h *history)
		want  counts
		says  string
	}{
		"all":                  {found: around(1, 16, all)},
		"an offset under way":  {found: around(1, 32, all)},
		"the last ones lost":   {found: around(1, 16, fewer), want: counts{lost: 2}, says: "2 acknowledged ones are lost"},
		"one event missing":    {found: around(1, 16, without(several+1, 1)), want: counts{torn: 1, lost: 1}, says: "is there in part: 1 events are missing"},
		"an append missing":    {found: around(1, 16, without(several, size)), want: counts{order: 1, lost: 1}, says: fmt.Sprintf("positions %d to %d are missing", several, several+size-1)},
		"another event":        {found: around(1, 16, changed), want: counts{wrong: 1}, says: "does not hold what was appended there"},
		"invented events":      {found: around(1, 16, append(slices.Clone(all), entry{Key: "e/90", N: last + 20})), want: counts{order: -1}, says: "nobody appended them"},
		"an offset lost":       {found: around(1, 0, all), want: counts{wrong: 1}, says: "the saved offset is 0, and must be from 16 to 32"},
		"an offset invented":   {found: around(1, 33, all), want: counts{wrong: 1}, says: "the saved offset is 33"},
		"the front cut off":    {found: around(9, 16, all[8:]), want: counts{wrong: 1}, says: "the first position is 9, and must be from 1 to 1"},
		"the front as it must": {found: around(9, 16, all[8:]), more: func(h *history) { h.First = interval{9, 9} }},
		"the front not yet":    {found: around(5, 16, all[4:]), more: func(h *history) { h.First = interval{1, 9} }},
		"the front come back":  {found: around(1, 16, all), more: func(h *history) { h.First = interval{9, 9} }, want: counts{wrong: 1}, says: "must be from 9 to 9"},
		"a follower saw more":  {found: around(1, 16, all), more: func(h *history) { h.Shown = last + 1 }, want: counts{wrong: 1}, says: "a follower was shown everything up to"},
		"an offset beyond the end": {found: around(1, 32, all[:20]), more: func(h *history) { h.Bound, h.Acks = 0, nil },
			want: counts{wrong: -1}, says: "but the log ends with 20"},
	} {
		t.Run(name, func(t *testing.T) {
			h := story()
			if test.more != nil {
				test.more(h)
			}
			j := eventJudge(h, test.found)
			got := counts{lost: j.Lost, torn: j.Torn, order: j.OutOfOrder, wrong: j.Wrong}
			if test.want.order < 0 || test.want.wrong < 0 {
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
	s, err := event.Open(e, event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	h := &history{Seed: 4, Survives: holdfast.Process}
	h.begin(2, 1)
	for n := uint64(1); n < 300; {
		result, err := s.Append(t.Context(), planOf(h.Seed).appended(2, n)...)
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
	h.Offset, h.First = interval{64, 64}, interval{100, 100}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	var found []entry
	if err := eventRead(&check{spec: spec{Level: holdfast.Memory}, report: &reporter{w: &said}}, e, func(e entry) { found = append(found, e) }); err != nil {
		t.Fatal(err)
	}
	if j := eventJudge(h, found); j.broken() || len(j.Findings) > 0 || j.Survived != h.Issued || said.Len() > 0 {
		t.Errorf("%+v, %q", j, said.String())
	}
	h.Seed++
	if j := eventJudge(h, found); j.Wrong == 0 {
		t.Error("another log passes too")
	}
}
