package db

import (
	"bytes"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
)

// source is one of the sorted sequences that an iterator merges: a memtable or a tier. It moves
// one way only.
type source struct {
	table *table
	tombs *tombs
	mi    memtable.Iter
	v     memtable.Version // that mi is at

	tier *tier
	at   int // the ref that ri is in
	ri   run.Iter

	ok  bool
	key []byte // if ok
}

// seek goes to the first key of the walk that begins at bound: forward the first that is not
// below it, backward the last that is below it; an empty bound is the end of all keys on that side.
func (s *source) seek(bound []byte, reverse bool) error {
	if s.table != nil {
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
	refs := s.tier.refs
	if !reverse {
		s.at = s.tier.find(bound)
		return s.enter(bound, false)
	}
	s.at = len(refs) - 1
	if len(bound) > 0 {
		s.at = s.tier.find(bound)
		if s.at == len(refs) || bytes.Compare(refs[s.at].lo, bound) >= 0 {
			s.at--
		}
	}
	return s.enter(bound, true)
}

// enter begins at ref at, or the first one after it, in the direction of the walk, that has a key
// within bound.
func (s *source) enter(bound []byte, reverse bool) error {
	for refs := s.tier.refs; s.at >= 0 && s.at < len(refs); {
		r := &refs[s.at]
		r.file.r.Init(&s.ri)
		if reverse {
			if len(r.hi) > 0 && (len(bound) == 0 || bytes.Compare(r.hi, bound) < 0) {
				bound = r.hi
			}
			if len(bound) == 0 {
				s.ok = s.ri.Last()
			} else {
				s.ok = s.ri.SeekLT(bound)
			}
		} else {
			if bytes.Compare(bound, r.lo) < 0 {
				bound = r.lo
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

// settle looks at where the run's iterator came to. It returns false, and goes to the next ref, if
// that is outside of r.
func (s *source) settle(r *ref, reverse bool) (bool, error) {
	if s.ok {
		s.key = s.ri.Key()
		if reverse {
			s.ok = bytes.Compare(s.key, r.lo) >= 0
		} else {
			s.ok = len(r.hi) == 0 || bytes.Compare(s.key, r.hi) < 0
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

func (s *source) load() {
	if s.ok {
		s.v = s.mi.Version()
		s.key = s.v.Key
	}
}

// move goes to the next key of the walk.
func (s *source) move(reverse bool) error {
	if s.table != nil {
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
		r := &s.tier.refs[s.at]
		if !reverse && len(r.hi) == 0 {
			s.key = s.ri.Key()
			return nil
		}
	}
	if done, err := s.settle(&s.tier.refs[s.at], reverse); done || err != nil {
		return err
	}
	return s.enter(nil, reverse)
}

// merged walks over several sources at once, the newest first among them, and comes to each key
// once, at the newest source that has it.
type merged struct {
	src     []source
	reverse bool
	cur     int    // the source of the present key, -1 at the end
	second  int    // the one that follows it, -1 if none
	bound   []byte // its key
	same    bool   // second has the present key too
}

// compare orders keys in the direction of the walk.
func (m *merged) compare(a, b []byte) int {
	c := bytes.Compare(a, b)
	if m.reverse {
		return -c
	}
	return c
}

func (m *merged) seek(bound []byte) error {
	for i := range m.src {
		if err := m.src[i].seek(bound, m.reverse); err != nil {
			return err
		}
	}
	m.choose()
	return nil
}

// choose finds the present key's source and the one that follows it.
func (m *merged) choose() {
	m.cur, m.second, m.same = -1, -1, false
	for i := range m.src {
		s := &m.src[i]
		switch {
		case !s.ok:
		case m.cur < 0:
			m.cur = i
		case m.compare(s.key, m.src[m.cur].key) < 0:
			m.second, m.cur = m.cur, i
		case m.second < 0 || m.compare(s.key, m.src[m.second].key) < 0:
			m.second = i
		}
	}
	if m.second >= 0 {
		m.bound = m.src[m.second].key
		m.same = bytes.Equal(m.bound, m.src[m.cur].key)
	}
}

// next goes to the next key.
func (m *merged) next() error {
	cur := &m.src[m.cur]
	if m.same {
		for i := range m.src {
			if s := &m.src[i]; i != m.cur && s.ok && bytes.Equal(s.key, cur.key) {
				if err := s.move(m.reverse); err != nil {
					return err
				}
			}
		}
	}
	if err := cur.move(m.reverse); err != nil {
		return err
	}
	return m.moved()
}

// moved chooses again if the present source does not come first any more.
func (m *merged) moved() error {
	if m.second < 0 && m.src[m.cur].ok {
		return nil
	}
	if !m.same && m.src[m.cur].ok && m.compare(m.src[m.cur].key, m.bound) < 0 {
		return nil
	}
	m.choose()
	return nil
}

// skip goes on with the present source from bound.
func (m *merged) skip(bound []byte) error {
	s := &m.src[m.cur]
	if len(bound) == 0 {
		s.ok = false
	} else if err := s.seek(bound, m.reverse); err != nil {
		return err
	}
	m.same = true // choose anew
	return m.moved()
}

// iterator implements [holdfast.Iterator]. It reads some entries ahead at a time, more the longer
// the walk is: entering the guard against memory faults, and choosing between sources, then costs
// little per entry, and what it hands out lies in its own memory, where nothing can fault.
type iterator struct {
	*walk  // nil once it is closed
	d      *DB
	st     state
	at     int
	ended  bool
	hidden bool // there are range deletes
	err    error
}

// walk is the memory of an iterator, for the next one to use again.
type walk struct {
	m      merged
	lo, hi []byte
	items  []item
	ahead  int // how many items to read
	arena  []byte
	seg    *segment // that the last value came from
	mapped []byte   // as much of it as holds frames, if it is mapped
}

type item struct{ key, value []byte }

var walks = sync.Pool{New: func() any { return new(walk) }}

const (
	firstAhead = 8
	maxAhead   = 128
	maxArena   = 64 << 10 // bytes read ahead, roughly
)

// scan returns an iterator; it takes over the reference to the state's view.
func (d *DB) scan(st state, r holdfast.Range) holdfast.Iterator {
	d.gate.AddIterator(1)
	w := walks.Get().(*walk)
	it := &iterator{walk: w, d: d, st: st}
	w.lo, w.hi = append(w.lo[:0], r.Lo...), append(w.hi[:0], r.Hi...)
	w.items, w.ahead = w.items[:0], firstAhead
	w.m.reverse, w.m.src = r.Reverse, w.m.src[:0]
	it.addTable(st.view.mem, st.tombs)
	for _, t := range st.view.imm {
		it.addTable(t, t.tombs.Load())
	}
	for i := range st.view.ver.tiers {
		w.add().tier = &st.view.ver.tiers[i]
	}
	if len(r.Lo) > 0 && len(r.Hi) > 0 && bytes.Compare(r.Lo, r.Hi) >= 0 {
		it.ended = true
		return it
	}
	start := w.lo
	if r.Reverse {
		start = w.hi
	}
	it.err = it.seek(start)
	return it
}

func (it *iterator) addTable(t *table, ts *tombs) {
	if t.image.Bytes() == 0 {
		return
	}
	it.hidden = it.hidden || !ts.empty()
	s := it.add()
	s.table, s.tombs, s.mi = t, ts, t.index.Iter(it.st.seq)
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
		s.table, s.tombs, s.tier, s.mi, s.v, s.key, s.ok = nil, nil, nil, memtable.Iter{}, memtable.Version{}, nil, false
	}
	clear(w.items)
	w.seg, w.mapped = nil, nil
	if cap(w.arena) <= 4*maxArena {
		walks.Put(w)
	}
}

func (it *iterator) seek(bound []byte) (err error) {
	defer unguard(guard(), &err)
	return it.m.seek(bound)
}

func (it *iterator) Next() bool {
	if it.walk == nil {
		return false
	}
	if it.at+1 < len(it.items) {
		it.at++
		return true
	}
	it.at = 0
	if it.ended || it.err != nil {
		it.items = it.items[:0]
		return false
	}
	it.err = it.fill()
	it.ahead = min(4*it.ahead, maxAhead)
	return len(it.items) > 0
}

func (it *iterator) Key() []byte {
	if it.walk != nil && it.at < len(it.items) {
		return it.items[it.at].key
	}
	return nil
}

func (it *iterator) Value() []byte {
	if it.walk != nil && it.at < len(it.items) {
		return it.items[it.at].value
	}
	return nil
}

// Err implements [holdfast.Iterator]: an error shows when all before it has been handed out.
func (it *iterator) Err() error {
	if it.walk != nil && it.at+1 < len(it.items) {
		return nil
	}
	return it.err
}

func (it *iterator) Close() error {
	if it.walk != nil {
		it.recycle()
		it.walk = nil
		it.st.view.release()
		it.d.gate.AddIterator(-1)
	}
	return it.err
}

// fill reads entries ahead.
func (it *iterator) fill() (err error) {
	it.items, it.arena = it.items[:0], it.arena[:0]
	if cap(it.arena) > 4*maxArena {
		it.arena = nil // after a large value
	}
	defer unguard(guard(), &err)
	m := &it.m
	for len(it.items) < it.ahead && len(it.arena) < maxArena {
		if m.cur < 0 {
			it.ended = true
			return nil
		}
		s := &m.src[m.cur]
		if m.reverse {
			if len(it.lo) > 0 && bytes.Compare(s.key, it.lo) < 0 {
				it.ended = true
				return nil
			}
		} else if len(it.hi) > 0 && bytes.Compare(s.key, it.hi) >= 0 {
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
		for n := it.near(s); n > 1 && len(it.items) < it.ahead && len(it.arena) < maxArena; n-- {
			if err := it.takeRun(s); err != nil {
				return err
			}
			s.ri.Next()
			s.key = s.ri.Key()
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

// near returns how many entries of s, the present one first, can be taken without a look at anything else: they
// are at hand, within all bounds, and before what other sources have.
func (it *iterator) near(s *source) int {
	m := &it.m
	if s.table != nil || m.reverse || it.hidden || m.same {
		return 1
	}
	n := s.ri.Near()
	if n < 2 {
		return 1
	}
	last := s.ri.NearKey(n - 1)
	if len(it.hi) > 0 && bytes.Compare(last, it.hi) >= 0 || m.second >= 0 && bytes.Compare(last, m.bound) >= 0 {
		return 1
	}
	if hi := s.tier.refs[s.at].hi; len(hi) > 0 && bytes.Compare(last, hi) >= 0 {
		return 1
	}
	return n
}

// take adds what s is at, unless it is a tombstone.
func (it *iterator) take(s *source) error {
	if s.table != nil {
		if s.v.Kind != holdfast.KindSet {
			return nil
		}
		value := s.v.Value
		if s.v.Far {
			k := len(it.arena)
			arena, err := s.table.value(it.arena, &s.v)
			if err != nil {
				return err
			}
			it.arena, value = arena, arena[k:len(arena):len(arena)]
		}
		it.items = append(it.items, item{s.v.Key, value})
		return nil
	}
	return it.takeRun(s)
}

// takeRun is take from a run.
func (it *iterator) takeRun(s *source) error {
	e := s.ri.Entry()
	if e.Tombstone {
		return nil
	}
	k := len(it.arena)
	arena := append(it.arena, s.key...)
	v := len(arena)
	if id := uint32(e.Place >> 32); it.seg == nil || it.seg.id != id {
		it.enterSegment(id)
	}
	off := uint64(uint32(e.Place))
	end := off + uint64(e.Len)
	if end <= uint64(len(it.mapped)) && checksum(it.mapped[off:end]) == e.Sum {
		arena = append(arena, it.mapped[off:end]...)
	} else {
		var err error
		if arena, err = it.st.view.ver.value(arena, e); err != nil {
			return err
		}
	}
	it.arena = arena
	it.items = append(it.items, item{arena[k:v:v], arena[v:len(arena):len(arena)]})
	return nil
}

// enterSegment remembers where the next values are, to save the way there for each.
func (it *iterator) enterSegment(id uint32) {
	it.seg, it.mapped = it.st.view.ver.segment(id), nil
	if it.seg != nil && it.seg.in != nil {
		b := it.seg.in.Bytes()
		it.mapped = b[:min(it.seg.used.Load(), int64(len(b)))]
	}
}

// skipDeleted moves on if a range delete covers what s is at: in s's own memtable if it is newer,
// in a newer memtable in any case, and then it covers everything of s in the range.
func (it *iterator) skipDeleted(s *source) (bool, error) {
	m := &it.m
	for j := 0; j <= m.cur && m.src[j].table != nil; j++ {
		t := m.src[j].tombs.find(s.key)
		if t == nil {
			continue
		}
		if j == m.cur {
			if t.seq < s.v.Seq {
				continue
			}
			return true, m.next() // which leaves the key of older sources behind too
		}
		if m.reverse {
			return true, m.skip(t.lo)
		}
		return true, m.skip(t.hi)
	}
	return false, nil
}
