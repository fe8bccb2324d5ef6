package tree

import (
	"bytes"
	"slices"
)

// RangeTombstones are the range deletes of a memtable: ranges that do not overlap, in order, each with
// the number of the last operation that deleted all of it. An earlier delete of the same keys
// does not matter: a reader uses the RangeTombstones that were there at its point, and those are all
// visible to it. A RangeTombstones is never changed.
type RangeTombstones struct {
	list []RangeTombstone
	Seq  uint64 // of the newest
}

// RangeTombstone is one range, [lo, hi); an empty hi is the end of all keys.
type RangeTombstone struct {
	Lo, Hi []byte
	Seq    uint64
}

// compareStart compares where the range begins with key.
func (r RangeTombstone) compareStart(key []byte) int { return bytes.Compare(r.Lo, key) }

// With returns t and newer ranges, in the order in which they were deleted. It takes time in proportion
// to all of them, but for sorting.
//
// The keys are cut at every bound. The stretches between are then painted with ranges, the newest
// first: a stretch that is painted already is skipped, for good, by next.
func (t *RangeTombstones) With(newer []RangeTombstone) *RangeTombstones {
	all := append(slices.Clone(t.Ranges()), newer...) // what is in t is older than all of newer
	var bounds [][]byte
	endless := false
	for _, r := range all {
		bounds = append(bounds, r.Lo)
		if len(r.Hi) > 0 {
			bounds = append(bounds, r.Hi)
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
		if len(all[k].Hi) > 0 {
			end = index(all[k].Hi)
		}
		for i := find(index(all[k].Lo)); i < end; i = find(i) {
			painted[i] = all[k].Seq
			next[i] = i + 1
		}
	}
	n := &RangeTombstones{Seq: newer[len(newer)-1].Seq}
	for i := range stretches {
		if painted[i] == 0 {
			continue
		}
		var hi []byte
		if i+1 < len(bounds) {
			hi = bytes.Clone(bounds[i+1])
		}
		if k := len(n.list); k > 0 && n.list[k-1].Seq == painted[i] && bytes.Equal(n.list[k-1].Hi, bounds[i]) {
			n.list[k-1].Hi = hi
			continue
		}
		n.list = append(n.list, RangeTombstone{bytes.Clone(bounds[i]), hi, painted[i]})
	}
	return n
}

// below reports whether a range that ends at hi ends before key.
func below(hi, key []byte) bool { return len(hi) > 0 && bytes.Compare(hi, key) <= 0 }

// Find returns the range that key is in, nil if none.
func (t *RangeTombstones) Find(key []byte) *RangeTombstone {
	if t == nil || len(t.list) == 0 {
		return nil
	}
	i, ok := slices.BinarySearchFunc(t.list, key, RangeTombstone.compareStart)
	if !ok {
		i--
	}
	if i < 0 || below(t.list[i].Hi, key) {
		return nil
	}
	return &t.list[i]
}

// Covers returns the number of the newest operation that deleted key, 0 if none did.
func (t *RangeTombstones) Covers(key []byte) uint64 {
	if found := t.Find(key); found != nil {
		return found.Seq
	}
	return 0
}

func (t *RangeTombstones) Empty() bool { return t == nil || len(t.list) == 0 }

func (t *RangeTombstones) Newest() uint64 {
	if t == nil {
		return 0
	}
	return t.Seq
}

func (t *RangeTombstones) Ranges() []RangeTombstone {
	if t == nil {
		return nil
	}
	return t.list
}

// after returns where the first range behind key, which is in none, begins; nil if there is none.
func (t *RangeTombstones) after(key []byte) []byte {
	if i := t.behind(key); i < len(t.Ranges()) {
		return t.list[i].Lo
	}
	return nil
}

// before returns where the last range before key, which is in none, ends; nil if there is none.
func (t *RangeTombstones) before(key []byte) []byte {
	if i := t.behind(key); i > 0 {
		return t.list[i-1].Hi
	}
	return nil
}

// behind returns the number of the first range that begins behind key, which is in none.
func (t *RangeTombstones) behind(key []byte) int {
	i, _ := slices.BinarySearchFunc(t.Ranges(), key, RangeTombstone.compareStart)
	return i
}
