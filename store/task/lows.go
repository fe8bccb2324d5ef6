package task

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Engines keep removed keys for a while, and scans walk over them. Some tables lose their keys from the front: the
// places of a queue's tasks in one state, its lanes away, the ends of unique texts, and what has ended with others
// behind it. For each of these parts of tables the store knows a key with nothing below it, a low, from which scans
// begin.
//
// Lows are stored too, so that opening a store need not walk over all that is gone. What is stored of a low is part of
// the commits: it is raised once in lowStep removals, and the commit that sets a key below it lowers it. So it holds
// after any crash.

// low is what is known of a part of a table. The keys are without the store's prefix.
type low struct {
	part    string // what its keys begin with
	at      string // no key of the part is below
	kept    string // no less than is stored of it; "" if nothing is
	removed int    // keys, since it was last raised in the store
}

// lowsPart is what the keys begin with under which lows are stored.
const lowsPart = string(rune(format.TableMeta)) + format.LowPrefix

// lowStep is how many keys are removed from a part before its low is stored again. Tests have fewer.
var lowStep = 1024

// section returns the part of a table that key belongs to; nil if there is no low for it. It is a part of key.
func (s *Store) section(key []byte) []byte {
	key = key[len(s.keys.Prefix):]
	switch n := 1; key[0] {
	case format.TableIndex, format.TableAway:
		if len(key) > 1 {
			n = 1 + 1 + int(key[1])
			if key[0] == format.TableIndex {
				n++
			}
		}
		if n > 1 && len(key) >= n {
			return key[:n]
		}
	case format.TableExpiry, format.TableEnded:
		return key[:n]
	}
	return nil
}

// noteLow notes that key is set, or removed.
func (x *tx) noteLow(key []byte, removed bool) {
	s := x.s

	if !removed {
		s.noteFirst(key)
	}
	part := s.section(key)
	if part == nil {
		return
	}
	l := s.lows[string(part)]
	key = key[len(s.keys.Prefix):]

	switch {
	case removed && l == nil:
		l = &low{part: string(part), at: string(part), removed: 1}
		s.lows[l.part] = l
	case removed:
		l.removed++
	case l == nil:
	default:
		if string(key) < l.at {
			l.at = string(key)
		}
		if string(key) < l.kept {
			x.keepLow(l, string(key))
		}
	}

	if removed && l.removed == lowStep {
		s.worn = append(s.worn, l)
	}
}

// lower notes that the keys that a batch was to remove may be there again.
func (s *Store) lower(b *holdfast.Batch) {
	for op := range b.Ops() {
		if op.Kind == holdfast.KindDelete {
			s.noteFirst(op.Key)
		}
		if l := s.lows[string(s.section(op.Key))]; l != nil && op.Kind == holdfast.KindDelete {
			l.at = min(l.at, string(op.Key[len(s.keys.Prefix):]))
		}
	}
}

// keepLow stores a low.
func (x *tx) keepLow(l *low, at string) {
	was := l.kept
	x.other = append(x.other, func() { l.kept = was })
	l.kept = at
	x.set(x.s.keys.Low(l.part), []byte(at))
}

// raiseLows looks where parts begin that have lost many keys.
func (x *tx) raiseLows() error {
	s := x.s

	for len(s.worn) > 0 {
		l := s.worn[len(s.worn)-1]

		lo, hi := s.bounds(l.part)
		if err := s.scan(lo, hi, 1, func(_, _ []byte) error { return nil }); err != nil {
			return err
		}
		s.worn = s.worn[:len(s.worn)-1]
		if l.removed = 0; l.at != l.kept && s.lows[l.part] == l {
			x.keepLow(l, l.at)
		}
	}
	return nil
}

// bounds are those of a part.
func (s *Store) bounds(part string) (lo, hi []byte) {
	lo = append(slices.Clone([]byte(s.keys.Prefix)), part...)
	return lo, holdfast.Prefix(lo).Hi
}

// end is what comes after all keys of a part.
func end(part string) string { return string(holdfast.Prefix([]byte(part)).Hi) }

// dropLows forgets the lows of a queue of which nothing is left, but for those that are stored: they are part of what
// commits that come have to do.
func (s *Store) dropLows(queue string) {
	parts := [][]byte{s.keys.Aways(queue)}
	for state := Waiting; state <= Dead; state++ {
		parts = append(parts, s.keys.Listed(queue, byte(state)))
	}
	for _, key := range parts {
		part := string(key[len(s.keys.Prefix):])
		if l := s.lows[part]; l != nil && l.kept == "" {
			delete(s.lows, part)
		}
	}
}

// loadLows reads what is stored of the lows.
func (s *Store) loadLows() error {
	lo, hi := s.bounds(lowsPart)
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for it.Next() {
		part, at := string(it.Key()[len(lo):]), string(it.Value())
		if part == "" || !strings.HasPrefix(at, part) && at != end(part) {
			return s.strange("open", "where the keys of %q begin cannot be read", part)
		}
		s.lows[part] = &low{part: part, at: at, kept: at}
	}
	return it.Err()
}

// loadTable calls f for the keys of a table whose rest is not less than from.
func (s *Store) loadTable(table byte, from []byte, f func(rest, value []byte) error) error {
	at, end := s.keys.Table(table)
	at = append(at, from...)
	for _, part := range slices.Sorted(maps.Keys(s.lows)) {
		lo, _ := s.bounds(part)
		low, _ := s.bounds(s.lows[part].at)
		if part[0] != table || bytes.Compare(low, at) <= 0 {
			continue
		}
		if bytes.Compare(at, lo) < 0 {
			if err := s.walk(at, lo, f); err != nil {
				return err
			}
		}
		at = low
	}
	return s.walk(at, end, f)
}
