package run

import (
	"github.com/holdfastdb/holdfast"
)

// Where an iterator is.
const (
	unplaced = iota // Next goes to the first entry, Prev to the last
	before          // the first entry: Next goes there
	after           // the last entry: Prev goes there
	placed
	failed
)

// Iter moves over the entries of a run in the order of their keys, both ways. It is for one goroutine, needs
// no closing, and must not be used after its reader's Close. Its memory is used again by Init.
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
	group int // that win shows
	at    int // the block of it
	blk   block
	ahead ahead
}

// Iter returns an iterator that stands nowhere yet: Next goes to the first entry, Prev to the last.
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

// Key is the key of the entry, valid until the next move. It must not be written to.
func (it *Iter) Key() []byte { return it.win.key(it.pos) }

// Entry is what the run says of the key.
func (it *Iter) Entry() Entry { return it.win.entries[it.pos] }

// Near is how many entries, from the present one on, are at hand: Next goes to them without reading or decoding
// anything.
func (it *Iter) Near() int { return it.win.n - it.pos }

// NearKey is the key of the entry i behind the present one, which must be near. It is valid until a move to one that is not.
func (it *Iter) NearKey(i int) []byte { return it.win.key(it.pos + i) }

// Err is what ended the last move other than the end of the run.
func (it *Iter) Err() error {
	if it.state == failed && it.err == nil {
		return &holdfast.Error{Op: "read run", Engine: engineName, Path: it.r.path, Detail: "a memory fault interrupted it"}
	}
	return it.err
}

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

func (it *Iter) nextGroup() bool {
	switch {
	case it.state == unplaced, it.state == before:
		return it.First()
	case it.state != placed:
		return false
	case it.group+1 < it.blk.n:
		return it.load(it.group+1, false)
	case it.at+1 < it.x.n:
		return it.open(it.at+1) && it.load(0, false)
	}
	it.leave(after)
	return false
}

func (it *Iter) prevGroup() bool {
	switch {
	case it.state == unplaced, it.state == after:
		return it.Last()
	case it.state != placed:
		return false
	case it.group > 0:
		return it.load(it.group-1, true)
	}
	return it.prevBlock()
}

func (it *Iter) prevBlock() bool {
	if it.at > 0 {
		return it.open(it.at-1) && it.load(it.blk.n-1, true)
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

// leave makes the iterator stand nowhere.
func (it *Iter) leave(state int) { it.state, it.win.n, it.pos = state, 0, 0 }

// fail ends a move with an error.
func (it *Iter) fail(err error) bool {
	it.leave(failed)
	it.err = err
	return false
}

// begin starts a move that does not depend on where the iterator is. Until it is over the iterator counts as
// failed, so that a memory fault leaves it so.
func (it *Iter) begin() bool {
	it.leave(failed)
	it.err = nil
	x, err := it.r.index()
	if err != nil {
		return it.fail(err)
	}
	it.x = x
	return true
}

// open goes to block i, without standing at an entry yet.
func (it *Iter) open(i int) bool {
	it.leave(failed)
	blk, err := it.ahead.block(it.x, i)
	if err != nil {
		return it.fail(err)
	}
	it.blk, it.at = blk, i
	return true
}

// load goes to the first or last entry of a group of the block.
func (it *Iter) load(group int, last bool) bool {
	it.leave(failed)
	if !it.win.decode(&it.blk, group) {
		return it.fail(it.r.malformed(it.x, it.at))
	}
	it.group, it.state = group, placed
	if last {
		it.pos = it.win.n - 1
	}
	return true
}

const (
	aheadMin = 16 << 10
	aheadMax = 256 << 10
)

// ahead gets the blocks for one iterator. Where the file is not mapped and blocks are asked for one after the other, it
// reads many at once, more each time, into memory of its own: a long scan does not empty the cache.
type ahead struct {
	r      *Reader
	last   int // block asked for before
	size   int64
	buf    []byte
	lo, hi int64 // what buf holds
}

func (a *ahead) reset(r *Reader) { a.r, a.last, a.size, a.lo, a.hi = r, -2, 0, 0, 0 }

// block returns block i. It is valid until the next call.
func (a *ahead) block(x *index, i int) (block, error) {
	step := i - a.last
	a.last = i
	if a.r.data != nil {
		return a.r.block(x, i)
	}
	lo, hi, err := a.r.span(x, i)
	if err != nil {
		return block{}, err
	}
	if lo < a.lo || hi > a.hi {
		if step != 1 && step != -1 {
			a.size = 0
			return a.r.block(x, i)
		}
		if c := a.r.cache; c != nil {
			if b := c.get(cacheKey{a.r.file, lo}); b != nil {
				if blk, ok := parseBlock(b); ok {
					return blk, nil
				}
			}
		}
		if err := a.read(x, i, step); err != nil {
			return block{}, err
		}
	}
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
	a.size = min(max(2*a.size, aheadMin), aheadMax)
	lo, hi, err := a.r.span(x, i)
	if err != nil {
		return err
	}
	for j := i + step; j >= 0 && j < x.n; j += step {
		l, h, err := a.r.span(x, j)
		if err != nil || max(hi, h)-min(lo, l) > a.size {
			break // a bad place is an error when it is needed
		}
		lo, hi = min(lo, l), max(hi, h)
	}
	if int64(cap(a.buf)) < hi-lo {
		a.buf = make([]byte, max(hi-lo, a.size))
	}
	a.lo, a.hi = 0, 0
	b := a.buf[:hi-lo]
	if err := a.r.readAt(b, lo); err != nil {
		return err
	}
	a.lo, a.hi = lo, hi
	return nil
}
