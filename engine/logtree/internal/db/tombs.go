package db

import (
	"bytes"
	"slices"
)

// tombs are the range deletes of a memtable: ranges that do not overlap, in order, each with
// the number of the last operation that deleted all of it. An earlier delete of the same keys
// does not matter: a reader uses the tombs that were there at its point, and those are all
// visible to it. A tombs is never changed.
type tombs struct {
	list []tomb
	seq  uint64 // of the newest
}

// tomb is one range, [lo, hi); an empty hi is the end of all keys.
type tomb struct {
	lo, hi []byte
	seq    uint64
}

// with returns t and one more, newer, range.
func (t *tombs) with(lo, hi []byte, seq uint64) *tombs {
	n := &tombs{seq: seq}
	if t != nil {
		n.list = make([]tomb, 0, len(t.list)+2)
	}
	added := false
	add := func() {
		if !added {
			n.list = append(n.list, tomb{bytes.Clone(lo), bytes.Clone(hi), seq})
			added = true
		}
	}
	if t != nil {
		for _, old := range t.list {
			if below(old.hi, lo) { // ends before the new one
				n.list = append(n.list, old)
				continue
			}
			if len(hi) > 0 && bytes.Compare(old.lo, hi) >= 0 { // begins after it
				add()
				n.list = append(n.list, old)
				continue
			}
			if bytes.Compare(old.lo, lo) < 0 {
				n.list = append(n.list, tomb{old.lo, bytes.Clone(lo), old.seq})
			}
			add()
			if len(hi) > 0 && (len(old.hi) == 0 || bytes.Compare(old.hi, hi) > 0) {
				n.list = append(n.list, tomb{bytes.Clone(hi), old.hi, old.seq})
			}
		}
	}
	add()
	return n
}

// below reports whether a range that ends at hi ends before key.
func below(hi, key []byte) bool { return len(hi) > 0 && bytes.Compare(hi, key) <= 0 }

// find returns the range that key is in, nil if none.
func (t *tombs) find(key []byte) *tomb {
	if t == nil || len(t.list) == 0 {
		return nil
	}
	i, ok := slices.BinarySearchFunc(t.list, key, func(a tomb, key []byte) int { return bytes.Compare(a.lo, key) })
	if !ok {
		i--
	}
	if i < 0 || below(t.list[i].hi, key) {
		return nil
	}
	return &t.list[i]
}

// covers returns the number of the newest operation that deleted key, 0 if none did.
func (t *tombs) covers(key []byte) uint64 {
	if found := t.find(key); found != nil {
		return found.seq
	}
	return 0
}

func (t *tombs) empty() bool { return t == nil || len(t.list) == 0 }

func (t *tombs) newest() uint64 {
	if t == nil {
		return 0
	}
	return t.seq
}

func (t *tombs) ranges() []tomb {
	if t == nil {
		return nil
	}
	return t.list
}
