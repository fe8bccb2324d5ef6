package tree

import (
	"bytes"
	"slices"
	"sort"
)

// RangeTombstones are the range deletes of a memtable: ranges that do not overlap, in order, each with the number of an
// operation, so that all older versions in the range, and none that is newer, are deleted. An earlier delete of the
// same keys does not matter: a reader uses the RangeTombstones that were there at its point, and those are all visible
// to it. A RangeTombstones is never changed.
//
// The ranges are kept in chunks. The RangeTombstones that come next share with this one all chunks but those that
// differ.
type RangeTombstones struct {
	chunks [][]RangeTombstone // none is empty
	n      int                // ranges in all of them
	Seq    uint64             // of the newest operation
}

// maxChunk is how many ranges a chunk may have. Two neighbours together have more than half as many.
const maxChunk = 64

// RangeTombstone is one range, [lo, hi); an empty hi is the end of all keys.
type RangeTombstone struct {
	Lo, Hi []byte
	Seq    uint64
}

// With returns t and newer ranges, none of them empty, in the order in which they were deleted. For each it copies a
// chunk, and once the list of chunks. quiet is asked whether it is sure that no version in [lo, hi) is newer than
// after.
func (t *RangeTombstones) With(newer []RangeTombstone, quiet func(lo, hi []byte, after uint64) bool) *RangeTombstones {
	n := &RangeTombstones{Seq: newer[len(newer)-1].Seq}
	if t != nil {
		n.chunks, n.n = slices.Clone(t.chunks), t.n
	}

	// Keys are cloned: those of the batch lie in the memtable's image, and tombstones live longer where readers hold
	// them.
	for _, r := range newer {
		n.add(RangeTombstone{bytes.Clone(r.Lo), bytes.Clone(r.Hi), r.Seq}, quiet)
	}

	return n
}

// add puts r, which is newer than all ranges, in the place of what it covers.
//
// If nothing in r is newer than a neighbour that it touches, the neighbour is made longer instead: its number
// hides as much. So deletes along a queue become one range.
func (t *RangeTombstones) add(r RangeTombstone, quiet func(lo, hi []byte, after uint64) bool) {
	// The ranges that r overlaps or touches are those from the first which does not end before it, up to the first that
	// begins behind it.
	from := t.search(func(x *RangeTombstone) bool { return !below(x.Hi, r.Lo) || bytes.Equal(x.Hi, r.Lo) })
	to := t.search(func(x *RangeTombstone) bool { return len(r.Hi) > 0 && bytes.Compare(x.Lo, r.Hi) > 0 })
	var first, last RangeTombstone // that r touches
	if from != to {
		first, last = *t.at(from), *t.at(t.previous(to))
	}

	// What the first and the last of them reach beyond r stays, with its own number, or is joined with r to one range.
	left := from != to && bytes.Compare(first.Lo, r.Lo) < 0
	right := from != to && len(r.Hi) > 0 && !below(last.Hi, r.Hi)

	// Joining to both sides is allowed only if the two have one number: a range has one number alone.
	joinLeft := left && quiet(r.Lo, r.Hi, first.Seq)
	joinRight := right && (!joinLeft || first.Seq == last.Seq) && quiet(r.Lo, r.Hi, last.Seq)
	mid := make([]RangeTombstone, 0, 3)
	if left && !joinLeft {
		mid = append(mid, RangeTombstone{first.Lo, r.Lo, first.Seq})
	}
	whole := r
	if joinLeft {
		whole.Lo, whole.Seq = first.Lo, first.Seq
	}
	if joinRight {
		whole.Hi, whole.Seq = last.Hi, last.Seq
	}
	mid = append(mid, whole)
	if right && !joinRight {
		mid = append(mid, RangeTombstone{r.Hi, last.Hi, last.Seq})
	}
	t.replace(from, to, mid)
}

// without returns t without the ranges for which is says true.
func (t *RangeTombstones) without(is func(RangeTombstone) bool) *RangeTombstones {
	var left []RangeTombstone
	for r := range t.Ranges() {
		if !is(r) {
			left = append(left, r)
		}
	}
	if len(left) == t.Len() {
		return t
	}

	return &RangeTombstones{slices.Collect(slices.Chunk(left, maxChunk)), len(left), t.Seq}
}

// position is where a range is: in which chunk, and where in that.
type position struct{ chunk, i int }

func (t *RangeTombstones) at(p position) *RangeTombstone { return &t.chunks[p.chunk][p.i] }

// previous returns the position before p, which is not the first.
func (t *RangeTombstones) previous(p position) position {
	if p.i > 0 {
		return position{p.chunk, p.i - 1}
	}

	return position{p.chunk - 1, len(t.chunks[p.chunk-1]) - 1}
}

// search returns the position of the first range for which is says true, as it does for all after it; behind the last
// range if there is none.
func (t *RangeTombstones) search(is func(*RangeTombstone) bool) position {
	// The last range of each chunk tells in which chunk the answer lies.
	c := sort.Search(len(t.chunks), func(i int) bool { return is(&t.chunks[i][len(t.chunks[i])-1]) })
	if c == len(t.chunks) {
		return position{c, 0}
	}

	return position{c, sort.Search(len(t.chunks[c]), func(i int) bool { return is(&t.chunks[c][i]) })}
}

// replace puts mid in the place of the ranges from one position up to, not including, another. It writes to no chunk.
func (t *RangeTombstones) replace(from, to position, mid []RangeTombstone) {
	// Chunks are shared with older states, so those that change are made anew of what lies before, the new ranges, and
	// what lies behind.
	lo, hi := from.chunk, to.chunk // the chunks that are replaced
	var before, after []RangeTombstone
	if lo < len(t.chunks) {
		before = t.chunks[lo][:from.i]
	}
	if hi < len(t.chunks) && (to.i > 0 || hi == lo) {
		after = t.chunks[hi][to.i:]
		hi++
	}
	// Small neighbours are joined, also because what comes behind all others would begin a chunk of its own.
	if size := len(before) + len(mid) + len(after); lo > 0 && len(t.chunks[lo-1])+size <= maxChunk/2 ||
		lo > 0 && lo == len(t.chunks) {
		lo--
		before = slices.Concat(t.chunks[lo], before)
	}
	if size := len(before) + len(mid) + len(after); hi < len(t.chunks) && len(t.chunks[hi])+size <= maxChunk/2 {
		after = slices.Concat(after, t.chunks[hi])
		hi++
	}
	all := slices.Concat(before, mid, after)

	for _, c := range t.chunks[lo:hi] {
		t.n -= len(c)
	}
	t.n += len(all)
	parts := (len(all) + maxChunk - 1) / maxChunk
	made := slices.Collect(slices.Chunk(all, (len(all)+parts-1)/parts))
	t.chunks = slices.Replace(t.chunks, lo, hi, made...)
}

// below reports whether a range that ends at hi ends before key.
func below(hi, key []byte) bool { return len(hi) > 0 && bytes.Compare(hi, key) <= 0 }

// Find returns the range that key is in, nil if none.
func (t *RangeTombstones) Find(key []byte) *RangeTombstone {
	if t.Empty() {
		return nil
	}

	c, ok := slices.BinarySearchFunc(t.chunks, key,
		func(c []RangeTombstone, key []byte) int { return bytes.Compare(c[0].Lo, key) })
	if ok {
		return &t.chunks[c][0]
	}
	if c == 0 {
		return nil
	}
	chunk := t.chunks[c-1]
	i, ok := slices.BinarySearchFunc(chunk, key,
		func(r RangeTombstone, key []byte) int { return bytes.Compare(r.Lo, key) })
	if !ok {
		i--
	}
	if below(chunk[i].Hi, key) {
		return nil
	}

	return &chunk[i]
}

// Covers returns the number up to which versions of key are deleted, 0 if none are.
func (t *RangeTombstones) Covers(key []byte) uint64 {
	if found := t.Find(key); found != nil {
		return found.Seq
	}

	return 0
}

// Empty reports whether there are no ranges. A nil RangeTombstones has none.
func (t *RangeTombstones) Empty() bool { return t.Len() == 0 }

// Len is the number of ranges.
func (t *RangeTombstones) Len() int {
	if t == nil {
		return 0
	}

	return t.n
}

// Newest is the number of the newest range delete, 0 if there is none. It stays when ranges are left out.
func (t *RangeTombstones) Newest() uint64 {
	if t == nil {
		return 0
	}

	return t.Seq
}

// Ranges yields the ranges in order.
func (t *RangeTombstones) Ranges() func(yield func(RangeTombstone) bool) {
	return func(yield func(RangeTombstone) bool) {
		if t == nil {
			return
		}

		for _, c := range t.chunks {
			for _, r := range c {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// after returns where the first range behind key, which is in none, begins; nil if there is none.
func (t *RangeTombstones) after(key []byte) []byte {
	if t.Empty() {
		return nil
	}
	if p := t.behind(key); p.chunk < len(t.chunks) {
		return t.at(p).Lo
	}

	return nil
}

// before returns where the last range before key, which is in none, ends; nil if there is none.
func (t *RangeTombstones) before(key []byte) []byte {
	if t.Empty() {
		return nil
	}
	if p := t.behind(key); p != (position{}) {
		return t.at(t.previous(p)).Hi
	}

	return nil
}

// behind returns the position of the first range that begins behind key, which is in none.
func (t *RangeTombstones) behind(key []byte) position {
	return t.search(func(r *RangeTombstone) bool { return bytes.Compare(r.Lo, key) >= 0 })
}
