package simulate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
)

// op is one operation of a batch, as the model keeps it.
type op struct {
	kind       holdfast.Kind
	key, value string
}

type entry struct{ key, value string }

// state is what a database holds, in order of keys.
type state []entry

func (s state) find(key string) (int, bool) {
	return slices.BinarySearchFunc(s, key, func(e entry, key string) int { return strings.Compare(e.key, key) })
}

func (s state) get(key string) (string, bool) {
	i, ok := s.find(key)
	if !ok {
		return "", false
	}
	return s[i].value, true
}

// apply changes s in place.
func (s *state) apply(batch []op) {
	for _, o := range batch {
		i, found := s.find(o.key)
		switch o.kind {
		case holdfast.KindSet:
			if found {
				(*s)[i].value = o.value
			} else {
				*s = slices.Insert(*s, i, entry{o.key, o.value})
			}
		case holdfast.KindDelete:
			if found {
				*s = slices.Delete(*s, i, i+1)
			}
		case holdfast.KindDeleteRange:
			if part := s.within(o.key, o.value); len(part) > 0 {
				i, _ := s.find(part[0].key)
				*s = slices.Delete(*s, i, i+len(part))
			}
		}
	}
}

// within returns the entries of [lo, hi), which share s's memory.
func (s state) within(lo, hi string) state {
	if lo != "" && hi != "" && lo >= hi {
		return nil
	}
	from, _ := s.find(lo)
	to := len(s)
	if hi != "" {
		to, _ = s.find(hi)
	}
	return s[from:to]
}

// difference says where got is not want, "" if it is.
func difference(got, want state) string {
	for i := range min(len(got), len(want)) {
		switch g, w := got[i], want[i]; {
		case g.key < w.key:
			return fmt.Sprintf("there is %s, which should not be", brief(g))
		case g.key > w.key:
			return fmt.Sprintf("%s is missing", brief(w))
		case g.value != w.value:
			return fmt.Sprintf("there is %s, which should be %s", brief(g), brief(w))
		}
	}
	switch {
	case len(got) > len(want):
		return fmt.Sprintf("there is %s, which should not be", brief(got[len(want)]))
	case len(got) < len(want):
		return fmt.Sprintf("%s is missing", brief(want[len(got)]))
	}
	return ""
}

// brief is a short form of an entry, for messages.
func brief(e entry) string {
	short := func(s string) string {
		if len(s) > 24 {
			return fmt.Sprintf("%q... of %d bytes", s[:24], len(s))
		}
		return fmt.Sprintf("%q", s)
	}
	return short(e.key) + " = " + short(e.value)
}

// ledger is what was applied, and how much of it must survive what. Numbers are of batches, in
// the order of Apply.
type ledger struct {
	batches [][]op
	now     state // after all batches

	base   state // after batches[:baseAt]; all of them are durable
	baseAt int

	written int // so many must survive a kill
	durable int // so many must survive a power cut
}

func (l *ledger) apply(batch []op) {
	l.batches = append(l.batches, batch)
	l.now.apply(batch)
}

// acknowledged notes that the first n batches survive what level names.
func (l *ledger) acknowledged(n int, level holdfast.Level) {
	if level >= holdfast.Process {
		l.written = max(l.written, n)
	}
	if level >= holdfast.Power {
		l.durable = max(l.durable, n)
	}
}

// settle looks for a prefix of the batches, at least least of them, after which the state is
// found. If there is one, the history goes on from there: what is found after a crash is durable. Otherwise
// it says how found differs from the longest and the shortest allowed.
func (l *ledger) settle(found state, least int) (n int, wrong string) {
	st := slices.Clone(l.base)
	n = -1
	shortest := ""
	for i := l.baseAt; ; i++ {
		if i >= least {
			d := difference(found, st)
			if d == "" {
				n = i
			}
			if i == least {
				shortest = d
			}
		}
		if i == len(l.batches) {
			break
		}
		st.apply(l.batches[i])
	}
	if n < 0 {
		return n, fmt.Sprintf("after %d batches, of which %d must be there, what is found is no state between: compared with all, %s; with those that must be, %s",
			len(l.batches), least, difference(found, l.now), shortest)
	}
	l.batches = l.batches[:n]
	l.base, l.baseAt, l.now = found, n, slices.Clone(found)
	l.written, l.durable = n, n
	return n, ""
}

// states calls yield with the state after every number of batches, from none on. The state is
// changed between calls.
func (l *ledger) states(yield func(n int, st state) bool) {
	var st state
	for i := range len(l.batches) + 1 {
		if !yield(i, st) || i == len(l.batches) {
			return
		}
		st.apply(l.batches[i])
	}
}
