package tree

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// source is one of the sorted sequences that an iterator merges: a memtable or a tier. It moves
// one way only.
type source struct {
	table Memtable // Index is nil for a tier
	mi    memtable.Iter

	tier *Tier
	at   int // the ref that ri is in
	ri   table.Iter

	ok  bool
	key []byte // if ok
}

// seek goes to the first key of the walk that begins at bound: forward the first that is not
// below it, backward the last that is below it; an empty bound is the end of all keys on that side.
func (s *source) seek(bound []byte, reverse bool) error {
	if s.table.Index != nil {
		switch {
		case !reverse && len(bound) == 0:
			s.ok = s.mi.First()
		case !reverse:
			s.ok = s.mi.SeekGE(bound)
		case len(bound) == 0:
			s.ok = s.mi.Last()
		default:
			s.ok = s.mi.SeekLT(bound)
		}
		s.load()

		return nil
	}

	// A ref that ends before the bound is passed over without opening its table. Backward, the ref that holds the bound
	// may begin at it, and then has no key below it.
	refs := s.tier.Refs
	if !reverse {
		s.at = s.tier.find(bound)
		return s.enter(bound, false)
	}

	s.at = len(refs) - 1
	if len(bound) > 0 {
		s.at = s.tier.find(bound)
		if s.at == len(refs) || bytes.Compare(refs[s.at].Lo, bound) >= 0 {
			s.at--
		}
	}

	return s.enter(bound, true)
}

// enter begins at ref at, or the first one after it, in the direction of the walk, that has a key
// within bound.
func (s *source) enter(bound []byte, reverse bool) error {
	for refs := s.tier.Refs; s.at >= 0 && s.at < len(refs); {
		r := &refs[s.at]

		// The table may have more keys than the ref: the bound of the ref is sought, and settle looks whether what was found
		// lies within it. Only the first ref has the walk's own bound.
		r.Table.Reader.Init(&s.ri)
		if reverse {
			if len(r.Hi) > 0 && (len(bound) == 0 || bytes.Compare(r.Hi, bound) < 0) {
				bound = r.Hi
			}
			if len(bound) == 0 {
				s.ok = s.ri.Last()
			} else {
				s.ok = s.ri.SeekLT(bound)
			}
		} else {
			if bytes.Compare(bound, r.Lo) < 0 {
				bound = r.Lo
			}
			s.ok = s.ri.SeekGE(bound)
		}
		if done, err := s.settle(r, reverse); done || err != nil {
			return err
		}

		bound = nil
	}
	s.ok = false

	return nil
}

// settle looks at where the table's iterator came to. It returns false, and goes to the next ref, if
// that is outside of r.
func (s *source) settle(r *Ref, reverse bool) (bool, error) {
	if s.ok {
		s.key = s.ri.Key()
		if reverse {
			s.ok = bytes.Compare(s.key, r.Lo) >= 0
		} else {
			s.ok = len(r.Hi) == 0 || bytes.Compare(s.key, r.Hi) < 0
		}
	} else if err := s.ri.Err(); err != nil {
		return false, err
	}
	if !s.ok {
		if reverse {
			s.at--
		} else {
			s.at++
		}
	}

	return s.ok, nil
}

// load makes the memtable's present key, if there is one, the source's.
func (s *source) load() {
	if s.ok {
		s.key = s.mi.Key()
	}
}

// move goes to the next key of the walk.
func (s *source) move(reverse bool) error {
	if s.table.Index != nil {
		if reverse {
			s.ok = s.mi.Prev()
		} else {
			s.ok = s.mi.Next()
		}
		s.load()

		return nil
	}
	if reverse {
		s.ok = s.ri.Prev()
	} else {
		s.ok = s.ri.Next()
	}
	if s.ok {
		// Most tables are whole, so forward nothing cuts their end, and no key has to be compared.
		r := &s.tier.Refs[s.at]
		if !reverse && len(r.Hi) == 0 {
			s.key = s.ri.Key()
			return nil
		}
	}

	// settle tells whether the key still lies in the ref, and goes to the next ref if not.
	if done, err := s.settle(&s.tier.Refs[s.at], reverse); done || err != nil {
		return err
	}

	return s.enter(nil, reverse)
}

// merged walks over several sources at once, the newest first among them, and comes to each key
// once, at the newest source that has it.
//
// It knows the source of the present key, and the one whose key comes next. As long as the first stays before the
// second, it moves on without a look at the others.
type merged struct {
	src     []source
	reverse bool
	order   []int // the sources that have a key, by their keys in the direction of the walk, then from the newest on

	// What order begins with.
	cur    int    // the source of the present key, -1 at the end
	second int    // the source whose key follows, -1 if there is none
	bound  []byte // the key of second
	same   bool   // second has the present key too
}

// compare orders keys in the direction of the walk.
func (m *merged) compare(a, b []byte) int {
	c := bytes.Compare(a, b)
	if m.reverse {
		return -c
	}

	return c
}

// seek puts every source at the first key of the walk and chooses among them.
func (m *merged) seek(bound []byte) error {
	for i := range m.src {
		if err := m.src[i].seek(bound, m.reverse); err != nil {
			return err
		}
	}
	m.choose()

	return nil
}

// choose puts all sources in order.
func (m *merged) choose() {
	m.order = m.order[:0]
	for i := range m.src {
		if s := &m.src[i]; s.ok {
			k := len(m.order)
			m.order = append(m.order, i)
			for ; k > 0 && m.compare(s.key, m.src[m.order[k-1]].key) < 0; k-- {
				m.order[k] = m.order[k-1]
			}
			m.order[k] = i
		}
	}
	m.lead()
}

// lead notes what the order begins with.
func (m *merged) lead() {
	m.cur, m.second, m.bound, m.same = -1, -1, nil, false
	if len(m.order) > 0 {
		m.cur = m.order[0]
	}
	if len(m.order) > 1 {
		m.second = m.order[1]
		m.bound = m.src[m.second].key
		m.same = bytes.Equal(m.bound, m.src[m.cur].key)
	}
}

// next goes to the next key.
func (m *merged) next() error {
	cur, n := &m.src[m.cur], 1

	// All sources that have the present key move on, the first of the order: the newest one has decided about it. It moves
	// last, because its key is compared here and is no longer valid then.
	if m.same {
		for ; n < len(m.order) && bytes.Equal(m.src[m.order[n]].key, cur.key); n++ {
			if err := m.src[m.order[n]].move(m.reverse); err != nil {
				return err
			}
		}
	}
	if err := cur.move(m.reverse); err != nil {
		return err
	}
	m.moved(n)

	return nil
}

// moved puts the first n of the order, which have moved, where they belong now: from the last of them on, each among
// those behind it.
func (m *merged) moved(n int) {
	for n--; n >= 0; n-- {
		i, k := m.order[n], n
		s := &m.src[i]
		if !s.ok {
			m.order = m.order[:n+copy(m.order[n:], m.order[n+1:])]
			continue
		}

		// As long as the present source stays before the second, the others need not be looked at: what matters is one
		// comparison. Where keys come from everywhere, it passes half of the others.
		for ; k+1 < len(m.order); k++ {
			next := m.order[k+1]
			c := m.compare(s.key, m.src[next].key)
			if c < 0 || c == 0 && i < next {
				break
			}
			m.order[k] = next
		}
		m.order[k] = i
	}
	m.lead()
}

// skip goes on with the present source from bound.
func (m *merged) skip(bound []byte) error {
	s := &m.src[m.cur]
	if len(bound) == 0 {
		s.ok = false
	} else if err := s.seek(bound, m.reverse); err != nil {
		return err
	}
	m.moved(1)

	return nil
}

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
	copies []byte   // short values that were read ahead, each at a multiple of eight bytes
	lent   int      // bytes of values that were read ahead, and are handed out there or in copies
	far    bool     // the walk reads its first values, far ahead; see reaches
	seg    *segment // the segment of the last value, and its index in the version
	at     int
	ahead  ahead // where values of long walks are read ahead
	slow   int   // how many read calls of values took long
}

// unread is a value that is not read yet.
type unread struct {
	table.Entry
	item   int    // that it belongs to
	mapped []byte // where it is in memory, nil if a call has to read it
	at     int    // where it is in the arena, -1 if it is not yet
}

var walks = sync.Pool{New: func() any { return new(walk) }}

const (
	firstAhead = 8
	maxAhead   = 128
	minArena   = 8 << 10 // bytes read ahead, roughly
	maxArena   = 64 << 10
	firstReach = 24 << 10 // bytes of the first values of a walk to an end that is known, if they are read from a file
	mostCopied = 256      // bytes of a value that was read ahead and is copied for its checksum
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
	w.unread, w.owed, w.lent = w.unread[:0], 0, 0
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
	w.items, w.arena, w.copies, w.lent = w.items[:0], w.arena[:0], w.copies[:0], 0
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
			value = it.streamed(e)
			w.lent += len(value)
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

// note leaves the value of an item to resolve. If it is in memory, the processor loads it meanwhile: it waits for many
// at once, not for one after the other.
func (it *Iterator) note(e *table.Entry, item int) {
	w := it.w
	u := unread{Entry: *e, item: item, at: -1}
	if w.enter(it.ver, e.Place) {
		u.mapped = w.seg.Mapped(int64(uint32(e.Place)), int(e.Len))
		format.IntoCache(u.mapped)
	}
	w.unread = append(w.unread, u)
	w.owed += int(e.Len)
}

// streamed returns the value of an entry if it lies in a stream that is read ahead, in memory that stays as it is until
// the walk asks for more. It returns nil if the value has to be read alone, which also tells what is wrong with it.
func (it *Iterator) streamed(e *table.Entry) []byte {
	w := it.w
	if !w.enter(it.ver, e.Place) {
		return nil
	}
	b := w.ahead.read(it.ver, w.at, int64(uint32(e.Place)), int(e.Len), w.m.reverse)

	// A checksum goes by eight bytes, from a multiple of eight on, and what is before and behind those is a branch each.
	// Where short values lie anywhere the processor takes the wrong one so often that a copy is cheaper.
	if n := len(b); n > 0 && n <= mostCopied {
		if w.copies == nil {
			w.copies = make([]byte, 0, maxAhead*(mostCopied+8))
		}
		if at := (len(w.copies) + 7) &^ 7; at+n <= cap(w.copies) {
			w.copies = append(w.copies[:at], b...)
			b = w.copies[at : at+n : at+n]
		}
	}
	if b == nil || format.Checksum(b) != e.Sum {
		return nil
	}

	return b
}

// resolve reads the values that takeNear has left.
func (it *Iterator) resolve() (err error) {
	w := it.w

	// Reads of this walk have waited for a disk: it gets all of them at a time.
	if w.slow >= manySlow {
		it.prefetch(w.unread)
	}

	// A mapping may fault in the middle. What was copied until then is dropped as a whole, and read by calls.
	before := len(w.arena)
	if format.Guarded(func() { w.arena = w.copyMapped(w.arena, w.unread) }) != nil {
		w.arena = w.arena[:before]
		for i := range w.unread {
			if u := &w.unread[i]; u.mapped != nil {
				u.mapped, u.at = nil, -1 // the read calls say what is wrong
			}
		}
	}

	for i := range w.unread {
		u := &w.unread[i]
		if u.at < 0 {
			it.together(w.unread[i:])
		}
		if u.at < 0 || format.Checksum(w.arena[u.at:u.at+int(u.Len)]) != u.Sum {
			u.at = len(w.arena)
			if err = it.value(w.unread[i:]); err != nil {
				w.items = w.items[:u.item]
				break
			}
		}
		end := u.at + int(u.Len)
		w.items[u.item].Value = w.arena[u.at:end:end]
	}
	w.unread, w.owed = w.unread[:0], 0

	return err
}

// atHand is an iterator as [table.Values]: it has values that are known to be in the system's memory.
type atHand Iterator

// Values implements [table.Values].
func (a *atHand) Values(entries []table.Entry, bytes int) []byte {
	w, n := a.w, len(a.w.unread)
	defer func() { w.unread = w.unread[:n] }()
	for _, e := range entries {
		u := unread{Entry: e}
		if e.Len > 0 {
			if !w.enter(a.ver, e.Place) {
				return nil
			}
			if u.mapped = w.seg.Mapped(int64(uint32(e.Place)), int(e.Len)); u.mapped == nil {
				return nil
			}
			format.IntoCache(u.mapped)
		}
		w.unread = append(w.unread, u)
	}
	us, b := w.unread[n:], slices.Grow([]byte(nil), bytes)

	// What is wrong with one of them, a read of it alone says.
	if format.Guarded(func() { b = w.copyMapped(b, us) }) != nil {
		return nil
	}

	for i := range us {
		u := &us[i]
		if !u.Tombstone && format.Checksum(b[u.at:u.at+int(u.Len)]) != u.Sum {
			return nil
		}
	}

	return b
}

// copyMapped appends the values that are in memory to dst, and notes where they are in it.
func (w *walk) copyMapped(dst []byte, us []unread) []byte {
	for i := range us {
		if u := &us[i]; u.mapped != nil {
			u.at = len(dst)
			dst = append(dst, u.mapped...)
		}
	}

	return dst
}

// together reads the first of values that a call has to read, and those that follow it, by one call, if they lie behind
// each other in the file, as those of keys do that were written in their order. It does nothing if there is only one,
// or if they cannot be read: what is wrong, a single value tells.
func (it *Iterator) together(us []unread) {
	w, e := it.w, &us[0].Entry
	lo := int64(uint32(e.Place))
	hi, n := lo+int64(e.Len), 1
	for ; n < len(us) && us[n].Place>>32 == e.Place>>32; n++ {
		// Between two values there are a key and a few bytes. Where there is more, what lies between is not wanted.
		from, to := int64(uint32(us[n].Place)), int64(uint32(us[n].Place))+int64(us[n].Len)
		gap := from - hi
		if w.m.reverse {
			gap = lo - to
		}
		if gap < 0 || gap > mostBetween || max(hi, to)-min(lo, from) > mostTogether {
			break
		}
		lo, hi = min(lo, from), max(hi, to)
	}
	if n == 1 || !w.enter(it.ver, e.Place) {
		return
	}

	start, at := w.clock(), len(w.arena)
	arena, err := w.seg.Read(w.arena, lo, int(hi-lo))
	if err != nil {
		return
	}
	w.arena = arena
	for i := range us[:n] {
		if u := &us[i]; u.at < 0 {
			u.at = at + int(int64(uint32(u.Place))-lo)
		}
	}
	it.waited(start, us[n:])
}

const (
	mostBetween  = 4 << 10  // bytes between two values that are read by one call
	mostTogether = 31 << 10 // bytes of such a call: a longer one would not be noted as having brought its pages to memory
)

// value appends the first of values that a call has to read to the arena.
func (it *Iterator) value(us []unread) (err error) {
	w, e := it.w, us[0].Entry
	start := w.clock()
	if w.enter(it.ver, e.Place) {
		w.arena, err = w.seg.Value(w.arena, int64(uint32(e.Place)), int(e.Len), e.Sum)
	} else {
		w.arena, err = it.ver.Value(w.arena, e)
	}
	it.waited(start, us[1:])

	return err
}

// clock returns the time, if it is to be known how long a read call takes.
func (w *walk) clock() (start time.Time) {
	if w.slow < manySlow {
		start = time.Now()
	}

	return start
}

// waited notes that a read call has ended. If such calls take long, what is still to be read is prefetched.
func (it *Iterator) waited(start time.Time, rest []unread) {
	w := it.w
	if w.slow < manySlow && time.Since(start) > slowRead {
		if w.slow++; w.slow == manySlow {
			it.prefetch(rest)
		}
	}
}

// Once manySlow reads have taken longer than slowRead, they are taken to wait for a disk. A single one may have waited
// for a processor.
const (
	slowRead = 20 * time.Microsecond
	manySlow = 2
)

// prefetch has values read from the disk that are not known to be in memory, all of them at once.
func (it *Iterator) prefetch(us []unread) {
	for i := range us {
		if u := &us[i]; u.at < 0 && u.mapped == nil && it.w.enter(it.ver, u.Place) {
			it.w.seg.Prefetch(int64(uint32(u.Place)), int(u.Len))
		}
	}
}

// takeSpan is takeNear for entries whose values lie close to each other in a segment, one behind the other, as
// those of keys do that were written in their order: keys and values are then copied, or read, at once. It returns
// false, and has done nothing, if they do not, or if one of them is not in order.
func (it *Iterator) takeSpan(near table.Near) bool {
	w, n := it.w, len(near.Entries)
	if n < 2 {
		return false
	}

	// The places of the first and the last entry give the stretch. Whether those between lie in it, in order, and are
	// whole, shows only when it has been read.
	first, last := &near.Entries[0], &near.Entries[n-1]
	lo, hi := uint64(uint32(first.Place)), uint64(uint32(last.Place))+uint64(last.Len)
	begin := near.Begin[0]
	keys := near.Keys[begin:near.Begin[n]]
	// Between two values there are a key and a few bytes; twice as much is still less work than one at a time.
	most := min(w.bytes-len(w.arena)-w.owed, 2*(len(keys)+n*(8+int(max(first.Len, last.Len)))))

	if hi <= lo || hi-lo > uint64(max(most, 0)) || !w.enter(it.ver, first.Place) {
		return false
	}
	size := int(hi - lo)

	at := len(w.arena)
	w.arena = slices.Grow(w.arena, len(keys)+size)
	own := w.arena[at : at+len(keys)+size]
	values := own[len(keys):]

	// They are copied before they are checked: what is mapped may change.
	if b, err := w.seg.Read(values[:0], int64(lo), size); err != nil || len(b) != size || &b[0] != &values[0] {
		return false // what is wrong, a single value tells
	}
	w.items = slices.Grow(w.items, n)

	items := w.items[len(w.items) : len(w.items)+n]
	taken := 0
	for k := range n {
		i := k
		if w.m.reverse {
			i = n - 1 - k
		}
		e := &near.Entries[i]
		if e.Tombstone {
			continue
		}
		lo := e.Place - first.Place // far beyond if it is in another segment, or before the first
		hi := lo + uint64(e.Len)
		if lo > uint64(size) || hi > uint64(size) || format.Checksum(values[lo:hi]) != e.Sum {
			return false
		}
		key, end := near.Begin[i]-begin, near.Begin[i+1]-begin
		items[taken] = item{Key: own[key:end:end], Value: values[lo:hi:hi]}
		taken++
	}

	// All were in order. Only now does the walk change, so that a false before leaves it as it was.
	copy(own, keys)
	w.arena, w.items = w.arena[:at+len(own)], w.items[:len(w.items)+taken]

	return true
}

// enter goes to the segment of a place. It returns false if the version has none such.
func (w *walk) enter(ver *Version, place uint64) bool {
	at := ver.find(uint32(place >> 32))
	if at < 0 {
		return false
	}
	w.seg, w.at = &ver.segments[at], at

	return true
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
