package subjects

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/message"
)

const keptSeed, keptLast = 2, 250

// keptStory is a story in which every kind of operation does something, and what is found after it.
func keptStory(t *testing.T) (h *protocol.History, found []commits.Found) {
	t.Helper()
	e := mem.New()
	h, saw := messageStory(t, e, keptSeed, keptLast)
	found, said := messageFound(t, h, e)
	if saw+said != "" {
		t.Fatal(saw, said)
	}
	did := map[keptKind]bool{}
	s := newKept(scriptOf(keptSeed))
	for n := uint64(1); n <= keptLast; n++ {
		if o := s.p.message(0, n); o.kept > 0 {
			c := s.step(&o)
			did[o.kept] = did[o.kept] || c.removed > 0 || len(c.acks) > 0 || len(c.messages) > 1 ||
				c.retention.MaxCount > 0
		}
	}
	for kind := keptWrite; kind <= keptConsume; kind++ {
		if !did[kind] {
			t.Fatalf("%v never does anything; take another seed", kind)
		}
	}
	return h, found
}

// TestKeptJudgeFindsWhatIsWrong: the namespace holds what the last of its operations has left, or one before that if
// those behind it promised nothing.
func TestKeptJudgeFindsWhatIsWrong(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine does the work, slowly under the race detector")
	}
	h, found := keptStory(t)
	name := messageSpaces[keptSpace]
	// before is the number of operations after which the namespace held something else, back the state then.
	before := uint64(keptLast)
	end := keptFold(h, keptLast).entries()
	for slices.Equal(keptFold(h, before).entries(), end) {
		before--
	}
	back := slices.DeleteFunc(slices.Clone(found), isKept)
	gone := slices.Clone(back)
	back = append(back, keptFold(h, before).entries()...)
	var removed commits.Found // a message that is not there any more
	for n := uint64(1); removed.N == 0; n++ {
		for _, e := range keptFold(h, n).entries() {
			if e.N > 0 && !slices.Contains(end, e) {
				removed = e
			}
		}
	}
	first := func(prefix string) int {
		i := slices.IndexFunc(found, func(e commits.Found) bool { return strings.HasPrefix(e.Key, name+prefix) })
		if i < 0 {
			t.Fatalf("nothing of %q is found; take another seed", prefix)
		}
		return i
	}
	changed := func(prefix string, change func(e *commits.Found)) []commits.Found {
		list := slices.Clone(found)
		change(&list[first(prefix)])
		return list
	}
	without := func(prefix string) []commits.Found {
		return slices.Delete(slices.Clone(found), first(prefix), first(prefix)+1)
	}
	less := func(e *commits.Found) { e.Len-- }
	const left = "is as no operation has left it"
	for what, test := range map[string]struct {
		found     []commits.Found
		forgotten bool // the operations behind before promised nothing
		says      string
	}{
		"nothing":                      {found: found},
		"one operation lost":           {found: back, says: "had been acknowledged"},
		"operations under way lost":    {found: back, forgotten: true},
		"all lost":                     {found: gone, says: "had been acknowledged"},
		"a removed message come back":  {found: slices.Insert(slices.Clone(found), first(" "), removed), says: left},
		"a message removed by itself":  {found: without(" "), says: left},
		"a message changed":            {found: changed(" ", func(e *commits.Found) { e.Sum[0]++ }), says: left},
		"a message elsewhere":          {found: changed(" ", func(e *commits.Found) { e.Key += "0" }), says: left},
		"a version forgotten":          {found: changed("/"+keptStream(anchor), less), says: left},
		"the last position forgotten":  {found: changed("/last", less), says: left},
		"another retention":            {found: changed("/retention", func(e *commits.Found) { e.Key += "0" }), says: left},
		"an acknowledgement forgotten": {found: slices.Insert(slices.Clone(found), len(found), dueEntry(1)), says: left},
		"one acknowledged by itself":   {found: without("/due"), says: left},
	} {
		h := h.Clone()
		if test.forgotten {
			h.Must = slices.DeleteFunc(h.Must, func(n uint64) bool { return n > before })
			h.Acks = slices.DeleteFunc(h.Acks, func(a protocol.Ack) bool { return a.N > before })
		}
		j := messageJudge(h, test.found)
		says := strings.Join(j.Findings, "\n")
		if !strings.Contains(says, test.says) || j.Broken() != (test.says != "") {
			t.Errorf("%s: it says %q, want %q", what, says, test.says)
		}
	}
}

// TestKeptGoesOn: what a crash has undone is not made up for later.
func TestKeptGoesOn(t *testing.T) {
	h, _ := keptStory(t)
	before := keptFold(h, keptLast/2).entries()
	h.Skipped = []protocol.Span{{From: keptLast/2 + 1, To: keptLast}}
	if d := commits.Difference(keptFold(h, keptLast).entries(), before); d != "" {
		t.Error(d)
	}
	h.Begin(1, keptLast/2+1)
	if slices.Equal(keptFold(h, keptLast).entries(), before) || len(h.Skipped) > 0 {
		t.Error("the next generation does nothing")
	}
}

// TestMutantsOfRemovalAreFoundOut: stores that do one thing wrong each, when they are next read.
func TestMutantsOfRemovalAreFoundOut(t *testing.T) {
	nothing := func(c *keptCall) { c.kind = 0 }
	lost := func(table string) func(e holdfast.Engine) error {
		return func(e holdfast.Engine) error {
			var b holdfast.Batch
			b.DeleteRange([]byte("m\x00"+table), []byte("m\x00"+table+"\xff")) // see docs/format-message.md
			return holdfast.Commit(e, &b, holdfast.Memory)
		}
	}
	for name, test := range map[string]struct {
		kind  keptKind
		does  func(c *keptCall)
		spoil func(e holdfast.Engine) error
	}{
		"writes nothing":       {kind: keptWrite, does: nothing},
		"truncates nothing":    {kind: keptTruncate, does: nothing},
		"truncates too much":   {kind: keptTruncate, does: func(c *keptCall) { c.before++ }},
		"truncates too little": {kind: keptTruncate, does: func(c *keptCall) { c.before-- }},
		"deletes nothing":      {kind: keptDelete, does: nothing},
		"deletes all but the last one": {kind: keptDelete, does: func(c *keptCall) {
			c.kind = keptTruncate
			c.before--
		}},
		"forgets the version of what is deleted": {kind: keptDelete, spoil: lost("h")},
		"sets no retention":                      {kind: keptRetention, does: nothing},
		"retains too much":                       {kind: keptRetain, does: nothing},
		"imports nothing":                        {kind: keptImport, does: nothing},
		"imports all but one":                    {kind: keptImport, does: func(c *keptCall) { c.messages = c.messages[1:] }},
		"imports in the order of the lines": {kind: keptImport, does: func(c *keptCall) {
			a, b := &c.messages[0], &c.messages[1]
			a.Global, b.Global = b.Global, a.Global
		}},
		"forgets acknowledgements":   {kind: keptConsume, does: nothing},
		"acknowledges one by itself": {kind: keptConsume, does: func(c *keptCall) { c.acks = c.acks[1:] }},
		"loses the subscription":     {kind: keptConsume, spoil: lost("q")},
	} {
		t.Run(name, func(t *testing.T) {
			e := mem.New()
			store, err := message.Open(kv.On(e), message.Options{Level: holdfast.Memory, RetainEvery: -1})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = store.Create(t.Context(), namespaceOptions(messageSpaces[keptSpace])); err != nil {
				t.Fatal(err)
			}
			space, err := store.Namespace(t.Context(), messageSpaces[keptSpace])
			if err != nil {
				t.Fatal(err)
			}
			s := newKept(scriptOf(keptSeed))
			j := messageJudging{p: s.p, h: &protocol.History{Seed: keptSeed}, must: map[uint64]bool{}, there: map[uint64]bool{}}
			j.h.Begin(0, 1)
			for done := false; !done; {
				j.h.Issued++
				o := s.p.message(0, j.h.Issued)
				if o.kept == 0 {
					continue
				}
				before := s.entries()
				c := s.step(&o)
				j.must[o.n] = true
				// The first one that would change something does it wrong, and is the last one.
				if done = o.kept == test.kind && len(c.known) < len(s.messages)-1 && len(before) > 12 &&
					!slices.Equal(before, s.entries()) && len(c.acks)+1 < max(len(c.due), 2); done && test.does != nil {
					test.does(&c)
				}
				if wrong, err := c.do(t.Context(), space); err != nil || wrong != "" && !done {
					t.Fatal(&o, wrong, err)
				}
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			if test.spoil != nil {
				if err := test.spoil(e); err != nil {
					t.Fatal(err)
				}
			}
			found, _ := messageFound(t, j.h, e)
			j.keptJudge(slices.DeleteFunc(found, func(e commits.Found) bool { return !isKept(e) }))
			lost := slices.ContainsFunc(slices.Collect(maps.Keys(j.must)), func(n uint64) bool { return !j.there[n] })
			if len(j.v.Findings) == 0 && !lost {
				t.Error("it is not found out")
			}
		})
	}
}
