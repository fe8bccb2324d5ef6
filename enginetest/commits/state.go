package commits

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
)

// Op is one operation of a commit. V is a value, or in a model the commit that wrote it.
type Op[V comparable] struct {
	Kind  holdfast.Kind
	Key   string
	Hi    string // the upper bound of a range
	Value V
}

// Set returns the operation that sets key to value.
func Set[V comparable](key string, value V) Op[V] {
	return Op[V]{Kind: holdfast.KindSet, Key: key, Value: value}
}

// Delete returns the operation that deletes key.
func Delete[V comparable](key string) Op[V] { return Op[V]{Kind: holdfast.KindDelete, Key: key} }

// DeleteRange returns the operation that deletes the keys of [lo, hi), with bounds as in [holdfast.Range].
func DeleteRange[V comparable](lo, hi string) Op[V] {
	return Op[V]{Kind: holdfast.KindDeleteRange, Key: lo, Hi: hi}
}

// Entry is a key with its value.
type Entry[V comparable] struct {
	Key   string
	Value V
}

// String is a short form of the entry.
func (e Entry[V]) String() string { return Quote(e.Key) + " = " + Quote(e.Value) }

// Quote quotes bytes, and of many only the beginning. Other values are printed as they are.
func Quote(value any) string {
	text, ok := value.(string)
	if b, isBytes := value.([]byte); isBytes {
		text, ok = string(b), true
	}

	const most = 40
	switch {
	case !ok:
		return fmt.Sprint(value)
	case len(text) > most:
		return fmt.Sprintf("%q... (%d bytes)", text[:most], len(text))
	}

	return fmt.Sprintf("%q", text)
}

// State is what an engine holds, in the order of keys, each once.
type State[V comparable] []Entry[V]

// StateOf returns the state of a map.
func StateOf[V comparable](m map[string]V) State[V] {
	s := make(State[V], 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		s = append(s, Entry[V]{key, m[key]})
	}

	return s
}

func (s State[V]) find(key string) (int, bool) {
	return slices.BinarySearchFunc(s, key, func(e Entry[V], key string) int { return strings.Compare(e.Key, key) })
}

// Get returns the value of key.
func (s State[V]) Get(key string) (value V, ok bool) {
	i, ok := s.find(key)
	if ok {
		value = s[i].Value
	}

	return value, ok
}

// Within returns the entries of [lo, hi), which share the memory of s. Bounds are as in [holdfast.Range].
func (s State[V]) Within(lo, hi string) State[V] {
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

// Apply applies a commit to the state, in place.
func (s *State[V]) Apply(commit []Op[V]) { s.apply(commit, nil) }

// apply calls changed, unless it is nil, with each key that an operation sets or removes.
func (s *State[V]) apply(commit []Op[V], changed func(key string)) {
	for _, o := range commit {
		i, found := s.find(o.Key)
		n := 0 // entries that go
		switch {
		case o.Kind == holdfast.KindDeleteRange:
			n = len(s.Within(o.Key, o.Hi))
		case found:
			n = 1
		}
		if changed != nil {
			for _, e := range (*s)[i : i+n] {
				changed(e.Key)
			}
		}
		if o.Kind != holdfast.KindSet {
			*s = slices.Delete(*s, i, i+n)
			continue
		}
		if changed != nil {
			changed(o.Key)
		}
		if found {
			(*s)[i].Value = o.Value
		} else {
			*s = slices.Insert(*s, i, Entry[V]{o.Key, o.Value})
		}
	}
}

// Contents reads all of a range, in the order of the scan. A scan of more keys than a test writes is
// an error: such an iterator does not end.
func Contents(from holdfast.Reader, r holdfast.Range) (State[string], error) {
	return Drain(from.Scan(r))
}

// ErrEndless is the error of a scan that does not end.
var ErrEndless = fmt.Errorf("a scan of over %d keys, which were never written", endless)

const endless = 1 << 20

// Drain reads the rest of an iterator, and closes it.
func Drain(it holdfast.Iterator) (found State[string], err error) {
	for it.Next() && err == nil {
		if found = append(found, Entry[string]{string(it.Key()), string(it.Value())}); len(found) > endless {
			err = ErrEndless
		}
	}
	if err == nil {
		err = it.Err()
	}
	if closed := it.Close(); err == nil {
		err = closed
	}

	return found, err
}

// Difference names the first place where got is not want, "" if they are equal.
func Difference[T comparable](got, want []T) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Sprintf("%v is missing: only %d of %d are there", want[i], len(got), len(want))
		case i >= len(want):
			return fmt.Sprintf("there is %v after the last of %d", got[i], len(want))
		case got[i] != want[i]:
			return fmt.Sprintf("entry %d is %v, and should be %v", i, got[i], want[i])
		}
	}

	return ""
}
