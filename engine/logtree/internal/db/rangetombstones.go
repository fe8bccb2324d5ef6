package db

import (
	"bytes"
	"slices"
)

// rangeTombstones are the range deletes of a memtable: ranges that do not overlap, in order, each with
// the number of the last operation that deleted all of it. An earlier delete of the same keys
// does not matter: a reader uses the rangeTombstones that were there at its point, and those are all
// visible to it. A rangeTombstones is never changed.
type rangeTombstones struct {
	list []rangeTombstone
	seq  uint64 // of the newest
}

// rangeTombstone is one range, [lo, hi); an empty hi is the end of all keys.
type rangeTombstone struct {
	lo, hi []byte
	seq    uint64
}

// compareStart compares where the range begins with key.
func (r rangeTombstone) compareStart(key []byte) int { return bytes.Compare(r.lo, key) }

// with returns t and newer ranges, in the order in which they were deleted. It takes time in proportion
// to all of them, but for sorting.
//
// The keys are cut at every bound. The stretches between are then painted with ranges, the newest
// first: a stretch that is painted already is skipped, for good, by next.
func (t *rangeTombstones) with(newer []rangeTombstone) *rangeTombstones {
	all := append(slices.Clone(t.ranges()), newer...) // what is in t is older than all of newer
	var bounds [][]byte
	endless := false
	for _, r := range all {
		bounds = append(bounds, r.lo)
		if len(r.hi) > 0 {
			bounds = append(bounds, r.hi)
		} else {
			endless = true
		}
	}
	slices.SortFunc(bounds, bytes.Compare)
	bounds = slices.CompactFunc(bounds, bytes.Equal)
	stretches := len(bounds) - 1
	if endless {
		stretches++ // from the last bound to the end of all keys
	}
	painted := make([]uint64, stretches+1)
	next := make([]int, stretches+1) // the first stretch from here on that may not be painted
	for i := range next {
		next[i] = i
	}
	find := func(i int) int {
		for next[i] != i {
			next[i] = next[next[i]]
			i = next[i]
		}
		return i
	}
	index := func(key []byte) int {
		i, _ := slices.BinarySearchFunc(bounds, key, bytes.Compare)
		return i
	}
	for k := len(all) - 1; k >= 0; k-- {
		end := stretches
		if len(all[k].hi) > 0 {
			end = index(all[k].hi)
		}
		for i := find(index(all[k].lo)); i < end; i = find(i) {
			painted[i] = all[k].seq
			next[i] = i + 1
		}
	}
	n := &rangeTombstones{seq: newer[len(newer)-1].seq}
	for i := range stretches {
		if painted[i] == 0 {
			continue
		}
		var hi []byte
		if i+1 < len(bounds) {
			hi = bytes.Clone(bounds[i+1])
		}
		if k := len(n.list); k > 0 && n.list[k-1].seq == painted[i] && bytes.Equal(n.list[k-1].hi, bounds[i]) {
			n.list[k-1].hi = hi
			continue
		}
		n.list = append(n.list, rangeTombstone{bytes.Clone(bounds[i]), hi, painted[i]})
	}
	return n
}

// below reports whether a range that ends at hi ends before key.
func below(hi, key []byte) bool { return len(hi) > 0 && bytes.Compare(hi, key) <= 0 }

// find returns the range that key is in, nil if none.
func (t *rangeTombstones) find(key []byte) *rangeTombstone {
	if t == nil || len(t.list) == 0 {
		return nil
	}
	i, ok := slices.BinarySearchFunc(t.list, key, rangeTombstone.compareStart)
	if !ok {
		i--
	}
	if i < 0 || below(t.list[i].hi, key) {
		return nil
	}
	return &t.list[i]
}

// covers returns the number of the newest operation that deleted key, 0 if none did.
func (t *rangeTombstones) covers(key []byte) uint64 {
	if found := t.find(key); found != nil {
		return found.seq
	}
	return 0
}

func (t *rangeTombstones) empty() bool { return t == nil || len(t.list) == 0 }

func (t *rangeTombstones) newest() uint64 {
	if t == nil {
		return 0
	}
	return t.seq
}

func (t *rangeTombstones) ranges() []rangeTombstone {
	if t == nil {
		return nil
	}
	return t.list
}
