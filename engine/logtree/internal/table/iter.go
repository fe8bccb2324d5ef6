package table

import (
	"bytes"
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// Where an iterator is.
const (
	unplaced = iota // Next goes to the first entry, Prev to the last
	before          // the first entry: Next goes there
	after           // the last entry: Prev goes there
	placed
	failed
)

// Iter moves over the entries of a table in the order of their keys, both ways. It is for one goroutine, needs no
// closing, and must not be used after its reader's Close. Its memory is used again by Init; until then, Forget lets go
// of the table's.
//
// Each move returns whether it came to an entry; if not, Err tells an end from an error. From
// an end the iterator can be moved back, after an error only be positioned anew.
type Iter struct {
	r     *Reader
	x     *index
	err   error
	state int
	win   window
	pos   int // in win; 0 unless placed
	group int // the first one that win shows
	shown int // how many it shows
	at    int // the block of it
	blk   block
	ahead ahead
}

// Iter returns an iterator that has no position yet: Next goes to the first entry, Prev to the last.
func (r *Reader) Iter() *Iter {
	it := new(Iter)
	r.Init(it)

	return it
}

// Init is Iter for an iterator that was used before, with this reader or another.
func (r *Reader) Init(it *Iter) {
	it.r, it.x, it.err, it.blk = r, nil, nil, block{}
	it.leave(unplaced)
	it.ahead.reset(r)
}

// Forget makes the iterator one of no table.
func (it *Iter) Forget() {
	(*Reader)(nil).Init(it)
	clear(it.win.values[:])
}

// Key is the key of the entry, valid until the next move. It must not be written to.
func (it *Iter) Key() []byte { return it.win.key(it.pos) }

// Entry is what the table says of the key.
func (it *Iter) Entry() Entry { return it.win.entries[it.pos] }

// Near is entries that are at hand, with their keys: those of entry i from Begin[i] up to Begin[i+1] in Keys.
type Near struct {
	Keys    []byte
	Begin   []uint32 // one more than Entries
	Entries []Entry
}

// Near returns the present entry and those that follow it and are at hand: moving to them reads and decodes
// nothing. With back they are those before it, and the present one is the last. It returns at most so many, only
// keys below bound (back: above bound, or at it unless open) if bound is not empty, and at least the present one.
// It is valid until a move to another entry than those, and must not be written to.
func (it *Iter) Near(back bool, most int, bound []byte, open bool) Near {
	w := &it.win
	lo, hi := it.pos, it.pos+1

	// The present entry counts in any case, because the caller has looked at it.
	switch {
	case back && len(bound) == 0:
		lo = max(0, hi-most)
	case back:
		lo -= w.leading(lo, -1, min(lo, most-1), bound, !open)
	default:
		// Groups that follow are decoded until so many entries from the present one on are there, or one that is not below
		// bound. One that is malformed is an error when it is come to.
		for {
			at := hi
			if hi = min(w.n, lo+most); len(bound) > 0 {
				hi = at + w.leading(at-1, 1, hi-at, bound, false)
			}
			if hi < w.n || hi-lo >= most || it.shown == windowGroups || it.group+it.shown >= it.blk.n {
				break
			}
			it.expect(it.group + it.shown)
			if !w.add(&it.blk, it.group+it.shown) {
				break
			}
			it.shown++
		}
	}

	return Near{w.keys, w.begin[lo : hi+1], w.entries[lo:hi]}
}

// leading returns how many of the n entries behind that at pos, in the direction of step, come before bound, or are at
// it if with. A walk over many tables takes few entries of each at a time, one over a single table all that there are:
// the steps get longer.
func (w *window) leading(pos, step, n int, bound []byte, with bool) int {
	in := func(i int) bool {
		c := step * bytes.Compare(w.key(pos+step*(i+1)), bound)
		return c < 0 || c == 0 && with
	}

	lo, hi := 0, n // all before lo are in, and none from hi on
	for far := 1; lo < hi; far *= 2 {
		i := min(lo+far, n) - 1
		if !in(i) {
			hi = i
			break
		}
		lo = i + 1
	}
	for lo < hi {
		if m := int(uint(lo+hi) / 2); in(m) {
			lo = m + 1
		} else {
			hi = m
		}
	}

	return lo
}

// Values reads the values that tables name.
type Values interface {
	// Values returns the values of the entries, which have that many bytes, one behind the other and checked, in memory of
	// their own that nobody writes to again. It returns nil if they are not at hand.
	Values(entries []Entry, bytes int) []byte
}

// mostValues is how many bytes of a group's values are kept at most.
const mostValues = 32 << 10

// Values returns the values of n entries that Near has returned, as far as the cache has them, and nil for the others.
// Those that it had better have are read through from, if that is not nil, for the whole of a group at once. They stay
// as they are for ever, and must not be written to; the slice of them is valid until the next move.
func (it *Iter) Values(back bool, n int, from Values) [][]byte {
	w, lo := &it.win, it.pos
	if back {
		lo -= n - 1
	}
	if it.blk.from == nil {
		return nil
	}

	for g := range w.groups {
		if w.first[g] < lo+n && w.first[g+1] > lo && !w.looked[g] {
			b := it.groupValues(g, from)
			w.looked[g] = b != nil || from != nil
			w.show(g, b)
		}
	}

	return w.values[lo : lo+n]
}

// expect has the processor load what says where a group's values are kept, while the group is decoded.
func (it *Iter) expect(group int) {
	if it.blk.from != nil {
		if p := it.blk.from.groups[group].Load(); p != nil {
			format.IntoCache(p.head())
		}
	}
}

// groupValues is Values for group g of the window, all of it.
func (it *Iter) groupValues(g int, from Values) []byte {
	slot := &it.blk.from.groups[it.group+g]
	if p := slot.Load(); p != nil {
		return p.use()
	}
	if from == nil {
		return nil
	}

	entries, n := it.win.entries[it.win.first[g]:it.win.first[g+1]], 0
	for i := range entries {
		n += int(entries[i].Len)
	}
	if n == 0 || n > mostValues || !it.r.cache.wants(int64(n)) {
		return nil
	}
	b := from.Values(entries, n)
	if len(b) != n {
		return nil
	}
	it.r.cache.keep(it.blk.from, &chunk{slot: slot, data: b})

	return b
}

// Skip goes to the entry that is n entries behind the present one, or -n before it. That must be near.
func (it *Iter) Skip(n int) { it.pos += n }

// Err is what ended the last move other than the end of the table.
func (it *Iter) Err() error { return it.err }

// Next goes to the next entry.
func (it *Iter) Next() bool {
	if p := it.pos + 1; p < it.win.n {
		it.pos = p
		return true
	}

	return it.nextGroup()
}

// Prev goes to the entry before.
func (it *Iter) Prev() bool {
	if it.pos > 0 {
		it.pos--
		return true
	}

	return it.prevGroup()
}

// nextGroup goes to the first entry of the next group, in this block or the next one, and to the end behind the last.
func (it *Iter) nextGroup() bool {
	switch {
	case it.state == unplaced, it.state == before:
		return it.First()
	case it.state != placed:
		return false
	case it.group+it.shown < it.blk.n:
		return it.load(it.group+it.shown, false)
	case it.at+1 < it.x.n:
		return it.open(it.at+1) && it.load(0, false)
	}
	it.leave(after)

	return false
}

// prevGroup goes to the last entry of the group before, in this block or the one before.
func (it *Iter) prevGroup() bool {
	switch {
	case it.state == unplaced, it.state == after:
		return it.Last()
	case it.state != placed:
		return false
	case it.group > 0:
		return it.loadLess(it.group - 1)
	}

	return it.prevBlock()
}

// prevBlock goes to the last entry of the block before, and to the beginning before the first.
func (it *Iter) prevBlock() bool {
	if it.at > 0 {
		return it.open(it.at-1) && it.loadLess(it.blk.n-1)
	}
	it.leave(before)

	return false
}

// First goes to the first entry.
func (it *Iter) First() bool {
	if !it.begin() {
		return false
	}
	if it.x.n == 0 {
		it.leave(after)
		return false
	}

	return it.open(0) && it.load(0, false)
}

// Last goes to the last entry.
func (it *Iter) Last() bool {
	if !it.begin() {
		return false
	}
	if it.x.n == 0 {
		it.leave(before)
		return false
	}

	return it.open(it.x.n-1) && it.load(it.blk.n-1, true)
}

// SeekGE goes to the first entry whose key is at least key.
func (it *Iter) SeekGE(key []byte) bool {
	if !it.begin() {
		return false
	}
	i := it.x.find(key)
	if i < 0 {
		return it.First()
	}
	if !it.open(i) {
		return false
	}

	// The group may end below the key: then the next group, or the next block, has the entry.
	g, ok := it.blk.search(key, false)
	if !ok {
		return it.fail(it.r.malformed(it.x, i))
	}
	if !it.load(max(g, 0), false) {
		return false
	}
	if p := it.win.search(key); p < it.win.n {
		it.pos = p
		return true
	}
	it.pos = it.win.n - 1

	return it.nextGroup()
}

// SeekLT goes to the last entry whose key is below key.
func (it *Iter) SeekLT(key []byte) bool {
	if !it.begin() {
		return false
	}
	i := it.x.find(key)
	if i < 0 {
		it.leave(before)
		return false
	}
	if !it.open(i) {
		return false
	}

	// If no group of the block begins below the key, the entry before it is the last of the block before.
	g, ok := it.blk.search(key, true)
	if !ok {
		return it.fail(it.r.malformed(it.x, i))
	}
	if g < 0 {
		return it.prevBlock()
	}
	if !it.load(g, false) {
		return false
	}
	it.pos = it.win.search(key) - 1
	if it.pos < 0 { // its first key was below key when it was searched
		return it.fail(it.r.malformed(it.x, i))
	}

	return true
}

// leave takes the iterator's position away.
func (it *Iter) leave(state int) { it.state, it.win.n, it.win.groups, it.pos = state, 0, 0, 0 }

// fail ends a move with an error.
func (it *Iter) fail(err error) bool {
	it.leave(failed)
	it.err = err

	return false
}

// begin starts a move that does not depend on where the iterator is.
func (it *Iter) begin() bool {
	// A move to a new place shows one group. It shows more only as walking goes on: see loadLess and Near.
	it.err, it.shown = nil, 0
	x, err := it.r.index()
	if err != nil {
		return it.fail(err)
	}
	it.x = x

	return true
}

// open goes to block i, without standing at an entry yet.
func (it *Iter) open(i int) bool {
	blk, err := it.ahead.block(it.x, i)
	if err != nil {
		return it.fail(err)
	}
	it.blk, it.at = blk, i

	return true
}

// load goes to the first or last entry of a group of the block.
func (it *Iter) load(group int, last bool) bool {
	it.expect(group)
	if !it.win.decode(&it.blk, group) {
		return it.fail(it.r.malformed(it.x, it.at))
	}
	it.group, it.shown, it.state, it.pos = group, 1, placed, 0
	if last {
		it.pos = it.win.n - 1
	}

	return true
}

// loadLess goes to the last entry of a group of the block, to which walking backward led: it shows more groups before
// it than it did before.
func (it *Iter) loadLess(group int) bool {
	it.win.n, it.win.groups = 0, 0
	first := group + 1 - min(max(2*it.shown, 1), windowGroups, group+1)
	for g := first; g <= group; g++ {
		// A group before the wanted one is malformed, or the wanted one is. Only the latter is an error now, and load
		// tells.
		if !it.win.add(&it.blk, g) {
			return it.load(group, true)
		}
	}
	it.group, it.shown, it.state, it.pos = first, group+1-first, placed, it.win.n-1

	return true
}

const (
	aheadMin = 16 << 10
	aheadMax = 64 << 10
)

// ahead gets the blocks for one iterator. Where blocks are asked for one after the other and the cache does not have
// them, it reads many at once, more each time, into memory of its own: a long scan does not empty the cache.
type ahead struct {
	r      *Reader
	last   int   // block asked for before
	size   int64 // what was read ahead the last time; 0: nothing since a jump
	buf    []byte
	lo, hi int64 // what buf holds
}

func (a *ahead) reset(r *Reader) { a.r, a.last, a.size, a.lo, a.hi = r, -2, 0, 0, 0 }

// block returns block i. It is valid until the next call.
func (a *ahead) block(x *index, i int) (block, error) {
	step := i - a.last
	a.last = i
	lo, hi, err := a.r.span(x, i)
	if err != nil {
		return block{}, err
	}
	if lo < a.lo || hi > a.hi {
		// A jump reads one block, through the cache, and ends reading ahead.
		if step != 1 && step != -1 {
			a.size = 0
			return a.r.block(x, i)
		}
		// A short walk over a border reads no more than the two blocks, which may be wanted again.
		if a.r.chunks[i].Load() != nil || a.size == 0 {
			a.size = max(a.size, aheadMin/2)
			return a.r.block(x, i)
		}
		if err := a.read(x, i, step); err != nil {
			return block{}, err
		}
	}

	// Each block is checked when it is come to, not when it was read ahead: what rots there and is not needed is no error.
	b := a.buf[lo-a.lo : hi-a.lo]
	if err := a.r.check(b, lo, 0, 4); err != nil {
		return block{}, err
	}
	blk, ok := parseBlock(b)
	if !ok {
		return block{}, a.r.malformed(x, i)
	}

	return blk, nil
}

// read fills buf with block i and as many as fit behind it, or before it.
func (a *ahead) read(x *index, i, step int) error {
	a.size = min(2*a.size, aheadMax)
	lo, hi, err := a.r.span(x, i)
	if err != nil {
		return err
	}

	for j := i + step; j >= 0 && j < x.n; j += step {
		l, h, err := a.r.span(x, j)

		// The stretch is kept within the limit, and ends where the index makes no sense.
		if err != nil || max(hi, h)-min(lo, l) > a.size {
			break // a bad place is an error when it is needed
		}
		lo, hi = min(lo, l), max(hi, h)
	}

	// Until the read has succeeded, the buffer holds nothing.
	a.lo, a.hi = 0, 0
	a.buf = slices.Grow(a.buf[:0], int(hi-lo))[:hi-lo]
	if err := a.r.readAt(a.buf, lo); err != nil {
		return err
	}
	a.lo, a.hi = lo, hi

	return nil
}
