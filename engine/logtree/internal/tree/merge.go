package tree

import (
	"bytes"

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
