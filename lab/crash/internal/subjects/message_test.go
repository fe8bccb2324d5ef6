package subjects

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/message"
)

// messageStory does the operations 1 to n of a seed, one after the other, in a store on an engine in memory, and
// returns the history of that, and what the victim says is wrong.
func messageStory(t *testing.T, e holdfast.Engine, seed, n uint64) (*protocol.History, string) {
	t.Helper()
	h := &protocol.History{Seed: seed, Survives: holdfast.Process, Level: holdfast.Process, Concurrent: true,
		Places: map[uint64]uint64{}}
	h.Begin(0, 1)
	db, s, err := openMessages(e, holdfast.Memory)
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	w := &worker{spec: protocol.Spec{Seed: seed, From: 1}, report: protocol.NewReporter(&told), next: 1}
	v := newMessageVictim(w, db, s, holdfast.Memory)
	for range n {
		c := v.begin()
		err := v.do(t.Context(), c)
		if v.finish(c, err); err != nil {
			t.Fatal(err)
		}
		h.Issued = c.n
		if !c.deletes {
			size := 0
			for _, w := range c.writes {
				size += w.size
			}
			h.Places[c.n] = uint64(c.highest) - uint64(size) + 1
		}
		h.Promise(protocol.Ack{N: c.n, Batch: true, Level: holdfast.Process, At: time.Duration(c.n), Issued: c.n})
	}
	if v.next != n+1 {
		t.Fatalf("the victim goes on with operation %d", v.next)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return h, wrongIn(&told)
}

// wrongIn is what a child that told this says is wrong.
func wrongIn(told *bytes.Buffer) (said string) {
	for r := bufio.NewReader(told); ; {
		m, err := protocol.Receive(r)
		if err != nil {
			return said
		}
		if m.Kind == protocol.TellWrong {
			said += m.Text + "\n"
		}
	}
}

// TestNothingDeletedPromisesNothing: a namespace may be missing because of a deletion that failed.
func TestNothingDeletedPromisesNothing(t *testing.T) {
	db, s, err := openMessages(mem.New(), holdfast.Memory)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var told bytes.Buffer
	v := newMessageVictim(&worker{report: protocol.NewReporter(&told), next: 1}, db, s, holdfast.Memory)
	deletion := v.begin()
	for ; !deletion.deletes; deletion = v.begin() {
		v.finish(deletion, errors.New("not tried"))
	}
	err = v.do(t.Context(), deletion)
	if v.finish(deletion, err); err != nil {
		t.Fatal(err)
	}
	for r := bufio.NewReader(&told); ; {
		m, err := protocol.Receive(r)
		if err != nil {
			break
		}
		if m.Kind == protocol.TellAcked {
			t.Errorf("%v is acknowledged", deletion)
		}
	}
}

// messageFound is what a check finds in an engine, and what it says is wrong.
func messageFound(t *testing.T, h *protocol.History, e holdfast.Engine) (found []commits.Found, said string) {
	t.Helper()
	c := &check{spec: protocol.Spec{Seed: h.Seed, Level: holdfast.Memory}}
	if err := messageRead(c, e, func(f commits.Found) { found = append(found, f) }); err != nil {
		t.Fatal(err)
	}
	return found, strings.Join(c.said, "\n")
}

// TestMessageModelIsTheStore: what the judge expects is what a store holds, with namespaces deleted in between.
func TestMessageModelIsTheStore(t *testing.T) {
	e := mem.New()
	h, saw := messageStory(t, e, 3, 400)
	found, said := messageFound(t, h, e)
	j := messageJudge(h, found)
	if saw+said != "" || j.Broken() || len(j.Findings) > 0 || j.Survived != 400 || j.Kept != 400 || len(j.Skipped) > 0 {
		t.Errorf("%q, %q, %+v", saw, said, j)
	}
	gone := 0
	there := map[uint64]bool{}
	for _, f := range found {
		there[f.N] = true
	}
	for n := range uint64(400) {
		if o := scriptOf(h.Seed).message(0, n+1); !o.deletes && !there[n+1] {
			gone++
		}
	}
	if gone < 20 {
		t.Errorf("only %d writes were deleted with their namespaces; take another seed", gone)
	}
	h.Seed++
	if j := messageJudge(h, found); j.Wrong == 0 {
		t.Error("another store passes too")
	}
}

func TestMessageJudgeFindsWhatIsWrong(t *testing.T) {
	const seed, last = 3, 200
	e := mem.New()
	base, _ := messageStory(t, e, seed, last)
	all, _ := messageFound(t, base, e)
	p := scriptOf(seed)
	// one is a write of some messages in the default namespace, deletion the last one there is, and resurrected a
	// write before it in its namespace.
	var one, deletion, resurrected uint64
	for n := uint64(1); n <= last; n++ {
		switch o := p.message(0, n); {
		case o.deletes:
			deletion = n
		case n > 50 && one == 0 && o.space == 0 && len(p.messages(&o)) >= 3:
			one = n
		}
	}
	deleted := p.message(0, deletion).space
	for n := range deletion {
		if o := p.message(0, n); n > 0 && !o.deletes && o.space == deleted {
			resurrected = n
		}
	}
	if one == 0 || resurrected == 0 {
		t.Fatal("take another seed")
	}
	at := func(n uint64) int { return slices.IndexFunc(all, func(f commits.Found) bool { return f.N == n }) }
	size := func(n uint64) int {
		o := p.message(0, n)
		return len(p.messages(&o))
	}
	clone := func() []commits.Found { return slices.Clone(all) }
	without := func(drop func(f commits.Found) bool) []commits.Found { return slices.DeleteFunc(clone(), drop) }
	operation := func(n uint64) func(commits.Found) bool {
		return func(f commits.Found) bool { return f.N == n }
	}
	changed := clone()
	changed[at(one)+1].Sum[0] ^= 1
	space := func(n uint64) string { return messageSpaces[p.message(0, n).space] }
	back := p.message(0, resurrected)
	backMessages := p.messages(&back)
	for i := range backMessages {
		backMessages[i].Global = int64(i) + 1
	}
	var returned []commits.Found
	for _, m := range backMessages {
		returned = append(returned, messageEntry(space(resurrected), m))
	}
	unacked := func(n uint64) func(h *protocol.History) {
		return func(h *protocol.History) {
			h.Acks = slices.DeleteFunc(h.Acks, func(a protocol.Ack) bool { return a.N == n })
			h.Must = slices.DeleteFunc(h.Must, func(m uint64) bool { return m == n })
		}
	}
	emptied := append(without(func(f commits.Found) bool {
		return f.N >= deletion || strings.HasPrefix(f.Key, messageSpaces[deleted]+" ") || isKept(f)
	}), keptFold(base, deletion).entries()...)
	ends := func(h *protocol.History) { // with the deletion, of which nobody made the namespace again
		h.Issued, h.Acks = deletion, nil
		h.Must = slices.DeleteFunc(h.Must, func(n uint64) bool { return n > deletion })
	}
	again := deletion + 1 // the first write that makes it again
	for ; p.message(0, again).space != deleted; again++ {
	}
	empty := append(slices.Clone(emptied), messageSpaceEntry(describedAs(namespaceOptions(messageSpaces[deleted]))))
	elsewhere := all[at(one)]
	elsewhere.Key = messageSpaces[1] + strings.TrimPrefix(elsewhere.Key, message.Default)
	for name, test := range map[string]struct {
		found []commits.Found
		more  func(h *protocol.History)
		want  counts
		says  string

		skips    int
		survived uint64 // if it is not the last one
	}{
		"all": {found: all},
		"an acked one lost": {found: without(operation(one)), want: counts{lost: 1, order: 1},
			says: "had been acknowledged"},
		"one under way lost": {found: without(operation(one)), more: unacked(one), skips: 1},
		"one lost, though a sync covers it": {found: without(operation(one)), more: func(h *protocol.History) {
			unacked(one)(h)
			h.Bound = one
		}, want: counts{lost: 1}, says: "all before it had been acknowledged"},
		"a shown one lost": {found: without(operation(one)), more: func(h *protocol.History) {
			unacked(one)(h)
			h.Must = append(h.Must, one)
		}, want: counts{lost: 1}, says: "shown by a follower"},
		"one message of a write lost": {found: slices.Delete(clone(), at(one)+1, at(one)+2), more: unacked(one),
			want: counts{torn: 1}, says: "is there in part"},
		"the last message of a write lost": {
			found: slices.Delete(clone(), at(one)+size(one)-1, at(one)+size(one)), more: unacked(one),
			want: counts{torn: 1}, says: "is there in part"},
		"a message changed": {found: changed, want: counts{wrong: 1}, says: "it is not what operation"},
		"a message twice": {found: slices.Insert(clone(), at(one), all[at(one)]), want: counts{wrong: 1},
			says: "it is not what operation"},
		"a write in two namespaces": {found: append(clone(), elsewhere), want: counts{wrong: 1},
			says: "not what was written there, or not once"},
		"a write that was never begun": {found: all, more: func(h *protocol.History) { h.Issued = last - 1 },
			want: counts{wrong: -1, lost: -1}, says: "no operation wrote it"},
		"a write that was undone": {found: all, more: func(h *protocol.History) {
			h.Begin(1, one)
			h.Issued = last
		}, want: counts{wrong: -1, lost: -1}, says: "a crash had undone that operation"},
		"a write that was skipped": {found: all, more: func(h *protocol.History) {
			unacked(one)(h)
			h.Skipped = []protocol.Span{{From: one, To: one}}
		}, want: counts{wrong: 1}, says: "not what was written there"},
		"a write elsewhere than told": {found: all, more: func(h *protocol.History) { h.Places[one]++ },
			want: counts{wrong: 1}, says: "was told to be at global position"},
		"a deleted write come back": {found: append(clone(), returned...), want: counts{lost: -1, order: -1},
			says: "had been acknowledged"},
		"a deletion under way": {found: emptied, more: func(h *protocol.History) {
			h.Issued, h.Acks = deletion, nil
			h.Must = slices.DeleteFunc(h.Must, func(n uint64) bool { return n >= deletion })
		}, survived: deletion},
		"a deleted namespace there again": {found: empty, more: ends, want: counts{wrong: 1},
			says: "was acknowledged as deleted", survived: deletion},
		"a deleted namespace there again, by a write that was undone": {found: empty, more: func(h *protocol.History) {
			ends(h)
			h.Issued = again
			h.Begin(1, deletion+1)
		}, survived: deletion},
		"a deleted namespace there again, by a write that was undone before": {found: empty,
			more: func(h *protocol.History) {
				ends(h)
				h.Undone = []protocol.Undone{{Span: protocol.Span{From: deletion, To: again}, Before: deletion}}
			}, want: counts{wrong: 1}, says: "was acknowledged as deleted", survived: deletion},
		"no default namespace": {found: without(func(f commits.Found) bool { return f.Key == message.Default }),
			want: counts{wrong: 1}, says: "there is no namespace"},
		"a strange namespace": {found: append(clone(), commits.Found{Key: "strange"}), want: counts{wrong: 1},
			says: "there is no such namespace"},
		"a namespace described otherwise": {found: func() []commits.Found {
			found := clone()
			found[slices.IndexFunc(found, func(f commits.Found) bool { return f.Key == messageSpaces[1] })].Sum[3]++
			return found
		}(), want: counts{wrong: 1}, says: "not described as it was made"},
	} {
		t.Run(name, func(t *testing.T) {
			h := base.Clone()
			if test.more != nil {
				test.more(h)
			}
			j := messageJudge(h, test.found)
			for what, pair := range map[string][2]int{
				"lost": {j.Lost, test.want.lost}, "torn": {j.Torn, test.want.torn}, "order": {j.OutOfOrder, test.want.order},
				"wrong": {j.Wrong, test.want.wrong},
			} {
				if got, want := pair[0], pair[1]; want >= 0 && got != want || want < 0 && got == 0 { // at least one
					t.Errorf("%d %s, want %d: %q", got, what, want, j.Findings)
				}
			}
			says := strings.Join(j.Findings, "\n")
			if !strings.Contains(says, test.says) || test.says == "" && says != "" {
				t.Errorf("it says %q, want %q", j.Findings, test.says)
			}
			if survived := cmp.Or(test.survived, last); len(j.Skipped) != test.skips ||
				!j.Broken() && j.Survived != survived {
				t.Errorf("skipped: %v, survived %d", j.Skipped, j.Survived)
			}
		})
	}
}

// firstKeys calls do for the first keys, most at most, that begin with prefix.
func firstKeys(t *testing.T, e holdfast.Engine, prefix string, most int, do func(key, value []byte)) {
	t.Helper()
	all, err := commits.Contents(e, holdfast.Prefix([]byte(prefix)))
	if err != nil || len(all) == 0 {
		t.Fatalf("%d keys begin with %q: %v", len(all), prefix, err)
	}
	for _, entry := range all[:min(most, len(all))] {
		do([]byte(entry.Key), []byte(entry.Value))
	}
}

// TestSpoiltMessagesAreFoundOut breaks one thing of a message store each time. The keys are those of
// docs/format-message.md and docs/format-event.md.
func TestSpoiltMessagesAreFoundOut(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine does the work, slowly under the race detector")
	}
	const log = "e\x10message\x00\x00\x00\x00\x00\x00\x00\x00\x01" // that of the default namespace
	const counts = "m\x00k"
	for name, test := range map[string]struct {
		prefix string
		most   int
		spoil  func(b *holdfast.Batch, key, value []byte)
		says   string // the check, or the judge
	}{
		"a place lost":     {"m\x00s", 1, deleteKey, "all messages disagree"},
		"a place taken":    {"m\x00s", 1, addToLast, "all messages disagree"},
		"a block lost":     {"m\x00c", 1, deleteKey, "all messages disagree"},
		"a wrong count":    {counts, 1, addToLast, "is counted as"},
		"counts lost":      {counts, 100, deleteKey, "is counted as"},
		"ids forgotten":    {log + "i", 1 << 20, deleteKey, "is repeated, and told"},
		"a namespace lost": {"m\x00na", 1, deleteKey, "had been acknowledged"},
	} {
		t.Run(name, func(t *testing.T) {
			e := mem.New()
			seed, n := uint64(3), uint64(150)
			if strings.HasPrefix(test.prefix, counts) {
				seed, n = 6, 700 // enough messages for counts to be stored
			}
			h, saw := messageStory(t, e, seed, n)
			if saw != "" {
				t.Fatal(saw)
			}
			var b holdfast.Batch
			firstKeys(t, e, test.prefix, test.most, func(key, value []byte) { test.spoil(&b, key, value) })
			if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
			found, said := messageFound(t, h, e)
			if said += strings.Join(messageJudge(h, found).Findings, "\n"); !strings.Contains(said, test.says) {
				t.Errorf("it says %q, want %q", said, test.says)
			}
		})
	}
}

func deleteKey(b *holdfast.Batch, key, _ []byte) { b.Delete(key) }

func addToLast(b *holdfast.Batch, key, value []byte) {
	value[len(value)-1]++
	b.Set(key, value)
}

// spoiltBatches passes batches on with some of their operations left out.
type spoiltBatches struct {
	holdfast.Engine
	drop func(op holdfast.Op) bool
}

func (e *spoiltBatches) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	var kept holdfast.Batch
	for op := range b.Ops() {
		switch {
		case e.drop(op):
		case op.Kind == holdfast.KindSet:
			kept.Set(op.Key, op.Value)
		case op.Kind == holdfast.KindDeleteRange:
			kept.DeleteRange(op.Key, op.Value)
		default:
			kept.Delete(op.Key)
		}
	}
	return e.Engine.Apply(&kept, level)
}

// TestVictimOfMessagesSeesWhatIsWrong: what breaks while a store is open the victim sees itself.
func TestVictimOfMessagesSeesWhatIsWrong(t *testing.T) {
	is := func(kind holdfast.Kind, table string) func(op holdfast.Op) bool {
		return func(op holdfast.Op) bool { return op.Kind == kind && bytes.HasPrefix(op.Key, []byte("m\x00"+table)) }
	}
	for name, test := range map[string]struct {
		drop func(op holdfast.Op) bool
		says string
	}{
		"nothing":                 {func(holdfast.Op) bool { return false }, ""},
		"deletions of namespaces": {is(holdfast.KindDelete, "n"), "was deleted, and then described"},
		"places in streams":       {is(holdfast.KindSet, "s"), "and nothing is read there"},
	} {
		t.Run(name, func(t *testing.T) {
			_, saw := messageStory(t, &spoiltBatches{mem.New(), test.drop}, 3, 150)
			if !strings.Contains(saw, test.says) || test.says == "" && saw != "" {
				t.Errorf("it says %q, want %q", saw, test.says)
			}
		})
	}
}

// TestCheckTellsWhole: entries, what is wrong with them and why they end are told one after the other.
func TestCheckTellsWhole(t *testing.T) {
	const many = 5000 // more than are told at a time
	broken := Subject{read: func(c *check, _ holdfast.Engine, emit func(commits.Found)) error {
		for n := range uint64(many) {
			if emit(commits.Found{Key: "k", N: n}); n == many/2 {
				c.wrong("so it is")
			}
		}
		return errors.New("it ends here")
	}}
	var told bytes.Buffer
	open := func() (holdfast.Engine, error) { return mem.New(), nil }
	err := broken.Check(protocol.Spec{Opens: 1}, protocol.NewReporter(&told), open)
	if err == nil || err.Error() != "reading: it ends here" {
		t.Error(err)
	}
	kinds := map[byte]int{}
	for r := bufio.NewReader(&told); ; {
		m, err := protocol.Receive(r)
		if err != nil {
			break
		}
		if kinds[m.Kind]++; m.Kind == protocol.TellWrong && m.Text != "so it is" {
			t.Errorf("%q", m.Text)
		}
	}
	if kinds[protocol.TellFound] != many || kinds[protocol.TellWrong] != 1 || len(kinds) != 3 {
		t.Errorf("%v", kinds)
	}
}
