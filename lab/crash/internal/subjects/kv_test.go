package subjects

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// told is a history in which one victim was promised the batches 1 to acked at level, and began issued.
func told(survives, level holdfast.Level, acked, issued uint64) *protocol.History {
	h := &protocol.History{Seed: 5, Survives: survives, Level: level}
	h.Begin(0, 1)
	h.Issued = issued
	for n := uint64(1); n <= acked; n++ {
		h.Promise(protocol.Ack{N: n, Batch: true, Level: level, At: time.Duration(n) * time.Millisecond})
	}
	return h
}

// entriesOf is what an engine holds that is in that state.
func entriesOf(h *protocol.History, s commits.State[commits.Written]) []commits.Found {
	var found []commits.Found
	for _, e := range s {
		found = append(found, commits.NewFound(e.Key, scriptOf(h.Seed).Value(nil, e.Key, e.Value)))
	}
	return found
}

// after is the state after all batches up to n but those left out.
func after(h *protocol.History, n uint64, without ...uint64) (s commits.State[commits.Written]) {
	for i := uint64(1); i <= n; i++ {
		if !slices.Contains(without, i) {
			s.Apply(scriptOf(h.Seed).Ops(h.Generation(i), i))
		}
	}
	return s
}

// counts are those of a judgement.
type counts struct{ survived, acked, kept, lost, gone, torn, order, wrong int }

func countsOf(j protocol.Judgement) counts {
	return counts{int(j.Survived), j.Acked, j.Kept, j.Lost, j.Gone, j.Torn, j.OutOfOrder, j.Wrong}
}

// TestModelIsTheEngine: what the judge expects after every number of batches is what a correct engine holds, for every
// weight of values.
func TestModelIsTheEngine(t *testing.T) {
	weights := map[int]bool{}
	for seed := uint64(1); len(weights) < 3; seed++ {
		p := scriptOf(seed)
		if weights[p.Large] {
			continue
		}
		weights[p.Large] = true
		e := mem.New()
		h := &protocol.History{Seed: seed, Survives: holdfast.Process}
		h.Begin(3, 1)
		c := &check{spec: protocol.Spec{Seed: seed}}
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
			var found []commits.Found
			if err := kvRead(c, e, func(e commits.Found) { found = append(found, e) }); err != nil {
				t.Fatal(err)
			}
			if j := kvJudge(h, found); j.Broken() || j.Survived != n || len(j.Findings) > 0 {
				t.Fatalf("seed %d after %d batches: %+v", seed, n, j)
			}
		}
		if len(c.said) > 0 {
			t.Errorf("the check saw %q", c.said)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJudgeFindsWhatIsWrong makes each kind of violation by hand.
func TestJudgeFindsWhatIsWrong(t *testing.T) {
	const acked, issued = 50, 60
	power := func() *protocol.History { return told(holdfast.Power, holdfast.Power, acked, issued) }
	whole := func(h *protocol.History) []commits.Found { return entriesOf(h, after(h, acked)) }
	// inside is the place of an entry of a batch in the middle that has set more keys that are there.
	inside := func(t *testing.T, found []commits.Found) int {
		for i, e := range found {
			if strings.HasPrefix(e.Key, "s/") && e.N < 40 && e.N > 10 {
				return i
			}
		}
		t.Fatal("no such key; take another seed")
		return 0
	}
	type finder func(t *testing.T, h *protocol.History) []commits.Found
	upTo := func(n uint64, without ...uint64) finder {
		return func(_ *testing.T, h *protocol.History) []commits.Found { return entriesOf(h, after(h, n, without...)) }
	}
	// also is upTo with a value of batch n under a key.
	also := func(end uint64, key string, n uint64) finder {
		return func(_ *testing.T, h *protocol.History) []commits.Found {
			value := scriptOf(h.Seed).Value(nil, key, commits.Written{N: n, Gen: 0, Size: 30})
			return append(entriesOf(h, after(h, end)), commits.NewFound(key, value))
		}
	}
	for name, test := range map[string]struct {
		history *protocol.History
		found   finder
		want    counts
		says    string
	}{
		"all that was acknowledged": {power(), upTo(acked),
			counts{survived: 50, acked: 50, kept: 50}, ""},
		"more than was acknowledged": {power(), upTo(57),
			counts{survived: 57, acked: 50, kept: 50}, ""},
		"all that was issued": {power(), upTo(issued),
			counts{survived: 60, acked: 50, kept: 50}, ""},
		"the last ones lost": {power(), upTo(47),
			counts{survived: 47, acked: 50, kept: 47, lost: 3}, "only the first 47 are there: 3 acknowledged ones are lost"},
		"everything lost": {power(), upTo(0),
			counts{acked: 50, lost: 50}, "only the first 0 are there"},
		"a weaker level loses": {told(holdfast.Power, holdfast.Process, acked, issued), upTo(47),
			counts{survived: 47, acked: 50, kept: 47, gone: 3}, ""},
		"weaker company loses": {
			func() *protocol.History {
				h := told(holdfast.Power, holdfast.Power, 47, issued)
				h.Promise(protocol.Ack{N: 48, Batch: true, Level: holdfast.Memory})
				return h
			}(),
			upTo(47),
			counts{survived: 47, acked: 47, kept: 47}, ""},
		"what Sync promised lost": {
			func() *protocol.History {
				h := told(holdfast.Power, holdfast.Process, acked, issued)
				h.Promise(protocol.Ack{N: 49, Level: holdfast.Power})
				return h
			}(),
			upTo(47),
			counts{survived: 47, acked: 50, kept: 47, lost: 1, gone: 3}, "batch 49 and all before it"},
		"a key of a batch missing": {power(), func(t *testing.T, h *protocol.History) []commits.Found {
			found := whole(h)
			i := inside(t, found)
			return slices.Delete(found, i, i+1)
		}, counts{torn: 1, lost: 1, acked: 50, kept: 49}, "is there in part"},
		"the last batch in part": {power(), func(_ *testing.T, h *protocol.History) []commits.Found {
			s := after(h, 49)
			s.Apply(scriptOf(h.Seed).Ops(0, 50)[:1])
			return entriesOf(h, s)
		}, counts{survived: 49, acked: 50, kept: 49, torn: 1, lost: 1}, "batch 50 is there in part"},
		"a deletion that did not happen": {power(), func(t *testing.T, h *protocol.History) []commits.Found {
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
		"a batch missing under later ones": {power(), upTo(acked, 30),
			counts{survived: 29, acked: 50, kept: 49, order: 1, lost: 1}, "batch 30 is not there, but later ones up to 50 are"},
		"two batches missing under later ones that were not promised": {
			told(holdfast.Power, holdfast.Power, 20, issued), upTo(acked, 30, 31),
			counts{survived: 29, acked: 20, kept: 20, order: 2}, "batch 31 is not there"},
		"a key never written": {power(), also(acked, "zebra", 9),
			counts{survived: 50, acked: 50, kept: 50, wrong: 1}, "that batch did not write this key"},
		"a value that says nothing": {power(), func(_ *testing.T, h *protocol.History) []commits.Found {
			return append(whole(h), commits.NewFound("zebra", []byte("x")))
		},
			counts{survived: 50, acked: 50, kept: 50, wrong: 1}, "no batch wrote it"},
		"a batch that was never issued": {power(), also(acked, commits.NumberKey(61), 61),
			counts{survived: 50, acked: 50, kept: 50, wrong: 1}, "no batch wrote it"},
		"a damaged byte": {power(), func(t *testing.T, h *protocol.History) []commits.Found {
			found := whole(h)
			found[inside(t, found)].Sum[3] ^= 1
			return found
		}, counts{acked: 50, kept: 49, lost: 1, torn: 1, wrong: 1}, "its bytes are damaged"},
		"a value cut short": {power(), func(t *testing.T, h *protocol.History) []commits.Found {
			found := whole(h)
			found[inside(t, found)].Len--
			return found
		}, counts{acked: 50, kept: 49, lost: 1, torn: 1, wrong: 1}, "it was written with"},
		"a key twice": {power(), func(_ *testing.T, h *protocol.History) []commits.Found {
			found := whole(h)
			return append(found, found[0])
		}, counts{survived: 50, acked: 50, kept: 50, wrong: 1}, "is there twice"},
		"a batch that a crash had taken back": {
			func() *protocol.History {
				h := told(holdfast.Power, holdfast.Power, 50, 60)
				h.Begin(1, 51)
				h.Issued = 70
				h.Promise(protocol.Ack{N: 55, Batch: true, Level: holdfast.Power})
				return h
			}(),
			also(55, commits.NumberKey(58), 58),
			counts{survived: 55, acked: 1, kept: 1, wrong: 1}, "a crash had taken that batch back"},
		"what a follower was shown taken back": {
			func() *protocol.History {
				h := power()
				h.Shown = 56
				return h
			}(),
			upTo(52),
			counts{survived: 52, acked: 50, kept: 50, wrong: 1},
			"a follower was shown everything up to 56, but only 52 survived"},
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
			if broken := test.want.lost+test.want.torn+test.want.order+test.want.wrong > 0; j.Broken() != broken {
				t.Errorf("broken %v: %+v", j.Broken(), j)
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
		second []commits.Found
		says   string
	}{
		"the same":         {slices.Clone(found), ""},
		"one less":         {found[:len(found)-1], "is missing"},
		"one more":         {append(slices.Clone(found), commits.Found{Key: "zebra"}), "after the last of"},
		"another":          {changed, "should be"},
		"a batch more":     {entriesOf(h, after(h, 51)), "opened again"},
		"nothing at all":   {nil, "is missing"},
		"one in between":   {slices.Insert(slices.Clone(found), 2, commits.Found{Key: "b/x"}), "should be"},
		"one of the first": {found[1:], "should be"},
	} {
		var j protocol.Judgement
		j.Again(found, test.second)
		if (j.Wrong == 1) != (test.says != "") || !strings.Contains(strings.Join(j.Findings, ""), test.says) {
			t.Errorf("%s: %+v", name, j)
		}
	}
}
