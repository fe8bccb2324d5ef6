package commits

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// recorded is a history of commits that are listed.
func recorded(least uint64, commits ...[]Op[string]) History[string] {
	return History[string]{
		Last: uint64(len(commits)), Least: least, Ops: func(n uint64) []Op[string] { return commits[n-1] },
	}
}

// stateOf returns a state of keys and values, given in turn.
func stateOf(keysAndValues ...string) (s State[string]) {
	for i := 0; i < len(keysAndValues); i += 2 {
		s.Apply([]Op[string]{Set(keysAndValues[i], keysAndValues[i+1])})
	}
	return s
}

// judge is History.Judge, or a mutant of it.
type judge func(h History[string], found State[string]) Verdict

// verdicts lists what is found after five commits, of which three are acknowledged, and the finding that it must cause.
var verdicts = []struct {
	what  string
	found State[string]
	class Class
	says  string // "" if the state is allowed
}{
	{"all", stateOf("a", "4", "c", "3", "d", "5"), 0, ""},
	{"all that was acknowledged", stateOf("a", "3", "b", "3", "c", "3"), 0, ""},
	{"one that was not acknowledged", stateOf("a", "4", "c", "3"), 0, ""},
	{"an acknowledged commit lost", stateOf("a", "2", "b", "1"), Lost, "batch 3 and all before it had been"},
	{"everything lost", nil, Lost, "only the first 0 are there"},
	{"two commits in the other order", stateOf("a", "2", "b", "3", "c", "3"), Torn,
		`batch 3 is there in part: "a", which it set to "3", is still "2"`},
	{"a commit missing under a later one", stateOf("a", "3", "b", "3", "c", "3", "d", "5"), OutOfOrder,
		"batch 4 is not there, but later ones up to 5 are"},
	{"a deleted key resurrected", stateOf("a", "4", "b", "3", "c", "3", "d", "5"), Torn,
		`batch 4 is there in part: "b", which it deleted, is still there`},
	{"a commit in part", stateOf("a", "3", "b", "1", "c", "3"), Torn,
		`batch 3 is there in part: "b", which it set to "3", is still "1"`},
	{"a key that was never written", stateOf("a", "4", "c", "3", "d", "5", "x", "1"), Wrong,
		`there is "x" = "1", which was never written`},
	{"a value that was never written", stateOf("a", "4", "c", "9", "d", "5"), OutOfOrder,
		`"c", which it set to "3", is still "9"`},
}

// errorsOf returns what a judge gets wrong.
func errorsOf(judge judge) (wrong []string) {
	h := recorded(3,
		[]Op[string]{Set("a", "1"), Set("b", "1")},
		[]Op[string]{Set("a", "2")},
		[]Op[string]{Set("a", "3"), Set("b", "3"), Set("c", "3")},
		[]Op[string]{Set("a", "4"), Delete[string]("b"), Delete[string]("never there")},
		[]Op[string]{Set("d", "5"), DeleteRange[string]("e", "")},
	)
	for _, c := range verdicts {
		v := judge(h, c.found)
		named := slices.ContainsFunc(v.Findings, func(f Finding) bool {
			return f.Class == c.class && strings.Contains(f.Text, c.says)
		})
		if c.says == "" && len(v.Findings) > 0 || c.says != "" && !named || (v.Err() == nil) != (c.says == "") {
			wrong = append(wrong, fmt.Sprintf("%s: %+v, want %q", c.what, v, c.says))
		}
	}
	return wrong
}

func TestJudge(t *testing.T) {
	for _, wrong := range errorsOf(History[string].Judge) {
		t.Error(wrong)
	}
}

// TestMutants breaks the judge as a checker of histories could be broken. Each mutant accepts something, and is found
// out.
func TestMutants(t *testing.T) {
	good := func(v Verdict) bool { return len(v.Findings) == 0 }
	for what, mutant := range map[string]judge{
		"a lost acknowledged commit": func(h History[string], found State[string]) Verdict {
			h.Least = 0
			return h.Judge(found)
		},
		"a reordered commit": func(h History[string], found State[string]) Verdict {
			for n := uint64(1); n < h.Last; n++ {
				other := h
				other.Ops = func(i uint64) []Op[string] {
					switch i {
					case n:
						i = n + 1
					case n + 1:
						i = n
					}
					return h.Ops(i)
				}
				if v := other.Judge(found); good(v) {
					return v
				}
			}
			return h.Judge(found)
		},
		"a resurrected key": func(h History[string], found State[string]) Verdict {
			v := h.Judge(found)
			v.Findings = slices.DeleteFunc(v.Findings, func(f Finding) bool { return strings.Contains(f.Text, "deleted") })
			return v
		},
		"a commit in part": func(h History[string], found State[string]) Verdict {
			v := h.Judge(found)
			v.Findings = slices.DeleteFunc(v.Findings, func(f Finding) bool { return f.Class == Torn })
			return v
		},
		"anything that is not lost": func(h History[string], found State[string]) Verdict {
			if v := h.Judge(found); v.Survived() >= h.Least {
				return Verdict{Last: v.Last}
			}
			return h.Judge(found)
		},
		"what was never written": func(h History[string], found State[string]) Verdict {
			for i := range found {
				if v := h.Judge(slices.Delete(slices.Clone(found), i, i+1)); good(v) {
					return v
				}
			}
			return h.Judge(found)
		},
	} {
		if len(errorsOf(mutant)) == 0 {
			t.Errorf("a judge that accepts %s passes", what)
		}
	}
}

// naive applies a commit to a map, operation by operation.
func naive(m map[string]string, commit []Op[string]) {
	for _, o := range commit {
		switch o.Kind {
		case holdfast.KindSet:
			m[o.Key] = o.Value
		case holdfast.KindDelete:
			delete(m, o.Key)
		case holdfast.KindDeleteRange:
			maps.DeleteFunc(m, func(key, _ string) bool { return key >= o.Key && (o.Hi == "" || key < o.Hi) })
		}
	}
}

// TestNaive compares states, and the judge, with a reference that is too simple to be wrong, and states with an engine.
func TestNaive(t *testing.T) {
	accepted, refused := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		key := func() string { return strings.Repeat("k", r.IntN(3)) + string("ab"[r.IntN(2)]) }
		bound := func() string { return []string{"", key(), key() + "\x00"}[r.IntN(3)] }
		commits := make([][]Op[string], 1+r.IntN(10))
		after := []map[string]string{{}}
		var state State[string]
		e := mem.New()
		for n := range commits {
			for i := range r.IntN(5) {
				switch r.IntN(5) {
				case 0:
					commits[n] = append(commits[n], Delete[string](key()))
				case 1:
					commits[n] = append(commits[n], DeleteRange[string](bound(), bound()))
				default:
					commits[n] = append(commits[n], Set(key(), []string{"", fmt.Sprint(n, i)}[min(r.IntN(4), 1)]))
				}
			}
			m := maps.Clone(after[n])
			naive(m, commits[n])
			after = append(after, m)
			state.Apply(commits[n])
			b := Encode(new(holdfast.Batch), commits[n], func(_, value string) []byte { return []byte(value) })
			if err := holdfast.Commit(e, b, holdfast.Memory); err != nil {
				t.Fatal(err)
			}
			found, err := Contents(e, holdfast.Range{})
			if d := Difference(found, state); d != "" || err != nil || !maps.Equal(toMap(state), m) {
				t.Fatalf("seed %d, commit %d: an engine and the state: %s, %v; %v, want %v", seed, n+1, d, err, state, m)
			}
		}
		for range 20 {
			// Some prefix, as it is or with a commit left out, or with a key more, less or changed.
			h := recorded(r.Uint64N(uint64(len(commits)+1)), commits...)
			m, without := map[string]string{}, r.IntN(2*len(commits))
			for n := range r.IntN(len(commits) + 1) {
				if n != without {
					naive(m, commits[n])
				}
			}
			switch r.IntN(6) {
			case 0:
				m[key()] = "0 0"
			case 1:
				delete(m, key())
			}
			// A history may begin with a state that survived before.
			if from := r.IntN(len(commits) + 1); r.IntN(2) == 0 {
				h.Base, h.BaseAt = StateOf(after[from]), uint64(from)
			}
			want := -1
			for n := int(h.BaseAt); n < len(after); n++ {
				if maps.Equal(m, after[n]) {
					want = n
				}
			}
			allowed := want >= int(h.Least)
			v := h.Judge(StateOf(m))
			if (v.Err() == nil) != allowed || want >= 0 && (v.Last != uint64(want) || v.Survived() != v.Last) {
				t.Fatalf("seed %d: %v, least %d, base %d: the judge says %+v, the reference %d",
					seed, m, h.Least, h.BaseAt, v, want)
			}
			if allowed {
				accepted++
			} else {
				refused++
			}
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 1000 || refused < 1000 {
		t.Error("too few of one kind")
	}
}

func toMap(s State[string]) map[string]string {
	m := map[string]string{}
	for _, e := range s {
		m[e.Key] = e.Value
	}
	return m
}

func TestAcked(t *testing.T) {
	var a Acked
	a.Add(9, holdfast.Memory)
	a.Add(7, holdfast.Process)
	a.Add(5, holdfast.Power)
	a.Add(4, holdfast.Power)
	want := func(what string, memory, process, power uint64) {
		t.Helper()
		got := [...]uint64{a.Surviving(holdfast.Memory), a.Surviving(holdfast.Process), a.Surviving(holdfast.Power)}
		if got != [...]uint64{memory, process, power} {
			t.Errorf("%s: %d", what, got)
		}
	}
	want("at first", 9, 7, 5)
	a.Add(8, holdfast.Power)
	want("a stronger level survives all that a weaker one does", 9, 8, 8)
	a.Crash(holdfast.Process)
	want("after a kill", 8, 8, 8)
	a.Add(11, holdfast.Process)
	a.Crash(holdfast.Power)
	want("after a power cut", 8, 8, 8)
}

// scripts are one of each kind.
var scripts = []Script{
	{Seed: 1}, {Seed: 2, Large: 2, Keep: 512}, {Seed: 3, Large: 1, Extra: 100}, {Seed: 4, Single: true},
	{Seed: 5, Single: true, Keep: 512, Large: 1},
}

// TestScript: the judge and Recent expect of a correct engine what it holds, after any number of batches.
func TestScript(t *testing.T) {
	for _, s := range scripts {
		e := mem.New()
		gen := func(n uint64) uint32 { return uint32(n / 100) }
		var scratch []byte
		for n := uint64(1); n <= 700; n++ {
			if err := holdfast.Commit(e, s.Fill(new(holdfast.Batch), &scratch, gen(n), n), holdfast.Memory); err != nil {
				t.Fatal(err)
			}
			if n%100 != 0 && n > 20 {
				continue
			}
			v := s.Judge(foundIn(t, e), gen, n, n)
			if err := v.Err(); err != nil || v.Survived() != n {
				t.Fatalf("%+v after %d batches: %d, %v", s, n, v.Survived(), err)
			}
			if last, err := glance(t, s, e); last != n || err != nil {
				t.Fatalf("%+v after %d batches: glance %d, %v", s, n, last, err)
			}
		}
	}
}

func foundIn(t *testing.T, e holdfast.Reader) (list []Found) {
	all, err := Contents(e, holdfast.Range{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		list = append(list, NewFound(p.Key, []byte(p.Value)))
	}
	return list
}

func glance(t *testing.T, s Script, e holdfast.Engine) (uint64, error) {
	snap, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	last, v, err := s.Recent(snap)
	return last, errors.Join(err, v.Err())
}

// TestSingle: of batches of one operation each changes something, so that the judge can tell how many are there, and
// an operation that is missing, or carried out before the one before it, is found.
func TestSingle(t *testing.T) {
	gen := func(uint64) uint32 { return 1 }
	for _, s := range scripts[3:] {
		for n := uint64(1); n <= 620; n++ {
			if n == 30 {
				n = 600 // where b/ is deleted, too
			}
			for _, last := range [][]uint64{{n}, {n, n + 1}, {n + 1}} {
				e := mem.New()
				commit := func(n uint64) {
					if err := holdfast.Commit(e, s.Fill(new(holdfast.Batch), new([]byte), 1, n), holdfast.Memory); err != nil {
						t.Fatal(err)
					}
				}
				for i := uint64(1); i < n; i++ {
					commit(i)
				}
				for _, i := range last {
					commit(i)
				}
				v := s.Judge(foundIn(t, e), gen, 0, n+8)
				end := n - 1 + uint64(len(last))
				if whole := last[0] == n; whole != (v.Err() == nil && v.Survived() == end) {
					t.Fatalf("%+v, up to %d and then %d: %d, %v", s, n-1, last, v.Survived(), v.Err())
				}
			}
		}
	}
}

// TestScriptFindsWhatIsWrong: a batch left out, in part, or in the place of its neighbour is found, and so is a batch
// too many or too few, and another generation.
func TestScriptFindsWhatIsWrong(t *testing.T) {
	const all = 24
	gen := func(uint64) uint32 { return 1 }
	for _, s := range scripts {
		judge := func(least, issued uint64, change func(n uint64, b *holdfast.Batch) *holdfast.Batch) (Verdict, error) {
			e := mem.New()
			for n := uint64(1); n <= all; n++ {
				b := s.Fill(new(holdfast.Batch), new([]byte), 1, n)
				if change != nil {
					b = change(n, b)
				}
				if err := holdfast.Commit(e, b, holdfast.Memory); err != nil {
					t.Fatal(err)
				}
			}
			_, err := glance(t, s, e)
			return s.Judge(foundIn(t, e), gen, least, issued), err
		}
		wants := func(what string, v Verdict, class Class) {
			t.Helper()
			if !slices.ContainsFunc(v.Findings, func(f Finding) bool { return f.Class == class }) {
				t.Errorf("%+v: %s: %+v", s, what, v)
			}
		}
		if v, err := judge(all, math.MaxUint64, nil); v.Err() != nil || err != nil {
			t.Errorf("%+v: %v, %v", s, v.Err(), err)
		}
		v, _ := judge(all+1, all, nil)
		wants("one lost", v, Lost)
		swapped := 0 // neighbours that are found to be
		v, _ = judge(all, all-1, nil)
		wants("one that was not issued", v, Wrong)
		for bad := uint64(1); bad < all; bad++ {
			if s.Single && bad%numbered != 0 { // overwritten or deleted by others
				continue
			}
			v, err := judge(0, all, func(n uint64, b *holdfast.Batch) *holdfast.Batch {
				if n == bad {
					b.Reset()
				}
				return b
			})
			if wants("one left out", v, OutOfOrder); err == nil {
				t.Errorf("%+v: Recent overlooks that batch %d is missing", s, bad)
			}
			v, _ = judge(0, all, func(n uint64, b *holdfast.Batch) *holdfast.Batch {
				if n == bad {
					return s.Fill(b, new([]byte), 2, n)
				}
				return b
			})
			wants("one of another generation", v, Wrong)
			if s.Single {
				continue
			}
			v, _ = judge(0, all, func(n uint64, b *holdfast.Batch) *holdfast.Batch {
				if n == bad {
					b.Reset()
					b.Set([]byte(NumberKey(n)), s.Value(nil, NumberKey(n), s.Ops(1, n)[0].Value))
				}
				return b
			})
			if bad > all-contested { // until others have overwritten what is missing
				wants("one in part", v, Torn)
			}
			v, _ = judge(0, all, func(n uint64, b *holdfast.Batch) *holdfast.Batch {
				switch n {
				case bad:
					n++
				case bad + 1:
					n--
				}
				return s.Fill(b, new([]byte), 1, n)
			})
			if v.Err() != nil {
				swapped++
			}
		}
		if swapped < contested-1 && !s.Single {
			t.Errorf("%+v: only %d neighbours in the other order are found", s, swapped)
		}
	}
}

func TestScriptDamage(t *testing.T) {
	s, gen := scripts[0], func(uint64) uint32 { return 0 }
	good := NewFound(NumberKey(1), s.Value(nil, NumberKey(1), s.Ops(0, 1)[0].Value))
	for says, change := range map[string]func(f *Found){
		"its bytes are damaged":             func(f *Found) { f.Sum[0] ^= 1 },
		"it was written with":               func(f *Found) { f.Len-- },
		"that batch did not write this key": func(f *Found) { f.Key = "x" },
		"no batch wrote it":                 func(f *Found) { f.N = 0 },
		"a crash had taken that batch back": func(f *Found) { f.Gen = 9 },
	} {
		f := good
		change(&f)
		v := s.Judge([]Found{f}, gen, 0, 1)
		if err := v.Err(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	v := s.Judge([]Found{good, good}, gen, 0, 1)
	if err := v.Err(); err == nil || !strings.Contains(err.Error(), "is there twice") {
		t.Error(err)
	}
}

// circle is a reader whose iterators do not end.
type circle struct{ holdfast.Reader }

func (c circle) Scan(r holdfast.Range) holdfast.Iterator { return circular{c.Reader.Scan(r)} }

type circular struct{ holdfast.Iterator }

func (c circular) Next() bool { c.Iterator.Next(); return true }

func TestEndless(t *testing.T) {
	if _, err := Contents(circle{mem.New()}, holdfast.Range{}); !errors.Is(err, ErrEndless) {
		t.Error(err)
	}
}

func TestDifference(t *testing.T) {
	want := stateOf("a", "1", "b", strings.Repeat("2", 100))
	for says, got := range map[string]State[string]{
		"":                                       slices.Clone(want),
		`"2"... (100 bytes) is missing`:          nil,
		`"b" = "2222`:                            want[:1],
		`entry 0 is "b" = `:                      want[1:],
		`entry 1 is "b" = "3", and should be`:    stateOf("a", "1", "b", "3"),
		`there is "c" = "4" after the last of 2`: append(slices.Clone(want), Entry[string]{"c", "4"}),
	} {
		if got == nil {
			says = `"a" = "1" is missing: only 0 of 2 are there`
		}
		if d := Difference(got, want); (d == "") != (says == "") || !strings.Contains(d, says) {
			t.Errorf("%q, want %q", d, says)
		}
	}
}
