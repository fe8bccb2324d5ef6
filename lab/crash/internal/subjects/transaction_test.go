package subjects

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/projection"
)

// TestTransactionJudge: what transactions leave passes, and whatever is changed in that is found out.
func TestTransactionJudge(t *testing.T) {
	const seed, last = 3, kept + 30
	e := mem.New()
	defer e.Close()
	base := &protocol.History{Seed: seed, Survives: holdfast.Process, Level: holdfast.Process}
	base.Begin(0, 1)
	s, err := openTransactions(e, holdfast.Memory)
	if err != nil {
		t.Fatal(err)
	}
	for n := uint64(1); n <= last; n++ {
		if err := s.db.Update(t.Context(), s.update(scriptOf(seed), 0, n)); err != nil {
			t.Fatalf("transaction %d: %v", n, err)
		}
		base.Issued = n
		base.Promise(protocol.Ack{N: n, Batch: true, Level: holdfast.Process, At: time.Duration(n), Issued: n})
	}
	if err := s.view.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	var all []commits.Found
	c := &check{spec: protocol.Spec{Seed: seed, Level: holdfast.Memory}}
	if err := transactionRead(c, e, func(f commits.Found) { all = append(all, f) }); err != nil || len(c.said) > 0 {
		t.Fatal(err, c.said)
	}
	if j := transactionJudge(base, all); len(j.Findings) > 0 || j.Survived != last || j.Kept != last {
		t.Fatalf("%+v", j)
	}

	at := func(place string, n uint64) int {
		i := slices.IndexFunc(all, func(f commits.Found) bool { return strings.HasPrefix(f.Key, place+" ") && f.N == n })
		if i < 0 {
			t.Fatalf("there is no %s of transaction %d", place, n)
		}
		return i
	}
	without := func(places []string, n uint64) []commits.Found {
		found := slices.Clone(all)
		for _, place := range places {
			found = slices.DeleteFunc(found, func(f commits.Found) bool { return f == all[at(place, n)] })
		}
		return found
	}
	edit := func(place string, n uint64, f func(f *commits.Found)) []commits.Found {
		found := slices.Clone(all)
		f(&found[at(place, n)])
		return found
	}
	everywhere := []string{placeBucket, placeMessage, placeEvent, placeTask}
	for name, test := range map[string]struct {
		found []commits.Found
		more  func(h *protocol.History)
		says  string
	}{
		"the last without its key":     {found: without(everywhere[:1], last), says: "in part, without its bucket"},
		"the last without its message": {found: without(everywhere[1:2], last), says: "in part, without its message"},
		"the last without its event":   {found: without(everywhere[2:3], last), says: "in part, without its event"},
		"the last without its task":    {found: without(everywhere[3:], last), says: "in part, without its task"},
		"only a message": {found: without([]string{placeBucket, placeEvent, placeTask}, last),
			says: "in part"},
		"one between lost": {found: without(everywhere, last-5), says: "is not there, and"},
		"the sequence is older": {found: edit(placeSequence, last, func(f *commits.Found) { f.N-- }),
			says: "the sequence is that"},
		"the offset is older": {found: edit(placeOffset, last, func(f *commits.Found) { f.N-- }),
			says: "the offset is that"},
		"a value of another": {found: edit(placeBucket, last, func(f *commits.Found) { f.Sum[0]++ }), says: "has left"},
		"a cancellation undone": {found: edit(placeTask, last-1, func(f *commits.Found) { f.Key = "task waiting" }),
			says: "has left"},
		"a deletion undone": {found: append(slices.Clone(all), commits.Found{Key: "bucket x", N: 1}),
			says: "has deleted it"},
		"twice":        {found: append(slices.Clone(all), all[at(placeEvent, 7)]), says: "twice"},
		"never begun":  {found: all, more: func(h *protocol.History) { h.Issued = 100 }, says: "the last that was begun"},
		"another seed": {found: all, more: func(h *protocol.History) { h.Seed++ }, says: "has left"},
		"all lost":     {found: nil, says: "acknowledged to survive this"},
	} {
		t.Run(name, func(t *testing.T) {
			h := base.Clone()
			if test.more != nil {
				test.more(h)
			}
			j := transactionJudge(h, test.found)
			if says := strings.Join(j.Findings, "\n"); !j.Broken() || !strings.Contains(says, test.says) {
				t.Errorf("it says %.500q, want %q", says, test.says)
			}
		})
	}
	if s, err = openTransactions(e, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	err = s.db.Update(t.Context(), func(tx *kv.Tx) error {
		return projection.Set(s.view.View(tx), viewKey, viewed{last, last})
	})
	if err := errors.Join(err, s.checkView(c), s.close()); err != nil || len(c.said) != 1 ||
		!strings.Contains(c.said[0], "the view has") {
		t.Fatal(err, c.said)
	}
	var told bytes.Buffer // a victim that does not find what it has left says so
	w := &worker{spec: protocol.Spec{Seed: seed, Level: holdfast.Memory}, report: protocol.NewReporter(&told), next: 2}
	if err := transactionWork(w, e, nil); err != nil || !strings.Contains(wrongIn(&told), "the log ends") {
		t.Errorf("%v", err)
	}
}
