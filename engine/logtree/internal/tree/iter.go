package tree

import (
	"bytes"
	"slices"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// Iterator implements [holdfast.Iterator], but for Close. It reads some entries ahead at a time, more the longer
// the walk is: choosing between sources then costs little per entry, and what it hands out lies in memory where nothing
// can fault: its own, or that of a memtable.
type Iterator struct {
	items  []item // what was read ahead
	at     int    // the present one of items
	w      *walk  // nil once it is closed
	ver    *Version
	ended  bool
	hidden bool // there are range deletes
	err    error

	// What tells whether a flush or a compaction is worth it: how many deleted keys of tables lie before the first key
	// that the walk has found, that key if there are such, and how many deleted keys of memtables were passed over.
	dead   int
	first  []byte
	found  bool
	passed int
}

type item = memtable.Pair

// walk is the memory of an iterator, for the next one to use again.
type walk struct {
	m      merged
	lo, hi []byte

	// At a time so many items are read ahead, of so many bytes, roughly. Both grow with the bytes walked until now.
	most, bytes, walked int

	items []item
	used  int    // how many of items were ever in use: what is behind refers to nothing
	arena []byte // keys and values of items, but those of memtables, of the cache of tables, and of what was read ahead

	unread []unread // values that are not read yet
	owed   int      // how many bytes those have

	unchecked []unchecked // values that were read ahead, of items that have them
	lent      int         // bytes of values that were read ahead, and are handed out there
	far       bool        // the walk reads its first values, far ahead; see reaches
	seg       *segment    // the segment of the last value, and its index in the version
	at        int
	ahead     ahead // where values of long walks are read ahead
	slow      int   // how many read calls of values took long
}

// unread is a value that is not read yet.
type unread struct {
	table.Entry
	item   int    // that it belongs to
	mapped []byte // where it is in memory, nil if a call has to read it
	at     int    // where it is in the arena, toRead if it is not there
}

const toRead = -1

// unchecked is a value that was read ahead.
type unchecked struct {
	place uint64
	sum   uint32
	item  int32
}

var walks = sync.Pool{New: func() any { return new(walk) }}

const (
	firstAhead = 8
	maxAhead   = 128
	minArena   = 8 << 10 // bytes read ahead, roughly
	maxArena   = 64 << 10
	firstReach = 24 << 10 // bytes of the first values of a walk to an end that is known, if they are read from a file
	aheadShare = 4        // of what was read until now, so many bytes are read ahead: a walk may end at any key
)

// Memtable is what a walk sees of a memtable.
type Memtable struct {
	Index      *memtable.Table
	Tombstones *RangeTombstones // those that the walk sees
	Values     interface {
		// Value appends a version's value to dst. It is asked for values that are not in the index's image.
		Value(dst []byte, v *memtable.Version) ([]byte, error)
	}
}

// Begin makes it a walk over the keys in r. AddMemtable, from the newest on, and then Start follow, before anything
// else. The caller holds references to the memtables and the version until Close.
func (it *Iterator) Begin(r holdfast.Range) {
	w := walks.Get().(*walk)
	it.w = w
	w.lo, w.hi = append(w.lo[:0], r.Lo...), append(w.hi[:0], r.Hi...)
	w.most, w.bytes, w.walked, w.slow, w.far = firstAhead, minArena, 0, 0, false
	w.m.reverse, w.m.src = r.Reverse, w.m.src[:0]
}

// AddMemtable adds a memtable that is not empty, as it is for a reader at seq.
func (it *Iterator) AddMemtable(t Memtable, seq uint64) {
	it.hidden = it.hidden || !t.Tombstones.Empty()
	s := it.w.add()
	s.table, s.mi = t, t.Index.Iter(seq)
}

// Start adds the tiers of a version and goes to where the walk begins.
func (it *Iterator) Start(v *Version) {
	w := it.w
	it.ver = v

	for i := range v.Tiers {
		w.add().tier = &v.Tiers[i]
	}
	start := w.lo
	if w.m.reverse {
		start = w.hi
	}
	it.err = w.m.seek(start)
}

// add returns one more source; the memory of its iterator may have been used before.
func (w *walk) add() *source {
	src := w.m.src
	if n := len(src); n < cap(src) {
		w.m.src = src[:n+1]
	} else {
		w.m.src = append(src, source{})
	}

	return &w.m.src[len(src)]
}

// recycle gives the memory back, without what it refers to.
func (w *walk) recycle() {
	for i := range w.m.src {
		s := &w.m.src[i]

		// What a pooled walk still referred to could not be collected.
		s.table, s.tier, s.key, s.ok = Memtable{}, nil, nil, false
		s.mi = memtable.Iter{}
		s.ri.Forget()
	}
	w.m.bound = nil
	clear(w.items[:w.used])
	w.unread, w.unchecked, w.owed, w.lent = w.unread[:0], w.unchecked[:0], 0, 0
	w.used, w.seg = 0, nil
	w.ahead.reset()
	if cap(w.arena) <= 4*maxArena {
		walks.Put(w)
	}
}

// Next implements [holdfast.Iterator].
func (it *Iterator) Next() bool {
	if it.at+1 < len(it.items) {
		it.at++
		return true
	}

	return it.more()
}

// more is Next when nothing is left of what was read ahead.
func (it *Iterator) more() bool {
	w := it.w
	it.items, it.at = nil, 0
	if w == nil || it.ended || it.err != nil {
		return false
	}
	w.items, w.arena, w.lent = w.items[:0], w.arena[:0], 0
	if cap(w.arena) > 4*maxArena {
		w.arena = nil // after a large value
	}
	w.ahead.reuse()

	if w.far = w.walked == 0 && it.reaches(); w.far {
		w.most, w.bytes = maxAhead, firstReach
	}

	// First keys and places are collected, then the values are read. An error of either shows only once what came before
	// it has been handed out.
	it.err = it.fill()
	it.checkAhead()
	if len(w.unread) > 0 {
		if err := it.resolve(); err != nil {
			it.err = err // it comes before what fill has met
		}
	}

	// The stretch up to the first key is worth a compaction if many deleted keys lie in it.
	if !it.found && len(w.items) > 0 {
		if it.found = true; it.dead > 0 {
			it.first = bytes.Clone(w.items[0].Key)
		}
	}
	w.used = max(w.used, len(w.items))
	w.walked += len(w.arena) + w.lent

	// A walk that goes on reads more at a time; one that ends early has read little in vain.
	w.most, w.bytes = min(2*w.most, maxAhead), min(max(w.walked/aheadShare, minArena), maxArena)
	it.items = w.items

	return len(it.items) > 0
}

// Key implements [holdfast.Iterator].
func (it *Iterator) Key() []byte {
	if it.at < len(it.items) {
		return it.items[it.at].Key
	}

	return nil
}

// Value implements [holdfast.Iterator].
func (it *Iterator) Value() []byte {
	if it.at < len(it.items) {
		return it.items[it.at].Value
	}

	return nil
}

// Err implements [holdfast.Iterator]: an error shows when all before it has been handed out.
func (it *Iterator) Err() error {
	if it.at+1 < len(it.items) {
		return nil
	}

	return it.err
}

// Passed is how many deleted keys of memtables the walk has passed over.
func (it *Iterator) Passed() int { return it.passed }

// Head is how many deleted keys of tables the walk has passed over before it found a key, and where they lie.
func (it *Iterator) Head() (n int, r holdfast.Range) {
	if it.dead == 0 || it.w == nil {
		return 0, r
	}
	r.Lo, r.Hi = it.w.lo, it.w.hi
	if it.w.m.reverse && it.found {
		r.Lo = it.first
	} else if it.found {
		r.Hi = it.first
	}

	return it.dead, holdfast.Range{Lo: bytes.Clone(r.Lo), Hi: bytes.Clone(r.Hi)}
}

// passDead notes so many deleted keys of a table.
func (it *Iterator) passDead(n int) {
	if !it.found && len(it.w.items) == 0 {
		it.dead += n
	}
}

// Close ends the walk, and reports whether it was open. It returns the error that the walk met, if any.
func (it *Iterator) Close() (was bool, err error) {
	if it.w != nil {
		it.w.recycle()
		it.w, it.ver, it.items = nil, nil, nil
		was = true
	}

	return was, it.err
}

// room is how many more items to read ahead.
func (w *walk) room() int {
	if w.full(0) {
		return 0
	}

	return w.most - len(w.items)
}

// full reports whether enough bytes have been read ahead, or will be by resolve, with keys of so many bytes that are
// not in the arena yet.
func (w *walk) full(keys int) bool { return len(w.arena)+keys+w.owed+w.lent >= w.bytes }

// reaches reports whether the walk comes to its first values in a file, which are not known to be in memory, and has an
// end. What lies before that end will be wanted most likely, so it is read by one call, and waited for once: a few
// values first, and more after them, would wait twice or three times.
func (it *Iterator) reaches() bool {
	w := it.w
	m, end := &w.m, w.hi
	if m.reverse {
		end = w.lo
	}
	if len(end) == 0 || m.cur < 0 || m.src[m.cur].table.Index != nil {
		return false
	}
	s := &m.src[m.cur]
	if v := s.ri.Values(m.reverse, 1, nil); v != nil && v[0] != nil {
		return false
	}
	e := s.ri.Entry()

	return e.Len > 0 && w.enter(it.ver, e.Place) && w.seg.Mapped(int64(uint32(e.Place)), int(e.Len)) == nil
}

// fill reads entries ahead.
func (it *Iterator) fill() (err error) {
	w := it.w
	m := &w.m

	for w.room() > 0 {
		if m.cur < 0 {
			it.ended = true
			return nil
		}
		s := &m.src[m.cur]

		// The bound of the range on the far side ends the walk.
		if m.reverse {
			if len(w.lo) > 0 && bytes.Compare(s.key, w.lo) < 0 {
				it.ended = true
				return nil
			}
		} else if len(w.hi) > 0 && bytes.Compare(s.key, w.hi) >= 0 {
			it.ended = true
			return nil
		}
		if it.hidden {
			skipped, err := it.skipDeleted(s)
			if err != nil {
				return err
			}
			if skipped {
				continue
			}
		}

		// Where no other source and no range delete has a say up to some bound, entries are taken without asking for each.
		if bound, open, ok := it.alone(s); ok {
			if err := it.takeMany(s, bound, open); err != nil {
				return err
			}
			continue
		}
		if err := it.take(s); err != nil {
			return err
		}
		if err := m.next(); err != nil {
			return err
		}
	}

	return nil
}

// alone returns the key up to which s can be followed without a look at anything else: forward those below it,
// backward those above it, and at it unless open. An empty one is the end of all keys. It returns false if s had
// better be followed one by one.
func (it *Iterator) alone(s *source) (bound []byte, open, ok bool) {
	m := &it.w.m
	if m.same || m.reverse && s.table.Index != nil {
		return nil, false, false
	}
	if m.reverse {
		return it.aloneBack(s)
	}

	// Forward: up to the end of the range, the next key of another source, the end of the ref, or the next range delete of
	// a memtable as new as this source or newer, whichever comes first.
	bound = it.w.hi
	if m.second >= 0 {
		bound = sooner(bound, m.bound)
	}
	if s.table.Index == nil {
		bound = sooner(bound, s.tier.Refs[s.at].Hi)
	}
	if it.hidden {
		for j := 0; j <= m.cur && m.src[j].table.Index != nil; j++ {
			ts := m.src[j].table.Tombstones
			if j == m.cur && ts.Find(s.key) != nil {
				return nil, false, false // deleted before the present key was set, but perhaps not before the next
			}
			bound = sooner(bound, ts.after(s.key))
		}
	}

	return bound, false, true
}

// aloneBack is alone for a table in a walk backward. Where another source has the bound, its own key is left to it:
// open is then true.
func (it *Iterator) aloneBack(s *source) (bound []byte, open, ok bool) {
	m := &it.w.m
	bound = later(it.w.lo, s.tier.Refs[s.at].Lo)
	if it.hidden {
		for j := 0; j < m.cur && m.src[j].table.Index != nil; j++ {
			bound = later(bound, m.src[j].table.Tombstones.before(s.key))
		}
	}
	if m.second >= 0 && bytes.Compare(m.bound, bound) >= 0 {
		return m.bound, true, true
	}

	return bound, false, true
}

// sooner returns the lesser of two bounds; an empty one is the end of all keys.
func sooner(a, b []byte) []byte {
	if len(a) == 0 || len(b) > 0 && bytes.Compare(b, a) < 0 {
		return b
	}

	return a
}

// later returns the greater of two bounds; an empty one is the begin of all keys.
func later(a, b []byte) []byte {
	if bytes.Compare(a, b) < 0 {
		return b
	}

	return a
}

// takeMany takes what s is at, as much as is at hand in the direction of the walk up to the bound that alone has
// returned, and goes on.
func (it *Iterator) takeMany(s *source, bound []byte, open bool) error {
	w := it.w

	// Near hands out what the block at hand has, in one piece. The iterator is then set to the last of those taken, and
	// next moves on.
	if s.table.Index == nil {
		n := it.takeNear(s, s.ri.Near(w.m.reverse, w.room(), bound, open))
		if n--; w.m.reverse {
			n = -n
		}
		s.ri.Skip(n)
		s.key = s.ri.Key()

		return w.m.next()
	}

	n, passed := len(w.items), 0
	w.items, passed = s.mi.Take(w.items, w.room(), bound)
	it.passed += passed

	// The next key was of the kind that Take leaves to take: its value is in the log.
	if len(w.items) == n && passed == 0 {
		if err := it.take(s); err != nil {
			return err
		}

		return w.m.next()
	}
	s.ok = s.mi.Valid()
	s.load()
	w.m.moved(1)

	return nil
}

// take adds what s is at, unless it is a tombstone.
func (it *Iterator) take(s *source) error {
	if s.table.Index == nil {
		it.takeNear(s, s.ri.Near(false, 1, nil, false))
		return nil
	}
	v := s.mi.Version()
	if v.Kind != holdfast.KindSet {
		it.passed++
		return nil
	}
	w := it.w
	if v.InLog {
		at, large := len(w.arena), v // a copy, so that only versions of long values are allocated
		arena, err := s.table.Values.Value(w.arena, &large)
		if err != nil {
			return err
		}
		w.arena, v.Value = arena, arena[at:len(arena):len(arena)]
	}
	w.items = append(w.items, item{Key: v.Key, Value: v.Value})

	return nil
}

// takeNear adds entries of a table, other than tombstones, in the direction of the walk, as long as there is room,
// one at least. It returns how many it looked at. Values that the cache of tables has are handed out as they are there,
// those of a long walk where they were read ahead; others that do not lie together are left to resolve.
func (it *Iterator) takeNear(s *source, near table.Near) int {
	w, n := it.w, len(near.Entries)

	// A long walk leaves the cache as it is: it comes by once.
	long := w.walked >= longWalk
	var from table.Values
	if !w.far && !long {
		from = (*atHand)(it)
	}
	values := s.ri.Values(w.m.reverse, n, from)
	if (values == nil || values[0] == nil || values[n-1] == nil) && !w.far && !long && it.takeSpan(near) {
		return n
	}

	// Of values that are not at hand only their places are noted. Keys are copied behind the loop, at once, those that it
	// has taken: more may be near than there is room for.
	at, begin, size := len(w.arena), near.Begin[0], 0
	all := int(near.Begin[n] - begin)
	w.arena = slices.Grow(w.arena, all)
	keys := w.arena[at : at+all]
	items := slices.Grow(w.items, n)
	taken := 0
	for ; taken < n; taken++ {
		i := taken
		if w.m.reverse {
			i = n - 1 - taken
		}
		e := &near.Entries[i]
		if e.Tombstone {
			it.passDead(1)
			continue
		}
		if taken > 0 && w.full(size) {
			break
		}
		var value []byte
		switch {
		case values != nil && values[i] != nil:
			value = values[i]
			w.walked += len(value)
		case long:
			value = it.streamed(e, len(items))
		}
		if value == nil {
			it.note(e, len(items))
		}
		lo, hi := near.Begin[i]-begin, near.Begin[i+1]-begin
		size += int(hi - lo)
		items = items[:len(items)+1]
		x := &items[len(items)-1]
		x.Key, x.Value = keys[lo:hi:hi], value
	}

	// Tombstones alone are no bytes that were read ahead.
	switch {
	case size == 0:
	case w.m.reverse:
		from := near.Begin[n-taken]
		copy(keys[from-begin:], near.Keys[from:near.Begin[n]])
		w.arena = w.arena[:at+all]
	default:
		w.arena = w.arena[:at+copy(keys, near.Keys[begin:near.Begin[taken]])]
	}
	w.items = items

	return taken
}

// skipDeleted moves on if a range delete covers what s is at: in s's own memtable if it is newer,
// in a newer memtable in any case, and then it covers everything of s in the range.
func (it *Iterator) skipDeleted(s *source) (bool, error) {
	m := &it.w.m
	for j := 0; j <= m.cur && m.src[j].table.Index != nil; j++ {
		// Memtables come first among the sources, from the newest on: those before s are newer than it.
		t := m.src[j].table.Tombstones.Find(s.key)
		if t == nil {
			continue
		}
		if j == m.cur {
			if t.Seq < s.mi.Seq() {
				continue
			}

			return true, m.next() // which leaves the key of older sources behind too
		}
		if m.reverse {
			return true, m.skip(t.Lo)
		}

		return true, m.skip(t.Hi)
	}

	return false, nil
}
