package task

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/intervals"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Engines keep removed keys for a while, and scans walk over them. Some tables lose their keys from the front: the
// places of a queue's tasks in one state, its lanes away, the ends of unique texts, and what has ended with others
// behind it. For each of these parts of tables the store knows gaps, where scans have found nothing: others pass over
// them. What is removed beside a gap is a part of it. So what comes and goes in front of others, as urgent tasks do, or
// in front of others of its key, is not walked over either.
//
// A low is a key of a part with nothing below it. Lows are stored, so that opening a store need not walk over all that
// is gone. What is stored is part of the commits: it is raised once in lowStep removals, and the commit that sets a key
// below it lowers it. So it holds after any crash.

// low is what is known of a part of a table. Its keys are without the store's prefix, but for those of the gaps.
type low struct {
	part    string          // what its keys begin with
	gaps    intervals.Union // there are no keys
	kept    string          // no less than is stored of it; "" if nothing is
	removed int             // keys, since it was last raised in the store
}

// maxGaps is how many gaps are known of a part at most. With more, all but the first are forgotten.
const maxGaps = 2048

// bound keeps the gaps few.
func (l *low) bound() {
	if len(l.gaps) > maxGaps {
		clear(l.gaps[1:])
		l.gaps = l.gaps[:1]
	}
}

// empty notes that a scan has found nothing in [lo, hi).
func (l *low) empty(lo, hi []byte) {
	if bytes.Compare(lo, hi) < 0 {
		l.gaps.Add(bytes.Clone(lo), bytes.Clone(hi))
		l.bound()
	}
}

// there notes that a key may be there. It returns a copy of it; nil if it may have been there before.
func (l *low) there(key []byte) []byte {
	was := l.gaps.Cut(key)
	l.bound()
	return was
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
	part := s.section(key)
	if part == nil {
		return
	}
	l := s.lows[string(part)]

	switch {
	case removed && l == nil:
		l = &low{part: string(part), removed: 1}
		s.lows[l.part] = l
	case removed:
		l.removed++
		l.gaps.Extend(key)
	case l == nil:
	default:
		if at := l.there(key); at != nil {
			x.other = append(x.other, func() { l.gaps.Extend(at) })
		}
		if key = key[len(s.keys.Prefix):]; string(key) < l.kept {
			x.keepLow(l, string(key))
		}
	}

	if removed && l.removed == lowStep {
		s.worn = append(s.worn, l)
	}
}

// lower notes that the keys that a batch was to remove may be there again. It comes after what takes back that others
// are there, since it may be the same key.
func (s *Store) lower(b *holdfast.Batch) {
	if b.Err() != nil { // it does not have all of them
		for _, l := range s.lows {
			l.gaps = nil
		}
	}
	for op := range b.Ops() {
		if l := s.lows[string(s.section(op.Key))]; l != nil && op.Kind == holdfast.KindDelete {
			l.there(op.Key)
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
		at := end(l.part)
		if err := s.scan(lo, hi, 1, func(rest, _ []byte) error {
			at = l.part[:1] + string(rest)
			return nil
		}); err != nil {
			return err
		}
		s.worn = s.worn[:len(s.worn)-1]
		if l.removed = 0; at != l.kept && s.lows[l.part] == l {
			x.keepLow(l, at)
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
		l := &low{part: part, kept: at}
		from, _ := s.bounds(part)
		to, _ := s.bounds(at)
		l.empty(from, to)
		s.lows[part] = l
	}
	return it.Err()
}

// loadTable calls f for the keys of a table whose rest is not less than from.
func (s *Store) loadTable(table byte, from []byte, f func(rest, value []byte) error) error {
	at, end := s.keys.Table(table)
	at = append(at, from...)
	for _, part := range slices.Sorted(maps.Keys(s.lows)) {
		lo, _ := s.bounds(part)
		low, _ := s.bounds(s.lows[part].kept)
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
