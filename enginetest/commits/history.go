// Package commits is a model of what an engine holds, for tests: a history of commits of which some are acknowledged,
// the state after each of them, and a judge that compares the state with what is found in an engine, after a crash
// or at any other time.
//
// The judge checks laws 1 to 3 of the contract: what is found is the state after the first so many commits, no commit
// is there in part, and none that was acknowledged to survive is missing.
//
// A history is recorded as it is made, or it follows from numbers: see [Script].
package commits

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
)

// Acked is the last commit that was acknowledged at each level. An acknowledgement covers all commits before it.
type Acked [holdfast.Quorum + 1]uint64

// Add enters that commit n was acknowledged at a level.
func (a *Acked) Add(n uint64, level holdfast.Level) { a[level] = max(a[level], n) }

// Surviving is the last commit that must survive what the level survives.
func (a Acked) Surviving(level holdfast.Level) uint64 { return slices.Max(a[level:]) }

// Crash records that commits acknowledged at levels weaker than that may be lost.
func (a *Acked) Crash(survived holdfast.Level) { clear(a[:survived]) }

// History is a run of commits, numbered from 1.
type History[V comparable] struct {
	Base   State[V] // after the first BaseAt commits, which no crash can take back
	BaseAt uint64
	Last   uint64                 // the last commit that was applied
	Ops    func(n uint64) []Op[V] // what commit n does
	Least  uint64                 // the last commit that must be there, see Acked
}

// Class says what is wrong.
type Class int

const (
	// Wrong: a value was found that no commit wrote.
	Wrong Class = iota
	// Torn: a commit is there in part.
	Torn
	// OutOfOrder: a commit is missing, and a later one is there.
	OutOfOrder
	// Lost: a commit that had been acknowledged is missing.
	Lost
)

// Finding is something that is wrong, in words.
type Finding struct {
	Class Class
	Text  string
}

// Verdict is what a judge says of a state.
type Verdict struct {
	Last     uint64          // the last commit of which something is there
	Missing  map[uint64]bool // commits up to Last that are not there, or only in part
	Findings []Finding       // empty if the state is allowed
}

// Survived is the last commit of which, and before which, nothing is missing.
func (v *Verdict) Survived() uint64 {
	survived := v.Last
	for n := range v.Missing {
		survived = min(survived, n-1)
	}

	return survived
}

// Find adds a finding.
func (v *Verdict) Find(class Class, format string, args ...any) {
	v.Findings = append(v.Findings, Finding{class, fmt.Sprintf(format, args...)})
}

// Err is nil if there are no findings. Otherwise it names the first ones.
func (v *Verdict) Err() error {
	var texts []string
	for _, f := range v.Findings[:min(len(v.Findings), 5)] {
		texts = append(texts, f.Text)
	}
	if len(texts) == 0 {
		return nil
	}

	return errors.New(strings.Join(texts, "; "))
}

// Judge finds the last commit after which the state is exactly what was found. If there is none, it says which
// commits are there in part, missing under later ones, or never made.
func (h History[V]) Judge(found State[V]) (v Verdict) {
	ok, state := false, slices.Clone(h.Base)
	for n := h.BaseAt; ; n++ {
		if slices.Equal(state, found) {
			v.Last, ok = n, true
		}
		if n == h.Last {
			break
		}
		state.Apply(h.Ops(n + 1))
	}
	if !ok {
		h.explain(&v, found)
	}
	if survived := v.Survived(); survived < h.Least {
		v.Find(Lost, "batch %d and all before it had been acknowledged to survive this, but only the first %d are there",
			h.Least, survived)
	}

	return v
}

// explain compares what was found, key by key, with the state after the last commit of which something is there: that
// set a key to the value that is found.
func (h History[V]) explain(v *Verdict, found State[V]) {
	v.Last = h.BaseAt
	for n := h.BaseAt + 1; n <= h.Last; n++ {
		for _, o := range h.Ops(n) {
			if got, there := found.Get(o.Key); there && o.Kind == holdfast.KindSet && got == o.Value {
				v.Last = n
			}
		}
	}

	state := slices.Clone(h.Base)
	by := map[string]uint64{} // the last commit that changed a key
	for _, e := range state {
		by[e.Key] = h.BaseAt
	}

	for n := h.BaseAt + 1; n <= v.Last; n++ {
		state.apply(h.Ops(n), func(key string) { by[key] = n })
	}

	var p Parts
	for _, want := range state {
		switch got, there := found.Get(want.Key); {
		case !there:
			p.Missing(by[want.Key], "%s, which it set, is not there", Quote(want.Key))
		case got != want.Value:
			p.Missing(by[want.Key], "%s, which it set to %s, is still %s", Quote(want.Key), Quote(want.Value), Quote(got))
		default:
			p.Found(by[want.Key])
		}
	}

	for _, got := range found {
		if _, there := state.Get(got.Key); there {
			continue
		}
		if n := by[got.Key]; n > 0 {
			p.Missing(n, "%s, which it deleted, is still there", Quote(got.Key))
		} else {
			v.Find(Wrong, "there is %v, which was never written", got)
		}
	}
	p.Explain(v, func(n uint64) (string, uint64) { return fmt.Sprintf("batch %d", n), n })
}

// Parts notes which parts of commits are found.
type Parts struct {
	found   map[uint64]bool
	missing map[uint64]string // with the first part that is missing, in words
}

// Found notes that a part of commit n is there.
func (p *Parts) Found(n uint64) {
	if p.found == nil {
		p.found = map[uint64]bool{}
	}
	p.found[n] = true
}

// Missing notes that a part of commit n is not there.
func (p *Parts) Missing(n uint64, format string, args ...any) {
	if p.missing == nil {
		p.missing = map[uint64]string{}
	}
	if p.missing[n] == "" {
		p.missing[n] = fmt.Sprintf(format, args...)
	}
}

// Explain adds what is missing to v: commits of which another part is there are torn, and others are out of order. A
// finding begins with the commit's name. Parts of a commit that has several numbers are noted under the first one.
func (p *Parts) Explain(v *Verdict, name func(first uint64) (name string, last uint64)) {
	if v.Missing == nil {
		v.Missing = map[uint64]bool{}
	}

	for _, first := range slices.Sorted(maps.Keys(p.missing)) {
		name, last := name(first)
		for n := first; n <= last; n++ {
			v.Missing[n] = true
		}
		if p.found[first] || last >= v.Last {
			v.Find(Torn, "%s is there in part: %s", name, p.missing[first])
		} else {
			v.Find(OutOfOrder, "%s is not there, but later ones up to %d are: %s", name, v.Last, p.missing[first])
		}
	}
}
